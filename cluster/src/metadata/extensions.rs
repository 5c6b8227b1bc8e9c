//! Records of extensions and of their versions.
//!
//! (tenant, name) has a number and a version state: which versions are kept, which one is current, which one a canary.
//! (tenant, name, version) has the time of the installation and the source package, which is the body of the request
//! that installed it. Compiled artefacts are not stored, because they can be built again.

use serde::{Deserialize, Serialize};
use wire::{Placement, TenantId};

use super::encoding::{of_any, of_tenant, padded, parts, tenant_of};
use super::packages::{self, PackageEntry};
use super::version_state::VersionState;
use super::{Metadata, MetadataError, MetadataTransaction, next_u32, tenants};
use crate::limits::EXTENSIONS_PER_TENANT_MAX;
use crate::records::RecordsError;

pub(super) const EXTENSIONS: &str = "catalog/extensions/";
pub(super) const VERSIONS: &str = "catalog/versions/";

#[derive(Serialize, Deserialize)]
struct Canary {
    version: u32,
    percent: u8,
}

#[derive(Serialize, Deserialize)]
struct ExtensionValue {
    id: u32,
    newest: u32,
    current: u32,
    canary: Option<Canary>,
    #[serde(default)]
    pinned: bool,
    kept: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct VersionValue {
    installed_ms: u64,
    package: PackageEntry,
}

/// An extension as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionRow {
    /// The number of (tenant, name), never reused; all versions of an extension share it.
    pub id: u32,
    /// The tenant that owns it.
    pub tenant: TenantId,
    /// The name, unique among the extensions of the tenant.
    pub name: String,
    /// The version installed last, kept or not; version numbers are never reused.
    pub newest: u32,
    /// The kept versions, and those that invocations get.
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

impl ExtensionRow {
    fn of(key: &str, value: ExtensionValue) -> Result<Self, RecordsError> {
        let [tenant, name] = parts(key, EXTENSIONS)?;
        let canary = value.canary.map(|canary| (canary.version, canary.percent));
        let ExtensionValue { id, newest, current, pinned, kept, .. } = value;
        let state = VersionState { current, canary, pinned, kept };
        Ok(Self { id, tenant: tenant_of(tenant)?, name: name.to_owned(), newest, state })
    }

    pub(super) fn store(&self, transaction: &mut MetadataTransaction<'_>) -> Result<(), RecordsError> {
        let VersionState { current, canary, pinned, kept } = self.state.clone();
        let canary = canary.map(|(version, percent)| Canary { version, percent });
        let value = ExtensionValue { id: self.id, newest: self.newest, current, canary, pinned, kept };
        transaction.put(&key_of(self.tenant, &self.name), &value)
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

fn key_of(tenant: TenantId, name: &str) -> String {
    format!("{}{name}", of_tenant(EXTENSIONS, tenant))
}

fn version_key(tenant: TenantId, name: &str, version: u32) -> String {
    format!("{VERSIONS}{}/{name}/{}", padded(tenant.0), padded(version))
}

pub(super) fn exists(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<bool, RecordsError> {
    transaction.has(&key_of(tenant, name))
}

fn find(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<Option<ExtensionRow>, RecordsError> {
    let key = key_of(tenant, name);
    transaction.get(&key)?.map(|value| ExtensionRow::of(&key, value)).transpose()
}

/// Returns the extensions of a tenant, or of all.
pub(super) fn all(
    transaction: &mut MetadataTransaction<'_>,
    of: Option<TenantId>,
) -> Result<Vec<ExtensionRow>, RecordsError> {
    transaction
        .all(&of_any(EXTENSIONS, of))?
        .into_iter()
        .map(|(key, value)| ExtensionRow::of(&key, value))
        .collect()
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
    transaction.delete(&key_of(tenant, name));
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
                    if all(transaction, Some(tenant))?.len() >= EXTENSIONS_PER_TENANT_MAX {
                        return Err(MetadataError::LimitExceeded);
                    }
                    let id = next_u32(transaction, "extension")?;
                    let state = VersionState::first(1, placement);
                    ExtensionRow { id, tenant, name: name.to_owned(), newest: 1, state }
                }
            };
            let stored = StoredVersion { version: row.newest, installed_ms, package: package.clone() };
            row.store_version(transaction, &stored, &packages::fresh_id()?)?;
            row.store(transaction)?;
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
            rule(&mut row.state).map_err(MetadataError::Standing)?;
            for gone in before.iter().filter(|version| !row.state.kept.contains(version)) {
                remove_version(transaction, &row, *gone)?;
            }
            row.store(transaction)?;
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
        self.read(|transaction| Ok(all(transaction, Some(tenant))?))
    }

    /// Returns all extensions of all tenants, by tenant and name.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    pub fn extensions(&self) -> Result<Vec<ExtensionRow>, MetadataError> {
        self.read(|transaction| Ok(all(transaction, None)?))
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
