//! Records of grants: (owner, kind of object, name, other tenant) to number, right and time.
//!
//! A grant has its own number from the counter of its kind: the other tenant knows the table or extension by it, so the
//! number ends with the grant. A grant is valid only while its object and both tenants exist. Remaining grants to a
//! removed tenant are invisible to everyone and are swept later.

use std::collections::BTreeSet;

use control::{Right, Subject};
use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::encoding::padded;
use super::row::{Row, below, tenant};
use super::{
    ExtensionRow, Metadata, MetadataError, MetadataTransaction, TableRow, TenantRow, next_u32, tenants,
};
use crate::limits::{GRANTS_PER_TENANT_MAX, GRANTS_SWEPT_AT_ONCE};
use crate::records::RecordsError;

const TABLE: &str = "table";
const EXTENSION: &str = "extension";

/// A grant as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRow {
    /// The number by which the other tenant knows the table or extension; never reused.
    pub id: u32,
    /// The tenant that owns the object.
    #[serde(skip)]
    pub owner: TenantId,
    /// The object's name.
    #[serde(skip)]
    pub name: String,
    /// The tenant that may use it.
    #[serde(skip)]
    pub to: TenantId,
    /// The granted right.
    #[serde(rename = "writable", default = "read", with = "writable")]
    pub right: Right,
    /// The time of the grant, in milliseconds since the Unix epoch.
    pub granted_ms: u64,
}

fn read() -> Right {
    Right::Read
}

/// The right on a table as a row has it; the key tells whether it is one on an extension.
mod writable {
    use control::Right;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(right: &Right, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*right == Right::Write)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Right, D::Error> {
        Ok(if bool::deserialize(deserializer)? { Right::Write } else { Right::Read })
    }
}

impl Row for GrantRow {
    const PREFIX: &'static str = "catalog/grants/";

    fn key(&self) -> String {
        key_of(self.owner, self.right.subject(), &self.name, self.to)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[owner, kind, name, to] = parts else { return None };
        let right = match kind {
            TABLE => self.right,
            EXTENSION => Right::Invoke,
            _ => return None,
        };
        Some(Self { owner: tenant(owner)?, name: name.to_owned(), to: tenant(to)?, right, ..self })
    }
}

fn key_of(owner: TenantId, subject: Subject, name: &str, to: TenantId) -> String {
    format!("{}{}", subject_prefix(owner, subject, name), padded(to.0))
}

fn subject_prefix(owner: TenantId, subject: Subject, name: &str) -> String {
    let kind = match subject {
        Subject::Table => TABLE,
        Subject::Extension => EXTENSION,
    };
    format!("{}{kind}/{name}/", below(owner))
}

/// Removes the grants of an object that is being removed.
pub(super) fn remove_subject(
    transaction: &mut MetadataTransaction<'_>,
    owner: TenantId,
    subject: Subject,
    name: &str,
) {
    transaction.remove_rows::<GrantRow>(&subject_prefix(owner, subject, name));
}

/// Returns the grants to existing tenants, and those to others.
fn parted(transaction: &mut MetadataTransaction<'_>) -> Result<(Vec<GrantRow>, Vec<GrantRow>), RecordsError> {
    let tenants = transaction.rows::<TenantRow>("")?;
    let there: BTreeSet<TenantId> = tenants.into_iter().map(|row| row.id).collect();
    let rows = transaction.rows::<GrantRow>("")?;
    Ok(rows.into_iter().partition(|row| there.contains(&row.to)))
}

/// Returns an owner's grants to existing tenants, with those tenants.
pub(super) fn of_owner(
    transaction: &mut MetadataTransaction<'_>,
    owner: TenantId,
) -> Result<Vec<(GrantRow, TenantRow)>, RecordsError> {
    let mut rows = Vec::new();
    for row in transaction.rows::<GrantRow>(&below(owner))? {
        if let Some(to) = transaction.row::<TenantRow>(&padded(row.to.0))? {
            rows.push((row, to));
        }
    }
    Ok(rows)
}

/// Returns the grants between existing tenants.
pub(super) fn all(transaction: &mut MetadataTransaction<'_>) -> Result<Vec<GrantRow>, RecordsError> {
    Ok(parted(transaction)?.0)
}

