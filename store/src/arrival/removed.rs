//! The keys, as positions, that were removed from a table while its objects arrive.
//!
//! ```text
//!   segments   [ 4 Ki slots ] [ 16 Ki ] [ 64 Ki ] [ 256 Ki ] [ 1 Mi ]    allocated when the one before is 3/4 full
//!   slot       second hash (0: free) │ hash (0: not written yet)
//! ```
//! A lock-free set that only grows. The first word claims a slot, the second one publishes it. The owner of a key's
//! bucket adds the key, so no key is added twice at a time; a concurrent look-up may miss it, as if it had come
//! before. A key lies within [`PROBES_MAX`] slots of the one that its hash selects: chosen keys cannot make look-ups
//! slow.

use once_cell::race::OnceBox;

use crate::hash_range::Position;
use crate::limits::REMOVED_NOTED_MAX;
use crate::sync::{AtomicU64, Ordering};

/// Segments, each four times as large as the previous one.
const SEGMENTS: usize = 5;
/// Slots of the first segment.
const FIRST_SLOTS: usize = 1 << 12;
/// Slots of a segment that may hold a given key: at most nine cache lines.
const PROBES_MAX: usize = 32;

const _: () = assert!(REMOVED_NOTED_MAX <= slots_of(SEGMENTS - 1, FIRST_SLOTS) / 4 * 3);

const fn slots_of(segment: usize, first: usize) -> usize {
    first << (2 * segment)
}

struct RemovedSlot {
    second: AtomicU64,
    first: AtomicU64,
}

struct Segment {
    slots: Box<[RemovedSlot]>,
    used: AtomicU64,
}

/// A lock-free set of removed keys.
pub(super) struct Removed {
    segments: [OnceBox<Segment>; SEGMENTS],
    first_slots: usize,
}

impl Default for Removed {
    fn default() -> Self {
        Removed::with_slots(FIRST_SLOTS)
    }
}

/// Returns the two words that store a position in a slot. No word is 0; a hash of 0 counts as 1.
fn words(position: Position) -> (u64, u64) {
    (position.second.max(1), position.hash.max(1))
}

impl Segment {
    fn new(slots: usize) -> Segment {
        let slot = || RemovedSlot { second: AtomicU64::new(0), first: AtomicU64::new(0) };
        Segment { slots: (0..slots).map(|_| slot()).collect(), used: AtomicU64::new(0) }
    }

    /// Returns the slots that may hold a key, in probing order.
    fn probe(&self, second: u64) -> impl Iterator<Item = &RemovedSlot> {
        let mask = self.slots.len() - 1;
        (0..PROBES_MAX.min(self.slots.len()))
            .map(move |at| &self.slots[(second as usize).wrapping_add(at) & mask])
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) as usize >= self.slots.len() / 4 * 3
    }

    fn add(&self, (second, first): (u64, u64)) -> bool {
        let claims = |slot: &&RemovedSlot| {
            slot.second.load(Ordering::Relaxed) == 0
                && slot.second.compare_exchange(0, second, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let Some(slot) = self.probe(second).find(claims) else { return false };
        slot.first.store(first, Ordering::Release);
        let used = self.used.fetch_add(1, Ordering::Relaxed);
        debug_assert!((used as usize) < self.slots.len(), "a slot is claimed once");
        true
    }

    fn has(&self, (second, first): (u64, u64)) -> bool {
        self.probe(second)
            .map(|slot| (slot.first.load(Ordering::Acquire), slot.second.load(Ordering::Relaxed)))
            .take_while(|words| words.1 != 0)
            .any(|words| words == (first, second))
    }
}

impl Removed {
    /// Creates a set with a first segment of this size, a power of two.
    fn with_slots(first_slots: usize) -> Removed {
        assert!(first_slots.is_power_of_two());
        Removed { segments: std::array::from_fn(|_| OnceBox::new()), first_slots }
    }

    /// Adds a key; called by the owner of its bucket. Returns false if there is no room.
    pub(super) fn add(&self, position: Position) -> bool {
        let words = words(position);
        if self.has(position) {
            return true;
        }
        (0..SEGMENTS).any(|at| {
            let make = || Box::new(Segment::new(slots_of(at, self.first_slots)));
            let segment = self.segments[at].get_or_init(make);
            !segment.is_full() && segment.add(words)
        })
    }

    /// Returns whether the key was added.
    pub(super) fn has(&self, position: Position) -> bool {
        let words = words(position);
        self.made().any(|segment| segment.has(words))
    }

    /// Returns whether the set is empty.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.segments[0].get().is_none()
    }

    /// Returns the number of keys that were added.
    pub(super) fn len(&self) -> usize {
        self.made().map(|segment| segment.used.load(Ordering::Relaxed) as usize).sum()
    }

    /// Returns the positions of all keys.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.made().flat_map(|segment| &segment.slots).filter_map(|slot| {
            let hash = slot.first.load(Ordering::Acquire);
            (hash != 0).then(|| Position { hash, second: slot.second.load(Ordering::Relaxed) })
        })
    }

    fn made(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().map_while(OnceBox::get)
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use std::collections::HashSet;

    use super::{PROBES_MAX, Position, Removed};

    #[test]
    fn what_was_added_is_there_and_nothing_else_until_it_is_full() {
        let mut random = fastrand::Rng::with_seed(7);
        let (removed, mut added) = (Removed::with_slots(64), HashSet::new());
        let position = |number: u64| Position { hash: number % 5, second: number };
        let refused = loop {
            let number = random.u64(..);
            assert!(!removed.has(position(number)));
            if !removed.add(position(number)) {
                break number;
            }
            assert!(removed.add(position(number)), "once more is as good as once");
            added.insert(number);
        };
        assert!(!removed.has(position(refused)));
        assert!(added.iter().all(|&number| removed.has(position(number))));
        assert_eq!((removed.len(), removed.positions().count()), (added.len(), added.len()));
        assert!(added.len() > (64 << 8) / 2, "{} keys", added.len());
    }

    #[test]
    fn keys_that_select_one_slot_are_refused_beyond_a_number_and_leave_room_for_others() {
        let removed = Removed::with_slots(64);
        let same = |number: u64| Position { hash: number, second: 3 + (number << 32) };
        let added = (1..1_000).take_while(|&number| removed.add(same(number))).count();
        assert_eq!(added, 5 * PROBES_MAX);
        assert!(
            removed.add(Position { hash: 1, second: 40 }) && removed.has(same(1)) && !removed.has(same(999))
        );
    }
}

#[cfg(all(test, loom_model))]
mod tests {
    use std::sync::Arc;

    use super::{Position, Removed};

    /// Two threads add keys that select one slot while a third thread searches: it finds every key added before.
    #[test]
    fn loom_added_keys_are_found() {
        loom::model(|| {
            let position = |hash| Position { hash, second: 4 };
            let removed = Arc::new(Removed::with_slots(4));
            assert!(removed.add(position(1)));
            let adding: Vec<_> = [2, 3]
                .map(|hash| {
                    let removed = Arc::clone(&removed);
                    loom::thread::spawn(move || {
                        assert!(removed.add(position(hash)) && removed.has(position(hash)));
                    })
                })
                .into();
            assert!(removed.has(position(1)) && !removed.has(position(9)));
            adding.into_iter().for_each(|thread| thread.join().expect("no panic"));
            assert!([1, 2, 3].into_iter().all(|hash| removed.has(position(hash))));
            assert_eq!(removed.len(), 3);
        });
    }
}
