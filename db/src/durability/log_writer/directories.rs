//! The directories of full segments: written once such a segment is on the disk, in frames that several share.
//!
//! A start that finds one serves objects of the segment before it has read it. They are left out, and their frames given
//! back, long before the disk has too little room for writes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;

use disk::{
    BLOCK_BYTES, Buffer, DIRECTORY_WORDS, Directory, DirectoryBlock, DiskError, FrameId, directory_word,
};

use super::LogWriter;
use super::batch::Batch;
use crate::limits::DIRECTORIES_DUE_MAX;

/// The directories on the disk, and those that are not there yet.
#[derive(Debug, Default)]
pub(in crate::durability) struct Directories {
    /// Whether the disk has room for them.
    pub(super) have_room: bool,
    /// Words of segments that are on the disk.
    due: VecDeque<(u32, Vec<u64>)>,
    /// The segments of which each frame has blocks.
    frames: BTreeMap<FrameId, Vec<u32>>,
    /// The frame that has room, and its blocks in use.
    open: Option<(FrameId, u32)>,
}

impl Directories {
    /// Goes on with what a disk held: the segments of which each frame has blocks.
    pub(in crate::durability) fn found(frames: BTreeMap<FrameId, Vec<u32>>) -> Self {
        Self { frames, ..Self::default() }
    }

    /// Takes in the words of a segment that is on the disk.
    pub(super) fn add(&mut self, sequence: u32, words: Vec<u64>) {
        if self.due.len() >= DIRECTORIES_DUE_MAX {
            self.due.pop_front();
        }
        self.due.push_back((sequence, words));
    }

    /// Forgets a segment that is gone; returns the frames that nothing else needs.
    pub(super) fn forget(&mut self, sequence: u32) -> Vec<FrameId> {
        self.due.retain(|(due, _)| *due != sequence);
        self.frames.values_mut().for_each(|segments| segments.retain(|other| *other != sequence));
        let open = self.open.map(|(frame, _)| frame);
        self.frames
            .extract_if(.., |frame, of| of.is_empty() && open != Some(*frame))
            .map(|(frame, _)| frame)
            .collect()
    }
}

/// Adds the word of each entry that begins in a part of `bytes`, which begin at this offset of their segment; the part begins
/// with an entry. Returns where its last entry ends; `None` if one is not whole, as in a damaged segment.
pub(in crate::durability) fn add_words(
    words: &mut Vec<u64>,
    bytes: &[u8],
    part: Range<usize>,
    offset: usize,
) -> Option<usize> {
    let mut at = part.start;
    while at < part.end {
        let end = at + store::entry_bytes(&bytes[at..]).filter(|length| at + length <= bytes.len())?;
        words.extend(store::entry_hash(&bytes[at..end]).map(|hash| directory_word(hash, offset + at)));
        at = end;
    }
    Some(at)
}

impl LogWriter {
    /// Takes in the words of a segment that has no directory.
    pub(in crate::durability) fn add_directory(&mut self, sequence: u32, words: Vec<u64>) {
        self.directories.add(sequence, words);
    }

    /// Writes at most so many of the directories that are due, as far as there are frames. Takes a millisecond for each.
    pub(super) fn write_directories(&mut self, most: usize) -> Result<(), DiskError> {
        if !self.directories.have_room {
            let frames = std::mem::take(&mut self.directories.frames);
            self.state.free.extend(frames.into_keys());
            (self.directories.open, self.directories.due) = Default::default();
            return Ok(());
        }
        for _ in 0..most {
            let Some((sequence, words)) = self.directories.due.pop_front() else { break };
            let Some(mut frames) = self.frames_for(words.len().div_ceil(DIRECTORY_WORDS))? else {
                self.directories.due.push_front((sequence, words));
                break;
            };
            let (directory, segment_bytes) = (Directory::of(words), self.state.segments[&sequence].bytes);
            let blocks = directory.blocks().len();
            let (mut buffer, mut batch) = (Buffer::new(blocks * BLOCK_BYTES), Batch::default());
            for ((words, block), to) in directory.blocks().zip(0..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
                DirectoryBlock { sequence, block, blocks: blocks as u32, segment_bytes }.write(words, to);
                let (frame, at) = self.place_of_block(sequence, &mut frames);
                batch.add(frame, at as usize * BLOCK_BYTES);
            }
            self.figures.disk_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
            batch.write(&mut *self.disk, &buffer)?;
        }
        Ok(())
    }

    /// Returns the frames that so many blocks, at least one, need besides the open one; `None` if there are too few.
    fn frames_for(&mut self, blocks: usize) -> Result<Option<Vec<FrameId>>, DiskError> {
        let in_frame = self.layout.blocks();
        let in_open = self.directories.open.map_or(0, |(_, used)| in_frame - used) as usize;
        let needed = blocks.max(1).saturating_sub(in_open).div_ceil(in_frame as usize);
        let mut frames = Vec::with_capacity(needed);
        while frames.len() < needed {
            let Some(frame) = self.take_frame(false)? else {
                self.state.free.append(&mut frames);
                return Ok(None);
            };
            frames.push(frame);
        }
        Ok(Some(frames))
    }

    /// Returns the place of another block of a segment's directory: the next one of the open frame, or the first of one of
    /// these.
    fn place_of_block(&mut self, sequence: u32, frames: &mut Vec<FrameId>) -> (FrameId, u32) {
        let has_room = |(_, used): &(FrameId, u32)| *used < self.layout.blocks();
        let (frame, block) = match self.directories.open.filter(has_room) {
            Some(place) => place,
            None => {
                // The segments of a full frame may have gone while it was open.
                if let Some((full, _)) = self.directories.open
                    && self.directories.frames[&full].is_empty()
                {
                    self.directories.frames.remove(&full);
                    self.state.free.push(full);
                }
                (frames.pop().expect("there are enough"), 0)
            }
        };
        self.directories.open = Some((frame, block + 1));
        let segments = self.directories.frames.entry(frame).or_default();
        if segments.last() != Some(&sequence) {
            segments.push(sequence);
        }
        (frame, block)
    }
}
