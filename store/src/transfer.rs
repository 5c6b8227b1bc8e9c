//! Objects in transit from one store to another.
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
//! with any repetition.

mod copied;
mod gather;
mod replay;
mod returning;

pub use replay::{ReplayError, Replayed};
pub use returning::within;

use crate::arrival::Arrival;
use crate::cursor::Cursor;
use crate::enumerate::Gone;
use crate::hash_range::{HashRange, Position};
use crate::index::Location;
use crate::limits::DISCARDED_PER_STEP;
use crate::store::core::Pinned;
use crate::table::Table;

impl Cursor {
    /// Returns the cursor before all objects of `hash` and higher hashes.
    #[must_use]
    pub fn before(hash: u64) -> Cursor {
        Cursor { done: hash.checked_sub(1).map(Position::last_of), ..Cursor::START }
    }

    /// Returns the cursor after the object with these two hashes; see [`Cursor::hashes`].
    #[must_use]
    pub fn behind(hash: u64, second: u64) -> Cursor {
        Cursor { done: Some(Position { hash, second }), ..Cursor::START }
    }

    /// Returns the two hashes of the last finished object; `None` at the start.
    ///
    /// [`Cursor::behind`] continues from them in another store.
    #[must_use]
    pub fn hashes(&self) -> Option<(u64, u64)> {
        self.done.map(|done| (done.hash, done.second))
    }

    /// Returns the last hash that is completely done, if any.
    #[must_use]
    pub fn done_to(&self) -> Option<u64> {
        match self.done? {
            Position { hash, second: u64::MAX } => Some(hash),
            Position { hash, .. } => hash.checked_sub(1),
        }
    }
}

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
}

impl Pinned<'_> {
    /// Returns whether a look-up of `key` here is conclusive: its hash has arrived, or it was written or removed
    /// here. The answer true is final. Cost: one load if nothing arrives.
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
        arrival.is_here(hash)
            || table.index.find(&self.pin, hash, |location| self.object_of(location, key)).is_some()
            || arrival.was_removed(key)
            // Checked again, because both look-ups above may have become irrelevant between them.
            || arrival.is_here(hash)
    }

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
            if let Some((place, ())) = bucket.find(hash, |at| (at == location).then_some(())) {
                let object = self.core.store.log.object(location, &self.pin);
                table.lets_go_in_any_case(object.key());
                self.take_out(table, bucket, place, location, &object);
            }
        }
        let ended = ended || next.is_some_and(|next| next.done_to().is_some_and(|done| done >= last));
        Ok(next.filter(|_| !ended))
    }
}
