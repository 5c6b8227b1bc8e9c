//! The heads of a log.

use crate::segment::SegmentId;

/// Where the segments of a head go besides memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Role {
    /// Nowhere.
    #[default]
    Memory,
    /// To the disk, as those of this writer.
    Writer(usize),
    /// They replace in memory the segment of this number, as which the disk holds their objects.
    Compaction(u32),
}

/// The append position of a core or the cleaner. Offsets are in the region.
///
/// A head owns an open segment. When an object does not fit, the head takes another segment and closes the old one,
/// which gets the time of the log's clock: the bytes that writers have written, so that the cleaner can weigh free space
/// by age.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(super) segment: Option<SegmentId>,
    pub(super) offset: usize,
    pub(super) end: usize,
    /// How often the cleaner has copied the objects of its segment; 0 for a writer's head.
    pub(super) generation: u32,
    pub(crate) role: Role,
    /// The number of its segment on the disk.
    pub(super) sequence: u32,
    /// Bytes of the tombstones in its segment.
    pub(super) tombstones: u32,
    /// Bytes of the completion records in its segment that were needed when they came there.
    pub(super) needed: u32,
    /// Bytes that the disk has under the number of a compaction.
    pub(crate) disk_bytes: u32,
    /// Bytes appended since [`Log::take_appended`].
    pub(super) appended: u64,
    /// The part of `appended` that the log already counts.
    pub(super) counted: u64,
}

impl Head {
    /// Notes that appended objects come from a segment of this generation.
    pub(crate) fn note_origin(&mut self, generation: u32) {
        self.generation = self.generation.max(generation + 1);
    }

    /// Notes that an entry of its segment has become a tombstone.
    pub(crate) fn note_tombstone(&mut self, bytes: u32) {
        self.tombstones += bytes;
    }

    /// Notes that a completion record that is needed was appended.
    pub(crate) fn note_needed(&mut self, bytes: u32) {
        self.needed += bytes;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.segment.is_some()
    }

    /// Creates a closed head.
    pub(crate) fn new(role: Role) -> Head {
        Head { role, ..Head::default() }
    }
}
