//! What the thread that writes the log to a disk asks of a store, and tells it. `durable.rs` has the whole picture.
//!
//! ```text
//!   loop:  cut ── take_opened ── sealed_bytes of each segment below the cut ── (write them) ── note_stable ── note_synced
//!          ── (forget the segments that were released before the cut) ── note_gone
//! ```

use std::ops::Range;

use crate::cut::{AwaitedCuts, LogPosition, Wait};
use crate::durable::{Admission, Durable, Opened, Released};
use crate::segment::SegmentId;
use crate::store::Store;
use crate::sync::{Ordering, Taken};

impl Store {
    fn durable(&self) -> &Durable {
        self.log.durable.as_ref().expect("the store was created with durable heads")
    }

    /// Returns whether the store can have durable tables.
    #[inline]
    pub fn has_durable_heads(&self) -> bool {
        self.log.durable.is_some()
    }

    /// Makes a cut through all heads: fills in the position of each writer. Whatever lies below these positions depends on
    /// nothing above them. For one thread, which waits for writes in progress.
    ///
    /// Returns the cut's number, and the segments released since the last one. The disk may forget these once it holds all
    /// below this cut: it includes their survivors, and whatever ended their other entries.
    pub fn cut(&self, positions: &mut Vec<LogPosition>) -> (u64, Taken<Released>) {
        // Before the cut: what ended the entries of a segment that is released later may lie above it.
        let released = self.durable().released.take_all();
        (self.durable().cuts.cut(positions), released)
    }

    /// Returns whether the disk must have the clock of the cut that was made last, even if nothing else is below it: somebody
    /// has seen that an object has expired since the disk got one. Called after [`Store::cut`].
    pub fn must_write_clock(&self) -> bool {
        let durable = self.durable();
        durable.expired_cut.load(Ordering::SeqCst) > durable.stable_cut.load(Ordering::Relaxed)
    }

    /// Notes that the disk has this time of the store's clock, from which a start goes on.
    pub fn note_clock(&self, now_ms: u64) {
        self.durable().clock_ms.fetch_max(now_ms, Ordering::Release);
    }

    /// Returns the segments opened since the last call. Called after [`Store::cut`], it leaves out none below the cut.
    pub fn take_opened(&self) -> Taken<Opened> {
        self.durable().opened.take_all()
    }

    /// Returns the numbers of segments whose survivors began to move since the last call. Called after [`Store::cut`], it
    /// leaves out none that an entry below the cut can have to do with: such an entry may name, as the place of what it
    /// ends, a segment of survivors that a replay leaves out.
    pub fn take_emptied(&self) -> Taken<u32> {
        self.durable().emptied.take_all()
    }

    /// Returns bytes of a segment, which its writer no longer changes.
    ///
    /// # Panics
    /// If the writer's position is not there yet, or the segment was reported by [`Store::note_synced`].
    pub fn sealed_bytes(&self, segment: Opened, bytes: Range<usize>) -> &[u8] {
        self.log.sealed_bytes(segment, bytes.start, bytes.end)
    }

    /// Returns the bytes of a full segment, header included; `None` while its writer appends to it.
    pub fn closed_bytes(&self, segment: Opened) -> Option<usize> {
        self.log.closed_bytes(SegmentId(segment.place.0))
    }

    /// Notes that the disk holds everything below a cut.
    pub fn note_stable(&self, number: u64, positions: &[LogPosition]) {
        let durable = self.durable();
        for (stable, position) in durable.stable.iter().zip(positions) {
            stable.store(position.word(), Ordering::Release);
        }
        durable.stable_cut.store(number, Ordering::Release);
    }

    /// Makes answers about written tables wait from now on until others have received what they show
    /// ([`Store::note_received`]), or not.
    pub fn await_receipts(&self, awaits: bool) {
        self.durable().awaits_receipts.store(awaits, Ordering::Release);
    }

    /// Returns whether answers about written tables wait for receipts.
    pub fn awaits_receipts(&self) -> bool {
        self.log.durable.as_ref().is_some_and(|durable| durable.awaits_receipts())
    }

