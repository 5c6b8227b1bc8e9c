//! The versions of an extension, and the one that each invocation gets.
//!
//! An extension has one current version. It may have a canary, which gets a share of the invocations that name no
//! version, and other stored versions, for invocation by number or for a rollback. Every installation chooses the
//! role of the new version by a [`Placement`]; [`VersionState`] is the resulting state.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// The invocations that get a newly installed version. The first version of an extension is always current.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// The version becomes current, unless the current one is pinned.
    #[default]
    Current,
    /// Only invocations that name the version; the current one is pinned.
    Pinned,
    /// This percentage of the invocations that name no version: 1 to 99.
    Canary(u8),
}

impl Body for Placement {
    fn write(&self, writer: &mut BodyWriter) {
        let (kind, percent) = match self {
            Placement::Current => (0, 0),
            Placement::Pinned => (1, 0),
            Placement::Canary(percent) => (2, *percent),
        };
        writer.u8(kind);
        writer.u8(percent);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<Placement, Status> {
        match (reader.u8()?, reader.u8()?) {
            (0, 0) => Ok(Placement::Current),
            (1, 0) => Ok(Placement::Pinned),
            (2, percent @ 1..=99) => Ok(Placement::Canary(percent)),
            _ => Err(Status::Malformed),
        }
    }
}

/// The versions for invocations that name none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VersionState {
    /// The current version.
    pub current: u32,
    /// The canary; 0 if there is none.
    pub canary: u32,
    /// The canary's percentage of invocations; 0 if there is none.
    pub canary_percent: u8,
    /// Whether the current version stays current across installations.
    pub pinned: bool,
}

impl Body for VersionState {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.current);
        writer.u32(self.canary);
        writer.u8(self.canary_percent);
        writer.flag(self.pinned);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<VersionState, Status> {
        Ok(VersionState {
            current: reader.u32()?,
            canary: reader.u32()?,
            canary_percent: reader.u8()?,
            pinned: reader.flag()?,
        })
    }
}

/// A stored version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionEntry {
    /// Its number.
    pub version: u32,
    /// The time of its installation, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
}

impl Body for VersionEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.version);
        writer.u64(self.installed_ms);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<VersionEntry, Status> {
        Ok(VersionEntry { version: reader.u32()?, installed_ms: reader.u64()? })
    }
}
