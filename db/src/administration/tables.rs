//! Tables of one tenant: create, list, drop, count, find.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard};

use cluster::metadata::{Catalog, MigrationRow, ServerRun, Side, TabletsRow};
use control::{Durability, MigrationMode, Subject, TableEntry, TableId, TableOptions, TableStatistics};
use store::{CACHE_BUDGET_BYTES_MIN, Eviction, HashRange, RewritingProgress, Table};
use wire::limits::TABLETS_PER_TABLE_MAX;
use wire::{Status, TenantId};

use super::missing::{if_missing, unknown_table};
use super::{TenantSet, grants};
use crate::control_plane::ownership::{Alteration, Due, due, map_of};
use crate::control_plane::{Control, Refusal};
use crate::limits::TAGGED_TABLETS;
use crate::session::Session;
use crate::sync::lock;
use crate::tablet::{self, Parts, PartsChange};
use crate::tenant::limit::TenantLimit;
use crate::view::change::Change;

pub(super) fn create(
    control: &Control,
    session: &Session,
    name: &str,
    (mut options, tablets): (TableOptions, Option<usize>),
) -> Result<Vec<u8>, Refusal> {
    let tenant = session.tenant;
    let changing = lock(&control.changing);
    if session.is_closed() {
        // The tenant may have been dropped while this waited.
        return Err(Status::BadToken.into());
    }
    if let Some(bytes) = options.cache_bytes {
        admit_budget(control, tenant, bytes)?;
    }
    let is_cache = options.cache_bytes.is_some();
    let durability = options.durability.unwrap_or_else(|| default_durability(control, is_cache));
    admit_durability(control, is_cache, durability)?;
    // Stored, so that it stays when the server's default changes.
    options.durability = Some(durability);
    if !matches!(options.migration, MigrationMode::Rocksteady | MigrationMode::Cooperative) {
        let text = "the migration mode of a table must be rocksteady or cooperative";
        return Err(Refusal::new(Status::OutOfRange, text));
    }
    if let Some(tablets) = tablets.filter(|tablets| !(1..=TABLETS_PER_TABLE_MAX).contains(tablets)) {
        let text = format!("a table has 1 to {TABLETS_PER_TABLE_MAX} tablets, not {tablets}");
        return Err(Refusal::new(Status::OutOfRange, text));
    }
    let Some(own) = control.lease_cache.run() else {
        if tablets.is_some_and(|tablets| tablets > 1) {
            let text = "this server is not in a cluster: a table cannot have more than one tablet";
            return Err(Refusal::new(Status::Unavailable, text));
        }
        let id = control.metadata.table_create(tenant, name, options)?;
        control.publish_table((id, None), tenant, name, options)?;
        return Ok(control::encode(&TableId { id }));
    };
    let tablets = tablets.unwrap_or(if options.tagged { TAGGED_TABLETS } else { 1 });
    let id = control.metadata.table_create_spread(tenant, name, options, (tablets, own.server))?;
    let catalog = control.metadata.catalog(Some(&[tenant].into()))?;
    control.lease_cache.see(&catalog.tenants, |known| known == tenant);
    follow(control, &changing, &catalog)?;
    Ok(control::encode(&TableId { id }))
}

/// Returns the metadata of these tenants, or of all; places a cluster's tables that are not placed yet on this server.
pub(super) fn placed(control: &Control, of: Option<&TenantSet>) -> Result<Catalog, Refusal> {
    let catalog = control.metadata.catalog(of)?;
    let Some(own) = control.lease_cache.run() else { return Ok(catalog) };
    let placed: BTreeSet<u32> = catalog.tablets.iter().map(|row| row.table).collect();
    let unplaced: Vec<_> = catalog.tables.iter().filter(|row| !placed.contains(&row.id)).collect();
    if unplaced.is_empty() {
        return Ok(catalog);
    }
    for row in unplaced {
        control.metadata.table_place(row.tenant, row.id, own.server)?;
    }
    Ok(control.metadata.catalog(of)?)
}

