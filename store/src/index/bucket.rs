//! A bucket: one cache line of a control word and seven entries.
//!
//! ```text
//!   control  63..32 overflow bucket (0 = none) │ 31..3 version │ 2 committing │ 1 moved │ 0 locked
//!   entry    63..48 tag (low 16 bits of the hash) │ 47..45 mark │ 44..0 location (0 = empty)
//! ```
//!
//! Writers hold the lock bit while they change entries; each entry changes by one store. Readers ignore the lock bit:
//! they see the old entry or the new one. The version grows at every unlock, and before an entry disappears from one
//! slot because it was copied to another, so that a reader that missed it in both notices. `committing` is set while
//! a commit publishes several objects: readers wait for it, since they must not see half of it. An overflow bucket
//! uses only the overflow field of its control word.
//!
//! The mark is for tables that evict (`cache.rs`), zero elsewhere. Readers note a use in it by compare-and-swap of
//! the whole entry; if a writer has changed the entry meanwhile, it stays as the writer left it.

use crate::index::{LOCATION_BITS, Location};
use crate::sync::{AtomicU64, Backoff, Busy, Ordering};

/// Entries of a bucket.
pub(crate) const SLOTS: usize = 7;
/// Bytes of a bucket.
pub(crate) const BUCKET_BYTES: usize = 64;

/// A writer holds the bucket.
pub(crate) const LOCKED: u64 = 1;
/// The bucket's hashes belong to the next generation; it never changes again.
pub(crate) const MOVED: u64 = 2;
/// A commit is being published.
pub(crate) const COMMITTING: u64 = 4;
/// The bits that prevent a reader from reading.
pub(crate) const BUSY_FOR_READERS: u64 = MOVED | COMMITTING;
const VERSION_UNIT: u64 = 8;
const VERSION_MASK: u64 = 0xffff_fff8;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
const USE_UNIT: u64 = 1 << LOCATION_BITS;
const USES_MASK: u64 = 3 * USE_UNIT;
const SETTLED: u64 = 4 * USE_UNIT;

/// The history of an entry's object, for tables that evict.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Mark(u64);

impl Mark {
    /// The mark of an object in the main queue, unused since it entered; zero marks one in the small queue.
    pub(crate) const MAIN: Mark = Mark(SETTLED);

    /// Returns whether the object is in the main queue.
    #[inline]
    pub(crate) fn is_main(self) -> bool {
        self.0 & SETTLED != 0
    }

    /// Returns how often it was used, up to 3.
    #[inline]
    pub(crate) fn uses(self) -> u32 {
        ((self.0 & USES_MASK) / USE_UNIT) as u32
    }

    /// Returns the mark with one use less; it must have some.
    pub(crate) fn with_use_forgotten(self) -> Mark {
        debug_assert!(self.uses() > 0);
        Mark(self.0 - USE_UNIT)
    }
}

/// Returns the overflow bucket of a control word, 0 for none.
#[inline]
pub(crate) fn overflow_of(control: u64) -> u32 {
    (control >> 32) as u32
}

/// Returns whether a writer holds the bucket of this control word.
#[inline]
pub(crate) fn is_locked(control: u64) -> bool {
    control & LOCKED != 0
}

/// Returns the control word with another overflow bucket.
#[inline]
pub(crate) fn with_overflow(control: u64, overflow: u32) -> u64 {
    (control & u64::from(u32::MAX)) | u64::from(overflow) << 32
}

/// Returns the control word with the next version (which wraps within its 29 bits).
#[inline]
pub(crate) fn with_next_version(control: u64) -> u64 {
    (control & !VERSION_MASK) | (control.wrapping_add(VERSION_UNIT) & VERSION_MASK)
}

/// Returns the word of an entry.
#[inline]
pub(crate) fn entry(hash: u64, location: Location, mark: Mark) -> u64 {
    debug_assert!(
        location.0 != 0 && location.0 <= LOCATION_MASK,
        "a location fits an entry and is not empty"
    );
    debug_assert_eq!(mark.0 & !(USES_MASK | SETTLED), 0, "a mark changes no other field");
    hash << 48 | mark.0 | location.0
}

/// Returns the mark of an entry's word.
#[inline]
pub(crate) fn mark_of(entry: u64) -> Mark {
    Mark(entry & (USES_MASK | SETTLED))
}

/// Returns the location of an entry's word, `None` if it is empty.
#[inline]
pub(crate) fn location_of(entry: u64) -> Option<Location> {
    let location = entry & LOCATION_MASK;
    (location != 0).then_some(Location(location))
}

/// One cache line of index. All zero is an empty, live bucket.
#[repr(C, align(64))]
pub(crate) struct Bucket {
    control: AtomicU64,
    slots: [AtomicU64; SLOTS],
}

