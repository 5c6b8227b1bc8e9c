//! State of a table whose objects still arrive from another store while it serves requests.
//!
//! ```text
//!   hashes of the table:  [ partition 0        │ partition 1        │ ... ]
//!                           arrived │ on the way  arrived │ on the way
//!                                   └ next             └ next
//! ```
//! Partitions arrive side by side, each in hash order, so one number describes the progress of a partition. In the
//! arrived part, an absent key is absent; in the rest the store knows only the objects that were written here. A key
//! that is removed here before its object arrives must stay removed: the remover notes it under the lock of its
//! bucket, and refuses the removal if there is no room for the note. Later removals are noted too, until the transfer
//! is settled (it can no longer be reversed), because the other store still has the objects. Requested hashes are
//! pulled ahead of their partitions.

mod pull_queue;
mod removed;

use once_cell::race::OnceBox;

use self::pull_queue::{Missed, PullQueue, Pulled};
use self::removed::Removed;
use crate::hash_range::{HashRange, Position};
use crate::limits::REMOVED_NOTED_MAX;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A range of the hashes, whose objects arrive in hash order.
struct Partition {
    hashes: HashRange,
    /// Hashes below this one have arrived; meaningless once all have.
    next: AtomicU64,
    complete: AtomicBool,
}

impl Partition {
    fn has_arrived(&self, hash: u64) -> bool {
        hash < self.next.load(Ordering::Acquire) || self.complete.load(Ordering::Acquire)
    }
}

/// The arrival state of one table: partitions, pulled hashes, removed keys.
pub(crate) struct Arrival {
    partitions: Box<[Partition]>,
    complete: AtomicBool,
    /// The transfer can no longer be reversed.
    settled: AtomicBool,
    /// Some removed key is not noted.
    forgotten: AtomicBool,
    removed: Removed,
    /// Created with the first request: most parts arrive before any hash is requested.
    wanted: OnceBox<PullQueue>,
    pulled: OnceBox<Pulled>,
    missed: OnceBox<Missed>,
}

impl Arrival {
    /// Creates the state of a table of which nothing has arrived: `count` partitions of equal width, or as many as
    /// possible.
    pub(crate) fn new(hashes: HashRange, count: usize) -> Arrival {
        let partition = |hashes: HashRange| {
            let next = AtomicU64::new(hashes.first());
            Partition { hashes, next, complete: AtomicBool::new(false) }
        };
        let partitions = hashes.split(count).into_iter().map(partition).collect();
        let [complete, settled, forgotten] = [(); 3].map(|()| AtomicBool::new(false));
        let (wanted, pulled, missed) = (OnceBox::new(), OnceBox::new(), OnceBox::new());
        let removed = Removed::default();
        Arrival { partitions, complete, settled, forgotten, removed, wanted, pulled, missed }
    }

    /// Returns the hashes of each partition.
    pub(crate) fn partitions(&self) -> impl ExactSizeIterator<Item = HashRange> {
        self.partitions.iter().map(|partition| partition.hashes)
    }

