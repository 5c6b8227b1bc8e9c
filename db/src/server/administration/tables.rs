//! Tables of one tenant: create, list, drop, count, find.

use store::{CACHE_BUDGET_BYTES_MIN, Eviction};
use wire::{Body, Status, Subject, TableEntry, TableId, TableOptions, TableStatistics};

use super::grants;
use crate::server::change::Change;
use crate::server::control::{Control, Refusal, lock};
use crate::session::Session;
use crate::tablet::Parts;
use crate::tenant::TenantId;
use crate::tenant::limit::TenantLimit;

pub(super) fn create(
    control: &Control,
    session: &Session,
    name: &str,
    options: TableOptions,
) -> Result<Vec<u8>, Refusal> {
    let tenant = session.tenant;
    let _changing = lock(&control.changing);
    if session.is_closed() {
        // The tenant may have been dropped while this waited.
        return Err(Status::BadToken.into());
    }
    if let Some(bytes) = options.cache_bytes {
        admit_budget(control, tenant, bytes)?;
    }
    let id = control.metadata.table_create(tenant, name, options)?;
    control.publish_table(id, tenant, name, options)?;
    Ok(TableId { id }.encode())
}

/// Refuses a budget in which nothing fits, or that could never be filled.
fn admit_budget(control: &Control, tenant: TenantId, bytes: u64) -> Result<(), Refusal> {
    let memory_bytes = control.store.memory_bytes();
    if !(CACHE_BUDGET_BYTES_MIN..=memory_bytes).contains(&bytes) {
        let text =
            format!("a cache may have {CACHE_BUDGET_BYTES_MIN} to {memory_bytes} bytes here, not {bytes}");
        return Err(Refusal::new(Status::OutOfRange, text));
    }
    let limit = TenantLimit::MemoryBytes;
    let most = control.accounts.of(tenant).limit(limit);
    if bytes > most {
        let text = format!(
            "{}: a cache of {bytes} bytes is beyond the {most} that the tenant may have",
            limit.name()
        );
        return Err(Refusal::new(Status::OverQuota, text));
    }
    Ok(())
}

/// The budget of a table that evicts.
fn budget_of(parts: &Parts) -> Option<u64> {
    match parts.eviction() {
        Eviction::Never => None,
        Eviction::S3Fifo { budget_bytes } => Some(budget_bytes),
    }
}

pub(super) fn list(control: &Control, tenant: TenantId) -> Vec<u8> {
    let tables = control.tables_of(tenant);
    let entries = tables.iter().map(|entry| TableEntry {
        id: entry.id,
        name: entry.name.to_string(),
        ordered: entry.parts.kind() == store::TableKind::Ordered,
        objects: entry.parts.objects(),
        bytes: entry.parts.bytes(),
        index_bytes: entry.parts.index_bytes(),
        cache_bytes: budget_of(&entry.parts),
        evicted: entry.parts.sum(store::Table::evicted),
    });
    entries.collect::<Vec<_>>().encode()
}

pub(super) fn drop(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let id = control.metadata.table_drop(tenant, name).map_err(|error| named(error.into(), name))?;
    forget(control, tenant, name, id)?;
    Ok(Vec::new())
}

/// Takes out a table with its grants. The metadata has forgotten it already.
pub(super) fn forget(control: &Control, tenant: TenantId, name: &str, id: u32) -> Result<(), Refusal> {
    let withdrawn = grants::withdraw_all_of(control, tenant, Subject::Table, name);
    let entry = lock(&control.tables).remove(&(tenant, name.to_owned()));
    let told = control.tell(&Change::TableDropped(id)).and(withdrawn);
    if let Some(entry) = entry {
        entry.parts.retire();
    }
    told
}

pub(super) fn count(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let entry = control.table(tenant, name).ok_or_else(|| unknown(name))?;
    let parts = &entry.parts;
    let statistics = TableStatistics {
        id: entry.id,
        objects: parts.objects(),
        bytes: parts.bytes(),
        index_bytes: parts.index_bytes(),
        cache_bytes: budget_of(parts),
        evicted: parts.sum(store::Table::evicted),
    };
    Ok(statistics.encode())
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
