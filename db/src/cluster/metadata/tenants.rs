//! Rows of tenants: name to number, salt and digest of the secret.

use redb::{ReadableTable, ReadableTableMetadata, TableDefinition, WriteTransaction};

use super::{Metadata, MetadataError, extensions, grants, limits, next_u32, tables};
use crate::limits::TENANTS_MAX;
use crate::tenant::TenantId;
use crate::tenant::secret::SecretHash;

type Row = (u32, [u8; 16], [u8; 32]);

const TENANTS: TableDefinition<'_, &str, Row> = TableDefinition::new("tenants");

/// A tenant as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantRow {
    /// Number, never reused.
    pub id: TenantId,
    /// Unique name.
    pub name: String,
    /// What is kept of its secret.
    pub secret: SecretHash,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(TENANTS)?;
    Ok(())
}

impl Metadata {
    /// Adds a tenant.
    ///
    /// # Errors
    /// `AlreadyExists`, `LimitExceeded`, or that it cannot be stored.
    pub fn tenant_create(&self, name: &str, secret: SecretHash) -> Result<TenantId, MetadataError> {
        self.write(|transaction| {
            let mut tenants = transaction.open_table(TENANTS)?;
            if tenants.get(name)?.is_some() {
                return Err(MetadataError::AlreadyExists);
            }
            if tenants.len()? >= TENANTS_MAX as u64 {
                return Err(MetadataError::LimitExceeded);
            }
            let id = next_u32(transaction, "tenant")?;
            tenants.insert(name, (id, secret.salt, secret.digest))?;
            Ok(TenantId(id))
        })
    }

    /// Gives a tenant another secret.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn tenant_rotate(&self, name: &str, secret: SecretHash) -> Result<TenantId, MetadataError> {
        self.write(|transaction| {
            let mut tenants = transaction.open_table(TENANTS)?;
            let id = match tenants.get(name)? {
                Some(row) => row.value().0,
                None => return Err(MetadataError::NotFound),
            };
            tenants.insert(name, (id, secret.salt, secret.digest))?;
            Ok(TenantId(id))
        })
    }

    /// Finds a tenant by its name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tenant_find(&self, name: &str) -> Result<Option<TenantRow>, MetadataError> {
        self.read(|transaction| {
            let tenants = transaction.open_table(TENANTS)?;
            Ok(tenants.get(name)?.map(|row| from_row(name, row.value())))
        })
    }

    /// All tenants, by name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tenants(&self) -> Result<Vec<TenantRow>, MetadataError> {
        self.read(|transaction| {
            let tenants = transaction.open_table(TENANTS)?;
            let mut rows = Vec::new();
            for entry in tenants.iter()? {
                let (name, row) = entry?;
                rows.push(from_row(name.value(), row.value()));
            }
            Ok(rows)
        })
    }

    /// Removes a tenant with its limits, tables and extensions, and all grants of it and to it.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn tenant_drop(&self, name: &str) -> Result<TenantId, MetadataError> {
        self.write(|transaction| {
            let mut tenants = transaction.open_table(TENANTS)?;
            let id = match tenants.remove(name)? {
                Some(row) => TenantId(row.value().0),
                None => return Err(MetadataError::NotFound),
            };
            tables::remove_tenant(transaction, id)?;
            extensions::remove_tenant(transaction, id)?;
            grants::remove_tenant(transaction, id)?;
            limits::remove_tenant(transaction, id)?;
            Ok(id)
        })
    }
}

fn from_row(name: &str, (id, salt, digest): Row) -> TenantRow {
    TenantRow { id: TenantId(id), name: name.to_owned(), secret: SecretHash { salt, digest } }
}
