//! Growing and shrinking the index in place, a few buckets at a time, and taking a retired table's index apart.
//!
//! Both ways move the entries in hash order to a next generation of another size; only the decision and the size
//! differ. The sizes at which it grows and shrinks are far enough apart that neither causes the other.
//!
//! There is one mover at a time, by a lock that is only tried. A step locks an old bucket, then tries to lock the
//! (mostly two or three) buckets of the next generation that its hashes fall into. If one is locked, it gives up
//! until the next step, since a commit may hold it and wait for the old one. Entries have only 16 bits of the hash,
//! so the caller supplies the hash of a location by a closure (it reads the key).

use crate::epoch::EpochPin;
use crate::index::bucket::{BUCKET_BYTES, SLOTS, location_of};
use crate::index::generation::{Generation, Purpose};
use crate::index::locked::LockedBucket;
use crate::index::{Index, Location};
use crate::limits::{
    GROWTH_BUCKETS_AHEAD, GROWTH_DIVISOR, GROWTH_FACTOR_MAX, LOAD_DENOMINATOR, LOAD_NUMERATOR,
    SHRINK_BUCKETS_MIN, SHRINK_FACTOR_MAX, SHRINK_LOAD_PERCENT, SHRINK_PATIENCE_DIVISOR, SHRINK_ROOM_PERCENT,
};
use crate::memory::HUGE_PAGE_BYTES;
use crate::reclaim::{Garbage, Reclaimer, Retired};
use crate::sync::Ordering;

/// Buckets whose memory is given back together.
const BUCKETS_PER_GIVE_BACK: u64 = (HUGE_PAGE_BYTES / BUCKET_BYTES) as u64;
/// Maximum buckets of the next generation that the hashes of one bucket can fall into, which growth reaches.
const OVERLAP_MAX: usize = GROWTH_FACTOR_MAX as usize + 2;

/// Prefetch distance of objects while an index is dismantled, in buckets.
const DISMANTLED_AHEAD: u64 = 8;

/// The result of a step of moving.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Growth {
    /// There is more to move.
    Unfinished,
    /// Another thread is moving, or has locked a bucket of the next move.
    Busy,
    /// The index keeps its size.
    Idle,
}

/// An error: the system has no memory for the next generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct NoMemory;

impl Index {
    /// Returns whether `objects` are more than the index should hold at its size.
    pub(crate) fn is_overloaded(&self, pin: &EpochPin<'_>, objects: u64) -> bool {
        let Some(current) = self.current(pin) else { return false };
        let buckets = current.next(pin).unwrap_or(current).buckets();
        objects.saturating_mul(LOAD_DENOMINATOR) > buckets * LOAD_NUMERATOR
    }

    /// Returns whether the index, or its next generation, has long been so much larger than `objects` need that it
    /// should shrink. `removals` is the number of those since the last look.
    pub(crate) fn is_due_to_shrink(&self, pin: &EpochPin<'_>, objects: u64, removals: u64) -> bool {
        let Some(current) = self.current(pin) else { return false };
        let generation = current.next(pin).unwrap_or(current);
        let buckets = generation.buckets();
        buckets > SHRINK_BUCKETS_MIN
            && objects.saturating_mul(LOAD_DENOMINATOR * 100) < buckets * LOAD_NUMERATOR * SHRINK_LOAD_PERCENT
            && generation.count_underloaded(removals) >= buckets / SHRINK_PATIENCE_DIVISOR
    }

