//! Rewriting: a table that is in use goes from memory to the log on the disk, or back.
//!
//! ```text
//!   hold writes ── (those in progress end) ── turn ── release ──► steps copy each object that lies in the other class
//!                                               │                 of segments, under its bucket's lock, version unchanged
//!                                               └ every write from now on goes to the other heads
//! ```
//! Each time on the disk has a number of its own, by which the log names the table ([`Store::turn`]): the entries of an
//! earlier time, and of one that a crash or a refusal ended early, are of a table that nobody knows, so no start takes them
//! for objects. The caller decides when a number counts: once all objects are rewritten and a cut that includes them is
//! stable.
//!
//! A copy names no predecessor: what it is copied from is no entry of its number, and an older one of this key would have
//! been replaced in the index. It takes as many bytes as in memory, so no quota changes. A step stops early while much is
//! on its way to the disk, so that writers find frames beside it. It tells in [`Table::rewriting`] how far it is, and why
//! it does not go on.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cut::Wait;
use crate::error::WriteError;
use crate::index::Location;
use crate::limits::{RETRY_AFTER_US, REWRITE_AHEAD_BYTES, REWRITE_BUCKETS_PER_STEP, REWRITE_BYTES_PER_STEP};
use crate::log::NoSegment;
use crate::object::Lengths;
use crate::progress::RewritingProgress;
use crate::store::Store;
use crate::store::core::Pinned;
use crate::sync::Ordering;
use crate::table::{Service, Table};

impl Table {
    /// Returns how far the rewriting of its objects is; `None` if all of them are where new ones go.
    pub fn rewriting(&self) -> Option<RewritingProgress> {
        self.rewriting.progress()
    }

    /// Returns whether the log names it so at present.
    #[inline]
    pub(crate) fn is_in_log_as(&self, number: u32) -> bool {
        self.is_durable() && self.entry_number() == number
    }
}

impl Store {
    /// Makes a table's writes go to durable heads, under this number, which no table had before; or with `None` to heads in
    /// memory. Background steps rewrite its objects; [`Table::rewriting`] tells how far they are.
    ///
    /// The caller has called [`Table::hold_writes`], and since then each core that serves has been between two pins, so that no
    /// write or step is in progress (cores that replay a log take no such steps, and no log names the table); it releases the
    /// writes. The table must not evict.
    pub fn turn(&self, table: &Arc<Table>, number: Option<u32>) {
        assert!(table.cache.is_none(), "a table that evicts stays in memory");
        assert!(number.is_none() || self.has_durable_heads(), "the store has durable heads");
        if let Some(number) = number {
            self.directory.add_number(&self.reclaimer, number, table);
            table.log_number.store(number, Ordering::Relaxed);
        }
        table.durable.store(number.is_some(), Ordering::Relaxed);
        // Until the caller says that the number counts.
        table.promise_nothing();
        if table.rewriting.begin() {
            self.backlog.rewriting.add(table.id());
        }
    }

    /// Rewrites objects of a table in a few buckets. Returns whether it could.
    pub(crate) fn rewrite_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(id) = self.backlog.rewriting.try_with(VecDeque::pop_front).flatten() else { return false };
        let table = self.directory.listing(&pinned.pin).get(id);
        let Some(table) = table.filter(|table| !table.is_retired()) else { return true };
        let is_behind = table.is_durable() && self.unstable_bytes() >= REWRITE_AHEAD_BYTES;
        if table.service() == Service::Held || is_behind {
            self.backlog.rewriting.add(id);
            return false;
        }
        let (reached, rewritten) = pinned.rewrite_from(table, table.rewriting.next_hash());
        if table.rewriting.reach(reached, rewritten.err()) {
            self.backlog.rewriting.add(id);
        }
        rewritten.is_ok()
    }
}