#[cfg(not(loom_model))]
const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);

impl Bucket {
    #[cfg(loom_model)]
    pub(crate) fn empty() -> Bucket {
        Bucket { control: AtomicU64::new(0), slots: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    #[inline]
    pub(crate) fn control(&self) -> u64 {
        self.control.load(Ordering::Acquire)
    }

    /// Sets the control word; called by the owner of the lock (or of an unpublished overflow bucket).
    #[inline]
    pub(crate) fn set_control(&self, control: u64) {
        self.control.store(control, Ordering::Release);
    }

    #[inline]
    pub(crate) fn slot(&self, slot: usize) -> u64 {
        self.slots[slot].load(Ordering::Acquire)
    }

    /// Sets a slot; called by the owner of the lock.
    #[inline]
    pub(crate) fn set_slot(&self, slot: usize, entry: u64) {
        self.slots[slot].store(entry, Ordering::Release);
    }

    /// Notes a use of the object in a slot, unless the slot no longer has `location`.
    pub(crate) fn note_use(&self, slot: usize, location: Location) {
        let entry = self.slots[slot].load(Ordering::Relaxed);
        if location_of(entry) == Some(location) && entry & USES_MASK != USES_MASK {
            let used = entry + USE_UNIT;
            // A writer's store is never undone: the exchange succeeds only on the value that it has compared.
            let _ = self.slots[slot].compare_exchange(entry, used, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Returns the slots with the tag of `hash`, as bits.
    #[inline(always)]
    pub(crate) fn matches(&self, hash: u64) -> u32 {
        let tag = hash & 0xffff;
        let mut matches = 0;
        for (slot, entry) in self.slots.iter().enumerate() {
            matches |= u32::from(entry.load(Ordering::Relaxed) >> 48 == tag) << slot;
        }
        matches
    }

    /// Takes the next slot out of `matches` that still has the tag of `hash`.
    #[inline(always)]
    pub(crate) fn take_match(&self, matches: &mut u32, hash: u64) -> Option<(usize, Location)> {
        while *matches != 0 {
            let slot = matches.trailing_zeros() as usize;
            *matches &= *matches - 1;
            let entry = self.slots[slot].load(Ordering::Acquire);
            if entry >> 48 == hash & 0xffff
                && let Some(location) = location_of(entry)
            {
                return Some((slot, location));
            }
        }
        None
    }

    /// Returns an empty slot.
    pub(crate) fn empty_slot(&self) -> Option<usize> {
        (0..SLOTS).find(|&slot| location_of(self.slot(slot)).is_none())
    }

    /// Returns the last slot in use.
    pub(crate) fn last_used_slot(&self) -> Option<usize> {
        (0..SLOTS).rev().find(|&slot| location_of(self.slot(slot)).is_some())
    }

    /// Locks the bucket; `None` if it is moved. Returns the control word with the lock bit. Waits for its holder,
    /// within a bound.
    #[inline]
    pub(crate) fn lock(&self) -> Result<Option<u64>, Busy> {
        let mut backoff = Backoff::new();
        loop {
            let control = self.control.load(Ordering::Relaxed);
            if control & MOVED != 0 {
                // Threads that follow the mark must see everything that the mover wrote before it.
                crate::sync::fence(Ordering::Acquire);
                return Ok(None);
            }
            if let Some(locked) = self.try_lock_from(control) {
                return Ok(Some(locked));
            }
            backoff.try_wait()?;
        }
    }

    /// Locks the bucket unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<u64> {
        let control = self.control.load(Ordering::Relaxed);
        if control & MOVED != 0 { None } else { self.try_lock_from(control) }
    }

    #[inline]
    fn try_lock_from(&self, control: u64) -> Option<u64> {
        if is_locked(control) {
            return None;
        }
        let locked = control | LOCKED;
        let won = self.control.compare_exchange(control, locked, Ordering::Acquire, Ordering::Relaxed);
        won.is_ok().then_some(locked)
    }

    /// Unlocks the bucket; `control` is the owner's latest control word.
    #[inline]
    pub(crate) fn unlock(&self, control: u64) {
        debug_assert!(is_locked(control) && is_locked(self.control()), "only the owner unlocks");
        self.set_control(with_next_version(control) & !(LOCKED | COMMITTING));
    }

    /// Unlocks an unchanged bucket without a new version.
    #[inline]
    pub(crate) fn unlock_unchanged(&self, control: u64) {
        debug_assert!(is_locked(control) && is_locked(self.control()), "only the owner unlocks");
        debug_assert_eq!(control & MOVED, 0, "a bucket that is moved has changed");
        self.set_control(control & !(LOCKED | COMMITTING));
    }
}
