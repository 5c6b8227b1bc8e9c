//! Which server has what of the tables that are read elsewhere, as far as this one has heard.
//!
//! A worker sends along what it knows of the table, which may be older than what a want before it brought; what a server did
//! not answer is looked up anew with the control plane, which follows the metadata.

use std::collections::HashMap;
use std::sync::Arc;

use wire::{Body, Subject, TabletMap};

use crate::cluster::remote::questions::Owner;
use crate::limits::REMOTE_MAPS_MAX;
use crate::ops::remote::Want;
use crate::server::control::Control;
use crate::sync::lock;
use crate::tenant::TenantId;

struct KnownMap {
    bytes: Arc<[u8]>,
    map: TabletMap,
}

/// See the file's head.
#[derive(Default)]
pub(super) struct Maps {
    known: HashMap<u32, KnownMap>,
}

impl Maps {
    /// Whose an object is, as far as is known without asking anybody.
    pub(super) fn owner(&mut self, control: &Control, want: &Want) -> Owner {
        self.see(want.table, &want.map);
        self.find(control, want)
    }

    /// Whose an object is by what the control plane knows now.
    pub(super) fn owner_now(&mut self, control: &Control, want: &Want) -> Owner {
        if let Some(bytes) = newest(control, want.tenant, want.table) {
            self.see(want.table, &bytes);
        }
        self.find(control, want)
    }

    /// Takes a map, unless a newer one is known.
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

/// The map of a table of a tenant, or of one that is granted to it.
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
