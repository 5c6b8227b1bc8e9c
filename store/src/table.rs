//! A table: its index, its exact counts, and (`table/versions.rs`) the versions of its keys.
//!
//! Counts are kept per core and summed on request, so that writers of different cores share no line. They are exact
//! when no write is under way. A key that is created again gets a version above every version that a deleted key of
//! the table ever had (RAMCloud's safe version, TOCS'15 §4).

mod versions;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use crate::arrival::Arrival;
use crate::cache::{Cache, Eviction};
use crate::dirty_map::DirtyMap;
use crate::hash_range::HashRange;
use crate::index::Index;
use crate::index::locked::Changed;
use crate::limits::{CACHE_CHUNKS_PER_STEP, CHANGES_PER_LOAD_CHECK};
use crate::memory::prefetch;
use crate::object::{Lengths, NEVER_MS};
use crate::ordered::OrderedKeys;
use crate::progress::Rewriting;
use crate::quota::Quota;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Promises of tables in the order of what answers wait for: for no disk, only if the request asks, always.
pub(crate) const IN_MEMORY: u8 = 0;
pub(crate) const WRITTEN: u8 = 1;
pub(crate) const SYNCED: u8 = 2;

/// Bytes of a key in the tree besides its own: its offset, and its share of a leaf that is two thirds full.
const KEY_OVERHEAD_BYTES: u64 = 8;

/// One core's part of a table's counts. Sums wrap, because a core may delete objects that another core wrote.
#[derive(Default)]
#[repr(align(64))]
struct CountShard {
    objects: AtomicU64,
    bytes: AtomicU64,
    /// Inserts and removals.
    changes: AtomicU64,
    /// Removals since the load was last looked at.
    removals: AtomicU64,
    expiring: AtomicU64,
    /// The highest version that the core has assigned.
    newest_version: AtomicU64,
}

/// The capability of a table beyond finding an object by its key.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TableKind {
    /// No other capability.
    #[default]
    Hash,
    /// Keys can be scanned in order ([`crate::Pinned::scan`]). Costs a tree of the keys besides the index.
    Ordered,
}

/// The options of a new table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TableOptions {
    /// The kind of the table.
    pub kind: TableKind,
    /// The eviction policy.
    pub eviction: Eviction,
    /// Whether its objects go to segments that a disk is to hold; needs [`crate::Config::durable`].
    pub durable: bool,
    /// The hashes of its keys. The caller must use no others: they would share buckets with the nearest ones.
    pub hashes: HashRange,
    /// What the caller divides the table by, if that is not hashes: see [`Table::positions`].
    pub positions: Option<HashRange>,
    /// The number of objects about to come. The index is created for as many, within reason, and backed with memory
    /// at once, which takes a few milliseconds per MiB.
    pub objects_expected: u64,
}

/// Whether a table takes writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Service {
    /// It does.
    Open = 0,
    /// Not for a moment: see [`Table::hold_writes`].
    Held = 1,
    /// Never again.
    Retired = 2,
}

/// A table of a store, created by [`crate::Store::table`]. The fields that a look-up reads lie on the first cache
/// line.
#[repr(C, align(64))]
pub struct Table {
    pub(crate) index: Index,
    /// The address of the log that its index points into.
    log: usize,
    pub(crate) durable: AtomicBool,
    /// [`IN_MEMORY`], [`WRITTEN`] or [`SYNCED`].
    promise: AtomicU8,
    /// Whether a recovery brings its objects while it is in use.
    pub(crate) replaying: AtomicBool,
    /// The eviction state, of a table that evicts.
    pub(crate) cache: Option<Box<Cache>>,
    pub(crate) hashes: HashRange,
    pub(crate) positions: Option<HashRange>,
    /// The tree of keys, of an ordered table.
    pub(crate) ordered: Option<OrderedKeys>,
    /// The arrival state, of a table whose objects arrive or arrived from another store.
    pub(crate) arrival: OnceLock<Arrival>,
    /// The marks of changes, of a table that is or was copied while in use.
    pub(crate) touched: OnceLock<DirtyMap>,
    service: AtomicU8,
    version_high_water: AtomicU64,
    /// The highest version with which a key was removed or has expired.
    ended_high_water: AtomicU64,
    /// All writes get higher versions; rarely changes.
    version_floor: AtomicU64,
    /// Distinguishes its cursors from those of other tables.
    cursor_seed: u64,
    /// The earliest expiry noted since the last [`Table::take_earliest_expiry`].
    earliest_expiry_ms: AtomicU64,
    /// Whether the table is in the list of tables with expiring objects.
    expiry_is_due: AtomicBool,
    id: u32,
    /// See [`Table::entry_number`].
    pub(crate) log_number: AtomicU32,
    pub(crate) rewriting: Rewriting,
    shards: Box<[CountShard]>,
    quota: Arc<Quota>,
    /// Tables of the store that are retired and not yet taken apart.
    retired_count: Arc<AtomicU64>,
}

