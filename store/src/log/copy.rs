//! Whole objects: copied within the log by the cleaner, and between the log and the bytes in which they travel.
//!
//! The cleaner walks through the entries of a closed segment and copies those that it keeps to its own heads, unchanged.
//! A transfer makes one copy at each side: out of the log unchanged, into it with the number of the new table. Its
//! objects are checked before they come here (`object.rs`).

// For bytes of the region, which loom does not model.
use std::sync::atomic::{AtomicU64 as AtomicWord, Ordering::Relaxed};

use crate::checksum;
use crate::epoch::EpochPin;
use crate::index::Location;
use crate::log::{Head, Log, NoSegment, Role, SEGMENT_HEADER_BYTES, Staged};
use crate::object::{Carried, Header, Kind, Lengths, OBJECT_HEADER_BYTES, Object};
use crate::segment::{Claim, SegmentId};

impl Log {
    /// Returns the location of the first object of a segment.
    pub(crate) fn first(&self, segment: SegmentId) -> Location {
        Location::from_offset(self.start_of(segment.0) + SEGMENT_HEADER_BYTES)
    }

    /// Returns the header, key and predecessor of the entry at `offset` of a closed segment that was appended to up to `end`, for
    /// the cleaner. `None` if the bytes are no entry that ends there, because they were damaged.
    #[inline]
    pub(crate) fn entry<'p>(
        &self,
        offset: usize,
        end: usize,
        _pin: &'p EpochPin<'_>,
    ) -> Option<(Header, &'p [u8], u32)> {
        if offset + OBJECT_HEADER_BYTES > end {
            return None;
        }
        let at = self.pointer(offset);
        // SAFETY: the header lies before `end` (checked above). A closed segment is a row of entries, at least staged;
        // only `seal` changes their bytes 0..4 and 8..16, the latter atomically. The caller is the cleaner, and only
        // the cleaner frees segments.
        let header = unsafe {
            let mut bytes = [0; OBJECT_HEADER_BYTES];
            let word = AtomicWord::from_ptr(at.add(8).cast()).load(Relaxed);
            bytes[4..8].copy_from_slice(std::slice::from_raw_parts(at.add(4), 4));
            bytes[8..16].copy_from_slice(&word.to_ne_bytes());
            bytes[16..20].copy_from_slice(std::slice::from_raw_parts(at.add(16), 4));
            Header::decode(&bytes)?
        };
        if offset + header.object_bytes() > end {
            return None;
        }
        // SAFETY: the key lies before `end`, in a closed segment, and is never written again.
        let key =
            unsafe { std::slice::from_raw_parts(at.add(OBJECT_HEADER_BYTES), header.lengths.key_bytes) };
        let predecessor = match header.lengths.predecessor {
            false => 0,
            // SAFETY: as for the key; only the cleaner changes an entry's predecessor, with its version.
            true => u32::from_le(unsafe {
                at.add(OBJECT_HEADER_BYTES + header.lengths.content_bytes()).cast::<u32>().read_unaligned()
            }),
        };
        Some((header, key, predecessor))
    }

    /// Copies a whole object without its predecessor to `head`, and seals the copy. The caller passes its claim and has
    /// checked the object.
    pub(crate) fn copy_alone(
        &self,
        head: &mut Head,
        object: &Object<'_>,
        table: u32,
        claim: impl FnOnce() -> Claim,
    ) -> Result<Staged, NoSegment> {
        let lengths = Lengths { predecessor: false, ..object.lengths() };
        let header = Header { checksum: 0, table, version: 0, kind: Kind::Object, lengths };
        self.make_room(head, lengths.object_bytes(), claim)?;
        let staged = self.place(head, header, (object.key(), object.value()), object.expires_ms());
        self.seal(&staged, object.version(), 0);
        Ok(staged)
    }

    /// Makes an entry that nobody can find, and that no position includes yet, mean nothing; or, with `ends`, the end of
    /// its key's entries up to its version. For the cleaner.
    pub(crate) fn void(&self, location: Location, ends: bool) {
        let at = self.pointer(location.offset());
        // SAFETY: an entry of a segment that is the cleaner's; readers never had its location, or their pins are over, and
        // the log thread does not read beyond a position.
        unsafe {
            let bytes = &*at.cast::<[u8; OBJECT_HEADER_BYTES]>();
            let Some(header) = Header::decode(bytes) else { return };
            let (version, kind) = if ends { (header.version, Kind::Tombstone) } else { (0, header.kind) };
            let header = Header { version, kind, ..header };
            let content_at = at.add(OBJECT_HEADER_BYTES);
            let content = std::slice::from_raw_parts(content_at, header.lengths.content_bytes());
            let predecessor = match header.lengths.predecessor {
                true => u32::from_le(content_at.add(content.len()).cast::<u32>().read_unaligned()),
                false => 0,
            };
            let header = header.sealed(checksum::append(0, content), predecessor);
            at.cast::<u32>().write(header.checksum.to_le());
            AtomicWord::from_ptr(at.add(8).cast()).store(header.word().to_le(), Relaxed);
        }
    }

    /// Copies a whole object unchanged to `head`. For the cleaner, which passes its claim.
    #[inline]
    pub(crate) fn copy(
        &self,
        head: &mut Head,
        source: Location,
        bytes: usize,
        claim: impl FnOnce() -> Claim,
    ) -> Result<Location, NoSegment> {
        self.make_room(head, bytes, claim)?;
        let offset = head.offset;
        head.offset += bytes;
        debug_assert!(
            source.offset() + bytes <= offset || head.offset <= source.offset(),
            "a copy lies beside what it is copied from"
        );
        // SAFETY: the source is an object in a segment that is being cleaned, hence not written; the target lies
        // after a head of the cleaner in another segment.
        unsafe { self.pointer(offset).copy_from_nonoverlapping(self.pointer(source.offset()), bytes) };
        Ok(Location::from_offset(offset))
    }

    /// Returns the bytes of the object at a location that the index gave under this pin; `None` if damaged lengths
    /// lead out of the window.
    #[inline]
    pub(crate) fn bytes_of<'p>(&self, location: Location, _pin: &'p EpochPin<'_>) -> Option<&'p [u8]> {
        let at = self.pointer(location.offset());
        // SAFETY: as in `Log::object`: the index holds only locations of sealed objects, which are never written again
        // and stay as long as the pin.
        let lengths = Header::lengths(unsafe { &*at.cast::<[u8; OBJECT_HEADER_BYTES]>() });
        let bytes = lengths.object_bytes();
        let within = location.offset() & (self.window_bytes - 1);
        // SAFETY: this many bytes lie in the window. Those of the object are sealed; bytes that damaged lengths add
        // belong to the region, and are lent as bytes that are checked before use.
        (within + bytes <= self.window_bytes).then(|| unsafe { std::slice::from_raw_parts(at, bytes) })
    }

    /// Copies a checked object to the head, for `table` (the only copy that is made of it).
    #[inline]
    pub(crate) fn stage_carried(
        &self,
        head: &mut Head,
        keep: impl FnOnce() -> u64,
        table: u32,
        carried: &Carried<'_>,
        content_checksum: u32,
    ) -> Result<Staged, NoSegment> {
        let lengths = Lengths { predecessor: head.role != Role::Memory, ..carried.header().lengths };
        self.stage_content(
            head,
            |bytes| self.claim_of_writer(bytes, keep()),
            (table, lengths),
            (carried.content(), content_checksum),
            carried.expires_ms(),
        )
    }

    /// Copies the content of an object with its checksum to the head, for `table` (the only copy that is made of it).
    #[inline]
    pub(crate) fn stage_content(
        &self,
        head: &mut Head,
        claim: impl FnOnce(usize) -> Claim,
        (table, lengths): (u32, Lengths),
        (content, content_checksum): (&[u8], u32),
        expires_ms: u64,
    ) -> Result<Staged, NoSegment> {
        assert_eq!(content.len(), lengths.content_bytes(), "the lengths are those of the content");
        let header = Header { checksum: 0, table, version: 0, kind: Kind::Object, lengths };
        let bytes = header.object_bytes();
        self.make_room(head, bytes, || claim(bytes))?;
        let offset = head.offset;
        head.offset += bytes;
        head.appended += bytes as u64;
        let at = self.pointer(offset);
        let end = OBJECT_HEADER_BYTES + content.len();
        // SAFETY: `bytes` bytes from `at` lie after the head of a segment that only this head owns (`make_room`), and
        // no location points there yet. The content has the length that the header states (checked above) and cannot
        // lie there, since staged bytes are never lent.
        unsafe {
            at.copy_from_nonoverlapping(header.encode().as_ptr(), OBJECT_HEADER_BYTES);
            at.add(OBJECT_HEADER_BYTES).copy_from_nonoverlapping(content.as_ptr(), content.len());
            at.add(end).write_bytes(0, bytes - end);
        }
        Ok(Staged { location: Location::from_offset(offset), header, content_checksum, expires_ms })
    }
}