    /// Creates the next generation, unless there is one; returns whether this call did.
    ///
    /// It is larger by a quarter, or as large as `objects` need if more have come meanwhile. If the system has no
    /// memory for it, the index stays as it is, and chains get longer.
    pub(crate) fn start_growth(
        &self,
        pin: &EpochPin<'_>,
        objects: u64,
        huge_pages: bool,
    ) -> Result<bool, NoMemory> {
        let Some(_mover) = self.mover.try_lock() else { return Ok(false) };
        let Some(current) = self.current(pin) else { return Ok(false) };
        if !current.next_pointer().is_null() {
            return Ok(false);
        }
        let needed = (objects * LOAD_DENOMINATOR).div_ceil(LOAD_NUMERATOR) + 1;
        let larger = current.buckets() + current.buckets().div_ceil(GROWTH_DIVISOR);
        let buckets = needed.clamp(larger, larger.max(current.buckets() * GROWTH_FACTOR_MAX));
        let next =
            Generation::new(current.hashes(), buckets, Some(current), huge_pages).map_err(|_| NoMemory)?;
        self.set_charge(next.bytes() + current.overflow_bytes());
        current.set_next(Box::new(next));
        Ok(true)
    }

    /// Creates a smaller next generation, unless there is a next one; returns whether this call did.
    ///
    /// It has some room for more than `objects`. None is created if the system has no memory for it, or if crafted
    /// keys have made chains that must not get longer.
    pub(crate) fn start_shrinking(&self, pin: &EpochPin<'_>, objects: u64, huge_pages: bool) -> bool {
        let Some(_mover) = self.mover.try_lock() else { return false };
        let Some(current) = self.current(pin) else { return false };
        if !current.next_pointer().is_null() || current.has_long_chain() {
            return false;
        }
        let needed = (objects * LOAD_DENOMINATOR * SHRINK_ROOM_PERCENT).div_ceil(LOAD_NUMERATOR * 100) + 1;
        let buckets = needed.max(current.buckets().div_ceil(SHRINK_FACTOR_MAX));
        if buckets >= current.buckets() {
            return false;
        }
        let Ok(next) = Generation::new(current.hashes(), buckets, Some(current), huge_pages) else {
            return false;
        };
        // The memory shrinks as buckets are moved; the charge shrinks when all are.
        current.set_next(Box::new(next));
        true
    }

    /// Moves up to `buckets` buckets to the next generation.
    pub(crate) fn grow(
        &self,
        pin: &EpochPin<'_>,
        buckets: u64,
        reclaimer: &Reclaimer,
        mut hash_of: impl FnMut(Location) -> u64,
        mut prefetch_location: impl FnMut(Location),
    ) -> Growth {
        let Some(_mover) = self.mover.try_lock() else { return Growth::Busy };
        let Some(current) = self.current(pin) else { return Growth::Idle };
        let Some(next) = current.next(pin) else { return Growth::Idle };
        for _ in 0..buckets {
            let position = current.cursor();
            if position == current.buckets() {
                self.finish_generation(current, reclaimer);
                return Growth::Idle;
            }
            prefetch_bucket(current, position + GROWTH_BUCKETS_AHEAD, &mut prefetch_location);
            if !move_bucket(current, next, position, &mut hash_of) {
                return Growth::Busy;
            }
            self.advance_cursor(current, position + 1, reclaimer);
        }
        Growth::Unfinished
    }

    /// Takes up to `buckets` buckets out of service for good, unless another thread holds one of them. Calls `visit`
    /// with each dropped location, a few buckets after `prefetch_location`. Returns whether nothing is left: then
    /// lookups find nothing and locks are refused.
    pub(crate) fn dismantle(
        &self,
        pin: &EpochPin<'_>,
        buckets: u64,
        reclaimer: &Reclaimer,
        mut prefetch_location: impl FnMut(Location),
        mut visit: impl FnMut(Location),
    ) -> bool {
        let Some(_mover) = self.mover.try_lock() else { return false };
        let Some(current) = self.current(pin) else { return true };
        for _ in 0..buckets {
            let position = current.cursor();
            if position == current.buckets() {
                self.finish_generation(current, reclaimer);
                return self.current(pin).is_none();
            }
            prefetch_bucket(current, position + DISMANTLED_AHEAD, &mut prefetch_location);
            let Some(control) = current.bucket(position).try_lock() else { return false };
            let locked = LockedBucket::new(current, position, control);
            locked.locations(|_, location| visit(location));
            locked.mark_moved();
            self.advance_cursor(current, position + 1, reclaimer);
        }
        false
    }

