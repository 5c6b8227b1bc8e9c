//! The entries of a segment as a disk holds it, for readers that only copy them.
//!
//! What counts is what a recovery would have taken in (`recovery.rs`): published objects, the ends of keys, and completion
//! records for those who ask for them. Entries that were never published are skipped. The caller decides which version of a key is the newest,
//! since entries come in the order of the log, and finds a table by its number.

use crate::completion::{FoundCompletion, RequestId};
use crate::log::{SEGMENT_HEADER_BYTES, read_segment_header};
use crate::object::{Carried, Entry, Kind};

/// An object, or the end of a key, in a segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentEntry<'a> {
    /// The number of its table.
    pub table: u32,
    /// Its key.
    pub key: &'a [u8],
    /// Its version; of the end of a key the highest version that ended.
    pub version: u64,
    /// Its expiry in milliseconds since the Unix epoch; [`crate::NEVER_MS`] without one.
    pub expires_ms: u64,
    /// The entry as the log has it, with its padding, as a pull carries it; `None` for the end of a key.
    pub object: Option<&'a [u8]>,
}

/// The error that bytes are not as they were written: where the entry begins, in bytes from the segment's beginning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DamagedEntry(pub usize);

/// Returns where to go on behind a damaged entry at `at`: the next of `starts`, offsets of entries in rising order, or the
/// end of the segment of so many bytes. Never at what merely looks like an entry, since values may contain such bytes.
pub(crate) fn next_start(starts: &[u32], at: usize, bytes: usize) -> usize {
    let next = starts.iter().map(|&start| start as usize).find(|&start| start > at);
    next.unwrap_or(bytes).min(bytes)
}

/// Returns the hash of the key of the entry that begins a piece of a sealed log, or [`RequestId::hash`] of a completion
/// record; `None` if it was never published, or the piece ends within it.
pub fn entry_hash(bytes: &[u8]) -> Option<u64> {
    let (entry, _) = Entry::split(bytes)?;
    match entry.kind() {
        _ if entry.version() == 0 => None,
        Kind::Completion => RequestId::of(entry.table(), entry.key()).map(RequestId::hash),
        Kind::Object | Kind::Tombstone => Some(crate::hash(entry.key())),
    }
}

/// Returns the key of the object that begins a pull, and the bytes of that object; `None` if the bytes end within it. Nothing
/// of it is checked but the lengths.
pub fn entry_key(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let (carried, rest) = Carried::split(bytes).ok()?;
    Some((carried.key(), bytes.len() - rest.len()))
}

/// The entries of a segment in the order of the log. Cost: a checksum of each entry, about 0.1 ns per byte.
#[derive(Clone, Debug)]
pub struct SegmentEntries<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> SegmentEntries<'a> {
    /// Begins at an offset that [`SegmentEntries::offset`] returned, or at 0; `bytes` are those of the segment that
    /// count, from its header on.
    ///
    /// # Errors
    /// [`DamagedEntry`] if they do not begin with the header of the segment of this number.
    pub fn new(sequence: u32, bytes: &'a [u8], offset: usize) -> Result<Self, DamagedEntry> {
        if read_segment_header(bytes) != Some(u64::from(sequence)) {
            return Err(DamagedEntry(0));
        }
        Ok(SegmentEntries { bytes, offset: offset.max(SEGMENT_HEADER_BYTES) })
    }

    /// Goes on behind a damaged entry, where a recovery does ([`next_start`]). Returns the bytes that are left out.
    pub fn go_on_behind(&mut self, DamagedEntry(at): DamagedEntry, starts: &[u32]) -> usize {
        self.offset = next_start(starts, at, self.bytes.len());
        self.offset - at
    }

    /// Begins as [`SegmentEntries::new`], though the bytes may be no segment's header.
    #[must_use]
    pub fn within(bytes: &'a [u8], offset: usize) -> Self {
        SegmentEntries { bytes, offset: offset.max(SEGMENT_HEADER_BYTES) }
    }

    /// Returns where the next entry begins.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> SegmentEntries<'a> {
    /// Returns the next object or end of a key; hands over the completion records before it.
    pub fn next_with(
        &mut self,
        mut completed: impl FnMut(FoundCompletion),
    ) -> Option<Result<SegmentEntry<'a>, DamagedEntry>> {
        while self.offset < self.bytes.len() {
            let rest = &self.bytes[self.offset..];
            let sound = Entry::split(rest).filter(|(entry, _)| entry.check().is_some());
            let Some((entry, length)) = sound else {
                let damaged = DamagedEntry(self.offset);
                self.offset = self.bytes.len();
                return Some(Err(damaged));
            };
            self.offset += length;
            if !entry.is_of_key() {
                if entry.kind() == Kind::Completion && entry.version() != 0 {
                    FoundCompletion::of(&entry).map(&mut completed);
                }
                continue;
            }
            return Some(Ok(SegmentEntry {
                table: entry.table(),
                key: entry.key(),
                version: entry.version(),
                expires_ms: entry.expires_ms(),
                object: (entry.kind() == Kind::Object).then(|| &rest[..length]),
            }));
        }
        None
    }
}

impl<'a> Iterator for SegmentEntries<'a> {
    type Item = Result<SegmentEntry<'a>, DamagedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(|_| ())
    }
}
