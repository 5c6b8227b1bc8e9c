//! The sorted keys of an ordered table: a tree beside the hash index, which alone has the objects' locations.
//!
//! ```text
//!   get, put, commit, cleaner ──► Index ──► objects          root ─► branch ─► leaf [ key key key ... ]
//!   scan ──► OrderedKeys (keys in order) ──► Index ──► objects          └────► leaf [ key key key ... ]
//! ```
//!
//! The tree changes only when a key appears or disappears: a key enters it before it can be found in the index and
//! leaves it afterwards, so that the tree has every key that the index has. Overwrites and the cleaner do not touch
//! it. It keeps copies of the keys.
//!
//! Edits allocate, and may have to wait for a thread that splits a leaf, so none is made under a bucket's lock. A key
//! enters before the lock. Under the lock its presence is checked: either no key has left the tree since, or it is
//! looked up. It leaves after the lock; only the exchange that removes it takes place under the lock again, after a
//! check that the index does not have it (`ordered_table.rs`).
//!
//! A B+-tree whose leaves are immutable and replaced as a whole by an exchange of one pointer: readers take no lock
//! and see no incomplete leaf, writers of different leaves do not contend, and walks go in both directions.
//! `ordered/reshape.rs` splits and joins nodes; a replaced node is freed when no pin is older. Loom tests:
//! `ordered/loom_tests.rs`.

mod node;
mod reshape;

#[cfg(all(test, loom_model))]
mod loom_tests;
#[cfg(all(test, not(loom_model)))]
mod tests;

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::epoch::EpochPin;
use crate::limits::{ORDERED_DEPTH_MAX, ORDERED_KEYS_FEW};
use crate::memory::prefetch_value;
pub(crate) use crate::ordered::node::NodeGarbage;
use crate::ordered::node::{Node, NodeSlot};
use crate::ordered::reshape::{empty_root, is_too_full};
use crate::reclaim::Retired;
use crate::sync::{AtomicU64, Backoff, Busy, Exclusive, Ordering};

/// Keys before the end of a leaf at which the next leaf's keys are prefetched: some memory latencies ahead, and never
/// by a short scan that ends before.
const ASK_AHEAD_KEYS: usize = 24;

/// An odd number without a pattern in its bits: 2^64 divided by the golden ratio.
const LEAF_HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The range and direction of a scan.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeyRange<'r> {
    /// The lower bound, included.
    pub from: &'r [u8],
    /// The upper bound, excluded; `None` for no bound.
    pub to: Option<&'r [u8]>,
    /// The prefix that all keys of the range have.
    pub prefix: &'r [u8],
    /// The key after which the scan continues, in scan order; `None` from the start.
    pub after: Option<&'r [u8]>,
    /// Whether the scan goes from the largest key to the smallest.
    pub reverse: bool,
}

impl KeyRange<'_> {
    /// Returns whether the range contains `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.is_below(key) && !self.is_above(key)
    }

    /// Returns whether `key` is smaller than all keys of the range.
    #[inline]
    pub(crate) fn is_below(&self, key: &[u8]) -> bool {
        let passed = !self.reverse && self.after.is_some_and(|after| key <= after);
        passed || key < self.from || key < self.prefix
    }

    /// Returns whether `key` is larger than all keys of the range.
    #[inline]
    pub(crate) fn is_above(&self, key: &[u8]) -> bool {
        let passed = self.reverse && self.after.is_some_and(|after| key >= after);
        passed || self.to.is_some_and(|to| key >= to) || key > self.prefix && !key.starts_with(self.prefix)
    }
}

/// The tree of the keys of one ordered table.
pub(crate) struct OrderedKeys {
    /// The root, always a branch.
    root: NodeSlot,
    /// Held by the thread that changes the shape of the tree.
    reshaping: Exclusive<()>,
    /// One more than the number of keys that have left, each counted by the owner of its bucket.
    departures: AtomicU64,
    bytes: AtomicU64,
    /// The bytes that count against the store's limit, which include the tree's bytes while it lives.
    charge: Arc<AtomicU64>,
}

impl OrderedKeys {
    /// Creates an empty tree.
    pub(crate) fn new(charge: Arc<AtomicU64>) -> OrderedKeys {
        let (root, bytes) = empty_root();
        let (root, reshaping) = (NodeSlot::new(root), Exclusive::new(()));
        let (departures, bytes_of) = (AtomicU64::new(1), AtomicU64::new(0));
        let keys = OrderedKeys { root, reshaping, departures, bytes: bytes_of, charge };
        keys.count(bytes);
        keys
    }

    fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.charge.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns its bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the proof for a key that enters from now on, valid until any key leaves.
    pub(crate) fn entered_now(&self) -> Entered {
        Entered(NonZeroU64::new(self.departures.load(Ordering::Acquire)).expect("they are counted from 1"))
    }

    /// Returns whether the tree has the key.
    pub(crate) fn has(&self, pin: &EpochPin<'_>, key: &[u8]) -> bool {
        self.leaf_of(pin, key).1.keys.search(key).is_ok()
    }

    /// Adds a key, if absent. Returns the growth of the tree in bytes, as a wrapping difference.
    pub(crate) fn insert(
        &self,
        pin: &EpochPin<'_>,
        key: &[u8],
        garbage: &mut NodeGarbage,
    ) -> Result<u64, Busy> {
        let mut backoff = Backoff::new();
        loop {
            let (slot, leaf, is_frozen) = self.leaf_of(pin, key);
            let Err(at) = leaf.keys.search(key) else { return Ok(0) };
            if is_frozen {
                // The thread that splits or joins the leaf may have lost its core.
                backoff.try_wait()?;
                continue;
            }
            let edit = Edit { slot, leaf, new: Box::new(Node::leaf(leaf.keys.with(at, key))) };
            if let Ok(done) = edit.make() {
                return Ok(self.finish(pin, key, done, garbage));
            }
            backoff.try_wait()?;
        }
    }

    /// Prepares the removal of a key, if present, before the key's bucket is locked.
    pub(crate) fn removal<'p>(&'p self, pin: &'p EpochPin<'_>, key: &[u8]) -> Result<Option<Edit<'p>>, Busy> {
        let mut backoff = Backoff::new();
        loop {
            let (slot, leaf, is_frozen) = self.leaf_of(pin, key);
            if is_frozen {
                backoff.try_wait()?;
                continue;
            }
            let Ok(at) = leaf.keys.search(key) else { return Ok(None) };
            return Ok(Some(Edit { slot, leaf, new: Box::new(Node::leaf(leaf.keys.without(at))) }));
        }
    }

    /// Removes a key unless its leaf has changed since; called by the owner of its bucket.
    ///
    /// If the leaf has changed, returns the removal, to be dropped after the bucket is unlocked. Allocates and frees
    /// nothing.
    pub(crate) fn remove<'p>(&self, removal: Edit<'p>) -> Result<Edited<'p>, Edit<'p>> {
        let done = removal.make()?;
        // After the exchange and before the unlock, so that the bucket's next owner sees that a key has left.
        self.departures.fetch_add(1, Ordering::Release);
        Ok(done)
    }

    /// Ends an edit: reshapes the leaf if needed. Returns the growth of the tree in bytes, as a wrapping difference.
    pub(crate) fn finish(
        &self,
        pin: &EpochPin<'_>,
        key: &[u8],
        Edited { before, leaf_bytes, is_unbalanced, .. }: Edited<'_>,
        garbage: &mut NodeGarbage,
    ) -> u64 {
        let mut bytes = leaf_bytes.wrapping_sub(before.get().bytes());
        garbage.add(before);
        if is_unbalanced {
            bytes = bytes.wrapping_add(self.reshape(pin, key, garbage));
        }
        self.count(bytes);
        bytes
    }

    /// Returns the leaf of `key`, its slot, and whether the slot is frozen.
    fn leaf_of<'p>(&'p self, pin: &'p EpochPin<'_>, key: &[u8]) -> (&'p NodeSlot, &'p Node, bool) {
        let mut slot = &self.root;
        loop {
            let (node, is_frozen) = slot.load(pin);
            if node.is_leaf() {
                // The leaf is searched and copied as a whole.
                node.keys.prefetch();
                return (slot, node, is_frozen);
            }
            slot = &node.children[node.child_of(key)];
        }
    }

    /// Returns a walk over the keys of a range.
    pub(crate) fn walk<'p, 'r>(&'p self, pin: &'p EpochPin<'_>, range: KeyRange<'r>) -> Walk<'p, 'r> {
        Walk::new(self, pin, range)
    }

    /// Frees a part of a retired table's tree. Returns the growth of the tree in bytes, as a wrapping difference;
    /// `None` if nothing is left.
    pub(crate) fn dismantle(&self, pin: &EpochPin<'_>, garbage: &mut NodeGarbage) -> Option<u64> {
        let bytes = self.prune(pin, garbage)?;
        self.count(bytes);
        Some(bytes)
    }
}

#[cfg(test)]
impl OrderedKeys {
    /// Freezes the leaf of a key, like a thread that loses its core while it splits it.
    pub(crate) fn freeze_leaf(&self, pin: &EpochPin<'_>, key: &[u8]) {
        self.leaf_of(pin, key).0.freeze();
    }

