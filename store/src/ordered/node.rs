//! A node of the tree: sorted keys in one block, and for a branch the slots of its children.
//!
//! ```text
//!   block: [ end of key 0 │ end of key 1 │ ... as u32 ][ key 0 ][ key 1 ] ...
//!   branch with n children: n - 1 keys; child i holds keys below key i, child i + 1 from key i on
//! ```
//!
//! A node's keys never change: an edit makes another node. What changes are the slots of branches: each leads to one
//! child, and is frozen when its branch is about to be replaced. This file turns slots into references; nothing else
//! does.

use crate::epoch::EpochPin;
use crate::limits::ORDERED_LEAF_BYTES_MAX;
use crate::memory::{CACHE_LINE_BYTES, prefetch};
use crate::reclaim::Retired;
use crate::sync::{AtomicPtr, Ordering};

/// Bytes of an offset in a block.
const OFFSET_BYTES: usize = size_of::<u32>();
/// What the allocator takes for each piece of memory, about.
const ALLOCATION_BYTES: u64 = 16;
/// Bit of a slot's pointer: the slot does not change any more.
const FROZEN: usize = 1;

/// Sorted keys.
#[derive(Default)]
pub(super) struct Keys {
    block: Box<[u8]>,
    count: u32,
}

impl Keys {
    /// How many.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count as usize
    }

    /// Asks for all of them.
    #[inline]
    pub(super) fn prefetch(&self) {
        let lines = self.block.len().min(ORDERED_LEAF_BYTES_MAX);
        (0..lines).step_by(CACHE_LINE_BYTES).for_each(|at| prefetch(self.block.as_ptr().wrapping_add(at)));
    }

    /// Bytes of the keys, without their offsets.
    #[inline]
    pub(super) fn key_bytes(&self) -> usize {
        self.block.len() - self.len() * OFFSET_BYTES
    }

    /// Offset behind the keys before `at`, in the bytes of the keys.
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

    /// How many keys are before the first one of which `is_before` is false; those behind it must be so too.
    #[inline]
    pub(super) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if is_before(self.get(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The place of `key`, or where it would be.
    #[inline]
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let at = self.partition_point(|other| other < key);
        if at < self.len() && self.get(at) == key { Ok(at) } else { Err(at) }
    }

    /// All keys of `pieces`, which are ranges of keys of nodes, one behind the other.
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

    /// One key.
    pub(super) fn one(key: &[u8]) -> Keys {
        let mut block = Vec::with_capacity(OFFSET_BYTES + key.len());
        block.extend_from_slice(&(key.len() as u32).to_le_bytes());
        block.extend_from_slice(key);
        Keys { block: block.into_boxed_slice(), count: 1 }
    }

    /// These keys with `key` at `at`.
    pub(super) fn with(&self, at: usize, key: &[u8]) -> Keys {
        Keys::collect(&[(self, 0..at), (&Keys::one(key), 0..1), (self, at..self.len())])
    }

    /// These keys without that at `at`.
    pub(super) fn without(&self, at: usize) -> Keys {
        Keys::collect(&[(self, 0..at), (self, at + 1..self.len())])
    }
}

/// A node: a leaf has no children.
#[derive(Default)]
pub(super) struct Node {
    pub(super) keys: Keys,
    pub(super) children: Box<[NodeSlot]>,
}

impl Node {
    /// A leaf.
    pub(super) fn leaf(keys: Keys) -> Node {
        Node { keys, children: Box::default() }
    }

    /// A branch over children that are the tree's own.
    pub(super) fn branch(keys: Keys, children: &[*mut Node]) -> Node {
        assert!(keys.len() + 1 == children.len(), "a key between two children");
        let children = children.iter().map(|&child| NodeSlot(AtomicPtr::new(child))).collect();
        Node { keys, children }
    }

    #[inline]
    pub(super) fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Bytes of memory that it takes, what its children take left out.
    pub(super) fn bytes(&self) -> u64 {
        let children = size_of_val(&*self.children) as u64;
        let allocations = 2 + u64::from(!self.is_leaf());
        size_of::<Node>() as u64 + self.keys.block.len() as u64 + children + allocations * ALLOCATION_BYTES
    }

    /// The number of the child that may have `key`.
    #[inline]
    pub(super) fn child_of(&self, key: &[u8]) -> usize {
        self.keys.partition_point(|separator| separator <= key)
    }
}

/// Where a node hangs. Never null.
pub(super) struct NodeSlot(AtomicPtr<Node>);

impl NodeSlot {
    /// A slot for `node`.
    pub(super) fn new(node: Node) -> NodeSlot {
        NodeSlot(AtomicPtr::new(hung(node)))
    }

    /// The node in it, and whether it is frozen.
    #[inline]
    pub(super) fn load<'p>(&self, _pin: &'p EpochPin<'_>) -> (&'p Node, bool) {
        let tagged = self.0.load(Ordering::Acquire);
        let node = tagged.map_addr(|address| address & !FROZEN);
        // SAFETY: slots hold what came from `Box::into_raw`, never null. A node that has left its slot is freed
        // through the reclaimer only, after every pin that could have loaded it; so is one in the slots of a branch
        // that has been left, since only who has seen the branch under a pin as old can get there.
        (unsafe { &*node }, tagged.addr() & FROZEN != 0)
    }

    /// Puts `new` in the place of `current`, unless the slot is frozen or has another node by now: then it is given back.
    /// Nothing is allocated or freed.
    pub(super) fn replace(&self, current: &Node, new: Box<Node>) -> Result<Retired<Node>, Box<Node>> {
        let current = std::ptr::from_ref(current).cast_mut();
        let new = Box::into_raw(new);
        let won = self.0.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed);
        // SAFETY: of the two pointers, the loser of the exchange is in no slot any more, or never was. The one that
        // was is left to the reclaimer by who gets it; slots of branches that were left still lead there, under
        // pins as old.
        unsafe {
            match won {
                Ok(before) => Ok(Retired::new(before).expect("slots are not null")),
                Err(_) => Err(Box::from_raw(new)),
            }
        }
    }

    /// Makes the slot stay as it is; the node that it has for good.
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

    /// Lets the slot change again that nobody has copied.
    #[cfg(test)]
    pub(super) fn thaw(&self) {
        self.0.store(self.pointer(), Ordering::Release);
    }

    /// The node in it, for who makes another branch over the same children and lets nobody change this slot
    /// meanwhile.
    pub(super) fn pointer(&self) -> *mut Node {
        self.0.load(Ordering::Acquire).map_addr(|address| address & !FROZEN)
    }

    /// Takes the node out of a tree that nobody else has any more.
    pub(super) fn take(&mut self) -> Box<Node> {
        // SAFETY: as the caller says nobody else gets here; what is in a slot came from `Box::into_raw`.
        unsafe { Box::from_raw(self.pointer()) }
    }
}

/// A node for slots to lead to.
pub(super) fn hung(node: Node) -> *mut Node {
    Box::into_raw(Box::new(node))
}

/// A node that no slot leads to any more.
pub(super) fn unhung(node: *mut Node) -> Retired<Node> {
    // SAFETY: callers have just replaced the branch in whose slots alone the node hung, and leave the node to the
    // reclaimer.
    unsafe { Retired::new(node) }.expect("slots are not null")
}
