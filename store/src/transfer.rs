//! Objects in transit from one store to another: the state of a table at either end, and the removals.
//!
//! ```text
//!   source                                             target
//!   gather: in the order of the hashes, by cursor ──►  replay: unless what is here is newer, or was removed here
//!   gather_hash: all objects of one hash ───────────►
//!   discard: when all have arrived
//! ```
//! Objects travel as their bytes in the log: the source computes nothing, and the target checks the checksum of the
//! original write. Versions are transferred too: a target begins above every version of its source
//! ([`Table::expect_arrivals`]), so every object written there is newer than every arriving one, in any order and
//! with any repetition. A reversed move returns the objects written at the target since, identified by their versions,
//! and the keys removed there, identified by their places. A copy of a table in use is brought up to date by the marks
//! of writes and by the keys that the source no longer has.

mod gather;
mod replay;

pub use replay::{ReplayError, Replayed};

use crate::arrival::Arrival;
use crate::dirty_map::DirtyMap;
use crate::enumerate::{Cursor, Gone};
use crate::error::{Condition, WriteError};
use crate::hash_range::{HashRange, Position};
use crate::index::Location;
use crate::limits::DISCARDED_PER_STEP;
use crate::object::Carried;
use crate::store::core::Pinned;
use crate::table::Table;

impl Table {
    /// Prepares the table for objects that arrive from another store, before its first use.
    ///
    /// They come in at most `partitions` partitions, with versions up to `version`; writes here get higher ones.
    ///
    /// # Panics
    /// If it was called before.
    pub fn expect_arrivals(&self, partitions: usize, version: u64) {
        self.begin_above(version);
        let expected = self.arrival.set(Arrival::new(self.hashes(), partitions));
        assert!(expected.is_ok(), "a table arrives once");
    }

    /// Returns the hash range of its keys.
    #[inline]
    pub fn hashes(&self) -> HashRange {
        self.hashes
    }

    /// Returns the range of what the caller divides the table by: the hashes of its keys, or other positions that only
    /// the caller can compute. With those its keys have all hashes, and it moves as a whole.
    #[inline]
    pub fn positions(&self) -> HashRange {
        self.positions.unwrap_or(self.hashes)
    }

    /// Returns whether the caller divides the table by positions other than hashes.
    #[inline]
    pub fn has_own_positions(&self) -> bool {
        self.positions.is_some()
    }

    /// Returns the highest version that any of its objects has or had, for a table without writers.
    /// [`Table::expect_arrivals`] needs it.
    #[must_use]
    pub fn version_ceiling(&self) -> u64 {
        self.newest_version()
    }

    /// Returns whether `hash` has arrived, with its partition or ahead of it; true without arrivals.
    #[inline]
    #[must_use]
    pub fn has_arrived(&self, hash: u64) -> bool {
        self.arrival.get().is_none_or(|arrival| arrival.is_here(hash))
    }

    /// Returns the last hash up to which everything from `hash` on has arrived with its partitions; `None` if `hash`
    /// itself has not, `u64::MAX` if nothing arrives.
    #[must_use]
    pub fn arrived_from(&self, hash: u64) -> Option<u64> {
        self.arrival.get().map_or(Some(u64::MAX), |arrival| arrival.arrived_from(hash))
    }

