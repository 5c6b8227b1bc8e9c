//! Sizes of tables, summed over the servers of a cluster.
//!
//! A server counts its own objects. The map of a table names the servers of its tablets; the client asks them one after
//! another, each over a short separate session. The result lists the servers that did not answer.

use std::collections::BTreeMap;

use control::TableEntry;
use wire::{Body, Request, Status, TabletMap};

use super::Client;
use crate::config::SessionSettings;
use crate::{ClientConfig, Error};

/// A table with the sums over all its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedTable {
    /// The table, and the sums of its servers.
    pub entry: TableEntry,
    /// Numbers of servers that did not answer; the sums exclude their objects.
    pub uncounted: Vec<u32>,
}

/// A server that has tablets, and the tables they belong to.
struct TabletServer {
    address: String,
    tables: Vec<u32>,
}

impl Client {
    /// Lists the tables with the sums over all servers.
    ///
    /// # Errors
    /// A refusal of the connected server, or no reply from it.
    pub fn table_list_counted(&mut self) -> Result<Vec<CountedTable>, Error> {
        let tables = self.table_list()?;
        self.count(tables)
    }

    /// Counts a table on all servers that have tablets of it.
    ///
    /// # Errors
    /// `UnknownTable`, another refusal of the connected server, or no reply from it.
    pub fn table_stat_counted(&mut self, name: &str) -> Result<CountedTable, Error> {
        self.table_stat(name)?;
        let mut tables = self.table_list()?;
        tables.retain(|table| table.name == name);
        let text = || format!("there is no table `{name}`");
        let gone = || Error::Refused { status: Status::UnknownTable, text: text() };
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
            for CountedTable { entry, .. } in &mut counted {
                (entry.objects, entry.bytes, entry.index_bytes, entry.evicted) = (0, 0, 0, 0);
                entry.rewritten_bytes = None;
            }
            for (number, place) in places {
                self.add(&mut counted, number, &place, &own);
            }
        }
        Ok(counted)
    }

    /// Adds a server's counts, or its number if it did not answer.
    fn add(&self, counted: &mut [CountedTable], number: u32, place: &TabletServer, own: &[TableEntry]) {
        let SessionSettings { identity, config, .. } = self.session.settings();
        let rows = if place.address == identity.address {
            own.to_vec()
        } else {
            let config = ClientConfig { core_addresses: Vec::new(), ..config.clone() };
            Client::connect_with(&place.address, &identity.tenant, &identity.secret, config)
                .and_then(|mut client| client.table_list())
                .unwrap_or_default()
        };
        for table in counted.iter_mut().filter(|table| place.tables.contains(&table.entry.id)) {
            match rows.iter().find(|row| row.id == table.entry.id) {
                Some(row) => add(&mut table.entry, row),
                None => table.uncounted.push(number),
            }
        }
    }

    /// Returns the tablet map of a table from the connected server. `None` if there is no such table.
    pub(crate) fn tablets_of(&mut self, table: u32) -> Result<Option<TabletMap>, Error> {
        match self.call(&Request::Tablets { table }) {
            Ok(body) => {
                let expected = "the tablets of a table";
                TabletMap::decode(body).map(Some).map_err(|_| Error::Unintelligible { expected })
            }
            Err(Error::Refused { status: Status::UnknownTable, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn add(entry: &mut TableEntry, row: &TableEntry) {
    entry.objects += row.objects;
    entry.bytes += row.bytes;
    entry.index_bytes += row.index_bytes;
    entry.evicted += row.evicted;
    let rewritten = entry.rewritten_bytes.unwrap_or(0) + row.rewritten_bytes.unwrap_or(0);
    entry.rewritten_bytes = entry.rewritten_bytes.or(row.rewritten_bytes).map(|_| rewritten);
    entry.emptied_ms = entry.emptied_ms.max(row.emptied_ms);
}
