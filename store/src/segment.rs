//! Segments: the owner of each run of seglets, its dead bytes, and its age.
//!
//! ```text
//!   free ──take──► head ──close──► closed ──cleaner──► cleaning ──► closed, or, all dead: pending_reclamation ──► free
//!                          └─ seglets after the last object are free at once
//! ```
//!
//! Every byte of a segment's objects is buried exactly once, by the thread that makes it unreachable: the writer that
//! replaces or deletes it, the writer whose staged object was refused, the cleaner that moves it, the thread that
//! drops a table. So `dead == used` means that nothing can lead here any more, and only then is a segment emptied.
//! Dead bytes are counted for each seglet, under the one in which the object begins, so that burying need not find
//! the segment's beginning. A segment's number is that of its first seglet.

use std::ops::Range;

use crate::limits::SEGLETS_PER_WINDOW_MAX;
use crate::memory::prefetch_for_write;
use crate::seglet::FreeSeglets;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Number of a segment: its first seglet's position in the region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SegmentId(pub(crate) u32);

/// The use of a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum State {
    /// Without an owner; also every seglet that is not the first of a segment.
    Free = 0,
    /// Being appended to.
    Head = 1,
    /// Full.
    Closed = 2,
    /// The cleaner copies its survivors.
    Cleaning = 3,
    /// All dead, waits for readers.
    Retired = 4,
    /// Contains damaged bytes, so that it cannot be emptied; left as it is.
    Damaged = 5,
}

impl State {
    /// Returns whether a segment in this state may come into that one.
    fn may_become(self, next: State) -> bool {
        matches!(
            (self, next),
            (State::Free, State::Head)
                | (State::Head, State::Closed)
                | (State::Closed, State::Cleaning | State::Retired)
                | (State::Cleaning, State::Closed | State::Retired | State::Damaged)
                | (State::Retired, State::Free)
        )
    }
}

/// The seglets that an operation needs and must leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// Seglets that are needed in one piece.
    pub(crate) least: u32,
    /// Maximum number of useful seglets.
    pub(crate) most: u32,
    /// Free seglets to leave.
    pub(crate) keep: u64,
    /// Entirely free windows to leave.
    pub(crate) windows_kept: u32,
}

/// The data of the segment that begins with a seglet.
struct Descriptor {
    state: AtomicU32,
    /// Seglets that it owns.
    seglets: AtomicU32,
    /// Bytes appended, set when it is closed.
    used: AtomicU32,
    /// How often the cleaner has copied its objects, set when it is closed.
    generation: AtomicU32,
    /// The time of its closing, by the log's clock.
    closed: AtomicU64,
    /// Of every seglet of a durable segment: its sequence number. 0 in a segment that stays in memory.
    sequence: AtomicU32,
    /// The tag under which the cleaner waits for the writes that were in progress when the disk got all of it.
    synced: AtomicU64,
    /// Bytes of its tombstones, set when it is closed, and the number of segments that were gone from the disk then.
    tombstones: AtomicU32,
    gone_before: AtomicU32,
    /// Bytes of its completion records that were needed when they came here, set when it is closed.
    needed: AtomicU32,
    /// Bytes that the disk has of it under its number, set when it is closed: those before any compaction in memory.
    disk_bytes: AtomicU32,
}

/// The bytes that a core has buried in all, on a cache line of its own.
#[repr(align(64))]
struct Buried(AtomicU64);

/// All segments of a store.
pub(crate) struct Segments {
    descriptors: Box<[Descriptor]>,
    /// For each core and seglet, the bytes of the objects beginning in the seglet that the core has buried. Counts are
    /// per core so that cores do not contend for cache lines; they wrap, and only their sum is meaningful.
    dead: Box<[AtomicU32]>,
    /// For each core.
    buried: Box<[Buried]>,
    free: FreeSeglets,
    window_seglets: u32,
    /// For each seglet, one more than the writer whose bytes the disk does not hold yet; 0 if it holds all of the
    /// segment, or need not. Close together, since reads of durable tables look there.
    unsynced_of: Box<[AtomicU16]>,
}

