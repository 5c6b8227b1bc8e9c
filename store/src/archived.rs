//! The entries of a segment as a disk holds it, for readers that only copy them, and for those who divide it among others.
//!
//! What counts is what a recovery would have taken in (`recovery.rs`): published objects, the ends of keys, and completion
//! records for those who ask for them. Entries that were never published are skipped. The caller decides which version of a key is the newest,
//! since entries come in the order of the log, and finds a table by its number.

use crate::completion::{FoundCompletion, NewestRequests, RequestId};
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
        loop {
            let (entry, bytes) = match self.next_entry()? {
                Ok(next) => next,
                Err(damaged) => return Some(Err(damaged)),
            };
            if entry.is_of_key() {
                return Some(Ok(SegmentEntry::of(&entry, bytes)));
            }
            if entry.is_completion() {
                FoundCompletion::of(&entry).map(&mut completed);
            }
        }
    }

    /// Returns the next entry, published or not, and its bytes.
    fn next_entry(&mut self) -> Option<Result<(Entry<'a>, &'a [u8]), DamagedEntry>> {
        let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let sound = Entry::split(rest).filter(|(entry, _)| entry.check().is_some());
        let Some((entry, length)) = sound else {
            let damaged = DamagedEntry(self.offset);
            self.offset = self.bytes.len();
            return Some(Err(damaged));
        };
        self.offset += length;
        Some(Ok((entry, &rest[..length])))
    }
}

impl<'a> SegmentEntry<'a> {
    fn of(entry: &Entry<'a>, bytes: &'a [u8]) -> Self {
        SegmentEntry {
            table: entry.table(),
            key: entry.key(),
            version: entry.version(),
            expires_ms: entry.expires_ms(),
            object: (entry.kind() == Kind::Object).then_some(bytes),
        }
    }
}

/// Divides a segment: each of `parts` gets the header, the objects and ends of keys of which `places` names its index, and the
/// completion records of requests that are not old by `newest`, so that it reads as a segment of the same number. Cost: as
/// [`SegmentEntries`], `places`, and a copy of what somebody gets.
///
/// # Errors
/// [`DamagedEntry`]: then the parts lack what comes behind it.
pub fn divide_segment<'p>(
    (sequence, bytes): (u32, &[u8]),
    newest: &mut NewestRequests,
    parts: &mut [Vec<u8>],
    places: impl Fn(&SegmentEntry<'_>) -> &'p [usize],
) -> Result<(), DamagedEntry> {
    let mut entries = SegmentEntries::new(sequence, bytes, 0)?;
    parts.iter_mut().for_each(|part| part.extend_from_slice(&bytes[..SEGMENT_HEADER_BYTES]));
    let mut records = Vec::new();
    while let Some(next) = entries.next_entry() {
        let (entry, bytes) = next?;
        if entry.is_of_key() {
            let entry = SegmentEntry::of(&entry, bytes);
            places(&entry).iter().for_each(|place| parts[*place].extend_from_slice(bytes));
        } else if entry.is_completion()
            && let Some(request) = RequestId::of(entry.table(), entry.key())
        {
            newest.note(request);
            records.push((request, bytes));
        }
    }
    for (_, bytes) in records.into_iter().filter(|(request, _)| !newest.is_old(*request)) {
        parts.iter_mut().for_each(|part| part.extend_from_slice(bytes));
    }
    Ok(())
}

impl<'a> Iterator for SegmentEntries<'a> {
    type Item = Result<SegmentEntry<'a>, DamagedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(|_| ())
    }
}
