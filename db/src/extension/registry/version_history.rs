//! An extension in all its versions: the details of each, and which ones invocations get.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::canary::{Baseline, Errors, Failing, is_worse};
use crate::extension::Extension;
use crate::extension::active_versions::ActiveVersions;

/// A version of an extension with its details.
#[derive(Debug)]
pub struct Installed {
    /// The extension as workers get it.
    pub extension: Arc<Extension>,
    /// Its functions as the builder describes them, including doc comments.
    pub functions: Vec<builder::Function>,
    /// The hash over source and SDK, in hex.
    pub content_hash: String,
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
