//! Changes of an ordered table's tree by writes that add or remove keys. Does nothing for other tables.
//!
//! ```text
//!   new key:   enter the tree ─► lock the bucket ─► still in the tree? ─► into the index       not written after all: leave
//!   removed:   out of the index ─► unlock ─► make the leaf without it ─► lock the bucket ─► still not in the index? ─► leave
//! ```
//! So nothing is allocated under the lock of a bucket, and the writer waits for no thread there (`ordered.rs`).
//! Between the two locks of a removal the tree has a key that the index does not have, which is harmless: scans look
//! each key up. If a removal meets a thread that has lost its core, the key is left for a background step.

use std::collections::VecDeque;

use crate::error::WriteError;
use crate::index::NotLocked;
use crate::index::locked::NoRoom;
use crate::limits::{LEAVE_TRIES, RETRY_AFTER_US};
use crate::ordered::{Entered, Leaving, NodeGarbage, OrderedKeys};
use crate::pinned::Pinned;
use crate::store::Store;
use crate::sync::Busy;
use crate::table::Table;

/// Bytes of a key in the tree besides its own: its offset, and its share of a leaf that is two thirds full.
const KEY_OVERHEAD_BYTES: u64 = 8;

/// The reason why a write under the lock of a bucket did not take place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unwritten {
    /// The table is ordered, and the key must enter its tree first.
    MustEnter,
    /// The write is refused.
    Refused(WriteError),
}

impl From<WriteError> for Unwritten {
    fn from(error: WriteError) -> Unwritten {
        Unwritten::Refused(error)
    }
}

impl From<NotLocked> for Unwritten {
    fn from(reason: NotLocked) -> Unwritten {
        Unwritten::Refused(reason.into())
    }
}

impl From<NoRoom> for Unwritten {
    fn from(reason: NoRoom) -> Unwritten {
        Unwritten::Refused(reason.into())
    }
}

impl Table {
    /// Returns the approximate bytes of a new key in the tree, for a quota check.
    #[inline]
    pub(crate) fn bytes_in_tree(&self, key: &[u8]) -> u64 {
        if self.ordered.is_some() { key.len() as u64 + KEY_OVERHEAD_BYTES } else { 0 }
    }
}

