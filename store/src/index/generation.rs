//! One size of a table's index: an array of buckets, room for overflow buckets after it, and the cursor of the move
//! to the next generation.
//!
//! ```text
//!   mapping: [ n buckets │ overflow buckets for inserts │ overflow buckets for the mover ]
//! ```
//!
//! The mover's share is as large as the fullest older generation can need, so that growth never gets stuck. The
//! memory is zero at first, which is an empty live bucket, so that a large generation costs nothing until its buckets
//! are used. Only this file turns the mapping into references to buckets.

use std::io;
use std::ops::{Range, RangeInclusive};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::epoch::EpochPin;
use crate::hash_range::HashRange;
use crate::index::bucket::{BUCKET_BYTES, Bucket, overflow_of, with_overflow};
use crate::limits::{CHAIN_BUCKETS_HARD_MAX, CHAIN_BUCKETS_MAX};
use crate::memory::{HUGE_PAGE_BYTES, Mapping};
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Smaller generations use ordinary pages.
const HUGE_GENERATION_BYTES_MIN: usize = 4 << 20;

/// The purpose of putting an entry into a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// A new object: may be refused.
    Insert,
    /// Growth or shrinking: has room for every admitted entry.
    Move,
}

impl Purpose {
    /// Returns the maximum number of overflow buckets of a chain.
    pub(crate) fn chain_max(self) -> usize {
        match self {
            Purpose::Insert => CHAIN_BUCKETS_MAX,
            Purpose::Move => CHAIN_BUCKETS_HARD_MAX,
        }
    }
}

/// An index of one size. The fields that a look-up reads lie on the first cache line.
#[repr(C, align(64))]
pub(crate) struct Generation {
    memory: BucketArray,
    hashes: HashRange,
    buckets: u64,
    /// Buckets below this position are moved.
    cursor: AtomicU64,
    /// `buckets` over the width of the hashes, in units of 2^-(64 + `scale_shift`).
    scale: u64,
    scale_shift: u32,
    next: AtomicPtr<Generation>,
    /// Overflow buckets that inserts may use; the mover may use all.
    insert_overflow_max: u32,
    overflow_max: u32,
    /// The number of overflow buckets ever used, which is also the next fresh one.
    overflow_used: AtomicU32,
    /// The list of the free ones among those, linked by their control words. The low half is the first one, 0 for none;
    /// the high half counts the changes of the list, so that no exchange mistakes an old state for the present one.
    overflow_free: AtomicU64,
    /// Whether a mover has made a chain longer than inserts may make.
    long_chain: AtomicBool,
    /// The removals that found the generation too large.
    underloaded_removals: AtomicU64,
}

