//! Records of tables: (tenant, name) to number and kind.

use serde::{Deserialize, Serialize};
use wire::{MigrationMode, TableOptions, TenantId};

use super::encoding::{of_any, of_tenant, parts, tenant_of};
use super::{Metadata, MetadataError, MetadataTransaction, TabletsRow, next_u32, tenants};
use crate::limits::TABLES_PER_TENANT_MAX;
use crate::migration::Mode;
use crate::records::RecordsError;

pub(super) const TABLES: &str = "catalog/tables/";

#[derive(Serialize, Deserialize)]
struct TableValue {
    id: u32,
    #[serde(default)]
    ordered: bool,
    /// The budget in bytes of a table with eviction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cache_bytes: Option<u64>,
    /// The default mode of its migrations.
    #[serde(default)]
    migration: Mode,
}

/// A table as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// The number of the table, never reused.
    pub id: u32,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The name, unique among the tables of the tenant.
    pub name: String,
    /// The options with which it was created.
    pub options: TableOptions,
}

impl TableRow {
    fn of(key: &str, value: &TableValue) -> Result<Self, RecordsError> {
        let [tenant, name] = parts(key, TABLES)?;
        let (tenant, name) = (tenant_of(tenant)?, name.to_owned());
        let TableValue { ordered, cache_bytes, .. } = *value;
        let migration = match value.migration {
            Mode::Cooperative => MigrationMode::Cooperative,
            _ => MigrationMode::Rocksteady,
        };
        let options = TableOptions { ordered, cache_bytes, migration };
        Ok(Self { id: value.id, tenant, name, options })
    }

    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        let TableOptions { ordered, cache_bytes, .. } = self.options;
        let value = TableValue { id: self.id, ordered, cache_bytes, migration: self.mode() };
        transaction.put(&key_of(self.tenant, &self.name), &value)
    }

    /// Returns the default mode of its migrations.
    fn mode(&self) -> Mode {
        match self.options.migration {
            MigrationMode::Cooperative => Mode::Cooperative,
            _ => Mode::Rocksteady,
        }
    }
}

fn key_of(tenant: TenantId, name: &str) -> String {
    format!("{}{name}", of_tenant(TABLES, tenant))
}

pub(super) fn exists(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<bool, RecordsError> {
    transaction.has(&key_of(tenant, name))
}

/// Returns the tables of a tenant, or of all.
pub(super) fn all(
    transaction: &mut MetadataTransaction<'_>,
    of: Option<TenantId>,
) -> Result<Vec<TableRow>, RecordsError> {
    transaction.all(&of_any(TABLES, of))?.iter().map(|(key, value)| TableRow::of(key, value)).collect()
}

/// Returns the default mode of a table's migrations.
pub(super) fn mode_of(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    table: u32,
) -> Result<Mode, RecordsError> {
    let rows = all(transaction, Some(tenant))?;
    Ok(rows.iter().find(|row| row.id == table).map_or(Mode::default(), TableRow::mode))
}

/// Removes a table's own record, and returns its number.
pub(super) fn remove(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<u32, MetadataError> {
    let key = key_of(tenant, name);
    let value = transaction.get::<TableValue>(&key)?.ok_or(MetadataError::NotFound)?;
    transaction.delete(&key);
    Ok(value.id)
}

impl Metadata {
    /// Adds a table without placement, for a server that is alone.
    ///
    /// # Errors
    /// `NotFound` when the tenant is gone, `AlreadyExists`, `LimitExceeded`, or that it cannot be stored.
    pub fn table_create(
        &self,
        tenant: TenantId,
        name: &str,
        options: TableOptions,
    ) -> Result<u32, MetadataError> {
        self.table_create_at(tenant, name, options, &[])
    }

    /// Adds a table whose hashes are spread over these servers, with one tablet for each entry.
    ///
    /// # Errors
    /// `NotFound` when the tenant is gone, `AlreadyExists`, `LimitExceeded`, or that it cannot be stored.
    pub fn table_create_at(
        &self,
        tenant: TenantId,
        name: &str,
        options: TableOptions,
        servers: &[u32],
    ) -> Result<u32, MetadataError> {
        self.write(|transaction| {
            tenants::check(transaction, tenant)?;
            if exists(transaction, tenant, name)? {
                return Err(MetadataError::AlreadyExists);
            }
            if transaction.all::<TableValue>(&of_tenant(TABLES, tenant))?.len() >= TABLES_PER_TENANT_MAX {
                return Err(MetadataError::LimitExceeded);
            }
            let id = next_u32(transaction, "table")?;
            TableRow { id, tenant, name: name.to_owned(), options }.store(transaction)?;
            if !servers.is_empty() {
                TabletsRow::spread(tenant, id, servers)?.store(transaction)?;
            }
            Ok(id)
        })
    }

    /// Returns all tables of all tenants.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn tables(&self) -> Result<Vec<TableRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction, None)?))
    }
}
