//! A quota: the bytes of the log that the objects of some tables take together, and their limit.
//!
//! Tables of one owner share a quota ([`crate::Store::table_within`]). Bytes are counted per core, like a table's,
//! and summed only if a limit is set: a write without a limit costs one more load and one more addition. A write is
//! checked against the limit under the lock of its bucket, minus the object that it replaces, so that deletes and
//! writes that do not grow always pass. Cores do not wait for each other here: together they can exceed the limit by
//! one write (an object or a commit) of each core but one.
//!
//! A retired table counts until it is taken apart, since it takes memory until then.

use crate::sync::{AtomicU64, Ordering};

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// One core's part. Sums wrap, because a core may delete objects that another core wrote.
#[derive(Default)]
#[repr(align(64))]
struct QuotaShard {
    bytes: AtomicU64,
}

/// The byte count and limit of some tables.
pub struct Quota {
    limit_bytes: AtomicU64,
    shards: Box<[QuotaShard]>,
}

impl Quota {
    /// Creates a quota for tables of a store of `cores` cores; [`u64::MAX`] is no limit.
    pub fn new(cores: usize, limit_bytes: u64) -> Quota {
        let shards = (0..cores).map(|_| QuotaShard::default()).collect();
        Quota { limit_bytes: AtomicU64::new(limit_bytes), shards }
    }

    /// Sets the limit for writes from now on. Objects beyond it stay.
    pub fn set_limit(&self, limit_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the objects in the log, headers and padding included. Exact when no write is under way.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(shard.bytes.load(Ordering::Relaxed)))
    }

    /// Returns the number of cores that it counts for.
    pub(crate) fn cores(&self) -> usize {
        self.shards.len()
    }

    /// Counts a write of `core` that changed the bytes, as a wrapping difference.
    #[inline]
    pub(crate) fn count(&self, core: usize, bytes: u64) {
        // Only the core itself writes its shard, so plain loads and stores suffice.
        let counter = &self.shards[core].bytes;
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Returns whether there is a limit.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limit_bytes.load(Ordering::Relaxed) != UNLIMITED
    }

    /// Returns whether `new_bytes` may replace `old_bytes`.
    #[inline]
    pub(crate) fn admits(&self, new_bytes: u64, old_bytes: u64) -> bool {
        !self.is_limited() || new_bytes <= old_bytes || self.has_room(new_bytes - old_bytes)
    }

    #[inline(never)]
    fn has_room(&self, bytes: u64) -> bool {
        let taken = self.bytes();
        // The sum may be briefly negative while a core is between two counts.
        let taken = if taken > i64::MAX as u64 { 0 } else { taken };
        taken.saturating_add(bytes) <= self.limit_bytes.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Quota {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        write!(out, "Quota {{ limit_bytes: {limit_bytes}, bytes: {} }}", self.bytes())
    }
}
