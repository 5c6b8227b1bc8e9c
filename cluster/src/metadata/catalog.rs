//! The catalog: everything that a server needs in order to serve all tenants or some, as of one commit; and a watch
//! that tells whose part has changed.
//!
//! Tenants, tables and extensions are removed here, together with every record of the catalog that depends on them; a
//! tenant with limits of its own is added here.

use std::collections::BTreeSet;

use control::Subject;
use wire::TenantId;

use super::encoding::padded;
use super::row::{Row, below};
use super::{
    ExtensionRow, GrantRow, LimitRow, MemberRow, Metadata, MetadataError, MigrationRow, TableRow, TabletsRow,
    TenantRow, extensions, grants, migrations, tables, tablets, tenants,
};
use crate::records::{Event, Revision, Watch};
use crate::secret::SecretHash;

/// The prefix of all its keys.
const CATALOG: &str = "catalog/";

/// The metadata that a server serves by, as of one commit.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The commit.
    pub revision: Revision,
    /// All tenants, or the requested ones and those that hold grants from them.
    pub tenants: Vec<TenantRow>,
    /// The limits that were set.
    pub limits: Vec<LimitRow>,
    /// Tables.
    pub tables: Vec<TableRow>,
    /// The owners of their tablets; tables that were not placed have none.
    pub tablets: Vec<TabletsRow>,
    /// Their migrations.
    pub migrations: Vec<MigrationRow>,
    /// The servers of the cluster, present or not.
    pub members: Vec<MemberRow>,
    /// Extensions.
    pub extensions: Vec<ExtensionRow>,
    /// Grants by these tenants.
    pub grants: Vec<GrantRow>,
}

/// Returns whether the author of a change to this record applies it through the watch, as other servers do. The author
/// has applied changes of other records when it commits.
#[must_use]
pub fn is_followed_by_its_author(key: &str) -> bool {
    [TenantRow::PREFIX, TabletsRow::PREFIX, MigrationRow::PREFIX, MemberRow::PREFIX]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// Returns the tenants that an event concerns; `None` if it may concern any.
#[must_use]
pub fn tenants_of(event: &Event) -> Option<BTreeSet<TenantId>> {
    let mut whose = BTreeSet::new();
    for (key, _) in &event.changes {
        let mut parts = key.strip_prefix(CATALOG)?.split('/');
        match (parts.next()?, parts.next()?) {
            // Comes with the tenant's own record.
            ("names", _) => {}
            // An address affects tablets of any table.
            ("members", _) => return None,
            (_, tenant) => drop(whose.insert(TenantId(tenant.parse().ok()?))),
        }
    }
    Some(whose)
}

impl Metadata {
    /// Returns the catalog of these tenants, or of all.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn catalog(&self, of: Option<&BTreeSet<TenantId>>) -> Result<Catalog, MetadataError> {
        self.read(|transaction| {
            let mut catalog = Catalog { members: transaction.rows("")?, ..Catalog::default() };
            let Some(of) = of else {
                catalog.tenants = transaction.rows("")?;
                catalog.limits = transaction.rows("")?;
                catalog.tables = transaction.rows("")?;
                catalog.tablets = transaction.rows("")?;
                catalog.migrations = transaction.rows("")?;
                catalog.extensions = transaction.rows("")?;
                catalog.grants = grants::all(transaction)?;
                catalog.revision = transaction.revision();
                return Ok(catalog);
            };
            for &tenant in of {
                let below = below(tenant);
                catalog.tenants.extend(transaction.row(&padded(tenant.0))?);
                catalog.limits.extend(transaction.rows(&below)?);
                catalog.tables.extend(transaction.rows(&below)?);
                catalog.tablets.extend(transaction.rows(&below)?);
                catalog.migrations.extend(transaction.rows(&below)?);
                catalog.extensions.extend(transaction.rows(&below)?);
                for (grant, to) in grants::of_owner(transaction, tenant)? {
                    catalog.grants.push(grant);
                    catalog.tenants.push(to);
                }
            }
            catalog.revision = transaction.revision();
            Ok(catalog)
        })
    }

    /// Watches the catalog's changes after a commit.
    ///
    /// # Errors
    /// When the metadata cannot be watched.
    pub fn catalog_watch(&self, after: Revision) -> Result<Watch, MetadataError> {
        Ok(self.records().watch(CATALOG, after)?)
    }

    /// Adds a tenant that has these limits, by name, from its beginning.
    ///
    /// # Errors
    /// As for [`Metadata::tenant_create`].
    pub fn tenant_create_with(
        &self,
        name: &str,
        secret: SecretHash,
        limits: &[(&str, u64)],
    ) -> Result<TenantId, MetadataError> {
        self.write(|transaction| {
            let tenant = tenants::add(transaction, name, secret)?;
            for (name, value) in limits {
                transaction.store(&LimitRow { tenant, name: (*name).to_owned(), value: *value })?;
            }
            Ok(tenant)
        })
    }

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

#[cfg(test)]
mod tests {
    use wire::TenantId;

    use super::tenants_of;
    use crate::records::{Event, Revision};

    #[test]
    fn an_event_tells_whose_it_is() {
        let whose = |keys: &[&str]| {
            let changes = keys.iter().map(|key| ((*key).to_owned(), None)).collect();
            let tenants = tenants_of(&Event { revision: Revision(1), changes })?;
            Some(tenants.into_iter().map(|TenantId(tenant)| tenant).collect::<Vec<_>>())
        };
        let created = ["catalog/names/ann", "catalog/tenants/0000000007"];
        assert_eq!(whose(&created), Some(vec![7]));
        let granted = ["catalog/grants/0000000002/table/t/0000000007", "catalog/tables/0000000003/t"];
        assert_eq!(whose(&granted), Some(vec![2, 3]));
        let moved =
            ["catalog/tablets/0000000004/0000000001", "catalog/migrations/0000000004/0000000001/0000000009"];
        assert_eq!(whose(&moved), Some(vec![4]));
        assert_eq!(whose(&["catalog/members/0000000001"]), None);
        assert_eq!(whose(&["catalog/strange"]), None);
        assert_eq!(whose(&["catalog/tables/ann/t"]), None);
    }
}
