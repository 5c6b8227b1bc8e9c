//! How fast the disk of replicas reads: owners of logs choose among backups by that.

use std::time::Instant;

use disk::{DiskError, FrameId, Read};

use super::ReplicaFile;
use crate::limits::BACKUP_MEASURED_FRAMES;

impl ReplicaFile {
    /// Measures how fast the disk reads, in MB/s, at least 1: the first frames, which are added if there are none. Takes some
    /// milliseconds, or tens of them on a new disk.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn measure(&mut self) -> Result<u32, DiskError> {
        let wanted = BACKUP_MEASURED_FRAMES.min(self.frames_max);
        while self.disk.frames() < wanted {
            match self.disk.grow() {
                Ok(frame) => self.free.push(frame),
                Err(DiskError::Full) => break,
                Err(error) => return Err(error),
            }
        }
        let (frames, begun) = (wanted.min(self.disk.frames()), Instant::now());
        for frame in 0..frames {
            self.disk.read(&mut [Read::of(FrameId(frame), 0, &mut self.buffer)])?;
        }
        let bytes = u64::from(frames) * self.disk.frame_bytes() as u64;
        let speed = bytes / (begun.elapsed().as_micros() as u64).max(1);
        Ok(speed.clamp(1, u32::MAX.into()) as u32)
    }
}
