//! Hashes that reads missed recently, to detect hashes that are requested often.
//!
//! A sample, not a count: each hash has one place, which it shares with others that may overwrite it. A frequently
//! requested hash returns before that happens. There are no locks; a race of two threads on one place costs one hash
//! its mark, and nothing else.

use crate::limits::MISSED_HASHES_KEPT;
use crate::sync::{AtomicU64, Ordering};

/// A sample of the hashes that reads missed recently.
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
    use super::Missed;

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
