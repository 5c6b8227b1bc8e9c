//! Background work, in bounded steps, done by any worker that has time.
//!
//! The kinds of work take turns, so that a large growing table does not delay the cleaner. No worker waits for a list
//! of work; it skips the list while another worker has it. The cleaner's steps are in `cleaner.rs`, those of eviction in
//! `eviction.rs`.
//!
//! ```text
//!   put_until ── notes the table ──► list of walks ──► a few buckets a step ──► due again when the next one expires
//! ```
//! Readers and writers compare an object's expiry with the store's clock and treat an expired object as absent, so the
//! time of its removal affects only memory. Versions continue above the expired one. Walks go through the index of a
//! table in hash order; a table whose next expiry is far away, or that was just walked through, rests. If free segments
//! run out, no table rests.

use std::collections::VecDeque;

use crate::durable::Admission;
use crate::index::bucket::Mark;
use crate::index::{Location, NotLocked, Reach};
use crate::limits::{
    EXPIRY_BUCKETS_PER_STEP, EXPIRY_REST_FACTOR, EXPIRY_REST_MS_MAX, EXPIRY_REST_MS_MIN,
    EXPIRY_TABLES_PER_STEP, GROWTH_BUCKETS_PER_STEP,
};
use crate::object::{NEVER_MS, Object};
use crate::ordered::Leaving;
use crate::store::core::{Core, Pinned};
use crate::store::{Backlog, ExpiryWalk, Store};
use crate::sync::Ordering;
use crate::table::Table;

/// Kinds of work.
const KINDS: u32 = 8;

impl Core {
    /// Does one bounded step of background work. Returns whether more is due now.
    ///
    /// A step frees memory that readers have left, cleans a segment, grows or shrinks an index, removes expired
    /// objects, evicts, rewrites objects, or takes a retired table apart. It takes a few microseconds, 20 if memory runs out. Call it
    /// without a pin, which would hold back the memory that it frees.
    pub fn step(&self) -> bool {
        let store = &self.store;
        self.owed.set(self.owed.get().saturating_add(self.take_appended()));
        if store.is_quiet() {
            self.owed.set(0);
            return false;
        }
        let mut worked = false;
        for _ in 0..KINDS {
            let turn = self.turn.get();
            self.turn.set((turn + 1) % KINDS);
            worked = match turn {
                0 => store.reclaimer.step(),
                1 => store.clean_step(&self.pin()),
                2 => !store.backlog.growing.is_empty() && store.growth_step(&self.pin()),
                3 => !store.backlog.expiring.is_empty() && store.expiry_step(&self.pin()),
                4 => !store.backlog.evicting.is_empty() && store.eviction_step(&self.pin()),
                // [`Store::turn`] is called between the rounds of cores that serve, not of those that replay a log.
                5 if self.index >= store.config.cores => false,
                5 => !store.backlog.rewriting.is_empty() && store.rewrite_step(&self.pin()),
                6 => !store.backlog.leaving.is_empty() && store.leaving_step(&self.pin()),
                _ => store.retired_count.load(Ordering::Acquire) > 0 && store.retire_step(&self.pin()),
            };
            if worked {
                break;
            }
        }
        worked
    }
}

impl Store {
    /// Returns true if no kind of work would do anything now. Cost: seventeen loads.
    pub(crate) fn is_quiet(&self) -> bool {
        let Backlog { growing, expiring, evicting, leaving, rewriting, retiring: _ } = &self.backlog;
        self.reclaimer.is_empty()
            && (growing.is_empty() && expiring.is_empty() && evicting.is_empty())
            && (leaving.is_empty() && rewriting.is_empty())
            && self.retired_count.load(Ordering::Acquire) == 0
            && self.cleaner_rests()
    }

