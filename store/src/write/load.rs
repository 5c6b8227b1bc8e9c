//! What writers do so that the index has the right size: look at its load now and then, move a few of its buckets, and hurry
//! where one is full.
//!
//! Nobody waits for a growth: each insert pays for a few buckets, and background steps do the rest. A writer that finds no
//! room all the same comes again.

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
    /// Not yet the last word: see [`Pinned::refused`].
    fn from(_: NoRoom) -> WriteError {
        WriteError::Collisions
    }
}

impl Pinned<'_> {
    /// After an insert: looks at the table's load now and then, and moves a few buckets while the index grows or
    /// shrinks.
    #[inline]
    pub(crate) fn help_growth(&self, table: &Table) {
        self.look_at_load(table);
        self.look_at_arrivals(table);
        if table.index.is_growing(&self.pin) {
            self.grow(table, GROWTH_BUCKETS_PER_INSERT);
        }
    }

    /// After an insert or a removal: sees now and then whether the index has the right size. What follows is done by
    /// inserts and by background steps.
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

    /// What a writer is told that found no room in the bucket of `hash`. That means collisions only in an index of
    /// the right size: whoever moves its buckets may have lost the processor while others went on inserting.
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
        // The growth may have ended just now, or another may just have begun.
        let has_room = match table.index.lock(&self.pin, hash) {
            Ok(mut bucket) => bucket.make_room(1, Purpose::Insert).is_ok(),
            Err(reason) => reason == NotLocked::Busy,
        };
        if has_room || self.hurry_growth(table, 1) != Ok(false) { retry } else { error }
    }

    /// Grows an index at once that is growing, or due to with so many objects more. Returns whether it is.
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
