//! Reads: one object, or many as of one moment.
//!
//! A lookup has two cache misses, the bucket and the object. For a batch of requests call [`Pinned::prefetch_bucket`]
//! for all, then [`Pinned::prefetch_object`] for all, then [`Pinned::get`]: the misses then overlap.

use std::fmt;

use crate::arrival::Arrival;
use crate::index::{NotLocked, Stamp};
use crate::lock_set::LockSet;
use crate::object::Object;
use crate::store::core::Pinned;
use crate::sync::Busy;
use crate::table::Table;

/// Attempts to read many objects without locks before their buckets are locked.
const SNAPSHOT_TRIES: u32 = 8;
/// Lookups whose misses overlap.
const PREFETCH_BATCH: usize = 32;

/// An error: another thread holds a bucket of the read for too long; the read must be retried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Contended;

impl fmt::Display for Contended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("another thread is writing one of the objects to read")
    }
}

impl std::error::Error for Contended {}

impl From<Busy> for Contended {
    fn from(Busy: Busy) -> Contended {
        Contended
    }
}

impl Pinned<'_> {
    /// Prefetches the head of a table's index, which locates its buckets; expects the table to be cached.
    #[inline]
    pub fn prefetch_index(&self, table: &Table) {
        table.index.prefetch(&self.pin);
    }

    /// Prefetches the index bucket of `hash`.
    #[inline]
    pub fn prefetch_bucket(&self, table: &Table, hash: u64) {
        table.index.prefetch_bucket(&self.pin, hash);
    }

    /// Prefetches the object of `hash`; expects the bucket to be cached.
    #[inline]
    pub fn prefetch_object(&self, table: &Table, hash: u64) {
        self.assert_own(table);
        table.index.candidates(&self.pin, hash, |location| self.core.store.log.prefetch(location));
    }

    /// As [`Pinned::prefetch_object`], for a caller that will replace or delete the object. Prefetches header and key
    /// of `key_bytes`, and the counters that writers of all cores share.
    #[inline]
    pub fn prefetch_replaced(&self, table: &Table, hash: u64, key_bytes: usize) {
        self.assert_own(table);
        let log = &self.core.store.log;
        table.index.candidates(&self.pin, hash, |location| {
            log.prefetch_replaced(self.core.index, location, key_bytes)
        });
    }

    /// As [`Pinned::prefetch_object`], for a caller that may read only the beginning of the value. Prefetches no more
    /// than that of an object with a key of `key_bytes`, since memory delivers a limited number of lines at a time.
    #[inline]
    pub fn prefetch_key(&self, table: &Table, hash: u64, key_bytes: usize) {
        self.assert_own(table);
        table
            .index
            .candidates(&self.pin, hash, |location| self.core.store.log.prefetch_key(location, key_bytes));
    }

    /// Returns the object of `key`, whose hash is `hash` ([`crate::hash`]), unless it has expired. Waits only for a
    /// commit in the middle of its publication.
    #[inline]
    pub fn get<'p>(&'p self, table: &Table, hash: u64, key: &[u8]) -> Option<Object<'p>> {
        self.assert_own(table);
        if table.cache.is_some() {
            // Before the look-up, so that tables without eviction pay one branch and keep no registers over a call.
            self.note_use(table, hash, key);
        }
        // Before the look-up: what a recovery found first may not be the newest.
        let is_known = !table.is_replaying() || table.has_arrived(hash);
        self.look_up(table, hash, key, is_known)
    }

    /// As [`Pinned::get`], but `None` if the look-up is not conclusive: see [`Pinned::knows`].
    #[must_use]
    pub fn get_if_known<'p>(&'p self, table: &Table, hash: u64, key: &[u8]) -> Option<Option<Object<'p>>> {
        // Once: a recovery may forget what it knew.
        self.knows(table, hash, key).then(|| self.look_up(table, hash, key, true))
    }

    #[inline(always)]
    fn look_up<'p>(&'p self, table: &Table, hash: u64, key: &[u8], is_known: bool) -> Option<Object<'p>> {
        let found = table.index.find(&self.pin, hash, |location| self.object_of(location, key));
        let visible = found.filter(|object| is_known && !self.is_expired(object));
        if self.is_noted(table) {
            // Behind the look at the clock, so that what it decided is noted.
            self.note_seen(table, hash, found.as_ref());
        }
        visible
    }

    /// Notes a use of the object of `key`, if present, in a table with a budget.
    #[cold]
    #[inline(never)]
    fn note_use(&self, table: &Table, hash: u64, key: &[u8]) {
        table.index.note_use(&self.pin, hash, |location| self.object_of(location, key).is_some());
    }

    /// Returns whether a look-up of `key` here is conclusive: its hash has arrived, or it was written or removed
    /// here. The answer true is final, but for a hash that a recovery brought ahead long ago. Cost: one load if nothing
    /// arrives.
    #[inline]
    #[must_use]
    pub fn knows(&self, table: &Table, hash: u64, key: &[u8]) -> bool {
        table
            .arrival
            .get()
            .is_none_or(|arrival| arrival.is_complete() || self.knows_arriving(table, arrival, hash, key))
    }

    #[cold]
    fn knows_arriving(&self, table: &Table, arrival: &Arrival, hash: u64, key: &[u8]) -> bool {
        if arrival.is_here(hash) {
            return true;
        }
        // Otherwise only what was written here can be found here.
        !table.is_replaying()
            && (table.index.find(&self.pin, hash, |location| self.object_of(location, key)).is_some()
                || arrival.was_removed(key)
                // Checked again, because both look-ups above may have become irrelevant between them.
                || arrival.is_here(hash))
    }

    /// Returns the objects of many keys as of one moment: no write and no commit lies between two of them. `lookups`
    /// are hashes and keys; `objects` must be as long.
    ///
    /// # Errors
    /// [`Contended`] if a thread that has lost its core is writing one of them.
    pub fn get_many<'p>(
        &'p self,
        table: &Table,
        lookups: &[(u64, &[u8])],
        objects: &mut [Option<Object<'p>>],
    ) -> Result<(), Contended> {
        self.assert_own(table);
        assert_eq!(lookups.len(), objects.len());
        for _ in 0..SNAPSHOT_TRIES {
            if self.try_snapshot(table, lookups, objects)? {
                return Ok(());
            }
        }
        let mut scratch = self.core.scratch.borrow_mut();
        let place = |at: usize| (table, lookups[at].0);
        let _locked = LockSet::lock(&self.pin, &mut scratch.locks, lookups.len(), place)?;
        for (object, &(hash, key)) in objects.iter_mut().zip(lookups) {
            *object = self.get(table, hash, key);
        }
        Ok(())
    }

    fn try_snapshot<'p>(
        &'p self,
        table: &Table,
        lookups: &[(u64, &[u8])],
        objects: &mut [Option<Object<'p>>],
    ) -> Result<bool, Busy> {
        let stamps = &mut self.core.scratch.borrow_mut().stamps;
        stamps.clear();
        for batch in lookups.chunks(PREFETCH_BATCH) {
            batch.iter().for_each(|&(hash, _)| self.prefetch_bucket(table, hash));
            for &(hash, _) in batch {
                stamps.push(self.stamp(table, hash)?);
            }
        }
        for (batch, objects) in lookups.chunks(PREFETCH_BATCH).zip(objects.chunks_mut(PREFETCH_BATCH)) {
            batch.iter().for_each(|&(hash, _)| self.prefetch_object(table, hash));
            for (object, &(hash, key)) in objects.iter_mut().zip(batch) {
                *object = self.get(table, hash, key);
            }
        }
        for (&(hash, _), stamp) in lookups.iter().zip(&*stamps) {
            if self.stamp(table, hash)? != *stamp {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the state of a bucket; `None` if the table is gone.
    fn stamp(&self, table: &Table, hash: u64) -> Result<Option<Stamp>, Busy> {
        match table.index.stamp(&self.pin, hash) {
            Ok(stamp) => Ok(Some(stamp)),
            Err(NotLocked::Gone) => Ok(None),
            Err(NotLocked::Busy) => Err(Busy),
        }
    }
}
