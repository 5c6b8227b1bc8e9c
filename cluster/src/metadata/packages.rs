//! Source packages: bytes in pieces, one record each, under a random number that is used once.
//!
//! The record of an extension's version names its package, with length and hash. The number is never reused, so pieces
//! written before the commit that refers to them have no effect.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wire::TenantId;

use super::encoding::{hexadecimal, padded};
use super::{MetadataError, MetadataTransaction};
use crate::limits::PACKAGE_CHUNK_BYTES;
use crate::records::RecordsError;
use crate::secret::random_bytes;

/// The prefix of their keys.
pub(super) const PACKAGES: &str = "packages/";

/// The description of a package without its bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PackageEntry {
    id: String,
    bytes: usize,
    chunks: usize,
    sha256: String,
}

fn chunk_key(tenant: TenantId, id: &str, chunk: usize) -> String {
    let mut key = prefix_of(tenant, id);
    // Writing to a string does not fail.
    let _ = write!(key, "{chunk:04}");
    key
}

fn prefix_of(tenant: TenantId, id: &str) -> String {
    format!("{PACKAGES}{}/{id}/", padded(tenant.0))
}

/// Returns a new random package number.
pub(super) fn fresh_id() -> Result<String, RecordsError> {
    let bytes = random_bytes::<16>().map_err(|error| RecordsError::Storage(error.to_string()))?;
    Ok(hexadecimal(&bytes))
}

pub(super) fn store(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    id: &str,
    package: &[u8],
) -> PackageEntry {
    let mut chunks = 0;
    for chunk in package.chunks(PACKAGE_CHUNK_BYTES) {
        transaction.put_bytes(&chunk_key(tenant, id, chunks), chunk.to_vec());
        chunks += 1;
    }
    let sha256 = hexadecimal(&Sha256::digest(package));
    PackageEntry { id: id.to_owned(), bytes: package.len(), chunks, sha256 }
}

pub(super) fn load(
    transaction: &mut MetadataTransaction<'_>,
    tenant: TenantId,
    entry: &PackageEntry,
) -> Result<Vec<u8>, MetadataError> {
    let mut package = Vec::with_capacity(entry.bytes);
    for chunk in 0..entry.chunks {
        let key = chunk_key(tenant, &entry.id, chunk);
        package.extend(transaction.get_bytes(&key)?.unwrap_or_default());
    }
    if hexadecimal(&Sha256::digest(&package)) != entry.sha256 {
        let text = format!("package {} differs from the stored one", entry.id);
        return Err(RecordsError::Storage(text).into());
    }
    Ok(package)
}

pub(super) fn remove(transaction: &mut MetadataTransaction<'_>, tenant: TenantId, entry: &PackageEntry) {
    transaction.clear(&prefix_of(tenant, &entry.id));
}

pub(super) fn remove_tenant(transaction: &mut MetadataTransaction<'_>, tenant: TenantId) {
    transaction.clear(&format!("{PACKAGES}{}/", padded(tenant.0)));
}
