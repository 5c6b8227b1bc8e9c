//! The segmented log: one mapped region, appended to by heads, read through locations.
//!
//! ```text
//!   segment: [ header 32 B │ object │ object │ ... │ unused ]     a run of seglets, see seglet.rs
//!   head:    this core's segment and the offset where the next object goes
//! ```
//!
//! Only this file and `log/copy.rs` touch the region's bytes. An object is *staged* (copied to the head, known to its
//! writer only), *sealed* (version and checksum written) and then published by storing its location in the index; from
//! then on it is never written. A staged object that is not published is taken back or buried. The cleaner may walk
//! over an object that is still staged (its segment can be full already), so sealing stores atomically.
//!
//! A writer that finds no room notes how many seglets it needs in one piece. The cleaner clears the note when they are
//! free, or reports that it cannot provide them (`cleaner/choice.rs`): a lost note costs one more try.

mod ahead;
mod claims;
mod copy;
mod durable;
mod head;

pub(crate) use durable::read_segment_header;
pub(crate) use head::{Head, Role};

use std::io;
// For bytes of the region, which loom does not model.
use std::sync::atomic::{AtomicU64 as AtomicWord, Ordering::Relaxed};

use crate::durable::Durable;
use crate::epoch::EpochPin;
use crate::index::Location;
use crate::limits::{LENGTHS_BYTES_MAX, SEGLET_BYTES_MIN, SEGLETS_PER_WINDOW_MAX, VERSION_MAX};
use crate::memory::Mapping;
use crate::object::{
    EXPIRES, EXPIRY_BYTES, Header, Kind, Lengths, NEVER_MS, OBJECT_HEADER_BYTES, Object, PREDECESSOR,
    PREDECESSOR_BYTES, content_checksum,
};
use crate::segment::{Claim, SegmentId, Segments, State};
use crate::sync::{AtomicU32, AtomicU64};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 32;
/// The first bytes of a segment.
const SEGMENT_MAGIC: u32 = 0x4753_5053;
const SEGMENT_FORMAT: u16 = 1;

/// An object that was copied to the log and cannot be found yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) location: Location,
    header: Header,
    content_checksum: u32,
    pub(crate) expires_ms: u64,
}

impl Staged {
    /// Returns the bytes of the object in the log.
    #[inline]
    pub(crate) fn bytes(&self) -> u32 {
        self.header.object_bytes() as u32
    }
}

/// An error: no segment can be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NoSegment;

/// The log of one store.
pub(crate) struct Log {
    mapping: Mapping,
    window_bytes: usize,
    seglet_shift: u32,
    pub(crate) segments: Segments,
    /// The numbers of segments that were given last: of those for the disk, where 32 bits have to last, and of others.
    opened: AtomicU64,
    opened_in_memory: AtomicU64,
    /// The log's clock: seglets that writers have filled.
    clock: AtomicU64,
    /// Bytes of objects that writers have appended, as far as their heads have reported.
    written_bytes: AtomicU64,
    /// Contiguous seglets that a writer could not get although as many were free; 0 without such a writer.
    wanted: AtomicU32,
    /// Contiguous seglets that the cleaner could not provide at the last request; 0 if it could.
    refused: AtomicU32,
    /// Of a log with durable heads.
    pub(crate) durable: Option<Box<Durable>>,
}

impl Log {
    /// Creates a log of `count` windows of `window_bytes` (a power of two), each at most a segment.
    pub(crate) fn new(
        window_bytes: usize,
        count: u32,
        cores: usize,
        (huge_pages, durable): (bool, bool),
    ) -> io::Result<Log> {
        assert!(window_bytes.is_power_of_two());
        let bytes = window_bytes * count as usize;
        let mapping = Mapping::new(bytes + LENGTHS_BYTES_MAX, if huge_pages { bytes } else { 0 })?;
        let seglet_bytes = (window_bytes / SEGLETS_PER_WINDOW_MAX as usize).max(SEGLET_BYTES_MIN);
        Ok(Log {
            mapping,
            window_bytes,
            seglet_shift: seglet_bytes.trailing_zeros(),
            segments: Segments::new(count, (window_bytes / seglet_bytes) as u32, cores),
            opened: AtomicU64::new(0),
            opened_in_memory: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            durable: durable.then(|| Box::new(Durable::new(cores))),
        })
    }

    /// Returns the bytes of a window, which is the longest segment.
    pub(crate) fn window_bytes(&self) -> usize {
        self.window_bytes
    }

    /// Returns the bytes of a seglet.
    pub(crate) fn seglet_bytes(&self) -> usize {
        1 << self.seglet_shift
    }

