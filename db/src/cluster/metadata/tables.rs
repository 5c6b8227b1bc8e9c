//! Rows of tables: (tenant, name) to number.

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use wire::Subject;

use super::{Metadata, MetadataError, grants, next_u32};
use crate::limits::TABLES_PER_TENANT_MAX;
use crate::tenant::TenantId;

const TABLES: TableDefinition<'_, (u32, &str), u32> = TableDefinition::new("tables");

/// A table as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// Number, never reused.
    pub id: u32,
    /// Whose it is.
    pub tenant: TenantId,
    /// Unique name among the tables of the tenant.
    pub name: String,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(TABLES)?;
    Ok(())
}

pub(super) fn remove_tenant(transaction: &WriteTransaction, tenant: TenantId) -> Result<(), MetadataError> {
    let mut tables = transaction.open_table(TABLES)?;
    tables.retain_in((tenant.0, "")..(tenant.0 + 1, ""), |_, _| false)?;
    Ok(())
}

pub(super) fn exists(
    transaction: &WriteTransaction,
    tenant: TenantId,
    name: &str,
) -> Result<bool, MetadataError> {
    let tables = transaction.open_table(TABLES)?;
    Ok(tables.get((tenant.0, name))?.is_some())
}

impl Metadata {
    /// Adds a table.
    ///
    /// # Errors
    /// `AlreadyExists`, `LimitExceeded`, or that it cannot be stored.
    pub fn table_create(&self, tenant: TenantId, name: &str) -> Result<u32, MetadataError> {
        self.write(|transaction| {
            let mut tables = transaction.open_table(TABLES)?;
            if tables.get((tenant.0, name))?.is_some() {
                return Err(MetadataError::AlreadyExists);
            }
            if tables.range((tenant.0, "")..(tenant.0 + 1, ""))?.count() >= TABLES_PER_TENANT_MAX {
                return Err(MetadataError::LimitExceeded);
            }
            let id = next_u32(transaction, "table")?;
            tables.insert((tenant.0, name), id)?;
            Ok(id)
        })
    }

    /// Removes a table with its grants and gives its number.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn table_drop(&self, tenant: TenantId, name: &str) -> Result<u32, MetadataError> {
        self.write(|transaction| {
            let mut tables = transaction.open_table(TABLES)?;
            let removed = tables.remove((tenant.0, name))?.map(|id| id.value());
            grants::remove_subject(transaction, tenant, Subject::Table, name)?;
            removed.ok_or(MetadataError::NotFound)
        })
    }

    /// All tables of all tenants.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tables(&self) -> Result<Vec<TableRow>, MetadataError> {
        self.read(|transaction| {
            let tables = transaction.open_table(TABLES)?;
            let mut rows = Vec::new();
            for entry in tables.iter()? {
                let (key, id) = entry?;
                let (tenant, name) = key.value();
                rows.push(TableRow { id: id.value(), tenant: TenantId(tenant), name: name.to_owned() });
            }
            Ok(rows)
        })
    }
}
