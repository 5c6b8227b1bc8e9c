//! Records of tenants: number to name, salt and digest of the secret; name to number; and the count.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::encoding::padded;
use super::row::{Row, tenant};
use super::{Metadata, MetadataError, MetadataTransaction, next_u32};
use crate::limits::TENANTS_MAX;
use crate::records::RecordsError;
use crate::secret::SecretHash;

const NAMES: &str = "catalog/names/";
/// A counter, because there may be many.
const HELD: &str = "counts/tenants";

#[derive(Serialize, Deserialize)]
struct Named {
    id: u32,
}

#[derive(Default, Serialize, Deserialize)]
struct TenantCount {
    held: usize,
}

/// A tenant as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRow {
    /// The number of the tenant, never reused.
    #[serde(skip)]
    pub id: TenantId,
    /// The unique name.
    pub name: String,
    /// The stored form of its secret.
    #[serde(flatten)]
    pub secret: SecretHash,
}

impl Row for TenantRow {
    const PREFIX: &'static str = "catalog/tenants/";

    fn key(&self) -> String {
        padded(self.id.0)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[id] = parts else { return None };
        Some(Self { id: tenant(id)?, ..self })
    }
}

impl TenantRow {
    /// Writes the row and its name.
    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        transaction.store(self)?;
        transaction.put(&name_key(&self.name), &Named { id: self.id.0 })
    }
}

fn name_key(name: &str) -> String {
    format!("{NAMES}{name}")
}

pub(super) fn store_held(transaction: &mut MetadataTransaction<'_>, held: usize) -> Result<(), RecordsError> {
    transaction.put(HELD, &TenantCount { held })
}

/// Refuses a change for a tenant that does not exist: another server may have removed it.
pub(super) fn check(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
) -> Result<(), MetadataError> {
    if transaction.has_row::<TenantRow>(&padded(tenant.0))? { Ok(()) } else { Err(MetadataError::NotFound) }
}

fn find(transaction: &mut MetadataTransaction<'_>, name: &str) -> Result<Option<TenantRow>, RecordsError> {
    let Some(Named { id }) = transaction.get(&name_key(name))? else { return Ok(None) };
    transaction.row(&padded(id))
}

/// Adds a tenant's own records, and returns its number.
pub(super) fn add(
    transaction: &mut MetadataTransaction<'_>,
    name: &str,
    secret: SecretHash,
) -> Result<TenantId, MetadataError> {
    if transaction.has(&name_key(name))? {
        return Err(MetadataError::AlreadyExists);
    }
    let TenantCount { held } = transaction.get(HELD)?.unwrap_or_default();
    if held >= TENANTS_MAX {
        return Err(MetadataError::LimitExceeded);
    }
    let id = TenantId(next_u32(transaction, "tenant")?);
    store_held(transaction, held + 1)?;
    TenantRow { id, name: name.to_owned(), secret }.store(transaction)?;
    Ok(id)
}

/// Removes a tenant's own records, and returns its number.
pub(super) fn remove(
    transaction: &mut MetadataTransaction<'_>,
    name: &str,
) -> Result<TenantId, MetadataError> {
    let id = find(transaction, name)?.ok_or(MetadataError::NotFound)?.id;
    let TenantCount { held } = transaction.get(HELD)?.unwrap_or_default();
    store_held(transaction, held.saturating_sub(1))?;
    transaction.delete(&name_key(name));
    transaction.remove_row::<TenantRow>(&padded(id.0));
    Ok(id)
}

impl Metadata {
    /// Adds a tenant with the default limits.
    ///
    /// # Errors
    /// `AlreadyExists`, `LimitExceeded`, or that it cannot be stored.
    pub fn tenant_create(&self, name: &str, secret: SecretHash) -> Result<TenantId, MetadataError> {
        self.write(|transaction| add(transaction, name, secret))
    }

    /// Replaces a tenant's secret.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn tenant_rotate(&self, name: &str, secret: SecretHash) -> Result<TenantId, MetadataError> {
        self.write(|transaction| {
            let row = find(transaction, name)?.ok_or(MetadataError::NotFound)?;
            let id = row.id;
            TenantRow { secret, ..row }.store(transaction)?;
            Ok(id)
        })
    }

    /// Finds a tenant by its name.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn tenant_find(&self, name: &str) -> Result<Option<TenantRow>, MetadataError> {
        self.read(|transaction| Ok(find(transaction, name)?))
    }

    /// Finds a tenant by its name, for optional reads: waits for an answer no longer than `patience`.
    ///
    /// # Errors
    /// When the metadata cannot be read, or not in that time.
    pub fn tenant_find_within(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Option<TenantRow>, MetadataError> {
        Ok(find(&mut MetadataTransaction::new(self.records()).within(patience), name)?)
    }

    /// Returns all tenants, by name.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn tenants(&self) -> Result<Vec<TenantRow>, MetadataError> {
        let mut rows: Vec<TenantRow> = self.read(|transaction| Ok(transaction.rows("")?))?;
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(rows)
    }
}
