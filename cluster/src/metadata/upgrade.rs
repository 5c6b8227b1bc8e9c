//! Conversion of a file that an earlier version of the server wrote.
//!
//! The second layout had a redb table for each kind of row, with tuples as keys and values. The first layout had one
//! version per extension, whose package ended before the placement.

use control::{Actor, AuditEntry, Right, TableOptions};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use wire::{BodyReader, Status, TenantId};

use super::audit::{self, AuditRow};
use super::extensions::{ExtensionRow, StoredVersion};
use super::grants::GrantRow;
use super::limits::LimitRow;
use super::tables::TableRow;
use super::tenants::{self, TenantRow};
use super::version_state::VersionState;
use super::{Counter, MetadataTransaction, packages};
use crate::records::RecordsError;
use crate::secret::SecretHash;

const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
/// Number, salt and digest of the secret.
const TENANTS: TableDefinition<'_, &str, (u32, [u8; 16], [u8; 32])> = TableDefinition::new("tenants");
const TABLES: TableDefinition<'_, (u32, &str), u32> = TableDefinition::new("tables");
const ORDERED: TableDefinition<'_, u32, ()> = TableDefinition::new("ordered_tables");
const LIMITS: TableDefinition<'_, (u32, &str), u64> = TableDefinition::new("limits");
/// Number, newest version ever, current version, canary or 0, its percentage, pinned.
type HeadRow = (u32, u32, u32, u32, u8, bool);
const HEADS: TableDefinition<'_, (u32, &str), HeadRow> = TableDefinition::new("extension_heads");
/// The time of installation, the package.
type VersionRow = (u64, &'static [u8]);
const VERSIONS: TableDefinition<'_, (u32, &str, u32), VersionRow> =
    TableDefinition::new("extension_versions");
/// Owner, kind of object, name, other tenant.
type GrantKey = (u32, u8, &'static str, u32);
/// Number, whether writing is allowed, the time of the grant.
const GRANTS: TableDefinition<'_, GrantKey, (u32, bool, u64)> = TableDefinition::new("grants");
/// Tenant or 0, and the encoded act.
const ACTS: TableDefinition<'_, u64, (u32, &[u8])> = TableDefinition::new("audit");

/// Number, version, time of installation, package.
type FirstLayoutRow = (u32, u32, u64, &'static [u8]);
const FIRST_LAYOUT: TableDefinition<'_, (u32, &str), FirstLayoutRow> = TableDefinition::new("extensions");

/// Returns the records of a file in this earlier layout.
pub(super) fn records_of(
    version: u64,
    file: &WriteTransaction,
) -> Result<Vec<(String, Vec<u8>)>, RecordsError> {
    let mut records = MetadataTransaction::over_nothing();
    match version {
        1 => extensions_of_the_first_layout(file, &mut records)?,
        2 => extensions(file, &mut records)?,
        other => return Err(RecordsError::UnknownFormat(other)),
    }
    counters(file, &mut records)?;
    tenants(file, &mut records)?;
    tables(file, &mut records)?;
    limits(file, &mut records)?;
    grants(file, &mut records)?;
    acts(file, &mut records)?;
    Ok(records.into_written())
}

fn extensions_of_the_first_layout(
    file: &WriteTransaction,
    records: &mut MetadataTransaction<'_>,
) -> Result<(), RecordsError> {
    for entry in file.open_table(FIRST_LAYOUT)?.iter()? {
        let (key, value) = entry?;
        let ((tenant, name), (id, version, installed_ms, package)) = (key.value(), value.value());
        let state = VersionState { current: version, canary: None, pinned: false, kept: vec![version] };
        let (tenant, name) = (TenantId(tenant), name.to_owned());
        let row = ExtensionRow { id, tenant, name, newest: version, state };
        // The placement of a version that becomes current: two zero bytes.
        let package = [package, &[0, 0]].concat();
        let stored = StoredVersion { version, installed_ms, package };
        row.store_version(records, &stored, &packages::fresh_id()?)?;
        records.store(&row)?;
    }
    Ok(())
}

fn counters(file: &WriteTransaction, records: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
    for entry in file.open_table(COUNTERS)?.iter()? {
        let (counter, next) = entry?;
        records.put(&format!("counters/{}", counter.value()), &Counter { next: next.value() })?;
    }
    Ok(())
}

fn tenants(file: &WriteTransaction, records: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
    let mut held = 0;
    for entry in file.open_table(TENANTS)?.iter()? {
        let (name, row) = entry?;
        let (id, salt, digest) = row.value();
        let (id, name) = (TenantId(id), name.value().to_owned());
        TenantRow { id, name, secret: SecretHash { salt, digest } }.store(records)?;
        held += 1;
    }
    tenants::store_held(records, held)
}

fn tables(file: &WriteTransaction, records: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
    let ordered = file.open_table(ORDERED)?;
    for entry in file.open_table(TABLES)?.iter()? {
        let (key, id) = entry?;
        let ((tenant, name), id) = (key.value(), id.value());
        let (tenant, name, ordered) = (TenantId(tenant), name.to_owned(), ordered.get(id)?.is_some());
        // No table of that format evicts.
        let options = TableOptions { ordered, ..TableOptions::default() };
        records.store(&TableRow { id, tenant, name, options, part: None })?;
    }
    Ok(())
}

fn limits(file: &WriteTransaction, records: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
    for entry in file.open_table(LIMITS)?.iter()? {
        let (key, value) = entry?;
        let (tenant, name) = key.value();
        records.store(&LimitRow { tenant: TenantId(tenant), name: name.to_owned(), value: value.value() })?;
    }
    Ok(())
}

fn extensions(file: &WriteTransaction, records: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
    let versions = file.open_table(VERSIONS)?;
    for entry in file.open_table(HEADS)?.iter()? {
        let (key, head) = entry?;
        let ((tenant, name), (id, newest, current, canary, percent, pinned)) = (key.value(), head.value());
        let canary = (canary != 0).then_some((canary, percent));
        let state = VersionState { current, canary, pinned, kept: Vec::new() };
        let mut row = ExtensionRow { id, tenant: TenantId(tenant), name: name.to_owned(), newest, state };
        for entry in versions.range((tenant, name, 0)..=(tenant, name, u32::MAX))? {
            let (key, stored) = entry?;
            let (version, (installed_ms, package)) = (key.value().2, stored.value());
            row.state.kept.push(version);
            let stored = StoredVersion { version, installed_ms, package: package.to_vec() };
            row.store_version(records, &stored, &packages::fresh_id()?)?;
        }
        records.store(&row)?;
    }
    Ok(())
}

fn grants(file: &WriteTransaction, records: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
    for entry in file.open_table(GRANTS)?.iter()? {
        let (key, row) = entry?;
        let ((owner, kind, name, to), (id, writable, granted_ms)) = (key.value(), row.value());
        let right = match (kind, writable) {
            (1, _) => Right::Invoke,
            (_, true) => Right::Write,
            (_, false) => Right::Read,
        };
        let (owner, to, name) = (TenantId(owner), TenantId(to), name.to_owned());
        records.store(&GrantRow { id, owner, name, to, right, granted_ms })?;
    }
    Ok(())
}

fn acts(file: &WriteTransaction, records: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
    for entry in file.open_table(ACTS)?.iter()? {
        let (_, row) = entry?;
        let (tenant, act) = row.value();
        let entry = act_of(act).map_err(|status| RecordsError::Storage(status.to_string()))?;
        audit::count(records, tenant, |held| held + 1)?;
        AuditRow { tenant, entry }.store(records)?;
    }
    Ok(())
}

/// Decodes an act: sequence u64, time u64, actor u8 (2: a tenant, whose name, client and address follow), text, outcome
/// u8.
fn act_of(act: &[u8]) -> Result<AuditEntry, Status> {
    let mut reader = BodyReader::new(act);
    let (sequence, at_ms) = (reader.u64()?, reader.u64()?);
    let actor = match reader.u8()? {
        0 => Actor::Server,
        1 => Actor::Administrator,
        2 => Actor::Tenant {
            name: reader.text()?.to_owned(),
            client_id: reader.u64()?,
            peer: reader.text()?.to_owned(),
        },
        _ => return Err(Status::Malformed),
    };
    let entry = AuditEntry { sequence, at_ms, actor, act: reader.text()?.to_owned(), outcome: reader.u8()? };
    reader.finish()?;
    Ok(entry)
}
