//! What of its tables a server owns, and how that changes: by a cut through all workers. What waits for objects that are on
//! their way is woken here.

use std::sync::Arc;

use store::Table;
use wire::{Status, Subject, TabletMap};

use super::change::{Change, Wake};
use super::control::{Control, Refusal, lock};
use super::view::Cut;
use crate::tablet::{Parts, TableEntry};

/// What of a table is here and owned from the next view on.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The table's number.
    pub table: u32,
    /// Its parts and ranges.
    pub parts: Parts,
    /// What clients are told of all its tablets; `None`: as before.
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
        let _changing = lock(&self.changing);
        let mut tables = Vec::new();
        {
            let known = lock(&self.tables);
            for Ownership { table, parts, map } in changed {
                let entry = known.values().find(|entry| entry.id == *table);
                let entry = entry.ok_or_else(|| Refusal::from(Status::UnknownTable))?;
                tables.push(Arc::new(entry.with_parts(parts.clone(), map.as_ref())));
            }
        }
        let mut all = tables.clone();
        for grant in lock(&self.grants).iter() {
            let granted = tables.iter().find(|entry| grant.is(entry.tenant, Subject::Table, &entry.name));
            all.extend(granted.map(|entry| Arc::new(grant.entry_of(entry))));
        }
        let view = self.views.next();
        let cut = Cut::new(view, all, self.workers.len(), Arc::clone(&self.views));
        for entry in tables {
            lock(&self.tables).insert((entry.tenant, entry.name.to_string()), entry);
        }
        self.tell(&Change::Cut(Arc::new(cut)))?;
        Ok(view)
    }

    /// Lets what waits for objects of an arriving part go on: for these hashes, or for all where there are none. Before,
    /// the part is told that they are here ([`Table::pulled`], [`Table::arrived`]): what does not find it so waits again,
    /// and wants its hashes anew. Waits for no worker.
    pub fn wake(&self, part: &Table, hashes: Option<&[u64]>) {
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
