//! The ownership of tables on a server, and its changes by a cut through all workers.
//!
//! A cut that a worker does not reach in time is decided nevertheless: the change is in that worker's queue and cannot
//! be withdrawn. It is reported to nobody as done; a repeated call waits for the workers again, and does nothing
//! twice.

mod records;

pub use records::{Due, due, map_of};

use std::sync::{Arc, MutexGuard};

use control::{Durability, Subject};
use store::{CACHE_BUDGET_BYTES_MIN, Eviction, HashRange, Table, TableKind, TableOptions};
use wire::{Status, TabletMap, TenantId};

use super::{Control, Refusal};
use crate::sync::lock;
use crate::tablet::{Parts, PartsChange, TableEntry};
use crate::view::Cut;
use crate::view::change::{Change, Wake};

/// The parts and ranges of a table on this server from the next view on.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The table's number.
    pub table: u32,
    /// Its parts and ranges.
    pub parts: Parts,
    /// The map of all its tablets for clients, if it changes; `None`: as before.
    pub map: Option<TabletMap>,
}

/// A change of a table's parts and ranges from the next view on.
#[derive(Clone, Debug)]
pub struct Alteration {
    /// The table's number.
    pub table: u32,
    /// The change of its parts and ranges.
    pub change: PartsChange,
    /// The map of all its tablets for clients, if it changes; `None`: as before.
    pub map: Option<TabletMap>,
}

impl Control {
    /// Changes the ownership of all these tables in one step, and returns the view from which it holds. When it
    /// returns all workers have reached the view: no request executes under the earlier ownership any more, and the
    /// writes of those that did are in their parts. The caller must retire parts that are not held any more.
    ///
    /// # Errors
    /// `UnknownTable`, with nothing changed; `Unavailable` if a worker does not respond: then some may have reached
    /// the view.
    pub fn cut(&self, changed: &[Ownership]) -> Result<u64, Refusal> {
        let owning = lock(&self.owning);
        let mut tables = Vec::new();
        for Ownership { table, parts, map } in changed {
            let entry = self.table_of(*table).ok_or_else(|| Refusal::from(Status::UnknownTable))?;
            tables.push(Arc::new(entry.with_parts(parts.clone(), map.as_ref())));
        }
        self.pass(&owning, tables)
    }

