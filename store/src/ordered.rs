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
//! check that the index does not have it (`membership.rs`).
//!
//! A B+-tree whose leaves are immutable and replaced as a whole by an exchange of one pointer: readers take no lock
//! and see no incomplete leaf, writers of different leaves do not contend, and walks go in both directions
//! (`ordered/walk.rs`). `ordered/reshape.rs` splits and joins nodes; a replaced node is freed when no pin is older.
//! Loom tests: `ordered/loom_tests.rs`.

mod garbage;
mod node;
mod reshape;
mod walk;

#[cfg(all(test, loom_model))]
mod loom_tests;
#[cfg(all(test, not(loom_model)))]
mod tests;

use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::epoch::EpochPin;
use crate::limits::ORDERED_KEYS_FEW;
pub(crate) use crate::ordered::garbage::NodeGarbage;
use crate::ordered::node::{Node, NodeSlot};
use crate::ordered::reshape::{empty_root, is_too_full};
pub(crate) use crate::ordered::walk::Walk;
use crate::reclaim::Retired;
use crate::sync::{AtomicU64, Backoff, Busy, Exclusive, Ordering};

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
