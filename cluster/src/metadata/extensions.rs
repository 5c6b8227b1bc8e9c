//! Records of extensions and of their versions.
//!
//! (tenant, name) has a number and a version state: which versions are kept, which one is current, which one a canary.
//! (tenant, name, version) has the time of the installation and the source package, which is the body of the request
//! that installed it. Compiled artefacts are not stored, because they can be built again.

use control::Placement;
use serde::{Deserialize, Serialize};
use wire::TenantId;

use super::encoding::padded;
use super::packages::{self, PackageEntry};
use super::row::{Row, below, tenant};
use super::version_state::VersionState;
use super::{Metadata, MetadataError, MetadataTransaction, next_u32, tenants};
use crate::limits::EXTENSIONS_PER_TENANT_MAX;
use crate::records::RecordsError;

const VERSIONS: &str = "catalog/versions/";

#[derive(Serialize, Deserialize)]
struct VersionValue {
    installed_ms: u64,
    package: PackageEntry,
}

/// An extension as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionRow {
    /// The number of (tenant, name), never reused; all versions of an extension share it.
    pub id: u32,
    /// The tenant that owns it.
    #[serde(skip)]
    pub tenant: TenantId,
    /// The name, unique among the extensions of the tenant.
    #[serde(skip)]
    pub name: String,
    /// The version installed last, kept or not; version numbers are never reused.
    pub newest: u32,
    /// The kept versions, and those that invocations get.
    #[serde(flatten)]
    pub state: VersionState,
}

/// A version as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// The number of the version.
    pub version: u32,
    /// The time of installation, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// The source.
    pub package: Vec<u8>,
}

impl Row for ExtensionRow {
    const PREFIX: &'static str = "catalog/extensions/";

    fn key(&self) -> String {
        Self::key_of(self.tenant, &self.name)
    }

    fn with_key(self, parts: &[&str]) -> Option<Self> {
        let &[of, name] = parts else { return None };
        Some(Self { tenant: tenant(of)?, name: name.to_owned(), ..self })
    }
}

impl ExtensionRow {
    /// Returns the key of a tenant's extension.
    pub(super) fn key_of(tenant: TenantId, name: &str) -> String {
        below(tenant) + name
    }

    pub(super) fn store_version(
        &self,
        transaction: &mut MetadataTransaction<'_>,
        stored: &StoredVersion,
        package_id: &str,
    ) -> Result<(), RecordsError> {
        let package = packages::store(transaction, self.tenant, package_id, &stored.package);
        let value = VersionValue { installed_ms: stored.installed_ms, package };
        transaction.put(&version_key(self.tenant, &self.name, stored.version), &value)
    }
}

fn version_key(tenant: TenantId, name: &str, version: u32) -> String {
    format!("{VERSIONS}{}{name}/{}", below(tenant), padded(version))
}

pub(super) fn remove_tenant(transaction: &mut MetadataTransaction<'_>, tenant: TenantId) {
    transaction.remove_rows::<ExtensionRow>(&below(tenant));
    transaction.clear(&format!("{VERSIONS}{}", below(tenant)));
    packages::remove_tenant(transaction, tenant);
}

