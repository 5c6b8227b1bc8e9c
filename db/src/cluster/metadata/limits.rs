//! Rows of limits: (tenant, name of the limit) to value. What has no row has its default.

use redb::{ReadableTable, TableDefinition, WriteTransaction};

use super::{Metadata, MetadataError};
use crate::tenant::TenantId;
use crate::tenant::limit::TenantLimit;

const LIMITS: TableDefinition<'_, (u32, &str), u64> = TableDefinition::new("limits");

/// A limit that somebody has set, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// Whose it is.
    pub tenant: TenantId,
    /// Its name: another version of the server may have known other limits.
    pub name: String,
    /// What holds.
    pub value: u64,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(LIMITS)?;
    Ok(())
}

pub(super) fn remove_tenant(transaction: &WriteTransaction, tenant: TenantId) -> Result<(), MetadataError> {
    let mut limits = transaction.open_table(LIMITS)?;
    limits.retain_in((tenant.0, "")..(tenant.0 + 1, ""), |_, _| false)?;
    Ok(())
}

impl Metadata {
    /// Stores limits of a tenant, all of them or none; nothing as a value is the default again.
    ///
    /// # Errors
    /// When they cannot be stored.
    pub fn limits_change(
        &self,
        tenant: TenantId,
        changes: &[(TenantLimit, Option<u64>)],
    ) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let mut limits = transaction.open_table(LIMITS)?;
            for (limit, value) in changes {
                let key = (tenant.0, limit.name());
                match value {
                    Some(value) => limits.insert(key, *value)?,
                    None => limits.remove(key)?,
                };
            }
            Ok(())
        })
    }

    /// All limits of all tenants that somebody has set.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn limits(&self) -> Result<Vec<LimitRow>, MetadataError> {
        self.read(|transaction| {
            let limits = transaction.open_table(LIMITS)?;
            let mut rows = Vec::new();
            for entry in limits.iter()? {
                let (key, value) = entry?;
                let (tenant, name) = key.value();
                let (tenant, name) = (TenantId(tenant), name.to_owned());
                rows.push(LimitRow { tenant, name, value: value.value() });
            }
            Ok(rows)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::LimitRow;
    use crate::cluster::metadata::Metadata;
    use crate::tenant::limit::TenantLimit;
    use crate::tenant::secret::SecretHash;

    #[test]
    fn limits_survive_a_restart_and_go_with_their_tenant() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("metadata.redb");
        let metadata = Metadata::open(&path).expect("a fresh file");
        let secret = SecretHash { salt: [1; 16], digest: [2; 32] };
        let ann = metadata.tenant_create("ann", secret).expect("room");
        let bob = metadata.tenant_create("bob", secret).expect("room");
        let (weight, memory) = (TenantLimit::Weight, TenantLimit::MemoryBytes);
        metadata.limits_change(ann, &[(weight, Some(300)), (memory, Some(5))]).expect("room");
        metadata.limits_change(bob, &[(weight, Some(7)), (memory, None)]).expect("room");
        metadata.limits_change(ann, &[(weight, Some(200)), (memory, None)]).expect("room");
        drop(metadata);

        let metadata = Metadata::open(&path).expect("the file");
        let row = |tenant, value| LimitRow { tenant, name: weight.name().to_owned(), value };
        assert_eq!(metadata.limits().expect("rows"), [row(ann, 200), row(bob, 7)]);
        metadata.tenant_drop("ann").expect("a tenant");
        assert_eq!(metadata.limits().expect("rows"), [row(bob, 7)]);
    }
}
