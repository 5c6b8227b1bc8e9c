//! Segments that the cleaner may choose, the best first.
//!
//! Looking at all segments takes milliseconds in a large memory, so a choice looks at a part of them
//! (`cleaner/choice.rs`). The segments that are not chosen are kept for the next choice, which weighs them again:
//! their dead bytes grow and they get older. Sampling with such a memory comes near to the best of all (Mitzenmacher,
//! Prabhakar and Shah, "Load balancing with memory", 2002).

use crate::limits::CLEAN_CANDIDATES_MAX;
use crate::segment::SegmentId;

/// A bounded list of candidates with their scores.
pub(crate) struct Candidates {
    weighed: [(f64, SegmentId); CLEAN_CANDIDATES_MAX],
    count: usize,
}

impl Candidates {
    pub(crate) fn new() -> Candidates {
        Candidates { weighed: [(0.0, SegmentId(0)); CLEAN_CANDIDATES_MAX], count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Inserts a segment by its score, if it is already listed or good enough.
    pub(crate) fn offer(&mut self, score: f64, segment: SegmentId) {
        let held = &mut self.weighed[..self.count];
        if held.len() == CLEAN_CANDIDATES_MAX && held.last().is_some_and(|&(worst, _)| score <= worst) {
            return;
        }
        if let Some(again) = held.iter().position(|&(_, other)| other == segment) {
            held[again..].rotate_left(1);
            self.count -= 1;
        }
        let place = self.weighed[..self.count].partition_point(|&(better, _)| better >= score);
        if place < CLEAN_CANDIDATES_MAX {
            self.count = (self.count + 1).min(CLEAN_CANDIDATES_MAX);
            self.weighed[place..self.count].rotate_right(1);
            self.weighed[place] = (score, segment);
        }
    }

    /// Removes and returns the best.
    pub(crate) fn take_best(&mut self) -> Option<SegmentId> {
        let &(_, best) = self.weighed[..self.count].first()?;
        self.weighed[..self.count].rotate_left(1);
        self.count -= 1;
        Some(best)
    }

    /// Removes all, to be weighed again.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = SegmentId> + use<> {
        let count = std::mem::take(&mut self.count);
        self.weighed.into_iter().take(count).map(|(_, segment)| segment)
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::Candidates;
    use crate::limits::CLEAN_CANDIDATES_MAX;
    use crate::segment::SegmentId;

    #[test]
    fn the_best_are_kept_and_each_once() {
        let mut candidates = Candidates::new();
        for round in 0..2 {
            for number in 0..100 {
                candidates.offer(f64::from(number * 37 % 100 + round), SegmentId(number));
            }
        }
        let mut taken: Vec<_> =
            std::iter::from_fn(|| candidates.take_best()).map(|id| id.0 * 37 % 100).collect();
        assert_eq!(taken.len(), CLEAN_CANDIDATES_MAX);
        assert!(taken.is_sorted_by(|a, b| a > b) && taken[0] == 99, "{taken:?}");
        taken.dedup();
        assert_eq!(taken.len(), CLEAN_CANDIDATES_MAX, "each once");
        assert!(candidates.is_empty());
    }
}