fn find(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<Option<ExtensionRow>, RecordsError> {
    transaction.row(&ExtensionRow::key_of(tenant, name))
}

fn remove_version(
    transaction: &mut MetadataTransaction<'_>,
    row: &ExtensionRow,
    version: u32,
) -> Result<(), RecordsError> {
    let key = version_key(row.tenant, &row.name, version);
    if let Some(VersionValue { package, .. }) = transaction.get(&key)? {
        packages::remove(transaction, row.tenant, &package);
    }
    transaction.delete(&key);
    Ok(())
}

/// Removes the records of an extension and its versions, and returns its number.
pub(super) fn remove(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<u32, MetadataError> {
    let row = find(transaction, tenant, name)?.ok_or(MetadataError::NotFound)?;
    for version in &row.state.kept {
        remove_version(transaction, &row, *version)?;
    }
    transaction.remove_row::<ExtensionRow>(&ExtensionRow::key_of(tenant, name));
    Ok(row.id)
}

impl Metadata {
    /// Stores a new version of `name`: the next one, or the first one under a new number. `package` is the body of the
    /// request. Returns the extension with its new state.
    ///
    /// # Errors
    /// `NotFound` when the tenant is gone, `LimitExceeded`, or that it cannot be stored.
    pub fn extension_install(
        &self,
        tenant: TenantId,
        name: &str,
        placement: Placement,
        installed_ms: u64,
        package: &[u8],
    ) -> Result<ExtensionRow, MetadataError> {
        let package = package.to_vec();
        self.write(|transaction| {
            tenants::check(transaction, tenant)?;
            let row = match find(transaction, tenant, name)? {
                Some(mut row) => {
                    row.newest = row.newest.checked_add(1).ok_or(MetadataError::LimitExceeded)?;
                    for gone in row.state.install(row.newest, placement) {
                        remove_version(transaction, &row, gone)?;
                    }
                    row
                }
                None => {
                    if transaction.rows::<ExtensionRow>(&below(tenant))?.len() >= EXTENSIONS_PER_TENANT_MAX {
                        return Err(MetadataError::LimitExceeded);
                    }
                    let id = next_u32(transaction, "extension")?;
                    let state = VersionState::first(1, placement);
                    ExtensionRow { id, tenant, name: name.to_owned(), newest: 1, state }
                }
            };
            let stored = StoredVersion { version: row.newest, installed_ms, package: package.clone() };
            row.store_version(transaction, &stored, &packages::fresh_id()?)?;
            transaction.store(&row)?;
            Ok(row)
        })
    }

    /// Changes an extension's version state by one of its rules and returns the result. Versions released by the rule
    /// are deleted.
    ///
    /// # Errors
    /// `NotFound`, what the rule refuses, or that it cannot be stored.
    pub fn extension_change(
        &self,
        tenant: TenantId,
        name: &str,
        rule: impl Fn(&mut VersionState) -> Result<(), super::VersionStateError>,
    ) -> Result<ExtensionRow, MetadataError> {
        self.write(|transaction| {
            let mut row = find(transaction, tenant, name)?.ok_or(MetadataError::NotFound)?;
            let before = row.state.kept.clone();
            rule(&mut row.state).map_err(MetadataError::VersionState)?;
            for gone in before.iter().filter(|version| !row.state.kept.contains(version)) {
                remove_version(transaction, &row, *gone)?;
            }
            transaction.store(&row)?;
            Ok(row)
        })
    }

    /// Returns an extension of a tenant.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn extension_find(
        &self,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<ExtensionRow>, MetadataError> {
        self.read(|transaction| Ok(find(transaction, tenant, name)?))
    }

    /// Returns the extensions of a tenant, by name.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn extensions_of(&self, tenant: TenantId) -> Result<Vec<ExtensionRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows(&below(tenant))?))
    }

    /// Returns all extensions of all tenants, by tenant and name.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn extensions(&self) -> Result<Vec<ExtensionRow>, MetadataError> {
        self.read(|transaction| Ok(transaction.rows("")?))
    }

    /// Returns a version with its package.
    ///
    /// # Errors
    /// `NotFound`, or that the metadata cannot be read.
    pub fn extension_version(
        &self,
        tenant: TenantId,
        name: &str,
        version: u32,
    ) -> Result<StoredVersion, MetadataError> {
        self.read(|transaction| {
            let found = transaction.get::<VersionValue>(&version_key(tenant, name, version))?;
            let VersionValue { installed_ms, package } = found.ok_or(MetadataError::NotFound)?;
            let package = packages::load(transaction, tenant, &package)?;
            Ok(StoredVersion { version, installed_ms, package })
        })
    }
}
