//! The store: its parts, its configuration, its figures, the work that waits in it.
//!
//! [`Store::new`] lists the parts. Workers take a [`Core`] each and do all work through it; control threads call
//! [`Store::table`], [`Table::retire`] and [`Store::statistics`], which never wait for a worker.

pub(crate) mod cleaning;
pub(crate) mod core;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::cache::Cache;
use crate::directory::Directory;
use crate::epoch::Epochs;
use crate::error::StoreError;
use crate::index::Index;
use crate::index::bucket::BUCKET_BYTES;
use crate::limits::{
    BUCKETS_INITIAL, EXPECTED_INDEX_DIVISOR, EXPECTED_ROOM_DIVISOR, LOAD_DENOMINATOR, LOAD_NUMERATOR,
    SEGLETS_PER_WINDOW_MAX, SEGMENT_BYTES_DEFAULT, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, WINDOWS_MIN,
};
use crate::log::Log;
use crate::object::NEVER_MS;
use crate::ordered::Leaving;
use crate::quota::Quota;
use crate::reclaim::Reclaimer;
use crate::segment::State;
use crate::store::cleaning::{Cleaner, CleanerStatistics, Cleaning};
use crate::store::core::Core;
use crate::sync::{AtomicBool, AtomicU64, Exclusive, Ordering, Worklist};
use crate::table::{Table, TableKind, TableOptions};

/// The configuration of a store.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Limit of objects and indexes together, in bytes, rounded down to a multiple of `segment_bytes`.
    pub memory_bytes: usize,
    /// Bytes of a segment, a power of two from 4 KiB to 64 MiB. An object must fit in one.
    pub segment_bytes: usize,
    /// Number of cores, hence of log heads.
    pub cores: usize,
    /// Whether to request transparent huge pages: they halve the time of a lookup that misses the caches.
    pub huge_pages: bool,
    /// Whether the store can have durable tables ([`TableOptions::durable`]): each core has a second log head for them.
    pub durable: bool,
    /// Number of further cores, which do nothing but rebuild durable tables and have no log heads of their own.
    pub recovery_cores: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            memory_bytes: 1 << 30,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            cores: 1,
            huge_pages: true,
            durable: false,
            recovery_cores: 0,
        }
    }
}

impl Config {
    /// Checks whether a store can be created with this configuration.
    ///
    /// # Errors
    /// [`StoreError::Config`], with the reason.
    pub fn check(&self) -> Result<(), StoreError> {
        segment_count(self).map(drop)
    }

    /// Returns the number of all cores.
    #[must_use]
    pub const fn all_cores(&self) -> usize {
        self.cores + self.recovery_cores
    }

    /// Returns the minimum `memory_bytes` for this segment size and number of cores.
    #[must_use]
    pub const fn memory_bytes_min(&self) -> usize {
        let heads = if self.durable { 2 * self.cores } else { self.cores };
        (WINDOWS_MIN + heads).saturating_mul(self.segment_bytes)
    }
}

/// Figures of a store.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Statistics {
    /// Limit of objects and indexes together, in bytes.
    pub memory_bytes: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Number of full segments that fit.
    pub segments: u64,
    /// Number of full segments that fit the free memory.
    pub segments_free: u64,
    /// Memory that waits for readers, in full segments.
    pub segments_pending_reclamation: u64,
    /// Bytes of reachable objects, over all tables.
    pub object_bytes: u64,
    /// Objects over all tables.
    pub objects: u64,
    /// Bytes of all indexes, and of the trees of ordered tables.
    pub index_bytes: u64,
    /// Places for objects in all indexes, overflow buckets in use included.
    pub index_slots: u64,
    /// Number of tables, retired ones included until their memory is free.
    pub tables: u64,
    /// Segments that the cleaner has emptied.
    pub segments_cleaned: u64,
    /// Bytes that the cleaner has copied.
    pub bytes_relocated: u64,
    /// Objects that were removed because they had expired.
    pub objects_expired: u64,
    /// Objects that tables have evicted to stay within their budgets.
    pub objects_evicted: u64,
    /// Number of retirements since the oldest pin: grows if a pin lives too long.
    pub oldest_pin_age: u64,
    /// The log's memory in detail, and the cost of cleaning it.
    pub cleaner: CleanerStatistics,
}

