//! Nodes that have left a tree, gathered until there are enough for the reclaimer.
//!
//! Each edit leaves a node behind, and the reclaimer frees one item per step. So a core gathers some nodes and hands
//! them over together, and then frees as many as it brings, if no reader is in the way. A core that ends hands over
//! the rest too: dropping them would free them at once.

use crate::limits::{ORDERED_GARBAGE_BYTES_MAX, ORDERED_GARBAGE_NODES_MAX};
use crate::ordered::node::Node;
use crate::reclaim::{Reclaimer, Retired};

/// One core's retired nodes, for all its tables.
#[derive(Default)]
pub(crate) struct NodeGarbage {
    nodes: Vec<Retired<Node>>,
    bytes: u64,
}

impl NodeGarbage {
    /// Adds a node that new pins cannot reach any more.
    pub(super) fn add(&mut self, node: Retired<Node>) {
        self.bytes += node.get().bytes();
        self.nodes.push(node);
    }

    /// Hands all nodes to the reclaimer if there are enough.
    pub(crate) fn hand_over_when_due(&mut self, reclaimer: &Reclaimer) {
        if self.nodes.len() >= ORDERED_GARBAGE_NODES_MAX || self.bytes >= ORDERED_GARBAGE_BYTES_MAX {
            self.hand_over(reclaimer);
            reclaimer.step();
            reclaimer.step();
        }
    }

    /// Hands all nodes to the reclaimer.
    pub(crate) fn hand_over(&mut self, reclaimer: &Reclaimer) {
        self.bytes = 0;
        let nodes = std::mem::take(&mut self.nodes);
        if !nodes.is_empty() {
            reclaimer.retire(crate::reclaim::Garbage::Boxed(Box::new(nodes)));
        }
    }
}
