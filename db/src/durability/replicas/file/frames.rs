//! Frames of replicas in memory, and on their way to the disk.

use std::ops::Range;

use disk::{BLOCK_BYTES, Buffer, Disk, DiskError, FrameId, Write};

use crate::limits::SPARE_FRAMES;

/// Empty frames in memory, kept for what comes next.
#[derive(Default)]
pub(super) struct SpareFrames(Vec<Vec<u8>>);

impl SpareFrames {
    /// Returns an empty one.
    pub(super) fn take(&mut self, frame_bytes: usize) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(frame_bytes))
    }

    /// Keeps one that is not needed any more, if there are few.
    pub(super) fn keep(&mut self, mut frame: Vec<u8>) {
        if self.0.len() < SPARE_FRAMES {
            frame.clear();
            self.0.push(frame);
        }
    }
}

/// Writes pieces of frames, as many at once as the buffer takes.
pub(super) fn write(
    disk: &mut dyn Disk,
    buffer: &mut Buffer,
    pieces: Vec<(FrameId, usize, &[u8])>,
) -> Result<(), DiskError> {
    let (mut places, mut used) = (Vec::new(), 0);
    for (frame, from, bytes) in pieces {
        let blocks = bytes.len().next_multiple_of(BLOCK_BYTES);
        if used + blocks > buffer.len() {
            write_places(disk, &places, buffer)?;
            (places, used) = (Vec::new(), 0);
        }
        let target = &mut buffer[used..used + blocks];
        target[..bytes.len()].copy_from_slice(bytes);
        target[bytes.len()..].fill(0);
        places.push((frame, from, used..used + blocks));
        used += blocks;
    }
    write_places(disk, &places, buffer)
}

fn write_places(
    disk: &mut dyn Disk,
    places: &[(FrameId, usize, Range<usize>)],
    buffer: &Buffer,
) -> Result<(), DiskError> {
    let writes: Vec<_> =
        places.iter().map(|(frame, from, bytes)| Write::of(*frame, *from, &buffer[bytes.clone()])).collect();
    if writes.is_empty() { Ok(()) } else { disk.write(&writes) }
}