/// Applies the metadata of tables: new tables, the ranges owned here, and the places of the others. The caller has
/// held the lock since before it read the catalog: ranges that migrations change meanwhile are not touched, and the
/// maps that migrations send to clients are newer. Returns whether something is left that no change of the metadata announces: a
/// recovery that has no record any more, and goes on here.
pub(super) fn follow(
    control: &Control,
    _changing: &MutexGuard<'_, ()>,
    catalog: &Catalog,
) -> Result<bool, Refusal> {
    let Some(own) = control.lease_cache.run() else { return begin_empty(control, catalog).map(|()| false) };
    let mut is_behind = false;
    let tablets: BTreeMap<u32, &TabletsRow> = catalog.tablets.iter().map(|row| (row.table, row)).collect();
    let emptied = |row: &TabletsRow| {
        Some((row.table, row.tablets.iter().filter_map(|tablet| tablet.emptied_ms).max()?))
    };
    lock(&control.emptied).extend(catalog.tablets.iter().filter_map(emptied));
    let (mut alterations, mut gone) = (Vec::new(), Vec::new());
    for row in &catalog.tables {
        // A table that is about to be placed.
        let Some(tablets) = tablets.get(&row.id) else { continue };
        let migrations = || catalog.migrations.iter().filter(|migration| migration.table == row.id);
        let recovering = control.migrations.as_ref().map(|all| all.recovering(row.id)).unwrap_or_default();
        is_behind |= recovering.iter().any(|one| migrations().all(|row| row.id != one.id));
        let begun = migrations().filter(|row| is_begun(control, row, own)).chain(&recovering);
        let known = control.table(row.tenant, &row.name);
        let entry = match &known {
            Some(entry) => Arc::clone(entry),
            None => Arc::new(with_recovered(
                control,
                control.make_table(row.id, row.tenant, &row.name, row.options),
            )?),
        };
        if entry.durability != row.durability() && known.is_some() {
            control.set_durability(row.id, row.durability())?;
        }
        let kept = |part: &Table| control.parts_made.durable.as_ref()?.kept(part.id());
        let Due { leave, take, missing, go } = due((&entry.parts, &kept), tablets, begun, own);
        let is_lost =
            |hashes: &HashRange| tablets.touching(*hashes).any(|tablet| tablet.emptied_ms.is_some());
        if missing.iter().any(is_lost) {
            // Its objects had versions of another server, or of an earlier start.
            control.parts_made.begin_above(control.metadata.reserved_versions()?);
        }
        let come = missing.into_iter().map(|hashes| control.make_part(&entry, (hashes, None), 0));
        let come = come.collect::<Result<_, _>>()?;
        gone.extend_from_slice(&go);
        let change = PartsChange { leave, take, come, go, moving: Vec::new() };
        let map = map_of(tablets, migrations(), &catalog.members, catalog.revision.0);
        let map = map.filter(|map| !entry.has_map(map));
        if known.is_none() {
            let parts = entry.parts.altered(&change);
            let parts = parts.map_err(|error| Refusal::new(Status::Internal, error.to_string()))?;
            control.publish(Arc::new(entry.with_parts(parts, map.as_ref())))?;
        } else if !change.is_empty() || map.is_some() {
            alterations.push(Alteration { table: row.id, change, map });
        }
    }
    let is_settled = control.views.settled() == control.views.latest();
    if !alterations.is_empty() || !is_settled {
        let view = control.alter(&alterations)?;
        tracing::info!(view, tables = alterations.len(), "tablets were added, removed or moved");
    }
    control.retire(&gone);
    Ok(is_behind)
}

/// Returns a table's entry with the parts that the log had of it, which serve nothing yet.
fn with_recovered(control: &Control, entry: tablet::TableEntry) -> Result<tablet::TableEntry, Refusal> {
    let parts = control.parts_made.durable.as_ref().map(|durable| durable.take_recovered(entry.id));
    let Some(come) = parts.filter(|parts| !parts.is_empty()) else { return Ok(entry) };
    for part in &come {
        part.begin_above(control.parts_made.versions_above());
        part.set_synced(entry.durability == Durability::Synced);
    }
    let parts = entry.parts.altered(&PartsChange { come, ..PartsChange::default() });
    let parts = parts.map_err(|error| Refusal::new(Status::Internal, error.to_string()))?;
    Ok(entry.with_parts(parts, None))
}

/// Publishes the tables that a server outside a cluster had before its start, and notes those that lost their objects.
fn begin_empty(control: &Control, catalog: &Catalog) -> Result<(), Refusal> {
    let now_ms = control.clock.wall_ms();
    let had_log = control.log.as_ref().is_some_and(|log| !log.is_new);
    for row in &catalog.tables {
        if control.table(row.tenant, &row.name).is_none() {
            control.publish_table((row.id, row.part), row.tenant, &row.name, row.options)?;
            if !had_log || !row.durability().is_on_disk() {
                lock(&control.emptied).insert(row.id, now_ms);
            }
        }
    }
    Ok(())
}

/// Returns true if a migration has begun, as far as this server as its source knows: before, it has cut nothing.
fn is_begun(control: &Control, row: &MigrationRow, own: ServerRun) -> bool {
    let has_begun = || control.migrations.as_ref().is_some_and(|all| all.has_begun(row.id));
    row.side_of(own) != Some(Side::Source) || has_begun()
}

/// Refuses a budget that could hold nothing, or that could never be filled.
fn admit_budget(control: &Control, tenant: TenantId, bytes: u64) -> Result<(), Refusal> {
    let memory_bytes = control.store.memory_bytes();
    if !(CACHE_BUDGET_BYTES_MIN..=memory_bytes).contains(&bytes) {
        let text = format!("a cache must have {CACHE_BUDGET_BYTES_MIN} to {memory_bytes} bytes, not {bytes}");
        return Err(Refusal::new(Status::OutOfRange, text));
    }
    let limit = TenantLimit::MemoryBytes;
    let most = control.accounts.of(tenant).whole(limit);
    if bytes > most {
        let text = format!("{}: a cache of {bytes} bytes exceeds the tenant's {most} bytes", limit.name());
        return Err(Refusal::new(Status::OverQuota, text));
    }
    Ok(())
}