impl Generation {
    /// Creates `buckets` empty buckets for `hashes`, the target of the entries of `older`.
    pub(crate) fn new(
        hashes: HashRange,
        buckets: u64,
        older: Option<&Generation>,
        huge_pages: bool,
    ) -> io::Result<Generation> {
        assert!(buckets > 0 && buckets < u64::from(u32::MAX) / 8);
        let (scale, scale_shift) = scale_of(hashes, buckets);
        // While the mean load is held, crafted keys can fill less than one overflow bucket per bucket; a small
        // index must still have room for two chains of full length.
        let insert_overflow_max =
            if cfg!(loom_model) { 1 } else { buckets as u32 + 2 * CHAIN_BUCKETS_MAX as u32 };
        // Full overflow buckets for all moved entries, and a partly filled one per bucket.
        let moved = older.map_or(0, |older| older.buckets as u32 + older.overflow_max + buckets as u32);
        let overflow_max = insert_overflow_max + if cfg!(loom_model) { 1 } else { moved };
        let huge_pages = huge_pages && buckets as usize * BUCKET_BYTES >= HUGE_GENERATION_BYTES_MIN;
        let memory = BucketArray::new(buckets as usize, overflow_max as usize, huge_pages)?;
        Ok(Generation {
            buckets,
            hashes,
            scale,
            scale_shift,
            cursor: AtomicU64::new(0),
            memory,
            next: AtomicPtr::new(std::ptr::null_mut()),
            insert_overflow_max,
            overflow_max,
            overflow_used: AtomicU32::new(0),
            overflow_free: AtomicU64::new(0),
            long_chain: AtomicBool::new(false),
            underloaded_removals: AtomicU64::new(0),
        })
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Returns the bytes of its buckets, without overflow buckets.
    pub(crate) fn bytes(&self) -> u64 {
        self.buckets * BUCKET_BYTES as u64
    }

    /// Returns the bytes of the overflow buckets that were ever used.
    pub(crate) fn overflow_bytes(&self) -> u64 {
        u64::from(self.overflow_used.load(Ordering::Relaxed)) * BUCKET_BYTES as u64
    }

    /// Returns the bucket of `hash`, in hash order. A hash beyond the range, which a damaged key may have, gets some
    /// bucket.
    #[inline]
    pub(crate) fn position(&self, hash: u64) -> u64 {
        let beyond_first = u128::from(hash.wrapping_sub(self.hashes.first()));
        let position = (beyond_first * u128::from(self.scale)) >> 64;
        (position as u64 >> self.scale_shift).min(self.buckets - 1)
    }

    /// Returns the positions of this generation for the hashes of `position` in `older`.
    pub(crate) fn overlap(&self, older: &Generation, position: u64) -> Range<u64> {
        let hashes = older.hashes_of(position);
        let within = |hash: u64| hash.clamp(self.hashes.first(), self.hashes.last());
        let (first, last) = (self.position(within(*hashes.start())), self.position(within(*hashes.end())));
        debug_assert!(first <= last && last < self.buckets, "positions are in the order of the hashes");
        first..last + 1
    }

    /// Returns the range of hashes.
    pub(crate) fn hashes(&self) -> HashRange {
        self.hashes
    }

    /// Returns the hashes of `position`.
    pub(crate) fn hashes_of(&self, position: u64) -> RangeInclusive<u64> {
        debug_assert!(position < self.buckets, "a position is that of a bucket");
        let last = match position + 1 {
            next if next < self.buckets => self.first_hash(next) - 1,
            _ => self.hashes.last(),
        };
        self.first_hash(position)..=last
    }

    /// Returns the smallest hash of `position`.
    fn first_hash(&self, position: u64) -> u64 {
        let estimate = u128::from(position) * self.hashes.width() / u128::from(self.buckets);
        let mut hash = self.hashes.first() + estimate as u64;
        // The scale is rounded down, so a bucket may begin a few hashes later than the division says.
        while self.position(hash) < position {
            hash += 1;
        }
        while hash > self.hashes.first() && self.position(hash - 1) >= position {
            hash -= 1;
        }
        hash
    }

    /// Returns the cursor: buckets below this position are moved.
    #[inline]
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Acquire)
    }

    /// Sets the cursor; called by the mover.
    pub(crate) fn set_cursor(&self, cursor: u64) {
        debug_assert!(self.cursor() < cursor && cursor <= self.buckets, "a moved bucket stays moved");
        self.cursor.store(cursor, Ordering::Release);
    }

    #[inline]
    pub(crate) fn bucket(&self, position: u64) -> &Bucket {
        assert!(position < self.buckets);
        self.memory.get(position as usize)
    }

    /// Returns the generation that this one grows or shrinks into.
    #[inline]
    pub(crate) fn next<'p>(&self, _pin: &'p EpochPin<'_>) -> Option<&'p Generation> {
        // SAFETY: the next generation is freed through the reclaimer only, after every pin that could have come
        // here; null if the index keeps its size.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn next_pointer(&self) -> *mut Generation {
        self.next.load(Ordering::Acquire)
    }

    /// Sets the next generation; called once, by the mover.
    pub(crate) fn set_next(&self, next: Box<Generation>) {
        let before = self.next.swap(Box::into_raw(next), Ordering::AcqRel);
        assert!(before.is_null(), "a generation is left once");
    }

    /// Returns the overflow bucket of that number; `None` for 0.
    #[inline]
    pub(crate) fn overflow(&self, number: u32) -> Option<&Bucket> {
        if number == 0 {
            return None;
        }
        assert!(number <= self.overflow_max);
        Some(self.memory.get(self.buckets as usize + number as usize - 1))
    }

    /// Takes an empty overflow bucket without a successor. `None` if `purpose` may use no more.
    pub(crate) fn take_overflow(&self, purpose: Purpose) -> Option<u32> {
        let overflow_max = match purpose {
            Purpose::Insert => self.insert_overflow_max,
            Purpose::Move => self.overflow_max,
        };
        let number = self.take_free_overflow().or_else(|| {
            let more = |used| (used < overflow_max).then_some(used + 1);
            self.overflow_used
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
                .ok()
                .map(|used| used + 1)
        })?;
        if let Some(bucket) = self.overflow(number) {
            debug_assert!(bucket.last_used_slot().is_none(), "a bucket that no chain has is empty");
            bucket.set_control(0);
        }
        Some(number)
    }

    /// Takes the first bucket of the free list.
    fn take_free_overflow(&self) -> Option<u32> {
        let mut list = self.overflow_free.load(Ordering::Acquire);
        while let Some(bucket) = self.overflow(list as u32) {
            // If another thread was faster, this is the successor in some chain, and the exchange fails.
            let next = overflow_of(bucket.control());
            match self.exchange_free(list, next) {
                Ok(()) => return Some(list as u32),
                Err(now) => list = now,
            }
        }
        None
    }

    /// Frees an empty overflow bucket that is no longer in a chain.
    pub(crate) fn free_overflow(&self, number: u32) {
        let Some(bucket) = self.overflow(number) else { return };
        debug_assert!(bucket.last_used_slot().is_none(), "only an empty bucket leaves its chain");
        debug_assert!(
            number <= self.overflow_used.load(Ordering::Relaxed),
            "what is given back was taken before"
        );
        let mut list = self.overflow_free.load(Ordering::Relaxed);
        loop {
            bucket.set_control(with_overflow(0, list as u32));
            match self.exchange_free(list, number) {
                Ok(()) => return,
                Err(now) => list = now,
            }
        }
    }

    /// Makes `first` the first bucket of the free list if the list is unchanged.
    fn exchange_free(&self, list: u64, first: u32) -> Result<(), u64> {
        let changed = (list >> 32).wrapping_add(1) << 32 | u64::from(first);
        let exchanged =
            self.overflow_free.compare_exchange(list, changed, Ordering::AcqRel, Ordering::Acquire);
        exchanged.map(drop)
    }

    /// Counts `removals` that found the index too large; returns the sum.
    pub(crate) fn count_underloaded(&self, removals: u64) -> u64 {
        self.underloaded_removals.fetch_add(removals, Ordering::Relaxed) + removals
    }

    /// Notes a chain that is longer than inserts may make; called by the mover.
    pub(crate) fn note_long_chain(&self) {
        self.long_chain.store(true, Ordering::Relaxed);
    }

    /// Returns whether there was ever such a chain: merged with its neighbours it could become too long to be read.
    pub(crate) fn has_long_chain(&self) -> bool {
        self.long_chain.load(Ordering::Relaxed)
    }

    /// Backs the buckets with memory, a huge page at a time, so that other threads get their turn in between.
    pub(crate) fn populate(&self) -> io::Result<()> {
        let Some((mapping, bytes)) = self.pages(0, self.buckets) else { return Ok(()) };
        let mut starts = bytes.clone().step_by(HUGE_PAGE_BYTES);
        starts.try_for_each(|from| mapping.populate(from..bytes.end.min(from + HUGE_PAGE_BYTES)))
    }

    /// Returns the memory of the buckets `from..to`, to be given back.
    pub(crate) fn pages(&self, from: u64, to: u64) -> Option<(Arc<Mapping>, Range<usize>)> {
        let range = from as usize * BUCKET_BYTES..to as usize * BUCKET_BYTES;
        self.memory.mapping().map(|mapping| (mapping, range))
    }
}

