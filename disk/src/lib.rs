//! Frames of a log on a disk: numbered places of one size in one file, written in whole blocks.
//!
//! ```text
//!   file:   superblock 4 KiB │ frame 0 │ frame 1 │ ... │ frame n         grows by a frame at a time, up to a limit
//!   frame:  zeros at first, then whatever was written last; recycled, never cleared
//! ```
//! A frame is written with zeros once, when the file grows, so that later writes only replace blocks: the file system
//! allocates nothing and writes no journal for them.
//!
//! Guarantees: what a [`Disk::write`] wrote is stable when it returns. While it runs, or if it fails, each sector of 512
//! bytes that it covers holds its old or its new content, in any combination. After a failed write or sync nothing is
//! written any more, because the kernel may have dropped what it could not write, and a second try would appear to
//! succeed.
//!
//! Also here: the bytes of a log in these frames, as [`Trailer`]s of blocks, [`Digest`]s and [`Directory`]s, and those of its
//! replicas elsewhere, as [`Fragment`]s. Not here: which frames are free, what segments contain, threads. Calls block, so workers do not make them.
//!
//! Implementations: [`FileDisk`], which moves several blocks at once by io_uring where the kernel allows it, and one
//! after another by system calls elsewhere; [`SimulatedDisk`], in memory, with faults from a seed.

mod block;
mod buffer;
mod digest;
mod directory;
mod error;
mod file;
mod replica;
mod simulated;
mod superblock;
mod transfer;
mod uring;

pub use crate::block::{FAR_AFTER, NO_ENTRY, PAYLOAD_BYTES, Trailer, blocks_of};
pub use crate::buffer::Buffer;
pub use crate::digest::{DIGEST_SEGMENT_BYTES, Digest, DigestError, DigestSegment, LOG_FORMAT, OPEN_ENDED};
pub use crate::directory::{DIRECTORY_WORDS, Directory, DirectoryBlock, directory_word};
pub use crate::error::DiskError;
pub use crate::file::{FileDisk, Options, Way, settle_file};
pub use crate::replica::{FRAGMENT_HEADER_BYTES, Fragment, REPLICA_HEADER_BYTES, ReplicaHeader};
pub use crate::simulated::{Fault, SimulatedDisk};
pub use crate::superblock::{FORMAT, IDENTITY_BYTES, Identity};
pub use crate::transfer::{FrameId, Read, Write};

/// Bytes of a block: offsets and lengths of transfers are multiples of it, and their memory is aligned to it, as
/// `O_DIRECT` demands of every device in use.
pub const BLOCK_BYTES: usize = 4096;

/// Bytes of a sector, which a device writes as a whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// Classes of survivors of cleaning, as a digest tells them apart.
pub const SURVIVOR_CLASSES: usize = 3;

/// A handle of a disk, for one thread.
pub trait Disk: Send {
    /// Returns the bytes of each frame.
    fn frame_bytes(&self) -> usize;

    /// Returns the number of frames: their ids are smaller.
    fn frames(&self) -> u32;

    /// Adds a frame of zeros, which is stable when this returns. Takes milliseconds.
    ///
    /// # Errors
    /// [`DiskError::Full`] at the limit, or if the file system has no space: then nothing has changed, and a later call
    /// may succeed. Else as for [`Disk::write`].
    fn grow(&mut self) -> Result<FrameId, DiskError>;

    /// Returns how many more frames the file system has room for at the moment; `u32::MAX` if that is not known.
    fn room_frames(&self) -> u32 {
        u32::MAX
    }

    /// Writes blocks, in any order; all are stable when this returns. Writes of one call do not overlap.
    ///
    /// # Errors
    /// [`DiskError::Failed`] if the kernel reports an error, and then [`DiskError::Stopped`] for every later call through
    /// any handle.
    ///
    /// # Panics
    /// If a write reaches beyond its frame, or the frame does not exist.
    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DiskError>;

    /// Reads blocks, in any order.
    ///
    /// # Errors
    /// [`DiskError::Failed`] if the kernel reports an error: other blocks may still be readable.
    ///
    /// # Panics
    /// As for [`Disk::write`].
    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DiskError>;

    /// Returns another handle of the same disk, for another thread.
    ///
    /// # Errors
    /// If the kernel has no resources for it.
    fn another(&self) -> Result<Box<dyn Disk>, DiskError>;
}