    /// Returns the first and last hash of the arrived part of each partition that has one. Empty if nothing arrives.
    pub fn arrived_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.arrival.get().into_iter().flat_map(Arrival::ranges)
    }

    /// Records that a read that does not wait missed `hash`. A repeated miss [requests](Table::want) the hash.
    pub fn miss(&self, hash: u64) {
        if let Some(arrival) = self.arrival.get().filter(|arrival| arrival.is_missed_again(hash)) {
            // If too many hashes are queued, this one arrives with its partition.
            let _ = arrival.wanted().want(hash);
        }
    }

    /// Requests the objects of `hash` ahead of all others. Repeating a request costs one exchange in memory. Returns
    /// false if too many hashes are requested, or nothing arrives.
    pub fn want(&self, hash: u64) -> bool {
        self.arrival.get().is_some_and(|arrival| arrival.wanted().want(hash))
    }

    /// Sets the function that the requesting thread calls when there is another hash to take; it must not block.
    ///
    /// # Panics
    /// If called a second time, or if nothing arrives.
    pub fn on_want(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.arrival.get().expect("arrivals are expected").wanted().set_waker(wake);
    }

    /// Takes at most `count_max` requested hashes, for the pulling thread; a hash may be repeated.
    pub fn take_wanted(&self, count_max: usize, into: &mut Vec<u64>) {
        self.arrival.get().inspect(|arrival| arrival.wanted().take(count_max, into));
    }

    /// Records that all objects of those hashes have arrived ahead of their partitions. Called by the one thread that
    /// pulls, after it has replayed them and before it wakes the pending requests.
    pub fn pulled(&self, hashes: &[u64]) {
        self.arrival.get().inspect(|arrival| arrival.note_pulled(hashes));
    }

    /// Records that taken hashes will not be pulled, so that later requests for them are queued again. Called before
    /// the pending requests are told.
    pub fn not_pulled(&self, hashes: &[u64]) {
        self.arrival.get().inspect(|arrival| arrival.forget_wanted(hashes));
    }

    /// Returns whether `key`, whose object may not have arrived, was removed here.
    #[must_use]
    pub fn was_removed(&self, key: &[u8]) -> bool {
        self.arrival.get().is_some_and(|arrival| arrival.was_removed(key))
    }

    /// Returns the hashes of each partition in which objects arrive; empty if nothing does.
    #[must_use]
    pub fn partitions(&self) -> Vec<HashRange> {
        self.arrival.get().map(|arrival| arrival.partitions().collect()).unwrap_or_default()
    }

    /// Records that a partition has arrived up to `last`. Called by one thread per partition, in order.
    ///
    /// # Panics
    /// For a partition that does not exist, or a hash beyond it.
    pub fn arrived(&self, partition: usize, last: u64) {
        self.arrival.get().expect("arrivals are expected").advance(partition, last);
    }

    /// Returns whether its objects come, or came, from another store.
    #[inline]
    #[must_use]
    pub fn is_arrival(&self) -> bool {
        self.arrival.get().is_some()
    }

    /// Returns whether all objects have arrived.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.arrival.get().is_none_or(Arrival::is_complete)
    }

    /// Returns whether all writes and removals since the arrival began are known, so that it can go back.
    #[must_use]
    pub fn can_return(&self) -> bool {
        self.arrival.get().is_some_and(|arrival| arrival.knows_removals())
    }

    /// Makes the move final: removals need no longer be noted for a return.
    pub fn end_notes(&self) {
        self.arrival.get().inspect(|arrival| arrival.end_notes());
    }

    /// Starts to mark writes and removals. The head of `dirty_map.rs` describes from when on all writers mark. Ends
    /// after an equal number of calls of [`Table::unwatch`].
    pub fn watch(&self) {
        self.touched.get_or_init(|| DirtyMap::new(self.hashes(), self.objects())).watch();
    }

    /// Removes one watcher.
    ///
    /// # Panics
    /// If there is no watcher.
    pub fn unwatch(&self) {
        assert!(self.touched.get().map_or(0, DirtyMap::unwatch) > 0, "somebody watches");
    }

    /// Takes the first mark at or after `from`, among the hashes `within`; returns the hashes to read now. `None` if
    /// there is none. A mark that also covers hashes outside stays, since others may need it.
    #[must_use]
    pub fn take_dirty(&self, from: u64, within: (u64, u64)) -> Option<(u64, u64)> {
        self.touched.get()?.take_next(from, within)
    }

    /// Returns the approximate bytes of the objects written since their marks were taken.
    #[must_use]
    pub fn dirty_bytes(&self, within: (u64, u64)) -> u64 {
        self.touched.get().map_or(0, |touched| {
            touched.count(within) * (self.bytes() / touched.chunks_of(self.hashes())).max(1)
        })
    }
}

