//! The blocks of a log: bytes of a segment, and a trailer that says which, of what write, and how far they count.
//!
//! ```text
//!   0                                                    4048          4096
//!   │ bytes of the segment from block * 4048 on          │ trailer 48   │
//!
//!   trailer:   0  checksum u32 of the block's bytes that count      24  sequence u32   the segment's number
//!              4  checksum u32 of the rest of the trailer           28  block u32      of the segment, from 0
//!              8  cut u64                                           32  previous u32   bytes stable before this cut
//!             16  clock u64   milliseconds, of the store's clock    36  end u32        bytes at this cut
//!             40  writes u16  segments that this cut writes to      42  class u8       43  writes, bits 16..24     44  first u16
//!             46  after u16   by how much the cut's number is higher than that of the one before
//! ```
//! A segment's last block is written again when more bytes follow. A device may then leave any combination of old and
//! new sectors; but what counted before is the same in both, and the trailer lies in one sector. So whoever reads finds
//! the old trailer, whose checksum covers only bytes that both have, or the new one, whose `previous` says how much
//! counted before. A cut is complete if as many segments as it wrote to have all of its blocks; there is no other
//! commit record, so that a cut through one segment takes one write.

use crate::{BLOCK_BYTES, SECTOR_BYTES};

/// Bytes of a trailer.
const TRAILER_BYTES: usize = 48;

/// Bytes of a segment in each block.
pub const PAYLOAD_BYTES: usize = BLOCK_BYTES - TRAILER_BYTES;

const _: () = assert!(TRAILER_BYTES <= SECTOR_BYTES, "a trailer is written whole or not at all");

/// The trailer of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The number of the cut that the block was written for.
    pub cut: u64,
    /// The store's clock at that time, in milliseconds.
    pub clock_ms: u64,
    /// The number of the segment.
    pub sequence: u32,
    /// The place in the segment.
    pub block: u32,
    /// Bytes of the segment that earlier cuts include.
    pub previous: u32,
    /// Bytes of the segment that this cut includes.
    pub end: u32,
    /// Segments that this cut writes to, fewer than 2^24.
    pub writes: u32,
    /// 0 for a segment of a core; one more than the class for one of survivors.
    pub class: u8,
    /// Where the first entry of the log that begins in the block does so; [`NO_ENTRY`] if none does. A reader that met
    /// damage goes on there.
    pub first: u16,
    /// By how much the cut's number is higher than that of the cut before it on this disk, if backups have cuts in between: 0 if
    /// none can be, [`FAR_AFTER`] or more are one.
    pub after: u16,
}

/// By so much the number of a cut is higher than that of the one before it, or by more.
pub const FAR_AFTER: u16 = u16::MAX;

/// In place of the offset of an entry.
pub const NO_ENTRY: u16 = u16::MAX;

impl Trailer {
    /// Returns the blocks of the segment that the cut writes.
    #[must_use]
    pub fn written(&self) -> std::ops::Range<u32> {
        self.previous / PAYLOAD_BYTES as u32..blocks_of(self.end)
    }

    /// Returns the bytes of the block that count.
    fn counting(&self) -> usize {
        (self.end as usize).saturating_sub(self.block as usize * PAYLOAD_BYTES).min(PAYLOAD_BYTES)
    }

