//! Which versions of an extension there are, and which of them invocations get.
//!
//! An extension has one current version. It may have a canary, which gets a share of the invocations that name
//! no version, and others that are kept, to be invoked by number or to go back to. Every installation says
//! with a [`Placement`] what becomes of the new version; [`VersionState`] is how things are afterwards.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// Who gets a version that is installed. The first version of an extension is current in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// It becomes current, unless the current one is pinned.
    #[default]
    Current,
    /// Whoever names it; the current one is pinned.
    Pinned,
    /// This many of 100 invocations that name no version: 1 to 99.
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

/// Which versions invocations get that name none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VersionState {
    /// The current version.
    pub current: u32,
    /// The canary; 0 when there is none.
    pub canary: u32,
    /// How many of 100 invocations the canary gets; 0 when there is none.
    pub canary_percent: u8,
    /// Whether the current version stays current when others are installed.
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

/// A version that is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VersionEntry {
    /// Its number.
    pub version: u32,
    /// When it was installed, in milliseconds since the Unix epoch.
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
