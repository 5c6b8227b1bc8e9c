//! Everything that a server serves by, of all tenants or of some, as of one commit; and the watch that says whose has
//! changed.

use std::collections::BTreeSet;

use super::{
    ExtensionRow, GrantRow, LimitRow, MemberRow, Metadata, MetadataError, MigrationRow, TableRow, TabletsRow,
    TenantRow, extensions, grants, limits, members, migrations, tables, tablets, tenants,
};
use crate::cluster::records::{Event, Revision, Watch};
use crate::tenant::TenantId;

/// What all its keys begin with.
const CATALOG: &str = "catalog/";

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// The commit.
    pub revision: Revision,
    /// Tenants: all, or those that were asked for and those to whom they granted something.
    pub tenants: Vec<TenantRow>,
    /// The limits that somebody has set.
    pub limits: Vec<LimitRow>,
    /// Tables.
    pub tables: Vec<TableRow>,
    /// Who owns what of them; those that nobody placed have none.
    pub tablets: Vec<TabletsRow>,
    /// What of it is on the move.
    pub migrations: Vec<MigrationRow>,
    /// The servers of the cluster, there or not.
    pub members: Vec<MemberRow>,
    /// Extensions.
    pub extensions: Vec<ExtensionRow>,
    /// Grants by these tenants.
    pub grants: Vec<GrantRow>,
}

/// Whether who changes a record follows the change as the others do: what it changes besides it has done when the commit
/// is made.
#[must_use]
pub fn is_followed_by_its_author(key: &str) -> bool {
    [tenants::TENANTS, tablets::TABLETS, migrations::MIGRATIONS, members::MEMBERS]
        .iter()
        .any(|prefix| key.starts_with(prefix))
}

/// Whose changes an event shows; nothing when it may be anybody's.
#[must_use]
pub fn tenants_of(event: &Event) -> Option<BTreeSet<TenantId>> {
    let mut whose = BTreeSet::new();
    for (key, _) in &event.changes {
        let mut parts = key.strip_prefix(CATALOG)?.split('/');
        match (parts.next()?, parts.next()?) {
            // Comes with the tenant's own record.
            ("names", _) => {}
            // Where the tablets of any table are found.
            ("members", _) => return None,
            (_, tenant) => drop(whose.insert(TenantId(tenant.parse().ok()?))),
        }
    }
    Some(whose)
}

impl Metadata {
    /// Everything of these tenants, or of all.
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

    /// The changes of it behind a commit.
    ///
    /// # Errors
    /// When the metadata cannot be watched.
    pub fn catalog_watch(&self, after: Revision) -> Result<Watch, MetadataError> {
        Ok(self.records().watch(CATALOG, after)?)
    }
}

#[cfg(test)]
mod tests {
    use super::tenants_of;
    use crate::cluster::records::{Event, Revision};
    use crate::tenant::TenantId;

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
