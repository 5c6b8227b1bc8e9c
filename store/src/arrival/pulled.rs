//! Hashes that were pulled ahead of their partitions: their absent keys are known to be absent.
//!
//! ```text
//!   young [ .. h .. .. ]   written by one thread; when full, it becomes old, and the old one is forgotten
//!   old   [ .. .. g .. ]
//! ```
//! Two hash tables are read without locks, so that no reader waits for the one thread that writes. They remember at
//! least as many hashes as one table holds; a request that meets a forgotten hash queues it again.

use crate::limits::{PULLED_HASHES_KEPT, PULLED_SLOTS};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// The set of hashes that were pulled ahead recently.
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

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::Pulled;
    use crate::limits::PULLED_HASHES_KEPT;

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
}
