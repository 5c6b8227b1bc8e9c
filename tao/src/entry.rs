//! A run: associations of a list, or of a part of it, in sequence, newest first.
//!
//! ```text
//! entry = time u64 | id2 u64 | data bytes u16 | data
//! ```
//! The same bytes lie in head records, in chunks and in replies, so a read replies with a copy of a part of a record.
//! Order: time descending, then id descending. A damaged run ends at the damage; nothing here panics on it.

use crate::key::ObjectId;
use alloc::vec::Vec;

/// Bytes of an entry without its data.
pub const ENTRY_BYTES: usize = 18;

/// One association as its list holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The time, in a unit of the application's choice.
    pub time: u64,
    /// The other end of the association.
    pub id2: ObjectId,
    /// The application's bytes.
    pub data: &'a [u8],
}

/// The position of an entry in its list: a larger rank comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Time of the association.
    pub time: u64,
    /// The other end; orders entries of equal time.
    pub id2: ObjectId,
}

/// A span of time, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Latest time.
    pub high: u64,
    /// Earliest time.
    pub low: u64,
}

impl Span {
    /// All times.
    pub const ALL: Span = Span { high: u64::MAX, low: 0 };

    /// Returns whether a time lies in it.
    #[inline]
    pub fn contains(&self, time: u64) -> bool {
        self.low <= time && time <= self.high
    }
}

/// Entries in list order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    bytes: &'a [u8],
}

/// The location of an entry in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Offset of its first byte.
    pub offset: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its rank.
    pub rank: Rank,
}

impl<'a> Entry<'a> {
    /// Returns its position in the order of a list.
    #[inline]
    pub fn rank(&self) -> Rank {
        Rank { time: self.time, id2: self.id2 }
    }

    /// Returns the length of its encoding.
    #[inline]
    pub fn encoded_bytes(&self) -> usize {
        ENTRY_BYTES + self.data.len()
    }

    /// Appends its encoding. Data beyond 64 KB would not fit its length; the callers' limit is far below.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        debug_assert!(self.data.len() <= u16::MAX as usize);
        out.extend_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(&self.id2.0.to_le_bytes());
        out.extend_from_slice(&(self.data.len() as u16).to_le_bytes());
        out.extend_from_slice(self.data);
    }
}

impl<'a> Run<'a> {
    /// Creates a run over encoded entries.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Run<'a> {
        Run { bytes }
    }

    /// Returns the encoded entries that are left.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns whether no entry is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() < ENTRY_BYTES
    }

    /// Returns the first entry, without removing it.
    #[inline]
    pub fn first(&self) -> Option<Entry<'a>> {
        let (time, rest) = self.bytes.split_first_chunk::<8>()?;
        let (id2, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let data = rest.get(..u16::from_le_bytes(*length) as usize)?;
        Some(Entry { time: u64::from_le_bytes(*time), id2: ObjectId(u64::from_le_bytes(*id2)), data })
    }

    /// Removes and returns the first entry.
    #[inline]
    pub fn take_first(&mut self) -> Option<Entry<'a>> {
        let entry = self.first()?;
        self.bytes = &self.bytes[ENTRY_BYTES + entry.data.len()..];
        Some(entry)
    }

    /// Returns the bytes of the first `count` entries, or of all if there are fewer.
    #[inline]
    pub fn bytes_of(&self, count: usize) -> usize {
        let mut offset = 0;
        for _ in 0..count {
            let Some(length) = self.bytes.get(offset + ENTRY_BYTES - 2..offset + ENTRY_BYTES) else { break };
            let end = offset + ENTRY_BYTES + u16::from_le_bytes([length[0], length[1]]) as usize;
            if end > self.bytes.len() {
                break;
            }
            offset = end;
        }
        offset
    }

    /// Returns at most `limit` entries from position `position`.
    #[inline]
    pub fn range(&self, position: usize, limit: usize) -> Run<'a> {
        let start = self.bytes_of(position);
        let rest = Run::new(&self.bytes[start..]);
        let end = rest.bytes_of(limit);
        Run::new(&rest.bytes[..end])
    }

    /// Returns at most `limit` entries whose time lies in `span`, and their number.
    pub fn time_range(&self, span: Span, limit: usize) -> (Run<'a>, usize) {
        let mut rest = *self;
        while rest.first().is_some_and(|entry| entry.time > span.high) {
            rest.take_first();
        }
        let start = rest.bytes;
        let mut count = 0;
        while count < limit && rest.first().is_some_and(|entry| entry.time >= span.low) {
            rest.take_first();
            count += 1;
        }
        (Run::new(&start[..start.len() - rest.bytes.len()]), count)
    }

    /// Returns the number of entries. Cost: a walk over all.
    pub fn count(&self) -> usize {
        let (mut rest, mut count) = (*self, 0);
        while rest.take_first().is_some() {
            count += 1;
        }
        count
    }

    /// Returns the entry that leads to `id2`. Cost: a walk.
    #[inline]
    pub fn find(&self, id2: ObjectId) -> Option<Place> {
        let mut rest = *self;
        while let Some(entry) = rest.take_first() {
            if entry.id2 == id2 {
                let offset = self.bytes.len() - rest.bytes.len() - entry.encoded_bytes();
                return Some(Place { offset, bytes: entry.encoded_bytes(), rank: entry.rank() });
            }
        }
        None
    }

    /// Returns the insertion offset for this rank: that of the first entry that comes after it.
    pub fn offset_of(&self, rank: Rank) -> usize {
        let mut rest = *self;
        while rest.first().is_some_and(|entry| entry.rank() > rank) {
            rest.take_first();
        }
        self.bytes.len() - rest.bytes.len()
    }
}

/// Returns the run with one more entry, and the entry's offset.
pub fn with_entry(run: Run<'_>, entry: &Entry<'_>) -> (Vec<u8>, usize) {
    let offset = run.offset_of(entry.rank());
    let mut out = Vec::with_capacity(run.bytes.len() + entry.encoded_bytes());
    out.extend_from_slice(&run.bytes[..offset]);
    entry.append_to(&mut out);
    out.extend_from_slice(&run.bytes[offset..]);
    (out, offset)
}

/// Returns the run without the entry at `place`.
pub fn without(run: Run<'_>, place: &Place) -> Vec<u8> {
    let mut out = Vec::with_capacity(run.bytes.len() - place.bytes);
    out.extend_from_slice(&run.bytes[..place.offset]);
    out.extend_from_slice(&run.bytes[place.offset + place.bytes..]);
    out
}
