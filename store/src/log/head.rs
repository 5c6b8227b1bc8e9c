//! Heads: the positions at which cores and the cleaner append to the log.
//!
//! A head owns an open segment. When an object does not fit, the head takes another segment and closes the old one:
//! its seglets after the last object are free at once. The closed segment gets the time of the log's clock, which
//! counts the bytes that writers have written, so that the cleaner can weigh free space by age. Nothing here touches
//! the region's bytes; `log.rs` does.

use std::sync::atomic::Ordering::Relaxed;

use crate::log::{Log, NoSegment, SEGMENT_HEADER_BYTES};
use crate::segment::{Claim, SegmentId};

/// The append position of a core or the cleaner. Offsets are in the region.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(super) segment: Option<SegmentId>,
    pub(super) offset: usize,
    end: usize,
    /// How often the cleaner has copied the objects of its segment; 0 for a writer's head.
    generation: u32,
    /// Bytes appended since [`Log::take_appended`].
    pub(super) appended: u64,
    /// The part of `appended` that the log already counts.
    counted: u64,
}

impl Head {
    /// Notes that appended objects come from a segment of this generation.
    pub(crate) fn note_origin(&mut self, generation: u32) {
        self.generation = self.generation.max(generation + 1);
    }
}

impl Log {
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

    /// Opens a new segment for a head. The old one is closed only if there is a new one: a small object may still fit.
    #[cold]
    fn open(&self, head: &mut Head, claim: Claim) -> Result<(), NoSegment> {
        let segment = self.segments.take(claim).ok_or(NoSegment)?;
        self.close(head);
        self.count_written(head);
        let run = self.segments.run(segment);
        let (start, end) = (self.start_of(run.start), self.start_of(run.end));
        self.write_segment_header(segment, end - start);
        let offset = start + SEGMENT_HEADER_BYTES;
        *head = Head { segment: Some(segment), offset, end, generation: 0, ..*head };
        Ok(())
    }

    /// Closes the head's segment; the next append takes another. Seglets that it did not reach are free at once.
    pub(crate) fn close(&self, head: &mut Head) {
        let Some(segment) = head.segment.take() else { return };
        let used = head.offset - self.start_of(segment.0) - SEGMENT_HEADER_BYTES;
        if head.generation == 0 {
            self.clock.fetch_add(u64::from(self.seglets_for(used)), Relaxed);
        }
        self.segments.close(segment, used as u32, self.seglets_for(used), self.clock(), head.generation);
    }
}
