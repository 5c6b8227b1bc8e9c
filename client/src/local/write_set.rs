//! The writes of an invocation, collected until it has succeeded.
//!
//! A later write of an object replaces an earlier one, so each object is written once.

use wire::CommitWrite;

/// Maximum number of objects that one invocation may write.
const WRITES_MAX: usize = 1024;

/// One write; without a value a deletion.
pub(super) struct PendingWrite {
    pub(super) table: u32,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
    /// Time to live from the moment of the write, in milliseconds.
    pub(super) ttl_ms: Option<u64>,
}

/// The writes of one invocation, in order of first mention.
#[derive(Default)]
pub(super) struct WriteSet {
    writes: Vec<PendingWrite>,
}

impl WriteSet {
    /// Returns the writes, as a commit takes them.
    pub(super) fn all(&self) -> Vec<CommitWrite<'_>> {
        self.writes
            .iter()
            .map(|PendingWrite { table, key, value, ttl_ms }| CommitWrite {
                table: *table,
                key,
                value: value.as_deref(),
                ttl_ms: *ttl_ms,
            })
            .collect()
    }

    /// Returns the latest write of an object.
    pub(super) fn find(&self, table: u32, key: &[u8]) -> Option<&PendingWrite> {
        self.writes.iter().find(|write| write.table == table && write.key == key)
    }

    /// Adds a write of a value with its time to live.
    pub(super) fn put(
        &mut self,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], Option<u64>)>,
    ) -> Result<(), sandstorm::Error> {
        let ttl_ms = value.and_then(|(_, ttl_ms)| ttl_ms);
        let value = value.map(|(value, _)| value.to_vec());
        if let Some(write) = self.writes.iter_mut().find(|write| write.table == table && write.key == key) {
            (write.value, write.ttl_ms) = (value, ttl_ms);
            return Ok(());
        }
        if self.writes.len() == WRITES_MAX {
            return Err(sandstorm::Error::LimitExceeded);
        }
        self.writes.push(PendingWrite { table, key: key.to_vec(), value, ttl_ms });
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        self.writes.clear();
    }
}
