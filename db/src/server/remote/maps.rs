//! Tablet maps of the tables that invocations read at other servers, as far as this server knows them.
//!
//! A worker includes its map of the table, which may be older than an earlier one; a question that a server did not
//! answer is looked up again in the control plane, which follows the metadata.

use std::collections::HashMap;
use std::sync::Arc;

use cluster::remote::questions::Owner;
use control::Subject;
use wire::{Body, TabletMap, TenantId};

use crate::limits::REMOTE_MAPS_MAX;
use crate::ops::remote::Want;
use crate::server::control::Control;
use crate::sync::lock;

struct KnownMap {
    bytes: Arc<[u8]>,
    map: TabletMap,
}

/// The known tablet maps by table.
#[derive(Default)]
pub(super) struct Maps {
    known: HashMap<u32, KnownMap>,
}

impl Maps {
    /// Returns the owner of an object as far as known without asking.
    pub(super) fn owner(&mut self, control: &Control, want: &Want) -> Owner {
        self.see(want.table, &want.map);
        self.find(control, want)
    }

    /// Returns the owner of an object as the control plane knows it now.
    pub(super) fn owner_now(&mut self, control: &Control, want: &Want) -> Owner {
        if let Some(bytes) = newest(control, want.tenant, want.table) {
            self.see(want.table, &bytes);
        }
        self.find(control, want)
    }

    /// Stores a map, unless a newer one is known.
    fn see(&mut self, table: u32, bytes: &Arc<[u8]>) {
        let known = self.known.get(&table);
        if known.is_some_and(|known| Arc::ptr_eq(&known.bytes, bytes)) {
            return;
        }
        let Ok(map) = TabletMap::decode(bytes) else { return };
        if known.is_some_and(|known| known.map.version() > map.version()) {
            return;
        }
        if self.known.len() >= REMOTE_MAPS_MAX {
            self.known.clear();
        }
        self.known.insert(table, KnownMap { bytes: Arc::clone(bytes), map });
    }

    fn find(&self, control: &Control, want: &Want) -> Owner {
        let Some(KnownMap { map, .. }) = self.known.get(&want.table) else { return Owner::Unknown };
        let place = &map.servers()[map.server_of(want.hash)];
        if control.migrations.as_ref().is_some_and(|migrations| migrations.own() == place.number) {
            return Owner::Here;
        }
        place.address.parse().map_or(Owner::Unknown, |address| Owner::Server(place.number, address))
    }
}

/// Returns the map of a tenant's table, or of one granted to it.
fn newest(control: &Control, tenant: TenantId, table: u32) -> Option<Arc<[u8]>> {
    let own = control.table_of(table).filter(|entry| entry.tenant == tenant);
    let entry = own.or_else(|| {
        let granted = lock(&control.grants).iter().find_map(|grant| {
            let row = &grant.row;
            let is_it = row.id == table && row.to == tenant && row.right.subject() == Subject::Table;
            is_it.then(|| (row.owner, row.name.clone()))
        });
        granted.and_then(|(owner, name)| control.table(owner, &name))
    });
    entry?.map.clone()
}