impl Metadata {
    /// Stores a grant under a new number; it replaces an earlier one of the same object to the same tenant.
    ///
    /// # Errors
    /// `NotFound` when the owner does not have the object or the other tenant is gone, `LimitExceeded`, or that it
    /// cannot be stored.
    pub fn grant_create(
        &self,
        owner: TenantId,
        name: &str,
        to: TenantId,
        right: Right,
        granted_ms: u64,
    ) -> Result<GrantRow, MetadataError> {
        self.write(|transaction| {
            let subject = right.subject();
            let (exists, counter) = match subject {
                Subject::Table => (transaction.has_row::<TableRow>(&TableRow::key_of(owner, name))?, "table"),
                Subject::Extension => {
                    (transaction.has_row::<ExtensionRow>(&ExtensionRow::key_of(owner, name))?, "extension")
                }
            };
            if !exists {
                return Err(MetadataError::NotFound);
            }
            tenants::check(transaction, to)?;
            let given = transaction.rows::<GrantRow>(&below(owner))?;
            let key = key_of(owner, subject, name, to);
            if given.len() >= GRANTS_PER_TENANT_MAX && given.iter().all(|before| before.key() != key) {
                return Err(MetadataError::LimitExceeded);
            }
            let id = next_u32(transaction, counter)?;
            let row = GrantRow { id, owner, name: name.to_owned(), to, right, granted_ms };
            transaction.store(&row)?;
            Ok(row)
        })
    }

    /// Removes a grant.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn grant_remove(
        &self,
        owner: TenantId,
        subject: Subject,
        name: &str,
        to: TenantId,
    ) -> Result<(), MetadataError> {
        self.write(|transaction| {
            let key = key_of(owner, subject, name, to);
            if !transaction.has_row::<GrantRow>(&key)? {
                return Err(MetadataError::NotFound);
            }
            transaction.remove_row::<GrantRow>(&key);
            Ok(())
        })
    }

    /// Returns all grants between existing tenants.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn grants(&self) -> Result<Vec<GrantRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction)?))
    }

    /// Removes the grants to removed tenants, some in each transaction.
    pub(super) fn grants_sweep(&self) -> Result<(), MetadataError> {
        loop {
            let left = self.write(|transaction| {
                let (_, dead) = parted(transaction)?;
                for row in dead.iter().take(GRANTS_SWEPT_AT_ONCE) {
                    transaction.remove_row::<GrantRow>(&row.key());
                }
                Ok(dead.len().saturating_sub(GRANTS_SWEPT_AT_ONCE))
            })?;
            if left == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use control::{Placement, Right, Subject};
    use redb::Builder;
    use redb::backends::InMemoryBackend;
    use wire::TenantId;

    use crate::metadata::{Metadata, MetadataError};
    use crate::secret::SecretHash;

    #[test]
    fn a_grant_goes_with_the_thing_or_with_a_tenant() {
        let metadata =
            Metadata::open_with(Box::new(|| Builder::new().create_with_backend(InMemoryBackend::new())))
                .expect("memory");
        let secret = SecretHash { salt: [1; 16], digest: [2; 32] };
        let tenants: Vec<TenantId> = ["ann", "bob", "eve"]
            .iter()
            .map(|name| metadata.tenant_create(name, secret).expect("room"))
            .collect();
        let [ann, bob, eve] = tenants[..] else { panic!("three") };
        let table = metadata.table_create(ann, "t", control::TableOptions::default()).expect("room");
        metadata.table_create(eve, "t", control::TableOptions::default()).expect("room");
        metadata.extension_install(ann, "t", Placement::Current, 5, b"").expect("room");
        let grant = |owner, to, right| metadata.grant_create(owner, "t", to, right, 5);
        let first = grant(ann, bob, Right::Read).expect("a table");
        assert!(first.id > table);
        let second = grant(ann, bob, Right::Write).expect("a table");
        assert!(second.id > first.id, "another right is another number");
        let invoke = grant(ann, bob, Right::Invoke).expect("an extension");
        let from_eve = grant(eve, bob, Right::Read).expect("a table");
        grant(ann, eve, Right::Read).expect("a table");
        assert_eq!(grant(bob, ann, Right::Read), Err(MetadataError::NotFound));
        assert_eq!(grant(eve, ann, Right::Invoke), Err(MetadataError::NotFound));
        assert_eq!(metadata.grants().expect("rows").len(), 4);
        metadata.grant_remove(ann, Subject::Table, "t", eve).expect("granted");
        let again = metadata.grant_remove(ann, Subject::Table, "t", eve);
        assert_eq!(again, Err(MetadataError::NotFound));
        metadata.table_drop(ann, "t").expect("a table");
        assert_eq!(metadata.grants().expect("rows"), [invoke, from_eve.clone()]);
        metadata.extension_remove(ann, "t").expect("an extension");
        assert_eq!(metadata.grants().expect("rows"), [from_eve]);
        metadata.tenant_drop("bob").expect("a tenant");
        assert_eq!(metadata.grants().expect("rows"), []);
    }
}
