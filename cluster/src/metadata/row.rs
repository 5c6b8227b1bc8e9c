//! Rows of the metadata: records of one type per kind.
//!
//! The key of a row is the prefix of its kind, then some of its fields as parts separated by `/`. The value is the JSON
//! of the other fields. A missing field takes its default; a field unknown to this version is ignored when the row is
//! read, and lost when it is stored again.

use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::TenantId;

use super::MetadataTransaction;
use super::encoding::{damaged, decode, padded};
use crate::records::RecordsError;

/// A kind of row.
pub(super) trait Row: Serialize + DeserializeOwned {
    /// The prefix of its keys, with a slash at the end.
    const PREFIX: &'static str;

    /// Returns the key without the prefix.
    fn key(&self) -> String;

    /// Sets the fields in the parts of the key; `None` for an invalid key.
    fn with_key(self, parts: &[&str]) -> Option<Self>;
}

/// Returns the part that begins a tenant's keys, with its slash.
pub(super) fn below(tenant: TenantId) -> String {
    format!("{}/", padded(tenant.0))
}

/// Decodes a part of a key that is a number.
pub(super) fn number(part: &str) -> Option<u32> {
    part.parse().ok()
}

/// Decodes a part of a key that names a tenant.
pub(super) fn tenant(part: &str) -> Option<TenantId> {
    number(part).map(TenantId)
}

/// Decodes a row from its record.
pub(super) fn row_of<R: Row>(key: &str, value: &[u8]) -> Result<R, RecordsError> {
    let row: R = decode(key, value)?;
    let parts: Vec<&str> = key.strip_prefix(R::PREFIX).ok_or_else(|| damaged(key))?.split('/').collect();
    row.with_key(&parts).ok_or_else(|| damaged(key))
}

impl MetadataTransaction<'_> {
    /// Returns the row with this key, given without the prefix.
    pub(super) fn row<R: Row>(&mut self, key: &str) -> Result<Option<R>, RecordsError> {
        let key = format!("{}{key}", R::PREFIX);
        self.get_bytes(&key)?.map(|value| row_of(&key, &value)).transpose()
    }

    /// Returns whether the row with this key exists.
    pub(super) fn has_row<R: Row>(&mut self, key: &str) -> Result<bool, RecordsError> {
        self.has(&format!("{}{key}", R::PREFIX))
    }

    /// Returns the rows whose keys begin with `below`, in key order.
    pub(super) fn rows<R: Row>(&mut self, below: &str) -> Result<Vec<R>, RecordsError> {
        let found = self.all_bytes(&format!("{}{below}", R::PREFIX))?;
        found.iter().map(|(key, value)| row_of(key, value)).collect()
    }

    /// Writes a row.
    pub(super) fn store<R: Row>(&mut self, row: &R) -> Result<(), RecordsError> {
        self.put(&format!("{}{}", R::PREFIX, row.key()), row)
    }

    /// Deletes the row with this key if it exists.
    pub(super) fn remove_row<R: Row>(&mut self, key: &str) {
        self.delete(&format!("{}{key}", R::PREFIX));
    }

    /// Deletes all rows whose keys begin with `below`. The transaction may write none of them afterwards.
    pub(super) fn remove_rows<R: Row>(&mut self, below: &str) {
        self.clear(&format!("{}{below}", R::PREFIX));
    }
}
