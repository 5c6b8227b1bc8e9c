//! How writes tell an ordered table's tree that a key appears or disappears. Of other tables nothing happens here.

use crate::ordered::Garbage;
use crate::pinned::Pinned;
use crate::table::Table;

/// What a key takes in the tree besides its bytes: its offset, and its share of a leaf that is two thirds full.
const KEY_OVERHEAD_BYTES: u64 = 8;

impl Table {
    /// What a new key will take in the tree, about: enough to hold a write against a quota.
    #[inline]
    pub(crate) fn bytes_in_tree(&self, key: &[u8]) -> u64 {
        if self.ordered.is_some() { key.len() as u64 + KEY_OVERHEAD_BYTES } else { 0 }
    }
}

impl Pinned<'_> {
    /// For the owner of the key's bucket, before the key can be found in the index.
    #[inline]
    pub(crate) fn enter(&self, table: &Table, key: &[u8]) {
        if let Some(keys) = &table.ordered {
            self.edit_tree(table, |garbage| keys.insert(&self.pin, key, garbage));
        }
    }

    /// For the owner of the key's bucket, when the key cannot be found in the index any more.
    #[inline]
    pub(crate) fn leave(&self, table: &Table, key: &[u8]) {
        if let Some(keys) = &table.ordered {
            self.edit_tree(table, |garbage| keys.remove(&self.pin, key, garbage));
        }
    }

    /// Frees a piece of the tree of a retired table whose index is taken apart. Returns whether it did.
    pub(crate) fn take_keys_apart(&self, table: &Table) -> bool {
        let Some(keys) = &table.ordered else { return false };
        let mut has_more = true;
        self.edit_tree(table, |garbage| {
            let bytes = keys.dismantle(&self.pin, garbage);
            has_more = bytes.is_some();
            bytes.unwrap_or(0)
        });
        has_more
    }

    #[inline(never)]
    fn edit_tree(&self, table: &Table, edit: impl FnOnce(&mut Garbage) -> u64) {
        let mut garbage = self.core.garbage.borrow_mut();
        let bytes = edit(&mut garbage);
        table.quota().count(self.core.index, bytes);
        garbage.hand_over_when_due(&self.core.store.reclaimer);
    }
}