    /// Returns the bytes of the log.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.segments.seglets()) << self.seglet_shift
    }

    /// Returns the seglets needed for `object_bytes` and the segment's header.
    pub(crate) fn seglets_for(&self, object_bytes: usize) -> u32 {
        (SEGMENT_HEADER_BYTES + object_bytes).div_ceil(self.seglet_bytes()) as u32
    }

    /// Returns the object bytes that writers have written, up to their last background steps.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed)
    }

    /// Returns the bytes that writers have written, in seglets.
    pub(crate) fn clock(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    /// Backs a window with memory; see [`Mapping::populate`].
    pub(crate) fn populate(&self, window: u32) -> io::Result<()> {
        let start = window as usize * self.window_bytes;
        self.mapping.populate(start..start + self.window_bytes)
    }

    /// Returns the bytes of the largest object that fits.
    pub(crate) fn object_bytes_max(&self) -> usize {
        self.window_bytes - SEGMENT_HEADER_BYTES
    }

    #[inline]
    fn seglet_of(&self, location: Location) -> u32 {
        (location.offset() >> self.seglet_shift) as u32
    }

    fn start_of(&self, seglet: u32) -> usize {
        (seglet as usize) << self.seglet_shift
    }

    #[inline]
    fn pointer(&self, offset: usize) -> *mut u8 {
        debug_assert!((offset as u64) < self.bytes());
        // SAFETY: offsets come from heads and locations, which lie in the mapping.
        unsafe { self.mapping.base().as_ptr().add(offset) }
    }

    /// Makes all later segments get numbers above this one.
    pub(crate) fn open_above(&self, sequence: u32) {
        self.opened.fetch_max(u64::from(sequence), Relaxed);
    }

    fn write_segment_header(&self, segment: SegmentId, bytes: usize, sequence: u64) {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        header[0..4].copy_from_slice(&SEGMENT_MAGIC.to_le_bytes());
        header[4..6].copy_from_slice(&SEGMENT_FORMAT.to_le_bytes());
        header[8..16].copy_from_slice(&sequence.to_le_bytes());
        header[16..20].copy_from_slice(&segment.0.to_le_bytes());
        header[20..24].copy_from_slice(&(bytes as u32).to_le_bytes());
        let at = self.pointer(self.start_of(segment.0));
        // SAFETY: this thread has taken the segment and no location points into it; its header fits.
        unsafe { at.copy_from_nonoverlapping(header.as_ptr(), SEGMENT_HEADER_BYTES) };
    }

    /// Returns the bytes that a writer appended since the last call, and counts them as written.
    pub(crate) fn take_appended(&self, head: &mut Head) -> u64 {
        self.count_written(head);
        head.counted = 0;
        std::mem::take(&mut head.appended)
    }

    fn count_written(&self, head: &mut Head) {
        if head.appended > head.counted {
            self.written_bytes.fetch_add(head.appended - head.counted, Relaxed);
            head.counted = head.appended;
        }
    }

    /// Returns the unused seglets of a head, which are free when it is closed.
    pub(crate) fn left(&self, head: &Head) -> u32 {
        ((head.end - head.offset) / self.seglet_bytes()) as u32
    }

    /// Ensures that `bytes` fit after the head, with a new segment if necessary.
    #[inline]
    fn make_room(
        &self,
        head: &mut Head,
        bytes: usize,
        claim: impl FnOnce() -> Claim,
    ) -> Result<(), NoSegment> {
        debug_assert!(
            bytes.is_multiple_of(8) && bytes <= self.object_bytes_max(),
            "{bytes} bytes of an object"
        );
        if head.segment.is_some() && head.offset + bytes <= head.end {
            return Ok(());
        }
        self.open(head, claim())?;
        debug_assert!(head.offset + bytes <= head.end, "the claim was for the whole object");
        Ok(())
    }

    /// Opens a new segment for a head. The old one is closed only if there is a new one: a small object may still fit.
    #[cold]
    fn open(&self, head: &mut Head, claim: Claim) -> Result<(), NoSegment> {
        if self.must_wait(head) {
            return Err(NoSegment);
        }
        let segment = self.segments.take(claim).ok_or(NoSegment)?;
        self.close(head);
        self.count_written(head);
        let run = self.segments.run(segment);
        let (start, end) = (self.start_of(run.start), self.start_of(run.end));
        let number = match head.role {
            Role::Compaction(sequence) => u64::from(sequence),
            Role::Memory => self.opened_in_memory.fetch_add(1, Relaxed) + 1,
            Role::Writer(_) => self.opened.fetch_add(1, Relaxed) + 1,
        };
        self.write_segment_header(segment, end - start, number);
        let sequence = if head.role == Role::Memory { 0 } else { number as u32 };
        self.begin_segment(segment, sequence, head.role);
        let offset = start + SEGMENT_HEADER_BYTES;
        *head = Head {
            segment: Some(segment),
            offset,
            end,
            generation: 0,
            sequence,
            tombstones: 0,
            needed: 0,
            ..*head
        };
        Ok(())
    }

    /// Closes the head's segment; the next append takes another. Seglets that it did not reach are free at once.
    pub(crate) fn close(&self, head: &mut Head) {
        let Some(segment) = head.segment.take() else { return };
        debug_assert_eq!(self.segments.state(segment), State::Head, "a head owns an open segment");
        debug_assert!(
            self.start_of(segment.0) < head.offset && head.offset <= head.end,
            "a head stays in its segment"
        );
        let used = head.offset - self.start_of(segment.0) - SEGMENT_HEADER_BYTES;
        if head.generation == 0 {
            self.clock.fetch_add(u64::from(self.seglets_for(used)), Relaxed);
        }
        if head.role != Role::Memory {
            let gone = self.durable.as_ref().map_or(0, |durable| durable.gone_count());
            self.segments.set_tombstones(segment, head.tombstones, gone);
            self.segments.set_needed(segment, head.needed);
            let written = if matches!(head.role, Role::Writer(_)) { used as u32 } else { head.disk_bytes };
            self.segments.set_disk_bytes(segment, written);
        }
        self.segments.close(segment, used as u32, self.seglets_for(used), self.clock(), head.generation);
    }

    /// Copies key, value and an expiry that is not [`NEVER_MS`] to the head (the only copy that a write makes of
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
        let claim = |bytes| self.claim_of_writer(bytes, keep());
        let predecessor = head.role != Role::Memory;
        self.append(head, claim, (table, Kind::Object, predecessor), (key, value), expires_ms)
    }

    #[inline]
    fn append(
        &self,
        head: &mut Head,
        claim: impl FnOnce(usize) -> Claim,
        (table, kind, predecessor): (u32, Kind, bool),
        (key, value): (&[u8], &[u8]),
        expires_ms: u64,
    ) -> Result<Staged, NoSegment> {
        let expires = expires_ms != NEVER_MS;
        let lengths = Lengths { key_bytes: key.len(), value_bytes: value.len(), expires, predecessor };
        let bytes = lengths.object_bytes();
        self.make_room(head, bytes, || claim(bytes))?;
        Ok(self.place(
            head,
            Header { checksum: 0, table, version: 0, kind, lengths },
            (key, value),
            expires_ms,
        ))
    }

    /// Copies an entry to the head, which has room for it.
    #[inline]
    fn place(
        &self,
        head: &mut Head,
        header: Header,
        (key, value): (&[u8], &[u8]),
        expires_ms: u64,
    ) -> Staged {
        let (bytes, expires) = (header.object_bytes(), header.lengths.expires);
        let offset = head.offset;
        head.offset += bytes;
        head.appended += bytes as u64;
        let at = self.pointer(offset);
        let mut end = OBJECT_HEADER_BYTES + key.len() + value.len();
        // SAFETY: `bytes` bytes from `at` lie after the head of a segment that only this head owns (`make_room`), and
        // no location points there yet. The caller's slices cannot lie there, since staged bytes are never lent.
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
        Staged { location: Location::from_offset(offset), header, content_checksum, expires_ms }
    }

    /// Writes another value of the same length into a staged object, and another expiry if it has one.
    pub(crate) fn restage(&self, staged: &mut Staged, key: &[u8], value: &[u8], expires_ms: u64) {
        let lengths = staged.header.lengths;
        assert!(value.len() == lengths.value_bytes && key.len() == lengths.key_bytes);
        assert!((expires_ms != NEVER_MS) == lengths.expires, "an expiry needs room");
        let at = self.pointer(staged.location.offset() + OBJECT_HEADER_BYTES + key.len());
        // SAFETY: the staged object's own bytes, known only to its writer.
        unsafe {
            at.copy_from_nonoverlapping(value.as_ptr(), value.len());
            if lengths.expires {
                at.add(value.len()).cast::<u64>().write_unaligned(expires_ms.to_le());
            }
        }
        staged.content_checksum = content_checksum(key, value, expires_ms);
        staged.expires_ms = expires_ms;
    }

    /// Writes version, predecessor and checksum of a staged object, which can then be published.
    #[inline]
    pub(crate) fn seal(&self, staged: &Staged, version: u64, predecessor: u32) {
        debug_assert!((1..=VERSION_MAX).contains(&version), "{version} is no version of an object");
        let header = Header { version, ..staged.header }.sealed(staged.content_checksum, predecessor);
        let at = self.pointer(staged.location.offset());
        if header.lengths.predecessor {
            let end = OBJECT_HEADER_BYTES + header.lengths.content_bytes();
            // SAFETY: the staged object has room for it there, which nobody reads before it is published.
            unsafe { at.add(end).cast::<u32>().write_unaligned(predecessor.to_le()) };
        }
        // SAFETY: the staged object's own bytes, 8-byte aligned; only the cleaner can read them meanwhile, and it
        // reads the word atomically and never the checksum.
        unsafe {
            at.cast::<u32>().write(header.checksum.to_le());
            AtomicWord::from_ptr(at.add(8).cast()).store(header.word().to_le(), Relaxed);
        }
    }

    /// Takes a staged object back if it is the last one of `head`, otherwise buries it.
    pub(crate) fn unstage(&self, core: usize, head: &mut Head, staged: &Staged) {
        let offset = staged.location.offset();
        let bytes = staged.bytes() as usize;
        // An object that ends at the head lies in the head's segment, because each segment begins with a header.
        if let Some(segment) = head.segment.filter(|_| offset + bytes == head.offset) {
            debug_assert!(
                offset >= self.start_of(segment.0) + SEGMENT_HEADER_BYTES,
                "a head does not go back behind the header of its segment"
            );
            head.offset = offset;
            head.appended = head.appended.saturating_sub(bytes as u64);
            if staged.header.kind == Kind::Tombstone {
                head.tombstones -= staged.bytes();
            }
        } else {
            // It may have been sealed. No position includes it yet, and no replay may find it.
            let word = Header { version: 0, ..staged.header }.word();
            // SAFETY: the staged object's own bytes, as in `seal`.
            unsafe {
                AtomicWord::from_ptr(self.pointer(offset).add(8).cast()).store(word.to_le(), Relaxed);
            }
            self.bury(core, staged.location, bytes as u32);
        }
    }

    /// Counts the `bytes` at `location` as unreachable; called by that core.
    #[inline]
    pub(crate) fn bury(&self, core: usize, location: Location, bytes: u32) {
        self.segments.bury(core, self.seglet_of(location), bytes);
    }

    /// Returns the object at a location that the index gave under this pin.
    #[inline(always)]
    pub(crate) fn object<'p>(&self, location: Location, _pin: &'p EpochPin<'_>) -> Object<'p> {
        let at = self.pointer(location.offset());
        // SAFETY: the index holds only locations of sealed objects; they are not written again, and their segment is
        // not reused before the pin ends. The lengths were written by `seal`; damaged ones end at the latest in the
        // unwritten bytes after the log.
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
            let end = key_bytes + value_bytes + if word & EXPIRES == 0 { 0 } else { EXPIRY_BYTES };
            let behind = if word & PREDECESSOR == 0 { 0 } else { PREDECESSOR_BYTES };
            let predecessor = std::slice::from_raw_parts(key_at.add(end), behind);
            Object::new(header, word, (key, value), expires_ms, predecessor)
        }
    }

    /// As [`Log::object`], for untrusted bytes: `None` if the lengths lead out of the window.
    pub(crate) fn object_within<'p>(&self, location: Location, pin: &'p EpochPin<'_>) -> Option<Object<'p>> {
        let object = self.object(location, pin);
        let within = location.offset() & (self.window_bytes - 1);
        (within + object.log_bytes() <= self.window_bytes).then_some(object)
    }

    /// Flips bits of a byte of the object at `location`, as a failing memory would.
    #[cfg(test)]
    pub(crate) fn damage(&self, location: Location, at: usize, bits: u8) {
        let at = self.pointer(location.offset() + at);
        // SAFETY: a byte of the region; the test has no other thread and lends the object to no one meanwhile.
        unsafe { at.write(at.read() ^ bits) };
    }

    /// Returns the pages of an empty segment to the system.
    pub(crate) fn give_back(&self, segment: SegmentId) {
        debug_assert_eq!(
            self.segments.state(segment),
            State::Retired,
            "only an empty segment loses its pages"
        );
        let run = self.segments.run(segment);
        self.mapping.give_back(self.start_of(run.start)..self.start_of(run.end));
    }
}
