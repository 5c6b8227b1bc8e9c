//! Tables as a worker sees them: number to entry, name to number, each entry with its tenant.
//!
//! Every worker has a [`Tables`] of its own, changed between two batches and never shared, so a lookup
//! takes no lock. A lookup names the tenant; the table of another tenant is as absent as one that never
//! was. A table that is granted to another tenant has a second entry, under a number of its own, with the other
//! tenant and the right: so a lookup is the same for both, and a grant ends with its entry. What of a table is
//! here, and which of that is served, is told by its [`Parts`].

mod copier;
mod made;
mod moving;
mod parts;
pub mod ranges;

pub use copier::{Copier, Copy, Spot};
pub use made::PartsMade;
pub use moving::Moving;
pub use parts::{Parts, PartsChange, PartsError};

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, LazyLock};

use wire::{Body, ServerPlace, TabletMap};

use crate::tenant::TenantId;
use crate::tenant::account::Account;

/// A table as one tenant knows it. Shared by all workers and replaced as a whole; the objects are in the store. What a
/// look-up reads lies on the first cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct TableEntry {
    /// Number of the table in the cluster, never reused. Parts have numbers of their own, which mean something here alone.
    pub id: u32,
    /// Who may use it: the owner, or the tenant to which this entry grants it.
    pub tenant: TenantId,
    /// Whether the tenant may write to it.
    pub writable: bool,
    /// Indexes and objects, as far as they are here; the widest range first.
    pub parts: Parts,
    /// Its name among the tables of the tenant; of a granted one `owner/name`.
    pub name: Box<str>,
    /// Who pays for its memory: the account of the owner, also where this entry grants the table.
    pub owner: Arc<Account>,
    /// Which server has what of it, as clients are told; `None` where this server is alone.
    pub map: Option<Arc<[u8]>>,
}

impl TableEntry {
    /// The same table with other parts, and another map where a later one is given.
    #[must_use]
    pub fn with_parts(&self, parts: Parts, map: Option<&TabletMap>) -> Self {
        let Self { id, tenant, name, writable, owner, parts: _, map: before } = self;
        let map = map.filter(|map| self.known_map().is_none_or(|known| known.version() < map.version()));
        Self {
            id: *id,
            tenant: *tenant,
            name: name.clone(),
            writable: *writable,
            owner: Arc::clone(owner),
            parts,
            map: map.map(|map| map.encode().into()).or_else(|| before.clone()),
        }
    }

    /// Whether clients are told this map, or an earlier or later one that says the same.
    #[must_use]
    pub fn has_map(&self, map: &TabletMap) -> bool {
        self.known_map().is_some_and(|known| {
            let told =
                |map: &TabletMap| (map.servers().to_vec(), map.tablets().to_vec(), map.moving().to_vec());
            told(&known) == told(map)
        })
    }

    /// Whether the map is later than what clients are told, and says something else.
    #[must_use]
    pub fn is_news(&self, map: &TabletMap) -> bool {
        !self.has_map(map) && self.known_map().is_none_or(|known| known.version() < map.version())
    }

    fn known_map(&self) -> Option<TabletMap> {
        self.map.as_deref().and_then(|bytes| TabletMap::decode(bytes).ok())
    }

    /// The encoded map of its tablets.
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

/// The highest number of a table, or of an extension, of each tenant that was heard of here. Numbers only grow: one above may
/// be of something new. One below it of which nothing was heard may be new too, where a tenant creates at several servers
/// at a time; it is taken for one that is gone until it is heard of.
#[derive(Debug, Default)]
pub struct Newest(HashMap<TenantId, u32>);

impl Newest {
    /// There is, or was, one of this number.
    pub fn note(&mut self, tenant: TenantId, number: u32) {
        let newest = self.0.entry(tenant).or_default();
        *newest = number.max(*newest);
    }

    /// Whether one of this number may have been made of which nothing was heard yet.
    #[must_use]
    pub fn may_come(&self, tenant: TenantId, number: u32) -> bool {
        self.0.get(&tenant).is_none_or(|newest| number > *newest)
    }

    /// The tenant is gone.
    pub fn forget(&mut self, tenant: TenantId) {
        self.0.remove(&tenant);
    }
}

impl Tables {
    /// The table `id` if it is one of `tenant`.
    #[inline]
    #[must_use]
    pub fn get(&self, tenant: TenantId, id: u32) -> Option<&Arc<TableEntry>> {
        self.by_id.get(&id).filter(|entry| entry.tenant == tenant)
    }

    /// Asks for the entry of the table `id`, whosever it is.
    #[inline]
    pub fn prefetch(&self, id: u32) -> Option<&TableEntry> {
        self.by_id.get(&id).map(|entry| {
            store::prefetch_value(&entry.id);
            &**entry
        })
    }

    /// The number of the table of `tenant` that is called `name`.
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

    /// Removes the table `id`, if it is there.
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

    /// Whether the table `id`, which is not known, may be one of `tenant` of which nothing was heard yet.
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

/// Hasher for keys that are numbers given out by the server: one multiplication. Nobody outside chooses
/// which numbers exist, so there is nothing to flood.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

/// Builds [`NumberHasher`].
pub type NumberHash = BuildHasherDefault<NumberHasher>;

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        // The map takes its tag from the high bits and its position from the low ones.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