/// Work that waits to be done in the background; `background.rs` and `eviction.rs` do it.
///
/// No thread waits for a list: work is added without a lock, and a thread that removes work only tries the list's lock.
pub(crate) struct Backlog {
    /// Ids of tables whose index grows.
    pub(crate) growing: Worklist<u32>,
    /// Ids of tables with room reserved for a large write, each once.
    pub(crate) evicting: Worklist<u32>,
    /// Tables that are being taken apart; locked by the thread that takes one apart.
    pub(crate) retiring: Exclusive<VecDeque<Arc<Table>>>,
    /// Keys that still have to leave the trees of ordered tables.
    pub(crate) leaving: Worklist<Leaving>,
    /// Tables with objects that expire.
    pub(crate) expiring: Worklist<ExpiryWalk>,
    /// Ids of tables whose objects go to other heads, each once.
    pub(crate) rewriting: Worklist<u32>,
}

/// The progress of the removal of a table's expired objects.
pub(crate) struct ExpiryWalk {
    pub(crate) table: u32,
    /// Buckets of lower hashes are done.
    pub(crate) next_hash: u64,
    /// The earliest time to continue the walk.
    pub(crate) due_ms: u64,
    /// The time of its beginning.
    pub(crate) began_ms: u64,
    /// The earliest expiry among the remaining objects.
    pub(crate) earliest_ms: u64,
}

/// Log-structured memory with tables.
pub struct Store {
    pub(crate) config: Config,
    pub(crate) log: Log,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) directory: Directory,
    pub(crate) index_bytes: Arc<AtomicU64>,
    pub(crate) retired_count: Arc<AtomicU64>,
    pub(crate) cleaner: Exclusive<Cleaner>,
    pub(crate) backlog: Backlog,
    pub(crate) objects_expired: AtomicU64,
    pub(crate) objects_evicted: AtomicU64,
    /// See [`Store::advance_clock`].
    now_ms: AtomicU64,
    pub(crate) cleaning: Cleaning,
    cores_taken: Box<[AtomicBool]>,
}

impl Backlog {
    pub(crate) fn new() -> Backlog {
        Backlog {
            growing: Worklist::new(),
            evicting: Worklist::new(),
            retiring: Exclusive::new(VecDeque::new()),
            leaving: Worklist::new(),
            expiring: Worklist::new(),
            rewriting: Worklist::new(),
        }
    }
}

impl Store {
    /// Creates an empty store. Memory is reserved, not touched.
    pub fn new(config: Config) -> Result<Arc<Store>, StoreError> {
        let count = segment_count(&config)?;
        let log =
            Log::new(config.segment_bytes, count, config.all_cores(), (config.huge_pages, config.durable))
                .map_err(StoreError::Memory)?;
        let epochs = Arc::new(Epochs::new(config.all_cores()));
        Ok(Arc::new(Store {
            config,
            reclaimer: Reclaimer::new(Arc::clone(&epochs)),
            epochs,
            directory: Directory::new(),
            index_bytes: Arc::new(AtomicU64::new(0)),
            retired_count: Arc::new(AtomicU64::new(0)),
            cleaner: Exclusive::new(Cleaner::new(
                log.segments.seglets(),
                log.segments.window_seglets(),
                config.all_cores(),
            )),
            backlog: Backlog::new(),
            objects_expired: AtomicU64::new(0),
            objects_evicted: AtomicU64::new(0),
            now_ms: AtomicU64::new(0),
            cleaning: Cleaning::default(),
            log,
            cores_taken: (0..config.all_cores()).map(|_| AtomicBool::new(false)).collect(),
        }))
    }

    /// Returns the core of that index for one thread. Panics if the core is already taken.
    pub fn core(self: &Arc<Self>, index: usize) -> Core {
        let taken = self.cores_taken[index].swap(true, Ordering::AcqRel);
        assert!(!taken, "core {index} is taken");
        Core::new(Arc::clone(self), index)
    }

    /// Returns the number of cores, taken or not, as a quota needs it.
    pub fn cores(&self) -> usize {
        self.config.all_cores()
    }

    /// Sets the store's clock, by which objects expire: milliseconds since the Unix epoch. An earlier time than the
    /// present one is ignored.
    #[inline]
    pub fn advance_clock(&self, now_ms: u64) {
        if self.now_ms.load(Ordering::Relaxed) < now_ms {
            self.now_ms.fetch_max(now_ms, Ordering::Relaxed);
        }
    }

