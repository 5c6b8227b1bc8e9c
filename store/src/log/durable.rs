//! The log as a disk sees it: numbers of segments, positions of durable heads, bytes that no longer change, tombstones.

use crate::cut::{LogPosition, Wait};
use crate::durable::{Opened, SegmentPlace};
use crate::index::Location;
use crate::limits::FRAMES_PER_WINDOW;
use crate::log::{Head, Log, NoSegment, Role, SEGMENT_FORMAT, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC, Staged};
use crate::object::{Kind, NEVER_MS, Object};
use crate::segment::{Claim, SegmentId, State};

/// Returns the sequence number in a segment's header; `None` if the bytes are none.
pub(crate) fn read_segment_header(bytes: &[u8]) -> Option<u64> {
    let header = bytes.first_chunk::<SEGMENT_HEADER_BYTES>()?;
    let [m0, m1, m2, m3, f0, f1, _, _, s @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *header;
    let is_known = u32::from_le_bytes([m0, m1, m2, m3]) == SEGMENT_MAGIC
        && u16::from_le_bytes([f0, f1]) == SEGMENT_FORMAT;
    is_known.then(|| u64::from_le_bytes(s))
}

impl Log {
    /// Tells those who look after the disk of a head's new segment, in a log that has one.
    pub(super) fn begin_segment(&self, segment: SegmentId, sequence: u32, role: Role) {
        let Some(durable) = &self.durable else { return };
        let writer = if let Role::Writer(writer) = role { Some(writer) } else { None };
        self.segments.set_sequence(segment, sequence, writer);
        if role != Role::Memory {
            durable.begin(sequence, segment);
        }
        if let Some(writer) = writer {
            let seglets = self.segments.run(segment).len() as u32;
            let frames = (seglets * FRAMES_PER_WINDOW).div_ceil(self.segments.window_seglets());
            durable.open(Opened { writer, sequence, place: SegmentPlace(segment.0), frames });
        }
    }

    /// Returns whether a head must wait for frames of the disk before it opens a segment. The heads of survivors never do:
    /// their work frees frames.
    pub(super) fn must_wait(&self, head: &Head) -> bool {
        let Role::Writer(writer) = head.role else { return false };
        self.durable.as_ref().is_some_and(|durable| writer < durable.cores() && durable.lacks_frames())
    }

    /// Returns the position of a durable head.
    pub(crate) fn position(&self, head: &Head) -> LogPosition {
        let start = head.segment.map_or(head.offset, |segment| self.start_of(segment.0));
        LogPosition { sequence: head.sequence, bytes: (head.offset - start) as u32 }
    }

    /// Returns the number on the disk of the segment at `location`; 0 if it stays in memory.
    #[inline]
    pub(crate) fn sequence_at(&self, location: Location) -> u32 {
        self.segments.sequence_at(self.seglet_of(location))
    }

    /// Returns the location of an object that a pin still holds.
    #[inline]
    pub(crate) fn location_of(&self, object: &Object<'_>) -> Location {
        Location::from_offset(object.address() - self.mapping.base().as_ptr().addr())
    }

    /// Returns whether the disk holds the entry at `location`, or need not.
    #[inline]
    pub(crate) fn is_stable(&self, location: Location) -> bool {
        self.has(Wait::Stable, location)
    }

    /// Returns whether the entry at `location` is where somebody waits for it to be, or need not.
    #[inline]
    pub(crate) fn has(&self, wait: Wait, location: Location) -> bool {
        let seglet = self.seglet_of(location);
        self.segments
            .unsynced_of(seglet)
            .is_none_or(|writer| self.is_below_cut(wait, location, seglet, writer))
    }

    /// As [`Log::has`], for a segment that the disk does not hold completely.
    #[cold]
    fn is_below_cut(&self, wait: Wait, location: Location, seglet: u32, writer: usize) -> bool {
        let Some(durable) = &self.durable else { return true };
        let (reached, sequence) = (durable.position_of(wait, writer), self.segments.sequence_at(seglet));
        // A position behind the entry's beginning is behind its end.
        let bytes = || location.offset() - self.start_of(self.segments.first_of(seglet, sequence));
        reached.sequence > sequence || reached.sequence == sequence && reached.bytes as usize > bytes()
    }

    /// Returns the bytes of a closed segment, header included; `None` of a head's.
    pub(crate) fn closed_bytes(&self, segment: SegmentId) -> Option<usize> {
        let is_closed = self.segments.state(segment) != State::Head;
        is_closed.then(|| SEGMENT_HEADER_BYTES + self.segments.used(segment) as usize)
    }

    /// Returns the first `to` bytes of a segment from `from` on, which are no longer written.
    ///
    /// # Panics
    /// If the disk holds the segment already, or its writer has not got there.
    pub(crate) fn sealed_bytes(
        &self,
        Opened { writer, sequence, place, .. }: Opened,
        from: usize,
        to: usize,
    ) -> &[u8] {
        let (segment, durable) = (SegmentId(place.0), self.durable.as_ref().expect("the log has a disk"));
        let position = durable.cuts.position(writer);
        assert_eq!(self.segments.unsynced_of(place.0), Some(writer), "the disk has no use for the segment");
        assert_eq!(self.segments.sequence_at(place.0), sequence, "the segment has this number");
        let end = match position.sequence.cmp(&sequence) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => position.bytes as usize,
            std::cmp::Ordering::Greater => SEGMENT_HEADER_BYTES + self.segments.used(segment) as usize,
        };
        assert!(from <= to && to <= end, "{from} to {to} of {end} bytes");
        if from == to {
            // Perhaps behind the last byte of the memory.
            return &[];
        }
        // SAFETY: the bytes lie in the segment. Its writer has sealed what lies below its position and never goes back,
        // and the segment stays until it is reported as stable, which takes the caller.
        unsafe { std::slice::from_raw_parts(self.pointer(self.start_of(place.0) + from), to - from) }
    }

    /// Copies the key of a tombstone to a durable head.
    pub(crate) fn stage_tombstone(
        &self,
        head: &mut Head,
        claim: impl FnOnce(usize) -> Claim,
        table: u32,
        key: &[u8],
    ) -> Result<Staged, NoSegment> {
        debug_assert_ne!(head.role, Role::Memory, "a tombstone is for a replay");
        let staged = self.append(head, claim, (table, Kind::Tombstone, true), (key, &[]), NEVER_MS)?;
        head.tombstones += staged.bytes();
        Ok(staged)
    }

    /// Copies a completion record to a durable head.
    pub(crate) fn stage_completion(
        &self,
        head: &mut Head,
        claim: impl FnOnce(usize) -> Claim,
        table: u32,
        content: (&[u8], &[u8]),
    ) -> Result<Staged, NoSegment> {
        debug_assert_ne!(head.role, Role::Memory, "a completion record is for a replay");
        self.append(head, claim, (table, Kind::Completion, false), content, NEVER_MS)
    }
}
