//! Eviction: a write to a table with a budget makes room before it copies anything.
//!
//! ```text
//!   put ─► fits? ── no ─► queue the arrivals ─► examine the oldest of a queue ─► evict or spare ─► fits? ─► copy
//! ```
//!
//! A write looks at a bounded number of objects and becomes stricter with every spared one, so that the next one
//! leaves however often it was used. If a large write cannot free enough in that time, room is reserved for it: it is
//! told to retry, and background steps and later writes continue. An evicted object is gone like a deleted one. An
//! expired object leaves when its turn comes, however often it was used, and mostly earlier (`background.rs`).
//!
//! The lock of the queues is only tried here. While another core evicts, a write that stays within the budget and its
//! slack proceeds. Buckets are locked one at a time, and no caller holds a bucket.

use std::collections::VecDeque;

use crate::cache::{Cache, Queues};
use crate::commit::Write;
use crate::error::WriteError;
use crate::index::bucket::Mark;
use crate::index::locked::{LockedBucket, SlotPlace};
use crate::index::{Location, NotLocked};
use crate::limits::{
    CACHE_AHEAD, CACHE_PATIENCE, CACHE_SCANS_PER_WRITE, CACHE_SWEEP_PER_LOOK, RETRY_AFTER_US,
};
use crate::object::Object;
use crate::store::Store;
use crate::store::core::Pinned;
use crate::sync::{Busy, Ordering};
use crate::table::Table;

/// A write that needs room.
#[derive(Clone, Copy)]
struct Wish {
    new_bytes: u64,
    /// The bytes that it replaces.
    old_bytes: u64,
    /// The hash of its key, whose object is not evicted for it.
    hash: Option<u64>,
}

/// A queued object: its bucket, its place there, its mark, its location, and the object.
type Queued<'p> = (LockedBucket<'p>, SlotPlace, (Mark, Location, Object<'p>));

/// The outcome for an examined object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    Left,
    Spared,
    /// The hash has no object in the queue.
    Stale,
    /// Another thread has held the bucket for too long.
    Busy,
}

