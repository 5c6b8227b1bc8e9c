//! Rows of extensions and of their versions.
//!
//! (tenant, name) has a number and a standing: which version is current, which one a canary. (tenant, name,
//! version) has the time of the installation and the source package, which is the body of the request that
//! installed it; compiled artefacts are not kept here, since they can be built again.

use std::ops::Range;

use redb::{ReadableTable, Table, TableDefinition, WriteTransaction};
use wire::{Placement, Subject};

use super::standing::Standing;
use super::{Metadata, MetadataError, grants, next_u32};
use crate::limits::EXTENSIONS_PER_TENANT_MAX;
use crate::tenant::TenantId;

/// Number, newest version ever, current version, canary or 0, its percentage, pinned.
type HeadRow = (u32, u32, u32, u32, u8, bool);
/// When it was installed, the package.
type VersionRow = (u64, &'static [u8]);
type Heads<'t> = Table<'t, (u32, &'static str), HeadRow>;

const HEADS: TableDefinition<'_, (u32, &str), HeadRow> = TableDefinition::new("extension_heads");
const VERSIONS: TableDefinition<'_, (u32, &str, u32), VersionRow> =
    TableDefinition::new("extension_versions");

/// Number, version, when it was installed, the package.
type FirstLayoutRow = (u32, u32, u64, &'static [u8]);
const FIRST_LAYOUT: TableDefinition<'_, (u32, &str), FirstLayoutRow> = TableDefinition::new("extensions");

/// An extension as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionRow {
    /// Number of (tenant, name), never reused; all versions of an extension share it.
    pub id: u32,
    /// Whose it is.
    pub tenant: TenantId,
    /// Unique name among the extensions of the tenant.
    pub name: String,
    /// The version that was installed last, kept or not: versions are not given again.
    pub newest: u32,
    /// Which versions are kept, and which of them invocations get.
    pub standing: Standing,
}

/// A version as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// Its number.
    pub version: u32,
    /// When it was installed, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// The source.
    pub package: Vec<u8>,
}

pub(super) fn create(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    transaction.open_table(HEADS)?;
    transaction.open_table(VERSIONS)?;
    Ok(())
}

/// Brings over what the first layout of the file had: one version of each extension. Its packages end before
/// the placement, which is two zero bytes for a version that becomes current.
pub(super) fn upgrade(transaction: &WriteTransaction) -> Result<(), MetadataError> {
    let first = transaction.open_table(FIRST_LAYOUT)?;
    let (mut heads, mut versions) = (transaction.open_table(HEADS)?, transaction.open_table(VERSIONS)?);
    for entry in first.iter()? {
        let (key, value) = entry?;
        let ((tenant, name), (id, version, installed_ms, package)) = (key.value(), value.value());
        heads.insert((tenant, name), (id, version, version, 0, 0, false))?;
        let package = [package, &[0, 0]].concat();
        versions.insert((tenant, name, version), (installed_ms, package.as_slice()))?;
    }
    drop(first);
    transaction.delete_table(FIRST_LAYOUT)?;
    Ok(())
}

pub(super) fn remove_tenant(transaction: &WriteTransaction, tenant: TenantId) -> Result<(), MetadataError> {
    let (mut heads, mut versions) = (transaction.open_table(HEADS)?, transaction.open_table(VERSIONS)?);
    heads.retain_in((tenant.0, "")..(tenant.0 + 1, ""), |_, _| false)?;
    versions.retain_in((tenant.0, "", 0)..(tenant.0 + 1, "", 0), |_, _| false)?;
    Ok(())
}

pub(super) fn exists(
    transaction: &WriteTransaction,
    tenant: TenantId,
    name: &str,
) -> Result<bool, MetadataError> {
    let heads = transaction.open_table(HEADS)?;
    Ok(heads.get((tenant.0, name))?.is_some())
}

impl Metadata {
    /// Stores a new version of `name`: the next one, or the first one under a fresh number. `package` is the
    /// body of the request. Gives the extension with its new standing.
    ///
    /// # Errors
    /// `LimitExceeded`, or that it cannot be stored.
    pub fn extension_install(
        &self,
        tenant: TenantId,
        name: &str,
        placement: Placement,
        installed_ms: u64,
        package: &[u8],
    ) -> Result<ExtensionRow, MetadataError> {
        self.write(|transaction| {
            let mut heads = transaction.open_table(HEADS)?;
            let mut versions = transaction.open_table(VERSIONS)?;
            let row = match find(&heads, &versions, tenant, name)? {
                Some(mut row) => {
                    row.newest = row.newest.checked_add(1).ok_or(MetadataError::LimitExceeded)?;
                    for gone in row.standing.install(row.newest, placement) {
                        versions.remove((tenant.0, name, gone))?;
                    }
                    row
                }
                None => {
                    let own = heads.range((tenant.0, "")..(tenant.0 + 1, ""))?;
                    if own.count() >= EXTENSIONS_PER_TENANT_MAX {
                        return Err(MetadataError::LimitExceeded);
                    }
                    let id = next_u32(transaction, "extension")?;
                    let standing = Standing::first(1, placement);
                    ExtensionRow { id, tenant, name: name.to_owned(), newest: 1, standing }
                }
            };
            versions.insert((tenant.0, name, row.newest), (installed_ms, package))?;
            store(&mut heads, &row)?;
            Ok(row)
        })
    }

    /// Changes the standing of an extension by one of its rules and gives the result. Versions that the rule
    /// lets go of are gone.
    ///
    /// # Errors
    /// `NotFound`, what the rule refuses, or that it cannot be stored.
    pub fn extension_change(
        &self,
        tenant: TenantId,
        name: &str,
        rule: impl FnOnce(&mut Standing) -> Result<(), super::StandingError>,
    ) -> Result<ExtensionRow, MetadataError> {
        self.write(|transaction| {
            let mut heads = transaction.open_table(HEADS)?;
            let mut versions = transaction.open_table(VERSIONS)?;
            let mut row = find(&heads, &versions, tenant, name)?.ok_or(MetadataError::NotFound)?;
            let before = row.standing.kept.clone();
            rule(&mut row.standing).map_err(MetadataError::Standing)?;
            for gone in before.iter().filter(|version| !row.standing.kept.contains(version)) {
                versions.remove((tenant.0, name, *gone))?;
            }
            store(&mut heads, &row)?;
            Ok(row)
        })
    }

    /// Removes an extension with all its versions and grants, and gives its number.
    ///
    /// # Errors
    /// `NotFound`, or that it cannot be stored.
    pub fn extension_remove(&self, tenant: TenantId, name: &str) -> Result<u32, MetadataError> {
        self.write(|transaction| {
            let mut heads = transaction.open_table(HEADS)?;
            let id = match heads.remove((tenant.0, name))? {
                Some(row) => row.value().0,
                None => return Err(MetadataError::NotFound),
            };
            let mut versions = transaction.open_table(VERSIONS)?;
            versions.retain_in((tenant.0, name, 0)..=(tenant.0, name, u32::MAX), |_, _| false)?;
            grants::remove_subject(transaction, tenant, Subject::Extension, name)?;
            Ok(id)
        })
    }

    /// An extension of a tenant.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn extension_find(
        &self,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<ExtensionRow>, MetadataError> {
        self.read(|transaction| {
            let (heads, versions) = (transaction.open_table(HEADS)?, transaction.open_table(VERSIONS)?);
            find(&heads, &versions, tenant, name)
        })
    }

    /// The extensions of a tenant, by name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn extensions_of(&self, tenant: TenantId) -> Result<Vec<ExtensionRow>, MetadataError> {
        self.extensions_in((tenant.0, "")..(tenant.0 + 1, ""))
    }

    /// All extensions of all tenants, by tenant and name.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn extensions(&self) -> Result<Vec<ExtensionRow>, MetadataError> {
        self.extensions_in((0, "")..(u32::MAX, ""))
    }

    fn extensions_in(&self, range: Range<(u32, &str)>) -> Result<Vec<ExtensionRow>, MetadataError> {
        self.read(|transaction| {
            let (heads, versions) = (transaction.open_table(HEADS)?, transaction.open_table(VERSIONS)?);
            let mut rows = Vec::new();
            for entry in heads.range(range)? {
                let (key, head) = entry?;
                let (tenant, name) = key.value();
                rows.push(row_of(&versions, TenantId(tenant), name, head.value())?);
            }
            Ok(rows)
        })
    }

    /// A version with its package.
    ///
    /// # Errors
    /// `NotFound`, or that the file cannot be read.
    pub fn extension_version(
        &self,
        tenant: TenantId,
        name: &str,
        version: u32,
    ) -> Result<StoredVersion, MetadataError> {
        self.read(|transaction| {
            let versions = transaction.open_table(VERSIONS)?;
            let row = versions.get((tenant.0, name, version))?.ok_or(MetadataError::NotFound)?;
            let (installed_ms, package) = row.value();
            Ok(StoredVersion { version, installed_ms, package: package.to_vec() })
        })
    }
}

