//! The head of a list: its count, and its entries or the directory of its chunks.
//!
//! ```text
//! head      = form u8 (0 inline, 1 chunked) | zero 3 | count u32 | the rest
//! inline    = entries (see `entry`)
//! chunked   = next chunk number u32 | zero 4 | slot, slot, ...   newest chunk first
//! slot      = time u64 | id2 u64 | chunk number u32 | entries in the chunk u32
//! ```
//! A slot names the first (newest) entry of its chunk. A list of up to
//! [`crate::limits::INLINE_ENTRIES_MAX`] entries is one record, so reading it is one get.

use crate::entry::{Rank, Run};
use crate::fault;
use crate::key::ObjectId;
use alloc::vec::Vec;
use sandstorm::Error;

/// Bytes in front of the entries of an inline head.
pub const HEAD_BYTES: usize = 8;
/// Bytes in front of the slots of a chunked head.
pub const DIRECTORY_BYTES: usize = 16;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 24;

const INLINE: u8 = 0;
const CHUNKED: u8 = 1;

/// A head record, parsed in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head<'a> {
    /// The list itself.
    Inline {
        /// The number of entries.
        count: u32,
        /// The entries.
        run: Run<'a>,
    },
    /// The directory of a longer list.
    Chunked(Directory<'a>),
}

/// The location of a list's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory<'a> {
    count: u32,
    next_number: u32,
    slots: &'a [u8],
}

/// One chunk as its directory describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The rank of its first entry.
    pub first: Rank,
    /// Its number, part of its key.
    pub number: u32,
    /// The number of its entries.
    pub count: u32,
}

impl<'a> Head<'a> {
    /// Parses a head record.
    ///
    /// # Errors
    /// [`fault::DAMAGED`] when the record is not a head.
    #[inline]
    pub fn parse(record: &'a [u8]) -> Result<Head<'a>, Error> {
        let Some((head, rest)) = record.split_first_chunk::<HEAD_BYTES>() else { return Err(fault::DAMAGED) };
        let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        match head[0] {
            INLINE => Ok(Head::Inline { count, run: Run::new(rest) }),
            CHUNKED => Directory::parse(count, rest).map(Head::Chunked),
            _ => Err(fault::DAMAGED),
        }
    }

    /// Returns the number of entries in the whole list.
    #[inline]
    pub fn count(&self) -> u32 {
        match self {
            Head::Inline { count, .. } => *count,
            Head::Chunked(directory) => directory.count,
        }
    }
}

impl<'a> Directory<'a> {
    fn parse(count: u32, rest: &'a [u8]) -> Result<Directory<'a>, Error> {
        let Some((next, slots)) = rest.split_first_chunk::<8>() else { return Err(fault::DAMAGED) };
        if slots.is_empty() || !slots.len().is_multiple_of(SLOT_BYTES) {
            return Err(fault::DAMAGED);
        }
        let next_number = u32::from_le_bytes([next[0], next[1], next[2], next[3]]);
        Ok(Directory { count, next_number, slots })
    }

    /// Returns the number of entries in the whole list.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the number of the next new chunk.
    pub fn next_number(&self) -> u32 {
        self.next_number
    }

    /// Returns the number of chunks.
    pub fn chunks(&self) -> usize {
        self.slots.len() / SLOT_BYTES
    }

    /// Returns the slot of chunk `index`, counted from the newest; the last one beyond the end.
    pub fn slot(&self, index: usize) -> Slot {
        let start = index.min(self.chunks() - 1) * SLOT_BYTES;
        let word = |offset: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.slots[start + offset..start + offset + 8]);
            u64::from_le_bytes(bytes)
        };
        let numbers = word(16);
        Slot {
            first: Rank { time: word(0), id2: ObjectId(word(8)) },
            number: numbers as u32,
            count: (numbers >> 32) as u32,
        }
    }

    /// Returns the chunk that holds position `position`, and the position within it; the number of chunks if the list
    /// is shorter.
    pub fn seek_position(&self, position: usize) -> (usize, usize) {
        let mut left = position;
        for index in 0..self.chunks() {
            let count = self.slot(index).count as usize;
            if left < count {
                return (index, left);
            }
            left -= count;
        }
        (self.chunks(), 0)
    }

    /// Returns the chunk in which an entry of this rank is, or would be: the last that starts at or before it.
    pub fn seek_rank(&self, rank: Rank) -> usize {
        let (mut low, mut high) = (0, self.chunks());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.slot(middle).first >= rank {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.saturating_sub(1)
    }
}

/// Encodes the head record of a short list.
pub fn encode_inline(count: usize, run: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD_BYTES + run.len());
    out.extend_from_slice(&[INLINE, 0, 0, 0]);
    out.extend_from_slice(&(count as u32).to_le_bytes());
    out.extend_from_slice(run);
    out
}

/// Encodes the head record of a long list.
pub fn encode_chunked(slots: &[Slot], next_number: u32) -> Vec<u8> {
    let count = slots.iter().fold(0, |sum: u32, slot| sum.saturating_add(slot.count));
    let mut out = Vec::with_capacity(DIRECTORY_BYTES + slots.len() * SLOT_BYTES);
    out.extend_from_slice(&[CHUNKED, 0, 0, 0]);
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&next_number.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for slot in slots {
        out.extend_from_slice(&slot.first.time.to_le_bytes());
        out.extend_from_slice(&slot.first.id2.0.to_le_bytes());
        out.extend_from_slice(&slot.number.to_le_bytes());
        out.extend_from_slice(&slot.count.to_le_bytes());
    }
    out
}
