//! An extension in all its versions: what is known of each, and which of them invocations get.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::canary::{Baseline, Errors, Failing, is_worse};
use crate::extension::Extension;
use crate::extension::active_versions::ActiveVersions;

/// A version of an extension with what is known about it.
#[derive(Debug)]
pub struct Installed {
    /// What workers get.
    pub extension: Arc<Extension>,
    /// Its functions as the builder describes them, doc comments included.
    pub functions: Vec<builder::Function>,
    /// Hash over source and SDK, in hex.
    pub content_hash: String,
    /// Bytes of the artefact.
    pub artefact_bytes: u64,
    /// Bytes of the source.
    pub source_bytes: u64,
    /// When it was installed, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// How long checking and compiling took; 0 when the same source had been built before.
    pub compile_ms: u64,
    /// What the compiler warned of.
    pub warnings: String,
}

/// Which versions are kept, and which of them invocations get that name none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What they get.
    pub current: u32,
    /// What a part of them gets instead, with its percentage.
    pub canary: Option<(u32, u8)>,
    /// All versions that are kept.
    pub kept: Vec<u32>,
}

/// An extension in all its versions.
#[derive(Clone, Debug)]
pub struct VersionHistory {
    /// The versions that are loaded, by number.
    pub versions: BTreeMap<u32, Arc<Installed>>,
    /// Which of them invocations get.
    pub choice: Choice,
    pub(super) baseline: Option<Baseline>,
}

impl VersionHistory {
    /// The current version, if it is loaded.
    #[must_use]
    pub fn current(&self) -> Option<&Arc<Installed>> {
        self.versions.get(&self.choice.current)
    }

    /// What workers are to know.
    pub(super) fn lineup(&self) -> Option<ActiveVersions> {
        self.lineup_of(|version| Some(Arc::clone(&self.versions.get(&version)?.extension)))
    }

    /// What workers are to know, with the versions that `loaded` gives. A canary that is not loaded is none.
    pub(super) fn lineup_of(&self, loaded: impl Fn(u32) -> Option<Arc<Extension>>) -> Option<ActiveVersions> {
        let Choice { current, canary, .. } = self.choice;
        let named =
            |version: &u32| *version != current && canary.is_none_or(|(canary, _)| canary != *version);
        let others = self.versions.keys().copied().filter(named).filter_map(&loaded).collect();
        let canary = canary.and_then(|(version, percent)| Some((loaded(version)?, percent)));
        Some(ActiveVersions::new(loaded(current)?, canary, others))
    }

    /// Begins to compare when there is another canary, or another current version, than before.
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

    /// The canary, if it fails.
    pub(super) fn failing(&self) -> Option<Failing> {
        let baseline = self.baseline?;
        let canary = self.errors_of(baseline.canary)?.since(baseline.of_canary);
        let current = self.errors_of(baseline.current)?.since(baseline.of_current);
        is_worse(canary, current).then_some(Failing { version: baseline.canary, canary, current })
    }

    fn errors_of(&self, version: u32) -> Option<Errors> {
        self.versions.get(&version).map(|installed| Errors::of(&installed.extension.measures))
    }
}
