//! A node of the tree: sorted keys in one block, and for a branch the slots of its children.
//!
//! ```text
//!   block: [ end of key 0 │ end of key 1 │ ... as u32 ][ key 0 ][ key 1 ] ...
//!   branch with n children: n - 1 keys; child i holds keys below key i, child i + 1 from key i on
//! ```
//!
//! A node's keys never change: an edit makes another node. Only the slots of branches change: each leads to one
//! child, and is frozen when its branch is about to be replaced. Only this file turns slots into references.

use crate::epoch::EpochPin;
use crate::limits::{ORDERED_GARBAGE_BYTES_MAX, ORDERED_GARBAGE_NODES_MAX, ORDERED_LEAF_BYTES_MAX};
use crate::memory::{CACHE_LINE_BYTES, prefetch};
use crate::reclaim::{Garbage, Reclaimer, Retired};
use crate::sync::{AtomicPtr, Ordering};

/// Bytes of an offset in a block.
const OFFSET_BYTES: usize = size_of::<u32>();
/// Approximate overhead of the allocator per allocation, in bytes.
const ALLOCATION_BYTES: u64 = 16;
/// The bit of a slot's pointer that says that the slot no longer changes.
const FROZEN: usize = 1;

/// Sorted keys.
#[derive(Default)]
pub(super) struct Keys {
    block: Box<[u8]>,
    count: u32,
}

impl Keys {
    /// Returns the number of keys.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    /// Prefetches all keys.
    #[inline]
    pub(super) fn prefetch(&self) {
        let lines = self.block.len().min(ORDERED_LEAF_BYTES_MAX);
        (0..lines).step_by(CACHE_LINE_BYTES).for_each(|at| prefetch(self.block.as_ptr().wrapping_add(at)));
    }

    /// Returns the bytes of the keys, without their offsets.
    #[inline]
    pub(super) fn key_bytes(&self) -> usize {
        self.block.len() - self.len() * OFFSET_BYTES
    }

    /// Returns the offset of the key at `at` in the bytes of the keys.
    #[inline]
    fn start(&self, at: usize) -> usize {
        let Some(before) = at.checked_sub(1) else { return 0 };
        let bytes = &self.block[before * OFFSET_BYTES..][..OFFSET_BYTES];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u8] {
        let keys = &self.block[self.len() * OFFSET_BYTES..];
        &keys[self.start(at)..self.start(at + 1)]
    }

    /// Returns the number of keys before the first for which `is_before` is false; it must be false for the rest too.
    #[inline]
    pub(super) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if is_before(self.get(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Returns the place of `key`, or the place where it would be.
    #[inline]
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let at = self.partition_point(|other| other < key);
        if at < self.len() && self.get(at) == key { Ok(at) } else { Err(at) }
    }

    /// Returns whether the keys ascend, and so each is there once.
    fn ascend(&self) -> bool {
        (1..self.len()).all(|at| self.get(at - 1) < self.get(at))
    }

    /// Concatenates `pieces`, which are ranges of keys of nodes.
    pub(super) fn collect(pieces: &[(&Keys, std::ops::Range<usize>)]) -> Keys {
        #[cfg(test)]
        crate::index::locked::held::assert_none();
        let count: usize = pieces.iter().map(|(_, range)| range.len()).sum();
        let bytes_of =
            |keys: &Keys, range: &std::ops::Range<usize>| keys.start(range.end) - keys.start(range.start);
        let key_bytes: usize = pieces.iter().map(|(keys, range)| bytes_of(keys, range)).sum();
        let mut block = Vec::with_capacity(count * OFFSET_BYTES + key_bytes);
        let mut base = 0;
        for (keys, range) in pieces {
            let start = keys.start(range.start);
            for at in range.clone() {
                block.extend_from_slice(&((keys.start(at + 1) - start + base) as u32).to_le_bytes());
            }
            base += bytes_of(keys, range);
        }
        for (keys, range) in pieces {
            let bytes = &keys.block[keys.len() * OFFSET_BYTES..];
            block.extend_from_slice(&bytes[keys.start(range.start)..keys.start(range.end)]);
        }
        Keys { block: block.into_boxed_slice(), count: count as u32 }
    }

    /// Creates a block of one key.
    pub(super) fn one(key: &[u8]) -> Keys {
        let mut block = Vec::with_capacity(OFFSET_BYTES + key.len());
        block.extend_from_slice(&(key.len() as u32).to_le_bytes());
        block.extend_from_slice(key);
        Keys { block: block.into_boxed_slice(), count: 1 }
    }

    /// Returns these keys with `key` at `at`.
    pub(super) fn with(&self, at: usize, key: &[u8]) -> Keys {
        Keys::collect(&[(self, 0..at), (&Keys::one(key), 0..1), (self, at..self.len())])
    }

    /// Returns these keys without the one at `at`.
    pub(super) fn without(&self, at: usize) -> Keys {
        Keys::collect(&[(self, 0..at), (self, at + 1..self.len())])
    }
}

/// A node; a leaf has no children.
#[derive(Default)]
pub(super) struct Node {
    pub(super) keys: Keys,
    pub(super) children: Box<[NodeSlot]>,
}

impl Node {
    /// Creates a leaf.
    pub(super) fn leaf(keys: Keys) -> Node {
        debug_assert!(keys.ascend(), "the keys of a leaf are sorted");
        Node { keys, children: Box::default() }
    }

