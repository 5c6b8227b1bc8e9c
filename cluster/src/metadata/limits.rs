//! Records of limits: (tenant, name of the limit) to value. A limit without a record has its default.

use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::row::{Row, below, tenant};
use super::{Metadata, MetadataError, tenants};

/// A limit that was set, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRow {
    /// The tenant.
    #[serde(skip)]
    pub tenant: TenantId,
    /// The limit's name; another version of the server may have known other limits.
    #[serde(skip)]
    pub name: String,
    /// The value.
    pub value: u64,
}

impl Row for LimitRow {
    const PREFIX: &'static str = "catalog/limits/";

    fn key(&self) -> String {
        key_of(self.tenant, &self.name)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[of, name] = parts else { return None };
        Some(Self { tenant: tenant(of)?, name: name.to_owned(), ..self })
    }
}

fn key_of(tenant: TenantId, name: &str) -> String {
    below(tenant) + name
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
                    Some(value) => {
                        transaction.store(&LimitRow { tenant, name: (*name).to_owned(), value })?
                    }
                    None => transaction.remove_row::<LimitRow>(&key_of(tenant, name)),
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
        self.read(|transaction| Ok(transaction.rows("")?))
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
