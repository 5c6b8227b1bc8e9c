//! Tables as a worker sees them: number to entry, name to number, each entry with its tenant.
//!
//! Every worker has its own [`Tables`], changed between two batches and never shared, so a lookup takes no lock. A
//! lookup names the tenant; another tenant's table looks like one that never existed. A table granted to another tenant
//! has a second entry under its own number, with the other tenant and the right: so a lookup is the same for both, and
//! a grant ends with its entry. [`Parts`] says which parts of a table are here, and which hashes are served.

mod durable_parts;
mod moving;
mod parts;

pub use durable_parts::DurableParts;
pub use moving::{Copier, Copy, Moving, Range, Spot, overlap, subtract, unite};
pub use parts::{Parts, PartsChange, PartsError};

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use control::Durability;
use store::NumberHash;
use wire::{Body, ServerPlace, TabletMap, TenantId};

use crate::tenant::account::Account;

/// A table as one tenant knows it. Shared by all workers and replaced as a whole; the objects are in the store. The
/// first cache line holds the fields that a lookup reads.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TableEntry {
    /// The number of the table in the cluster, never reused. Parts have separate numbers, valid only on this server.
    pub id: u32,
    /// The tenant that may use it: the owner, or the tenant to which this entry grants it.
    pub tenant: TenantId,
    /// Whether the tenant may write to it.
    pub writable: bool,
    /// What of it survives the end of the server.
    pub durability: Durability,
    /// The indexes and objects that are here; the widest range first.
    pub parts: Parts,
    /// Its name among the tables of the tenant; `owner/name` for a granted one.
    pub name: Box<str>,
    /// The owner's account, which pays for its memory, also for a granted table.
    pub owner: Arc<Account>,
    /// The tablet map sent to clients; `None` if this server is alone.
    pub map: Option<Arc<[u8]>>,
}

impl TableEntry {
    /// Returns the same table with other parts, and with `map` if it is given.
    #[must_use]
    pub fn with_parts(&self, parts: Parts, map: Option<&TabletMap>) -> Self {
        let Self { id, tenant, name, writable, durability, owner, parts: _, map: before } = self;
        let map = map.filter(|map| self.known_map().is_none_or(|known| known.version() < map.version()));
        Self {
            id: *id,
            tenant: *tenant,
            name: name.clone(),
            writable: *writable,
            durability: *durability,
            owner: Arc::clone(owner),
            parts,
            map: map.map(|map| map.encode().into()).or_else(|| before.clone()),
        }
    }

    /// Returns the same table with another durability.
    #[must_use]
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self { durability, ..self.with_parts(self.parts.clone(), None) }
    }

    /// Returns whether the map for clients has the same contents, in any version.
    #[must_use]
    pub fn has_map(&self, map: &TabletMap) -> bool {
        self.known_map().is_some_and(|known| {
            let told =
                |map: &TabletMap| (map.servers().to_vec(), map.tablets().to_vec(), map.moving().to_vec());
            told(&known) == told(map)
        })
    }

    /// Returns whether `map` is later than the map for clients and has other contents.
    #[must_use]
    pub fn is_news(&self, map: &TabletMap) -> bool {
        !self.has_map(map) && self.known_map().is_none_or(|known| known.version() < map.version())
    }

    fn known_map(&self) -> Option<TabletMap> {
        self.map.as_deref().and_then(|bytes| TabletMap::decode(bytes).ok())
    }

    /// Returns the encoded tablet map.
    #[must_use]
    pub fn map_bytes(&self) -> &[u8] {
        static ALONE: LazyLock<Vec<u8>> =
            LazyLock::new(|| TabletMap::whole(0, ServerPlace { number: 0, address: String::new() }).encode());
        self.map.as_deref().unwrap_or(&ALONE)
    }
}

/// The tables of one server as one worker sees them.
#[derive(Debug, Default)]
pub struct Tables {
    by_id: HashMap<u32, Arc<TableEntry>, NumberHash>,
    by_name: HashMap<TenantId, HashMap<Box<str>, u32>>,
    newest: Newest,
}

