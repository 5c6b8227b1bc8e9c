//! Replies about tablets and migrations: the owner of each hash range, and the ranges in transit.
//!
//! Hashes are those of keys (docs/formats.md); a range includes its first and its last one.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// A hash range of a table with one owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletEntry {
    /// `owner/name` of the table.
    pub table: String,
    /// The table's number.
    pub id: u32,
    /// The first hash.
    pub first: u64,
    /// The last hash.
    pub last: u64,
    /// Number of the owning server.
    pub server: u32,
    /// The time at which its objects were lost, in milliseconds since the Unix epoch; 0 if they were not.
    pub emptied_ms: u64,
}

impl Body for TabletEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.text(&self.table);
        writer.u32(self.id);
        writer.u64(self.first);
        writer.u64(self.last);
        writer.u32(self.server);
        writer.u64(self.emptied_ms);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<TabletEntry, Status> {
        Ok(TabletEntry {
            table: reader.text()?.to_owned(),
            id: reader.u32()?,
            first: reader.u64()?,
            last: reader.u64()?,
            server: reader.u32()?,
            emptied_ms: reader.u64()?,
        })
    }
}

/// Stands for no mode.
const NO_MODE: u8 = u8::MAX;

/// The mode of a migration.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MigrationMode {
    /// The target owns the tablet first, and pulls.
    Rocksteady = 0,
    /// The source pauses until the target has the tablet: for comparison.
    StopAndCopy = 1,
    /// The target owns the tablet first, and pulls; clients read both servers for objects that may not have arrived.
    #[default]
    Cooperative = 2,
    /// The source sends everything while it serves, and pauses for the rest: for comparison.
    PreCopy = 3,
}

impl MigrationMode {
    const ALL: [MigrationMode; 4] = [Self::Rocksteady, Self::StopAndCopy, Self::Cooperative, Self::PreCopy];

    /// Returns the name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rocksteady => "rocksteady",
            Self::StopAndCopy => "stop-and-copy",
            Self::Cooperative => "cooperative",
            Self::PreCopy => "pre-copy",
        }
    }

    pub(crate) fn write(self, writer: &mut BodyWriter) {
        writer.u8(self as u8);
    }

    /// Writes an optional mode, where `None` leaves it to the table.
    pub(crate) fn write_or_none(mode: Option<MigrationMode>, writer: &mut BodyWriter) {
        writer.u8(mode.map_or(NO_MODE, |mode| mode as u8));
    }

    pub(crate) fn read_or_none(reader: &mut BodyReader<'_>) -> Result<Option<MigrationMode>, Status> {
        match reader.u8()? {
            NO_MODE => Ok(None),
            number => Self::ALL.get(usize::from(number)).copied().map(Some).ok_or(Status::Malformed),
        }
    }

    pub(crate) fn read(reader: &mut BodyReader<'_>) -> Result<MigrationMode, Status> {
        let number = reader.u8()?;
        Self::ALL.into_iter().find(|mode| *mode as u8 == number).ok_or(Status::Malformed)
    }
}

/// The phase of a migration, which determines the owner of the hashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MigrationPhase {
    /// The source owns the hashes.
    Preparing = 0,
    /// The target owns them; the source has the objects that have not arrived.
    Moving = 1,
    /// The source owns them; the target has the objects written since.
    Returning = 2,
    /// The target owns them; the source removes the rest.
    Finished = 3,
    /// The source owns them, as before.
    Ended = 4,
}

impl MigrationPhase {
    const ALL: [MigrationPhase; 5] =
        [Self::Preparing, Self::Moving, Self::Returning, Self::Finished, Self::Ended];

    /// Returns the phase as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preparing => "preparing",
            Self::Moving => "moving",
            Self::Returning => "returning",
            Self::Finished => "finished",
            Self::Ended => "ended",
        }
    }
}

/// A migration of a table's hashes from one server to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationEntry {
    /// Its number, never reused.
    pub id: u32,
    /// `owner/name` of the table.
    pub table: String,
    /// The first hash.
    pub first: u64,
    /// The last hash.
    pub last: u64,
    /// Number of the source server.
    pub source: u32,
    /// Number of the target server.
    pub target: u32,
    /// The mode.
    pub mode: MigrationMode,
    /// The phase.
    pub phase: MigrationPhase,
    /// Whether an abort was requested, so that they stay at the source.
    pub is_aborted: bool,
    /// The time of its beginning, in milliseconds since the Unix epoch.
    pub begun_ms: u64,
}

impl Body for MigrationEntry {
    fn write(&self, writer: &mut BodyWriter) {
        writer.u32(self.id);
        writer.text(&self.table);
        writer.u64(self.first);
        writer.u64(self.last);
        writer.u32(self.source);
        writer.u32(self.target);
        self.mode.write(writer);
        writer.u8(self.phase as u8);
        writer.flag(self.is_aborted);
        writer.u64(self.begun_ms);
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<MigrationEntry, Status> {
        Ok(MigrationEntry {
            id: reader.u32()?,
            table: reader.text()?.to_owned(),
            first: reader.u64()?,
            last: reader.u64()?,
            source: reader.u32()?,
            target: reader.u32()?,
            mode: MigrationMode::read(reader)?,
            phase: {
                let number = usize::from(reader.u8()?);
                MigrationPhase::ALL.get(number).copied().ok_or(Status::Malformed)?
            },
            is_aborted: reader.flag()?,
            begun_ms: reader.u64()?,
        })
    }
}
