//! The kept versions of an extension, and those that invocations get: the rules.
//!
//! ```text
//!   install            ─▶ current         (pinned: kept alone; a canary that ran ends)
//!   install, pinned    ─▶ kept alone, and the current one is pinned
//!   install, canary    ─▶ canary ─ promote ─▶ current
//!                                ─ rollback ─▶ kept alone
//! ```
//! One version is current at any time. The versions that invocations may get without naming them, the current one and
//! the canary, are never removed. Plain values: no disk, no clock.

use std::fmt;

use control::Placement;
use serde::{Deserialize, Serialize};

use crate::limits::EXTENSION_VERSIONS_KEPT_MAX;

/// The state of an extension's versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionState {
    /// The version for invocations that name none.
    pub current: u32,
    /// The version for a percentage of them, with that percentage.
    #[serde(with = "canary")]
    pub canary: Option<(u32, u8)>,
    /// Whether the current version stays current when others are installed.
    #[serde(default)]
    pub pinned: bool,
    /// The kept versions, in order.
    pub kept: Vec<u32>,
}

/// The canary of a row: an object with its version and its percentage, or null.
mod canary {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Canary {
        version: u32,
        percent: u8,
    }

    pub(super) fn serialize<S: Serializer>(
        canary: &Option<(u32, u8)>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        canary.map(|(version, percent)| Canary { version, percent }).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<(u32, u8)>, D::Error> {
        let canary = Option::<Canary>::deserialize(deserializer)?;
        Ok(canary.map(|canary| (canary.version, canary.percent)))
    }
}

/// The reason why a change of the state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionStateError {
    /// This version is not kept.
    NoSuchVersion(u32),
    /// No version before the current one is kept.
    NothingBefore(u32),
    /// There is no canary.
    NoCanary,
    /// Invocations get this version, so it cannot be removed.
    InUse(u32),
}

impl fmt::Display for VersionStateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchVersion(version) => write!(out, "version {version} is not kept"),
            Self::NothingBefore(current) => write!(out, "no version before {current} is kept"),
            Self::NoCanary => out.write_str("the extension has no canary"),
            Self::InUse(version) => {
                write!(out, "invocations get version {version}: roll back or promote before it is removed")
            }
        }
    }
}

impl std::error::Error for VersionStateError {}

impl VersionState {
    /// Creates the state of a first installation: no other version can be current.
    #[must_use]
    pub fn first(version: u32, placement: Placement) -> Self {
        let pinned = placement == Placement::Pinned;
        Self { current: version, canary: None, pinned, kept: vec![version] }
    }

    /// Adds a version newer than all others; returns the versions that are no longer kept.
    #[must_use]
    pub fn install(&mut self, version: u32, placement: Placement) -> Vec<u32> {
        debug_assert!(self.kept.last().is_none_or(|last| *last < version), "versions only grow");
        self.kept.push(version);
        match placement {
            Placement::Current if self.pinned => {}
            Placement::Current => (self.current, self.canary) = (version, None),
            Placement::Pinned => self.pinned = true,
            Placement::Canary(percent) => self.canary = Some((version, percent)),
        }
        let mut surplus = self.kept.len().saturating_sub(EXTENSION_VERSIONS_KEPT_MAX);
        let (current, canary) = (self.current, self.canary);
        let goes = |kept: &mut u32| {
            // The pinned version may be the oldest one, and the new version must be kept.
            let needed =
                *kept == current || *kept == version || canary.is_some_and(|canary| canary.0 == *kept);
            let goes = surplus > 0 && !needed;
            surplus -= usize::from(goes);
            goes
        };
        let gone = self.kept.extract_if(.., goes).collect();
        debug_assert!(self.keeps_what_is_invoked(), "an installation removes what is invoked");
        gone
    }

    /// Returns whether the versions that invocations get without naming them are kept.
    fn keeps_what_is_invoked(&self) -> bool {
        let mut invoked = self.canary.iter().map(|canary| canary.0).chain([self.current]);
        invoked.all(|version| self.kept.contains(&version))
    }

    /// Makes a version current; 0 ends the canary or, without one, selects the version before the current one.
    ///
    /// # Errors
    /// `NoSuchVersion`, `NothingBefore`.
    pub fn roll_back(&mut self, to: u32) -> Result<(), VersionStateError> {
        if to != 0 {
            self.current = self.known(to)?;
        } else if self.canary.is_none() {
            let before = self.kept.iter().rev().find(|kept| **kept < self.current);
            self.current = *before.ok_or(VersionStateError::NothingBefore(self.current))?;
        }
        self.canary = None;
        Ok(())
    }

