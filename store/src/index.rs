//! The hash index of one table: hash → locations of objects, in hash order.
//!
//! ```text
//!   current ─► generation (n buckets) ── next ─► generation (1.25 n buckets, or fewer than n), while the size changes
//!              [moved moved moved │ live live live ...]
//!                           cursor ┘
//! ```
//!
//! A bucket covers an equal share of the hashes: position = (hash - first) · n / hashes of the table. The index grows
//! and shrinks bucket by bucket: a step locks one old bucket, puts its entries into the next generation, and marks it
//! moved. A bucket that is not moved is the only truth for its hashes, and a moved one never changes again; so each
//! hash has one owner at any time, and a thread that meets a moved bucket continues in the next generation. Pages
//! before the cursor are given back when no pin is older.
//!
//! Readers take no lock: a hit is an entry that was current at some moment of the call; a miss is believed only if
//! the bucket's control word has not changed meanwhile. The index has locations, not objects: the caller decides by a
//! closure whether a location is the wanted one. Loom tests: `index/loom_tests.rs`.

pub(crate) mod bucket;
pub(crate) mod generation;
pub(crate) mod growth;
pub(crate) mod locked;

#[cfg(all(test, loom_model))]
mod loom_tests;
#[cfg(all(test, not(loom_model)))]
mod tests;

use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::epoch::EpochPin;
use crate::error::WriteError;
use crate::hash_range::HashRange;
use crate::index::bucket::{
    BUCKET_BYTES, BUSY_FOR_READERS, Bucket, COMMITTING, LOCKED, MOVED, SLOTS, is_locked, location_of,
    overflow_of,
};
use crate::index::generation::Generation;
use crate::index::locked::LockedBucket;
use crate::limits::{CHAIN_BUCKETS_HARD_MAX, RETRY_AFTER_US};
use crate::memory::prefetch;
use crate::sync::{AtomicPtr, AtomicU64, Backoff, Busy, Exclusive, Ordering, fence};

/// Bits of a location: 256 TiB of objects.
pub(crate) const LOCATION_BITS: u32 = 45;

/// The location of an object: its offset in the log's region in units of eight bytes. Never 0; [`LOCATION_BITS`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Location(u64);

impl Location {
    /// Returns the location of the object at `offset` bytes, a multiple of 8.
    #[inline]
    pub(crate) fn from_offset(offset: usize) -> Location {
        debug_assert!(offset > 0 && offset.is_multiple_of(8) && offset >> 3 < 1 << LOCATION_BITS);
        Location(offset as u64 >> 3)
    }

    /// Returns the offset in bytes.
    #[inline]
    pub(crate) fn offset(self) -> usize {
        (self.0 << 3) as usize
    }
}

/// The state of a bucket: equal stamps mean that nothing under it has changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Stamp {
    bucket: usize,
    control: u64,
}

/// The reason why a bucket could not be locked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotLocked {
    /// The table is gone.
    Gone,
    /// Another thread has held it for longer than expected.
    Busy,
}

impl From<Busy> for NotLocked {
    fn from(Busy: Busy) -> NotLocked {
        NotLocked::Busy
    }
}

impl From<NotLocked> for WriteError {
    fn from(reason: NotLocked) -> WriteError {
        match reason {
            NotLocked::Gone => WriteError::TableRetired,
            NotLocked::Busy => WriteError::Retry { after_us: RETRY_AFTER_US },
        }
    }
}

/// The hashes for which a bucket is read.
pub(crate) struct Reach {
    /// The hashes that the bucket can have.
    pub(crate) hashes: RangeInclusive<u64>,
    /// The last hash that it owns so far; while the index changes its size, older buckets own the rest.
    pub(crate) end: u64,
}

/// The index of one table.
#[repr(C)]
pub(crate) struct Index {
    current: AtomicPtr<Generation>,
    /// Held by the thread that moves buckets.
    mover: Exclusive<()>,
    /// Bytes of index memory that count against the store's limit, part of the store's `charge`.
    charged_bytes: AtomicU64,
    charge: Arc<AtomicU64>,
    _owns: PhantomData<Generation>,
}

impl Index {
    /// Creates an index of `buckets` buckets for `hashes`. Its bytes are part of `charge` while it lives.
    pub(crate) fn new(
        hashes: HashRange,
        buckets: u64,
        charge: Arc<AtomicU64>,
        huge_pages: bool,
    ) -> io::Result<Index> {
        Ok(Self::over(Generation::new(hashes, buckets, None, huge_pages)?, charge))
    }

