//! Whole objects between the log and the bytes in which they travel.
//!
//! Each side makes one copy: out of the log unchanged, into it with the number of the new table. `carried.rs` checks
//! the objects, not this file.

use crate::carried::Carried;
use crate::epoch::EpochPin;
use crate::index::Location;
use crate::log::head::Head;
use crate::log::{Log, NoSegment, Staged};
use crate::object::{Header, OBJECT_HEADER_BYTES};

impl Log {
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
        let header = Header { checksum: 0, table, version: 0, ..carried.header() };
        let (content, bytes) = (carried.content(), header.object_bytes());
        self.make_room(head, bytes, || self.claim_of_writer(bytes, keep()))?;
        let offset = head.offset;
        head.offset += bytes;
        head.appended += bytes as u64;
        let at = self.pointer(offset);
        let end = OBJECT_HEADER_BYTES + content.len();
        // SAFETY: `bytes` bytes from `at` lie after the head of a segment that only this head owns (`make_room`), and
        // no location points there yet. The content has the length that its header states (`Carried::split`) and
        // cannot lie there, since staged bytes are never lent.
        unsafe {
            at.copy_from_nonoverlapping(header.encode().as_ptr(), OBJECT_HEADER_BYTES);
            at.add(OBJECT_HEADER_BYTES).copy_from_nonoverlapping(content.as_ptr(), content.len());
            at.add(end).write_bytes(0, bytes - end);
        }
        let (location, expires_ms) = (Location::from_offset(offset), carried.expires_ms());
        Ok(Staged { location, header, content_checksum, expires_ms })
    }
}
