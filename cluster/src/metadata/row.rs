//! Rows of the metadata: each kind has a prefix, key parts behind it, and the JSON of its other fields.
//!
//! A missing field takes its default; a field unknown to this version is ignored in reading and lost when the row is
//! stored again. The fields of the key are not part of the JSON.

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

    /// Returns the key behind the prefix.
    fn key(&self) -> String;

    /// Sets the fields that the parts of the key hold; `None` if no server writes such a key.
    fn with_key(self, parts: &[&str]) -> Option<Self>;
}

/// Returns the start of the keys of a tenant.
pub(super) fn below(tenant: TenantId) -> String {
    format!("{}/", padded(tenant.0))
}

/// Decodes the number of a key.
pub(super) fn number(part: &str) -> Option<u32> {
    part.parse().ok()
}

/// Decodes the tenant of a key.
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
    /// Returns the row with this key behind the prefix.
    pub(super) fn row<R: Row>(&mut self, key: &str) -> Result<Option<R>, RecordsError> {
        let key = format!("{}{key}", R::PREFIX);
        self.get_bytes(&key)?.map(|value| row_of(&key, &value)).transpose()
    }

    /// Returns whether that row exists.
    pub(super) fn has_row<R: Row>(&mut self, key: &str) -> Result<bool, RecordsError> {
        self.has(&format!("{}{key}", R::PREFIX))
    }

    /// Returns the rows whose keys begin with this behind the prefix, in the order of their keys.
    pub(super) fn rows<R: Row>(&mut self, below: &str) -> Result<Vec<R>, RecordsError> {
        let found = self.all_bytes(&format!("{}{below}", R::PREFIX))?;
        found.iter().map(|(key, value)| row_of(key, value)).collect()
    }

    /// Writes a row.
    pub(super) fn store<R: Row>(&mut self, row: &R) -> Result<(), RecordsError> {
        self.put(&format!("{}{}", R::PREFIX, row.key()), row)
    }

    /// Deletes the row with this key, whether or not it exists.
    pub(super) fn remove_row<R: Row>(&mut self, key: &str) {
        self.delete(&format!("{}{key}", R::PREFIX));
    }

    /// Deletes all rows whose keys begin with this. None of them may be written afterwards.
    pub(super) fn remove_rows<R: Row>(&mut self, below: &str) {
        self.clear(&format!("{}{below}", R::PREFIX));
    }
}
