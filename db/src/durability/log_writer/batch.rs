//! Blocks that lie one after another in memory, on their way to their places on the disk.

use disk::{BLOCK_BYTES, Buffer, Disk, DiskError, FrameId, Write};

/// The places of blocks, in the order of the memory.
#[derive(Default)]
pub(super) struct Batch {
    /// Frame, offset, and how many lie side by side.
    places: Vec<(FrameId, usize, usize)>,
    blocks: usize,
}

impl Batch {
    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Adds the place of the next block.
    pub(super) fn add(&mut self, frame: FrameId, offset: usize) {
        self.blocks += 1;
        match self.places.last_mut() {
            Some((last, at, blocks)) if *last == frame && *at + *blocks * BLOCK_BYTES == offset => {
                *blocks += 1
            }
            _ => self.places.push((frame, offset, 1)),
        }
    }

    /// Writes the blocks, and forgets them.
    pub(super) fn write(&mut self, disk: &mut dyn Disk, buffer: &Buffer) -> Result<(), DiskError> {
        let mut from = 0;
        let writes: Vec<_> = self
            .places
            .drain(..)
            .map(|(frame, offset, blocks)| {
                let bytes = blocks * BLOCK_BYTES;
                from += bytes;
                Write::of(frame, offset, &buffer[from - bytes..from])
            })
            .collect();
        self.blocks = 0;
        if writes.is_empty() { Ok(()) } else { disk.write(&writes) }
    }
}