    /// Returns the time of the store's clock.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn give_core_back(&self, index: usize) {
        self.cores_taken[index].store(false, Ordering::Release);
    }

    /// Returns the table of that id, creating it if needed. Panics if there is no memory for 256 bytes.
    pub fn table(&self, id: u32) -> Arc<Table> {
        self.table_within(id, &Arc::new(Quota::new(self.config.all_cores(), u64::MAX)))
    }

    /// Returns the table of that id, created within `quota` if there is none. Panics if there is no memory for 256
    /// bytes, and for a quota of another number of cores.
    pub fn table_within(&self, id: u32, quota: &Arc<Quota>) -> Arc<Table> {
        self.table_of_kind(id, TableKind::Hash, quota)
    }

    /// As [`Store::table_within`], with that kind for a new table.
    pub fn table_of_kind(&self, id: u32, kind: TableKind, quota: &Arc<Quota>) -> Arc<Table> {
        self.table_with(id, TableOptions { kind, ..TableOptions::default() }, quota)
    }

    /// As [`Store::table_within`], with those options for a new table.
    pub fn table_with(&self, id: u32, options: TableOptions, quota: &Arc<Quota>) -> Arc<Table> {
        assert!(quota.cores() == self.config.all_cores(), "a quota counts for each core of the store");
        assert!(self.config.durable || !options.durable, "the store has no heads for durable tables");
        let existing = self.directory.read(|listing| listing.get(id).cloned());
        if let Some(table) = existing.filter(|table| !table.is_retired()) {
            return table;
        }
        let (index_bytes, retired) = (Arc::clone(&self.index_bytes), Arc::clone(&self.retired_count));
        let (quota, index) = (Arc::clone(quota), self.index_for(&options));
        let table = Table::new(id, options, quota, self.log_address(), index, index_bytes, retired);
        self.directory.add(&self.reclaimer, Arc::new(table))
    }

    /// Creates an index with room for the expected objects, if they need at most a share of the memory.
    fn index_for(&self, options: &TableOptions) -> Index {
        let room = options.objects_expected / EXPECTED_ROOM_DIVISOR;
        let objects = options.objects_expected.saturating_add(room);
        let wanted = objects.saturating_mul(LOAD_DENOMINATOR) / LOAD_NUMERATOR + 2;
        let most = self.memory_bytes() / EXPECTED_INDEX_DIVISOR / BUCKET_BYTES as u64;
        let buckets = match options.objects_expected {
            0 => BUCKETS_INITIAL,
            _ => wanted.min(most).clamp(BUCKETS_INITIAL, u64::from(u32::MAX) / 16),
        };
        let make = if options.objects_expected == 0 { Index::new } else { Index::backed };
        let of = |buckets, huge| make(options.hashes, buckets, Arc::clone(&self.index_bytes), huge);
        let index = of(buckets, self.config.huge_pages).or_else(|_| of(BUCKETS_INITIAL, false));
        index.expect("256 bytes can be had")
    }

    /// Backs window `number` with memory, so that the first write there does not wait for the kernel.
    ///
    /// Returns false if there is no window of that number to back: the last eighth is left to indexes, which share
    /// the limit. For a thread beside the workers, which may use the window meanwhile. Cost: clearing it, about 1 ms
    /// for 8 MiB.
    pub fn populate_segment(&self, number: u32) -> io::Result<bool> {
        let count = self.log.segments.seglets() / self.log.segments.window_seglets();
        if number >= count - count / 8 {
            return Ok(false);
        }
        self.log.populate(number).map(|()| true)
    }

    pub(crate) fn log_address(&self) -> usize {
        std::ptr::from_ref(&self.log).addr()
    }

    /// Returns the free seglets that an ordinary writer must leave.
    pub(crate) fn keep_for_writers(&self) -> u64 {
        self.log.keep_for_writers(self.index_bytes.load(Ordering::Relaxed))
    }

    /// Sets how many free seglets a recovery may still need, which writers must leave in addition.
    pub(crate) fn await_seglets(&self, seglets: u64) {
        if let Some(durable) = &self.log.durable {
            durable.awaited.store(seglets, Ordering::Relaxed);
        }
    }

    /// Returns these.
    pub(crate) fn seglets_awaited(&self) -> u64 {
        self.log.durable.as_ref().map_or(0, |durable| durable.awaited.load(Ordering::Relaxed))
    }

    /// Returns the objects that the cleaner has removed from the index, and the segments that it has set aside,
    /// because their bytes were damaged. Cost: three loads.
    pub fn damaged(&self) -> (u64, u64) {
        let CleanerStatistics { damaged_objects, damaged_segments, .. } = self.cleaning.counted();
        (damaged_objects, damaged_segments)
    }

    /// Returns the limit of objects and indexes together, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.log.bytes()
    }

    /// Returns the approximate current figures of the store. Cost: a look at each segment and table.
    pub fn statistics(&self) -> Statistics {
        let (mut objects, mut object_bytes, mut index_slots, mut tables) = (0_u64, 0_u64, 0, 0);
        self.directory.read(|listing| {
            for table in listing.iter() {
                objects = objects.wrapping_add(table.objects());
                object_bytes = object_bytes.wrapping_add(table.bytes());
                index_slots += table.index.slots();
                tables += 1;
            }
        });
        let window_seglets = u64::from(self.log.segments.window_seglets());
        let cleaner = self.cleaner_statistics();
        let window_bytes = self.log.window_bytes() as u64;
        Statistics {
            memory_bytes: self.log.bytes(),
            segment_bytes: window_bytes,
            segments: u64::from(self.log.segments.seglets()) / window_seglets,
            segments_free: self.log.segments.free_count() / window_seglets,
            segments_pending_reclamation: cleaner.pending_reclamation_bytes.div_ceil(window_bytes),
            object_bytes,
            objects,
            index_bytes: self.index_bytes.load(Ordering::Relaxed),
            index_slots,
            tables,
            objects_expired: self.objects_expired.load(Ordering::Relaxed),
            objects_evicted: self.objects_evicted.load(Ordering::Relaxed),
            segments_cleaned: self.cleaning.segments_cleaned.load(Ordering::Relaxed),
            bytes_relocated: cleaner.copied_bytes,
            oldest_pin_age: self.epochs.oldest_pin_age(),
            cleaner,
        }
    }

    fn cleaner_statistics(&self) -> CleanerStatistics {
        let segments = &self.log.segments;
        let seglet_bytes = self.log.seglet_bytes() as u64;
        let (mut pending_reclamation, mut dead) = (0, 0);
        for (id, state) in segments.iter() {
            let run = segments.run(id);
            match state {
                State::Retired => pending_reclamation += u64::from(run.end - run.start),
                State::Closed | State::Cleaning | State::Damaged => dead += u64::from(segments.dead(id)),
                State::Free | State::Head => {}
            }
        }
        CleanerStatistics {
            seglet_bytes,
            free_bytes: segments.free_count() * seglet_bytes,
            kept_bytes: self.keep_for_writers() * seglet_bytes,
            pending_reclamation_bytes: pending_reclamation * seglet_bytes,
            dead_bytes: dead,
            written_bytes: self.log.written_bytes(),
            ..self.cleaning.counted()
        }
    }

    /// Notes that a table's index grows, so that it grows even without inserts.
    pub(crate) fn note_growing(&self, table: &Table) {
        self.backlog.growing.add(table.id());
    }

    /// Notes that a table makes room for a large write.
    pub(crate) fn note_evicting(&self, table: &Table, cache: &Cache) {
        if cache.note_evicting() {
            self.backlog.evicting.add(table.id());
        }
    }

    /// Notes that a table has objects that expire.
    #[cold]
    pub(crate) fn note_expiring(&self, table: &Table) {
        let (table, due_ms) = (table.id(), self.now_ms());
        let walk = ExpiryWalk { table, next_hash: 0, due_ms, began_ms: due_ms, earliest_ms: NEVER_MS };
        self.backlog.expiring.add(walk);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Store").field("config", &self.config).finish_non_exhaustive()
    }
}

fn segment_count(config: &Config) -> Result<u32, StoreError> {
    let bytes = config.segment_bytes;
    if !bytes.is_power_of_two() || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&bytes) {
        return Err(StoreError::Config("segment_bytes must be a power of two from 4 KiB to 64 MiB"));
    }
    if config.cores == 0 {
        return Err(StoreError::Config("cores must be at least 1"));
    }
    if config.memory_bytes < config.memory_bytes_min() {
        return Err(StoreError::Config("memory_bytes must hold a segment per core and four more"));
    }
    let count = config.memory_bytes / bytes;
    // Far below the limit of locations: 2^45 units of 8 bytes.
    let count = u32::try_from(count).ok().filter(|&count| count <= u32::MAX / SEGLETS_PER_WINDOW_MAX);
    count.ok_or(StoreError::Config("memory_bytes is too large for this segment_bytes"))
}
