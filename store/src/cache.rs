//! The state of a table that evicts: the queues of S3-FIFO (Yang et al., SOSP'23) and a budget of bytes.
//!
//! ```text
//!   inserts ─► arrived, one list a core ─► small (a tenth) ── used twice ──► main ─┐ used: requeued, with a use less
//!                      └── its hash is a ghost ──────────────────────────────► main ◄┘
//!                                              small, not used ─► evicted, its hash a ghost;  main, not used ─► evicted
//! ```
//!
//! Queues hold hashes, eight bytes per object: cleaning moves objects but keeps their hashes. The mark of an object's
//! index entry holds its queue and its number of uses; a reader notes a use there without a lock and without another
//! cache line (`index/bucket.rs`). An overwritten object keeps its place. A deleted object leaves a stale hash, which
//! is dropped when its turn comes or when there are too many of them. A hash in one queue whose object is marked with
//! the other is stale too, because the other queue holds it a second time.
//!
//! Arrivals are kept per core, so that writers of different cores do not contend, in a list that is handed over
//! whole: a core never waits for the thread that takes its arrivals. One lock, which is only tried, protects the
//! queues. `eviction.rs` does the work; the bytes of all this count as index bytes.

mod queues;

use std::sync::Arc;

pub(crate) use crate::cache::queues::Queues;
use crate::limits::{
    CACHE_ARRIVALS_PER_LOOK, CACHE_SLACK_BYTES_MAX, CACHE_SLACK_DIVISOR, CACHE_SMALL_DIVISOR,
};
use crate::sync::{AtomicBool, AtomicBox, AtomicU64, Exclusive, Ordering};

/// The eviction policy of a table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Eviction {
    /// No eviction: objects stay until they are deleted or expire.
    #[default]
    Never,
    /// Evicts the least used objects by S3-FIFO, to keep the table within a budget.
    S3Fifo {
        /// Bytes that the table's objects may take in the log, headers and padding included.
        budget_bytes: u64,
    },
}

/// Hashes of new objects of one core.
#[derive(Default)]
pub(crate) struct Arrivals {
    pub(crate) hashes: Vec<u64>,
}

/// One core's part. The sum wraps, because a core may evict objects that another core wrote.
#[derive(Default)]
#[repr(align(64))]
struct CacheShard {
    small_bytes: AtomicU64,
    /// The number of arrivals, readable without the lock.
    waiting: AtomicU64,
    arrived: AtomicBox<Arrivals>,
    /// An emptied list for reuse.
    spare: AtomicBox<Arrivals>,
}

/// The eviction state of one table: arrivals, queues and budget.
pub(crate) struct Cache {
    budget_bytes: u64,
    shards: Box<[CacheShard]>,
    pub(crate) queues: Exclusive<Queues>,
    /// Bytes reserved for a large write that was told to retry.
    reserved_bytes: AtomicU64,
    /// Whether background steps make room in the table.
    is_evicting: AtomicBool,
    evicted: AtomicU64,
    /// Bytes of the queues, part of the store's `charge`.
    charged_bytes: AtomicU64,
    charge: Arc<AtomicU64>,
}

impl Cache {
    pub(crate) fn new(budget_bytes: u64, cores: usize, charge: Arc<AtomicU64>) -> Cache {
        Cache {
            budget_bytes,
            shards: (0..cores).map(|_| CacheShard::default()).collect(),
            queues: Exclusive::new(Queues::default()),
            reserved_bytes: AtomicU64::new(0),
            is_evicting: AtomicBool::new(false),
            evicted: AtomicU64::new(0),
            charged_bytes: AtomicU64::new(0),
            charge,
        }
    }

    /// Returns the bytes that the table's objects may take.
    #[inline]
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Returns the bytes by which the table may exceed its budget while another core evicts.
    pub(crate) fn slack_bytes(&self) -> u64 {
        (self.budget_bytes / CACHE_SLACK_DIVISOR).min(CACHE_SLACK_BYTES_MAX)
    }

