//! The sum of all workers' counts of a version.

use guest::cycles;

use super::histogram::{STEPS, middle_of};
use super::{ENDS, Spent};

/// The sum of all workers' counts of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredSummary {
    /// Invocations by outcome, in the order of [`ENDS`].
    pub ends: [u64; ENDS.len()],
    /// Their usage.
    pub spent: Spent,
    /// Timed invocations.
    pub timed: u64,
    /// The cycles of the timed ones.
    pub timed_cycles: u64,
    /// The cycles of all calls up to the last timed one, each estimated as the next timed one. Only grows.
    pub cycles_estimated: u64,
    pub(super) times: Vec<u64>,
}

impl Default for MeasuredSummary {
    fn default() -> Self {
        Self {
            ends: [0; ENDS.len()],
            spent: Spent::default(),
            timed: 0,
            timed_cycles: 0,
            cycles_estimated: 0,
            times: vec![0; STEPS],
        }
    }
}

impl MeasuredSummary {
    /// Returns the number of ended invocations.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.ends.iter().sum()
    }

    /// Returns the number of invocations that did not end with success.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.ends[1..].iter().sum()
    }

    /// Returns the processor time of all invocations, in nanoseconds, estimated from the timed ones.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let cycles = u128::from(self.timed_cycles) * u128::from(self.calls());
        cycles::to_ns((cycles / u128::from(self.timed.max(1))).try_into().unwrap_or(u64::MAX))
    }

    /// Returns the processor time of the timed invocations, in nanoseconds.
    #[must_use]
    pub fn timed_ns(&self) -> u64 {
        cycles::to_ns(self.timed_cycles)
    }

    /// Returns the time that `permille` of 1000 invocations do not exceed, in nanoseconds; 0 if none was timed.
    #[must_use]
    pub fn quantile_ns(&self, permille: u64) -> u64 {
        let timed: u64 = self.times.iter().sum();
        let rank = (timed * permille).div_ceil(1000).max(1);
        let mut below = 0;
        let reached = |count: &u64| {
            below += count;
            below >= rank
        };
        self.times.iter().position(reached).map_or(0, |step| cycles::to_ns(middle_of(step)))
    }
}
