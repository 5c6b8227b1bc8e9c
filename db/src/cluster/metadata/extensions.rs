//! Rows of extensions: (tenant, name) to number, version, time of installation and source package.
//!
//! The package is the body of the request that installed it; compiled artefacts are not kept here, since
//! they can be built again.

use redb::{ReadableTable, TableDefinition, WriteTransaction};

use super::{Metadata, MetadataError, next_u32};
use crate::limits::EXTENSIONS_PER_TENANT_MAX;
use crate::tenant::TenantId;

type Row = (u32, u32, u64, &'static [u8]);

const EXTENSIONS: TableDefinition<'_, (u32, &str), Row> = TableDefinition::new("extensions");

/// An extension as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionRow {
    /// Number of (tenant, name), never reused; all versions of an extension share it.
    pub id: u32,
    /// Whose it is.
    pub tenant: TenantId,
    /// Unique name among the extensions of the tenant.
    pub name: String,
    /// Counts the installations, from 1.
    pub version: u32,
    /// When it was installed, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// The source.
    pub package: Vec<u8>,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(EXTENSIONS)?;
    Ok(())
}

pub(super) fn remove_tenant(transaction: &WriteTransaction, tenant: TenantId) -> Result<(), MetadataError> {
    let mut extensions = transaction.open_table(EXTENSIONS)?;
    extensions.retain_in((tenant.0, "")..(tenant.0 + 1, ""), |_, _| false)?;
    Ok(())
}

impl Metadata {
    /// The number and version that the next installation of `name` has: those of the row with one version
    /// more, or a fresh number and version 1. A fresh number is taken whether or not the installation
    /// succeeds.
    ///
    /// # Errors
    /// `LimitExceeded`, or that it cannot be stored.
    pub fn extension_reserve(&self, tenant: TenantId, name: &str) -> Result<(u32, u32), MetadataError> {
        self.write(|transaction| {
            let extensions = transaction.open_table(EXTENSIONS)?;
            if let Some(row) = extensions.get((tenant.0, name))? {
                let (id, version, ..) = row.value();
                return Ok((id, version.checked_add(1).ok_or(MetadataError::LimitExceeded)?));
            }
            if extensions.range((tenant.0, "")..(tenant.0 + 1, ""))?.count() >= EXTENSIONS_PER_TENANT_MAX {
                return Err(MetadataError::LimitExceeded);
            }
            Ok((next_u32(transaction, "extension")?, 1))
        })
    }

    /// Stores an installation in place of an earlier one of the same name.
    ///
    /// # Errors
    /// That it cannot be stored.
    pub fn extension_store(&self, row: &ExtensionRow) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let mut extensions = transaction.open_table(EXTENSIONS)?;
            let value = (row.id, row.version, row.installed_ms, row.package.as_slice());
            extensions.insert((row.tenant.0, row.name.as_str()), value)?;
            Ok(())
        })
    }

    /// Removes an extension and gives its number.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn extension_remove(&self, tenant: TenantId, name: &str) -> Result<u32, MetadataError> {
        self.write(|transaction| {
            let mut extensions = transaction.open_table(EXTENSIONS)?;
            let removed = extensions.remove((tenant.0, name))?;
            removed.map(|row| row.value().0).ok_or(MetadataError::NotFound)
        })
    }

    /// All extensions of all tenants, with their packages.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn extensions(&self) -> Result<Vec<ExtensionRow>, MetadataError> {
        self.read(|transaction| {
            let extensions = transaction.open_table(EXTENSIONS)?;
            let mut rows = Vec::new();
            for entry in extensions.iter()? {
                let (key, value) = entry?;
                let ((tenant, name), (id, version, installed_ms, package)) = (key.value(), value.value());
                rows.push(ExtensionRow {
                    id,
                    tenant: TenantId(tenant),
                    name: name.to_owned(),
                    version,
                    installed_ms,
                    package: package.to_vec(),
                });
            }
            Ok(rows)
        })
    }
}
