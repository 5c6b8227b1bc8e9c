//! Whether a canary fails: it has clearly more errors than the current version, costs clearly more, or has clearly slower calls.
//!
//! Both versions are measured alike since one became the canary, and get the same calls, so errors that callers provoke and a slow
//! machine affect both. Any end except success is an error. Each difference must exceed a margin, and what chance explains. Costs are
//! compared from some calls on, when the canary has its instances and its place in the caches, and must differ in two looks in a row.

use std::fmt;

use crate::extension::version_metrics::MeasuredSummary;
use crate::limits::{
    CANARY_CALLS_MIN, CANARY_COST_MARGIN_NS, CANARY_COST_MARGIN_PERCENT, CANARY_DEVIATIONS,
    CANARY_ERRORS_MARGIN_PERCENT, CANARY_SLOW_PERCENT, CANARY_TIMED_MIN,
};

/// A failing canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The version of the canary.
    pub version: u32,
    /// How it differs from the current version.
    pub worse: Worse,
}

/// How a canary is worse than the current version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worse {
    /// More calls end with an error: errors and calls of the canary, then of the current version.
    Errors([u64; 2], [u64; 2]),
    /// A call needs more processor time: the medians in nanoseconds, of the canary and of the current version.
    Cost(u64, u64),
    /// More calls are slow: slow and timed calls of the canary, and the bound in nanoseconds: twice the current version's p99, and
    /// [`CANARY_COST_MARGIN_NS`].
    Slow([u64; 2], u64),
}

impl fmt::Display for Failing {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version;
        match self.worse {
            Worse::Errors([errors, calls], [of_current, all]) => write!(
                to,
                "canary {version} failed {errors} of {calls} calls, the current version {of_current} of {all}"
            ),
            Worse::Cost(ns, of_current) => write!(
                to,
                "canary {version} takes {ns} ns of processor time a call, the current version {of_current} (medians)"
            ),
            Worse::Slow([slow, timed], ns) => write!(
                to,
                "canary {version} took longer than {ns} ns in {slow} of {timed} timed calls, over twice the current version's p99"
            ),
        }
    }
}

impl Worse {
    /// Compares the errors counted during the same time.
    pub(super) fn by_errors(canary: &MeasuredSummary, current: &MeasuredSummary) -> Option<Self> {
        let errors = |measured: &MeasuredSummary| [measured.errors(), measured.calls()];
        let (of_canary, of_current) = (errors(canary), errors(current));
        let is_worse = canary.calls() >= CANARY_CALLS_MIN
            && exceeds(of_canary, of_current, CANARY_ERRORS_MARGIN_PERCENT);
        is_worse.then_some(Self::Errors(of_canary, of_current))
    }

    /// Compares the processor times measured during the same time.
    pub(super) fn by_times(canary: &MeasuredSummary, current: &MeasuredSummary) -> Option<Self> {
        if canary.timed.min(current.timed) < CANARY_TIMED_MIN {
            return None;
        }
        // A mean alone may come from a few calls, a median alone from a mixture of two functions.
        let costs =
            |measured: &MeasuredSummary| [measured.quantile_ns(500), measured.timed_ns() / measured.timed];
        let is_above = |(ns, of_current): (u64, u64)| {
            ns > of_current + of_current * CANARY_COST_MARGIN_PERCENT / 100 + CANARY_COST_MARGIN_NS
        };
        let ([median, mean], [of_current, mean_of_current]) = (costs(canary), costs(current));
        if is_above((median, of_current)) && is_above((mean, mean_of_current)) {
            return Some(Self::Cost(median, of_current));
        }
        let limit_ns = 2 * current.quantile_ns(990) + CANARY_COST_MARGIN_NS;
        let slow = [canary.slower_than(limit_ns), canary.timed];
        exceeds(
            slow,
            [current.slower_than(limit_ns).max(current.timed / 100), current.timed],
            CANARY_SLOW_PERCENT,
        )
        .then_some(Self::Slow(slow, limit_ns))
    }
}

/// Returns whether a canary's part of its calls exceeds, by so many per cent of them and by chance, that of the current version.
fn exceeds([of_canary, calls]: [u64; 2], [of_current, all]: [u64; 2], margin_percent: u64) -> bool {
    let product = u128::from(of_current) * u128::from(calls);
    let expected = (product / u128::from(all.max(1))) as u64;
    let excess = of_canary.saturating_sub(expected);
    // Counts scatter by the square root of what is expected of them.
    let by_chance = CANARY_DEVIATIONS * CANARY_DEVIATIONS * expected.max(1);
    excess * 100 > calls * margin_percent && u128::from(excess) * u128::from(excess) > u128::from(by_chance)
}

