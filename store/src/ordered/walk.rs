//! A walk over the keys of a range, forward or backward.
//!
//! The walker keeps the branches on its path. Their keys do not change, so the children of a branch divide its keys
//! without gap or overlap however often they are replaced meanwhile: the walk meets every key that was there all the
//! time exactly once, in order. A replaced branch still shows the children that it had when it was replaced, which is
//! after the walk began.

use crate::epoch::EpochPin;
use crate::limits::ORDERED_DEPTH_MAX;
use crate::memory::prefetch_value;
use crate::ordered::node::Node;
use crate::ordered::{KeyRange, OrderedKeys};

/// Keys before the end of a leaf at which the next leaf's keys are prefetched: some memory latencies ahead, and never
/// by a short scan that ends before.
const ASK_AHEAD_KEYS: usize = 24;

/// A walk over the keys of a range. Keys live as long as the pin.
pub(crate) struct Walk<'p, 'r> {
    pin: &'p EpochPin<'p>,
    range: KeyRange<'r>,
    /// Branches from the root down, each with the number of the walk's current child.
    path: [(Option<&'p Node>, usize); ORDERED_DEPTH_MAX],
    depth: usize,
    leaf: Option<&'p Node>,
    /// Forward: the next key. Backward: one more than it.
    at: usize,
}

impl<'p, 'r> Walk<'p, 'r> {
    pub(super) fn new(keys: &'p OrderedKeys, pin: &'p EpochPin<'p>, range: KeyRange<'r>) -> Walk<'p, 'r> {
        let mut walk = Walk { pin, range, path: [(None, 0); ORDERED_DEPTH_MAX], depth: 0, leaf: None, at: 0 };
        let is_before = |key: &[u8]| match range.reverse {
            false => range.is_below(key),
            true => !range.is_above(key),
        };
        let (mut node, _) = keys.root.load(pin);
        while !node.is_leaf() {
            let child = node.keys.partition_point(is_before);
            node = walk.push(node, child);
        }
        walk.enter(node);
        walk.at = node.keys.partition_point(is_before);
        if walk.left(node) < ASK_AHEAD_KEYS {
            walk.ask_ahead();
        }
        walk
    }

    /// Descends to a child.
    fn push(&mut self, node: &'p Node, child: usize) -> &'p Node {
        self.path[self.depth] = (Some(node), child);
        self.depth += 1;
        node.children[child].load(self.pin).0
    }

    /// Enters a leaf: prefetches its keys, and the node of the next leaf.
    fn enter(&mut self, leaf: &'p Node) {
        self.leaf = Some(leaf);
        if let Some(next) = self.next_leaf() {
            prefetch_value(next);
        }
        leaf.keys.prefetch();
    }

    /// Prefetches the keys of the next leaf.
    fn ask_ahead(&self) {
        if let Some(next) = self.next_leaf() {
            next.keys.prefetch();
        }
    }

    /// Returns the next leaf if it is in the same branch; the first leaf of another branch is not prefetched.
    fn next_leaf(&self) -> Option<&'p Node> {
        let (branch, child) = self.path[self.depth.checked_sub(1)?];
        let next = if self.range.reverse { child.checked_sub(1)? } else { child + 1 };
        branch?.children.get(next).map(|slot| slot.load(self.pin).0)
    }

    /// Returns the number of keys of the leaf not yet returned.
    #[inline]
    fn left(&self, leaf: &Node) -> usize {
        if self.range.reverse { self.at } else { leaf.keys.len().saturating_sub(self.at) }
    }

    /// Returns the next key of the range.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<&'p [u8]> {
        loop {
            let leaf = self.leaf?;
            if self.left(leaf) == ASK_AHEAD_KEYS {
                self.ask_ahead();
            }
            let key = if !self.range.reverse && self.at < leaf.keys.len() {
                self.at += 1;
                leaf.keys.get(self.at - 1)
            } else if self.range.reverse && self.at > 0 {
                self.at -= 1;
                leaf.keys.get(self.at)
            } else {
                self.turn_over();
                continue;
            };
            let ends = if self.range.reverse { self.range.is_below(key) } else { self.range.is_above(key) };
            if !ends {
                return Some(key);
            }
            self.leaf = None;
        }
    }

    /// Goes to the next leaf.
    #[cold]
    fn turn_over(&mut self) {
        self.leaf = None;
        let mut node = loop {
            let Some(depth) = self.depth.checked_sub(1) else { return };
            self.depth = depth;
            let (Some(branch), child) = self.path[depth] else { return };
            let next = if self.range.reverse { child.checked_sub(1) } else { Some(child + 1) };
            if let Some(next) = next.filter(|&next| next < branch.children.len()) {
                break self.push(branch, next);
            }
        };
        while !node.is_leaf() {
            let child = if self.range.reverse { node.children.len() - 1 } else { 0 };
            node = self.push(node, child);
        }
        self.enter(node);
        self.at = if self.range.reverse { node.keys.len() } else { 0 };
        if self.left(node) < ASK_AHEAD_KEYS {
            self.ask_ahead();
        }
    }
}
