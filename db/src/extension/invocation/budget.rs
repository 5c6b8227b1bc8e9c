//! What one invocation may use of its worker, and what is said of one that used more.

use std::fmt::{self, Write};

use crate::limits::{
    INVOCATION_CPU_US_MAX, INVOCATION_WALL_US_MAX, INVOCATION_YIELDS_MAX, PARKED_PER_WORKER_MAX, SLICE_US,
};
use crate::metrics::Counter;

/// Limits of each invocation of a worker. The default is that of [`crate::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What it may run in one piece before it is parked, in microseconds.
    pub slice_us: u64,
    /// What it may use of the processor, in microseconds.
    pub cpu_us: u64,
    /// How old it may get, in microseconds.
    pub wall_us: u64,
    /// How often it may yield.
    pub yields: u32,
    /// How many of the worker may be parked at a time.
    pub parked: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            slice_us: SLICE_US,
            cpu_us: INVOCATION_CPU_US_MAX,
            wall_us: INVOCATION_WALL_US_MAX,
            yields: INVOCATION_YIELDS_MAX,
            parked: PARKED_PER_WORKER_MAX,
        }
    }
}

/// The limit of a [`Budget`] that an invocation went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// `cpu_us`
    Cpu,
    /// `wall_us`
    Wall,
    /// `yields`
    Yields,
    /// `parked`
    Parked,
}

impl Limit {
    /// What a kill for this reason counts as, beside all kills.
    pub(super) const fn counter(self) -> Counter {
        match self {
            Self::Cpu => Counter::KilledCpu,
            Self::Wall => Counter::KilledWall,
            Self::Yields => Counter::KilledYields,
            Self::Parked => Counter::KilledParked,
        }
    }
}

/// What an invocation has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu_us: u64,
    pub(super) wall_us: u64,
    pub(super) yields: u32,
    /// How often it was parked.
    pub(super) slices: u32,
}

/// An invocation went over a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    pub(super) limit: Limit,
    pub(super) budget: Budget,
    pub(super) used: Usage,
}

impl Budget {
    /// The limit that an invocation with this usage went over.
    pub(super) fn verdict(&self, used: Usage) -> Option<Kill> {
        let limit = if used.cpu_us > self.cpu_us {
            Limit::Cpu
        } else if used.wall_us > self.wall_us {
            Limit::Wall
        } else if used.yields > self.yields {
            Limit::Yields
        } else {
            return None;
        };
        Some(Kill { limit, budget: *self, used })
    }
}

impl Kill {
    /// Writes the text for the caller into `place` as far as it has room; how many bytes it got.
    pub(super) fn describe(&self, function: &str, extension: &str, version: u32, place: &mut [u8]) -> usize {
        let mut text = Text { place, bytes: 0 };
        // A text that is cut short is good enough, and the function's name is what might be too long.
        let _ = self.write(&mut text, function, extension, version);
        text.bytes
    }

    fn write(&self, text: &mut Text<'_>, function: &str, extension: &str, version: u32) -> fmt::Result {
        let (budget, used) = (&self.budget, &self.used);
        match self.limit {
            Limit::Cpu => write!(text, "the limit of {} us on the processor", budget.cpu_us)?,
            Limit::Wall => write!(text, "the limit of {} us from start to end", budget.wall_us)?,
            Limit::Yields => write!(text, "the limit of {} yields", budget.yields)?,
            Limit::Parked => write!(text, "the limit of {} preempted invocations of a core", budget.parked)?,
        }
        write!(
            text,
            " was reached: {} us on the processor, {} us since its start, {} yields, {} preemptions, in {}@{} {}",
            used.cpu_us, used.wall_us, used.yields, used.slices, extension, version, function
        )
    }
}

/// A fixed place for a text.
struct Text<'p> {
    place: &'p mut [u8],
    bytes: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = &mut self.place[self.bytes..];
        let mut bytes = text.len().min(left.len());
        while !text.is_char_boundary(bytes) {
            bytes -= 1;
        }
        left[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
        self.bytes += bytes;
        if bytes == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Limit, Usage};

    #[test]
    fn the_first_limit_that_was_reached_is_named_with_what_was_used() {
        let budget = Budget { cpu_us: 10, wall_us: 20, yields: 3, ..Budget::default() };
        assert_eq!(budget.verdict(Usage { cpu_us: 10, wall_us: 20, yields: 3, slices: 9 }), None);
        let used = Usage { cpu_us: 11, wall_us: 25, yields: 1, slices: 2 };
        let kill = budget.verdict(used).expect("over");
        assert_eq!(kill.limit, Limit::Cpu);
        let mut place = [0; 512];
        let bytes = kill.describe("spin", "loops", 3, &mut place);
        assert_eq!(
            str::from_utf8(&place[..bytes]).expect("text"),
            "the limit of 10 us on the processor was reached: 11 us on the processor, 25 us since its start, \
             1 yields, 2 preemptions, in loops@3 spin"
        );
        assert_eq!(kill.describe("spin", "loops", 3, &mut place[..7]), 7);
        let old = Usage { wall_us: 21, ..Usage::default() };
        assert_eq!(budget.verdict(old).expect("over").limit, Limit::Wall);
        let restless = Usage { yields: 4, ..Usage::default() };
        assert_eq!(budget.verdict(restless).expect("over").limit, Limit::Yields);
    }
}