    /// Notes that enough others have everything below a cut in memory. For the thread that makes the cuts, in their order.
    pub fn note_received(&self, number: u64, positions: &[LogPosition]) {
        let durable = self.durable();
        for (received, position) in durable.received.iter().zip(positions) {
            received.store(position.word(), Ordering::Release);
        }
        durable.received_cut.store(number, Ordering::Release);
    }

    /// Returns the latest cuts that are received, and stable.
    #[inline]
    pub fn reached_cuts(&self) -> AwaitedCuts {
        let Some(durable) = &self.log.durable else { return AwaitedCuts::default() };
        AwaitedCuts { received: durable.reached(Wait::Received), stable: durable.reached(Wait::Stable) }
    }

    /// Notes that the disk holds all of a full segment: the cleaner may take it from now on.
    ///
    /// # Panics
    /// If the cuts reported as stable do not include all of it.
    pub fn note_synced(&self, segment: Opened) {
        let bytes = self.closed_bytes(segment).expect("the segment is full");
        let end = LogPosition { sequence: segment.sequence, bytes: bytes as u32 };
        assert!(self.durable().is_stable(segment.writer, end), "the disk holds the segment");
        self.log.segments.set_synced(SegmentId(segment.place.0), self.epochs.retire());
    }

    /// Notes that no replay finds a released segment any more.
    pub fn note_gone(&self, sequence: u32) {
        let durable = self.durable();
        durable.gone_count.fetch_add(1, Ordering::Relaxed);
        durable.gone.push(sequence).expect("the inbox is never closed");
    }

    /// Returns the number of the latest stable cut.
    #[inline]
    pub fn stable_cut(&self) -> u64 {
        self.log.durable.as_ref().map_or(0, |durable| durable.stable_cut.load(Ordering::Acquire))
    }

    /// Returns the number of the first cut that includes all that can be read now; 0 if the disk holds all of it.
    pub fn unstable_cut(&self) -> u64 {
        self.log.durable.as_ref().map_or(0, |durable| durable.next_beyond(Wait::Stable))
    }

    /// Returns the bytes of durable tables that the disk does not hold yet, roughly: without those of segments opened
    /// since the last stable cut but the newest of each head.
    pub fn unstable_bytes(&self) -> u64 {
        let Some(durable) = &self.log.durable else { return 0 };
        let behind = |writer| {
            let (now, stable) = (durable.cuts.position(writer), durable.stable(writer));
            let same = now.sequence == stable.sequence;
            u64::from(now.bytes.saturating_sub(if same { stable.bytes } else { 0 }))
        };
        (0..durable.cuts.writers()).map(behind).sum()
    }

    /// Makes the numbers of later cuts greater than this one. For a store that has been recovered, before any write.
    pub fn cut_above(&self, number: u64) {
        self.durable().cuts.begin_above(number);
        self.durable().stable_cut.store(number, Ordering::Release);
        self.durable().received_cut.store(number, Ordering::Release);
    }

    /// Sets which writes to durable tables are admitted.
    pub fn admit_durable(&self, admission: Admission) {
        self.durable().admit(admission);
    }

    /// Returns which writes to durable tables are admitted.
    #[inline]
    pub fn admission(&self) -> Admission {
        self.log.durable.as_ref().map_or(Admission::All, |durable| durable.admission())
    }

    /// Sets how many frames the segments opened by cores may take, all that were ever opened included ([`Opened::frames`]): a
    /// core that would go beyond waits. At first there is no limit.
    pub fn limit_frames(&self, frames: u64) {
        self.durable().limit_frames(frames);
    }

    /// Tells whether the disk is short of space, so that cleaning must bring some.
    pub fn set_disk_short(&self, is_short: bool) {
        self.durable().is_short.store(is_short, Ordering::Relaxed);
    }

    /// Tells how many segments' survivors have room on the disk beside the segments themselves. One may always begin.
    pub fn set_disk_room(&self, segments: u32) {
        self.durable().room.store(segments.max(1), Ordering::Relaxed);
    }
}
