//! How far a migration is, as one of its two servers counts.

use super::MigrationEntry;
use crate::body::{Body, BodyReader, BodyWriter};
use crate::status::Status;

/// What a migration waits for before it goes on, as one of its two servers knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MigrationAwaited {
    /// Nothing: it goes on.
    Nothing = 0,
    /// A slot at that server.
    Slot = 1,
    /// The other server.
    Peer = 2,
    /// The metadata.
    Records = 3,
}

impl MigrationAwaited {
    const ALL: [MigrationAwaited; 4] = [Self::Nothing, Self::Slot, Self::Peer, Self::Records];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Slot => "slot",
            Self::Peer => "peer",
            Self::Records => "metadata",
        }
    }
}

/// See the file's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationProgress {
    /// Which, as the server knew it last.
    pub migration: MigrationEntry,
    /// Whether it is the source that counts.
    pub is_source: bool,
    /// Whether it is over.
    pub is_over: bool,
    /// What it waits for.
    pub awaited: MigrationAwaited,
    /// Migrations that get a slot before it, where it waits for one.
    pub ahead: u32,
    /// Objects that there were when it began, about.
    pub objects_expected: u64,
    /// Objects that were stored at the target; a source does not count them.
    pub objects: u64,
    /// Bytes of objects that were sent, or taken.
    pub bytes: u64,
    /// The same in a second.
    pub bytes_per_second: u64,
    /// Bytes of reads that the source answered for clients that ask both servers.
    pub second_read_bytes: u64,
    /// Microseconds in which nobody served the hashes, as the target saw it.
    pub pause_us: u64,
    /// Milliseconds since its bulk began, until its end if it is over.
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