    /// Makes a version current and pins it; 0 lets the next installation become current.
    ///
    /// # Errors
    /// `NoSuchVersion`.
    pub fn pin(&mut self, version: u32) -> Result<(), VersionStateError> {
        if version != 0 {
            (self.current, self.canary) = (self.known(version)?, None);
        }
        self.pinned = version != 0;
        Ok(())
    }

    /// Makes the canary current and removes a pin.
    ///
    /// # Errors
    /// `NoCanary`.
    pub fn promote(&mut self) -> Result<(), VersionStateError> {
        let (canary, _) = self.canary.take().ok_or(VersionStateError::NoCanary)?;
        (self.current, self.pinned) = (canary, false);
        Ok(())
    }

    /// Removes a version.
    ///
    /// # Errors
    /// `NoSuchVersion`, `InUse`.
    pub fn remove(&mut self, version: u32) -> Result<(), VersionStateError> {
        let version = self.known(version)?;
        if version == self.current || self.canary.is_some_and(|canary| canary.0 == version) {
            return Err(VersionStateError::InUse(version));
        }
        self.kept.retain(|kept| *kept != version);
        debug_assert!(self.keeps_what_is_invoked(), "a removal removes what is invoked");
        Ok(())
    }

    fn known(&self, version: u32) -> Result<u32, VersionStateError> {
        if self.kept.contains(&version) {
            Ok(version)
        } else {
            Err(VersionStateError::NoSuchVersion(version))
        }
    }
}

/// Converts the state to its form for clients.
impl From<&VersionState> for control::VersionState {
    fn from(state: &VersionState) -> Self {
        let (canary, canary_percent) = state.canary.unwrap_or_default();
        Self { current: state.current, canary, canary_percent, pinned: state.pinned }
    }
}

#[cfg(test)]
mod tests {
    use control::Placement::{Canary, Current, Pinned};

    use super::{VersionState, VersionStateError};
    use crate::limits::EXTENSION_VERSIONS_KEPT_MAX;

    const NOTHING: [u32; 0] = [];

    fn of(versions: u32) -> VersionState {
        let mut state = VersionState::first(1, Current);
        for version in 2..=versions {
            assert_eq!(state.install(version, Current), NOTHING);
        }
        state
    }

    #[test]
    fn a_new_version_is_current_unless_one_is_pinned() {
        let mut state = of(2);
        assert_eq!((state.current, state.kept.as_slice()), (2, &[1, 2][..]));
        state.pin(1).expect("kept");
        assert_eq!(state.install(3, Current), NOTHING);
        assert_eq!(state.current, 1);
        state.pin(0).expect("nothing to find");
        assert_eq!(state.install(4, Current), NOTHING);
        assert_eq!(state.current, 4);
        assert_eq!(state.install(5, Pinned), NOTHING);
        assert_eq!((state.current, state.pinned), (4, true));
        assert!(VersionState::first(1, Pinned).pinned && VersionState::first(1, Canary(9)).canary.is_none());
    }

    #[test]
    fn the_oldest_that_nobody_gets_goes_first() {
        let most = EXTENSION_VERSIONS_KEPT_MAX as u32;
        let mut state = of(most);
        state.pin(1).expect("kept");
        assert_eq!(state.install(most + 1, Canary(5)), [2]);
        assert_eq!(state.install(most + 2, Current), [3]);
        assert_eq!((state.current, state.canary), (1, Some((most + 1, 5))));
        assert_eq!(state.kept.len(), EXTENSION_VERSIONS_KEPT_MAX);
    }

    #[test]
    fn a_canary_is_promoted_or_goes_back() {
        let mut state = of(2);
        assert_eq!(state.promote(), Err(VersionStateError::NoCanary));
        assert_eq!(state.install(3, Canary(10)), NOTHING);
        assert_eq!((state.current, state.canary), (2, Some((3, 10))));
        assert_eq!(state.remove(3), Err(VersionStateError::InUse(3)));
        let mut promoted = state.clone();
        promoted.promote().expect("a canary");
        assert_eq!((promoted.current, promoted.canary), (3, None));
        state.roll_back(0).expect("a canary");
        assert_eq!((state.current, state.canary), (2, None));
    }

    #[test]
    fn going_back_ends_at_the_oldest() {
        let mut state = of(3);
        state.remove(2).expect("kept, and nobody gets it");
        state.roll_back(0).expect("1 is kept");
        assert_eq!(state.current, 1);
        assert_eq!(state.roll_back(0), Err(VersionStateError::NothingBefore(1)));
        assert_eq!(state.roll_back(2), Err(VersionStateError::NoSuchVersion(2)));
        state.roll_back(3).expect("forward is a way as well");
        assert_eq!(state.current, 3);
        assert_eq!(state.remove(3), Err(VersionStateError::InUse(3)));
    }
}
