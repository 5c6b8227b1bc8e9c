//! Hashes that are pulled ahead of their partitions: those that reads miss, those that requests wait for, those that
//! have come.
//!
//! ```text
//!   workers ── want ──► recent: drops a repeated hash
//!                         └──► [ bounded queue ] ── take ──► the pulling thread, which is woken
//! ```
//! There are no locks: the pulling thread may have the lowest priority, and no worker waits for it. A hash may come
//! more than once if two hashes share a place of `recent`; the pulling thread removes the duplicates.

use std::sync::OnceLock;

use crate::limits::{MISSED_HASHES_KEPT, PULLED_HASHES_KEPT, PULLED_SLOTS, RECENT_WANTS, WANTED_HASHES_MAX};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A place of the queue. `turn`: position at which it may be written; one more when it may be read.
struct Place {
    turn: AtomicU64,
    hash: AtomicU64,
}

/// A bounded, lock-free queue of hashes to pull.
pub(crate) struct PullQueue {
    places: Box<[Place]>,
    /// Places that hold a hash or are about to. A place is reserved before its hash counts as requested, so that no
    /// request relies on a hash that does not fit.
    reserved: AtomicU64,
    written: AtomicU64,
    read: AtomicU64,
    /// Recently requested hashes that have not arrived, each at its place; 0 for none.
    recent: Box<[AtomicU64]>,
    waker: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Default for PullQueue {
    fn default() -> Self {
        PullQueue::with_room(WANTED_HASHES_MAX, RECENT_WANTS)
    }
}

impl PullQueue {
    /// Creates a queue of `hashes` places that remembers `recent` hashes; both are powers of two.
    fn with_room(hashes: usize, recent: usize) -> Self {
        assert!(hashes.is_power_of_two() && recent.is_power_of_two());
        let place = |turn| Place { turn: AtomicU64::new(turn), hash: AtomicU64::new(0) };
        PullQueue {
            places: (0..hashes as u64).map(place).collect(),
            reserved: AtomicU64::new(0),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            recent: (0..recent).map(|_| AtomicU64::new(0)).collect(),
            waker: OnceLock::new(),
        }
    }

    /// Sets the function that is called after a hash was queued. May be called once.
    pub(crate) fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>) {
        let set = self.waker.set(waker);
        assert!(set.is_ok(), "one thread pulls");
    }