/// The highest number of a table, or of an extension, known here for each tenant. Numbers only grow, so a higher one
/// may belong to a new object. A lower unknown one may also be new, if a tenant creates at several servers at once; it
/// counts as removed until it becomes known.
#[derive(Debug, Default)]
pub struct Newest(HashMap<TenantId, u32>);

impl Newest {
    /// Records a number that exists or existed.
    pub fn note(&mut self, tenant: TenantId, number: u32) {
        let newest = self.0.entry(tenant).or_default();
        *newest = number.max(*newest);
    }

    /// Returns whether this number may belong to a new object that is not known here yet.
    #[must_use]
    pub fn may_come(&self, tenant: TenantId, number: u32) -> bool {
        self.0.get(&tenant).is_none_or(|newest| number > *newest)
    }

    /// Forgets a removed tenant.
    pub fn forget(&mut self, tenant: TenantId) {
        self.0.remove(&tenant);
    }
}

impl Tables {
    /// Returns the table `id` if it belongs to `tenant`.
    #[inline]
    #[must_use]
    pub fn get(&self, tenant: TenantId, id: u32) -> Option<&Arc<TableEntry>> {
        self.by_id.get(&id).filter(|entry| entry.tenant == tenant)
    }

    /// Prefetches the entry of the table `id`, of any tenant.
    #[inline]
    pub fn prefetch(&self, id: u32) -> Option<&TableEntry> {
        self.by_id.get(&id).map(|entry| {
            store::prefetch_value(&entry.id);
            &**entry
        })
    }

    /// Returns the number of the table of `tenant` named `name`.
    #[must_use]
    pub fn find(&self, tenant: TenantId, name: &str) -> Option<u32> {
        self.by_name.get(&tenant)?.get(name).copied()
    }

    /// Adds a table.
    pub fn insert(&mut self, entry: Arc<TableEntry>) {
        self.newest.note(entry.tenant, entry.id);
        self.by_name.entry(entry.tenant).or_default().insert(entry.name.clone(), entry.id);
        self.by_id.insert(entry.id, entry);
    }

    /// Removes the table `id`, if it exists.
    pub fn remove(&mut self, id: u32) -> Option<Arc<TableEntry>> {
        let entry = self.by_id.remove(&id)?;
        if let Some(names) = self.by_name.get_mut(&entry.tenant) {
            names.remove(&entry.name);
            if names.is_empty() {
                self.by_name.remove(&entry.tenant);
            }
        }
        Some(entry)
    }

    /// Returns whether the unknown table `id` may be a new one of `tenant` that is not known here yet.
    #[must_use]
    pub fn may_come(&self, tenant: TenantId, id: u32) -> bool {
        self.newest.may_come(tenant, id)
    }

    /// Removes all tables of `tenant`.
    pub fn remove_tenant(&mut self, tenant: TenantId) {
        self.newest.forget(tenant);
        self.by_name.remove(&tenant);
        self.by_id.retain(|_, entry| entry.tenant != tenant);
    }
}

/// The first number of parts that end with the process. Durable ones have lower numbers: of their records, or outside a
/// cluster of their tables.
const VOLATILE_PARTS: u32 = 1 << 31;

/// The numbers and first versions of the table parts that a server creates, shared by the threads that create them.
pub struct PartsMade {
    next: AtomicU32,
    versions_above: AtomicU64,
    /// The records of the parts in the log; `None` outside a cluster, and without a log.
    pub durable: Option<DurableParts>,
    /// Tables that a control thread follows on their way from memory to the disk or back.
    pub altering: Mutex<BTreeSet<u32>>,
}

impl PartsMade {
    /// Creates counters; writes to later parts get versions above `version`.
    #[must_use]
    pub fn above(version: u64) -> Self {
        let (next, versions_above) = (AtomicU32::new(VOLATILE_PARTS), AtomicU64::new(version));
        Self { next, versions_above, durable: None, altering: Mutex::default() }
    }

    /// Returns the number of the next part, which is valid only in this process.
    pub fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the version that parts begin above.
    #[must_use]
    pub fn versions_above(&self) -> u64 {
        self.versions_above.load(Ordering::Relaxed)
    }

    /// Makes later parts begin above this version too.
    pub fn begin_above(&self, version: u64) {
        self.versions_above.fetch_max(version, Ordering::Relaxed);
    }
}
