//! Records of tables: (tenant, name) to number and kind.

use control::{Durability, TableOptions};
use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::row::{Row, below, tenant};
use super::servers::is_gone;
use super::{
    MemberRow, Metadata, MetadataError, MetadataTransaction, TabletError, TabletsRow, next_u32, tenants,
};
use crate::limits::TABLES_PER_TENANT_MAX;
use crate::migration::MigrationMode;
use crate::records::RecordsError;

/// A table as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    /// The number of the table, never reused.
    pub id: u32,
    /// The tenant that owns it.
    #[serde(skip)]
    pub tenant: TenantId,
    /// The name, unique among the tables of the tenant.
    #[serde(skip)]
    pub name: String,
    /// The number by which the log on the disk names it, outside a cluster: that of its present time there. `None`: its
    /// own, or it is in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<u32>,
    /// The options with which it was created, with the durability in force.
    #[serde(flatten)]
    pub options: TableOptions,
}

impl Row for TableRow {
    const PREFIX: &'static str = "catalog/tables/";

    fn key(&self) -> String {
        Self::key_of(self.tenant, &self.name)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[of, name] = parts else { return None };
        Some(Self { tenant: tenant(of)?, name: name.to_owned(), ..self })
    }
}

impl TableRow {
    /// Returns what of the table survives the end of its server; tables of earlier releases are in memory.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.options.durability.unwrap_or(Durability::Memory)
    }

    /// Returns the key of a tenant's table.
    pub(super) fn key_of(tenant: TenantId, name: &str) -> String {
        below(tenant) + name
    }
}

/// Returns the default mode of a table's migrations, and whether the table is on the disk.
pub(super) fn moving_of(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    table: u32,
) -> Result<(MigrationMode, bool), RecordsError> {
    let rows = transaction.rows::<TableRow>(&below(tenant))?;
    let row = rows.iter().find(|row| row.id == table);
    Ok(row.map_or_else(Default::default, |row| (row.options.migration, row.durability().is_on_disk())))
}

/// Refuses if a present server is of a release without tagged tables: it would divide them by hashes.
pub(super) fn all_know_tags(transaction: &mut MetadataTransaction<'_>) -> Result<(), MetadataError> {
    for row in transaction.rows::<MemberRow>("")? {
        if !row.knows_tags && !is_gone(transaction, row.run)? {
            return Err(TabletError::NoTags(row.run.server).into());
        }
    }
    Ok(())
}

/// Removes a table's own record, and returns its number.
pub(super) fn remove(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<u32, MetadataError> {
    let key = TableRow::key_of(tenant, name);
    let row = transaction.row::<TableRow>(&key)?.ok_or(MetadataError::NotFound)?;
    transaction.remove_row::<TableRow>(&key);
    Ok(row.id)
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
            if transaction.has_row::<TableRow>(&TableRow::key_of(tenant, name))? {
                return Err(MetadataError::AlreadyExists);
            }
            if transaction.rows::<TableRow>(&below(tenant))?.len() >= TABLES_PER_TENANT_MAX {
                return Err(MetadataError::LimitExceeded);
            }
            let id = next_u32(transaction, "table")?;
            transaction.store(&TableRow { id, tenant, name: name.to_owned(), options, part: None })?;
            if !servers.is_empty() {
                if options.tagged {
                    all_know_tags(transaction)?;
                }
                transaction.store(&TabletsRow::spread(tenant, (id, options.tagged), servers)?)?;
            }
            Ok(id)
        })
    }

    /// Changes the durability of a table that stays in memory or on the disk; [`Metadata::table_move`] does the rest.
    ///
    /// # Errors
    /// `NotFound`, `DurabilityFixed`, or that it cannot be stored.
    pub fn table_alter(
        &self,
        tenant: TenantId,
        name: &str,
        durability: Durability,
    ) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let key = TableRow::key_of(tenant, name);
            let mut row = transaction.row::<TableRow>(&key)?.ok_or(MetadataError::NotFound)?;
            if row.durability().is_on_disk() != durability.is_on_disk() {
                return Err(MetadataError::DurabilityFixed);
            }
            row.options.durability = Some(durability);
            Ok(transaction.store(&row)?)
        })
    }

    /// Returns a number that no table has or had, by which a log may name one that comes to its disk.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn table_number(&self) -> Result<u32, MetadataError> {
        self.write(|transaction| next_u32(transaction, "table"))
    }

    /// Records that the log has all objects of a table under this number, or with `None` that the table is in memory.
    ///
    /// # Errors
    /// `NotFound` if the table has been dropped, or that it cannot be stored.
    pub fn table_move(
        &self,
        tenant: TenantId,
        (name, id): (&str, u32),
        durability: Durability,
        part: Option<u32>,
    ) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let row = transaction.row::<TableRow>(&TableRow::key_of(tenant, name))?;
            let mut row = row.filter(|row| row.id == id).ok_or(MetadataError::NotFound)?;
            (row.options.durability, row.part) = (Some(durability), part);
            Ok(transaction.store(&row)?)
        })
    }

    /// Returns all tables of all tenants.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn tables(&self) -> Result<Vec<TableRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }
}
