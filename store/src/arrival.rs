//! What is known of a table whose objects come from another store while it is in use already.
//!
//! ```text
//!   hashes of the table:  [ partition 0        │ partition 1        │ ... ]
//!                           arrived │ on the way  arrived │ on the way
//!                                   └ next             └ next
//! ```
//! Partitions arrive side by side, each in the order of the hashes, so one number says what of it is there. A key of what
//! has arrived that is absent is absent; of the rest nothing is known but what was written here. A key that is removed
//! here before its object arrives must stay removed: it is noted, under the lock of its bucket, and it stays where there is
//! no room for a note. Keys that are removed later are noted too, until it is settled that nothing goes back, since the
//! other store has their objects. Hashes that somebody waits for are pulled ahead of their partitions.

mod missed;
mod pull_queue;
mod pulled;
mod removed;

use once_cell::race::OnceBox;

use self::missed::Missed;
use self::pull_queue::PullQueue;
use self::pulled::Pulled;
use self::removed::Removed;
use crate::hash_range::HashRange;
use crate::limits::REMOVED_NOTED_MAX;
use crate::position::Position;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A part of the hashes that arrives in their order.
struct Partition {
    hashes: HashRange,
    /// Hashes below have arrived, as long as not all have.
    next: AtomicU64,
    complete: AtomicBool,
}

impl Partition {
    fn has_arrived(&self, hash: u64) -> bool {
        hash < self.next.load(Ordering::Acquire) || self.complete.load(Ordering::Acquire)
    }
}

/// See the file's head.
pub(crate) struct Arrival {
    partitions: Box<[Partition]>,
    complete: AtomicBool,
    /// Nothing of it goes back any more.
    settled: AtomicBool,
    /// Some key that was removed is not noted.
    forgotten: AtomicBool,
    removed: Removed,
    /// Made when the first is wanted: most parts arrive before anybody asks.
    wanted: OnceBox<PullQueue>,
    pulled: OnceBox<Pulled>,
    missed: OnceBox<Missed>,
}

impl Arrival {
    /// Nothing of `hashes` has arrived; they come in `count` partitions of equal width, or as many as there can be.
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

    /// The hashes of each partition.
    pub(crate) fn partitions(&self) -> impl ExactSizeIterator<Item = HashRange> {
        self.partitions.iter().map(|partition| partition.hashes)
    }

    fn partition_of(&self, hash: u64) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.hashes.contains(hash))
    }

    /// Whether what another store had of `hash` is here.
    pub(crate) fn has_arrived(&self, hash: u64) -> bool {
        self.partition_of(hash).is_none_or(|partition| partition.has_arrived(hash))
    }

    /// The last hash up to which everything from `hash` on has arrived; `None`: not even that has.
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

    /// What of each partition has arrived without a gap, where anything has: its first hash and its last.
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

    /// A read has missed `hash`; whether one had not long ago.
    pub(crate) fn is_missed_again(&self, hash: u64) -> bool {
        self.missed.get_or_init(Box::<Missed>::default).again(hash)
    }

    /// The same, or whether it was pulled ahead.
    pub(crate) fn is_here(&self, hash: u64) -> bool {
        self.has_arrived(hash) || self.pulled.get().is_some_and(|pulled| pulled.has(hash))
    }

    /// Those hashes were pulled ahead of their partitions. Called by one thread.
    pub(crate) fn note_pulled(&self, hashes: &[u64]) {
        let pulled = self.pulled.get_or_init(Box::<Pulled>::default);
        hashes.iter().for_each(|&hash| pulled.add(hash));
        self.forget_wanted(hashes);
    }

    /// Nobody is about to pull those ahead any more.
    pub(crate) fn forget_wanted(&self, hashes: &[u64]) {
        if let Some(wanted) = self.wanted.get() {
            hashes.iter().for_each(|&hash| wanted.forget(hash));
        }
    }

    /// Hashes that somebody waits for.
    pub(crate) fn wanted(&self) -> &PullQueue {
        self.wanted.get_or_init(Box::<PullQueue>::default)
    }

    /// Everything of a partition up to `last` is here.
    pub(crate) fn advance(&self, partition: usize, last: u64) {
        let partition = &self.partitions[partition];
        assert!(partition.hashes.contains(last), "a partition arrives within its bounds");
        if last < partition.hashes.last() {
            partition.next.store(last + 1, Ordering::Release);
        } else {
            partition.complete.store(true, Ordering::Release);
            if self.partitions.iter().all(|partition| partition.complete.load(Ordering::Acquire)) {
                self.complete.store(true, Ordering::Release);
            }
        }
    }

    /// Whether all is here.
    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Notes a key that is about to disappear, for the owner of its bucket. False where there is no room for a note: the
    /// key must stay, since its object may arrive again.
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

    /// A key disappears that is not noted.
    #[cold]
    pub(crate) fn forget_removal(&self) {
        self.forgotten.store(true, Ordering::Release);
    }

    /// Nothing goes back any more: what was removed need not be known.
    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }

    /// Whether every key that was removed here is known.
    pub(crate) fn knows_removals(&self) -> bool {
        !self.forgotten.load(Ordering::Acquire) && !self.settled.load(Ordering::Acquire)
    }

    /// The keys that were removed here, some of which may be here again.
    pub(crate) fn removals(&self) -> Vec<Position> {
        if self.settled.load(Ordering::Acquire) { Vec::new() } else { self.removed.positions().collect() }
    }

    /// For the owner of the key's bucket: whether what arrives of it is of the past, since it has arrived before or was
    /// removed here.
    pub(crate) fn is_late(&self, key: &[u8], hash: u64) -> bool {
        self.has_arrived(hash) || self.was_removed(key)
    }

    /// Whether the key was removed here.
    pub(crate) fn was_removed(&self, key: &[u8]) -> bool {
        !self.removed.is_empty()
            && !self.settled.load(Ordering::Acquire)
            && self.removed.has(Position::of(key))
    }

    /// Keys that are noted as removed.
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
        arrival.settle();
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
