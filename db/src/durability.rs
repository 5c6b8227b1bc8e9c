//! The log of durable tables on the server's disk: what is written when, and how a start reads it.
//!
//! ```text
//!   workers ── append ──► segments in memory ── cut ──► LogWriter ── blocks ──► disk
//!      ▲                                                    │ stable
//!      └────────── answers that waited for this cut ◄───────┘
//! ```
//! [`log_writer`] writes the segments of a store's durable heads to the frames of a disk, cut by cut, and keeps the
//! digest of those that count. [`log_reader`] finds them after a start, decides up to which cut they count, and
//! [`recovery`] rebuilds the tables from them, and [`ahead`] what somebody waits for first. [`log_thread`] is the thread that writes, off the workers' cores.
//! [`replicas`]: this log at other servers, and theirs here.
//! `disk/src/block.rs` and `disk/src/digest.rs` define the bytes, `store/src/durable.rs` what they mean.
//!
//! Guarantees: a replay finds all that lies below the latest cut that was reported as stable, and a prefix of cuts in
//! any case. A failed write ends all reports for good.

pub mod ahead;
pub mod figures;
mod growth;
pub mod log_reader;
pub mod log_thread;
pub mod log_writer;
pub mod recovery;
pub mod replicas;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use disk::{BLOCK_BYTES, Buffer, DIGEST_SEGMENT_BYTES, Disk, DiskError, FrameId, PAYLOAD_BYTES, Read};
use store::Table;

use crate::limits::{DIGEST_BYTES_MIN, FRAMES_PER_SEGMENT};

/// Blocks that are read at once.
const FIRST_BLOCKS_AT_ONCE: usize = 64;

/// The durable tables by the numbers that the log has for them. Entries of others are dropped.
pub type NumberedTables = BTreeMap<u32, Arc<Table>>;

/// Where things lie on a log's disk.
#[derive(Clone, Copy, Debug)]
pub struct LogLayout {
    /// Bytes of a frame.
    pub frame_bytes: usize,
    /// Frames of each of the two copies of the digest, at the beginning.
    pub digest_frames: u32,
}

impl LogLayout {
    /// Returns the bytes of the frames of segments up to this size: a full one takes [`FRAMES_PER_SEGMENT`].
    #[must_use]
    pub const fn frame_bytes_of(segment_bytes: usize) -> usize {
        segment_bytes.div_ceil(FRAMES_PER_SEGMENT).div_ceil(PAYLOAD_BYTES) * BLOCK_BYTES
    }

    /// Returns the layout of a disk of at most so many frames: a digest may name a segment for each.
    #[must_use]
    pub const fn of(frame_bytes: usize, frames_max: u32) -> Self {
        let digest_bytes = DIGEST_BYTES_MIN + frames_max as usize * DIGEST_SEGMENT_BYTES;
        Self { frame_bytes, digest_frames: digest_bytes.div_ceil(frame_bytes) as u32 }
    }

    /// Returns the most frames of a disk for which a digest has room.
    #[must_use]
    pub const fn frames_max(&self) -> u32 {
        let bytes = self.digest_frames as usize * self.frame_bytes;
        (bytes.saturating_sub(DIGEST_BYTES_MIN) / DIGEST_SEGMENT_BYTES) as u32
    }

    /// Returns the bytes of a segment that a frame holds.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        self.frame_bytes / BLOCK_BYTES * PAYLOAD_BYTES
    }

    /// Returns the blocks of a frame.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        (self.frame_bytes / BLOCK_BYTES) as u32
    }

    /// Returns the frames of a copy of the digest.
    pub fn digest(&self, copy: u32) -> impl Iterator<Item = FrameId> + use<> {
        (copy * self.digest_frames..(copy + 1) * self.digest_frames).map(FrameId)
    }

    /// Returns the frames of segments.
    pub fn frames(&self, disk: &dyn Disk) -> impl Iterator<Item = FrameId> + use<> {
        (2 * self.digest_frames..disk.frames()).map(FrameId)
    }
}

/// Calls `visit` with each of these frames and its first block.
///
/// # Errors
/// If the disk does not read, or what `visit` returns.
fn each_first_block<E: From<DiskError>>(
    disk: &mut dyn Disk,
    frames: &[FrameId],
    mut visit: impl FnMut(&mut dyn Disk, FrameId, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut buffer = Buffer::new(FIRST_BLOCKS_AT_ONCE * BLOCK_BYTES);
    for frames in frames.chunks(FIRST_BLOCKS_AT_ONCE) {
        let blocks = buffer.chunks_mut(BLOCK_BYTES);
        let mut reads: Vec<_> =
            frames.iter().zip(blocks).map(|(frame, block)| Read::of(*frame, 0, block)).collect();
        disk.read(&mut reads)?;
        for (frame, block) in frames.iter().zip(buffer.chunks(BLOCK_BYTES)) {
            visit(disk, *frame, block)?;
        }
    }
    Ok(())
}