impl Segments {
    /// Creates `windows` free windows of `window_seglets` seglets, for `cores` cores.
    pub(crate) fn new(windows: u32, window_seglets: u32, cores: usize) -> Segments {
        assert!(window_seglets <= SEGLETS_PER_WINDOW_MAX);
        let count = windows * window_seglets;
        let descriptor = |_| Descriptor {
            state: AtomicU32::new(State::Free as u32),
            seglets: AtomicU32::new(0),
            used: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            closed: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            synced: AtomicU64::new(0),
            tombstones: AtomicU32::new(0),
            gone_before: AtomicU32::new(0),
            needed: AtomicU32::new(0),
            disk_bytes: AtomicU32::new(0),
        };
        Segments {
            descriptors: (0..count).map(descriptor).collect(),
            dead: (0..count as usize * cores).map(|_| AtomicU32::new(0)).collect(),
            buried: (0..cores).map(|_| Buried(AtomicU64::new(0))).collect(),
            free: FreeSeglets::new(windows, window_seglets),
            window_seglets,
            unsynced_of: (0..count).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    /// Returns the number of seglets.
    pub(crate) fn seglets(&self) -> u32 {
        self.descriptors.len() as u32
    }

    /// Returns the seglets of a window, which is the longest segment.
    #[inline]
    pub(crate) fn window_seglets(&self) -> u32 {
        self.window_seglets
    }

    /// Returns the number of free seglets.
    #[inline]
    pub(crate) fn free_count(&self) -> u64 {
        self.free.count()
    }

    /// Returns whether a claim would be met now.
    pub(crate) fn can_take(&self, claim: Claim) -> bool {
        self.free.count() >= claim.keep + u64::from(claim.least)
            && self.free.has(claim.least, claim.windows_kept)
    }

    fn descriptor(&self, id: SegmentId) -> &Descriptor {
        &self.descriptors[id.0 as usize]
    }

    pub(crate) fn state(&self, id: SegmentId) -> State {
        match self.descriptor(id).state.load(Ordering::Acquire) {
            0 => State::Free,
            1 => State::Head,
            2 => State::Closed,
            3 => State::Cleaning,
            4 => State::Retired,
            _ => State::Damaged,
        }
    }

    /// Sets the state; called by the owner of the head, or by the thread that has the cleaner's state.
    pub(crate) fn set_state(&self, id: SegmentId, state: State) {
        debug_assert!(self.state(id).may_become(state), "{id:?} goes from {:?} to {state:?}", self.state(id));
        self.descriptor(id).state.store(state as u32, Ordering::Release);
    }

    /// Takes a run of seglets as a head.
    pub(crate) fn take(&self, claim: Claim) -> Option<SegmentId> {
        let Claim { least, most, keep, windows_kept } = claim;
        let run = self.free.take(least, most, keep, windows_kept)?;
        let id = SegmentId(run.start);
        debug_assert!(run.end <= self.seglets(), "a segment lies in the region");
        debug_assert_eq!(
            run.start / self.window_seglets,
            (run.end - 1) / self.window_seglets,
            "a segment lies in one window"
        );
        // Objects are buried here only after they were found here, which happens after this.
        self.dead_of(run.clone()).for_each(|dead| dead.store(0, Ordering::Relaxed));
        let descriptor = self.descriptor(id);
        descriptor.used.store(0, Ordering::Relaxed);
        descriptor.seglets.store(run.end - run.start, Ordering::Relaxed);
        descriptor.tombstones.store(0, Ordering::Relaxed);
        descriptor.needed.store(0, Ordering::Relaxed);
        descriptor.disk_bytes.store(0, Ordering::Relaxed);
        self.set_state(id, State::Head);
        Some(id)
    }

    /// Gives a head's segment its number on the disk, and the writer from which the disk still needs its bytes.
    pub(crate) fn set_sequence(&self, id: SegmentId, sequence: u32, unsynced_of: Option<usize>) {
        let run = self.run(id);
        let seglets = run.start as usize..run.end as usize;
        self.descriptors[seglets.clone()]
            .iter()
            .for_each(|seglet| seglet.sequence.store(sequence, Ordering::Relaxed));
        self.descriptor(id).synced.store(0, Ordering::Relaxed);
        let writer = unsynced_of.map_or(0, |writer| writer as u16 + 1);
        self.unsynced_of[seglets].iter().for_each(|seglet| seglet.store(writer, Ordering::Release));
    }

    /// Returns the number on the disk of the segment that owns a seglet; 0 if it stays in memory.
    #[inline]
    pub(crate) fn sequence_at(&self, seglet: u32) -> u32 {
        self.descriptors[seglet as usize].sequence.load(Ordering::Relaxed)
    }

    /// Returns the first seglet of the segment with a number that owns a seglet.
    pub(crate) fn first_of(&self, seglet: u32, sequence: u32) -> u32 {
        let window = seglet - seglet % self.window_seglets;
        let before = (window..seglet).rev().take_while(|&other| self.sequence_at(other) == sequence);
        before.last().unwrap_or(seglet)
    }

    /// Returns the writer of the segment that owns a seglet, if the disk does not hold all of it yet.
    #[inline]
    pub(crate) fn unsynced_of(&self, seglet: u32) -> Option<usize> {
        self.unsynced_of[seglet as usize].load(Ordering::Acquire).checked_sub(1).map(usize::from)
    }

    /// Notes that the disk holds a closed segment; of entries that seem dead, none is about to be published once all
    /// pins older than the tag have ended.
    pub(crate) fn set_synced(&self, id: SegmentId, tag: u64) {
        self.descriptor(id).synced.store(tag, Ordering::Relaxed);
        let run = self.run(id);
        self.unsynced_of[run.start as usize..run.end as usize]
            .iter()
            .for_each(|seglet| seglet.store(0, Ordering::Release));
    }

    /// Notes the bytes that the disk has of a segment.
    pub(crate) fn set_disk_bytes(&self, id: SegmentId, bytes: u32) {
        self.descriptor(id).disk_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes that the disk has of a segment; 0 if it stays in memory.
    pub(crate) fn disk_bytes(&self, id: SegmentId) -> u32 {
        self.descriptor(id).disk_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether the cleaner may take a closed segment, if this is the oldest pin: it stays in memory, or the disk
    /// holds it.
    pub(crate) fn is_settled(&self, id: SegmentId, oldest_pin: u64) -> bool {
        let descriptor = self.descriptor(id);
        self.sequence_at(id.0) == 0
            || self.unsynced_of(id.0).is_none() && descriptor.synced.load(Ordering::Relaxed) < oldest_pin
    }

    /// Notes the bytes of a closed segment's tombstones, when `gone` segments were gone from the disk.
    pub(crate) fn set_tombstones(&self, id: SegmentId, bytes: u32, gone: u32) {
        self.descriptor(id).tombstones.store(bytes, Ordering::Relaxed);
        self.descriptor(id).gone_before.store(gone, Ordering::Relaxed);
    }

    /// Notes the bytes of a closed segment's completion records that were needed when they came there. They count as
    /// dead, since nothing leads to them, and yet the cleaner has to copy them.
    pub(crate) fn set_needed(&self, id: SegmentId, bytes: u32) {
        self.descriptor(id).needed.store(bytes, Ordering::Relaxed);
    }

    /// Returns the dead bytes of a segment that cleaning can be expected to free. Cost: as [`Segments::dead`].
    pub(crate) fn garbage(&self, id: SegmentId) -> u32 {
        self.dead(id).saturating_sub(self.descriptor(id).needed.load(Ordering::Relaxed))
    }

    /// Returns what [`Segments::set_tombstones`] noted.
    pub(crate) fn tombstones(&self, id: SegmentId) -> (u32, u32) {
        let descriptor = self.descriptor(id);
        (descriptor.tombstones.load(Ordering::Relaxed), descriptor.gone_before.load(Ordering::Relaxed))
    }

    /// Returns the seglets that the segment owns.
    pub(crate) fn run(&self, id: SegmentId) -> Range<u32> {
        id.0..id.0 + self.descriptor(id).seglets.load(Ordering::Relaxed)
    }

    /// Ends appending: `used` bytes were appended, in the first `seglets`; the others become free.
    pub(crate) fn close(&self, id: SegmentId, used: u32, seglets: u32, now: u64, generation: u32) {
        let descriptor = self.descriptor(id);
        let run = self.run(id);
        debug_assert!(0 < seglets && seglets <= run.end - run.start, "a segment keeps a part of its run");
        descriptor.seglets.store(seglets, Ordering::Relaxed);
        descriptor.closed.store(now, Ordering::Relaxed);
        descriptor.generation.store(generation, Ordering::Relaxed);
        descriptor.used.store(used, Ordering::Release);
        self.set_state(id, State::Closed);
        self.make_free(run.start + seglets..run.end);
    }

    fn make_free(&self, run: Range<u32>) {
        if !run.is_empty() {
            self.free.free(&run);
        }
    }

    /// Returns the counts of bytes that all cores have buried in these seglets.
    fn dead_of(&self, seglets: Range<u32>) -> impl Iterator<Item = &AtomicU32> {
        let cores = self.dead.chunks_exact(self.descriptors.len());
        cores.flat_map(move |dead| &dead[seglets.start as usize..seglets.end as usize])
    }

    /// Returns the count of bytes that this core has buried in a seglet.
    #[inline]
    fn dead_by(&self, core: usize, seglet: u32) -> &AtomicU32 {
        &self.dead[core * self.descriptors.len() + seglet as usize]
    }

    /// Prefetches the counter that [`Segments::bury`] will write.
    #[inline]
    pub(crate) fn prefetch_bury(&self, core: usize, seglet: u32) {
        prefetch_for_write(std::ptr::from_ref(self.dead_by(core, seglet)).cast());
    }

    /// Counts `bytes` of an object that begins in `seglet` as unreachable; called by that core.
    #[inline]
    pub(crate) fn bury(&self, core: usize, seglet: u32, bytes: u32) {
        // The counts of the cores lie side by side, so a seglet too high would be another core's.
        debug_assert!(seglet < self.seglets(), "what is buried lies in the region");
        debug_assert!(bytes > 0, "an object has bytes");
        // Only the core itself adds to the count, so a plain load and store suffice.
        let dead = self.dead_by(core, seglet);
        dead.store(dead.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Release);
        let Buried(all) = &self.buried[core];
        // Whoever sees it here finds it above.
        all.store(all.load(Ordering::Relaxed) + u64::from(bytes), Ordering::Release);
    }

    /// Returns the bytes that all cores have ever buried. Cost: a load per core.
    pub(crate) fn buried(&self) -> u64 {
        self.buried.iter().map(|Buried(bytes)| bytes.load(Ordering::Acquire)).sum()
    }

    /// Returns the bytes appended to a closed segment.
    pub(crate) fn used(&self, id: SegmentId) -> u32 {
        self.descriptor(id).used.load(Ordering::Acquire)
    }

    /// Returns the time of its closing, by the log's clock.
    pub(crate) fn closed_at(&self, id: SegmentId) -> u64 {
        self.descriptor(id).closed.load(Ordering::Relaxed)
    }

    /// Returns how often the objects of a closed segment were copied.
    pub(crate) fn generation(&self, id: SegmentId) -> u32 {
        self.descriptor(id).generation.load(Ordering::Relaxed)
    }

    /// Returns its unreachable bytes.
    pub(crate) fn dead(&self, id: SegmentId) -> u32 {
        let dead = self.dead_of(self.run(id)).map(|dead| dead.load(Ordering::Acquire));
        dead.fold(0, u32::wrapping_add)
    }

    /// Frees a segment's seglets.
    pub(crate) fn free(&self, id: SegmentId) {
        let run = self.run(id);
        self.set_state(id, State::Free);
        self.make_free(run);
    }

    /// Ends a segment; returns its seglets, as bits, which stay withdrawn until the window is restored.
    pub(crate) fn end_withdrawn(&self, id: SegmentId) -> u32 {
        let run = self.run(id);
        debug_assert_eq!(
            run.start / self.window_seglets,
            (run.end - 1) / self.window_seglets,
            "its bits are those of one window"
        );
        self.set_state(id, State::Free);
        (u32::MAX >> (u32::BITS - (run.end - run.start))) << (run.start % self.window_seglets)
    }

    /// Withdraws the free seglets of a window from use; returns them as bits.
    pub(crate) fn withdraw(&self, window: u32) -> u32 {
        self.free.withdraw(window)
    }

    /// Returns withdrawn seglets.
    pub(crate) fn restore(&self, window: u32, bits: u32) {
        self.free.restore(window, bits);
    }

    /// Returns every segment that begins in `seglets`, with its state. May omit one that is being taken or freed.
    pub(crate) fn within(&self, seglets: Range<u32>) -> impl Iterator<Item = (SegmentId, State)> + '_ {
        let states = seglets.map(|number| (SegmentId(number), self.state(SegmentId(number))));
        states.filter(|&(_, state)| state != State::Free)
    }

    /// Returns every segment.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, State)> + '_ {
        self.within(0..self.seglets())
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::{Claim, SegmentId, Segments, State};

    fn claim(keep: u64) -> Claim {
        Claim { least: 1, most: 4, keep, windows_kept: 1 }
    }

    #[test]
    fn segments_are_taken_down_to_what_is_to_be_left() {
        let segments = Segments::new(5, 4, 1);
        let taken: Vec<_> = std::iter::from_fn(|| segments.take(claim(6))).collect();
        assert_eq!(taken, [0, 4, 8, 12].map(SegmentId));
        assert_eq!((segments.free_count(), segments.run(SegmentId(12))), (6, 12..14));
        assert_eq!(segments.take(claim(0)), Some(SegmentId(14)));
        assert_eq!(segments.take(claim(0)), None, "the last window");
        assert_eq!(segments.take(Claim { windows_kept: 0, ..claim(0) }), Some(SegmentId(16)));
    }

    #[test]
    fn a_freed_segment_is_taken_again_without_its_dead_bytes() {
        let segments = Segments::new(2, 4, 2);
        let id = segments.take(claim(0)).expect("one is free");
        segments.close(id, 100, 3, 7, 1);
        assert_eq!(segments.free_count(), 5, "the last seglet was not used");
        segments.bury(0, id.0 + 2, 40);
        segments.bury(1, id.0, 60);
        assert_eq!((segments.used(id), segments.dead(id)), (100, 100));
        assert_eq!((segments.closed_at(id), segments.generation(id)), (7, 1));
        segments.set_state(id, State::Retired);
        segments.free(id);
        assert_eq!(segments.take(claim(0)), Some(id));
        assert_eq!((segments.used(id), segments.dead(id), segments.state(id)), (0, 0, State::Head));
    }
}
