//! The routing target of a request.

use super::Request;

impl Request<'_> {
    /// Returns the table's id, if the request has one.
    #[inline]
    #[must_use]
    pub const fn table(&self) -> Option<u32> {
        match self {
            Request::Ping => None,
            Request::Get { table, .. }
            | Request::GetNow { table, .. }
            | Request::Put { table, .. }
            | Request::PutFor { table, .. }
            | Request::Delete { table, .. }
            | Request::Increment { table, .. }
            | Request::IncrementFloat { table, .. }
            | Request::Enumerate { table, .. }
            | Request::Scan { table, .. }
            | Request::Verify { table, .. }
            | Request::Tablets { table }
            | Request::MultiGet { table, .. }
            | Request::Invoke { table, .. } => Some(*table),
        }
    }

    /// Returns the hash of the request's key, or of the position of its cursor, which may be forged. `hash` is the
    /// protocol's hash function. `None` for requests without a key, or with several.
    #[must_use]
    pub fn hash(&self, hash: impl Fn(&[u8]) -> u64) -> Option<u64> {
        match self {
            Request::Get { key, .. }
            | Request::GetNow { key, .. }
            | Request::Put { key, .. }
            | Request::PutFor { key, .. }
            | Request::Delete { key, .. }
            | Request::Increment { key, .. }
            | Request::IncrementFloat { key, .. }
            | Request::Invoke { key, .. } => Some(hash(key)),
            Request::Enumerate { cursor, .. } | Request::Verify { cursor, .. } => Some(next_hash(cursor)),
            Request::Ping | Request::Tablets { .. } | Request::MultiGet { .. } | Request::Scan { .. } => None,
        }
    }
}

/// Returns the hash at which an enumeration continues; see "Data requests" in docs/formats.md.
fn next_hash(cursor: &[u8]) -> u64 {
    let Some((done, rest)) = cursor.split_first_chunk() else { return 0 };
    let (done, is_all) = (u64::from_le_bytes(*done), rest.starts_with(&[u8::MAX; 8]));
    done.saturating_add(u64::from(is_all))
}
