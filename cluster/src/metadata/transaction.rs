//! A change of the metadata in progress: it reads at one commit, buffers its writes, and records what must not change
//! until its own commit.
//!
//! It commits only if everything it read is unchanged: an existing record is the same, an absent one is still
//! absent, and a span has the same records. A span whose records can be deleted has a mark,
//! `deleted/COLLECTION`, which every deletion in it writes: the storage compares existing records and could not detect
//! a missing one.
//!
//! A server's threads make their changes one after another, so that they do not conflict, and each waits for its turn
//! for a bounded time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::encoding::{decode, encode};
use crate::records::{
    Committed, Condition, KeySpan, Query, Record, RecordChange, Records, RecordsError, Revision,
};

/// The number of leading key parts that form a collection, which has one mark for all its deletions.
const COLLECTION_PARTS: usize = 2;

/// A transaction over the metadata.
pub(super) struct MetadataTransaction<'r> {
    /// The storage to read from and commit to; `None` if nothing exists yet.
    records: Option<&'r dyn Records>,
    at: Option<Revision>,
    /// The time limit of a read, if shorter than the storage's own.
    patience: Option<Duration>,
    read: BTreeMap<String, Option<Record>>,
    spans: BTreeSet<KeySpan>,
    written: BTreeMap<String, Option<Vec<u8>>>,
    cleared: BTreeSet<String>,
}

impl<'r> MetadataTransaction<'r> {
    pub(super) fn new(records: &'r dyn Records) -> Self {
        Self { records: Some(records), ..Self::over_nothing() }
    }

    /// Limits each read to this time.
    pub(super) fn within(self, patience: Duration) -> Self {
        Self { patience: Some(patience), ..self }
    }

    /// Creates a transaction over an empty storage.
    pub(super) fn over_nothing() -> Self {
        Self {
            records: None,
            at: None,
            patience: None,
            read: BTreeMap::new(),
            spans: BTreeSet::new(),
            written: BTreeMap::new(),
            cleared: BTreeSet::new(),
        }
    }

    /// Returns the commit as of which it reads.
    pub(super) fn revision(&self) -> Revision {
        self.at.unwrap_or_default()
    }

    /// Returns the value of a record.
    pub(super) fn get<T: DeserializeOwned>(&mut self, key: &str) -> Result<Option<T>, RecordsError> {
        self.get_bytes(key)?.map(|value| decode(key, &value)).transpose()
    }

    /// Returns whether a record exists.
    pub(super) fn has(&mut self, key: &str) -> Result<bool, RecordsError> {
        Ok(self.get_bytes(key)?.is_some())
    }

    /// Returns the bytes of a record.
    pub(super) fn get_bytes(&mut self, key: &str) -> Result<Option<Vec<u8>>, RecordsError> {
        if let Some(written) = self.written.get(key) {
            return Ok(written.clone());
        }
        if self.cleared.iter().any(|prefix| key.starts_with(prefix)) {
            return Ok(None);
        }
        if !self.read.contains_key(key) {
            let found = self.look(Query::all(KeySpan::one(key)))?.pop();
            self.read.insert(key.to_owned(), found);
        }
        Ok(self.read[key].as_ref().map(|record| record.value.clone()))
    }

