//! What of its tables a server owns, and how that changes: by a cut through all workers.
//!
//! A cut that a worker does not pass in time is decided all the same: the change is in that worker's queue and cannot be
//! taken back. Nobody is told that it is done; whoever asks again waits for the workers again, and does nothing twice.

mod records;

pub use records::{Due, due, map_of};

use std::sync::{Arc, MutexGuard};

use store::{CACHE_BUDGET_BYTES_MIN, Eviction, HashRange, Table, TableKind, TableOptions};
use wire::{Status, Subject, TabletMap};

use super::change::{Change, Wake};
use super::control::{Control, Refusal};
use super::view::Cut;
use crate::sync::lock;
use crate::tablet::{Parts, PartsChange, TableEntry};
use crate::tenant::TenantId;

/// What of a table is here and owned from the next view on.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The table's number.
    pub table: u32,
    /// Its parts and ranges.
    pub parts: Parts,
    /// What clients are told of all its tablets, where that is news; `None`: as before.
    pub map: Option<TabletMap>,
}

/// What changes of a table from the next view on.
#[derive(Clone, Debug)]
pub struct Alteration {
    /// The table's number.
    pub table: u32,
    /// Of its parts and ranges.
    pub change: PartsChange,
    /// What clients are told of all its tablets, where that is news; `None`: as before.
    pub map: Option<TabletMap>,
}

impl Control {
    /// Changes what is owned, of all these tables in one step, and gives the view from which on it is so. When it
    /// returns all workers have passed: no request is executed any more by what was owned before, and what was executed
    /// is in its part. Parts that are not held any more are the caller's to retire.
    ///
    /// # Errors
    /// `UnknownTable`, with nothing changed; `Unavailable` when a worker does not come back: then some may have passed.
    pub fn cut(&self, changed: &[Ownership]) -> Result<u64, Refusal> {
        let owning = lock(&self.owning);
        let mut tables = Vec::new();
        for Ownership { table, parts, map } in changed {
            let entry = self.table_of(*table).ok_or_else(|| Refusal::from(Status::UnknownTable))?;
            tables.push(Arc::new(entry.with_parts(parts.clone(), map.as_ref())));
        }
        self.pass(&owning, tables)
    }

    /// The same by what comes and goes, so that what others change beside it stays. Where nothing does, and clients are told
    /// nothing new, there is no cut, unless workers have still to pass an earlier one. What is new in a map makes a view of
    /// its own, by which clients see that there is something to ask for.
    ///
    /// # Errors
    /// As [`Control::cut`], and `OutOfRange` for parts that cannot be so.
    pub fn alter(&self, changed: &[Alteration]) -> Result<u64, Refusal> {
        let owning = lock(&self.owning);
        let (mut tables, mut is_news) = (Vec::new(), false);
        for Alteration { table, change, map } in changed {
            let entry = self.table_of(*table).ok_or_else(|| Refusal::from(Status::UnknownTable))?;
            is_news |= !change.is_empty() || map.as_ref().is_some_and(|map| entry.is_news(map));
            let parts = entry.parts.altered(change);
            let parts = parts.map_err(|error| Refusal::new(Status::OutOfRange, error.to_string()))?;
            tables.push(Arc::new(entry.with_parts(parts, map.as_ref())));
        }
        let is_settled = self.views.settled() == self.views.latest();
        if is_settled && !is_news {
            for entry in tables {
                self.make_known(&owning, entry)?;
            }
            return Ok(self.views.settled());
        }
        self.pass(&owning, tables)
    }

    /// Takes all workers to the next view, with these tables.
    fn pass(&self, _owning: &MutexGuard<'_, ()>, tables: Vec<Arc<TableEntry>>) -> Result<u64, Refusal> {
        let granted: Vec<_> = tables.iter().flat_map(|entry| self.granted(entry)).collect();
        let all = [tables.clone(), granted].concat();
        let view = self.views.next();
        let cut = Cut::new(view, all, self.workers.len(), Arc::clone(&self.views));
        for entry in tables {
            lock(&self.tables).insert((entry.tenant, entry.name.to_string()), entry);
        }
        self.tell(&Change::Cut(Arc::new(cut)))?;
        Ok(view)
    }

