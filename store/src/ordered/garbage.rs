//! Nodes that have left a tree, gathered until it is worth handing them to the reclaimer.
//!
//! Each edit leaves a node behind, and the reclaimer frees one thing a step, so a core gathers some and hands them
//! over together; who does frees as much as it brings, if no reader is in the way. What a core still has when it ends
//! it hands over too: dropping it would free it at once.

use crate::limits::{ORDERED_GARBAGE_BYTES_MAX, ORDERED_GARBAGE_NODES_MAX};
use crate::ordered::node::Node;
use crate::reclaim::{Reclaimer, Retired};

/// One core's, for all its tables.
#[derive(Default)]
pub(crate) struct NodeGarbage {
    nodes: Vec<Retired<Node>>,
    bytes: u64,
}

impl NodeGarbage {
    /// Takes over a node that readers who are not pinned yet cannot reach any more.
    pub(super) fn add(&mut self, node: Retired<Node>) {
        self.bytes += node.get().bytes();
        self.nodes.push(node);
    }

    /// Hands all to the reclaimer where there is enough.
    pub(crate) fn hand_over_when_due(&mut self, reclaimer: &Reclaimer) {
        if self.nodes.len() >= ORDERED_GARBAGE_NODES_MAX || self.bytes >= ORDERED_GARBAGE_BYTES_MAX {
            self.hand_over(reclaimer);
            reclaimer.step();
            reclaimer.step();
        }
    }

    /// Hands all to the reclaimer.
    pub(crate) fn hand_over(&mut self, reclaimer: &Reclaimer) {
        self.bytes = 0;
        let nodes = std::mem::take(&mut self.nodes);
        if !nodes.is_empty() {
            reclaimer.retire(crate::reclaim::Garbage::Boxed(Box::new(nodes)));
        }
    }
}
