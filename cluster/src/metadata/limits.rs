//! Records of limits: (tenant, name of the limit) to value. A limit without a record has its default.

use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::encoding::{of_any, of_tenant, parts, tenant_of};
use super::{Metadata, MetadataError, MetadataTransaction, tenants};
use crate::records::RecordsError;

pub(super) const LIMITS: &str = "catalog/limits/";

#[derive(Serialize, Deserialize)]
struct LimitValue {
    value: u64,
}

/// A limit that was set, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitRow {
    /// The tenant.
    pub tenant: TenantId,
    /// The limit's name; another version of the server may have known other limits.
    pub name: String,
    /// The value.
    pub value: u64,
}

impl LimitRow {
    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        transaction.put(&key_of(self.tenant, &self.name), &LimitValue { value: self.value })
    }
}

fn key_of(tenant: TenantId, name: &str) -> String {
    format!("{}{name}", of_tenant(LIMITS, tenant))
}

/// Returns the limits of a tenant, or of all.
pub(super) fn all(
    transaction: &mut MetadataTransaction<'_>,
    of: Option<TenantId>,
) -> Result<Vec<LimitRow>, RecordsError> {
    let mut rows = Vec::new();
    for (key, LimitValue { value }) in transaction.all(&of_any(LIMITS, of))? {
        let [tenant, name] = parts(&key, LIMITS)?;
        rows.push(LimitRow { tenant: tenant_of(tenant)?, name: name.to_owned(), value });
    }
    Ok(rows)
}

impl Metadata {
    /// Stores limits of a tenant by name, all of them or none; a value of `None` restores the default.
    ///
    /// # Errors
    /// `NotFound` when the tenant is gone, or that they cannot be stored.
    pub fn limits_change(
        &self,
        tenant: TenantId,
        changes: &[(&str, Option<u64>)],
    ) -> Result<(), MetadataError> {
        self.write(|transaction| {
            tenants::check(transaction, tenant)?;
            for (name, value) in changes {
                match *value {
                    Some(value) => LimitRow { tenant, name: (*name).to_owned(), value }.store(transaction)?,
                    None => transaction.delete(&key_of(tenant, name)),
                }
            }
            Ok(())
        })
    }

    /// Returns all limits that were set, of all tenants.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn limits(&self) -> Result<Vec<LimitRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction, None)?))
    }
}

#[cfg(test)]
mod tests {
    use super::LimitRow;
    use crate::metadata::Metadata;
    use crate::secret::SecretHash;

    #[test]
    fn limits_survive_a_restart_and_go_with_their_tenant() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("metadata.redb");
        let metadata = Metadata::open(&path).expect("a fresh file");
        let secret = SecretHash { salt: [1; 16], digest: [2; 32] };
        let ann = metadata.tenant_create("ann", secret).expect("room");
        let bob = metadata.tenant_create("bob", secret).expect("room");
        let (weight, memory) = ("weight", "memory_bytes");
        metadata.limits_change(ann, &[(weight, Some(300)), (memory, Some(5))]).expect("room");
        metadata.limits_change(bob, &[(weight, Some(7)), (memory, None)]).expect("room");
        metadata.limits_change(ann, &[(weight, Some(200)), (memory, None)]).expect("room");
        drop(metadata);

        let metadata = Metadata::open(&path).expect("the file");
        let row = |tenant, value| LimitRow { tenant, name: weight.to_owned(), value };
        assert_eq!(metadata.limits().expect("rows"), [row(ann, 200), row(bob, 7)]);
        metadata.tenant_drop("ann").expect("a tenant");
        assert_eq!(metadata.limits().expect("rows"), [row(bob, 7)]);
    }
}
