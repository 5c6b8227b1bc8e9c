//! Segments: who owns which, and how much of each is dead.
//!
//! ```text
//!   free ──take──► head ──close──► closed ──cleaner──► cleaning ──► closed, or, all dead: limbo ──► free
//! ```
//!
//! Every byte of a segment's objects is buried exactly once, by whoever makes it unreachable: the writer that
//! replaces or deletes it, the writer whose staged object was refused, the cleaner that moves it, the dropping of
//! a table. So `dead == used` means that nothing can lead here any more, and only then is a segment emptied.
//! Free segments are bits, so that taking one is a few instructions and no lock.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Number of a segment: its position in the region.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SegmentId(pub(crate) u32);

/// What a segment is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum State {
    /// Nobody's.
    Free = 0,
    /// Being appended to.
    Head = 1,
    /// Full.
    Closed = 2,
    /// The cleaner copies its survivors.
    Cleaning = 3,
    /// All dead, waits for readers.
    Limbo = 4,
}

#[repr(align(64))]
struct Descriptor {
    state: AtomicU32,
    /// Bytes appended, set when it is closed.
    used: AtomicU32,
    /// Bytes that nothing leads to any more.
    dead: AtomicU32,
}

/// All segments of a store.
pub(crate) struct Segments {
    descriptors: Box<[Descriptor]>,
    free_bits: Box<[AtomicU64]>,
    free_count: AtomicU64,
}

impl Segments {
    pub(crate) fn new(count: u32) -> Segments {
        let descriptor =
            |_| Descriptor { state: AtomicU32::new(0), used: AtomicU32::new(0), dead: AtomicU32::new(0) };
        let bits = |word: u32| match count - word * 64 {
            0..64 => (1 << (count - word * 64)) - 1,
            _ => u64::MAX,
        };
        Segments {
            descriptors: (0..count).map(descriptor).collect(),
            free_bits: (0..count.div_ceil(64)).map(|word| AtomicU64::new(bits(word))).collect(),
            free_count: AtomicU64::new(u64::from(count)),
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.descriptors.len() as u32
    }

    /// How many are free.
    #[inline]
    pub(crate) fn free_count(&self) -> u64 {
        self.free_count.load(Ordering::Relaxed)
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
            _ => State::Limbo,
        }
    }

    pub(crate) fn set_state(&self, id: SegmentId, state: State) {
        self.descriptor(id).state.store(state as u32, Ordering::Release);
    }

    /// Takes the free segment of the lowest number as a head, if more than `keep` are free.
    pub(crate) fn take(&self, keep: u64) -> Option<SegmentId> {
        let less = |free: u64| (free > keep).then(|| free - 1);
        self.free_count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less).ok()?;
        loop {
            for (word, bits) in self.free_bits.iter().enumerate() {
                let free = bits.load(Ordering::Acquire);
                if free == 0 {
                    continue;
                }
                let bit = free & free.wrapping_neg();
                if bits.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                    let id = SegmentId(word as u32 * 64 + bit.trailing_zeros());
                    let descriptor = self.descriptor(id);
                    descriptor.used.store(0, Ordering::Relaxed);
                    descriptor.dead.store(0, Ordering::Relaxed);
                    self.set_state(id, State::Head);
                    return Some(id);
                }
            }
            // The count says that there is one: somebody took ours and another has just come.
        }
    }

    /// Ends appending: `used` bytes were appended.
    pub(crate) fn close(&self, id: SegmentId, used: u32) {
        self.descriptor(id).used.store(used, Ordering::Release);
        self.set_state(id, State::Closed);
    }

    /// Counts `bytes` of the segment as unreachable.
    #[inline]
    pub(crate) fn bury(&self, id: SegmentId, bytes: u32) {
        self.descriptor(id).dead.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Bytes appended; of a closed one.
    pub(crate) fn used(&self, id: SegmentId) -> u32 {
        self.descriptor(id).used.load(Ordering::Acquire)
    }

    /// Bytes that nothing leads to any more.
    pub(crate) fn dead(&self, id: SegmentId) -> u32 {
        self.descriptor(id).dead.load(Ordering::Acquire)
    }

    /// Makes a segment free.
    pub(crate) fn free(&self, id: SegmentId) {
        self.set_state(id, State::Free);
        self.free_bits[id.0 as usize / 64].fetch_or(1 << (id.0 % 64), Ordering::AcqRel);
        self.free_count.fetch_add(1, Ordering::AcqRel);
    }

    /// Every segment with its state.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, State)> + '_ {
        (0..self.count()).map(|number| (SegmentId(number), self.state(SegmentId(number))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{SegmentId, Segments, State};

    #[test]
    fn segments_are_taken_lowest_first_down_to_the_reserve() {
        let segments = Segments::new(70);
        let taken: Vec<_> = std::iter::from_fn(|| segments.take(2)).collect();
        assert_eq!(taken, (0..68).map(SegmentId).collect::<Vec<_>>());
        assert_eq!(segments.free_count(), 2);
        assert_eq!(segments.take(0), Some(SegmentId(68)));
    }

    #[test]
    fn a_freed_segment_is_taken_again_without_its_dead_bytes() {
        let segments = Segments::new(3);
        let id = segments.take(0).expect("one is free");
        segments.close(id, 100);
        segments.bury(id, 100);
        assert_eq!((segments.used(id), segments.dead(id)), (100, 100));
        segments.free(id);
        assert_eq!(segments.take(0), Some(id));
        assert_eq!((segments.used(id), segments.dead(id), segments.state(id)), (0, 0, State::Head));
    }
}