    /// Returns the bytes of all records with this prefix, in the order of their keys.
    pub(super) fn all_bytes(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, RecordsError> {
        let span = KeySpan::prefix(prefix);
        let found = self.look(Query::all(span.clone()))?;
        self.spans.insert(span.clone());
        let mut rows: BTreeMap<String, Vec<u8>> = found
            .into_iter()
            .filter(|record| !self.cleared.iter().any(|cleared| record.key.starts_with(cleared)))
            .map(|record| (record.key, record.value))
            .collect();
        for (key, written) in self.written.range(span.from..span.to) {
            match written {
                Some(value) => rows.insert(key.clone(), value.clone()),
                None => rows.remove(key),
            };
        }
        Ok(rows.into_iter().collect())
    }

    /// Returns the first key of a span as it was before this transaction.
    pub(super) fn first_before(&mut self, span: KeySpan) -> Result<Option<String>, RecordsError> {
        let found = self.look(Query { span: span.clone(), limit: 1, from_last: false })?.pop();
        let to = found.as_ref().map_or(span.to, |record| format!("{}\0", record.key));
        self.spans.insert(KeySpan { from: span.from, to });
        Ok(found.map(|record| record.key))
    }

    /// Returns some records as they were before this transaction. Concurrent changes of them cause no conflict.
    pub(super) fn glance(&mut self, queries: &[Query]) -> Result<Vec<Vec<Record>>, RecordsError> {
        let Some(records) = self.records else { return Ok(vec![Vec::new(); queries.len()]) };
        let reading = match self.patience {
            Some(patience) => records.read_within(queries, self.at, patience)?,
            None => records.read(queries, self.at)?,
        };
        self.at = Some(reading.revision);
        Ok(reading.found)
    }

    /// Writes a record.
    pub(super) fn put(&mut self, key: &str, value: &impl Serialize) -> Result<(), RecordsError> {
        self.put_bytes(key, encode(value)?);
        Ok(())
    }

    /// Writes a record that is not JSON.
    pub(super) fn put_bytes(&mut self, key: &str, value: Vec<u8>) {
        debug_assert!(!self.cleared.iter().any(|prefix| key.starts_with(prefix)), "{key} was cleared");
        self.written.insert(key.to_owned(), Some(value));
    }

    /// Deletes a record, whether or not it exists.
    pub(super) fn delete(&mut self, key: &str) {
        self.written.insert(key.to_owned(), None);
    }

    /// Deletes all records with this prefix. None of them may be written afterwards.
    pub(super) fn clear(&mut self, prefix: &str) {
        self.written.retain(|key, _| !key.starts_with(prefix));
        self.cleared.insert(prefix.to_owned());
    }

    /// Commits, if anything was written.
    pub(super) fn commit(self) -> Result<Committed, RecordsError> {
        let at = self.at.unwrap_or_default();
        if self.written.is_empty() && self.cleared.is_empty() {
            return Ok(Committed::At(at));
        }
        let mut conditions: Vec<Condition> = Vec::new();
        for (key, record) in self.read {
            conditions.push(match record {
                Some(record) => Condition::Is(key, record.revision),
                None => Condition::Absent(key),
            });
        }
        let marks: BTreeSet<String> = self.spans.iter().map(|span| mark_of(&span.from)).collect();
        conditions.extend(self.spans.into_iter().map(|span| Condition::NoneNewer(span, at)));
        conditions.extend(marks.iter().map(|mark| Condition::NoneNewer(KeySpan::one(mark), at)));
        let deleted = self.written.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key);
        let marks: BTreeSet<String> = deleted.chain(&self.cleared).map(|key| mark_of(key)).collect();
        let mut changes: Vec<RecordChange> = marks.iter().map(|mark| RecordChange::put(mark, "{}")).collect();
        changes.extend(self.cleared.into_iter().map(RecordChange::DeletePrefix));
        changes.extend(self.written.into_iter().map(|(key, value)| match value {
            Some(value) => RecordChange::put(key, value),
            None => RecordChange::Delete(key),
        }));
        self.records.map_or(Ok(Committed::Conflict), |records| records.commit(&conditions, &changes))
    }

    /// Returns the records that were written.
    pub(super) fn into_written(self) -> Vec<(String, Vec<u8>)> {
        self.written.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }

    fn look(&mut self, query: Query) -> Result<Vec<Record>, RecordsError> {
        Ok(self.glance(&[query])?.pop().unwrap_or_default())
    }
}

/// Returns the deletion mark of a key's collection.
fn mark_of(key: &str) -> String {
    let collection: Vec<&str> = key.split('/').take(COLLECTION_PARTS).collect();
    format!("deleted/{}", collection.join("/"))
}

/// The turn of a server's threads to change the metadata.
#[derive(Debug, Default)]
pub(super) struct WriteTurn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A thread's turn, which ends on drop.
pub(super) struct Mine<'t>(&'t WriteTurn);

impl WriteTurn {
    /// Waits for the turn.
    ///
    /// # Errors
    /// `Unavailable` when it takes longer than `timeout`.
    pub(super) fn take(&self, timeout: Duration) -> Result<Mine<'_>, RecordsError> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.free.wait_timeout_while(taken, timeout, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *taken {
            return Err(RecordsError::Unavailable("others are changing it for too long".to_owned()));
        }
        *taken = true;
        Ok(Mine(self))
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests;