fn find(
    heads: &impl ReadableTable<(u32, &'static str), HeadRow>,
    versions: &impl ReadableTable<(u32, &'static str, u32), VersionRow>,
    tenant: TenantId,
    name: &str,
) -> Result<Option<ExtensionRow>, MetadataError> {
    let head = heads.get((tenant.0, name))?.map(|head| head.value());
    head.map(|head| row_of(versions, tenant, name, head)).transpose()
}

fn row_of(
    versions: &impl ReadableTable<(u32, &'static str, u32), VersionRow>,
    tenant: TenantId,
    name: &str,
    (id, newest, current, canary, percent, pinned): HeadRow,
) -> Result<ExtensionRow, MetadataError> {
    let mut kept = Vec::new();
    for entry in versions.range((tenant.0, name, 0)..=(tenant.0, name, u32::MAX))? {
        kept.push(entry?.0.value().2);
    }
    let canary = (canary != 0).then_some((canary, percent));
    let standing = Standing { current, canary, pinned, kept };
    Ok(ExtensionRow { id, tenant, name: name.to_owned(), newest, standing })
}

fn store(heads: &mut Heads<'_>, row: &ExtensionRow) -> Result<(), MetadataError> {
    let (canary, percent) = row.standing.canary.unwrap_or_default();
    let value = (row.id, row.newest, row.standing.current, canary, percent, row.standing.pinned);
    heads.insert((row.tenant.0, row.name.as_str()), value)?;
    Ok(())
}