    /// As [`Index::new`], with memory backed by the caller now, not by the first thread that uses a bucket. Takes a
    /// few milliseconds per MiB. If the kernel refuses, the index is as without.
    pub(crate) fn backed(
        hashes: HashRange,
        buckets: u64,
        charge: Arc<AtomicU64>,
        huge_pages: bool,
    ) -> io::Result<Index> {
        let generation = Generation::new(hashes, buckets, None, huge_pages)?;
        let _ = generation.populate();
        Ok(Self::over(generation, charge))
    }

    fn over(generation: Generation, charge: Arc<AtomicU64>) -> Index {
        let bytes = generation.bytes();
        let index = Index {
            current: AtomicPtr::new(Box::into_raw(Box::new(generation))),
            mover: Exclusive::new(()),
            charged_bytes: AtomicU64::new(0),
            charge,
            _owns: PhantomData,
        };
        index.set_charge(bytes);
        index
    }

    /// Updates the charge; called by the mover.
    fn set_charge(&self, bytes: u64) {
        let before = self.charged_bytes.swap(bytes, Ordering::Relaxed);
        self.charge.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Returns the number of entries that there is room for.
    pub(crate) fn slots(&self) -> u64 {
        self.bytes() / BUCKET_BYTES as u64 * SLOTS as u64
    }

    /// Returns the bytes of index memory that count against the store's limit.
    pub(crate) fn bytes(&self) -> u64 {
        self.charged_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    fn current<'p>(&self, _pin: &'p EpochPin<'_>) -> Option<&'p Generation> {
        // SAFETY: generations are freed through the reclaimer only, after every pin that could have loaded this
        // pointer; null after dismantling.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the generation and position that own `hash` according to the cursors; the bucket may already be moved.
    #[inline]
    fn owner<'p>(&self, pin: &'p EpochPin<'_>, hash: u64) -> Option<(&'p Generation, u64)> {
        let mut generation = self.current(pin)?;
        loop {
            let position = generation.position(hash);
            if position >= generation.cursor() {
                return Some((generation, position));
            }
            generation = generation.next(pin)?;
        }
    }

    /// Returns whether buckets wait to be moved.
    #[inline]
    pub(crate) fn is_growing(&self, pin: &EpochPin<'_>) -> bool {
        self.current(pin).is_some_and(|current| !current.next_pointer().is_null())
    }

    /// Prefetches the description of the buckets.
    #[inline]
    pub(crate) fn prefetch(&self, pin: &EpochPin<'_>) {
        if let Some(generation) = self.current(pin) {
            prefetch(std::ptr::from_ref(generation).cast());
        }
    }

    /// Prefetches the bucket of `hash`.
    #[inline]
    pub(crate) fn prefetch_bucket(&self, pin: &EpochPin<'_>, hash: u64) {
        if let Some((generation, position)) = self.owner(pin, hash) {
            prefetch(std::ptr::from_ref(generation.bucket(position)).cast());
        }
    }

    /// Calls `visit` with the possible locations of `hash` by its bucket alone, to prefetch them. If there are none,
    /// it prefetches the overflow bucket instead, if there is one.
    #[inline]
    pub(crate) fn candidates(&self, pin: &EpochPin<'_>, hash: u64, mut visit: impl FnMut(Location)) {
        if let Some((generation, position)) = self.owner(pin, hash) {
            let bucket = generation.bucket(position);
            let mut matches = bucket.matches(hash);
            if matches == 0
                && let Some(overflow) = generation.overflow(overflow_of(bucket.control()))
            {
                prefetch(std::ptr::from_ref(overflow).cast());
            }
            while let Some((_, location)) = bucket.take_match(&mut matches, hash) {
                visit(location);
            }
        }
    }

    /// Returns the first result of `accept` for a possible location of `hash`.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        pin: &EpochPin<'_>,
        hash: u64,
        mut accept: impl FnMut(Location) -> Option<T>,
    ) -> Option<T> {
        let (mut generation, mut position) = self.owner(pin, hash)?;
        let mut backoff = Backoff::new();
        loop {
            let bucket = generation.bucket(position);
            let control = bucket.control();
            if control & BUSY_FOR_READERS != 0 {
                if control & MOVED != 0 {
                    generation = generation.next(pin)?;
                    position = generation.position(hash);
                } else {
                    backoff.wait();
                }
                continue;
            }
            if let Some(found) = scan_chain(generation, bucket, control, hash, &mut accept) {
                return Some(found);
            }
            // Empty slots were read relaxed: a thread that empties one has changed the control word before.
            fence(Ordering::Acquire);
            if bucket.control() == control {
                return None;
            }
            backoff.wait();
        }
    }

    /// Notes a use of the object of `hash` that `is_it` recognizes. Does nothing if a writer changes the bucket.
    pub(crate) fn note_use(&self, pin: &EpochPin<'_>, hash: u64, is_it: impl Fn(Location) -> bool) {
        let Some((generation, position)) = self.owner(pin, hash) else { return };
        let mut bucket = generation.bucket(position);
        for _ in 0..=CHAIN_BUCKETS_HARD_MAX {
            let mut matches = bucket.matches(hash);
            while let Some((slot, location)) = bucket.take_match(&mut matches, hash) {
                if is_it(location) {
                    return bucket.note_use(slot, location);
                }
            }
            let Some(next) = generation.overflow(overflow_of(bucket.control())) else { return };
            bucket = next;
        }
    }

    /// Returns the state of the bucket of `hash` when no writer holds it.
    pub(crate) fn stamp(&self, pin: &EpochPin<'_>, hash: u64) -> Result<Stamp, NotLocked> {
        let (mut generation, mut position) = self.owner(pin, hash).ok_or(NotLocked::Gone)?;
        let mut backoff = Backoff::new();
        loop {
            let bucket = generation.bucket(position);
            let control = bucket.control();
            if control & MOVED != 0 {
                generation = generation.next(pin).ok_or(NotLocked::Gone)?;
                position = generation.position(hash);
            } else if is_locked(control) {
                backoff.try_wait()?;
            } else {
                return Ok(Stamp { bucket: std::ptr::from_ref(bucket).addr(), control });
            }
        }
    }

    /// Locks the bucket of `hash`.
    #[inline]
    pub(crate) fn lock<'p>(&self, pin: &'p EpochPin<'_>, hash: u64) -> Result<LockedBucket<'p>, NotLocked> {
        let (mut generation, mut position) = self.owner(pin, hash).ok_or(NotLocked::Gone)?;
        loop {
            match generation.bucket(position).lock()? {
                Some(control) => return Ok(LockedBucket::new(generation, position, control)),
                None => {
                    generation = generation.next(pin).ok_or(NotLocked::Gone)?;
                    position = generation.position(hash);
                }
            }
        }
    }

    /// As [`Index::lock`], by a thread that may wait without a limit. `None` if the table is gone.
    pub(crate) fn lock_patiently<'p>(&self, pin: &'p EpochPin<'_>, hash: u64) -> Option<LockedBucket<'p>> {
        let mut backoff = Backoff::new();
        loop {
            match self.lock(pin, hash) {
                Ok(bucket) => return Some(bucket),
                Err(NotLocked::Gone) => return None,
                Err(NotLocked::Busy) => backoff.wait(),
            }
        }
    }

    /// Returns the address of the bucket that owns `hash` now: the order in which a commit locks.
    pub(crate) fn bucket_address(&self, pin: &EpochPin<'_>, hash: u64) -> Option<usize> {
        let (mut generation, mut position) = self.owner(pin, hash)?;
        loop {
            let bucket = generation.bucket(position);
            if bucket.control() & MOVED == 0 {
                return Some(std::ptr::from_ref(bucket).addr());
            }
            generation = generation.next(pin)?;
            position = generation.position(hash);
        }
    }

    /// Locks the bucket of `hash` if it is still at `address`; waits for its holder, within a bound.
    pub(crate) fn lock_at<'p>(
        &self,
        pin: &'p EpochPin<'_>,
        hash: u64,
        address: usize,
    ) -> Result<Option<LockedBucket<'p>>, Busy> {
        let mut next = self.current(pin);
        while let Some(generation) = next {
            let position = generation.position(hash);
            let bucket = generation.bucket(position);
            if std::ptr::from_ref(bucket).addr() == address {
                let control = bucket.lock()?;
                return Ok(control.map(|control| LockedBucket::new(generation, position, control)));
            }
            next = generation.next(pin);
        }
        Ok(None)
    }

    /// Calls `visit` with the locations of the bucket `buckets` places after that of `hash`.
    ///
    /// Reads only the bucket's own slots. Prefetches the bucket as many places further on, which is read later.
    #[inline]
    pub(crate) fn look_ahead(
        &self,
        pin: &EpochPin<'_>,
        hash: u64,
        buckets: u64,
        mut visit: impl FnMut(Location),
    ) {
        let Some((generation, position)) = self.owner(pin, hash) else { return };
        let at = position + buckets;
        if at < generation.buckets() {
            let bucket = generation.bucket(at);
            (0..SLOTS).filter_map(|slot| location_of(bucket.slot(slot))).for_each(&mut visit);
        }
        if at + buckets < generation.buckets() {
            prefetch(std::ptr::from_ref(generation.bucket(at + buckets)).cast());
        }
    }

    /// Fills `entries` with the tags and locations in the bucket that owns `hash`; `None` if the table is gone.
    ///
    /// One step of a walk in hash order, whose position is a hash: everything below is done. Buckets may be moved, split
    /// and joined between two steps. A caller that must not see an entry twice skips those below the hash. The bucket is
    /// read as of one moment, so an entry that is there all the time is seen.
    ///
    /// Waits only for a commit in the middle of its publication, as a lookup does. Under a writer's lock each entry
    /// changes by one store, and before one leaves a slot for another the version changes; an entry that moves may be
    /// met twice, and is returned once.
    pub(crate) fn read_bucket(
        &self,
        pin: &EpochPin<'_>,
        hash: u64,
        entries: &mut Vec<(u16, Location)>,
    ) -> Option<Reach> {
        entries.clear();
        let mut generation = self.current(pin)?;
        let mut end = u64::MAX;
        let mut backoff = Backoff::new();
        loop {
            let position = generation.position(hash);
            let first = generation.bucket(position);
            let control = first.control();
            if control & MOVED != 0 || position < generation.cursor() {
                end = end.min(*generation.hashes_of(position).end());
                generation = generation.next(pin)?;
                continue;
            }
            if control & COMMITTING == 0 {
                entries.clear();
                let (mut bucket, mut overflow) = (first, overflow_of(control));
                // A chain that a writer is changing may lead elsewhere, hence the bound; the control word tells.
                for _ in 0..=CHAIN_BUCKETS_HARD_MAX {
                    let slots = (0..SLOTS).map(|slot| bucket.slot(slot));
                    entries
                        .extend(slots.filter_map(|entry| Some(((entry >> 48) as u16, location_of(entry)?))));
                    let Some(next) = generation.overflow(overflow) else { break };
                    bucket = next;
                    overflow = overflow_of(bucket.control());
                }
                if first.control() == control {
                    if is_locked(control) {
                        entries.sort_unstable_by_key(|&(_, location)| location.offset());
                        entries.dedup();
                    }
                    let hashes = generation.hashes_of(position);
                    return Some(Reach { end: end.min(*hashes.end()), hashes });
                }
            }
            backoff.wait();
        }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.set_charge(0);
        let mut generation = self.current.load(Ordering::Acquire);
        while !generation.is_null() {
            // SAFETY: no other thread has the index any more, which alone owns each generation of the chain.
            let owned = unsafe { Box::from_raw(generation) };
            generation = owned.next_pointer();
        }
    }
}

/// Searches a bucket and its overflow chain without a lock.
#[inline(always)]
fn scan_chain<T>(
    generation: &Generation,
    first: &Bucket,
    control: u64,
    hash: u64,
    accept: &mut impl FnMut(Location) -> Option<T>,
) -> Option<T> {
    let mut bucket = first;
    let mut overflow = overflow_of(control);
    // A chain that a writer is changing may lead elsewhere, hence the bound; the control word reveals the change.
    for _ in 0..=CHAIN_BUCKETS_HARD_MAX {
        let mut matches = bucket.matches(hash);
        while let Some((_, location)) = bucket.take_match(&mut matches, hash) {
            if let Some(found) = accept(location) {
                return Some(found);
            }
        }
        bucket = generation.overflow(overflow)?;
        overflow = overflow_of(bucket.control());
    }
    None
}

const _: () = assert!(BUSY_FOR_READERS & LOCKED == 0);