impl Pinned<'_> {
    /// Removes a bounded number of objects after `from` and up to the hash `last`. Returns the cursor to continue
    /// with; `None` if none is left. For a thread that may wait for writers.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn discard(&self, table: &Table, from: Cursor, last: u64) -> Result<Option<Cursor>, Gone> {
        let mut chosen: [Option<(u64, Location)>; DISCARDED_PER_STEP] = [None; DISCARDED_PER_STEP];
        let (mut count, mut ended) = (0, false);
        let next = self.walk(table, from, |group| {
            ended |= group[0].position.hash > last;
            if ended || count + group.len() > chosen.len() {
                return false;
            }
            for (hash, location) in group.iter().filter_map(|placed| Some((placed.hash, placed.location?))) {
                chosen[count] = Some((hash, location));
                count += 1;
            }
            true
        })?;
        for (hash, location) in chosen.into_iter().flatten() {
            let bucket = table.index.lock_patiently(&self.pin, hash).ok_or(Gone)?;
            let chosen = self.core.store.log.object(location, &self.pin);
            // The cleaner may have moved it since it was chosen.
            let found = bucket.find(hash, |at| self.with_location(at, chosen.key()));
            if let Some((place, (location, object))) = found {
                table.lets_go_in_any_case(object.key());
                self.take_out(table, bucket, place, location, &object);
            }
        }
        let ended = ended || next.is_some_and(|next| next.done_to().is_some_and(|done| done >= last));
        Ok(next.filter(|_| !ended))
    }

    /// Returns the keys, by their two hashes, that were removed here since the arrival began and are still absent.
    /// Call it while there are no writers.
    #[must_use]
    pub fn removals(&self, table: &Table) -> Vec<(u64, u64)> {
        let Some(arrival) = table.arrival.get() else { return Vec::new() };
        let mut removals = arrival.removals();
        removals.retain(|position| !self.has_position(table, *position));
        removals.into_iter().map(|position| (position.hash, position.second)).collect()
    }

    fn has_position(&self, table: &Table, position: Position) -> bool {
        let is_it = |location| {
            let object = self.core.store.log.object_within(location, &self.pin)?;
            (Position::of(object.key()) == position).then_some(())
        };
        table.index.find(&self.pin, position.hash, is_it).is_some()
    }

    /// Removes the key with these two hashes, if present. For a thread that may wait for writers.
    ///
    /// # Errors
    /// As a delete; of a table in memory only `TableRetired`.
    pub fn remove_placed(&self, table: &Table, (hash, second): (u64, u64)) -> Result<(), WriteError> {
        self.assert_own(table);
        let position = Position { hash, second };
        if table.is_durable() {
            let key = table.index.find(&self.pin, hash, |location| {
                let object = self.core.store.log.object_within(location, &self.pin)?;
                (Position::of(object.key()) == position).then(|| Box::<[u8]>::from(object.key()))
            });
            // A start must not find it either.
            return key.map_or(Ok(()), |key| self.delete(table, hash, &key, Condition::Always).map(|_| ()));
        }
        let bucket = table.index.lock_patiently(&self.pin, hash).ok_or(WriteError::TableRetired)?;
        let found = bucket.find(hash, |location| {
            let object = self.core.store.log.object_within(location, &self.pin)?;
            (Position::of(object.key()) == position).then_some(location)
        });
        if let Some((place, location)) = found {
            let object = self.core.store.log.object(location, &self.pin);
            table.lets_go_in_any_case(object.key());
            self.take_out(table, bucket, place, location, &object);
        }
        Ok(())
    }

    /// Removes the keys from the place `first` to the place `last`, by their two hashes, that are not in this pull,
    /// which has all objects of the source between them. Returns their number. May be repeated after an error.
    ///
    /// # Errors
    /// As [`Pinned::remove_placed`].
    pub fn remove_absent(
        &self,
        table: &Table,
        (first, last): ((u64, u64), (u64, u64)),
        mut pull: &[u8],
    ) -> Result<u64, WriteError> {
        let place = |(hash, second)| Position { hash, second };
        let (first, last) = (place(first), place(last));
        let mut kept = Vec::new();
        while let Ok((carried, rest)) = Carried::split(pull) {
            kept.push(Position::of(carried.key()));
            pull = rest;
        }
        kept.sort_unstable();
        let mut absent = Vec::new();
        let mut next = Some(Cursor::before(first.hash).until(last.hash));
        while let Some(from) = next {
            let walked = self.walk(table, from, |group| {
                let position = group[0].position;
                if (first..=last).contains(&position) && kept.binary_search(&position).is_err() {
                    absent.push(position);
                }
                true
            });
            next = walked.map_err(|Gone| WriteError::TableRetired)?;
        }
        for position in &absent {
            self.remove_placed(table, (position.hash, position.second))?;
        }
        Ok(absent.len() as u64)
    }
}

/// Returns the objects of a pull whose keys have these hashes.
#[must_use]
pub fn within(mut pull: &[u8], hashes: HashRange) -> Vec<u8> {
    let mut kept = Vec::new();
    while let Ok((carried, rest)) = Carried::split(pull) {
        if hashes.contains(crate::hash(carried.key())) {
            kept.extend_from_slice(&pull[..pull.len() - rest.len()]);
        }
        pull = rest;
    }
    kept
}
