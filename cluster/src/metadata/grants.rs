//! Records of grants: (owner, kind of object, name, other tenant) to number, right and time.
//!
//! A grant has its own number from the counter of its kind: the other tenant knows the table or extension by it, so the
//! number ends with the grant. A grant is valid only while its object and both tenants exist. Remaining grants to a
//! removed tenant are invisible to everyone and are swept later.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use wire::{Right, Subject, TenantId};

use super::encoding::{damaged, of_tenant, padded, parts, tenant_of};
use super::{Metadata, MetadataError, MetadataTransaction, TenantRow, extensions, next_u32, tables, tenants};
use crate::limits::{GRANTS_PER_TENANT_MAX, GRANTS_SWEPT_AT_ONCE};
use crate::records::RecordsError;

pub(super) const GRANTS: &str = "catalog/grants/";
const TABLE: &str = "table";
const EXTENSION: &str = "extension";

#[derive(Serialize, Deserialize)]
struct GrantValue {
    id: u32,
    #[serde(default)]
    writable: bool,
    granted_ms: u64,
}

/// A grant as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// The number by which the other tenant knows the table or extension; never reused.
    pub id: u32,
    /// The tenant that owns the object.
    pub owner: TenantId,
    /// The object's name.
    pub name: String,
    /// The tenant that may use it.
    pub to: TenantId,
    /// The granted right.
    pub right: Right,
    /// The time of the grant, in milliseconds since the Unix epoch.
    pub granted_ms: u64,
}

impl GrantRow {
    fn of(key: &str, value: &GrantValue) -> Result<Self, RecordsError> {
        let [owner, kind, name, to] = parts(key, GRANTS)?;
        let right = match (kind, value.writable) {
            (EXTENSION, _) => Right::Invoke,
            (TABLE, true) => Right::Write,
            (TABLE, false) => Right::Read,
            _ => return Err(damaged(key)),
        };
        let (owner, to, name) = (tenant_of(owner)?, tenant_of(to)?, name.to_owned());
        Ok(Self { id: value.id, owner, name, to, right, granted_ms: value.granted_ms })
    }

    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        let Self { id, granted_ms, .. } = *self;
        let key = key_of(self.owner, self.right.subject(), &self.name, self.to);
        transaction.put(&key, &GrantValue { id, writable: self.right == Right::Write, granted_ms })
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
    format!("{}{kind}/{name}/", of_tenant(GRANTS, owner))
}

/// Removes the grants of an object that is being removed.
pub(super) fn remove_subject(
    transaction: &mut MetadataTransaction<'_>,
    owner: TenantId,
    subject: Subject,
    name: &str,
) {
    transaction.clear(&subject_prefix(owner, subject, name));
}

/// Removes the grants of a tenant that is being removed.
/// Grants with their keys: those to existing tenants, and those to others.
type Parted = (Vec<(String, GrantRow)>, Vec<(String, GrantRow)>);

fn parted(transaction: &mut MetadataTransaction<'_>) -> Result<Parted, RecordsError> {
    let there: BTreeSet<TenantId> = tenants::all(transaction)?.into_iter().map(|row| row.id).collect();
    let mut rows = Vec::new();
    for (key, value) in transaction.all(GRANTS)? {
        let row = GrantRow::of(&key, &value)?;
        rows.push((key, row));
    }
    Ok(rows.into_iter().partition(|(_, row)| there.contains(&row.to)))
}

/// Returns an owner's grants to existing tenants, with those tenants.
pub(super) fn of_owner(
    transaction: &mut MetadataTransaction<'_>,
    owner: TenantId,
) -> Result<Vec<(GrantRow, TenantRow)>, RecordsError> {
    let mut rows = Vec::new();
    for (key, value) in transaction.all(&of_tenant(GRANTS, owner))? {
        let row = GrantRow::of(&key, &value)?;
        if let Some(to) = tenants::numbered(transaction, row.to)? {
            rows.push((row, to));
        }
    }
    Ok(rows)
}

/// Returns the grants between existing tenants.
pub(super) fn all(transaction: &mut MetadataTransaction<'_>) -> Result<Vec<GrantRow>, RecordsError> {
    let (valid, _) = parted(transaction)?;
    Ok(valid.into_iter().map(|(_, row)| row).collect())
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
                Subject::Table => (tables::exists(transaction, owner, name)?, "table"),
                Subject::Extension => (extensions::exists(transaction, owner, name)?, "extension"),
            };
            if !exists {
                return Err(MetadataError::NotFound);
            }
            tenants::check(transaction, to)?;
            let given = transaction.all::<GrantValue>(&of_tenant(GRANTS, owner))?;
            let key = key_of(owner, subject, name, to);
            if given.len() >= GRANTS_PER_TENANT_MAX && given.iter().all(|(before, _)| *before != key) {
                return Err(MetadataError::LimitExceeded);
            }
            let id = next_u32(transaction, counter)?;
            let row = GrantRow { id, owner, name: name.to_owned(), to, right, granted_ms };
            row.store(transaction)?;
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
            if !transaction.has(&key)? {
                return Err(MetadataError::NotFound);
            }
            transaction.delete(&key);
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
                for (key, _) in dead.iter().take(GRANTS_SWEPT_AT_ONCE) {
                    transaction.delete(key);
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
    use redb::Builder;
    use redb::backends::InMemoryBackend;
    use wire::{Placement, Right, Subject, TenantId};

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
        let table = metadata.table_create(ann, "t", wire::TableOptions::default()).expect("room");
        metadata.table_create(eve, "t", wire::TableOptions::default()).expect("room");
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
