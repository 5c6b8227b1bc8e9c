//! A bucket that this thread has locked: find, insert, replace, remove.
//!
//! Unlocks when dropped, with a new version if anything was changed. An insert that needs an overflow bucket may be
//! refused, so a commit makes room for all its inserts before it publishes the first.

use crate::index::Location;
use crate::index::bucket::{
    Bucket, COMMITTING, MOVED, Mark, SLOTS, entry, is_locked, location_of, mark_of, overflow_of,
    with_next_version, with_overflow,
};
use crate::index::generation::{Generation, Purpose};

/// An error: the chain is full, or no overflow bucket is left (crafted keys, or an index that must grow).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NoRoom;

/// The place of an entry in a locked bucket's chain: overflow bucket (0 = the bucket itself) and slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct SlotPlace {
    overflow: u32,
    slot: usize,
}

/// Proof that an object was added, replaced or removed under a lock.
///
/// [`crate::table::Table::note_write`] takes it, so that a write is marked after the change, see `dirty_map.rs`.
#[must_use = "a thread that copies the table in use must learn of the change"]
pub(crate) struct Changed(());

/// A locked bucket.
pub(crate) struct LockedBucket<'p> {
    generation: &'p Generation,
    bucket: &'p Bucket,
    control: u64,
    changed: bool,
}

impl<'p> LockedBucket<'p> {
    #[inline]
    pub(crate) fn new(generation: &'p Generation, position: u64, control: u64) -> LockedBucket<'p> {
        debug_assert!(is_locked(control) && control & MOVED == 0, "only a live bucket is locked");
        #[cfg(test)]
        held::change(1);
        LockedBucket { generation, bucket: generation.bucket(position), control, changed: false }
    }

    /// Returns its address: the order in which commits lock.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self.bucket).addr()
    }