    /// Returns the number of evicted objects.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Counts an eviction; called by the owner of the queues.
    pub(crate) fn count_evicted(&self) {
        self.evicted.store(self.evicted() + 1, Ordering::Relaxed);
    }

    /// Returns the bytes of the queues.
    pub(crate) fn bytes(&self) -> u64 {
        self.charged_bytes.load(Ordering::Relaxed)
    }

    /// Updates the charge for changed queues; called by their owner.
    pub(crate) fn set_charge(&self, queues: &Queues) {
        let bytes = queues.small.bytes() + queues.main.bytes() + queues.ghost.bytes();
        let before = self.charged_bytes.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            self.charge.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Adds bytes of objects in the small queue, as a wrapping difference.
    #[inline]
    pub(crate) fn count_small(&self, core: usize, bytes: u64) {
        // Only the core itself writes its part, so plain loads and stores suffice.
        let counter = &self.shards[core].small_bytes;
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }

    /// Returns whether objects leave from the small queue, judged by its bytes.
    pub(crate) fn small_is_full(&self) -> bool {
        let bytes = self.shards.iter().map(|shard| shard.small_bytes.load(Ordering::Relaxed));
        let bytes = bytes.fold(0, u64::wrapping_add);
        // The sum may be briefly negative while a core is between two counts.
        bytes <= i64::MAX as u64 && bytes > self.budget_bytes / CACHE_SMALL_DIVISOR
    }

    /// Notes a new object of `bytes`, in the small queue, that can be found from now on. Called by that core.
    pub(crate) fn arrive(&self, core: usize, hash: u64, bytes: u64) {
        self.count_small(core, bytes);
        let shard = &self.shards[core];
        let mut arrived = shard.arrived.take().or_else(|| shard.spare.take()).unwrap_or_default();
        arrived.hashes.push(hash);
        let waiting = arrived.hashes.len() as u64;
        let before = shard.arrived.put(arrived);
        debug_assert!(before.is_none(), "the core alone puts arrivals there");
        // After the put: arrivals taken meanwhile are at most counted for too long.
        shard.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Returns whether enough objects have arrived at this core to queue them.
    #[inline]
    pub(crate) fn is_due(&self, core: usize) -> bool {
        self.shards[core].waiting.load(Ordering::Relaxed) >= CACHE_ARRIVALS_PER_LOOK
    }

    /// Takes the arrivals of one core; called by the owner of the queues.
    pub(crate) fn take_arrived(&self, core: usize) -> Option<Box<Arrivals>> {
        let shard = &self.shards[core];
        if shard.waiting.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // Before the take, so that later arrivals are counted.
        shard.waiting.store(0, Ordering::Relaxed);
        shard.arrived.take()
    }

    /// Returns an emptied list for reuse.
    pub(crate) fn give_back(&self, core: usize, emptied: Box<Arrivals>) {
        debug_assert!(emptied.hashes.is_empty());
        drop(self.shards[core].spare.put(emptied));
    }

    /// Requests background steps that make room. Returns false if they are already requested.
    pub(crate) fn note_evicting(&self) -> bool {
        !self.is_evicting.swap(true, Ordering::AcqRel)
    }

    /// Withdraws the request, because background steps make room now.
    pub(crate) fn take_evicting(&self) {
        self.is_evicting.swap(false, Ordering::AcqRel);
    }

    /// Returns the number of cores with an arrival list.
    pub(crate) fn cores(&self) -> usize {
        self.shards.len()
    }

    /// Returns the bytes that a write of `bytes` must leave to a larger one.
    #[inline]
    pub(crate) fn reserved_from(&self, bytes: u64) -> u64 {
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        if bytes < reserved { reserved } else { 0 }
    }

    /// Reserves room for a write that was told to retry.
    pub(crate) fn reserve(&self, bytes: u64) {
        self.reserved_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Reduces the reservation by the bytes written, since the reserving writer may never return.
    pub(crate) fn use_reserve(&self, bytes: u64) {
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        if reserved > 0 {
            self.reserved_bytes.store(reserved.saturating_sub(bytes), Ordering::Relaxed);
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.charge.fetch_sub(self.bytes(), Ordering::Relaxed);
    }
}
