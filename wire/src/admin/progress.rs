//! The progress of a migration, as counted by one of its two servers.

use super::MigrationEntry;
use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// The resource that a migration waits for, as known to one of its two servers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MigrationAwaited {
    /// Nothing: the migration proceeds.
    Nothing = 0,
    /// A migration slot at this server.
    Slot = 1,
    /// The other server.
    Peer = 2,
    /// The metadata.
    Records = 3,
}

impl MigrationAwaited {
    const ALL: [MigrationAwaited; 4] = [Self::Nothing, Self::Slot, Self::Peer, Self::Records];

    /// Returns the resource as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Slot => "slot",
            Self::Peer => "peer",
            Self::Records => "metadata",
        }
    }
}

/// The progress of a migration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationProgress {
    /// The migration, in the server's latest state.
    pub migration: MigrationEntry,
    /// Whether the source reports.
    pub is_source: bool,
    /// Whether the migration has ended.
    pub is_over: bool,
    /// The resource that it waits for.
    pub awaited: MigrationAwaited,
    /// Migrations that get a slot earlier, if it waits for one.
    pub ahead: u32,
    /// Approximate number of objects at the beginning.
    pub objects_expected: u64,
    /// Objects stored at the target; a source does not count them.
    pub objects: u64,
    /// Bytes of objects sent or received.
    pub bytes: u64,
    /// Bytes of objects per second.
    pub bytes_per_second: u64,
    /// Bytes of reads that the source answered for clients that read both servers.
    pub second_read_bytes: u64,
    /// Microseconds without a server for the hashes, as measured by the target.
    pub pause_us: u64,
    /// Milliseconds since the transfer began, until its end if it has ended.
    pub took_ms: u64,
}

impl Body for MigrationProgress {
    fn write(&self, writer: &mut BodyWriter) {
        self.migration.write(writer);
        writer.flag(self.is_source);
        writer.flag(self.is_over);
        writer.u8(self.awaited as u8);
        writer.u32(self.ahead);
        for number in [
            self.objects_expected,
            self.objects,
            self.bytes,
            self.bytes_per_second,
            self.second_read_bytes,
            self.pause_us,
            self.took_ms,
        ] {
            writer.u64(number);
        }
    }

    fn read(reader: &mut BodyReader<'_>) -> Result<MigrationProgress, Status> {
        Ok(MigrationProgress {
            migration: MigrationEntry::read(reader)?,
            is_source: reader.flag()?,
            is_over: reader.flag()?,
            awaited: {
                let number = usize::from(reader.u8()?);
                MigrationAwaited::ALL.get(number).copied().ok_or(Status::Malformed)?
            },
            ahead: reader.u32()?,
            objects_expected: reader.u64()?,
            objects: reader.u64()?,
            bytes: reader.u64()?,
            bytes_per_second: reader.u64()?,
            second_read_bytes: reader.u64()?,
            pause_us: reader.u64()?,
            took_ms: reader.u64()?,
        })
    }
}
