//! An extension in all its versions: the details of each, which ones invocations get, and since when there is a canary.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::canary::{Failing, Worse};
use crate::extension::version_metrics::MeasuredSummary;
use crate::extension::{ActiveVersions, Extension};
use crate::limits::CANARY_WARM_CALLS;

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
        let is_known = |known: &Baseline| (known.canary, known.current) == (canary, current);
        if self.baseline.as_ref().is_some_and(is_known) {
            return;
        }
        let measured = |version| self.measured(version).unwrap_or_default();
        let (of_canary, of_current) = (measured(canary), measured(current));
        let (warm, is_suspect) = (None, false);
        self.baseline = Some(Baseline { canary, current, of_canary, of_current, warm, is_suspect });
    }

    /// Checks the canary; returns it if it fails: by its errors, or in two checks in a row by its times.
    pub(super) fn check_canary(&mut self) -> Option<Failing> {
        let baseline = self.baseline.as_ref()?;
        let (version, known) = (baseline.canary, [&baseline.of_canary, &baseline.of_current]);
        let now = [self.measured(version)?, self.measured(baseline.current)?];
        let [canary, current] = [now[0].clone().since(known[0]), now[1].clone().since(known[1])];
        if let Some(worse) = Worse::by_errors(&canary, &current) {
            return Some(Failing { version, worse });
        }
        if baseline.warm.is_none() && canary.calls() >= CANARY_WARM_CALLS {
            let baseline = self.baseline.as_mut()?;
            baseline.warm = Some(now);
            return None;
        }
        let [warm, warm_current] = baseline.warm.as_ref()?;
        let [canary, current] = now;
        let worse = Worse::by_times(&canary.since(warm), &current.since(warm_current));
        let was_suspect = std::mem::replace(&mut self.baseline.as_mut()?.is_suspect, worse.is_some());
        worse.filter(|_| was_suspect).map(|worse| Failing { version, worse })
    }

    fn measured(&self, version: u32) -> Option<MeasuredSummary> {
        self.versions.get(&version).map(|installed| installed.extension.metrics.summary())
    }
}

/// The counts at the time when a version became the canary.
#[derive(Clone, Debug)]
pub(super) struct Baseline {
    canary: u32,
    current: u32,
    of_canary: MeasuredSummary,
    of_current: MeasuredSummary,
    /// The counts of both when the canary had been called often enough that caches and instances are as for the current version.
    warm: Option<[MeasuredSummary; 2]>,
    /// The last check found it too costly or too slow.
    is_suspect: bool,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::TenantId;

    use crate::extension::log::ExtensionLog;
    use crate::extension::native::Library;
    use crate::extension::{ActiveVersions, Extension};
    use crate::tenant::account::Account;

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
