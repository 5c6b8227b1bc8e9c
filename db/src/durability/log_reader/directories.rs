//! The directories of segments: those that are read, and what they have to say.

use std::collections::BTreeMap;
use std::mem;

use disk::{BLOCK_BYTES, Buffer, Directory, DirectoryBlock, Disk, DiskError, FrameId, Read};
use store::SEGMENT_HEADER_BYTES;

use super::SegmentBytes;
use crate::durability::LogLayout;
use crate::durability::log_writer::{Segment, add_words};

/// The blocks that were found of a directory.
#[derive(Default)]
struct Blocks {
    /// For each block, whether it was found.
    found: Vec<bool>,
    words: Vec<u64>,
    frames: Vec<FrameId>,
}

/// Directories by the numbers of their segments, and for each frame the segments of which it has blocks.
type Found = (BTreeMap<u32, Directory>, BTreeMap<FrameId, Vec<u32>>);

/// Reads these frames for the directories of these segments: those of which all blocks are there and intact, and that tell of
/// all bytes that count. They are empty unless their words are `kept`.
pub(super) fn read(
    disk: &mut dyn Disk,
    layout: LogLayout,
    frames: &[FrameId],
    (segments, kept): (&BTreeMap<u32, Segment>, bool),
) -> Result<Found, DiskError> {
    // By the bytes that they tell of, too: a crash may have cut a segment short that had a directory, or blocks of one.
    let mut all: BTreeMap<(u32, u32), Blocks> = BTreeMap::new();
    let (mut content, mut words) = (Buffer::new(layout.frame_bytes), Vec::new());
    for &frame in frames {
        disk.read(&mut [Read::of(frame, 0, &mut content)])?;
        for block in content.chunks(BLOCK_BYTES) {
            words.clear();
            let Some(told) = DirectoryBlock::read(block, &mut words) else { continue };
            if !kept {
                words.clear();
            }
            if segments.get(&told.sequence).is_some_and(|segment| segment.bytes <= told.segment_bytes) {
                all.entry((told.sequence, told.segment_bytes)).or_default().add(told, &mut words, frame);
            }
        }
    }
    let (mut directories, mut of_frames) = (BTreeMap::new(), BTreeMap::<_, Vec<u32>>::new());
    for ((sequence, _), mut of) in all.into_iter().filter(|(_, blocks)| blocks.are_complete()) {
        if directories.contains_key(&sequence) {
            continue;
        }
        directories.insert(sequence, Directory::of(of.words));
        of.frames.dedup();
        of.frames.into_iter().for_each(|frame| of_frames.entry(frame).or_default().push(sequence));
    }
    Ok((directories, of_frames))
}

impl SegmentBytes {
    /// Returns the words of the segment's directory, in the order of the entries; `None` if it is damaged.
    pub(in crate::durability) fn words(&self) -> Option<Vec<u64>> {
        let mut words = Vec::new();
        let is_sound = self.blocks_damaged == 0;
        is_sound.then(|| add_words(&mut words, &self.bytes, SEGMENT_HEADER_BYTES..self.bytes.len(), 0))??;
        Some(words)
    }
}

impl Blocks {
    /// Takes in a block. The same one may lie in a frame of before, too.
    fn add(&mut self, told: DirectoryBlock, words: &mut Vec<u64>, frame: FrameId) {
        let known = self.found.len().max(told.blocks as usize);
        self.found.resize(known, false);
        if !mem::replace(&mut self.found[told.block as usize], true) {
            self.words.append(words);
            self.frames.push(frame);
        }
    }

    fn are_complete(&self) -> bool {
        self.found.iter().all(|found| *found)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use disk::{BLOCK_BYTES, Buffer, DIRECTORY_WORDS, Directory, DirectoryBlock, Disk, SimulatedDisk, Write};

    use super::read;
    use crate::durability::LogLayout;
    use crate::durability::log_writer::Segment;

    const SEQUENCE: u32 = 7;

    /// Words of two blocks.
    fn directory(first: u64) -> Directory {
        Directory::of((0..DIRECTORY_WORDS as u64 + 9).map(|word| (first + word) << 32).collect())
    }

    #[test]
    fn a_directory_that_a_crash_has_torn_is_not_mixed_with_the_one_after_it() {
        let frame_bytes = 4 * BLOCK_BYTES;
        let mut disk = SimulatedDisk::new(1, frame_bytes, 100);
        let layout = LogLayout::of(frame_bytes, 100);
        let frames = [0, 1].map(|_| disk.grow().expect("there is room"));
        // The first one was torn, and then its segment was cut short.
        let [torn, whole] = [(directory(1), 9_000, 1), (directory(500), 5_000, 2)];
        for (frame, (directory, segment_bytes, blocks)) in frames.into_iter().zip([&torn, &whole]) {
            let mut buffer = Buffer::new(blocks * BLOCK_BYTES);
            for ((words, block), to) in directory.blocks().zip(0..).zip(buffer.chunks_mut(BLOCK_BYTES)) {
                let segment_bytes = *segment_bytes;
                DirectoryBlock { sequence: SEQUENCE, block, blocks: 2, segment_bytes }.write(words, to);
            }
            disk.write(&[Write::of(frame, 0, &buffer)]).expect("it works");
        }
        let of_bytes = |bytes| BTreeMap::from([(SEQUENCE, Segment { bytes, ..Segment::default() })]);
        let (found, of_frames) =
            read(&mut disk, layout, &frames, (&of_bytes(5_000), true)).expect("it reads");
        assert_eq!(found, BTreeMap::from([(SEQUENCE, whole.0)]));
        assert_eq!(of_frames, BTreeMap::from([(frames[1], vec![SEQUENCE])]));
        let (found, _) = read(&mut disk, layout, &frames, (&of_bytes(5_001), true)).expect("it reads");
        assert!(found.is_empty(), "it does not tell of all that counts");
    }
}
