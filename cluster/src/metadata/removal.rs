//! Removal of tenants, tables and extensions, together with every record that depends on them.

use control::Subject;
use wire::TenantId;

use super::row::below;
use super::{
    GrantRow, LimitRow, Metadata, MetadataError, MigrationRow, TableRow, TabletsRow, extensions, grants,
    migrations, tables, tablets, tenants,
};

impl Metadata {
    /// Removes a tenant with its limits, tables, extensions and grants. Grants to it have no effect from then on, and
    /// are removed later.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn tenant_drop(&self, name: &str) -> Result<TenantId, MetadataError> {
        let id = self.write(|transaction| {
            let id = tenants::remove(transaction, name)?;
            let below = below(id);
            transaction.remove_rows::<TableRow>(&below);
            transaction.remove_rows::<TabletsRow>(&below);
            transaction.remove_rows::<MigrationRow>(&below);
            extensions::remove_tenant(transaction, id);
            transaction.remove_rows::<GrantRow>(&below);
            transaction.remove_rows::<LimitRow>(&below);
            Ok(id)
        })?;
        if let Err(error) = self.grants_sweep() {
            tracing::warn!(%error, "grants to removed tenants are still stored; they have no effect");
        }
        Ok(id)
    }

    /// Removes a table with its grants, tablets and migrations, and returns its number.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn table_drop(&self, tenant: TenantId, name: &str) -> Result<u32, MetadataError> {
        self.write(|transaction| {
            let id = tables::remove(transaction, tenant, name)?;
            grants::remove_subject(transaction, tenant, Subject::Table, name);
            tablets::remove_table(transaction, tenant, id);
            migrations::remove_table(transaction, tenant, id);
            Ok(id)
        })
    }

    /// Removes an extension with all its versions and grants, and returns its number.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn extension_remove(&self, tenant: TenantId, name: &str) -> Result<u32, MetadataError> {
        self.write(|transaction| {
            let id = extensions::remove(transaction, tenant, name)?;
            grants::remove_subject(transaction, tenant, Subject::Extension, name);
            Ok(id)
        })
    }
}