impl Pinned<'_> {
    /// Rewrites the objects in the buckets from that of `hash` on, within the bounds of a step. Returns the hash to go on
    /// from, `None` behind the last bucket, and why it ended early.
    fn rewrite_from(&self, table: &Table, mut hash: u64) -> (Option<u64>, Result<(), WriteError>) {
        let mut scratch = self.core.scratch.borrow_mut();
        let entries = &mut scratch.entries;
        let mut left = REWRITE_BYTES_PER_STEP;
        for _ in 0..REWRITE_BUCKETS_PER_STEP {
            let reach = table.index.read_bucket(&self.pin, hash.max(table.hashes().first()), entries);
            let Some(reach) = reach else { return (None, Ok(())) };
            entries.iter().for_each(|&(_, location)| self.core.store.log.prefetch_head(location));
            for &(_, location) in &*entries {
                match self.rewrite(table, location) {
                    Ok(bytes) => left = left.saturating_sub(bytes),
                    Err(error) => return (Some(hash), Err(error)),
                }
                if left == 0 {
                    // What of this bucket is rewritten is passed over.
                    return (Some(hash), Ok(()));
                }
            }
            if reach.end >= table.hashes().last() {
                return (None, Ok(()));
            }
            hash = reach.end + 1;
        }
        (Some(hash), Ok(()))
    }

    /// Returns whether an object lies elsewhere than new ones of its table.
    fn is_misplaced(&self, table: &Table, location: Location) -> bool {
        let log = &self.core.store.log;
        let is_on_disk = log.sequence_at(location) != 0;
        if !table.is_durable() {
            return is_on_disk;
        }
        !is_on_disk || log.object(location, &self.pin).table() != table.entry_number()
    }

    /// Copies an object to the head of its table and makes the copy found in its place, unless it is there or is gone.
    /// Returns the bytes copied.
    fn rewrite(&self, table: &Table, location: Location) -> Result<u64, WriteError> {
        if !self.is_misplaced(table, location) {
            return Ok(0);
        }
        let busy = WriteError::Retry { after_us: RETRY_AFTER_US };
        let (store, core) = (&self.core.store, self.core.index);
        let object = store.log.object(location, &self.pin);
        let hash = crate::hash(object.key());
        if !object.verify() {
            let is_out = store.take_out_damaged(self, table, (location, hash, object.version()));
            return if is_out { Ok(0) } else { Err(busy) };
        }
        if self.is_expired(&object) {
            return if self.expire(table, location, &object) { Ok(0) } else { Err(busy) };
        }
        self.refuse_without_disk(table, false)?;
        let bytes = Lengths { predecessor: false, ..object.lengths() }.object_bytes();
        let claim = || store.log.claim_of_writer(bytes, store.keep_for_writers());
        let mut head = self.core.head_of(table).borrow_mut();
        let copy = store.log.copy_alone(&mut head, &object, table.entry_number(), claim);
        let copy = copy.map_err(|NoSegment| self.no_room(table, bytes))?;
        let unstage = |head| store.log.unstage(core, head, &copy);
        let mut bucket = match table.index.lock(&self.pin, hash) {
            Ok(bucket) => bucket,
            Err(reason) => {
                unstage(&mut head);
                return Err(reason.into());
            }
        };
        // The cleaner may have moved it meanwhile.
        let found = bucket.find(hash, |at| self.with_location(at, object.key()));
        let is_it = |at, there: u64| there == object.version() && self.is_misplaced(table, at);
        let Some((place, (at, there))) = found.filter(|(_, (at, there))| is_it(*at, there.version())) else {
            drop(bucket);
            unstage(&mut head);
            return Ok(0);
        };
        drop(head);
        if let Some(writing) = self.begin_durable(table) {
            self.advance(&writing, Wait::Nothing);
        }
        bucket.relocate(place, hash, copy.location);
        drop(bucket);
        let before = there.log_bytes() as u64;
        store.log.bury(core, at, before as u32);
        table.count(core, 0, (bytes as u64).wrapping_sub(before));
        Ok(bytes as u64)
    }
}