    /// Makes lookups skip the buckets below `cursor`; called by the mover.
    fn advance_cursor(&self, generation: &Generation, cursor: u64, reclaimer: &Reclaimer) {
        debug_assert_eq!(cursor, generation.cursor() + 1, "buckets are moved one after the other");
        generation.set_cursor(cursor);
        if cursor.is_multiple_of(BUCKETS_PER_GIVE_BACK)
            && let Some((mapping, range)) = generation.pages(cursor - BUCKETS_PER_GIVE_BACK, cursor)
        {
            reclaimer.retire(Garbage::Pages(mapping, range));
        }
    }

    /// Retires a generation whose buckets are all moved; called by the mover.
    fn finish_generation(&self, generation: &Generation, reclaimer: &Reclaimer) {
        debug_assert_eq!(generation.cursor(), generation.buckets(), "nothing is left in it");
        let next = generation.next_pointer();
        let left = self.current.swap(next, Ordering::AcqRel);
        debug_assert!(std::ptr::eq(left, generation), "the mover alone replaces the current generation");
        // SAFETY: the pointer came from `Box::into_raw`; only the mover, which is this thread, replaces it; the
        // reclaimer drops it when no pin can know it.
        let left = unsafe { Retired::new(left) };
        // SAFETY: null, or in `current` now and freed later than this call's pin ends.
        let charged = unsafe { next.as_ref() }.map_or(0, |next| next.bytes() + next.overflow_bytes());
        self.set_charge(charged);
        if let Some(left) = left {
            reclaimer.retire(Garbage::Boxed(Box::new(left)));
        }
    }
}

/// Prefetches the objects of a bucket's own slots, if there is such a bucket.
fn prefetch_bucket(generation: &Generation, position: u64, prefetch_location: &mut impl FnMut(Location)) {
    if position < generation.buckets() {
        let bucket = generation.bucket(position);
        for slot in 0..SLOTS {
            location_of(bucket.slot(slot)).map(&mut *prefetch_location);
        }
    }
}

/// Moves one bucket. Returns false if one of its target buckets is locked.
fn move_bucket(
    current: &Generation,
    next: &Generation,
    position: u64,
    hash_of: &mut impl FnMut(Location) -> u64,
) -> bool {
    let Some(control) = current.bucket(position).try_lock() else { return false };
    let source = LockedBucket::new(current, position, control);
    debug_assert_eq!(current.hashes(), next.hashes(), "both have the hashes of the table");
    let overlap = next.overlap(current, position);
    assert!(overlap.end - overlap.start <= OVERLAP_MAX as u64);
    let mut targets: [Option<LockedBucket<'_>>; OVERLAP_MAX] = [const { None }; OVERLAP_MAX];
    for (target, at) in targets.iter_mut().zip(overlap.clone()) {
        let Some(control) = next.bucket(at).try_lock() else { return false };
        *target = Some(LockedBucket::new(next, at, control));
    }
    let mut room = [0; OVERLAP_MAX];
    // A damaged key may have any hash: its entry stays near, so that walks through all buckets meet it.
    let target_of =
        |hash: u64| (next.position(hash).clamp(overlap.start, overlap.end - 1) - overlap.start) as usize;
    source.locations(|_, location| room[target_of(hash_of(location))] += 1);
    for (target, &count) in targets.iter_mut().zip(&room) {
        if let Some(target) = target
            && target.make_room(count, Purpose::Move).is_err()
        {
            return false;
        }
    }
    source.locations(|mark, location| {
        let hash = hash_of(location);
        let target = targets[target_of(hash)].as_mut().expect("a bucket's hashes lie in its overlap");
        target.insert_marked(hash, location, mark, Purpose::Move).expect("room was made");
    });
    drop(targets);
    source.mark_moved();
    true
}