/// Returns the factor that converts the distance of a hash from the first one to a position, as exact as 64 bits
/// allow, and the bits beyond 64 by which the product is shifted.
fn scale_of(hashes: HashRange, buckets: u64) -> (u64, u32) {
    let per_hash = (u128::from(buckets) << 64) / hashes.width();
    let shift = u64::try_from(per_hash).expect("more hashes than buckets").leading_zeros();
    let scale = (u128::from(buckets) << (64 + shift)) / hashes.width();
    (scale as u64, shift)
}

/// The buckets of a generation in memory.
#[cfg(not(loom_model))]
struct BucketArray {
    /// The first bucket, so that a look-up does not touch the mapping's fields.
    first: NonNull<Bucket>,
    mapping: Arc<Mapping>,
    count: usize,
}

// SAFETY: `first` lies in the mapping, which any thread may use; buckets are atomics.
#[cfg(not(loom_model))]
unsafe impl Send for BucketArray {}
// SAFETY: as above.
#[cfg(not(loom_model))]
unsafe impl Sync for BucketArray {}

#[cfg(not(loom_model))]
impl BucketArray {
    fn new(buckets: usize, overflow: usize, huge_pages: bool) -> io::Result<BucketArray> {
        let count = buckets + overflow;
        // Overflow buckets are few, and each would touch a huge page.
        let huge_bytes = if huge_pages { buckets * BUCKET_BYTES } else { 0 };
        let mapping = Arc::new(Mapping::new(count * BUCKET_BYTES, huge_bytes)?);
        Ok(BucketArray { first: mapping.base().cast(), mapping, count })
    }

    #[inline]
    fn get(&self, at: usize) -> &Bucket {
        debug_assert!(at < self.count);
        // SAFETY: callers check `at` against the counts that the mapping was made for; it is 64-byte aligned, lives
        // as long as `self`, and every bit pattern is a valid bucket of atomics.
        unsafe { self.first.add(at).as_ref() }
    }

    fn mapping(&self) -> Option<Arc<Mapping>> {
        Some(Arc::clone(&self.mapping))
    }
}

/// The same for loom, whose atomics cannot be made from zeroed memory.
#[cfg(loom_model)]
struct BucketArray {
    buckets: Vec<Bucket>,
}

#[cfg(loom_model)]
impl BucketArray {
    fn new(buckets: usize, overflow: usize, _huge_pages: bool) -> io::Result<BucketArray> {
        Ok(BucketArray { buckets: (0..buckets + overflow).map(|_| Bucket::empty()).collect() })
    }

    fn get(&self, at: usize) -> &Bucket {
        &self.buckets[at]
    }

    fn mapping(&self) -> Option<Arc<Mapping>> {
        None
    }
}
