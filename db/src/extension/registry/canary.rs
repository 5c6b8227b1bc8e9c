//! Detection of failing canaries: a canary's errors against those of the current version, since it became the canary.
//!
//! Any end except success is an error. Both versions are measured alike, so errors that callers provoke affect both. A
//! canary fails when it exceeds the current version's rate by a relevant margin and by more than chance explains.

use crate::extension::version_metrics::VersionMetrics;
use crate::limits::{CANARY_CALLS_MIN, CANARY_ERRORS_DEVIATIONS, CANARY_ERRORS_MARGIN_PERCENT};

/// A number of calls and of errors among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Ended calls.
    pub calls: u64,
    /// Calls that did not end with success.
    pub errors: u64,
}

/// The counts at the time when a version became the canary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    pub(super) canary: u32,
    pub(super) current: u32,
    pub(super) of_canary: Errors,
    pub(super) of_current: Errors,
}

/// A failing canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failing {
    /// The version of the canary.
    pub version: u32,
    /// The canary's counts.
    pub canary: Errors,
    /// The current version's counts during the same time.
    pub current: Errors,
}

impl Errors {
    pub(super) fn of(metrics: &VersionMetrics) -> Self {
        let tally = metrics.tally();
        Self { calls: tally.calls(), errors: tally.errors() }
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, errors: self.errors - before.errors }
    }
}

/// Returns whether the canary's errors exceed, by margin and by chance, those expected from the current version.
pub(super) fn is_worse(canary: Errors, current: Errors) -> bool {
    if canary.calls < CANARY_CALLS_MIN {
        return false;
    }
    let product = u128::from(current.errors) * u128::from(canary.calls);
    let expected = (product / u128::from(current.calls.max(1))) as u64;
    let excess = canary.errors.saturating_sub(expected);
    // Counts scatter by the square root of what is expected of them.
    let by_chance = CANARY_ERRORS_DEVIATIONS * CANARY_ERRORS_DEVIATIONS * expected.max(1);
    excess * 100 > canary.calls * CANARY_ERRORS_MARGIN_PERCENT
        && u128::from(excess) * u128::from(excess) > u128::from(by_chance)
}

#[cfg(test)]
mod tests {
    use super::{Errors, is_worse};

    fn worse(canary: (u64, u64), current: (u64, u64)) -> bool {
        let errors = |(calls, errors)| Errors { calls, errors };
        is_worse(errors(canary), errors(current))
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
}
