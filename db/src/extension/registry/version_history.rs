//! An extension in all its versions: the details of each, which ones invocations get, and whether the canary fails.
//!
//! A canary's errors are compared with those of the current version, since it became the canary. Any end except success
//! is an error. Both versions are measured alike, so errors that callers provoke affect both. A canary fails when it
//! exceeds the current version's rate by a relevant margin and by more than chance explains.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::extension::version_metrics::VersionMetrics;
use crate::extension::{ActiveVersions, Extension};
use crate::limits::{CANARY_CALLS_MIN, CANARY_ERRORS_DEVIATIONS, CANARY_ERRORS_MARGIN_PERCENT};

/// A version of an extension with its details.
#[derive(Debug)]
pub struct Installed {
    /// The extension as workers get it.
    pub extension: Arc<Extension>,
    /// Its functions as the builder describes them, including doc comments.
    pub functions: Vec<builder::Function>,
    /// The hash over source and SDK, in hex.
    pub content_hash: String,
    /// The module in WebAssembly's own form, if there is a module.
    pub portable: Option<builder::ModuleFile>,
    /// Bytes of the artefact.
    pub artefact_bytes: u64,
    /// Bytes of the source.
    pub source_bytes: u64,
    /// The time of installation, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// The duration of checking and compiling; 0 if the same source had been built before.
    pub compile_ms: u64,
    /// The compiler's warnings.
    pub warnings: String,
}

/// The kept versions, and those for invocations that name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The version for most of these invocations.
    pub current: u32,
    /// The version for a percentage of them, with that percentage.
    pub canary: Option<(u32, u8)>,
    /// All versions that are kept.
    pub kept: Vec<u32>,
}

/// An extension in all its versions.
#[derive(Clone, Debug)]
pub struct VersionHistory {
    /// The loaded versions, by number.
    pub versions: BTreeMap<u32, Arc<Installed>>,
    /// The versions that invocations get.
    pub choice: Choice,
    pub(super) baseline: Option<Baseline>,
}

impl VersionHistory {
    /// Returns the current version, if it is loaded.
    #[must_use]
    pub fn current(&self) -> Option<&Arc<Installed>> {
        self.versions.get(&self.choice.current)
    }

    /// Returns the active versions for the workers.
    pub(super) fn active(&self) -> Option<ActiveVersions> {
        self.active_of(|version| Some(Arc::clone(&self.versions.get(&version)?.extension)))
    }

    /// Returns the active versions for the workers, with the versions that `loaded` returns. A canary that is not
    /// loaded is left out.
    pub(super) fn active_of(&self, loaded: impl Fn(u32) -> Option<Arc<Extension>>) -> Option<ActiveVersions> {
        let Choice { current, canary, .. } = self.choice;
        let named =
            |version: &u32| *version != current && canary.is_none_or(|(canary, _)| canary != *version);
        let others = self.versions.keys().copied().filter(named).filter_map(&loaded).collect();
        let canary = canary.and_then(|(version, percent)| Some((loaded(version)?, percent)));
        Some(ActiveVersions::new(loaded(current)?, canary, others))
    }

    /// Starts the comparison when the canary or the current version has changed.
    pub(super) fn compare_from_now(&mut self) {
        let current = self.choice.current;
        let Some((canary, _)) = self.choice.canary else {
            self.baseline = None;
            return;
        };
        if self.baseline.is_some_and(|known| (known.canary, known.current) == (canary, current)) {
            return;
        }
        let errors_of = |version| self.errors_of(version).unwrap_or_default();
        let (of_canary, of_current) = (errors_of(canary), errors_of(current));
        self.baseline = Some(Baseline { canary, current, of_canary, of_current });
    }

    /// Returns the canary, if it fails.
    pub(super) fn failing(&self) -> Option<Failing> {
        let baseline = self.baseline?;
        let canary = self.errors_of(baseline.canary)?.since(baseline.of_canary);
        let current = self.errors_of(baseline.current)?.since(baseline.of_current);
        is_worse(canary, current).then_some(Failing { version: baseline.canary, canary, current })
    }

    fn errors_of(&self, version: u32) -> Option<Errors> {
        self.versions.get(&version).map(|installed| Errors::of(&installed.extension.metrics))
    }
}

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
    canary: u32,
    current: u32,
    of_canary: Errors,
    of_current: Errors,
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
    fn of(metrics: &VersionMetrics) -> Self {
        let summary = metrics.summary();
        Self { calls: summary.calls(), errors: summary.errors() }
    }

    fn since(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, errors: self.errors - before.errors }
    }
}

/// Returns whether the canary's errors exceed, by margin and by chance, those expected from the current version.
fn is_worse(canary: Errors, current: Errors) -> bool {
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
    use std::sync::Arc;

    use wire::TenantId;

    use super::{Errors, is_worse};
    use crate::extension::log::ExtensionLog;
    use crate::extension::native::Library;
    use crate::extension::{ActiveVersions, Extension};
    use crate::tenant::account::Account;

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

    fn version(number: u32) -> Arc<Extension> {
        let library = Arc::new(Library::of(Vec::new()));
        let log = Arc::new(ExtensionLog::new());
        Arc::new(Extension::new(7, Arc::new(Account::new(TenantId(1))), "tao", number, library, log))
    }

    #[test]
    fn a_version_that_is_named_is_what_runs() {
        let active = ActiveVersions::new(version(3), Some((version(4), 99)), vec![version(1)]);
        for number in [1, 3, 4] {
            assert_eq!(active.choose(number, 1, 1).map(|found| found.version), Some(number));
        }
        assert!(active.choose(2, 1, 1).is_none());
        assert_eq!(ActiveVersions::of(version(9)).choose(0, 1, 1).map(|found| found.version), Some(9));
    }

    #[test]
    fn a_canary_gets_its_share_and_copies_of_a_request_stay_together() {
        for percent in [1, 10, 50, 99] {
            let active = ActiveVersions::new(version(1), Some((version(2), percent)), Vec::new());
            let goes =
                |client, sequence| active.choose(0, client, sequence).is_some_and(|found| found.version == 2);
            let shares = [
                (0..10_000).filter(|sequence| goes(5, *sequence)).count(),
                // Clients that make one call each, as the command does.
                (0..10_000).filter(|client| goes(*client, 1)).count(),
            ];
            for share in shares {
                let expected = usize::from(percent) * 100;
                assert!(share.abs_diff(expected) < 250, "{share} of 10,000 at {percent} percent");
            }
            assert!((0..1000).all(|sequence| goes(8, sequence) == goes(8, sequence)));
        }
    }
}
