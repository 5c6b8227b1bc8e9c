//! Rows of grants: (owner, kind of thing, name, other tenant) to number, right and time.
//!
//! A grant has a number of its own from the counter of its kind: the other tenant knows table or extension by
//! it, so the number dies with the grant. A row stands only as long as the thing and both tenants do.

use redb::{ReadableTable, TableDefinition, WriteTransaction};
use wire::{Right, Subject};

use super::{Metadata, MetadataError, extensions, next_u32, tables};
use crate::limits::GRANTS_PER_TENANT_MAX;
use crate::tenant::TenantId;

/// Owner, kind of thing, name, other tenant.
type Key = (u32, u8, &'static str, u32);
/// Number, whether it may be written, when it was granted.
type Row = (u32, bool, u64);

const GRANTS: TableDefinition<'_, Key, Row> = TableDefinition::new("grants");

/// A grant as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRow {
    /// By which the other tenant knows the table or the extension; never reused.
    pub id: u32,
    /// Whose it is.
    pub owner: TenantId,
    /// Its name.
    pub name: String,
    /// Who may use it.
    pub to: TenantId,
    /// For what.
    pub right: Right,
    /// Since when, in milliseconds since the Unix epoch.
    pub granted_ms: u64,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(GRANTS)?;
    Ok(())
}

/// Removes the grants of a thing that goes.
pub(super) fn remove_subject(
    transaction: &WriteTransaction,
    owner: TenantId,
    subject: Subject,
    name: &str,
) -> Result<(), MetadataError> {
    let mut grants = transaction.open_table(GRANTS)?;
    let kind = kind_of(subject);
    grants.retain_in((owner.0, kind, name, 0)..=(owner.0, kind, name, u32::MAX), |_, _| false)?;
    Ok(())
}

/// Removes the grants of a tenant that goes, and those to it.
pub(super) fn remove_tenant(transaction: &WriteTransaction, tenant: TenantId) -> Result<(), MetadataError> {
    let mut grants = transaction.open_table(GRANTS)?;
    grants.retain(|(owner, _, _, to), _| owner != tenant.0 && to != tenant.0)?;
    Ok(())
}

impl Metadata {
    /// Stores a grant in place of an earlier one of the same thing to the same tenant, under a fresh number.
    ///
    /// # Errors
    /// `NotFound` when the owner has no such thing, `LimitExceeded`, or that it cannot be stored.
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
            let mut grants = transaction.open_table(GRANTS)?;
            let key = (owner.0, kind_of(subject), name, to.0);
            let given = grants.range((owner.0, 0, "", 0)..(owner.0 + 1, 0, "", 0))?.count();
            if given >= GRANTS_PER_TENANT_MAX && grants.get(key)?.is_none() {
                return Err(MetadataError::LimitExceeded);
            }
            let id = next_u32(transaction, counter)?;
            grants.insert(key, (id, right == Right::Write, granted_ms))?;
            Ok(GrantRow { id, owner, name: name.to_owned(), to, right, granted_ms })
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
            let mut grants = transaction.open_table(GRANTS)?;
            let removed = grants.remove((owner.0, kind_of(subject), name, to.0))?;
            removed.map(|_| ()).ok_or(MetadataError::NotFound)
        })
    }

    /// All grants.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn grants(&self) -> Result<Vec<GrantRow>, MetadataError> {
        self.read(|transaction| {
            let grants = transaction.open_table(GRANTS)?;
            let mut rows = Vec::new();
            for entry in grants.iter()? {
                let (key, row) = entry?;
                let ((owner, kind, name, to), (id, writable, granted_ms)) = (key.value(), row.value());
                let right = match (kind, writable) {
                    (EXTENSION, _) => Right::Invoke,
                    (_, true) => Right::Write,
                    (_, false) => Right::Read,
                };
                let (owner, to, name) = (TenantId(owner), TenantId(to), name.to_owned());
                rows.push(GrantRow { id, owner, name, to, right, granted_ms });
            }
            Ok(rows)
        })
    }
}

const EXTENSION: u8 = 1;

const fn kind_of(subject: Subject) -> u8 {
    match subject {
        Subject::Table => 0,
        Subject::Extension => EXTENSION,
    }
}

#[cfg(test)]
mod tests {
    use redb::Builder;
    use redb::backends::InMemoryBackend;
    use wire::{Placement, Right, Subject};

    use crate::cluster::metadata::{Metadata, MetadataError};
    use crate::tenant::TenantId;
    use crate::tenant::secret::SecretHash;

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
        let table = metadata.table_create(ann, "t", false).expect("room");
        metadata.table_create(eve, "t", false).expect("room");
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