    /// Changes the ownership relative to the present one, so that concurrent changes by others stay. Without any
    /// change, or news for clients, there is no cut, unless workers have not reached an earlier one yet. A new map
    /// makes a new view, which shows clients that there is a map to request.
    ///
    /// # Errors
    /// Same as [`Control::cut`], and `OutOfRange` for invalid parts.
    pub fn alter(&self, changed: &[Alteration]) -> Result<u64, Refusal> {
        let owning = lock(&self.owning);
        let (mut tables, mut is_news) = (Vec::new(), false);
        for Alteration { table, change, map } in changed {
            let entry = self.table_of(*table).ok_or_else(|| Refusal::from(Status::UnknownTable))?;
            is_news |= !change.is_empty() || map.as_ref().is_some_and(|map| entry.is_news(map));
            // They may have been made under another durability.
            change.come.iter().for_each(|part| part.set_synced(entry.durability == Durability::Synced));
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

    /// Moves all workers to the next view, with these tables.
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

    /// Puts a durability of a table in force on all workers.
    ///
    /// # Errors
    /// If workers fail.
    pub fn set_durability(&self, table: u32, durability: Durability) -> Result<(), Refusal> {
        let owning = lock(&self.owning);
        let Some(entry) = self.table_of(table).filter(|entry| entry.durability != durability) else {
            return Ok(());
        };
        for part in entry.parts.held() {
            match durability {
                Durability::Memory => part.promise_nothing(),
                _ => part.set_synced(durability == Durability::Synced),
            }
        }
        self.make_known(&owning, Arc::new(entry.with_durability(durability)))
    }

    /// Makes the writes to the only part of a table go to the disk, under this number, or to memory: from a moment between
    /// two rounds of each worker, until which all are held off. The objects follow in the background.
    ///
    /// # Errors
    /// `UnknownTable`; or a worker does not answer, and nothing has changed.
    pub fn turn(&self, table: u32, number: Option<u32>) -> Result<(), Refusal> {
        let _owning = lock(&self.owning);
        let entry = self.table_of(table).ok_or_else(|| Refusal::from(Status::UnknownTable))?;
        let [part] = entry.parts.held() else { return Err(Status::WrongTablets.into()) };
        part.hold_writes();
        // It changes nothing, and what a worker began before it has ended when the worker takes it.
        let told = self.tell(&Change::TableCreated(Arc::clone(&entry)));
        if told.is_ok() {
            self.store.turn(part, number);
        }
        part.release_writes();
        told
    }

    /// Returns the entries of a table for the tenants with a grant.
    fn granted(&self, entry: &TableEntry) -> Vec<Arc<TableEntry>> {
        let grants = lock(&self.grants);
        let own = grants.iter().filter(|grant| grant.is(entry.tenant, Subject::Table, &entry.name));
        own.map(|grant| Arc::new(grant.entry_of(entry))).collect()
    }

    /// Publishes a new table to the control plane and all workers.
    ///
    /// # Errors
    /// If workers fail.
    pub fn publish(&self, entry: Arc<TableEntry>) -> Result<(), Refusal> {
        self.make_known(&lock(&self.owning), entry)
    }

    /// Publishes a table, or its new map for clients, without a change of ownership.
    fn make_known(&self, _owning: &MutexGuard<'_, ()>, entry: Arc<TableEntry>) -> Result<(), Refusal> {
        for granted in self.granted(&entry) {
            self.tell(&Change::TableCreated(granted))?;
        }
        self.tell(&Change::TableCreated(Arc::clone(&entry)))?;
        lock(&self.tables).insert((entry.tenant, entry.name.to_string()), entry);
        Ok(())
    }

    /// Returns a new table's entry, without parts on this server.
    #[must_use]
    pub fn make_table(
        &self,
        id: u32,
        tenant: TenantId,
        name: &str,
        options: control::TableOptions,
    ) -> TableEntry {
        let owner = self.accounts.of(tenant);
        let kind = if options.ordered { TableKind::Ordered } else { TableKind::Hash };
        let s3_fifo = |budget_bytes| Eviction::S3Fifo { budget_bytes };
        let eviction = options.cache_bytes.map_or(Eviction::Never, s3_fifo);
        let positions = options.tagged.then_some(HashRange::ALL);
        let parts = Parts::none(TableOptions { kind, eviction, positions, ..TableOptions::default() });
        let has_log = self.log.is_some() || self.lease_cache.run().is_some();
        let durability = options.durability.filter(|_| has_log).unwrap_or(Durability::Memory);
        TableEntry { id, tenant, name: name.into(), writable: true, durability, owner, parts, map: None }
    }

    /// Creates an empty, unpublished part for these hashes of a table, or positions if it is tagged, with an index for
    /// this many objects. If the table evicts, the part gets its share of the budget. Outside a cluster the log names a durable one by `number`, or
    /// by that of the table.
    ///
    /// # Errors
    /// If the part of a durable table cannot be recorded, or this server has no disk.
    pub fn make_part(
        &self,
        entry: &TableEntry,
        (range, number): (HashRange, Option<u32>),
        objects_expected: u64,
    ) -> Result<Arc<Table>, Refusal> {
        let durable = entry.durability.is_on_disk();
        if durable && self.log.is_none() {
            return Err(Refusal::new(Status::Unavailable, "this server was started with `--disk off`"));
        }
        // The log names parts by these numbers, so those of durable ones outlive the process.
        let part = match &self.parts_made.durable {
            Some(parts) if durable => {
                let part = parts.add((entry.tenant, entry.id), (range.first(), range.last()))?;
                if let Some((run, row)) = self.lease_cache.run().zip(parts.row(part)) {
                    // For those who may recover the log.
                    self.metadata.log_part_add(run.server, &row)?;
                }
                part
            }
            None if durable => number.unwrap_or(entry.id),
            _ => self.parts_made.number(),
        };
        let share = |bytes: u64| ((u128::from(bytes) * range.width()) >> 64) as u64;
        let eviction = match entry.parts.eviction() {
            Eviction::Never => Eviction::Never,
            Eviction::S3Fifo { budget_bytes } => {
                Eviction::S3Fifo { budget_bytes: share(budget_bytes).max(CACHE_BUDGET_BYTES_MIN) }
            }
        };
        let kind = entry.parts.kind();
        let (hashes, positions) =
            if entry.parts.is_tagged() { (HashRange::ALL, Some(range)) } else { (range, None) };
        let options = TableOptions { kind, eviction, durable, hashes, positions, objects_expected };
        let part = self.store.table_with(part, options, entry.owner.quota(self.store.cores()));
        part.begin_above(self.parts_made.versions_above());
        part.set_synced(entry.durability == Durability::Synced);
        Ok(part)
    }

    /// Takes parts out of service for good.
    pub fn retire(&self, parts: &[Arc<Table>]) {
        parts.iter().for_each(|part| part.retire());
        self.parts_made.durable.iter().for_each(|durable| durable.forget(parts));
    }

    /// Publishes a table of which this server owns everything; `number` is that of [`Control::make_part`].
    ///
    /// # Errors
    /// If workers fail, or as [`Control::make_part`].
    pub fn publish_table(
        &self,
        (id, number): (u32, Option<u32>),
        tenant: TenantId,
        name: &str,
        options: control::TableOptions,
    ) -> Result<(), Refusal> {
        let entry = self.make_table(id, tenant, name, options);
        let parts = Parts::whole(self.make_part(&entry, (HashRange::ALL, number), 0)?);
        self.publish(Arc::new(entry.with_parts(parts, None)))
    }

    /// Wakes requests that wait for objects of an arriving part: for these hashes, or for all if `None`. The part must
    /// know before that they have arrived ([`Table::pulled`], [`Table::arrived`]): a request that does not find its
    /// object waits and requests its hashes again. When all objects have arrived, or no more will, it is called
    /// for all: requested hashes that were not taken yet are forgotten then. Does not wait for workers.
    pub fn wake(&self, part: &Table, hashes: Option<&[u64]>) {
        // Before the workers are informed, so that a request which waits again also requests its hash again.
        part.not_pulled(hashes.unwrap_or_default());
        let wake = Arc::new(Wake { part: part.id(), hashes: hashes.map(Into::into) });
        for worker in &self.workers {
            // A worker that has ended has answered its pending requests.
            let _ = worker.send(Change::Wake(Arc::clone(&wake)));
        }
    }

    /// Returns a table by its number in the cluster.
    #[must_use]
    pub fn table_of(&self, table: u32) -> Option<Arc<TableEntry>> {
        lock(&self.tables).values().find(|entry| entry.id == table).cloned()
    }
}