    fn partition_of(&self, hash: u64) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.hashes.contains(hash))
    }

    /// Returns whether the other store's objects of `hash` have arrived with their partition.
    pub(crate) fn has_arrived(&self, hash: u64) -> bool {
        self.partition_of(hash).is_none_or(|partition| partition.has_arrived(hash))
    }

    /// Returns the last hash up to which everything from `hash` on has arrived; `None` if `hash` itself has not.
    pub(crate) fn arrived_from(&self, hash: u64) -> Option<u64> {
        if self.is_complete() {
            return Some(u64::MAX);
        }
        let mut arrived = None;
        for partition in self.partitions.iter().filter(|partition| partition.hashes.last() >= hash) {
            let next = partition.next.load(Ordering::Acquire);
            if partition.complete.load(Ordering::Acquire) {
                arrived = Some(partition.hashes.last());
            } else {
                let is_begun = next > partition.hashes.first() && next > hash;
                return if is_begun { Some(next - 1) } else { arrived };
            }
        }
        arrived
    }

    /// Returns the first and last hash of the arrived part of each partition that has one.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        let arrived = |partition: &Partition| {
            let (first, last) = (partition.hashes.first(), partition.hashes.last());
            if partition.complete.load(Ordering::Acquire) {
                return Some((first, last));
            }
            let next = partition.next.load(Ordering::Acquire);
            (next > first).then(|| (first, next - 1))
        };
        self.partitions.iter().filter_map(arrived)
    }

    /// Records that a read missed `hash`; returns whether another read did so recently.
    pub(crate) fn is_missed_again(&self, hash: u64) -> bool {
        self.missed.get_or_init(Box::<Missed>::default).again(hash)
    }

    /// As [`Arrival::has_arrived`], or whether the hash was pulled ahead.
    pub(crate) fn is_here(&self, hash: u64) -> bool {
        self.has_arrived(hash) || self.pulled.get().is_some_and(|pulled| pulled.has(hash))
    }

    /// Records that these hashes were pulled ahead of their partitions. Called by one thread.
    pub(crate) fn note_pulled(&self, hashes: &[u64]) {
        let pulled = self.pulled.get_or_init(Box::<Pulled>::default);
        hashes.iter().for_each(|&hash| pulled.add(hash));
        self.forget_wanted(hashes);
    }

    /// Withdraws these hashes from the queue's memory of pending pulls; they can be requested again.
    pub(crate) fn forget_wanted(&self, hashes: &[u64]) {
        if let Some(wanted) = self.wanted.get() {
            hashes.iter().for_each(|&hash| wanted.forget(hash));
        }
    }

    /// Returns the queue of hashes to pull ahead of their partitions.
    pub(crate) fn wanted(&self) -> &PullQueue {
        self.wanted.get_or_init(Box::<PullQueue>::default)
    }

    /// Records that everything of a partition up to `last` has arrived.
    pub(crate) fn advance(&self, partition: usize, last: u64) {
        let partition = &self.partitions[partition];
        assert!(partition.hashes.contains(last), "a partition arrives within its bounds");
        debug_assert!(
            last.saturating_add(1) >= partition.next.load(Ordering::Acquire),
            "what has arrived stays"
        );
        if last < partition.hashes.last() {
            partition.next.store(last + 1, Ordering::Release);
        } else {
            partition.complete.store(true, Ordering::Release);
            if self.partitions.iter().all(|partition| partition.complete.load(Ordering::Acquire)) {
                self.complete.store(true, Ordering::Release);
            }
        }
    }

    /// Returns whether everything has arrived.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Notes a key that is about to be removed; called by the owner of its bucket. Returns false if there is no room
    /// for the note: then the key must stay, since its object may arrive again.
    #[cold]
    pub(crate) fn note_removal(&self, key: &[u8]) -> bool {
        if self.settled.load(Ordering::Acquire) {
            return true;
        }
        let position = Position::of(key);
        let has_room = self.removed.len() < REMOVED_NOTED_MAX;
        if has_room && self.removed.add(position) || self.removed.has(position) {
            return true;
        }
        let has_arrived = self.has_arrived(position.hash);
        if has_arrived {
            self.forget_removal();
        }
        has_arrived
    }

    /// Records that a key is removed without a note.
    #[cold]
    pub(crate) fn forget_removal(&self) {
        self.forgotten.store(true, Ordering::Release);
    }

    /// Ends the notes of removals: the transfer can no longer be reversed.
    pub(crate) fn end_notes(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// Returns whether every removed key was noted.
    pub(crate) fn knows_removals(&self) -> bool {
        !self.forgotten.load(Ordering::Acquire) && !self.settled.load(Ordering::Acquire)
    }

    /// Returns the keys that were removed here; some may exist again.
    pub(crate) fn removals(&self) -> Vec<Position> {
        if self.settled.load(Ordering::Acquire) { Vec::new() } else { self.removed.positions().collect() }
    }

    /// Returns whether an arriving object of this key is outdated: it arrived before, or the key was removed here.
    /// Called by the owner of the key's bucket.
    pub(crate) fn is_late(&self, key: &[u8], hash: u64) -> bool {
        self.has_arrived(hash) || self.was_removed(key)
    }

    /// Returns whether the key was removed here.
    pub(crate) fn was_removed(&self, key: &[u8]) -> bool {
        !self.removed.is_empty()
            && !self.settled.load(Ordering::Acquire)
            && self.removed.has(Position::of(key))
    }

    /// Returns the number of keys noted as removed.
    #[cfg(test)]
    pub(crate) fn removed(&self) -> usize {
        self.removed.len()
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::Arrival;
    use crate::hash_range::HashRange;
    use crate::limits::{HASH_RANGE_WIDTH_MIN, REMOVED_NOTED_MAX};

    #[test]
    fn partitions_have_every_hash_once() {
        let range = |first, last| HashRange::new(first, last).expect("wide enough");
        let narrow = range(7, 7 + HASH_RANGE_WIDTH_MIN);
        for (hashes, asked, given) in [(HashRange::ALL, 8, 8), (range(3, u64::MAX / 3), 7, 7), (narrow, 8, 1)]
        {
            let arrival = Arrival::new(hashes, asked);
            let partitions: Vec<_> = arrival.partitions().collect();
            assert_eq!(partitions.len(), given);
            assert_eq!(
                (partitions[0].first(), partitions[given - 1].last()),
                (hashes.first(), hashes.last())
            );
            assert!(partitions.windows(2).all(|pair| pair[0].last() + 1 == pair[1].first()));
        }
    }

    #[test]
    fn what_has_arrived_is_told_by_partition() {
        let arrival = Arrival::new(HashRange::ALL, 4);
        let quarter = 1 << 62;
        assert!(![0, quarter, u64::MAX].into_iter().any(|hash| arrival.has_arrived(hash)));
        arrival.advance(0, 99);
        arrival.advance(3, u64::MAX);
        assert!(arrival.has_arrived(99) && !arrival.has_arrived(100));
        assert!(arrival.has_arrived(u64::MAX) && !arrival.has_arrived(quarter) && !arrival.is_complete());
        assert_eq!(arrival.ranges().collect::<Vec<_>>(), [(0, 99), (3 * quarter, u64::MAX)]);
        (0..3).for_each(|at| arrival.advance(at, (at as u64 + 1) * quarter - 1));
        assert!(arrival.is_complete() && arrival.has_arrived(quarter));
    }

    #[test]
    fn what_was_removed_is_known_until_nothing_goes_back() {
        let arrival = Arrival::new(HashRange::ALL, 1);
        assert!(arrival.note_removal(b"key"));
        assert!(arrival.was_removed(b"key") && !arrival.was_removed(b"other"));
        assert_eq!(arrival.removed(), 1);
        arrival.advance(0, u64::MAX);
        assert!(arrival.note_removal(b"other"));
        assert_eq!((arrival.removals().len(), arrival.knows_removals()), (2, true));
        arrival.end_notes();
        assert!(arrival.note_removal(b"third"));
        assert!(arrival.removals().is_empty() && !arrival.was_removed(b"key") && !arrival.knows_removals());
    }

    #[test]
    fn a_key_that_cannot_be_noted_stays_until_it_has_arrived() {
        let arrival = Arrival::new(HashRange::ALL, 1);
        let mut key = 0_u64;
        while arrival.note_removal(&key.to_le_bytes()) {
            key += 1;
        }
        assert!(key > REMOVED_NOTED_MAX as u64 / 2 && arrival.removed() <= REMOVED_NOTED_MAX);
        assert!(!arrival.was_removed(&key.to_le_bytes()) && arrival.knows_removals());
        assert!(arrival.note_removal(&0_u64.to_le_bytes()), "it is noted already");
        arrival.advance(0, u64::MAX);
        assert!(arrival.note_removal(&key.to_le_bytes()) && !arrival.knows_removals());
    }
}
