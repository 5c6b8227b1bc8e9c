//! The directory of a full segment: where the entries of each hash lie, in blocks that are none of a segment.
//!
//! ```text
//!   0                                        4048          4096
//!   │ words u64, at most 506, rising         │ trailer 48  │     word: hash, its high 40 bits │ offset of the entry / 8
//!
//!   trailer:   0  checksum u32 of all behind it in the trailer, and then the words     24  sequence u32   the segment
//!              4  magic u32                                                            28  block u32      from 0
//!              8  zero u64, which a block of a segment has not                         32  blocks u32     of the directory
//!             16  zero u64                                                             36  words u32      of the block
//!             40  bytes u32      of the segment, of which the directory tells
//! ```
//! A reader needs no directory: it says early what the segment says, too. Blocks of directories share frames.

use crate::{BLOCK_BYTES, PAYLOAD_BYTES};

/// Words of a block.
pub const DIRECTORY_WORDS: usize = PAYLOAD_BYTES / 8;

/// Most blocks of a directory: of a segment full of the smallest entries.
const BLOCKS_MAX: u32 = (1 << OFFSET_BITS) / DIRECTORY_WORDS as u32 + 1;

const MAGIC: u32 = u32::from_le_bytes(*b"SDIR");

/// Bits of a word that tell the offset.
const OFFSET_BITS: u32 = 24;

/// Alignment of entries: an offset is told as a multiple of it.
const ENTRY_ALIGNMENT: usize = 8;

/// A block of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryBlock {
    /// The number of the segment.
    pub sequence: u32,
    /// The place in the directory.
    pub block: u32,
    /// Blocks of the directory.
    pub blocks: u32,
    /// Bytes of the segment that the directory tells of.
    pub segment_bytes: u32,
}

impl DirectoryBlock {
    /// Writes a block with these words.
    ///
    /// # Panics
    /// If they are too many.
    pub fn write(&self, words: &[u64], block: &mut [u8]) {
        assert!(words.len() <= DIRECTORY_WORDS, "the words of a block");
        block.fill(0);
        let (payload, trailer) = block.split_at_mut(PAYLOAD_BYTES);
        for (word, place) in words.iter().zip(payload.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let fields = [(4, MAGIC), (24, self.sequence), (28, self.block), (32, self.blocks)];
        for (at, value) in fields.into_iter().chain([(36, words.len() as u32), (40, self.segment_bytes)]) {
            trailer[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let checksum = checksum_of(payload, trailer);
        trailer[..4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads a block, and adds its words; `None` if it is none of a directory, or damaged.
    #[must_use]
    pub fn read(block: &[u8], words: &mut Vec<u64>) -> Option<Self> {
        assert_eq!(block.len(), BLOCK_BYTES, "a block");
        let (payload, trailer) = block.split_at(PAYLOAD_BYTES);
        let word = |at: usize| u32::from_le_bytes(trailer[at..at + 4].try_into().expect("four bytes"));
        if word(4) != MAGIC || word(0) != checksum_of(payload, trailer) {
            return None;
        }
        let read = Self { sequence: word(24), block: word(28), blocks: word(32), segment_bytes: word(40) };
        let count = word(36) as usize;
        if read.block >= read.blocks || read.blocks > BLOCKS_MAX || count > DIRECTORY_WORDS {
            return None;
        }
        let told = payload.chunks_exact(8).take(count);
        words.extend(told.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))));
        Some(read)
    }
}

fn checksum_of(payload: &[u8], trailer: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&trailer[4..]), payload)
}

/// Returns the word of an entry of this hash at this offset of its segment.
#[must_use]
pub fn directory_word(hash: u64, offset: usize) -> u64 {
    hash >> OFFSET_BITS << OFFSET_BITS | (offset / ENTRY_ALIGNMENT) as u64
}

/// A directory in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Directory(Vec<u64>);

impl Directory {
    /// Takes in words in any order.
    #[must_use]
    pub fn of(mut words: Vec<u64>) -> Self {
        words.sort_unstable();
        Self(words)
    }

