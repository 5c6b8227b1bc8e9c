//! Rows of tables: (tenant, name) to number.

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use wire::Subject;

use super::{Metadata, MetadataError, grants, next_u32};
use crate::limits::TABLES_PER_TENANT_MAX;
use crate::tenant::TenantId;

const TABLES: TableDefinition<'_, (u32, &str), u32> = TableDefinition::new("tables");
/// Numbers of the tables that are ordered; the others are not.
const ORDERED: TableDefinition<'_, u32, ()> = TableDefinition::new("ordered_tables");

/// A table as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRow {
    /// Number, never reused.
    pub id: u32,
    /// Whose it is.
    pub tenant: TenantId,
    /// Unique name among the tables of the tenant.
    pub name: String,
    /// Whether its keys can be scanned in their order.
    pub ordered: bool,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(TABLES)?;
    transaction.open_table(ORDERED)?;
    Ok(())
}

pub(super) fn remove_tenant(transaction: &WriteTransaction, tenant: TenantId) -> Result<(), MetadataError> {
    let mut tables = transaction.open_table(TABLES)?;
    let mut ordered = transaction.open_table(ORDERED)?;
    for entry in tables.extract_from_if((tenant.0, "")..(tenant.0 + 1, ""), |_, _| true)? {
        ordered.remove(entry?.1.value())?;
    }
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
    pub fn table_create(&self, tenant: TenantId, name: &str, ordered: bool) -> Result<u32, MetadataError> {
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
            if ordered {
                transaction.open_table(ORDERED)?.insert(id, ())?;
            }
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
            if let Some(id) = removed {
                transaction.open_table(ORDERED)?.remove(id)?;
            }
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
            let (tables, ordered) = (transaction.open_table(TABLES)?, transaction.open_table(ORDERED)?);
            let mut rows = Vec::new();
            for entry in tables.iter()? {
                let (key, id) = entry?;
                let (tenant, name) = key.value();
                let (id, tenant, name) = (id.value(), TenantId(tenant), name.to_owned());
                rows.push(TableRow { id, tenant, name, ordered: ordered.get(id)?.is_some() });
            }
            Ok(rows)
        })
    }
}
