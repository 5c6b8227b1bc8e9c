//! Heads: where a core, or the cleaner, appends to the log.
//!
//! A head owns an open segment. When an object does not fit, another segment is taken and the old one closed: its
//! seglets behind the last object are free at once, and it is told when its objects were written, on average, so that
//! the cleaner can weigh free space by age. A writer's segment is as old as the time in which it was filled, one of
//! survivors as old as the segments they come from. Nothing here touches the region's bytes; `log.rs` does.

use std::sync::atomic::Ordering::Relaxed;

use crate::limits::{HEAD_SHARE_DIVISOR, RESERVE_WINDOWS};
use crate::log::{Log, NoSegment, SEGMENT_HEADER_BYTES};
use crate::segment::{Claim, SegmentId};

/// Where a core, or the cleaner, appends. Offsets are in the region.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(super) segment: Option<SegmentId>,
    pub(super) offset: usize,
    end: usize,
    /// What its segment is given when it is closed.
    origin: Origin,
    /// Bytes appended since [`Head::take_appended`].
    pub(super) appended: u64,
}

/// Where the objects behind a head come from: a writer, or the segments that the cleaner has copied.
#[derive(Clone, Copy, Debug, Default)]
struct Origin {
    /// The log's clock when the segment was opened.
    opened: u64,
    /// Bytes that were copied, and the sum over them of the moments at which they were written.
    copied_bytes: u64,
    born_sum: u128,
    generation: u32,
}

impl Head {
    /// Bytes appended since the last call.
    pub(crate) fn take_appended(&mut self) -> u64 {
        std::mem::take(&mut self.appended)
    }

    /// Notes that the last `bytes` come from a segment of this age.
    pub(crate) fn note_origin(&mut self, bytes: u64, born: u64, generation: u32) {
        self.origin.copied_bytes += bytes;
        self.origin.born_sum += u128::from(bytes) * u128::from(born);
        self.origin.generation = self.origin.generation.max(generation + 1);
    }
}

impl Log {
    /// Seglets that a head has not begun to fill: they are free when it is closed.
    pub(crate) fn left(&self, head: &Head) -> u32 {
        ((head.end - head.offset) / self.seglet_bytes()) as u32
    }

    /// What a writer may take that needs `bytes` and has to leave `keep` seglets.
    pub(crate) fn claim_of_writer(&self, bytes: usize, keep: u64) -> Claim {
        let least = self.seglets_for(bytes);
        let share = self.segments.free_count().saturating_sub(keep) / HEAD_SHARE_DIVISOR;
        let most = share.clamp(u64::from(least), u64::from(self.segments.window_seglets())) as u32;
        Claim { least, most, keep, windows_kept: RESERVE_WINDOWS }
    }

    /// Makes sure that `bytes` fit behind the head, with a new segment if need be.
    #[inline]
    pub(super) fn make_room(
        &self,
        head: &mut Head,
        bytes: usize,
        claim: impl FnOnce() -> Claim,
    ) -> Result<(), NoSegment> {
        if head.segment.is_some() && head.offset + bytes <= head.end {
            return Ok(());
        }
        self.open(head, claim())
    }

    /// Opens a new segment for a head. The old one is closed only when there is another: a small object may still fit.
    #[cold]
    fn open(&self, head: &mut Head, claim: Claim) -> Result<(), NoSegment> {
        let segment = self.segments.take(claim).ok_or(NoSegment)?;
        self.close(head);
        let run = self.segments.run(segment);
        let (start, end) = (self.start_of(run.start), self.start_of(run.end));
        self.write_segment_header(segment, end - start);
        let origin = Origin { opened: self.clock(), ..Origin::default() };
        let offset = start + SEGMENT_HEADER_BYTES;
        *head = Head { segment: Some(segment), offset, end, origin, appended: head.appended };
        Ok(())
    }

    /// Closes the head's segment; the next append takes another. Seglets that it did not reach are free at once.
    pub(crate) fn close(&self, head: &mut Head) {
        let Some(segment) = head.segment.take() else { return };
        let used = head.offset - self.start_of(segment.0) - SEGMENT_HEADER_BYTES;
        let Origin { opened, copied_bytes, born_sum, generation } = head.origin;
        let born = match u128::from(copied_bytes) {
            0 => opened.midpoint(self.clock()),
            bytes => (born_sum / bytes) as u64,
        };
        if copied_bytes == 0 {
            self.clock.fetch_add(u64::from(self.seglets_for(used)), Relaxed);
            self.written_bytes.fetch_add(used as u64, Relaxed);
        }
        self.segments.close(segment, used as u32, self.seglets_for(used), born, generation);
    }
}
