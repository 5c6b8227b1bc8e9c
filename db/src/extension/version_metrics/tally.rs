//! What all workers counted of a version, added up.

use super::histogram::{STEPS, middle_of};
use super::{ENDS, Spent};
use crate::sched::cycles;

/// What all workers counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredSummary {
    /// Invocations by how they ended, as [`ENDS`] names it.
    pub ends: [u64; ENDS.len()],
    /// What they used.
    pub spent: Spent,
    /// Those that were timed.
    pub timed: u64,
    /// Cycles of those that were timed.
    pub timed_cycles: u64,
    /// Cycles of all up to the last that was timed, each like the next one that was. Only grows.
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
    /// Invocations that ended.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.ends.iter().sum()
    }

    /// Those that did not end well.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.ends[1..].iter().sum()
    }

    /// Time on the processor of all of them, in nanoseconds, as those that were timed let expect.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let cycles = u128::from(self.timed_cycles) * u128::from(self.calls());
        cycles::to_ns((cycles / u128::from(self.timed.max(1))).try_into().unwrap_or(u64::MAX))
    }

    /// Time on the processor of those that were timed, in nanoseconds.
    #[must_use]
    pub fn timed_ns(&self) -> u64 {
        cycles::to_ns(self.timed_cycles)
    }

    /// The time that so many of 1000 invocations do not exceed, in nanoseconds; 0 when none was timed.
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