    /// Requests the objects of `hash`. Returns false if too many hashes are queued.
    pub(crate) fn want(&self, hash: u64) -> bool {
        // A hash of 0 is never remembered as recent, so it is queued each time.
        let recent = self.recent_place(hash);
        if hash != 0 && recent.load(Ordering::Acquire) == hash {
            return true;
        }
        if self.reserved.fetch_add(1, Ordering::Acquire) >= self.places.len() as u64 {
            self.reserved.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if hash != 0 && recent.swap(hash, Ordering::AcqRel) == hash {
            self.reserved.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        self.push(hash);
        if let Some(wake) = self.waker.get() {
            wake();
        }
        true
    }

    /// Takes at most `count_max` hashes. Called by one thread.
    pub(crate) fn take(&self, count_max: usize, into: &mut Vec<u64>) {
        into.extend(std::iter::from_fn(|| self.pop()).take(count_max));
    }

    /// Forgets that `hash` was requested recently: the next request queues it again.
    pub(super) fn forget(&self, hash: u64) {
        // If another hash has taken the place, there is nothing to forget.
        let _ = self.recent_place(hash).compare_exchange(hash, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn recent_place(&self, hash: u64) -> &AtomicU64 {
        &self.recent[hash as usize & (self.recent.len() - 1)]
    }

    fn place(&self, at: u64) -> &Place {
        &self.places[at as usize & (self.places.len() - 1)]
    }

    /// Appends a hash to a bounded queue for many writers and one reader (Vyukov). The thread that wins a position owns
    /// its place, which is free because the thread has reserved a place.
    fn push(&self, hash: u64) {
        // Acquires what the owner of the previous position knew to be free.
        let at = self.written.fetch_add(1, Ordering::AcqRel);
        let place = self.place(at);
        assert_eq!(
            place.turn.load(Ordering::Acquire),
            at,
            "places are taken in the order in which they become free"
        );
        place.hash.store(hash, Ordering::Relaxed);
        place.turn.store(at + 1, Ordering::Release);
    }

    fn pop(&self) -> Option<u64> {
        let mut at = self.read.load(Ordering::Relaxed);
        loop {
            let place = self.place(at);
            let turn = place.turn.load(Ordering::Acquire);
            if turn == at + 1 {
                match self.read.compare_exchange(at, at + 1, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => {
                        let hash = place.hash.load(Ordering::Relaxed);
                        place.turn.store(at + self.places.len() as u64, Ordering::Release);
                        let reserved = self.reserved.fetch_sub(1, Ordering::Release);
                        debug_assert!(reserved > 0, "a queued hash has a place");
                        return Some(hash);
                    }
                    Err(now) => at = now,
                }
            } else if turn <= at {
                return None;
            } else {
                at = self.read.load(Ordering::Relaxed);
            }
        }
    }
}

/// The set of hashes that were pulled ahead of their partitions recently: their absent keys are known to be absent.
///
/// ```text
///   young [ .. h .. .. ]   written by one thread; when full, it becomes old, and the old one is forgotten
///   old   [ .. .. g .. ]
/// ```
/// Two hash tables are read without locks, so that no reader waits for the one thread that writes. They remember at
/// least as many hashes as one table holds; a request that meets a forgotten hash queues it again.
pub(super) struct Pulled {
    tables: [Box<[AtomicU64]>; 2],
    /// The number of hashes ever added, which tells which table is young and how full it is.
    added: AtomicU64,
    /// Whether hash 0 was added: it marks empty slots, so it cannot be stored in a table.
    zero: AtomicBool,
}

impl Default for Pulled {
    fn default() -> Self {
        let table = || (0..PULLED_SLOTS).map(|_| AtomicU64::new(0)).collect();
        Pulled { tables: [table(), table()], added: AtomicU64::new(0), zero: AtomicBool::new(false) }
    }
}

impl Pulled {
    /// Adds a hash of which everything has arrived. Called by one thread.
    pub(super) fn add(&self, hash: u64) {
        if hash == 0 {
            self.zero.store(true, Ordering::Release);
            return;
        }
        if self.has(hash) {
            return;
        }
        let added = self.added.load(Ordering::Relaxed);
        let table = &self.tables[(added / PULLED_HASHES_KEPT) as usize % 2];
        if added.is_multiple_of(PULLED_HASHES_KEPT) {
            table.iter().for_each(|slot| slot.store(0, Ordering::Release));
        }
        let slot = probe(table, hash).find(|slot| slot.load(Ordering::Relaxed) == 0);
        slot.expect("a table is half empty").store(hash, Ordering::Release);
        self.added.store(added + 1, Ordering::Relaxed);
    }

    /// Returns whether the set remembers that everything of `hash` has arrived.
    pub(super) fn has(&self, hash: u64) -> bool {
        if hash == 0 {
            return self.zero.load(Ordering::Acquire);
        }
        self.tables.iter().any(|table| {
            let mut met = probe(table, hash).map(|slot| slot.load(Ordering::Acquire));
            met.find(|&met| met == hash || met == 0) == Some(hash)
        })
    }
}

/// Returns the slots that may hold a hash, in probing order.
fn probe(table: &[AtomicU64], hash: u64) -> impl Iterator<Item = &AtomicU64> {
    let first = hash as usize % table.len();
    table[first..].iter().chain(&table[..first])
}

/// A sample of the hashes that reads missed recently, to detect hashes that are requested often.
///
/// Each hash has one place, which it shares with others that may overwrite it; a frequently requested hash returns before
/// that happens. There are no locks: a race of two threads on one place costs one hash its mark, and nothing else.
pub(super) struct Missed {
    places: Box<[AtomicU64]>,
}

impl Default for Missed {
    fn default() -> Self {
        Missed { places: (0..MISSED_HASHES_KEPT).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Missed {
    /// Records that a read missed `hash`; returns whether another read did so recently.
    pub(super) fn again(&self, hash: u64) -> bool {
        let place = &self.places[hash as usize % self.places.len()];
        place.swap(hash, Ordering::Relaxed) == hash
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Missed, PullQueue, Pulled};
    use crate::limits::PULLED_HASHES_KEPT;

    fn take(wanted: &PullQueue, count_max: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        wanted.take(count_max, &mut taken);
        taken
    }

    #[test]
    fn a_hash_is_queued_once_until_it_has_come() {
        let wanted = PullQueue::with_room(8, 16);
        assert!((0..3).all(|_| wanted.want(7)) && wanted.want(0) && wanted.want(3));
        assert_eq!((take(&wanted, 2), take(&wanted, 9)), (vec![7, 0], vec![3]));
        assert!(wanted.want(7) && take(&wanted, 9).is_empty());
        wanted.forget(7);
        assert!(wanted.want(7));
        assert_eq!(take(&wanted, 9), [7]);
    }

    #[test]
    fn beyond_its_room_the_queue_refuses_and_goes_on_when_there_is_some() {
        let wanted = PullQueue::with_room(4, 16);
        for round in 0..5 {
            let hashes = || (1..=4).map(|hash| hash + 16 * round);
            assert!(hashes().all(|hash| wanted.want(hash)));
            // Also at the second try: a refused hash does not count as queued.
            assert!(!wanted.want(9 + 16 * round) && !wanted.want(9 + 16 * round));
            assert_eq!(take(&wanted, 9), Vec::from_iter(hashes()));
        }
    }

    #[test]
    fn who_pulls_is_woken_for_what_is_queued() {
        let (wanted, woken) = (PullQueue::with_room(2, 16), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&woken);
        wanted.set_waker(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        assert_eq!([1, 1, 2, 3].map(|hash| wanted.want(hash)), [true, true, true, false]);
        assert_eq!(woken.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_last_ones_are_remembered_and_none_that_was_not_pulled() {
        let pulled = Pulled::default();
        let hash = |at: u64| at * 3;
        for at in 0..5 * PULLED_HASHES_KEPT {
            assert!(!pulled.has(hash(at)));
            pulled.add(hash(at));
            pulled.add(hash(at));
            let kept = at.saturating_sub(PULLED_HASHES_KEPT - 1)..=at;
            if at % 97 == 0 {
                assert!(kept.clone().all(|at| pulled.has(hash(at))));
            }
            assert!(!pulled.has(hash(at) + 1));
        }
        assert!(pulled.has(0), "the hash that marks what is empty");
    }

    #[test]
    fn a_hash_is_missed_again_unless_another_took_its_place() {
        let missed = Missed::default();
        let other = 7 + missed.places.len() as u64;
        assert_eq!(
            [7, 7, other, 7, 8, 7].map(|hash| missed.again(hash)),
            [false, true, false, false, false, true]
        );
    }
}

#[cfg(all(test, loom_model))]
mod tests {
    use std::sync::Arc;

    use super::PullQueue;

    /// Two workers request hashes, one of them the other's hash too, while one thread takes hashes. Each hash that is
    /// reported as queued arrives once.
    #[test]
    fn loom_what_is_wanted_is_taken() {
        loom::model(|| {
            let wanted = Arc::new(PullQueue::with_room(2, 2));
            let other = {
                let wanted = Arc::clone(&wanted);
                loom::thread::spawn(move || (wanted.want(1), wanted.want(2)))
            };
            let mut taken = Vec::new();
            let own = wanted.want(1);
            wanted.take(1, &mut taken);
            let (first, second) = other.join().expect("no panic");
            wanted.take(4, &mut taken);
            taken.sort_unstable();
            let queued = [(1, own || first), (2, second)].into_iter().filter(|(_, queued)| *queued);
            assert_eq!(taken, Vec::from_iter(queued.map(|(hash, _)| hash)));
            assert!(!taken.is_empty(), "there is room for two");
        });
    }

    /// Two threads request the same hash when the queue is full: if one is told that the hash is queued, it is.
    #[test]
    fn loom_what_is_told_to_be_wanted_is_in_the_queue() {
        loom::model(|| {
            let wanted = Arc::new(PullQueue::with_room(2, 4));
            assert!(wanted.want(2) && wanted.want(3));
            let other = {
                let wanted = Arc::clone(&wanted);
                loom::thread::spawn(move || wanted.want(1))
            };
            let own = wanted.want(1);
            let other = other.join().expect("no panic");
            let mut taken = Vec::new();
            wanted.take(4, &mut taken);
            assert_eq!(taken.contains(&1), own || other, "{own} {other}");
        });
    }
}