impl Pinned<'_> {
    /// Executes a write, and repeats it after its key has entered the tree, if that is needed. The write is told
    /// whether the key has entered; `is_there` tells from its result whether the key is in the index now. (One call,
    /// so that it is compiled into its caller.)
    #[inline(always)]
    pub(crate) fn write_entering<T>(
        &self,
        table: &Table,
        (hash, key): (u64, &[u8]),
        is_there: impl Fn(&T) -> bool,
        mut write: impl FnMut(Option<Entered>) -> Result<T, Unwritten>,
    ) -> Result<T, WriteError> {
        let (mut entered, mut tries) = (None, 0);
        loop {
            let written = match write(entered) {
                // Other writers may remove the key each time before it is in the index.
                Err(Unwritten::MustEnter) if tries < LEAVE_TRIES => {
                    tries += 1;
                    match self.enter(table, key) {
                        Ok(now) => {
                            entered = Some(now);
                            continue;
                        }
                        Err(Busy) => Err(WriteError::Retry { after_us: RETRY_AFTER_US }),
                    }
                }
                Err(Unwritten::MustEnter) => Err(WriteError::Retry { after_us: RETRY_AFTER_US }),
                Err(Unwritten::Refused(error)) => Err(error),
                Ok(written) => Ok(written),
            };
            if entered.is_some() && !written.as_ref().is_ok_and(&is_there) {
                self.leave(table, hash, key);
            }
            return written;
        }
    }

    /// Adds a key to the tree of an ordered table, before its bucket is locked.
    pub(crate) fn enter(&self, table: &Table, key: &[u8]) -> Result<Entered, Busy> {
        let Some(keys) = &table.ordered else { return Ok(Entered::ANEW) };
        // Taken before the entry, so that every later departure is noticed.
        let entered = keys.entered_now();
        self.edit_tree(table, |garbage| keys.insert(&self.pin, key, garbage))?;
        Ok(entered)
    }

    /// Checks whether a key, new or not, may enter the index; called by the owner of its bucket.
    #[inline(always)]
    pub(crate) fn admit_to_index(
        &self,
        table: &Table,
        key: &[u8],
        is_new: bool,
        entered: Option<Entered>,
    ) -> Result<(), Unwritten> {
        let must_enter = is_new && table.ordered.is_some() && !self.has_entered(table, key, entered);
        if must_enter { Err(Unwritten::MustEnter) } else { Ok(()) }
    }

    /// Returns whether a new key may enter the index; called by the owner of its bucket.
    #[inline]
    pub(crate) fn has_entered(&self, table: &Table, key: &[u8], entered: Option<Entered>) -> bool {
        let Some(keys) = &table.ordered else { return true };
        entered.is_some_and(|entered| keys.entered_now() == entered || keys.has(&self.pin, key))
    }

    /// Removes a key from the tree if the index no longer has it. The caller owns no bucket.
    #[inline]
    pub(crate) fn leave(&self, table: &Table, hash: u64, key: &[u8]) {
        if let Some(keys) = &table.ordered {
            self.leave_tree(table, keys, (hash, key));
        }
    }

    #[inline(never)]
    fn leave_tree(&self, table: &Table, keys: &OrderedKeys, (hash, key): (u64, &[u8])) {
        for _ in 0..LEAVE_TRIES {
            match self.try_leave(table, keys, (hash, key)) {
                Ok(true) => return,
                Ok(false) => {}
                Err(Busy) => break,
            }
        }
        self.core.store.backlog.leaving.add(Leaving { table: table.id(), key: key.into() });
    }

    /// Returns false if the edit of another key in the leaf was faster.
    fn try_leave(&self, table: &Table, keys: &OrderedKeys, (hash, key): (u64, &[u8])) -> Result<bool, Busy> {
        let Some(removal) = keys.removal(&self.pin, key)? else { return Ok(true) };
        let bucket = match table.index.lock(&self.pin, hash) {
            Ok(bucket) => bucket,
            // The tree is dropped as a whole.
            Err(NotLocked::Gone) => return Ok(true),
            Err(NotLocked::Busy) => return Err(Busy),
        };
        if bucket.find(hash, |location| self.object_of(location, key)).is_some() {
            return Ok(true);
        }
        let removed = keys.remove(removal);
        drop(bucket);
        let Ok(done) = removed else { return Ok(false) };
        self.edit_tree(table, |garbage| Ok(keys.finish(&self.pin, key, done, garbage)))?;
        Ok(true)
    }

    /// Frees a part of the tree of a retired table whose index is dismantled. Returns whether it did.
    pub(crate) fn take_keys_apart(&self, table: &Table) -> bool {
        let Some(keys) = &table.ordered else { return false };
        let mut has_more = true;
        let edited = self.edit_tree(table, |garbage| {
            let bytes = keys.dismantle(&self.pin, garbage);
            has_more = bytes.is_some();
            Ok(bytes.unwrap_or(0))
        });
        edited.is_ok() && has_more
    }

    #[inline(never)]
    fn edit_tree(
        &self,
        table: &Table,
        edit: impl FnOnce(&mut NodeGarbage) -> Result<u64, Busy>,
    ) -> Result<(), Busy> {
        let mut garbage = self.core.garbage.borrow_mut();
        let bytes = edit(&mut garbage)?;
        table.quota().count(self.core.index, bytes);
        garbage.hand_over_when_due(&self.core.store.reclaimer);
        Ok(())
    }
}

impl Store {
    /// Removes a key from the tree whose removal was postponed. Returns whether it did something.
    pub(crate) fn leaving_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(Leaving { table: id, key }) = self.backlog.leaving.try_with(VecDeque::pop_front).flatten()
        else {
            return false;
        };
        // A newer table with the same id has the key in its index, or not in its tree.
        let table = self.directory.listing(&pinned.pin).get(id);
        let Some((table, keys)) = table.and_then(|table| Some((table, table.ordered.as_ref()?))) else {
            return true;
        };
        let hash = crate::hash(&key);
        let left = pinned.try_leave(table, keys, (hash, &key));
        if left != Ok(true) {
            self.backlog.leaving.add(Leaving { table: id, key });
        }
        left.is_ok()
    }
}
