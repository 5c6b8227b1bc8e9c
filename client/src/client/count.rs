//! What tables hold, over all the servers of a cluster that have some of them.
//!
//! A server counts the objects that it has itself. Which servers have tablets of a table its map says; each is asked over a
//! short session of its own, one after another. One that does not answer is named instead of counted.

use std::collections::BTreeMap;

use wire::{AdminRequest, Body, Request, Status, TableEntry, TabletMap};

use super::{Client, administer};
use crate::{ClientConfig, Error};

/// A table with what all of its servers have of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedTable {
    /// The table, and the sums of its servers.
    pub entry: TableEntry,
    /// Numbers of servers that did not answer: what they have of it is not in the sums.
    pub uncounted: Vec<u32>,
}

/// A server that has tablets, and of which tables.
struct TabletServer {
    address: String,
    tables: Vec<u32>,
}

impl Client {
    /// Lists the tables with what all servers have of them.
    ///
    /// # Errors
    /// A refusal of the server that was named, or no answer of it.
    pub fn table_list_counted(&mut self) -> Result<Vec<CountedTable>, Error> {
        let tables = self.table_list()?;
        self.count(tables)
    }

    /// Counts a table at all servers that have some of it.
    ///
    /// # Errors
    /// `UnknownTable`, another refusal of the server that was named, or no answer of it.
    pub fn table_stat_counted(&mut self, name: &str) -> Result<CountedTable, Error> {
        self.table_stat(name)?;
        let mut tables = self.table_list()?;
        tables.retain(|table| table.name == name);
        let gone = || Error::Refused { status: Status::UnknownTable, text: format!("no table `{name}`") };
        self.count(tables)?.pop().ok_or_else(gone)
    }

    fn count(&mut self, tables: Vec<TableEntry>) -> Result<Vec<CountedTable>, Error> {
        let mut places: BTreeMap<u32, TabletServer> = BTreeMap::new();
        for table in &tables {
            // A table that was dropped meanwhile has no map.
            let Some(map) = self.tablets_of(table.id)? else { continue };
            for tablet in map.tablets() {
                let server = &map.servers()[usize::from(tablet.server)];
                let place = TabletServer { address: server.address.clone(), tables: Vec::new() };
                let place = places.entry(server.number).or_insert(place);
                if place.tables.last() != Some(&table.id) {
                    place.tables.push(table.id);
                }
            }
        }
        let own = tables.clone();
        let mut counted: Vec<CountedTable> =
            tables.into_iter().map(|entry| CountedTable { entry, uncounted: Vec::new() }).collect();
        if places.values().any(|place| !place.address.is_empty()) {
            counted.iter_mut().for_each(|table| clear(&mut table.entry));
            for (number, place) in places {
                self.add(&mut counted, number, &place, &own);
            }
        }
        Ok(counted)
    }

    /// Adds what a server has, or its number.
    fn add(&self, counted: &mut [CountedTable], number: u32, place: &TabletServer, own: &[TableEntry]) {
        let found = if place.address == self.session.identity().address {
            Ok(own.to_vec())
        } else {
            self.list_at(&place.address)
        };
        for table in counted.iter_mut().filter(|table| place.tables.contains(&table.entry.id)) {
            let rows = found.as_ref().ok();
            match rows.and_then(|rows| rows.iter().find(|row| row.id == table.entry.id)) {
                Some(row) => add(&mut table.entry, row),
                None => table.uncounted.push(number),
            }
        }
    }

    fn list_at(&self, address: &str) -> Result<Vec<TableEntry>, Error> {
        let identity = self.session.identity();
        let config = ClientConfig { core_addresses: Vec::new(), ..self.session.config().clone() };
        let mut client = Client::connect_with(address, &identity.tenant, &identity.secret, config)?;
        administer(&mut client.session, &AdminRequest::TableList)
    }

    /// Which servers have a table, as the server that was named says it; `None` when there is no such table.
    fn tablets_of(&mut self, table: u32) -> Result<Option<TabletMap>, Error> {
        match self.call(&Request::Tablets { table }) {
            Ok(()) => {
                let expected = "the tablets of a table";
                TabletMap::decode(&self.body).map(Some).map_err(|_| Error::Unintelligible { expected })
            }
            Err(Error::Refused { status: Status::UnknownTable, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn clear(entry: &mut TableEntry) {
    (entry.objects, entry.bytes, entry.index_bytes, entry.evicted) = (0, 0, 0, 0);
}

fn add(entry: &mut TableEntry, row: &TableEntry) {
    entry.objects += row.objects;
    entry.bytes += row.bytes;
    entry.index_bytes += row.index_bytes;
    entry.evicted += row.evicted;
    entry.emptied_ms = entry.emptied_ms.max(row.emptied_ms);
}