impl Pinned<'_> {
    /// As [`Pinned::make_room`], in a table with a budget.
    #[inline(never)]
    pub(crate) fn make_room_in(
        &self,
        table: &Table,
        cache: &Cache,
        (hash, key): (u64, &[u8]),
        bytes: u64,
    ) -> Result<(), WriteError> {
        let mut wish = Wish { new_bytes: bytes, old_bytes: 0, hash: Some(hash) };
        if bytes > cache.budget_bytes() {
            return Err(WriteError::OverBudget);
        }
        if !fits_reserve(table, cache, wish) {
            let old = table.index.find(&self.pin, hash, |location| self.object_of(location, key));
            wish.old_bytes = old.map_or(0, |object| object.log_bytes() as u64);
            self.evict_for(table, cache, wish)?;
        }
        cache.use_reserve(bytes);
        Ok(())
    }

    /// As [`Pinned::make_room`], for the writes of a commit. `sums` is memory for it.
    pub(crate) fn make_room_for_all(
        &self,
        writes: &[Write<'_>],
        sums: &mut Vec<(usize, u64, u64)>,
    ) -> Result<(), WriteError> {
        sums.clear();
        for (at, write) in writes.iter().enumerate() {
            if write.table.cache.is_none() {
                continue;
            }
            let bytes = write.object_bytes() as u64;
            match sums.iter_mut().find(|(first, ..)| std::ptr::eq(writes[*first].table, write.table)) {
                Some((_, sum, _)) => *sum += bytes,
                None => sums.push((at, bytes, 0)),
            }
        }
        for &(at, new_bytes, _) in &*sums {
            let table = writes[at].table;
            let Some(cache) = &table.cache else { continue };
            // The replaced bytes do not count, because those objects may be evicted.
            let wish = Wish { new_bytes, old_bytes: 0, hash: None };
            if new_bytes > cache.budget_bytes() {
                return Err(WriteError::OverBudget);
            }
            if !fits_reserve(table, cache, wish) {
                self.evict_for(table, cache, wish)?;
            }
            cache.use_reserve(new_bytes);
        }
        Ok(())
    }

    #[cold]
    fn evict_for(&self, table: &Table, cache: &Cache, wish: Wish) -> Result<(), WriteError> {
        let retry = Err(WriteError::Retry { after_us: RETRY_AFTER_US });
        let Some(mut queues) = cache.queues.try_lock() else {
            return if fits(table, cache, wish, cache.slack_bytes()) { Ok(()) } else { retry };
        };
        let has_more =
            self.evict_until(table, cache, &mut queues, wish.hash, || fits_reserve(table, cache, wish));
        drop(queues);
        if fits(table, cache, wish, 0) && (table.quota().admits(wish.new_bytes, wish.old_bytes) || !has_more)
        {
            return Ok(());
        }
        cache.reserve(wish.new_bytes);
        self.core.store.note_evicting(table, cache);
        retry
    }

    /// Evicts until `is_enough`, or until it has examined as many objects as one write may. Returns whether the queues
    /// have more.
    fn evict_until(
        &self,
        table: &Table,
        cache: &Cache,
        queues: &mut Queues,
        kept: Option<u64>,
        is_enough: impl Fn() -> bool,
    ) -> bool {
        self.take_in(table, cache, queues);
        let (mut spared, mut has_more) = (0, true);
        for _ in 0..CACHE_SCANS_PER_WRITE {
            if is_enough() {
                break;
            }
            let small = queues.main.len() == 0 || (queues.small.len() > 0 && cache.small_is_full());
            self.prefetch_ahead(table, queues, small);
            let Some(hash) = queues.queue(small).pop() else {
                has_more = false;
                break;
            };
            match self.judge(table, cache, queues, (hash, small), (kept, spared / CACHE_PATIENCE)) {
                Outcome::Left => spared = 0,
                Outcome::Spared => spared += 1,
                Outcome::Stale => {}
                Outcome::Busy => queues.queue(small).push(hash),
            }
        }
        cache.set_charge(queues);
        has_more
    }

    /// Prefetches the buckets and objects that the next looks into a queue need.
    fn prefetch_ahead(&self, table: &Table, queues: &mut Queues, small: bool) {
        let queue = queues.queue(small);
        if let Some(hash) = queue.peek(2 * CACHE_AHEAD) {
            self.prefetch_bucket(table, hash);
        }
        if let Some(hash) = queue.peek(CACHE_AHEAD) {
            table.index.candidates(&self.pin, hash, |location| {
                self.core.store.log.prefetch_replaced(self.core.index, location, 0)
            });
        }
    }

    /// Evicts or spares the object of a hash taken from the small or the main queue. Sparing it requires `strict` more
    /// uses than usual.
    fn judge(
        &self,
        table: &Table,
        cache: &Cache,
        queues: &mut Queues,
        (hash, small): (u64, bool),
        (kept, strict): (Option<u64>, u32),
    ) -> Outcome {
        let (mut bucket, place, (mark, location, object)) = match self.find_queued(table, hash, small) {
            Ok(Some(found)) => found,
            Ok(None) => return Outcome::Stale,
            Err(Busy) => return Outcome::Busy,
        };
        let bytes = object.log_bytes() as u64;
        let expired = self.is_expired(&object);
        if kept == Some(hash) {
            // The write relies on the object that it replaces.
            queues.queue(small).push(hash);
            return Outcome::Spared;
        }
        if !expired && small && mark.uses() > 1 + strict {
            bucket.set_mark(place, hash, location, Mark::MAIN);
            cache.count_small(self.core.index, bytes.wrapping_neg());
            queues.main.push(hash);
            return Outcome::Spared;
        }
        if !expired && !small && mark.uses() > strict {
            bucket.set_mark(place, hash, location, mark.with_use_forgotten());
            queues.main.push(hash);
            return Outcome::Spared;
        }
        if !table.lets_go(object.key()) {
            queues.queue(small).push(hash);
            return Outcome::Spared;
        }
        self.take_out(table, bucket, place, location, &object);
        let store = &self.core.store;
        if expired {
            store.objects_expired.fetch_add(1, Ordering::Relaxed);
        } else {
            store.objects_evicted.fetch_add(1, Ordering::Relaxed);
            cache.count_evicted();
            if small {
                queues.ghost.insert(hash, queues.main.len());
            }
        }
        Outcome::Left
    }

    /// Returns the object of a hash that is marked as being in this queue.
    fn find_queued<'p>(&'p self, table: &Table, hash: u64, small: bool) -> Result<Option<Queued<'p>>, Busy> {
        let bucket = match table.index.lock(&self.pin, hash) {
            Ok(bucket) => bucket,
            Err(NotLocked::Gone) => return Ok(None),
            Err(NotLocked::Busy) => return Err(Busy),
        };
        let found = bucket.find_marked(hash, |mark, location| {
            let object = self.core.store.log.object_within(location, &self.pin)?;
            (mark.is_main() != small && crate::hash(object.key()) == hash).then_some((mark, location, object))
        });
        Ok(found.map(|(place, found)| (bucket, place, found)))
    }

    /// Moves arrivals into the queues: into the main one if they have a ghost.
    fn take_in(&self, table: &Table, cache: &Cache, queues: &mut Queues) {
        for core in 0..cache.cores() {
            let Some(mut arrived) = cache.take_arrived(core) else { continue };
            for hash in arrived.hashes.drain(..) {
                if !queues.ghost.take(hash, queues.main.len()) {
                    queues.small.push(hash);
                    continue;
                }
                match self.find_queued(table, hash, true) {
                    Ok(Some((mut bucket, place, (_, location, object)))) => {
                        bucket.set_mark(place, hash, location, Mark::MAIN);
                        drop(bucket);
                        cache.count_small(self.core.index, (object.log_bytes() as u64).wrapping_neg());
                        queues.main.push(hash);
                    }
                    Ok(None) => {}
                    // The object's mark still names the small queue.
                    Err(Busy) => queues.small.push(hash),
                }
            }
            cache.give_back(core, arrived);
        }
    }

    /// Sometimes queues the arrivals after an insert, and drops stale hashes if there are many. The caller owns no
    /// bucket.
    #[inline]
    pub(crate) fn look_at_arrivals(&self, table: &Table, cache: &Cache) {
        if cache.is_due(self.core.index)
            && let Some(mut queues) = cache.queues.try_lock()
        {
            self.take_in(table, cache, &mut queues);
            if queues.is_stale(table.objects()) {
                let small = queues.small.len() > queues.main.len();
                for _ in 0..CACHE_SWEEP_PER_LOOK {
                    let queue = queues.queue(small);
                    let Some(hash) = queue.pop() else { break };
                    if !matches!(self.find_queued(table, hash, small), Ok(None)) {
                        queue.push(hash);
                    }
                }
            }
            cache.set_charge(&queues);
        }
    }

    /// Evicts a few objects of the table if the log is full of live data, so that cleaning brings memory for a write
    /// of `bytes`. Returns whether any left; none does if all of them together would not be enough.
    #[cold]
    pub(crate) fn give_way(&self, table: &Table, bytes: usize) -> bool {
        let Some(cache) = &table.cache else { return false };
        if !self.core.store.cleaning_would_bring(bytes, bytes_taken(table)) {
            return false;
        }
        let Some(mut queues) = cache.queues.try_lock() else { return true };
        let (before, objects) = (cache.evicted(), u64::from(CACHE_PATIENCE));
        self.evict_until(table, cache, &mut queues, None, || cache.evicted() >= before + objects);
        cache.evicted() > before
    }
}