#[cfg(test)]
mod tests {
    use wire::Status;

    use super::{Worse, exceeds};
    use crate::extension::version_metrics::{MeasuredSummary, Spent, VersionMetrics};
    use crate::limits::{CANARY_CALLS_MIN, CANARY_ERRORS_MARGIN_PERCENT, CANARY_TIMED_MIN};

    fn worse((calls, errors): (u64, u64), (all, of_current): (u64, u64)) -> bool {
        calls >= CANARY_CALLS_MIN && exceeds([errors, calls], [of_current, all], CANARY_ERRORS_MARGIN_PERCENT)
    }

    #[test]
    fn errors_are_counted_by_how_calls_end() {
        let measured = |errors| {
            let metrics = VersionMetrics::new();
            for call in 0..1_000 {
                let status = if call < errors { Status::ExtensionPanicked } else { Status::Ok };
                metrics.ended(0, status, None, &Spent::default());
            }
            metrics.summary()
        };
        let failing = Worse::by_errors(&measured(300), &measured(1));
        assert_eq!(failing, Some(Worse::Errors([300, 1_000], [1, 1_000])));
        assert_eq!(Worse::by_errors(&measured(30), &measured(1)), None);
    }

    #[test]
    fn a_canary_fails_when_it_is_clearly_worse() {
        assert!(worse((200, 200), (1_800, 0)));
        assert!(worse((200, 11), (1_800, 0)), "over the margin where nothing failed");
        assert!(worse((1_000, 600), (9_000, 4_500)));
        assert!(worse((u64::MAX / 200, u64::MAX / 400), (9_000, 0)), "no count is too large");
        assert!(worse((200, 20), (0, 0)), "nobody got the current version");
    }

    #[test]
    fn chance_and_few_calls_do_not_end_a_canary() {
        assert!(!worse((199, 199), (1_800, 0)), "too few calls");
        assert!(!worse((200, 10), (1_800, 0)), "within the margin");
        assert!(!worse((200, 115), (1_800, 900)), "chance explains it");
        assert!(!worse((10_000, 5_000), (90_000, 45_000)));
        assert!(!worse((10_000, 10), (90_000, 90_000)), "it is better");
    }

    /// What is measured of so many timed calls, of which each tenth takes `slow` cycles and the others `usual`.
    fn timed(count: u64, usual: u64, slow: u64) -> MeasuredSummary {
        let metrics = VersionMetrics::new();
        for call in 0..count {
            let cycles = if call % 10 == 0 { slow } else { usual };
            metrics.ended(0, Status::Ok, Some(cycles), &Spent::default());
        }
        metrics.summary()
    }

    #[test]
    fn a_canary_that_costs_more_or_is_slower_at_times_fails() {
        let usual = timed(1_000, 10_000, 20_000);
        let of = |canary: &MeasuredSummary| Worse::by_times(canary, &usual);
        assert!(matches!(of(&timed(1_000, 30_000, 60_000)), Some(Worse::Cost(..))));
        assert!(matches!(of(&timed(1_000, 10_000, 100_000)), Some(Worse::Slow(..))));
        for (name, canary) in [
            ("it is as good", timed(1_000, 10_000, 20_000)),
            ("it costs a little more", timed(1_000, 12_000, 24_000)),
            ("its slow calls are a little slower", timed(1_000, 10_000, 30_000)),
            ("it costs less", timed(1_000, 2_000, 4_000)),
            ("too few were timed", timed(CANARY_TIMED_MIN - 1, 90_000, 90_000)),
        ] {
            assert_eq!(of(&canary), None, "{name}");
        }
        assert_eq!(
            Worse::by_times(&timed(1_000, 1_000, 900), &timed(1_000, 100, 200)),
            None,
            "no more than half a microsecond"
        );
    }

    #[test]
    fn a_mixture_of_cheap_and_costly_functions_is_not_judged_by_its_median() {
        let mixed = |costly: u64| {
            let metrics = VersionMetrics::new();
            for call in 0..1_000 {
                let cycles = if call % 100 < costly { 100_000 } else { 1_000 };
                metrics.ended(0, Status::Ok, Some(cycles), &Spent::default());
            }
            metrics.summary()
        };
        assert_eq!(Worse::by_times(&mixed(52), &mixed(48)), None);
    }
}
