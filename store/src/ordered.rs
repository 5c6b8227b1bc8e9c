//! The keys of an ordered table in their order: a tree beside the hash index, which alone knows where objects are.
//!
//! ```text
//!   get, put, commit, cleaner ──► Index ──► objects          root ─► branch ─► leaf [ key key key ... ]
//!   scan ──► OrderedKeys (keys in order) ──► Index ──► objects          └────► leaf [ key key key ... ]
//! ```
//!
//! The tree is touched only when a key appears or disappears, under the lock of the key's bucket: a key enters it
//! before it can be found in the index and leaves it after, so that the tree has every key that the index has.
//! Overwrites and the cleaner do not know of it. It keeps copies of the keys.
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

use std::sync::Arc;

use crate::epoch::EpochPin;
use crate::limits::ORDERED_KEYS_FEW;
pub(crate) use crate::ordered::garbage::Garbage;
use crate::ordered::node::{Node, Slot};
use crate::ordered::reshape::{empty_root, is_too_full};
pub(crate) use crate::ordered::walk::Walk;
use crate::sync::{AtomicU64, Backoff, Exclusive, Ordering};

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
    root: Slot,
    /// Held by whoever changes the shape of the tree.
    reshaping: Exclusive<()>,
    bytes: AtomicU64,
    /// What counts against the store's limit; its bytes are part of it for as long as it lives.
    charge: Arc<AtomicU64>,
}

impl OrderedKeys {
    /// No keys.
    pub(crate) fn new(charge: Arc<AtomicU64>) -> OrderedKeys {
        let (root, bytes) = empty_root();
        let (root, reshaping) = (Slot::new(root), Exclusive::new(()));
        let keys = OrderedKeys { root, reshaping, bytes: AtomicU64::new(0), charge };
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

    /// Adds a key, if it is not there. For the owner of the key's bucket, as [`OrderedKeys::remove`]. Returns the
    /// bytes that the tree takes more, as a wrapping difference.
    pub(crate) fn insert(&self, pin: &EpochPin<'_>, key: &[u8], garbage: &mut Garbage) -> u64 {
        self.edit(pin, key, garbage, |leaf| {
            let at = leaf.keys.search(key).err()?;
            Some(Node::leaf(leaf.keys.with(at, key)))
        })
    }

    /// Removes a key, if it is there.
    pub(crate) fn remove(&self, pin: &EpochPin<'_>, key: &[u8], garbage: &mut Garbage) -> u64 {
        self.edit(pin, key, garbage, |leaf| {
            let at = leaf.keys.search(key).ok()?;
            Some(Node::leaf(leaf.keys.without(at)))
        })
    }

    /// Puts what `make` makes of the leaf of `key` into its place.
    fn edit(
        &self,
        pin: &EpochPin<'_>,
        key: &[u8],
        garbage: &mut Garbage,
        make: impl Fn(&Node) -> Option<Node>,
    ) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let (slot, leaf, is_frozen) = self.leaf_of(pin, key);
            if is_frozen {
                backoff.wait();
                continue;
            }
            let Some(new) = make(leaf) else { return 0 };
            let unbalanced = is_too_full(&new.keys) || new.keys.len() < ORDERED_KEYS_FEW.min(leaf.keys.len());
            let mut bytes = new.bytes().wrapping_sub(leaf.bytes());
            if let Some(before) = slot.replace(leaf, new) {
                garbage.add(before);
                if unbalanced {
                    bytes = bytes.wrapping_add(self.reshape(pin, key, garbage));
                }
                self.count(bytes);
                return bytes;
            }
            backoff.wait();
        }
    }

    /// The leaf of `key`, the slot that it hangs in, and whether that is frozen.
    fn leaf_of<'p>(&'p self, pin: &'p EpochPin<'_>, key: &[u8]) -> (&'p Slot, &'p Node, bool) {
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
    pub(crate) fn dismantle(&self, pin: &EpochPin<'_>, garbage: &mut Garbage) -> Option<u64> {
        let bytes = self.prune(pin, garbage)?;
        self.count(bytes);
        Some(bytes)
    }
}

impl Drop for OrderedKeys {
    fn drop(&mut self) {
        self.count(self.bytes().wrapping_neg());
        let mut nodes = vec![self.root.take()];
        while let Some(mut node) = nodes.pop() {
            nodes.extend(node.children.iter_mut().map(Slot::take));
        }
    }
}