    /// Returns the words of each block.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = &[u64]> {
        let count = self.0.len().div_ceil(DIRECTORY_WORDS).max(1);
        (0..count).map(|block| {
            let from = block * DIRECTORY_WORDS;
            &self.0[from..self.0.len().min(from + DIRECTORY_WORDS)]
        })
    }

    /// Returns the offsets of the entries that may have this hash. Cost: some hundred nanoseconds, of which the memory takes
    /// most.
    pub fn find(&self, hash: u64) -> impl Iterator<Item = usize> + '_ {
        let (least, prefix) = (hash >> OFFSET_BITS << OFFSET_BITS, hash >> OFFSET_BITS);
        let found = self.0[self.first_from(least)..].iter();
        let offset = |word: &u64| (word & ((1 << OFFSET_BITS) - 1)) as usize * ENTRY_ALIGNMENT;
        found.take_while(move |word| **word >> OFFSET_BITS == prefix).map(offset)
    }

    /// Returns the place of the first word from `least` on. Hashes are spread evenly, so it begins where the word should be.
    fn first_from(&self, least: u64) -> usize {
        let words = &self.0[..];
        let guess = ((u128::from(least) * words.len() as u128) >> 64) as usize;
        let (mut low, mut high, mut step) = (guess, guess, 1);
        while low > 0 && words[low - 1] >= least {
            low = low.saturating_sub(step);
            step *= 2;
        }
        step = 1;
        while high < words.len() && words[high] < least {
            high = (high + step).min(words.len());
            step *= 2;
        }
        low + words[low..high].partition_point(|&word| word < least)
    }
}

#[cfg(test)]
mod tests {
    use super::{DIRECTORY_WORDS, Directory, DirectoryBlock, directory_word};
    use crate::{BLOCK_BYTES, Trailer};

    /// Words of random hashes, each with its hash and offset.
    fn entries(random: &mut fastrand::Rng, count: usize, hashes: std::ops::Range<u64>) -> Vec<(u64, usize)> {
        let mut offset = 32;
        let entry = |_| {
            offset += 8 * random.usize(1..40);
            (random.u64(hashes.clone()), offset)
        };
        (0..count).map(entry).collect()
    }

    #[test]
    fn all_entries_of_a_hash_are_found_and_few_others() {
        let mut random = fastrand::Rng::with_seed(1);
        for (count, hashes) in [(0, 0..1), (1, 0..u64::MAX), (5_000, 0..u64::MAX), (5_000, 1 << 30..1 << 40)]
        {
            let entries = entries(&mut random, count, hashes);
            let directory =
                Directory::of(entries.iter().map(|&(hash, offset)| directory_word(hash, offset)).collect());
            for &(hash, offset) in &entries {
                assert!(directory.find(hash).any(|found| found == offset), "{hash} at {offset}");
                let wrong = directory.find(hash).filter(|found| {
                    !entries.iter().any(|&(other, at)| at == *found && other >> 24 == hash >> 24)
                });
                assert_eq!(wrong.count(), 0);
            }
            let strangers = (0..1_000).map(|_| directory.find(random.u64(1 << 50..)).count()).sum::<usize>();
            assert!(strangers < 3, "{strangers} entries of hashes that are not there");
            assert_eq!(directory.find(u64::MAX).count() + directory.find(0).count(), 0);
        }
    }

    #[test]
    fn a_block_is_read_as_it_was_written_and_is_none_of_a_segment() {
        let mut random = fastrand::Rng::with_seed(2);
        let words: Vec<u64> = (0..DIRECTORY_WORDS + 7).map(|_| random.u64(..)).collect();
        let directory = Directory::of(words);
        let (mut read, blocks) = (Vec::new(), directory.blocks().len() as u32);
        for (number, words) in (0..).zip(directory.blocks()) {
            let told = DirectoryBlock { sequence: 9, block: number, blocks, segment_bytes: 77 };
            let mut block = vec![1; BLOCK_BYTES];
            told.write(words, &mut block);
            assert_eq!(Trailer::read(&block), None);
            assert_eq!(DirectoryBlock::read(&block, &mut read), Some(told));
            for _ in 0..50 {
                let (at, bit) = (random.usize(..BLOCK_BYTES), random.u32(..8));
                block[at] ^= 1 << bit;
                assert_eq!(DirectoryBlock::read(&block, &mut Vec::new()), None, "bit {bit} of {at}");
                block[at] ^= 1 << bit;
            }
        }
        assert_eq!(Directory::of(read), directory);
        assert_eq!(Directory::default().blocks().map(<[u64]>::len).collect::<Vec<_>>(), [0]);
        assert_eq!(DirectoryBlock::read(&[0; BLOCK_BYTES], &mut Vec::new()), None);
    }
}
