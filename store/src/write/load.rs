//! The writers' part in the size of the index: they check its load, move a few of its buckets, and hurry the growth
//! if a bucket is full.
//!
//! No writer waits for a growth: each insert moves a few buckets, and background steps do the rest. A writer that
//! finds no room in spite of that is told to retry.

use crate::error::WriteError;
use crate::index::NotLocked;
use crate::index::generation::Purpose;
use crate::index::growth::NoMemory;
use crate::index::locked::NoRoom;
use crate::limits::{
    CHANGES_PER_LOAD_CHECK, GROWTH_BUCKETS_PER_INSERT, GROWTH_BUCKETS_PER_STEP, RETRY_AFTER_US,
};
use crate::pinned::Pinned;
use crate::table::Table;

impl From<NoRoom> for WriteError {
    /// A preliminary error, which [`Pinned::refused`] may replace.
    fn from(_: NoRoom) -> WriteError {
        WriteError::Collisions
    }
}

impl Pinned<'_> {
    /// Sometimes checks the table's load after an insert, and moves a few buckets while the index grows or shrinks.
    #[inline]
    pub(crate) fn help_growth(&self, table: &Table) {
        self.look_at_load(table);
        self.look_at_arrivals(table);
        if table.index.is_growing(&self.pin) {
            self.grow(table, GROWTH_BUCKETS_PER_INSERT);
        }
    }

    /// Sometimes checks, after an insert or a removal, whether the index has the right size. Inserts and background
    /// steps do the resulting work.
    #[inline]
    pub(crate) fn look_at_load(&self, table: &Table) {
        if !table.count_change(self.core.index).is_multiple_of(CHANGES_PER_LOAD_CHECK) {
            return;
        }
        let overloaded = table.index.is_overloaded(&self.pin, table.objects());
        let grows = overloaded && self.start_growth(table, 0) == Ok(true);
        if grows || self.start_shrinking(table, CHANGES_PER_LOAD_CHECK) {
            self.core.store.note_growing(table);
        }
    }

    /// Returns the error for a writer that found no room in the bucket of `hash`. It means collisions only in an
    /// index of the right size: a thread that moves its buckets may have lost the processor while others inserted.
    #[cold]
    pub(crate) fn refused(&self, table: &Table, hash: u64, error: WriteError) -> WriteError {
        if error != WriteError::Collisions {
            return error;
        }
        let retry = WriteError::Retry { after_us: RETRY_AFTER_US };
        match self.hurry_growth(table, 1) {
            Ok(true) => return retry,
            Ok(false) => {}
            Err(NoMemory) => return WriteError::OutOfMemory,
        }
        // The growth may just have ended, or another one may just have begun.
        let has_room = match table.index.lock(&self.pin, hash) {
            Ok(mut bucket) => bucket.make_room(1, Purpose::Insert).is_ok(),
            Err(reason) => reason == NotLocked::Busy,
        };
        if has_room || self.hurry_growth(table, 1) != Ok(false) { retry } else { error }
    }

    /// Immediately grows an index that is growing, or is due to with `more` objects. Returns whether it grows.
    pub(crate) fn hurry_growth(&self, table: &Table, more: u64) -> Result<bool, NoMemory> {
        let due = table.index.is_overloaded(&self.pin, table.objects() + more);
        if due && self.start_growth(table, more)? {
            self.core.store.note_growing(table);
        }
        let growing = table.index.is_growing(&self.pin);
        if growing {
            self.grow(table, GROWTH_BUCKETS_PER_STEP);
        }
        Ok(due || growing)
    }
}
