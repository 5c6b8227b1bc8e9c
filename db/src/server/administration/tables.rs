//! Tables of one tenant: create, list, drop, count, find.

use wire::{Body, Status, Subject, TableEntry, TableId, TableStatistics};

use super::grants;
use crate::server::change::Change;
use crate::server::control::{Control, Refusal, lock};
use crate::session::Session;
use crate::tenant::TenantId;

pub(super) fn create(
    control: &Control,
    session: &Session,
    name: &str,
    ordered: bool,
) -> Result<Vec<u8>, Refusal> {
    let tenant = session.tenant;
    let _changing = lock(&control.changing);
    if session.is_closed() {
        // The tenant may have been dropped while this waited.
        return Err(Status::BadToken.into());
    }
    let id = control.metadata.table_create(tenant, name, ordered)?;
    control.publish_table(id, tenant, name, ordered)?;
    Ok(TableId { id }.encode())
}

pub(super) fn list(control: &Control, tenant: TenantId) -> Vec<u8> {
    let tables = control.tables_of(tenant);
    let entries = tables.iter().map(|entry| TableEntry {
        id: entry.id,
        name: entry.name.to_string(),
        ordered: entry.table.kind() == store::TableKind::Ordered,
        objects: entry.table.objects(),
        bytes: entry.table.bytes(),
        index_bytes: entry.table.index_bytes(),
    });
    entries.collect::<Vec<_>>().encode()
}

pub(super) fn drop(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let id = control.metadata.table_drop(tenant, name).map_err(|error| named(error.into(), name))?;
    let withdrawn = grants::withdraw_all_of(control, tenant, Subject::Table, name);
    let entry = lock(&control.tables).remove(&(tenant, name.to_owned()));
    let told = control.tell(&Change::TableDropped(id)).and(withdrawn);
    if let Some(entry) = entry {
        entry.table.retire();
    }
    told?;
    Ok(Vec::new())
}

pub(super) fn count(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let entry = control.table(tenant, name).ok_or_else(|| unknown(name))?;
    let (objects, bytes) = (entry.table.objects(), entry.table.bytes());
    Ok(TableStatistics { id: entry.id, objects, bytes, index_bytes: entry.table.index_bytes() }.encode())
}

pub(super) fn open(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    if let Some(grant) = grants::find(control, tenant, Subject::Table, name) {
        return Ok(TableId { id: grant.row.id }.encode());
    }
    let entry = control.table(tenant, name).ok_or_else(|| unknown(name))?;
    Ok(TableId { id: entry.id }.encode())
}

fn named(refusal: Refusal, name: &str) -> Refusal {
    if refusal.status == Status::NotFound { unknown(name) } else { refusal }
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(Status::UnknownTable, format!("there is no table `{name}`"))
}
