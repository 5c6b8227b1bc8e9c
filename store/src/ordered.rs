//! The keys of an ordered table in their order: a tree beside the hash index, which alone knows where objects are.
//!
//! ```text
//!   get, put, commit, cleaner ──► Index ──► objects          root ─► branch ─► leaf [ key key key ... ]
//!   scan ──► OrderedKeys (keys in order) ──► Index ──► objects          └────► leaf [ key key key ... ]
//! ```
//!
//! The tree is touched only when a key appears or disappears: a key enters it before it can be found in the index and leaves
//! it after, so that the tree has every key that the index has. Overwrites and the cleaner do not know of it. It keeps copies
//! of the keys.
//!
//! Edits allocate, and may have to wait for who splits a leaf, so none is made under a bucket's lock. A key enters before the
//! lock, and under it is seen to be there still: nothing has left the tree since, or it is looked up. It leaves behind the lock;
//! only the exchange that takes it out is made under the lock again, when the index is seen not to have it (`membership.rs`).
//!
//! A B+-tree whose leaves are immutable and replaced as a whole by an exchange of one pointer: readers take no lock
//! and meet no half-made leaf, writers of different leaves do not meet, and walks go either way
//! (`ordered/walk.rs`). Splitting and joining is in `ordered/reshape.rs`; who has been left behind is freed when no
//! pin is older. Loom tests: `ordered/loom_tests.rs`.

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

/// Keys that a scan goes through, and which way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct KeyRange<'r> {
    /// Not those below.
    pub from: &'r [u8],
    /// Not this one and those above; `None` has no end.
    pub to: Option<&'r [u8]>,
    /// Those alone that begin so.
    pub prefix: &'r [u8],
    /// Those alone that come behind this key on the way; `None` is the way's beginning.
    pub after: Option<&'r [u8]>,
    /// From the largest to the smallest.
    pub reverse: bool,
}

impl KeyRange<'_> {
    /// Whether `key` is in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        !self.is_below(key) && !self.is_above(key)
    }

    /// Whether `key` is smaller than all that are in it.
    #[inline]
    pub(crate) fn is_below(&self, key: &[u8]) -> bool {
        let passed = !self.reverse && self.after.is_some_and(|after| key <= after);
        passed || key < self.from || key < self.prefix
    }

    /// Whether `key` is larger than all that are in it.
    #[inline]
    pub(crate) fn is_above(&self, key: &[u8]) -> bool {
        let passed = self.reverse && self.after.is_some_and(|after| key >= after);
        passed || self.to.is_some_and(|to| key >= to) || key > self.prefix && !key.starts_with(self.prefix)
    }
}

/// See the file's head.
pub(crate) struct OrderedKeys {
    /// A branch at all times.
    root: NodeSlot,
    /// Held by whoever changes the shape of the tree.
    reshaping: Exclusive<()>,
    /// How many keys have left, and one, each counted by the owner of its bucket.
    departures: AtomicU64,
    bytes: AtomicU64,
    /// What counts against the store's limit; its bytes are part of it for as long as it lives.
    charge: Arc<AtomicU64>,
}

impl OrderedKeys {
    /// No keys.
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

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What a key has that enters from now on: as long as it stays none has left.
    pub(crate) fn entered_now(&self) -> Entered {
        Entered(NonZeroU64::new(self.departures.load(Ordering::Acquire)).expect("they are counted from 1"))
    }

    /// Whether a key is there.
    pub(crate) fn has(&self, pin: &EpochPin<'_>, key: &[u8]) -> bool {
        self.leaf_of(pin, key).1.keys.search(key).is_ok()
    }

    /// Adds a key, if it is not there. Returns the bytes that the tree takes more, as a wrapping difference.
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
                // Whoever splits or joins the leaf may have lost its core.
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

    /// What removes a key, if it is there: made before the key's bucket is locked.
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

    /// Removes a key, for the owner of its bucket, unless its leaf has changed since: then the removal is given back, and
    /// dropped when the bucket is not locked any more. Nothing is allocated or freed.
    pub(crate) fn remove<'p>(&self, removal: Edit<'p>) -> Result<Edited<'p>, Edit<'p>> {
        let done = removal.make()?;
        // Behind the exchange and before the bucket is unlocked: who locks it next sees that a key has left.
        self.departures.fetch_add(1, Ordering::Release);
        Ok(done)
    }

    /// Ends an edit: looks after the leaf. Returns the bytes that the tree takes more, as a wrapping difference.
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

    /// The leaf of `key`, the slot that it hangs in, and whether that is frozen.
    fn leaf_of<'p>(&'p self, pin: &'p EpochPin<'_>, key: &[u8]) -> (&'p NodeSlot, &'p Node, bool) {
        let mut slot = &self.root;
        loop {
            let (node, is_frozen) = slot.load(pin);
            if node.is_leaf() {
                // It is searched and copied as a whole.
                node.keys.prefetch();
                return (slot, node, is_frozen);
            }
            slot = &node.children[node.child_of(key)];
        }
    }

    /// A walk over the keys of a range.
    pub(crate) fn walk<'p, 'r>(&'p self, pin: &'p EpochPin<'_>, range: KeyRange<'r>) -> Walk<'p, 'r> {
        Walk::new(self, pin, range)
    }

    /// Frees a piece of a tree whose table is gone. Returns the bytes that it takes more, as a wrapping difference;
    /// `None` where nothing is left.
    pub(crate) fn dismantle(&self, pin: &EpochPin<'_>, garbage: &mut NodeGarbage) -> Option<u64> {
        let bytes = self.prune(pin, garbage)?;
        self.count(bytes);
        Some(bytes)
    }
}

#[cfg(test)]
impl OrderedKeys {
    /// Leaves the leaf of a key as a thread does that loses its core while it splits it.
    pub(crate) fn freeze_leaf(&self, pin: &EpochPin<'_>, key: &[u8]) {
        self.leaf_of(pin, key).0.freeze();
    }

    /// Takes that back.
    pub(crate) fn thaw_leaf(&self, pin: &EpochPin<'_>, key: &[u8]) {
        self.leaf_of(pin, key).0.thaw();
    }
}

/// That a key was in a tree, when so many keys had left that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Entered(NonZeroU64);

impl Entered {
    /// That it was, and may have left: it is to enter anew.
    pub(crate) const ANEW: Entered = Entered(NonZeroU64::MAX);
}

/// A key that has left the index of a table and is still in its tree.
pub(crate) struct Leaving {
    pub(crate) table: u32,
    pub(crate) key: Box<[u8]>,
}

/// A leaf that is about to take the place of another one.
pub(crate) struct Edit<'p> {
    slot: &'p NodeSlot,
    leaf: &'p Node,
    new: Box<Node>,
}

/// A leaf that another one has taken the place of.
pub(crate) struct Edited<'p> {
    before: Retired<Node>,
    leaf_bytes: u64,
    /// The new one should be split or joined.
    is_unbalanced: bool,
    _pinned: PhantomData<&'p Node>,
}

impl<'p> Edit<'p> {
    /// Puts the new leaf in its place, unless the slot is frozen or has another one by now.
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
