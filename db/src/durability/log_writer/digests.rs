//! When digests are written, and what they say.

use std::sync::atomic::Ordering;

use disk::{Buffer, Digest, DigestSegment, DiskError, Write};

use super::{LogWriter, Segment};
use crate::limits::CUTS_PASSED_OVER;

impl LogWriter {
    /// Returns whether so many cuts wrote nothing since the latest digest that a start might not pass over all of them.
    pub(super) fn is_digest_old(&self, cut: u64) -> bool {
        cut - self.digest_cut > CUTS_PASSED_OVER / 2
    }

    /// Writes what a start finds: the segments of now.
    pub(super) fn write_digest(&mut self, clock_ms: u64) -> Result<(), DiskError> {
        let state = &mut self.state;
        state.digest_number = state.digest_number.wrapping_add(1);
        state.last = state.last_number();
        let segment = |(&sequence, segment): (&u32, &Segment)| {
            let Segment { bytes, class, .. } = *segment;
            DigestSegment { sequence, bytes, class }
        };
        let digest = Digest {
            number: state.digest_number,
            cut: self.store.stable_cut(),
            clock_ms,
            last: state.last,
            survivors: self.survivors.map(|position| (position.sequence, position.bytes)),
            segments: state.segments.iter().map(segment).collect(),
            emptied: self.emptied.iter().copied().collect(),
            left_out: state.left_out.clone(),
            start: state.start,
        };
        let bytes = digest.encode();
        if let Some(replicas) = &mut self.replicas {
            replicas.add_digest(digest.number, &bytes, clock_ms);
        }
        let mut buffer = Buffer::new(bytes.len());
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let frames = self.layout.digest(digest.number % 2);
        let pieces = buffer.chunks(self.layout.frame_bytes);
        assert!(pieces.len() <= self.layout.digest_frames as usize, "the layout has room for the digest");
        let writes: Vec<_> = frames.zip(pieces).map(|(frame, piece)| Write::of(frame, 0, piece)).collect();
        self.figures.disk_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.disk.write(&writes)?;
        self.digest_cut = digest.cut;
        self.digest_clock_ms = clock_ms;
        if self.replicas.is_none() {
            self.store.note_clock(clock_ms);
        }
        Ok(())
    }
}
