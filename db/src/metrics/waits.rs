//! The durations of requests' waits for objects in transit, and the number of waiting requests.
//!
//! A histogram of eight steps per doubling, in microseconds: a quantile is accurate within a sixteenth. Written by one
//! worker, read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use super::add_alone;

const STEPS_PER_DOUBLING: u64 = 8;
const STEP_BITS: u32 = STEPS_PER_DOUBLING.trailing_zeros();
/// The begin of the last step: 2^24 microseconds, 16 seconds.
const WAIT_US_MAX: u64 = 1 << 24;
const STEPS: usize = ((WAIT_US_MAX.trailing_zeros() - STEP_BITS + 1) as u64 * STEPS_PER_DOUBLING) as usize;

/// A histogram of waits, and the number of waiting requests.
#[derive(Debug)]
pub struct Waits {
    waiting: AtomicU64,
    steps: [AtomicU64; STEPS],
}

fn step_of(wait_us: u64) -> usize {
    let wait_us = wait_us.min(WAIT_US_MAX - 1);
    let shift = (u64::BITS - 1 - (wait_us | STEPS_PER_DOUBLING).leading_zeros()) - STEP_BITS;
    (u64::from(shift) * STEPS_PER_DOUBLING + (wait_us >> shift)) as usize
}

/// Returns the longest wait of a step.
fn last_of(step: usize) -> u64 {
    let shift = (step as u64 / STEPS_PER_DOUBLING).saturating_sub(1);
    let first = (step as u64 - shift * STEPS_PER_DOUBLING) << shift;
    first + ((1 << shift) - 1)
}

impl Waits {
    /// Creates an empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: AtomicU64::new(0), steps: [const { AtomicU64::new(0) }; STEPS] }
    }

    /// Adds a wait.
    pub fn note(&self, wait_us: u64) {
        add_alone(&self.steps[step_of(wait_us)], 1);
    }

    /// Sets the number of waiting requests.
    pub fn set_waiting(&self, waiting: u64) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Returns the number of waiting requests.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Returns the number of finished waits.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.steps.iter().map(|step| step.load(Ordering::Relaxed)).sum()
    }

    /// Returns the duration that this many thousandths of the waits do not exceed, in microseconds; 0 without waits.
    #[must_use]
    pub fn quantile_us(&self, thousandths: u64) -> u64 {
        let (mut left, count) = (0, self.count());
        let wanted = (count * thousandths).div_ceil(1000).max(1);
        let mut steps = self.steps.iter().enumerate();
        let step = steps.find(|(_, step)| {
            left += step.load(Ordering::Relaxed);
            left >= wanted
        });
        step.map_or(0, |(step, _)| last_of(step))
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{WAIT_US_MAX, Waits, last_of, step_of};

    #[test]
    fn each_wait_is_in_a_step_that_ends_close_behind_it() {
        let mut waits: Vec<u64> = (0..5_000).chain((0..24).map(|bits| (1 << bits) + 3)).collect();
        waits.sort_unstable();
        for wait_us in waits.into_iter().filter(|&wait_us| wait_us < WAIT_US_MAX) {
            let last = last_of(step_of(wait_us));
            assert!(last >= wait_us && (last - wait_us) * 8 <= wait_us, "{wait_us} in a step up to {last}");
            assert_eq!(step_of(last + 1), step_of(wait_us) + 1);
        }
        assert_eq!(step_of(u64::MAX), step_of(WAIT_US_MAX - 1));
    }

    #[test]
    fn quantiles_are_those_of_what_was_noted() {
        let waits = Waits::new();
        assert_eq!((waits.count(), waits.quantile_us(990)), (0, 0));
        (0..99).for_each(|_| waits.note(7));
        waits.note(1_000);
        assert_eq!((waits.count(), waits.quantile_us(500), waits.quantile_us(990)), (100, 7, 7));
        assert!((1_000..1_125).contains(&waits.quantile_us(1_000)));
    }
}
