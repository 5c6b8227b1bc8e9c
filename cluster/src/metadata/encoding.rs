//! The encoding of keys and values: paths of names and padded numbers, and JSON, so that an operator can read them.
//!
//! See "Metadata" in docs/formats.md. A missing field takes its default; a field unknown to this version is ignored in
//! reading and lost when the record is written again.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::TenantId;

use crate::records::RecordsError;

/// Encodes a 32-bit number of a key, with padding so that keys sort by number.
pub(super) fn padded(number: u32) -> String {
    format!("{number:010}")
}

/// Encodes a 64-bit number of a key.
pub(super) fn padded_long(number: u64) -> String {
    format!("{number:020}")
}

/// Returns the beginning of a tenant's keys in a collection.
pub(super) fn of_tenant(collection: &str, tenant: TenantId) -> String {
    format!("{collection}{}/", padded(tenant.0))
}

/// Returns the beginning of the keys in a collection, of a tenant or of all.
pub(super) fn of_any(collection: &str, of: Option<TenantId>) -> String {
    of.map_or_else(|| collection.to_owned(), |tenant| of_tenant(collection, tenant))
}

/// Decodes the number of a tenant.
pub(super) fn tenant_of(part: &str) -> Result<TenantId, RecordsError> {
    part.parse().map(TenantId).map_err(|_| damaged(part))
}

/// Returns the parts of a key after a prefix; their number must match.
pub(super) fn parts<'k, const PARTS: usize>(
    key: &'k str,
    prefix: &str,
) -> Result<[&'k str; PARTS], RecordsError> {
    let path = key.strip_prefix(prefix).ok_or_else(|| damaged(key))?;
    let parts: Vec<&str> = path.split('/').collect();
    parts.try_into().map_err(|_| damaged(key))
}

pub(super) fn encode(value: &impl Serialize) -> Result<Vec<u8>, RecordsError> {
    serde_json::to_vec(value).map_err(|error| RecordsError::Storage(error.to_string()))
}

pub(super) fn decode<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, RecordsError> {
    serde_json::from_slice(value).map_err(|error| RecordsError::Storage(format!("record {key}: {error}")))
}

pub(super) fn damaged(key: &str) -> RecordsError {
    RecordsError::Storage(format!("record {key} has a key that no server writes"))
}

/// Encodes bytes as hexadecimal digits.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Decodes hexadecimal digits; `None` if their number does not match.
pub(super) fn bytes_of<const BYTES: usize>(digits: &str) -> Option<[u8; BYTES]> {
    HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use wire::TenantId;

    use super::{bytes_of, hexadecimal, padded, parts, tenant_of};

    #[test]
    fn digits_give_the_bytes_back_and_nothing_else_does() {
        assert_eq!(bytes_of(&hexadecimal(&[0, 7, 255])), Some([0, 7, 255]));
        assert_eq!(bytes_of::<3>("0007f"), None);
        assert_eq!(bytes_of::<3>("0007fg"), None);
        assert_eq!(bytes_of::<3>("00\u{fc}7f"), None);
    }

    #[test]
    fn keys_are_taken_apart_and_strange_ones_refused() {
        let key = format!("tables/{}/graph", padded(7));
        let [tenant, name] = parts(&key, "tables/").expect("two parts");
        assert_eq!((tenant_of(tenant), name), (Ok(TenantId(7)), "graph"));
        assert!(parts::<3>(&key, "tables/").is_err());
        assert!(parts::<2>(&key, "grants/").is_err());
        assert!(tenant_of("seven").is_err());
    }
}