    fn growth_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(id) = self.backlog.growing.try_with(VecDeque::pop_front).flatten() else { return false };
        let Some(table) = self.directory.listing(&pinned.pin).get(id) else { return true };
        pinned.grow(table, GROWTH_BUCKETS_PER_STEP);
        // More objects may have disappeared while the index shrank.
        if !table.index.is_growing(&pinned.pin) {
            pinned.start_shrinking(table, 0);
        }
        if table.index.is_growing(&pinned.pin) && !table.is_retired() {
            self.note_growing(table);
        }
        true
    }

    fn retire_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(mut retiring) = self.backlog.retiring.try_lock() else { return false };
        if retiring.is_empty() {
            let tables = self.directory.listing(&pinned.pin).iter();
            retiring.extend(tables.filter(|table| table.is_retired()).cloned());
        }
        let Some(table) = retiring.front() else { return false };
        let bury = |location: Location| {
            // The object's queue no longer matters.
            pinned.bury(table, location, &self.log.object(location, &pinned.pin), Mark::MAIN);
        };
        let prefetch = |location| self.log.prefetch_head(location);
        if table.index.dismantle(&pinned.pin, GROWTH_BUCKETS_PER_STEP, &self.reclaimer, prefetch, bury)
            && !pinned.take_keys_apart(table)
            && !table.take_queues_apart()
            && self.directory.try_remove(&self.reclaimer, table)
        {
            self.retired_count.fetch_sub(1, Ordering::AcqRel);
            retiring.pop_front();
        }
        true
    }

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

    /// Removes expired objects in a few buckets. Returns whether it looked through any.
    pub(crate) fn expiry_step(&self, pinned: &Pinned<'_>) -> bool {
        let Some(mut walk) = self.due_walk() else { return false };
        // A retired table may have the same number; its objects disappear anyway.
        let table = self.directory.listing(&pinned.pin).get(walk.table);
        let Some(table) = table.filter(|table| !table.is_retired()) else { return true };
        let now_ms = self.now_ms();
        if walk.next_hash == 0 {
            walk.began_ms = now_ms;
            walk.earliest_ms = NEVER_MS;
            // This walk may miss expiries noted from now on; they count for the next walk.
            let _ = table.take_earliest_expiry();
        }
        if pinned.expire_buckets(table, &mut walk) || self.rests(table, &mut walk) {
            self.backlog.expiring.add(walk);
        }
        true
    }

    /// Returns whether a removal of expired objects is running or due, so that memory will come. Also returns true
    /// while another thread has the list, since it may be about to continue.
    pub(crate) fn expects_expiry(&self) -> bool {
        let now_ms = self.now_ms();
        let is_expected = |walk: &ExpiryWalk| walk.next_hash != 0 || walk.earliest_ms <= now_ms;
        let expected = self.backlog.expiring.try_with(|walks| walks.iter().any(is_expected));
        expected.unwrap_or(true)
    }

    /// Takes a due walk off the list. Checks only a few; the next steps check the others.
    fn due_walk(&self) -> Option<ExpiryWalk> {
        let now_ms = self.now_ms();
        let is_due = |walk: &ExpiryWalk| {
            let is_pressed = || self.log.segments.free_count() <= self.keep_for_writers();
            walk.due_ms <= now_ms || (walk.earliest_ms <= now_ms && is_pressed())
        };
        let due = self.backlog.expiring.try_with(|walks| {
            for _ in 0..walks.len().min(EXPIRY_TABLES_PER_STEP) {
                let walk = walks.pop_front()?;
                if is_due(&walk) {
                    return Some(walk);
                }
                walks.push_back(walk);
            }
            None
        });
        due.flatten()
    }

    /// Ends a walk. Returns false if no object of the table expires any more.
    fn rests(&self, table: &Table, walk: &mut ExpiryWalk) -> bool {
        let noted_ms = table.take_earliest_expiry();
        walk.next_hash = 0;
        walk.earliest_ms = walk.earliest_ms.min(noted_ms);
        if walk.earliest_ms == NEVER_MS {
            return !table.forget_expiry();
        }
        let now_ms = self.now_ms();
        let rest_ms = (now_ms - walk.began_ms).saturating_mul(EXPIRY_REST_FACTOR);
        let rest_ms = rest_ms.clamp(EXPIRY_REST_MS_MIN, EXPIRY_REST_MS_MAX);
        walk.due_ms = walk.earliest_ms.max(now_ms + rest_ms);
        true
    }
}

impl Pinned<'_> {
    /// Continues a walk for a few buckets. Returns whether more buckets remain.
    fn expire_buckets(&self, table: &Table, walk: &mut ExpiryWalk) -> bool {
        let log = &self.core.store.log;
        let mut scratch = self.core.scratch.borrow_mut();
        let entries = &mut scratch.entries;
        for _ in 0..EXPIRY_BUCKETS_PER_STEP {
            let reach =
                table.index.read_bucket(&self.pin, walk.next_hash.max(table.hashes().first()), entries);
            entries.iter().for_each(|&(_, location)| log.prefetch_head(location));
            for &(_, location) in &*entries {
                let object = log.object(location, &self.pin);
                if !self.is_expired(&object) || !self.expire(table, location, &object) {
                    walk.earliest_ms = walk.earliest_ms.min(object.expires_ms());
                }
            }
            let within = |reach: Reach| (reach.end < table.hashes().last()).then(|| reach.end + 1);
            match reach.and_then(within) {
                Some(next_hash) => walk.next_hash = next_hash,
                None => return false,
            }
        }
        true
    }

    /// Removes an expired object, if the index still points to it. Returns false if it stays, because another thread
    /// holds its bucket, its removal cannot be noted, a recovery may bring a newer one, or its disk has failed.
    #[must_use]
    pub(crate) fn expire(&self, table: &Table, location: Location, object: &Object<'_>) -> bool {
        if table.is_replaying() {
            // A newer object of its key, which may not expire, could follow.
            return false;
        }
        let hash = crate::hash(object.key());
        let bucket = match table.index.lock(&self.pin, hash) {
            Ok(bucket) => bucket,
            Err(reason) => return reason == NotLocked::Gone,
        };
        let is_it = |at| (at == location).then_some(());
        let Some((place, ())) = bucket.find(hash, is_it) else {
            // Unless the cleaner has moved it since it was looked at.
            let newest = bucket.find(hash, |at| self.object_of(at, object.key()));
            return newest.is_none_or(|(_, newest)| newest.version() != object.version());
        };
        // Readers do not see it; without it in memory, they would wait for a disk that has failed.
        let has_failed = || self.core.store.admission() == Admission::Failed;
        if table.is_durable() && has_failed() || !table.lets_go(object.key()) {
            return false;
        }
        self.note_expired(table, hash, location, object.expires_ms());
        self.take_out(table, bucket, place, location, object);
        self.core.store.objects_expired.fetch_add(1, Ordering::Relaxed);
        true
    }
}