    /// A table as those know it to whom it is granted.
    fn granted(&self, entry: &TableEntry) -> Vec<Arc<TableEntry>> {
        let grants = lock(&self.grants);
        let own = grants.iter().filter(|grant| grant.is(entry.tenant, Subject::Table, &entry.name));
        own.map(|grant| Arc::new(grant.entry_of(entry))).collect()
    }

    /// Makes a new table known.
    ///
    /// # Errors
    /// That workers fail.
    pub fn publish(&self, entry: Arc<TableEntry>) -> Result<(), Refusal> {
        self.make_known(&lock(&self.owning), entry)
    }

    /// Makes a table known, or what clients are told of it, where what is owned stays as it was.
    fn make_known(&self, _owning: &MutexGuard<'_, ()>, entry: Arc<TableEntry>) -> Result<(), Refusal> {
        for granted in self.granted(&entry) {
            self.tell(&Change::TableCreated(granted))?;
        }
        self.tell(&Change::TableCreated(Arc::clone(&entry)))?;
        lock(&self.tables).insert((entry.tenant, entry.name.to_string()), entry);
        Ok(())
    }

    /// A table as the control plane and all workers are to know it, with nothing of it here.
    #[must_use]
    pub fn make_table(
        &self,
        id: u32,
        tenant: TenantId,
        name: &str,
        options: wire::TableOptions,
    ) -> TableEntry {
        let owner = self.accounts.of(tenant);
        let kind = if options.ordered { TableKind::Ordered } else { TableKind::Hash };
        let s3_fifo = |budget_bytes| Eviction::S3Fifo { budget_bytes };
        let eviction = options.cache_bytes.map_or(Eviction::Never, s3_fifo);
        let parts = Parts::none(TableOptions { kind, eviction, ..TableOptions::default() });
        TableEntry { id, tenant, name: name.into(), writable: true, owner, parts, map: None }
    }

    /// A part for these hashes of a table, empty and known to nobody yet, with an index for so many objects. Where the
    /// table evicts, the part has its share of the budget.
    #[must_use]
    pub fn make_part(&self, entry: &TableEntry, hashes: HashRange, objects_expected: u64) -> Arc<Table> {
        let part = self.parts_made.number();
        let share = |bytes: u64| ((u128::from(bytes) * hashes.width()) >> 64) as u64;
        let eviction = match entry.parts.eviction() {
            Eviction::Never => Eviction::Never,
            Eviction::S3Fifo { budget_bytes } => {
                Eviction::S3Fifo { budget_bytes: share(budget_bytes).max(CACHE_BUDGET_BYTES_MIN) }
            }
        };
        let options = TableOptions { kind: entry.parts.kind(), eviction, hashes, objects_expected };
        let part = self.store.table_with(part, options, entry.owner.quota(self.store.cores()));
        part.begin_above(self.parts_made.versions_above());
        part
    }

    /// Makes a table known to the control plane and to all workers, all of which is here.
    ///
    /// # Errors
    /// That workers fail.
    pub fn publish_table(
        &self,
        id: u32,
        tenant: TenantId,
        name: &str,
        options: wire::TableOptions,
    ) -> Result<(), Refusal> {
        let entry = self.make_table(id, tenant, name, options);
        let parts = Parts::whole(self.make_part(&entry, HashRange::ALL, 0));
        self.publish(Arc::new(entry.with_parts(parts, None)))
    }

    /// Lets what waits for objects of an arriving part go on: for these hashes, or for all where there are none. Before,
    /// the part is told that they are here ([`Table::pulled`], [`Table::arrived`]): what does not find it so waits again,
    /// and wants its hashes anew. When all have arrived, or none will any more, it is called for all: hashes that were wanted
    /// and not taken yet are forgotten then. Waits for no worker.
    pub fn wake(&self, part: &Table, hashes: Option<&[u64]>) {
        // Before the workers hear of it, so that what waits again is not taken for known.
        part.not_pulled(hashes.unwrap_or_default());
        let wake = Arc::new(Wake { part: part.id(), hashes: hashes.map(Into::into) });
        for worker in &self.workers {
            // One that has ended has answered what waited.
            let _ = worker.send(Change::Wake(Arc::clone(&wake)));
        }
    }

    /// A table by its number in the cluster.
    #[must_use]
    pub fn table_of(&self, table: u32) -> Option<Arc<TableEntry>> {
        lock(&self.tables).values().find(|entry| entry.id == table).cloned()
    }
}
