//! The writes of a transaction, or of a function that runs at the client, until they are committed.
//!
//! A later write of an object replaces an earlier one, so each object is written once.

use wire::CommitWrite;

use crate::keyed::{Keyed, Place};

/// A pending write.
pub(crate) struct PendingWrite {
    /// `None` removes the object.
    pub(crate) value: Option<Vec<u8>>,
    /// Time to live from the commit on, in milliseconds.
    pub(crate) ttl_ms: Option<u64>,
}

/// One write of each object, in the order of tables and keys.
#[derive(Default)]
pub(crate) struct WriteSet {
    writes: Keyed<PendingWrite>,
}

impl WriteSet {
    /// Returns the latest write of an object.
    pub(crate) fn get(&self, table: u32, key: &[u8]) -> Option<&PendingWrite> {
        self.writes.get(table, key)
    }

    /// Adds a write; `None` removes the object.
    pub(crate) fn put(&mut self, table: u32, key: &[u8], value: Option<&[u8]>, ttl_ms: Option<u64>) {
        self.writes.set(table, key, PendingWrite { value: value.map(<[u8]>::to_vec), ttl_ms });
    }

    /// Returns the bytes of all keys and values. Cost: one step for each.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |write: &PendingWrite| write.value.as_ref().map_or(0, Vec::len);
        self.writes.iter().map(|((_, key), write)| key.len() + bytes(write)).sum()
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns the written objects, in order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Place<'_>> {
        self.writes.keys()
    }

    /// Returns the writes, as a commit takes them.
    pub(crate) fn all(&self) -> Vec<CommitWrite<'_>> {
        let writes = self.writes.iter().map(|((table, key), PendingWrite { value, ttl_ms })| CommitWrite {
            table,
            key,
            value: value.as_deref(),
            ttl_ms: *ttl_ms,
        });
        writes.collect()
    }

    pub(crate) fn clear(&mut self) {
        self.writes.clear();
    }
}