    /// Writes the trailer of a block whose bytes are in place, with their checksum.
    pub fn seal(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK_BYTES, "a block");
        let (payload, trailer) = block.split_at_mut(PAYLOAD_BYTES);
        trailer.fill(0);
        trailer[8..16].copy_from_slice(&self.cut.to_le_bytes());
        trailer[16..24].copy_from_slice(&self.clock_ms.to_le_bytes());
        trailer[24..28].copy_from_slice(&self.sequence.to_le_bytes());
        trailer[28..32].copy_from_slice(&self.block.to_le_bytes());
        trailer[32..36].copy_from_slice(&self.previous.to_le_bytes());
        trailer[36..40].copy_from_slice(&self.end.to_le_bytes());
        let [writes @ .., writes_high, over] = self.writes.to_le_bytes();
        assert_eq!(over, 0, "there is memory for fewer segments");
        trailer[40..42].copy_from_slice(&writes);
        (trailer[42], trailer[43]) = (self.class, writes_high);
        trailer[44..46].copy_from_slice(&self.first.to_le_bytes());
        trailer[46..48].copy_from_slice(&self.after.to_le_bytes());
        trailer[0..4].copy_from_slice(&crc32c::crc32c(&payload[..self.counting()]).to_le_bytes());
        let checksum = checksum_of(trailer);
        trailer[4..8].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Reads the trailer of a block; `None` if it is damaged, or none was written there.
    #[must_use]
    pub fn read(block: &[u8]) -> Option<Self> {
        assert_eq!(block.len(), BLOCK_BYTES, "a block");
        let trailer = &block[PAYLOAD_BYTES..];
        let word = |at: usize| u32::from_le_bytes(trailer[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(trailer[at..at + 8].try_into().expect("eight bytes"));
        let read = Self {
            cut: long(8),
            clock_ms: long(16),
            sequence: word(24),
            block: word(28),
            previous: word(32),
            end: word(36),
            writes: u32::from_le_bytes([trailer[40], trailer[41], trailer[43], 0]),
            class: trailer[42],
            first: u16::from_le_bytes([trailer[44], trailer[45]]),
            after: u16::from_le_bytes([trailer[46], trailer[47]]),
        };
        let is_sound = word(4) == checksum_of(trailer) && read.previous <= read.end && read.cut > 0;
        (is_sound && read.block < blocks_of(read.end)).then_some(read)
    }

    /// Returns whether the bytes of the block that count are intact.
    #[must_use]
    pub fn verify(&self, block: &[u8]) -> bool {
        let checksum = u32::from_le_bytes(block[PAYLOAD_BYTES..][..4].try_into().expect("four bytes"));
        crc32c::crc32c(&block[..self.counting()]) == checksum
    }
}

/// Returns the checksum of a trailer but for the one at its place.
fn checksum_of(trailer: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&trailer[..4]), &trailer[8..])
}

/// Returns the blocks that hold so many bytes of a segment.
#[must_use]
pub const fn blocks_of(bytes: u32) -> u32 {
    bytes.div_ceil(PAYLOAD_BYTES as u32)
}

#[cfg(test)]
mod tests {
    use super::{PAYLOAD_BYTES, Trailer, blocks_of};
    use crate::{BLOCK_BYTES, SECTOR_BYTES};

    fn block_of(trailer: Trailer, byte: u8) -> Vec<u8> {
        let mut block = vec![byte; BLOCK_BYTES];
        trailer.seal(&mut block);
        block
    }

    const TRAILER: Trailer = Trailer {
        cut: 9,
        clock_ms: 1 << 40,
        sequence: 7,
        block: 2,
        previous: 2 * PAYLOAD_BYTES as u32 + 5,
        end: 2 * PAYLOAD_BYTES as u32 + 100,
        writes: 70_000,
        class: 1,
        first: 40,
        after: 300,
    };

    #[test]
    fn a_trailer_is_read_as_it_was_written_and_covers_what_counts() {
        let mut block = block_of(TRAILER, 3);
        assert_eq!(Trailer::read(&block), Some(TRAILER));
        assert_eq!(TRAILER.written(), 2..3);
        assert!(TRAILER.verify(&block));
        block[100] = 9;
        assert!(TRAILER.verify(&block), "behind what counts");
        block[99] = 9;
        assert!(!TRAILER.verify(&block));
    }

    #[test]
    fn each_flipped_bit_of_a_trailer_is_noticed() {
        let block = block_of(TRAILER, 3);
        for bit in PAYLOAD_BYTES * 8..BLOCK_BYTES * 8 {
            let mut damaged = block.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            // The checksum of the content is covered as well.
            assert_eq!(Trailer::read(&damaged), None, "bit {bit}");
        }
        assert_eq!(Trailer::read(&[0; BLOCK_BYTES]), None, "zeros");
    }

    #[test]
    fn of_a_torn_block_the_old_trailer_holds_or_the_new_one_says_what_counted() {
        let (old, new) =
            (TRAILER, Trailer { cut: 10, previous: TRAILER.end, end: TRAILER.end + 3000, ..TRAILER });
        let before = block_of(old, 3);
        let mut after = before.clone();
        after[100..3100].fill(4);
        new.seal(&mut after);
        for written in 0..1 << (BLOCK_BYTES / SECTOR_BYTES) {
            let mut torn = before.clone();
            for sector in (0..BLOCK_BYTES / SECTOR_BYTES).filter(|sector| written >> sector & 1 == 1) {
                let bytes = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                torn[bytes.clone()].copy_from_slice(&after[bytes]);
            }
            let read = Trailer::read(&torn).expect("a trailer lies in one sector");
            match read.cut {
                9 => assert!(read == old && read.verify(&torn)),
                _ => assert!(read == new && read.previous == old.end),
            }
            assert_eq!(torn[..100], before[..100], "what counted before");
        }
    }

    #[test]
    fn blocks_are_counted_up() {
        assert_eq!([0, 1, 4048, 4049].map(blocks_of), [0, 1, 1, 2]);
    }
}
