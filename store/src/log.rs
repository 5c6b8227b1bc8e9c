//! The segmented log: one mapped region, appended to by heads, read through locations.
//!
//! ```text
//!   segment: [ header 32 B │ object │ object │ ... │ unused ]
//!   head:    this core's segment and the offset where the next object goes
//! ```
//!
//! This is the one file that touches the region's bytes. An object is *staged* (copied behind the head, known to
//! its writer only), *sealed* (version and checksum written) and then published by storing its location in the
//! index; from then on nobody writes it. A staged object that is not published is taken back or buried. The cleaner
//! may walk over one that is still staged (its segment can be full already), so sealing stores atomically.

use std::io;
// Bytes of the region, which loom does not follow.
use std::sync::atomic::{AtomicU64 as AtomicWord, Ordering::Relaxed};

use crate::epoch::EpochPin;
use crate::index::Location;
use crate::limits::RESERVE_SEGMENTS;
use crate::memory::{Mapping, prefetch};
use crate::object::{
    EXPIRES, EXPIRY_BYTES, Header, Kind, NEVER_MS, OBJECT_HEADER_BYTES, Object, content_checksum,
    object_bytes,
};
use crate::segment::{SegmentId, Segments};
use crate::sync::AtomicU64;

/// Bytes of a segment's header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 32;
/// First bytes of a segment.
const SEGMENT_MAGIC: u32 = 0x4753_5053;
const SEGMENT_FORMAT: u16 = 1;

/// Where a core, or the cleaner, appends.
#[derive(Debug, Default)]
pub(crate) struct Head {
    segment: Option<SegmentId>,
    offset: usize,
}

/// An object that has been copied to the log and that nobody can find yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) location: Location,
    header: Header,
    content_checksum: u32,
    pub(crate) expires_ms: u64,
}

impl Staged {
    /// Bytes of the object in the log.
    #[inline]
    pub(crate) fn bytes(&self) -> u32 {
        self.header.object_bytes() as u32
    }
}

/// No segment can be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NoSegment;

/// The log of one store.
pub(crate) struct Log {
    mapping: Mapping,
    segment_shift: u32,
    pub(crate) segments: Segments,
    /// Segments ever opened: the next one's sequence number.
    opened: AtomicU64,
}

impl Log {
    /// A log of `count` segments of `segment_bytes` (a power of two).
    pub(crate) fn new(segment_bytes: usize, count: u32, huge_pages: bool) -> io::Result<Log> {
        assert!(segment_bytes.is_power_of_two());
        let bytes = segment_bytes * count as usize;
        let mapping = Mapping::new(bytes, if huge_pages { bytes } else { 0 })?;
        let segment_shift = segment_bytes.trailing_zeros();
        Ok(Log { mapping, segment_shift, segments: Segments::new(count), opened: AtomicU64::new(0) })
    }

    pub(crate) fn segment_bytes(&self) -> usize {
        1 << self.segment_shift
    }

    /// Backs a segment with memory; see [`Mapping::populate`].
    pub(crate) fn populate(&self, segment: SegmentId) -> io::Result<()> {
        let start = (segment.0 as usize) << self.segment_shift;
        self.mapping.populate(start..start + self.segment_bytes())
    }

    /// Largest object that fits.
    pub(crate) fn object_bytes_max(&self) -> usize {
        self.segment_bytes() - SEGMENT_HEADER_BYTES
    }

    pub(crate) fn segment_of(&self, location: Location) -> SegmentId {
        SegmentId((location.offset() >> self.segment_shift) as u32)
    }

