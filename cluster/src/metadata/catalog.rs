//! The catalog: everything that a server needs in order to serve all tenants or some, as of one commit; and a watch
//! that tells whose part has changed.
//!
//! Tenants, tables and extensions are removed here, together with every record of the catalog that depends on them.

use std::collections::BTreeSet;

use wire::{Subject, TenantId};

use super::encoding::of_tenant;
use super::{
    ExtensionRow, GrantRow, LimitRow, MemberRow, Metadata, MetadataError, MigrationRow, TableRow, TabletsRow,
    TenantRow, extensions, grants, limits, members, migrations, packages, tables, tablets, tenants,
};
use crate::records::{Event, Revision, Watch};

/// The prefix of all its keys.
const CATALOG: &str = "catalog/";

/// The collections whose keys name a tenant; they go with it.
const OF_TENANTS: [&str; 8] = [
    tables::TABLES,
    tablets::TABLETS,
    migrations::MIGRATIONS,
    extensions::EXTENSIONS,
    extensions::VERSIONS,
    packages::PACKAGES,
    grants::GRANTS,
    limits::LIMITS,
];

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
    [tenants::TENANTS, tablets::TABLETS, migrations::MIGRATIONS, members::MEMBERS]
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
            let mut catalog = Catalog { members: members::all(transaction)?, ..Catalog::default() };
            let Some(of) = of else {
                catalog.tenants = tenants::all(transaction)?;
                catalog.limits = limits::all(transaction, None)?;
                catalog.tables = tables::all(transaction, None)?;
                catalog.tablets = tablets::all(transaction, None)?;
                catalog.migrations = migrations::all(transaction, None)?;
                catalog.extensions = extensions::all(transaction, None)?;
                catalog.grants = grants::all(transaction)?;
                catalog.revision = transaction.revision();
                return Ok(catalog);
            };
            for &tenant in of {
                catalog.tenants.extend(tenants::numbered(transaction, tenant)?);
                catalog.limits.extend(limits::all(transaction, Some(tenant))?);
                catalog.tables.extend(tables::all(transaction, Some(tenant))?);
                catalog.tablets.extend(tablets::all(transaction, Some(tenant))?);
                catalog.migrations.extend(migrations::all(transaction, Some(tenant))?);
                catalog.extensions.extend(extensions::all(transaction, Some(tenant))?);
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

    /// Removes a tenant with its limits, tables, extensions and grants. Grants to it have no effect from then on, and
    /// are removed later.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn tenant_drop(&self, name: &str) -> Result<TenantId, MetadataError> {
        let id = self.write(|transaction| {
            let id = tenants::remove(transaction, name)?;
            OF_TENANTS.iter().for_each(|collection| transaction.clear(&of_tenant(collection, id)));
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