impl Store {
    /// Continues to make reserved room in some table. Returns whether it did.
    pub(crate) fn eviction_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(id) = self.backlog.evicting.try_with(VecDeque::pop_front).flatten() else { return false };
        let Some(table) = self.directory.listing(&pinned.pin).get(id) else { return true };
        let Some(cache) = table.cache.as_deref().filter(|_| !table.is_retired()) else { return true };
        // Later requests are for the next step.
        cache.take_evicting();
        let wish = Wish { new_bytes: 0, old_bytes: 0, hash: None };
        let Some(mut queues) = cache.queues.try_lock() else { return true };
        let is_enough = || fits_reserve(table, cache, wish);
        if pinned.evict_until(table, cache, &mut queues, None, is_enough) && !is_enough() {
            drop(queues);
            self.note_evicting(table, cache);
        }
        true
    }
}

/// Returns the bytes of the table's objects. Their sum may be briefly negative while a core is between two counts.
fn bytes_taken(table: &Table) -> u64 {
    let taken = table.bytes();
    if taken > i64::MAX as u64 { 0 } else { taken }
}

/// Returns whether the write stays within the budget plus `more_bytes`.
fn fits(table: &Table, cache: &Cache, wish: Wish, more_bytes: u64) -> bool {
    let after = bytes_taken(table).saturating_add(wish.new_bytes).saturating_sub(wish.old_bytes);
    wish.new_bytes <= wish.old_bytes || after <= cache.budget_bytes().saturating_add(more_bytes)
}

/// Returns whether the write stays within the budget and the quota, and leaves the bytes reserved for a larger one.
fn fits_reserve(table: &Table, cache: &Cache, wish: Wish) -> bool {
    let reserved = cache.reserved_from(wish.new_bytes);
    let more = Wish { new_bytes: wish.new_bytes.saturating_add(reserved), ..wish };
    fits(table, cache, more, 0) && table.quota().admits(wish.new_bytes, wish.old_bytes)
}