    /// Reverts [`OrderedKeys::freeze_leaf`].
    pub(crate) fn thaw_leaf(&self, pin: &EpochPin<'_>, key: &[u8]) {
        self.leaf_of(pin, key).0.thaw();
    }
}

/// Proof that a key was in a tree, with the number of departures at that time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Entered(NonZeroU64);

impl Entered {
    /// The key was in the tree but may have left: it has to enter again.
    pub(crate) const ANEW: Entered = Entered(NonZeroU64::MAX);
}

/// A key that has left the index of a table but not its tree.
pub(crate) struct Leaving {
    pub(crate) table: u32,
    pub(crate) key: Box<[u8]>,
}

/// A leaf that is about to replace another one.
pub(crate) struct Edit<'p> {
    slot: &'p NodeSlot,
    leaf: &'p Node,
    new: Box<Node>,
}

/// A leaf that another one has replaced.
pub(crate) struct Edited<'p> {
    before: Retired<Node>,
    leaf_bytes: u64,
    /// The new leaf should be split or joined.
    is_unbalanced: bool,
    _pinned: PhantomData<&'p Node>,
}

impl<'p> Edit<'p> {
    /// Puts the new leaf into the slot, unless the slot is frozen or already has a different leaf.
    fn make(self) -> Result<Edited<'p>, Edit<'p>> {
        let Edit { slot, leaf, new } = self;
        debug_assert_eq!(new.keys.len().abs_diff(leaf.keys.len()), 1, "an edit adds a key or takes one away");
        let is_too_small = new.keys.len() < ORDERED_KEYS_FEW.min(leaf.keys.len());
        let (leaf_bytes, is_unbalanced) = (new.bytes(), is_too_full(&new.keys) || is_too_small);
        match slot.replace(leaf, new) {
            Ok(before) => Ok(Edited { before, leaf_bytes, is_unbalanced, _pinned: PhantomData }),
            Err(new) => Err(Edit { slot, leaf, new }),
        }
    }
}

impl Drop for OrderedKeys {
    fn drop(&mut self) {
        self.count(self.bytes().wrapping_neg());
        let mut nodes = vec![self.root.take()];
        while let Some(mut node) = nodes.pop() {
            nodes.extend(node.children.iter_mut().map(NodeSlot::take));
        }
    }
}

/// A walk over the keys of a range, forward or backward. Keys live as long as the pin.
///
/// The walker keeps the branches on its path. Their keys do not change, so the children of a branch divide its keys
/// without gap or overlap however often they are replaced meanwhile: the walk meets every key that was there all the
/// time exactly once, in order. A replaced branch still shows the children that it had when it was replaced, which is
/// after the walk began.
pub(crate) struct Walk<'p, 'r> {
    pin: &'p EpochPin<'p>,
    range: KeyRange<'r>,
    /// Branches from the root down, each with the number of the walk's current child.
    path: [(Option<&'p Node>, usize); ORDERED_DEPTH_MAX],
    depth: usize,
    leaf: Option<&'p Node>,
    /// Forward: the next key. Backward: one more than it.
    at: usize,
    leaves: Leaves,
}

/// The leaves that a walk has entered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Leaves {
    pub(crate) count: usize,
    /// A hash of their addresses in order. None is used again while the walk's pin lasts.
    addresses: u64,
}

impl Leaves {
    fn add(&mut self, leaf: &Node) {
        self.count += 1;
        let address = std::ptr::from_ref(leaf).addr() as u64;
        self.addresses = (self.addresses.rotate_left(5) ^ address).wrapping_mul(LEAF_HASH_FACTOR);
    }
}

impl<'p, 'r> Walk<'p, 'r> {
    fn new(keys: &'p OrderedKeys, pin: &'p EpochPin<'p>, range: KeyRange<'r>) -> Walk<'p, 'r> {
        let mut walk = Walk {
            pin,
            range,
            path: [(None, 0); ORDERED_DEPTH_MAX],
            depth: 0,
            leaf: None,
            at: 0,
            leaves: Leaves::default(),
        };
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
        self.leaves.add(leaf);
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

    /// Returns the leaves entered so far.
    pub(crate) fn leaves(&self) -> Leaves {
        self.leaves
    }

    /// Enters leaves without a look at their keys, until there are as many as another walk over the range has entered.
    /// Returns whether they are the same. Then the tree had all of them at once, at some moment between the end of that walk and
    /// the beginning of this one: a leaf never changes, and one that was replaced does not come back.
    pub(crate) fn repeats(mut self, other: Leaves) -> bool {
        while self.leaves.count < other.count && self.leaf.is_some() {
            self.turn_over();
        }
        self.leaves == other
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
