//! Objects on their way from one store to another.
//!
//! ```text
//!   source                                             target
//!   gather: in the order of the hashes, by cursor ──►  replay: unless what is here is newer, or was removed here
//!   gather_hash: all objects of one hash ───────────►
//!   discard: when all have arrived
//! ```
//! Objects travel as their bytes in the log: nothing is computed of them at the source, and the checksum that was made at
//! their write is held against them at the target. Versions come along: a target begins above every version of its source
//! ([`Table::expect_arrivals`]), so whatever is written there is newer than whatever arrives, in whatever order, once or
//! more often.

mod copied;
mod gather;
mod replay;
mod returning;

pub use replay::{ReplayError, Replayed};
pub use returning::within;

use crate::arrival::Arrival;
use crate::cursor::Cursor;
use crate::enumerate::Gone;
use crate::hash_range::HashRange;
use crate::index::Location;
use crate::limits::DISCARDED_PER_STEP;
use crate::pinned::Pinned;
use crate::position::Position;
use crate::table::Table;

impl Cursor {
    /// Before all objects of `hash` and those behind it.
    #[must_use]
    pub fn before(hash: u64) -> Cursor {
        Cursor { done: hash.checked_sub(1).map(Position::last_of), ..Cursor::START }
    }

    /// Behind the object that has these two hashes; see [`Cursor::hashes`].
    #[must_use]
    pub fn behind(hash: u64, second: u64) -> Cursor {
        Cursor { done: Some(Position { hash, second }), ..Cursor::START }
    }

    /// The two hashes of the last object that is done, by which [`Cursor::behind`] goes on in another store; `None` at
    /// the start.
    #[must_use]
    pub fn hashes(&self) -> Option<(u64, u64)> {
        self.done.map(|done| (done.hash, done.second))
    }

    /// The last hash of which everything is done, if there is one.
    #[must_use]
    pub fn done_to(&self) -> Option<u64> {
        match self.done? {
            Position { hash, second: u64::MAX } => Some(hash),
            Position { hash, .. } => hash.checked_sub(1),
        }
    }
}

impl Table {
    /// Makes it one whose objects arrive from another store, in so many partitions at most, where no version is above
    /// `version`: whatever is written here gets a higher one. Before anybody uses it.
    ///
    /// # Panics
    /// When it was called before.
    pub fn expect_arrivals(&self, partitions: usize, version: u64) {
        self.begin_above(version);
        let expected = self.arrival.set(Arrival::new(self.hashes(), partitions));
        assert!(expected.is_ok(), "a table arrives once");
    }

    /// The highest version that any of its objects has or had: what [`Table::expect_arrivals`] wants to know of a table
    /// that nobody writes to any more.
    #[must_use]
    pub fn version_ceiling(&self) -> u64 {
        self.newest_version()
    }

    /// Whether what another store had of `hash` is here, with its partition or ahead of it: always, where nothing arrives.
    #[inline]
    #[must_use]
    pub fn has_arrived(&self, hash: u64) -> bool {
        self.arrival.get().is_none_or(|arrival| arrival.is_here(hash))
    }

    /// The last hash up to which, from `hash` on, all has arrived with its partitions, `u64::MAX` where nothing arrives; `None`:
    /// not even that one has.
    #[must_use]
    pub fn arrived_from(&self, hash: u64) -> Option<u64> {
        self.arrival.get().map_or(Some(u64::MAX), |arrival| arrival.arrived_from(hash))
    }

    /// What of each partition has arrived without a gap, where anything has: its first hash and its last. None where nothing
    /// arrives.
    pub fn arrived_ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.arrival.get().into_iter().flat_map(Arrival::ranges)
    }

    /// A read that does not wait has missed `hash`. Where one had not long ago, it is [wanted](Table::want).
    pub fn miss(&self, hash: u64) {
        if let Some(arrival) = self.arrival.get().filter(|arrival| arrival.is_missed_again(hash)) {
            // Where too many are wanted it comes with its partition.
            let _ = arrival.wanted().want(hash);
        }
    }

    /// Asks whoever pulls for the objects of `hash` before all others. The same hash again costs one exchange in memory.
    /// False where too many are wanted, or nothing arrives.
    pub fn want(&self, hash: u64) -> bool {
        self.arrival.get().is_some_and(|arrival| arrival.wanted().want(hash))
    }

    /// What is called, by the thread that wants it, when there is another hash to take: something that blocks nobody.
    ///
    /// # Panics
    /// The second time, and where nothing arrives.
    pub fn on_want(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.arrival.get().expect("arrivals are expected").wanted().set_waker(wake);
    }

    /// Takes at most so many of the hashes that are wanted, for who pulls: a hash may be among them more than once.
    pub fn take_wanted(&self, count_max: usize, into: &mut Vec<u64>) {
        self.arrival.get().inspect(|arrival| arrival.wanted().take(count_max, into));
    }

    /// All objects of those hashes are here, ahead of their partitions: called by the one thread that pulls, after it has
    /// replayed them and before it tells who waits.
    pub fn pulled(&self, hashes: &[u64]) {
        self.arrival.get().inspect(|arrival| arrival.note_pulled(hashes));
    }

    /// Those that were taken are not going to be pulled: who wants one of them from now on is heard again. Before it is told
    /// who waits.
    pub fn not_pulled(&self, hashes: &[u64]) {
        self.arrival.get().inspect(|arrival| arrival.forget_wanted(hashes));
    }

    /// Whether `key`, whose object may not have arrived, was removed here.
    #[must_use]
    pub fn was_removed(&self, key: &[u8]) -> bool {
        self.arrival.get().is_some_and(|arrival| arrival.was_removed(key))
    }

    /// The hashes of each partition in which objects arrive; none where nothing does.
    #[must_use]
    pub fn partitions(&self) -> Vec<HashRange> {
        self.arrival.get().map(|arrival| arrival.partitions().collect()).unwrap_or_default()
    }

    /// Everything of a partition up to `last` is here. Called by one thread for a partition, in order.
    ///
    /// # Panics
    /// For a partition that is none, and a hash beyond it.
    pub fn arrived(&self, partition: usize, last: u64) {
        self.arrival.get().expect("arrivals are expected").advance(partition, last);
    }

    /// Whether its objects come, or came, from another store.
    #[inline]
    #[must_use]
    pub fn is_arrival(&self) -> bool {
        self.arrival.get().is_some()
    }

    /// Whether all objects are here.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.arrival.get().is_none_or(Arrival::is_complete)
    }
}

impl Pinned<'_> {
    /// Whether what is found of `key` here is what there is: its hash has arrived, it was written here or removed. What
    /// is known stays known. Cost: one load where nothing arrives.
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
            // Between the look at the index and that at the removed keys both may have become of no account.
            || arrival.is_here(hash)
    }

    /// Removes objects behind `from` and up to the hash `last`, a bounded number of them. Returns where to go on; `None`
    /// where none is left. For a thread that may wait for writers.
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