    #[inline]
    fn pointer(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.segments.count() as usize * self.segment_bytes());
        // SAFETY: offsets come from heads and locations, which lie in the mapping.
        unsafe { self.mapping.base().as_ptr().add(offset) }
    }

    /// Makes sure that `bytes` fit behind the head; a new segment is taken only if more than `keep()` are free.
    fn make_room(
        &self,
        head: &mut Head,
        bytes: usize,
        keep: impl FnOnce() -> u64,
    ) -> Result<SegmentId, NoSegment> {
        if let Some(segment) = head.segment
            && head.offset + bytes <= self.segment_bytes()
        {
            return Ok(segment);
        }
        // The old head is closed only now that there is another: a small object may still fit into it.
        let segment = self.segments.take(keep()).ok_or(NoSegment)?;
        self.close(head);
        self.write_segment_header(segment);
        *head = Head { segment: Some(segment), offset: SEGMENT_HEADER_BYTES };
        Ok(segment)
    }

    fn write_segment_header(&self, segment: SegmentId) {
        let sequence = self.opened.fetch_add(1, Relaxed) + 1;
        let mut header = [0; SEGMENT_HEADER_BYTES];
        header[0..4].copy_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        header[4..6].copy_from_slice(&SEGMENT_FORMAT.to_le_bytes());
        header[8..16].copy_from_slice(&sequence.to_le_bytes());
        header[16..20].copy_from_slice(&segment.0.to_le_bytes());
        header[20..24].copy_from_slice(&(self.segment_bytes() as u32).to_le_bytes());
        let at = self.pointer((segment.0 as usize) << self.segment_shift);
        // SAFETY: the segment was taken by this thread and nothing leads into it; its header fits.
        unsafe { at.copy_from_nonoverlapping(header.as_ptr(), SEGMENT_HEADER_BYTES) };
    }

    /// Closes the head's segment; the next append takes another.
    pub(crate) fn close(&self, head: &mut Head) {
        if let Some(segment) = head.segment.take() {
            self.segments.close(segment, (head.offset - SEGMENT_HEADER_BYTES) as u32);
        }
        head.offset = 0;
    }

    /// Copies key, value and an expiry that is not [`NEVER_MS`] behind the head (the one copy that a write makes of
    /// them).
    #[inline]
    pub(crate) fn stage(
        &self,
        head: &mut Head,
        keep: impl FnOnce() -> u64,
        table: u32,
        (key, value): (&[u8], &[u8]),
        expires_ms: u64,
    ) -> Result<Staged, NoSegment> {
        let expires = expires_ms != NEVER_MS;
        let bytes = object_bytes(key.len(), value.len(), expires);
        let segment = self.make_room(head, bytes, keep)?;
        let offset = ((segment.0 as usize) << self.segment_shift) + head.offset;
        head.offset += bytes;
        let at = self.pointer(offset);
        let mut end = OBJECT_HEADER_BYTES + key.len() + value.len();
        let (key_bytes, value_bytes, kind) = (key.len(), value.len(), Kind::Object);
        let header = Header { checksum: 0, table, version: 0, kind, key_bytes, value_bytes, expires };
        // SAFETY: `bytes` bytes from `at` lie behind the head of a segment that is this head's alone (`make_room`),
        // and no location leads there yet. The caller's slices cannot lie there, since staged bytes are lent to
        // nobody.
        unsafe {
            at.copy_from_nonoverlapping(header.encode().as_ptr(), OBJECT_HEADER_BYTES);
            at.add(OBJECT_HEADER_BYTES).copy_from_nonoverlapping(key.as_ptr(), key.len());
            at.add(OBJECT_HEADER_BYTES + key.len()).copy_from_nonoverlapping(value.as_ptr(), value.len());
            if expires {
                at.add(end).cast::<u64>().write_unaligned(expires_ms.to_le());
                end += EXPIRY_BYTES;
            }
            at.add(end).write_bytes(0, bytes - end);
        }
        let content_checksum = content_checksum(key, value, expires_ms);
        Ok(Staged { location: Location::from_offset(offset), header, content_checksum, expires_ms })
    }

    /// Writes another value of the same length into a staged object, and another expiry if it has one.
    pub(crate) fn restage(&self, staged: &mut Staged, key: &[u8], value: &[u8], expires_ms: u64) {
        assert!(value.len() == staged.header.value_bytes && key.len() == staged.header.key_bytes);
        assert!((expires_ms != NEVER_MS) == staged.header.expires, "an expiry needs room");
        let at = self.pointer(staged.location.offset() + OBJECT_HEADER_BYTES + key.len());
        // SAFETY: the staged object's own bytes, which only its writer knows of.
        unsafe {
            at.copy_from_nonoverlapping(value.as_ptr(), value.len());
            if staged.header.expires {
                at.add(value.len()).cast::<u64>().write_unaligned(expires_ms.to_le());
            }
        }
        staged.content_checksum = content_checksum(key, value, expires_ms);
        staged.expires_ms = expires_ms;
    }

    /// Writes version and checksum of a staged object: it may be published now.
    #[inline]
    pub(crate) fn seal(&self, staged: &Staged, version: u64) {
        let header = Header { version, ..staged.header }.sealed(staged.content_checksum);
        let at = self.pointer(staged.location.offset());
        // SAFETY: the staged object's own bytes, 8-byte aligned; nobody but the cleaner can read them meanwhile, and
        // it reads the word atomically and the checksum not at all.
        unsafe {
            at.cast::<u32>().write(header.checksum.to_le());
            AtomicWord::from_ptr(at.add(8).cast()).store(header.word().to_le(), Relaxed);
        }
    }

    /// Takes a staged object back: for good if it is the last behind `head`, else it is buried where it lies.
    pub(crate) fn unstage(&self, head: &mut Head, staged: &Staged) {
        let offset = staged.location.offset();
        let bytes = staged.bytes() as usize;
        let segment = self.segment_of(staged.location);
        let within = offset - ((segment.0 as usize) << self.segment_shift);
        if head.segment == Some(segment) && within + bytes == head.offset {
            head.offset = within;
        } else {
            self.bury(staged.location, bytes as u32);
        }
    }

    /// Copies a whole object behind `head`, as it is. For the cleaner, which may use the reserve.
    pub(crate) fn copy(
        &self,
        head: &mut Head,
        source: Location,
        bytes: usize,
    ) -> Result<Location, NoSegment> {
        let segment = self.make_room(head, bytes, || 0)?;
        let offset = ((segment.0 as usize) << self.segment_shift) + head.offset;
        head.offset += bytes;
        // SAFETY: the source is an object in a segment that is being cleaned, hence not written; the target lies
        // behind a head of ours in another segment.
        unsafe { self.pointer(offset).copy_from_nonoverlapping(self.pointer(source.offset()), bytes) };
        Ok(Location::from_offset(offset))
    }

    /// Takes the last `bytes` behind the head back.
    pub(crate) fn uncopy(&self, head: &mut Head, bytes: usize) {
        head.offset -= bytes;
    }

    /// Counts the `bytes` at `location` as unreachable.
    #[inline]
    pub(crate) fn bury(&self, location: Location, bytes: u32) {
        self.segments.bury(self.segment_of(location), bytes);
    }

    /// The object at a location that the index gave under this pin.
    #[inline(always)]
    pub(crate) fn object<'p>(&self, location: Location, _pin: &'p EpochPin<'_>) -> Object<'p> {
        let at = self.pointer(location.offset());
        // SAFETY: the index holds locations of sealed objects only; they are not written again, and their segment is
        // not reused before the pin ends. The lengths were written by `seal`.
        unsafe {
            let header = &*at.cast::<[u8; OBJECT_HEADER_BYTES]>();
            let word = u64::from_le(at.add(8).cast::<u64>().read());
            let lengths = u32::from_le(at.add(16).cast::<u32>().read());
            let key_bytes = (lengths & 0xffff) as usize;
            let value_bytes = (lengths >> 16) as usize | ((word >> 59) as usize) << 16;
            let key_at = at.add(OBJECT_HEADER_BYTES);
            let key = std::slice::from_raw_parts(key_at, key_bytes);
            let value = std::slice::from_raw_parts(key_at.add(key_bytes), value_bytes);
            let expires_ms = match word & EXPIRES {
                0 => NEVER_MS,
                _ => u64::from_le(key_at.add(key_bytes + value_bytes).cast::<u64>().read_unaligned()),
            };
            Object::new(header, word, key, value, expires_ms)
        }
    }

    /// Asks for the first three lines at `location`: what is left of the first, and 128 bytes behind it.
    #[inline]
    pub(crate) fn prefetch(&self, location: Location) {
        let at = self.pointer(location.offset());
        prefetch(at);
        prefetch(at.wrapping_add(64));
        prefetch(at.wrapping_add(128));
    }

    /// Asks for the head of the object at `location`.
    #[inline]
    pub(crate) fn prefetch_head(&self, location: Location) {
        prefetch(self.pointer(location.offset()));
    }

    /// Asks for the head and a key of so many bytes of the object at `location`, with where its value begins.
    #[inline]
    pub(crate) fn prefetch_key(&self, location: Location, key_bytes: usize) {
        let at = self.pointer(location.offset());
        prefetch(at);
        prefetch(at.wrapping_add(OBJECT_HEADER_BYTES + key_bytes));
    }

    /// Location of the first object of a segment.
    pub(crate) fn first(&self, segment: SegmentId) -> Location {
        Location::from_offset(((segment.0 as usize) << self.segment_shift) + SEGMENT_HEADER_BYTES)
    }

    /// The header and key of the entry at `location` of a closed segment, for the cleaner.
    pub(crate) fn entry<'p>(&self, location: Location, _pin: &'p EpochPin<'_>) -> (Header, &'p [u8]) {
        let at = self.pointer(location.offset());
        // SAFETY: a closed segment is a row of entries, at least staged; of those `seal` alone changes words 0..4 and
        // 8..16, the latter atomically. The cleaner, which alone frees segments, is the caller.
        unsafe {
            let mut bytes = [0; OBJECT_HEADER_BYTES];
            let word = AtomicWord::from_ptr(at.add(8).cast()).load(Relaxed);
            bytes[4..8].copy_from_slice(std::slice::from_raw_parts(at.add(4), 4));
            bytes[8..16].copy_from_slice(&word.to_ne_bytes());
            bytes[16..20].copy_from_slice(std::slice::from_raw_parts(at.add(16), 4));
            let header = Header::decode(&bytes).expect("a closed segment is a row of entries");
            let key = std::slice::from_raw_parts(at.add(OBJECT_HEADER_BYTES), header.key_bytes);
            (header, key)
        }
    }

    /// Gives the pages of an empty segment back to the system.
    pub(crate) fn give_back(&self, segment: SegmentId) {
        let start = (segment.0 as usize) << self.segment_shift;
        self.mapping.give_back(start..start + self.segment_bytes());
    }

    /// Segments that an ordinary writer must leave, given how many bytes the indexes take.
    pub(crate) fn keep_for_writers(&self, index_bytes: u64) -> u64 {
        RESERVE_SEGMENTS + index_bytes.div_ceil(self.segment_bytes() as u64)
    }
}