impl Table {
    pub(crate) fn new(
        id: u32,
        options: TableOptions,
        quota: Arc<Quota>,
        log: usize,
        index: Index,
        index_bytes: Arc<AtomicU64>,
        retired_count: Arc<AtomicU64>,
    ) -> Table {
        let ordered = options.kind == TableKind::Ordered;
        let ordered = ordered.then(|| OrderedKeys::new(Arc::clone(&index_bytes)));
        let cache = match options.eviction {
            Eviction::Never => None,
            Eviction::S3Fifo { budget_bytes } => {
                Some(Box::new(Cache::new(budget_bytes, quota.cores(), Arc::clone(&index_bytes))))
            }
        };
        Table {
            hashes: options.hashes,
            positions: options.positions,
            durable: AtomicBool::new(options.durable),
            promise: AtomicU8::new(if options.durable { WRITTEN } else { IN_MEMORY }),
            replaying: AtomicBool::new(false),
            ordered,
            cache,
            index,
            arrival: OnceLock::new(),
            touched: OnceLock::new(),
            service: AtomicU8::new(Service::Open as u8),
            version_high_water: AtomicU64::new(0),
            ended_high_water: AtomicU64::new(0),
            version_floor: AtomicU64::new(0),
            cursor_seed: RandomState::new().hash_one(id),
            earliest_expiry_ms: AtomicU64::new(NEVER_MS),
            expiry_is_due: AtomicBool::new(false),
            id,
            log_number: AtomicU32::new(id),
            rewriting: Rewriting::default(),
            log,
            shards: (0..quota.cores()).map(|_| CountShard::default()).collect(),
            quota,
            retired_count,
        }
    }

