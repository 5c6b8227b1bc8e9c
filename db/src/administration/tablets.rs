//! Requests of the administrator for tablets and migrations: changes of the metadata, which the servers follow.

use std::collections::BTreeMap;

use cluster::metadata::{MetadataError, MigrationRow, Side, TabletError};
use control::{MigrationEntry, MigrationMode, MigrationProgress, MigrationWait, TabletEntry};
use store::HashRange;
use wire::{Status, TenantId};

use super::missing::{if_missing, unknown_table};
use super::plans::check_shared;
use crate::control_plane::migrations::{Figure, Shown};
use crate::control_plane::{Control, Refusal};

/// Names of tables as `owner/name`, by owner and number.
struct Names(BTreeMap<(TenantId, u32), String>);

impl Names {
    fn read(control: &Control) -> Result<Self, Refusal> {
        let tenants = control.tenant_names()?;
        let named = control.metadata.tables()?.into_iter().filter_map(|row| {
            let owner = tenants.get(&row.tenant)?;
            Some(((row.tenant, row.id), format!("{owner}/{}", row.name)))
        });
        Ok(Self(named.collect()))
    }

    /// Returns the name of a table. Of a table dropped a moment ago only the number is known.
    fn of(&self, tenant: TenantId, table: u32) -> String {
        self.0.get(&(tenant, table)).cloned().unwrap_or_else(|| format!("?/{table}"))
    }

    fn find(&self, name: &str) -> Result<(TenantId, u32), Refusal> {
        let found = self.0.iter().find(|(_, known)| *known == name);
        found.map(|(place, _)| *place).ok_or_else(|| unknown_table(name))
    }
}

pub(super) fn list(control: &Control) -> Result<Vec<u8>, Refusal> {
    let names = Names::read(control)?;
    let mut entries = Vec::new();
    for row in control.metadata.tablets()? {
        let table = names.of(row.tenant, row.table);
        entries.extend(row.tablets.iter().map(|tablet| TabletEntry {
            table: table.clone(),
            id: row.table,
            first: tablet.hashes.first(),
            last: tablet.hashes.last(),
            server: tablet.server,
            emptied_ms: tablet.emptied_ms.unwrap_or_default(),
        }));
    }
    Ok(control::encode(&entries))
}

pub(super) fn split(control: &Control, table: &str, at: u64) -> Result<Vec<u8>, Refusal> {
    let (tenant, id) = place_of(control, table)?;
    control.metadata.tablet_split(tenant, id, at).map_err(if_missing(|| unplaced(table)))?;
    Ok(Vec::new())
}

pub(super) fn merge(control: &Control, table: &str, at: u64) -> Result<Vec<u8>, Refusal> {
    let (tenant, id) = place_of(control, table)?;
    control.metadata.tablet_merge(tenant, id, at).map_err(if_missing(|| unplaced(table)))?;
    Ok(Vec::new())
}

pub(super) fn migrations(control: &Control) -> Result<Vec<u8>, Refusal> {
    let names = Names::read(control)?;
    let entry = |row: &MigrationRow| entry_of(row, names.of(row.tenant, row.table));
    Ok(control::encode(&control.metadata.migrations()?.iter().map(entry).collect::<Vec<_>>()))
}

/// Returns the progress of migrations in which this server takes part, or took part lately.
pub(super) fn progress(control: &Control) -> Result<Vec<u8>, Refusal> {
    let Some(migrations) = &control.migrations else {
        return Ok(control::encode(&Vec::<MigrationProgress>::new()));
    };
    let (names, now_us) = (Names::read(control)?, control.clock.now_us());
    let entry = |Shown { row, side, progress, is_over }: &Shown| {
        let figure = |figure| progress.get(figure);
        let until_us = Some(figure(Figure::EndedUs)).filter(|ended_us| *ended_us > 0).unwrap_or(now_us);
        let began_us = Some(figure(Figure::BeganUs)).filter(|began_us| *began_us > 0).unwrap_or(until_us);
        let log_bytes = Some(figure(Figure::LogBytesExpected)).filter(|bytes| *bytes > 0);
        MigrationProgress {
            migration: entry_of(row, names.of(row.tenant, row.table)),
            is_source: *side == Side::Source,
            is_over: *is_over,
            awaited: if *is_over { MigrationWait::Nothing } else { progress.awaited() },
            ahead: migrations.ahead_of(*side, row.id).unwrap_or_default() as u32,
            objects_expected: figure(Figure::ObjectsExpected),
            log_bytes: log_bytes.map(|_| figure(Figure::LogBytes)),
            log_bytes_expected: log_bytes,
            objects: figure(Figure::Objects),
            bytes: figure(Figure::Bytes),
            bytes_per_second: progress.bytes_per_second(now_us),
            second_read_bytes: figure(Figure::SecondReadBytes),
            pause_us: figure(Figure::PauseUs),
            took_ms: until_us.saturating_sub(began_us) / 1_000,
        }
    };
    Ok(control::encode(&migrations.lately().iter().chain(&migrations.shown()).map(entry).collect::<Vec<_>>()))
}

pub(super) fn migrate(
    control: &Control,
    table: &str,
    (first, last): (u64, u64),
    target: u32,
    mode: Option<MigrationMode>,
) -> Result<Vec<u8>, Refusal> {
    let place = place_of(control, table)?;
    let hashes = HashRange::new(first, last).ok_or(MetadataError::Tablets(TabletError::Uneven(first)))?;
    let now_ms = control.clock.wall_ms();
    let row = control.metadata.migration_begin(place, hashes, target, mode, now_ms);
    let row = row.map_err(if_missing(|| unplaced(table)))?;
    Ok(control::encode(&entry_of(&row, table.to_owned())))
}

pub(super) fn abort(control: &Control, id: u32) -> Result<Vec<u8>, Refusal> {
    let over = || Refusal::new(Status::NotFound, format!("there is no migration {id}, or it has ended"));
    let row = control.metadata.migration_abort(id).map_err(if_missing(over))?;
    Ok(control::encode(&entry_of(&row, Names::read(control)?.of(row.tenant, row.table))))
}

/// Returns the owner and number of a table; refuses outside a cluster.
fn place_of(control: &Control, table: &str) -> Result<(TenantId, u32), Refusal> {
    check_shared(control)?;
    Names::read(control)?.find(table)
}

fn unplaced(table: &str) -> Refusal {
    Refusal::new(Status::NotFound, format!("`{table}` is not assigned to a server yet"))
}

fn entry_of(row: &MigrationRow, table: String) -> MigrationEntry {
    MigrationEntry {
        id: row.id,
        table,
        first: row.hashes.first(),
        last: row.hashes.last(),
        source: row.source.server,
        target: row.target.server,
        mode: row.mode,
        phase: row.phase,
        is_aborted: row.is_aborted,
        begun_ms: row.begun_ms,
    }
}
