//! The limits of a worker's time for its invocations, and the texts about reached limits.

use std::fmt::{self, Write};

use crate::extension::allowance::{Allowance, Exceeded, Limit};
use crate::limits::{
    HELD_BYTES_PER_WORKER, INVOCATION_CPU_US_MAX, INVOCATION_WALL_US_MAX, INVOCATION_YIELDS_MAX,
    PARKED_PER_WORKER_MAX, SLICE_US, WARM_BYTES_PER_WORKER,
};
use crate::metrics::Counter;
use crate::tenant::limit::TenantLimit;

/// Limits of a worker that replace those of the accounts, for benchmarks and tests; they may exceed what an account
/// accepts. The default equals that of [`crate::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitOverrides {
    /// Time that an invocation may run without a pause before it is parked, in microseconds.
    pub slice_us: u64,
    /// Its processor time, in microseconds.
    pub cpu_us: u64,
    /// Its maximum age, in microseconds.
    pub wall_us: u64,
    /// Its maximum number of yields.
    pub yields: u32,
    /// The maximum number of parked invocations on the worker.
    pub parked: usize,
    /// The bytes that waiting invocations may hold together.
    pub held_bytes: usize,
    /// The bytes that free slots may keep for later invocations.
    pub warm_bytes: usize,
}

impl Default for LimitOverrides {
    fn default() -> Self {
        Self {
            slice_us: SLICE_US,
            cpu_us: INVOCATION_CPU_US_MAX,
            wall_us: INVOCATION_WALL_US_MAX,
            yields: INVOCATION_YIELDS_MAX,
            parked: PARKED_PER_WORKER_MAX,
            held_bytes: HELD_BYTES_PER_WORKER,
            warm_bytes: WARM_BYTES_PER_WORKER,
        }
    }
}

impl LimitOverrides {
    /// Returns an allowance with its time limits replaced by these.
    pub(super) fn instead_of(&self, allowance: Allowance) -> Allowance {
        let Self { cpu_us, wall_us, .. } = *self;
        Allowance { cpu_us, wall_us, yields: u64::from(self.yields), ..allowance }
    }
}

/// The usage of an invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) cpu_us: u64,
    pub(super) wall_us: u64,
    pub(super) yields: u32,
    /// Number of times that it was parked.
    pub(super) slices: u32,
}

/// The limit that an invocation reached; if that ended it, also its usage of the worker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overdrawn {
    pub(super) exceeded: Exceeded,
    pub(super) usage: Option<Usage>,
}

/// Returns the time limit that this usage exceeds.
pub(super) fn verdict(allowance: &Allowance, usage: Usage) -> Option<Overdrawn> {
    let (limit, value, used) = if usage.cpu_us > allowance.cpu_us {
        (TenantLimit::InvocationCpuUs, allowance.cpu_us, usage.cpu_us)
    } else if usage.wall_us > allowance.wall_us {
        (TenantLimit::InvocationWallUs, allowance.wall_us, usage.wall_us)
    } else if u64::from(usage.yields) > allowance.yields {
        (TenantLimit::InvocationYields, allowance.yields, u64::from(usage.yields))
    } else {
        return None;
    };
    Some(Overdrawn { exceeded: Exceeded { limit: Limit::Tenant(limit), value, used }, usage: Some(usage) })
}

/// Returns the extra counter for invocations ended by this limit.
pub(super) const fn counter_of(limit: Limit) -> Option<Counter> {
    match limit {
        Limit::Tenant(TenantLimit::InvocationCpuUs) => Some(Counter::KilledCpu),
        Limit::Tenant(TenantLimit::InvocationWallUs) => Some(Counter::KilledWall),
        Limit::Tenant(TenantLimit::InvocationYields) => Some(Counter::KilledYields),
        Limit::Parked => Some(Counter::KilledParked),
        Limit::HeldBytes => Some(Counter::KilledHeld),
        _ => None,
    }
}

impl Overdrawn {
    /// Writes the text for the caller into `place`, cut to its length; returns the bytes written.
    pub(super) fn describe(&self, function: &str, extension: &str, version: u32, place: &mut [u8]) -> usize {
        let mut text = FixedText { place, bytes: 0 };
        // A text that is cut short is good enough, and the function's name is what might be too long.
        let _ = self.write(&mut text, function, extension, version);
        text.bytes
    }

    fn write(&self, text: &mut FixedText<'_>, function: &str, extension: &str, version: u32) -> fmt::Result {
        let Exceeded { limit, value, used } = self.exceeded;
        write!(text, "the limit {} = {value} was reached: ", limit.name())?;
        match limit {
            Limit::StackBytes => write!(text, "no stack left for another call")?,
            _ => write!(text, "{used} used or requested")?,
        }
        write!(text, " in {extension}@{version} {function}")?;
        let Some(Usage { cpu_us, wall_us, yields, slices }) = self.usage else { return Ok(()) };
        write!(
            text,
            " ({cpu_us} us on the processor, {wall_us} us since its first poll, {yields} yields, {slices} preemptions)"
        )
    }
}

/// A fixed buffer for a text.
struct FixedText<'p> {
    place: &'p mut [u8],
    bytes: usize,
}

impl Write for FixedText<'_> {
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
    use super::{LimitOverrides, Usage, verdict};
    use crate::extension::allowance::{Allowance, Limit};
    use crate::tenant::limit::TenantLimit;

    #[test]
    fn the_first_limit_that_was_reached_is_named_with_what_was_used() {
        let budget = LimitOverrides { cpu_us: 10, wall_us: 20, yields: 3, ..LimitOverrides::default() };
        let allowance = budget.instead_of(Allowance::NONE);
        let over = |usage| verdict(&allowance, usage);
        assert_eq!(over(Usage { cpu_us: 10, wall_us: 20, yields: 3, slices: 9 }), None);
        let used = over(Usage { cpu_us: 11, wall_us: 25, yields: 1, slices: 2 }).expect("over");
        assert_eq!(used.exceeded.limit, Limit::Tenant(TenantLimit::InvocationCpuUs));
        let mut place = [0; 512];
        let bytes = used.describe("spin", "loops", 3, &mut place);
        assert_eq!(
            str::from_utf8(&place[..bytes]).expect("text"),
            "the limit invocation_cpu_us = 10 was reached: 11 used or requested in loops@3 spin \
             (11 us on the processor, 25 us since its first poll, 1 yields, 2 preemptions)"
        );
        assert_eq!(used.describe("spin", "loops", 3, &mut place[..7]), 7);
        let old = over(Usage { wall_us: 21, ..Usage::default() }).expect("over");
        assert_eq!(old.exceeded.limit, Limit::Tenant(TenantLimit::InvocationWallUs));
        let restless = over(Usage { yields: 4, ..Usage::default() }).expect("over");
        assert_eq!(restless.exceeded.limit, Limit::Tenant(TenantLimit::InvocationYields));
    }
}