    #[inline]
    fn at(&self, overflow: u32) -> &'p Bucket {
        self.generation.overflow(overflow).unwrap_or(self.bucket)
    }

    #[inline]
    fn control_of(&self, overflow: u32) -> u64 {
        match self.generation.overflow(overflow) {
            Some(bucket) => bucket.control(),
            None => self.control,
        }
    }

    fn set_overflow_of(&mut self, overflow: u32, next: u32) {
        match self.generation.overflow(overflow) {
            Some(bucket) => bucket.set_control(with_overflow(bucket.control(), next)),
            None => {
                self.control = with_overflow(self.control, next);
                self.bucket.set_control(self.control);
            }
        }
    }

    /// Returns the first entry of `hash` that `accept` accepts.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        hash: u64,
        mut accept: impl FnMut(Location) -> Option<T>,
    ) -> Option<(SlotPlace, T)> {
        let mut overflow = 0;
        loop {
            let bucket = self.at(overflow);
            let mut matches = bucket.matches(hash);
            while let Some((slot, location)) = bucket.take_match(&mut matches, hash) {
                if let Some(found) = accept(location) {
                    return Some((SlotPlace { overflow, slot }, found));
                }
            }
            overflow = overflow_of(self.control_of(overflow));
            if overflow == 0 {
                return None;
            }
        }
    }

    /// Points the entry at `place` to another object. It keeps its mark.
    #[inline]
    pub(crate) fn replace(&mut self, place: SlotPlace, hash: u64, location: Location) -> Changed {
        self.relocate(place, hash, location);
        Changed(())
    }

    /// Points the entry at `place` to another copy of its object. It keeps its mark.
    #[inline]
    pub(crate) fn relocate(&mut self, place: SlotPlace, hash: u64, location: Location) {
        let before = self.at(place.overflow).slot(place.slot);
        debug_assert!(
            location_of(before).is_some_and(|from| from != location),
            "an entry gets another object"
        );
        debug_assert_eq!(before >> 48, hash & 0xffff, "an entry keeps its tag");
        self.changed = true;
        self.at(place.overflow).set_slot(place.slot, entry(hash, location, mark_of(before)));
    }

    /// Returns the mark of the entry at `place`.
    #[inline]
    pub(crate) fn mark(&self, place: SlotPlace) -> Mark {
        mark_of(self.at(place.overflow).slot(place.slot))
    }

    /// Sets the mark of the entry at `place`, which leads to `location`.
    pub(crate) fn set_mark(&mut self, place: SlotPlace, hash: u64, location: Location, mark: Mark) {
        debug_assert_eq!(
            location_of(self.at(place.overflow).slot(place.slot)),
            Some(location),
            "a mark is set beside the location that it belongs to"
        );
        self.at(place.overflow).set_slot(place.slot, entry(hash, location, mark));
    }

    /// Notes a use of the object at `location`, to which the entry at `place` leads.
    pub(crate) fn note_use(&self, place: SlotPlace, location: Location) {
        self.at(place.overflow).note_use(place.slot, location);
    }

    /// As [`LockedBucket::find`], with the mark passed to `accept`.
    pub(crate) fn find_marked<T>(
        &self,
        hash: u64,
        mut accept: impl FnMut(Mark, Location) -> Option<T>,
    ) -> Option<(SlotPlace, T)> {
        let mut overflow = 0;
        loop {
            let bucket = self.at(overflow);
            let mut matches = bucket.matches(hash);
            while let Some((slot, location)) = bucket.take_match(&mut matches, hash) {
                if let Some(found) = accept(mark_of(bucket.slot(slot)), location) {
                    return Some((SlotPlace { overflow, slot }, found));
                }
            }
            overflow = overflow_of(self.control_of(overflow));
            if overflow == 0 {
                return None;
            }
        }
    }

    /// Adds an entry for a new object.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u64, location: Location) -> Result<Changed, NoRoom> {
        self.insert_marked(hash, location, Mark::default(), Purpose::Insert)?;
        Ok(Changed(()))
    }

    /// Adds an entry with a mark.
    #[inline]
    pub(crate) fn insert_marked(
        &mut self,
        hash: u64,
        location: Location,
        mark: Mark,
        purpose: Purpose,
    ) -> Result<(), NoRoom> {
        debug_assert!(
            self.find(hash, |other| (other == location).then_some(())).is_none(),
            "an object has one entry"
        );
        self.make_room(1, purpose)?;
        let mut overflow = 0;
        loop {
            let bucket = self.at(overflow);
            if let Some(slot) = bucket.empty_slot() {
                self.changed = true;
                bucket.set_slot(slot, entry(hash, location, mark));
                return Ok(());
            }
            overflow = overflow_of(self.control_of(overflow));
            assert!(overflow != 0, "room was made");
        }
    }

    /// Ensures that `count` inserts will find an empty slot.
    #[inline]
    pub(crate) fn make_room(&mut self, count: usize, purpose: Purpose) -> Result<(), NoRoom> {
        let (mut overflow, mut empty, mut length) = (0, 0, 0);
        loop {
            let bucket = self.at(overflow);
            empty += (0..SLOTS).filter(|&slot| location_of(bucket.slot(slot)).is_none()).count();
            if empty >= count {
                return Ok(());
            }
            let mut next = overflow_of(self.control_of(overflow));
            if next == 0 {
                if length >= purpose.chain_max() {
                    return Err(NoRoom);
                }
                if length >= Purpose::Insert.chain_max() {
                    self.generation.note_long_chain();
                }
                next = self.generation.take_overflow(purpose).ok_or(NoRoom)?;
                self.changed = true;
                self.set_overflow_of(overflow, next);
            }
            length += 1;
            overflow = next;
        }
    }

    /// Removes the entry of an object at `place`; returns its mark.
    ///
    /// The chain's last entry takes the place, so that churn leaves no half-empty chains behind. If that empties the
    /// last overflow bucket, it is removed too.
    pub(crate) fn remove(&mut self, place: SlotPlace) -> (Mark, Changed) {
        debug_assert!(
            location_of(self.at(place.overflow).slot(place.slot)).is_some(),
            "an entry is removed once"
        );
        self.changed = true;
        let mark = self.mark(place);
        let (mut before, mut last) = (0, 0);
        loop {
            let next = overflow_of(self.control_of(last));
            if next == 0 {
                break;
            }
            (before, last) = (last, next);
        }
        let hole = self.at(place.overflow);
        let last_bucket = self.at(last);
        match last_bucket.last_used_slot() {
            Some(donor) if last != 0 && (SlotPlace { overflow: last, slot: donor }) != place => {
                hole.set_slot(place.slot, last_bucket.slot(donor));
                // Before the entry leaves its old slot, so that a reader that sees neither copy sees the new version.
                self.control = with_next_version(self.control);
                self.bucket.set_control(self.control);
                last_bucket.set_slot(donor, 0);
            }
            _ => hole.set_slot(place.slot, 0),
        }
        if last != 0 && last_bucket.last_used_slot().is_none() {
            self.control = with_next_version(self.control);
            self.set_overflow_of(before, 0);
            self.bucket.set_control(self.control);
            self.generation.free_overflow(last);
        }
        (mark, Changed(()))
    }

    /// Makes readers wait until the unlock.
    pub(crate) fn begin_commit(&mut self) {
        self.control |= COMMITTING;
        self.bucket.set_control(self.control);
    }

    /// Calls `visit` with all locations in the chain and their marks.
    pub(crate) fn locations(&self, mut visit: impl FnMut(Mark, Location)) {
        let mut overflow = 0;
        loop {
            let bucket = self.at(overflow);
            for slot in 0..SLOTS {
                let entry = bucket.slot(slot);
                if let Some(location) = location_of(entry) {
                    visit(mark_of(entry), location);
                }
            }
            overflow = overflow_of(self.control_of(overflow));
            if overflow == 0 {
                return;
            }
        }
    }

    /// Marks the bucket as moved and unlocks it: its hashes belong to the next generation, or to none.
    pub(crate) fn mark_moved(mut self) {
        debug_assert_eq!(
            self.control & (MOVED | COMMITTING),
            0,
            "a bucket is moved once, and not in a commit"
        );
        self.control |= MOVED;
        self.changed = true;
    }
}

impl Drop for LockedBucket<'_> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(test)]
        held::change(-1);
        if self.changed {
            self.bucket.unlock(self.control);
        } else {
            self.bucket.unlock_unchanged(self.control);
        }
    }
}

/// Counts the buckets that each thread of a test has locked.
#[cfg(test)]
pub(crate) mod held {
    use std::cell::Cell;

    thread_local! {
        static BUCKETS: Cell<i32> = const { Cell::new(0) };
    }

    pub(super) fn change(by: i32) {
        BUCKETS.set(BUCKETS.get() + by);
    }

    /// Asserts that this thread holds no bucket. Under loom all threads share one counter, so nothing is asserted.
    pub(crate) fn assert_none() {
        assert!(cfg!(loom_model) || BUCKETS.get() == 0, "a bucket is locked meanwhile");
    }
}
