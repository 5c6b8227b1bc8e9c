//! The directories of segments: those that are read, and what they have to say.

use std::collections::BTreeMap;
use std::mem;

use disk::{BLOCK_BYTES, Buffer, Directory, DirectoryBlock, Disk, DiskError, FrameId, Read, directory_word};
use store::SEGMENT_HEADER_BYTES;

use super::SegmentBytes;
use crate::durability::LogLayout;
use crate::durability::log_writer::Segment;

/// The blocks that were found of a directory.
#[derive(Default)]
struct Blocks {
    /// For each block, whether it was found.
    found: Vec<bool>,
    /// Whether blocks contradict each other.
    is_broken: bool,
    words: Vec<u64>,
    frames: Vec<FrameId>,
}

/// Directories by the numbers of their segments, and for each frame the segments of which it has blocks.
type Found = (BTreeMap<u32, Directory>, BTreeMap<FrameId, Vec<u32>>);

/// Reads these frames for the directories of these segments: those of which all blocks are there and intact.
pub(super) fn read(
    disk: &mut dyn Disk,
    layout: LogLayout,
    frames: &[FrameId],
    segments: &BTreeMap<u32, Segment>,
) -> Result<Found, DiskError> {
    let mut all: BTreeMap<u32, Blocks> = BTreeMap::new();
    let (mut content, mut words) = (Buffer::new(layout.frame_bytes), Vec::new());
    for &frame in frames {
        disk.read(&mut [Read::of(frame, 0, &mut content)])?;
        for block in content.chunks(BLOCK_BYTES) {
            words.clear();
            let Some(DirectoryBlock { sequence, block, blocks }) = DirectoryBlock::read(block, &mut words)
            else {
                continue;
            };
            if segments.contains_key(&sequence) {
                all.entry(sequence).or_default().add((block, blocks), &mut words, frame);
            }
        }
    }
    let (mut directories, mut of_frames) = (BTreeMap::new(), BTreeMap::<_, Vec<u32>>::new());
    for (sequence, mut of) in all.into_iter().filter(|(_, blocks)| blocks.are_complete()) {
        directories.insert(sequence, Directory::of(of.words));
        of.frames.dedup();
        of.frames.into_iter().for_each(|frame| of_frames.entry(frame).or_default().push(sequence));
    }
    Ok((directories, of_frames))
}

impl SegmentBytes {
    /// Returns the words of the segment's directory, in the order of the entries; `None` if it is damaged.
    pub(in crate::durability) fn words(&self) -> Option<Vec<u64>> {
        let (bytes, mut at, mut words) = (&self.bytes, SEGMENT_HEADER_BYTES, Vec::new());
        if self.blocks_damaged > 0 {
            return None;
        }
        while at < bytes.len() {
            let end = at + store::entry_bytes(&bytes[at..]).filter(|length| at + length <= bytes.len())?;
            words.extend(store::entry_hash(&bytes[at..end]).map(|hash| directory_word(hash, at)));
            at = end;
        }
        Some(words)
    }
}

impl Blocks {
    /// Takes in a block, of so many. The same one may lie in a frame of before, too.
    fn add(&mut self, (block, blocks): (u32, u32), words: &mut Vec<u64>, frame: FrameId) {
        if self.found.is_empty() {
            self.found.resize(blocks as usize, false);
        }
        self.is_broken |= self.found.len() != blocks as usize;
        if !self.is_broken && !mem::replace(&mut self.found[block as usize], true) {
            self.words.append(words);
            self.frames.push(frame);
        }
    }

    fn are_complete(&self) -> bool {
        !self.is_broken && self.found.iter().all(|found| *found)
    }
}
