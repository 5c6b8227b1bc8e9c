//! Writing the metadata anew from a copy of its records, after the storage that the servers shared was lost.
//!
//! The copy may be behind what was lost by the changes of a moment. So numbers that it may not know of are skipped: no table,
//! tenant, server or version gets one that had another meaning. A server whose last start is not in the copy is refused when it
//! starts (see [`Metadata::log_start`](super::Metadata::log_start)).

use serde::{Deserialize, Serialize};

use super::coordination::COORDINATOR;
use super::encoding::{decode, encode};
use super::row::Row;
use super::{Counter, FORMAT, MetadataError, ServerRow, UsageRow, VERSIONS};
use crate::limits::{
    CLIENT_IDS_RESERVED, RESTORED_AT_ONCE, RESTORED_BYTES_AT_ONCE, RESTORED_NUMBERS_SKIPPED,
    RESTORED_VERSIONS_SKIPPED,
};
use crate::records::{
    Committed, Condition, CopiedRecords, KeySpan, Query, Record, RecordChange, Records, RecordsError,
    Revision,
};

/// How often records were restored.
const RESTORED: &str = "restored";
/// There while a copy is being written.
pub(super) const RESTORING: &str = "restoring";
/// What the storage itself keeps among the records.
const COMMITS: &str = "commits/";
const COUNTERS: &str = "counters/";

#[derive(Default, Serialize, Deserialize)]
struct Restored {
    times: u64,
}

/// Returns whether a copy has this record: not one that ends with a lease.
#[must_use]
pub fn is_copied(key: &str) -> bool {
    ![ServerRow::PREFIX, UsageRow::PREFIX, COORDINATOR, COMMITS].iter().any(|prefix| key.starts_with(prefix))
}

/// Returns which of two copies of one cluster is newer: that with the greater result.
///
/// # Errors
/// When it is damaged.
pub fn age_of(copy: &CopiedRecords) -> Result<(u64, Revision), MetadataError> {
    let restored = copy.records.iter().find(|(key, _)| key == RESTORED);
    let restored = restored.map(|(key, value)| decode::<Restored>(key, value)).transpose()?;
    Ok((restored.unwrap_or_default().times, copy.revision))
}

/// Writes a copy to records that have none; one that was interrupted can be begun anew. Returns how many records there are.
/// Servers refuse to start meanwhile.
///
/// # Errors
/// `AlreadyExists` if a cluster has its metadata there; or that the copy is damaged, or cannot be written.
pub fn restore(records: &dyn Records, copy: &CopiedRecords) -> Result<usize, MetadataError> {
    let is_new = Condition::Absent(FORMAT.to_owned());
    let commit = |changes: &[RecordChange]| match records.commit(std::slice::from_ref(&is_new), changes)? {
        Committed::At(_) => Ok(()),
        Committed::Conflict => Err(MetadataError::AlreadyExists),
    };
    let (times, _) = age_of(copy)?;
    commit(&[RecordChange::put(RESTORING, "1")])?;
    let left = all(records, is_copied)?.0;
    let left: Vec<_> = left
        .into_iter()
        .map(|record| record.key)
        .filter(|key| key != RESTORING)
        .map(RecordChange::Delete)
        .collect();
    for some in left.chunks(RESTORED_AT_ONCE) {
        commit(some)?;
    }
    let mut last = vec![RecordChange::Delete(RESTORING.to_owned())];
    last.push(RecordChange::put(RESTORED, encode(&Restored { times: times + 1 })?));
    let (mut some, mut bytes) = (Vec::new(), 0);
    for (key, value) in copy.records.iter().filter(|(key, _)| key != RESTORED && is_copied(key)) {
        let put = RecordChange::put(key.as_str(), beyond(key, value)?);
        if key == FORMAT {
            last.push(put);
            continue;
        }
        if some.len() == RESTORED_AT_ONCE || bytes + value.len() > RESTORED_BYTES_AT_ONCE && !some.is_empty()
        {
            commit(&std::mem::take(&mut some))?;
            bytes = 0;
        }
        bytes += value.len();
        some.push(put);
    }
    if last.len() < 3 {
        return Err(RecordsError::Storage("the copy has no format".to_owned()).into());
    }
    if !some.is_empty() {
        commit(&some)?;
    }
    commit(&last)?;
    Ok(copy.records.len())
}

/// Returns a record's value; of a counter, beyond the numbers that were given out after the copy.
fn beyond(key: &str, value: &[u8]) -> Result<Vec<u8>, MetadataError> {
    let skipped = match key.strip_prefix(COUNTERS) {
        // By these a server notices that the metadata is older than its log.
        Some(counter) if counter.starts_with("log-start-") => 0,
        Some(VERSIONS) => RESTORED_VERSIONS_SKIPPED,
        Some("client") => RESTORED_NUMBERS_SKIPPED * CLIENT_IDS_RESERVED,
        Some(_) => RESTORED_NUMBERS_SKIPPED,
        None => return Ok(value.to_vec()),
    };
    let Counter { next } = decode(key, value)?;
    Ok(encode(&Counter { next: next + skipped })?)
}

/// Reads all records with such keys, as of one commit, some at a time.
///
/// # Errors
/// When they cannot be read; `Overtaken` if that takes longer than the storage keeps what it was.
pub fn all(
    records: &dyn Records,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Record>, Revision), RecordsError> {
    let (mut span, mut at, mut all) = (KeySpan::all(), None, Vec::new());
    loop {
        let query = Query { span: span.clone(), limit: RESTORED_AT_ONCE, from_last: false };
        let reading = records.read(&[query], at)?;
        let found = reading.found.into_iter().flatten().collect::<Vec<_>>();
        at = Some(reading.revision);
        let Some(last) = found.last() else { return Ok((all, reading.revision)) };
        span.from = format!("{}\0", last.key);
        all.extend(found.into_iter().filter(|record| is_wanted(&record.key)));
    }
}