    /// Creates a branch over children that the tree owns.
    pub(super) fn branch(keys: Keys, children: &[*mut Node]) -> Node {
        assert!(keys.len() + 1 == children.len(), "a key between two children");
        debug_assert!(keys.ascend(), "the keys of a branch are sorted");
        let children = children.iter().map(|&child| NodeSlot(AtomicPtr::new(child))).collect();
        Node { keys, children }
    }

    #[inline]
    pub(super) fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Returns its bytes of memory, without those of its children.
    pub(super) fn bytes(&self) -> u64 {
        let children = size_of_val(&*self.children) as u64;
        let allocations = 2 + u64::from(!self.is_leaf());
        size_of::<Node>() as u64 + self.keys.block.len() as u64 + children + allocations * ALLOCATION_BYTES
    }

    /// Returns the number of the child that may have `key`.
    #[inline]
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|separator| separator <= key)
    }
}

/// The place of a node in its parent. Never null.
pub(super) struct NodeSlot(AtomicPtr<Node>);

impl NodeSlot {
    /// Creates a slot for `node`.
    pub(super) fn new(node: Node) -> NodeSlot {
        NodeSlot(AtomicPtr::new(hung(node)))
    }

    /// Returns the node in the slot, and whether the slot is frozen.
    #[inline]
    pub(super) fn load<'p>(&self, _pin: &'p EpochPin<'_>) -> (&'p Node, bool) {
        let tagged = self.0.load(Ordering::Acquire);
        let node = tagged.map_addr(|address| address & !FROZEN);
        // SAFETY: slots hold pointers from `Box::into_raw`, never null. A node that has left its slot is freed only
        // through the reclaimer, after every pin that could have loaded it. This includes a node in the slots of a
        // replaced branch, since only a thread that has seen the branch under a pin as old can reach it.
        (unsafe { &*node }, tagged.addr() & FROZEN != 0)
    }

    /// Replaces `current` by `new`, unless the slot is frozen or has another node by now: then it returns `new`.
    /// Allocates and frees nothing.
    pub(super) fn replace(&self, current: &Node, new: Box<Node>) -> Result<Retired<Node>, Box<Node>> {
        debug_assert_eq!(current.is_leaf(), new.is_leaf(), "all leaves are equally deep");
        let current = std::ptr::from_ref(current).cast_mut();
        let new = Box::into_raw(new);
        let won = self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: the pointer that loses the exchange is no longer in a slot, or never was. The caller passes a node
        // that was in a slot to the reclaimer; slots of replaced branches may still point to it, but are reachable
        // only under pins as old.
        unsafe {
            match won {
                Ok(before) => Ok(Retired::new(before).expect("slots are not null")),
                Err(_) => Err(Box::from_raw(new)),
            }
        }
    }

    /// Freezes the slot; returns its final node.
    pub(super) fn freeze(&self) -> *mut Node {
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            let frozen = current.map_addr(|address| address | FROZEN);
            match self.0.compare_exchange(current, frozen, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return current.map_addr(|address| address & !FROZEN),
                Err(now) => current = now,
            }
        }
    }

    /// Unfreezes a slot that was not copied.
    #[cfg(test)]
    pub(super) fn thaw(&self) {
        self.0.store(self.pointer(), Ordering::Release);
    }

    /// Returns the node in the slot, for a thread that makes another branch over the same children and prevents
    /// changes of this slot meanwhile.
    pub(super) fn pointer(&self) -> *mut Node {
        self.0.load(Ordering::Acquire).map_addr(|address| address & !FROZEN)
    }

    /// Takes the node out of a tree that no other thread uses.
    pub(super) fn take(&mut self) -> Box<Node> {
        // SAFETY: by the contract above no other thread uses the tree; pointers in slots came from `Box::into_raw`.
        unsafe { Box::from_raw(self.pointer()) }
    }
}

/// Allocates a node for slots to point to.
pub(super) fn hung(node: Node) -> *mut Node {
    Box::into_raw(Box::new(node))
}

/// Wraps a node that no slot points to any more.
pub(super) fn unhung(node: *mut Node) -> Retired<Node> {
    // SAFETY: callers have just replaced the only branch whose slots pointed to the node, and pass the node to the
    // reclaimer.
    unsafe { Retired::new(node) }.expect("slots are not null")
}

/// One core's retired nodes, for all its tables, gathered until there are enough for the reclaimer.
///
/// Each edit leaves a node behind, and the reclaimer frees one item per step. So a core gathers some nodes and hands
/// them over together, and then frees as many as it brings, if no reader is in the way. A core that ends hands over the
/// rest too: dropping them would free them at once.
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
            reclaimer.retire(Garbage::Boxed(Box::new(nodes)));
        }
    }
}