    /// Prefetches the fields that a look-up reads.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(std::ptr::from_ref(self).cast());
    }

    /// Returns the table's number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Returns whether its objects go to segments that a disk is to hold.
    #[inline]
    pub fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Relaxed)
    }

    /// Returns the number by which new entries name it: its own, or that of its present time on the disk
    /// ([`crate::Store::turn`]).
    #[inline]
    pub(crate) fn entry_number(&self) -> u32 {
        if self.is_durable() { self.log_number.load(Ordering::Relaxed) } else { self.id }
    }

    /// Returns whether nobody may be told of its objects, nor of their absence, before the disk holds what is told.
    #[inline]
    pub fn is_synced(&self) -> bool {
        self.promise() == SYNCED
    }

    /// Returns what answers about it wait for.
    #[inline]
    pub(crate) fn promise(&self) -> u8 {
        self.promise.load(Ordering::Relaxed)
    }

    /// Returns whether anybody was promised that its objects are there after a crash: not while they are on their way to
    /// the disk.
    #[inline]
    pub fn is_promised(&self) -> bool {
        self.promise() != IN_MEMORY
    }

    /// Ends what was promised, until [`Table::set_synced`] is called.
    pub fn promise_nothing(&self) {
        self.promise.store(IN_MEMORY, Ordering::Relaxed);
    }

    /// Makes answers about a durable table wait for the disk from now on, or not: see [`crate::Core::take_seen`].
    pub fn set_synced(&self, synced: bool) {
        if self.is_durable() {
            self.promise.store(if synced { SYNCED } else { WRITTEN }, Ordering::Relaxed);
        }
    }

    /// Returns the lengths of an object that a writer appends.
    #[inline]
    pub(crate) fn lengths(&self, key: &[u8], value_bytes: usize, expires_ms: u64) -> Lengths {
        let (expires, predecessor) = (expires_ms != NEVER_MS, self.is_durable());
        Lengths { key_bytes: key.len(), value_bytes, expires, predecessor }
    }

    /// Returns the number of objects. Exact when no write is under way.
    pub fn objects(&self) -> u64 {
        self.sum(|shard| &shard.objects)
    }

    /// Returns the bytes of its objects in the log, headers and padding included. Exact when no write is under way.
    pub fn bytes(&self) -> u64 {
        self.sum(|shard| &shard.bytes)
    }

    /// Returns the number of objects with an expiry, including expired ones not yet removed. Exact when no write is
    /// under way.
    pub fn expiring(&self) -> u64 {
        self.sum(|shard| &shard.expiring)
    }

    /// Returns the bytes of its index, of its tree of keys if ordered, and of its queues if it evicts.
    pub fn index_bytes(&self) -> u64 {
        let tree_bytes = self.ordered.as_ref().map_or(0, OrderedKeys::bytes);
        self.index.bytes() + tree_bytes + self.cache.as_ref().map_or(0, |cache| cache.bytes())
    }

    /// Returns the approximate bytes of a new key in the tree, for a quota check.
    #[inline]
    pub(crate) fn bytes_in_tree(&self, key: &[u8]) -> u64 {
        if self.ordered.is_some() { key.len() as u64 + KEY_OVERHEAD_BYTES } else { 0 }
    }

    /// Returns the kind of the table.
    #[inline]
    pub fn kind(&self) -> TableKind {
        if self.ordered.is_some() { TableKind::Ordered } else { TableKind::Hash }
    }

    /// Returns the eviction policy.
    pub fn eviction(&self) -> Eviction {
        let s3_fifo = |cache: &Cache| Eviction::S3Fifo { budget_bytes: cache.budget_bytes() };
        self.cache.as_deref().map_or(Eviction::Never, s3_fifo)
    }

    /// Returns the number of evicted objects.
    pub fn evicted(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.evicted())
    }

    /// Frees a part of the queues of a retired table whose index is dismantled. Returns whether it did.
    pub(crate) fn take_queues_apart(&self) -> bool {
        let Some(cache) = &self.cache else { return false };
        let Some(mut queues) = cache.queues.try_lock() else { return true };
        queues.ghost.take_apart();
        let has_more = queues.small.take_apart(CACHE_CHUNKS_PER_STEP);
        let has_more = has_more || queues.main.take_apart(CACHE_CHUNKS_PER_STEP);
        cache.set_charge(&queues);
        has_more
    }

    /// Returns the seed that seals its cursors, unique among all tables that ever existed.
    pub(crate) fn cursor_seed(&self) -> u64 {
        self.cursor_seed
    }

    /// Returns the quota that it shares with other tables.
    #[inline]
    pub(crate) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Takes the table out of service: writes are refused from now on, and background steps free its memory.
    pub fn retire(&self) {
        let retired = Service::Retired as u8;
        if self.service.swap(retired, Ordering::AcqRel) != retired {
            self.retired_count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns whether [`Table::retire`] was called.
    #[inline]
    pub fn is_retired(&self) -> bool {
        self.service() == Service::Retired
    }

    /// Returns whether it takes writes. What was changed while they were held is visible if it does.
    #[inline]
    pub(crate) fn service(&self) -> Service {
        match self.service.load(Ordering::Acquire) {
            0 => Service::Open,
            1 => Service::Held,
            _ => Service::Retired,
        }
    }

    /// Refuses writes with [`crate::WriteError::Retry`] from now on, until [`Table::release_writes`]; those in progress
    /// go on. Does nothing to a retired table.
    pub fn hold_writes(&self) {
        self.pass(Service::Open, Service::Held);
    }

    /// Admits writes again.
    pub fn release_writes(&self) {
        self.pass(Service::Held, Service::Open);
    }

    fn pass(&self, from: Service, to: Service) {
        // A retired table stays retired.
        let _ = self.service.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Asserts that the table belongs to this log; locations are valid only in their own store.
    #[inline]
    pub(crate) fn assert_of(&self, log: usize) {
        assert!(self.log == log, "a table is used with cores of its own store");
    }

    fn sum(&self, counter: impl Fn(&CountShard) -> &AtomicU64) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(counter(shard).load(Ordering::Relaxed)))
    }

    /// Counts a write of `core` that changed the number of objects and of bytes (as wrapping differences).
    #[inline]
    pub(crate) fn count(&self, core: usize, objects: u64, bytes: u64) {
        // Only the core itself writes its shard, so plain loads and stores suffice.
        let shard = &self.shards[core];
        let add = |counter: &AtomicU64, difference: u64| {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(difference), Ordering::Relaxed);
        };
        if objects != 0 {
            add(&shard.objects, objects);
        }
        add(&shard.bytes, bytes);
        self.quota.count(core, bytes);
    }

    /// Counts a new object that can be found under `hash`.
    #[inline]
    pub(crate) fn count_inserted(&self, core: usize, hash: u64, bytes: u64) {
        self.count(core, 1, bytes);
        if let Some(cache) = &self.cache {
            cache.arrive(core, hash, bytes);
        }
    }

    /// Counts the replacement of an object with or without an expiry by another.
    #[inline]
    pub(crate) fn count_expiring(&self, core: usize, before: bool, after: bool) {
        if before != after {
            let counter = &self.shards[core].expiring;
            let difference = u64::from(after).wrapping_sub(u64::from(before));
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(difference), Ordering::Relaxed);
        }
    }

    /// Notes an expiry, after its object can be found. Returns whether the table must be added to the list of tables
    /// with expiring objects.
    pub(crate) fn note_expiry(&self, expires_ms: u64) -> bool {
        if self.earliest_expiry_ms.load(Ordering::Relaxed) > expires_ms {
            self.earliest_expiry_ms.fetch_min(expires_ms, Ordering::AcqRel);
        }
        !self.expiry_is_due.swap(true, Ordering::AcqRel)
    }

    /// Returns the earliest expiry noted since the last call.
    pub(crate) fn take_earliest_expiry(&self) -> u64 {
        self.earliest_expiry_ms.swap(NEVER_MS, Ordering::AcqRel)
    }

    /// Takes the table off the list. Returns false if an expiry was noted meanwhile, so that it stays listed.
    pub(crate) fn forget_expiry(&self) -> bool {
        self.expiry_is_due.swap(false, Ordering::AcqRel);
        let noted = self.earliest_expiry_ms.load(Ordering::Acquire) != NEVER_MS;
        !noted || self.expiry_is_due.swap(true, Ordering::AcqRel)
    }

    /// Counts an insert or a removal of `core`. After some, returns the number of removals since it last did.
    #[inline]
    pub(crate) fn count_change(&self, core: usize, is_removal: bool) -> Option<u64> {
        let CountShard { changes, removals, .. } = &self.shards[core];
        // Only the core itself writes them.
        let add = |count: &AtomicU64| {
            let sum = count.load(Ordering::Relaxed) + 1;
            count.store(sum, Ordering::Relaxed);
            sum
        };
        if is_removal {
            add(removals);
        }
        let is_due = add(changes).is_multiple_of(CHANGES_PER_LOAD_CHECK);
        is_due.then(|| removals.swap(0, Ordering::Relaxed))
    }

    /// Returns whether the key may be removed: not if objects arrive and it cannot be noted. Called by the owner of
    /// its bucket.
    #[inline]
    pub(crate) fn lets_go(&self, key: &[u8]) -> bool {
        self.arrival.get().is_none_or(|arrival| arrival.note_removal(key))
    }

    /// Notes a removal that cannot be refused, with or without room for the note.
    pub(crate) fn lets_go_in_any_case(&self, key: &[u8]) {
        if let Some(arrival) = self.arrival.get()
            && !arrival.note_removal(key)
        {
            arrival.forget_removal();
        }
    }

    /// Marks the removal of a key, as [`Table::note_write`] does.
    #[inline]
    pub(crate) fn note_removal(&self, key: &[u8], changed: Changed) {
        if self.touched.get().is_some() {
            self.note_write(crate::hash(key), changed);
        }
    }

    /// Marks `hash` for a copier of the table; called by the owner of its bucket, see `dirty_map.rs`.
    #[inline]
    pub(crate) fn note_write(&self, hash: u64, _: Changed) {
        if let Some(touched) = self.touched.get() {
            touched.mark(hash);
        }
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Table {{ id: {}, objects: {}, bytes: {} }}", self.id, self.objects(), self.bytes())
    }
}