/// Returns the durability of a new table for which none is given.
fn default_durability(control: &Control, is_cache: bool) -> Durability {
    if control.log.is_some() && !is_cache { Durability::Synced } else { Durability::Memory }
}

/// Refuses a durability that a cache, or this server, cannot have.
pub(super) fn admit_durability(
    control: &Control,
    is_cache: bool,
    durability: Durability,
) -> Result<(), Refusal> {
    if !durability.is_on_disk() {
        return Ok(());
    }
    if is_cache {
        let text = "a cache keeps nothing on the disk: its durability is memory";
        return Err(Refusal::new(Status::OutOfRange, text));
    }
    // In a cluster it depends on the servers that are to own the hashes.
    if control.log.is_some() || control.lease_cache.run().is_some() {
        return Ok(());
    }
    let text = "the server was started with `--disk off`: leave the durability at memory, or ask the operator for a disk";
    Err(Refusal::new(Status::Unavailable, text))
}

/// Returns the budget of a table that evicts.
pub(super) fn budget_of(parts: &Parts) -> Option<u64> {
    match parts.eviction() {
        Eviction::Never => None,
        Eviction::S3Fifo { budget_bytes } => Some(budget_bytes),
    }
}

/// Returns the bytes of a table that were rewritten so far, of those that it has; `None` if none are on their way.
fn rewritten_bytes(parts: &Parts) -> Option<u64> {
    let of = |part: &Arc<Table>| {
        let RewritingProgress { hash, .. } = part.rewriting()?;
        Some(((u128::from(part.bytes()) * u128::from(hash)) >> 64) as u64)
    };
    parts.held().iter().filter_map(of).reduce(|sum, bytes| sum + bytes)
}

pub(super) fn list(control: &Control, tenant: TenantId) -> Vec<u8> {
    let tables = control.tables_of(tenant);
    let emptied = lock(&control.emptied);
    let entries = tables.iter().map(|entry| TableEntry {
        id: entry.id,
        name: entry.name.to_string(),
        ordered: entry.parts.kind() == store::TableKind::Ordered,
        tagged: entry.parts.is_tagged(),
        objects: entry.parts.objects(),
        bytes: entry.parts.bytes(),
        index_bytes: entry.parts.index_bytes(),
        cache_bytes: budget_of(&entry.parts),
        evicted: entry.parts.sum(Table::evicted),
        emptied_ms: emptied.get(&entry.id).copied(),
        durability: Some(entry.durability),
        rewritten_bytes: rewritten_bytes(&entry.parts),
    });
    control::encode(&entries.collect::<Vec<_>>())
}

pub(super) fn drop(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let _changing = lock(&control.changing);
    let id = control.metadata.table_drop(tenant, name).map_err(if_missing(|| unknown_table(name)))?;
    forget(control, tenant, name, id)?;
    Ok(Vec::new())
}

/// Removes a table and its grants. Its metadata is gone already.
pub(super) fn forget(control: &Control, tenant: TenantId, name: &str, id: u32) -> Result<(), Refusal> {
    let withdrawn = grants::withdraw_all_of(control, tenant, Subject::Table, name);
    let (entry, told) = {
        let _owning = lock(&control.owning);
        let entry = lock(&control.tables).remove(&(tenant, name.to_owned()));
        (entry, control.tell(&Change::TableDropped(id)).and(withdrawn))
    };
    lock(&control.emptied).remove(&id);
    if let Some(entry) = entry {
        control.retire(entry.parts.held());
    }
    told
}

pub(super) fn count(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    let entry = control.table(tenant, name).ok_or_else(|| unknown_table(name))?;
    let parts = &entry.parts;
    let statistics = TableStatistics {
        id: entry.id,
        objects: parts.objects(),
        bytes: parts.bytes(),
        index_bytes: parts.index_bytes(),
        cache_bytes: budget_of(parts),
        evicted: parts.sum(Table::evicted),
        emptied_ms: lock(&control.emptied).get(&entry.id).copied(),
        durability: Some(entry.durability),
        rewritten_bytes: rewritten_bytes(parts),
    };
    Ok(control::encode(&statistics))
}

pub(super) fn open(control: &Control, tenant: TenantId, name: &str) -> Result<Vec<u8>, Refusal> {
    if let Some(grant) = grants::find(control, tenant, Subject::Table, name) {
        return Ok(control::encode(&TableId { id: grant.row.id }));
    }
    let entry = control.table(tenant, name).ok_or_else(|| unknown_table(name))?;
    Ok(control::encode(&TableId { id: entry.id }))
}
