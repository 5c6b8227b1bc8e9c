//! Answers about tablets and migrations: which server owns which hashes, and what is on its way.
//!
//! Hashes are those of keys (docs/formats.md); a range names its first and its last one.

use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// Hashes of a table with one owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletEntry {
    /// `owner/name` of the table.
    pub table: String,
    /// The table's number.
    pub id: u32,
    /// The first hash.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Number of the server that owns them.
    pub server: u32,
    /// When the objects that were there were lost, in milliseconds since the Unix epoch; 0 when they were not.
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

/// In which way a tablet moves.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MigrationMode {
    /// The target owns it first, and pulls.
    Rocksteady = 0,
    /// The source stands still until the target has it: to compare with.
    StopAndCopy = 1,
    /// The target owns it first, and pulls; clients read of both what may not have arrived.
    #[default]
    Cooperative = 2,
    /// The source sends all of it while it serves it, and stands still for the last: to compare with.
    PreCopy = 3,
}

impl MigrationMode {
    const ALL: [MigrationMode; 4] = [Self::Rocksteady, Self::StopAndCopy, Self::Cooperative, Self::PreCopy];

    /// As it is called on command lines.
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

    /// One that may be left to the table.
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

/// How far a migration is, and so who owns the hashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MigrationPhase {
    /// The source owns them.
    Preparing = 0,
    /// The target owns them, the source has what has not arrived.
    Moving = 1,
    /// The source owns them, the target has what was written since.
    Returning = 2,
    /// The target owns them; what is left at the source goes.
    Finished = 3,
    /// The source owns them, as before.
    Ended = 4,
}

impl MigrationPhase {
    const ALL: [MigrationPhase; 5] =
        [Self::Preparing, Self::Moving, Self::Returning, Self::Finished, Self::Ended];

    /// In a word.
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

/// Hashes of a table on their way from one server to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationEntry {
    /// Its number, never reused.
    pub id: u32,
    /// `owner/name` of the table.
    pub table: String,
    /// The first hash.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Number of the server that they come from.
    pub source: u32,
    /// Number of the server that they go to.
    pub target: u32,
    /// In which way.
    pub mode: MigrationMode,
    /// How far.
    pub standing: MigrationPhase,
    /// Whether somebody wants them to stay at the source.
    pub is_aborted: bool,
    /// When it was begun, in milliseconds since the Unix epoch.
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
        writer.u8(self.standing as u8);
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
            standing: {
                let number = usize::from(reader.u8()?);
                MigrationPhase::ALL.get(number).copied().ok_or(Status::Malformed)?
            },
            is_aborted: reader.flag()?,
            begun_ms: reader.u64()?,
        })
    }
}
