//! Writing the metadata anew from a copy of its records, after the storage that the servers shared was lost.
//!
//! The copy may be behind what was lost by the changes of a moment. So numbers that it may not know of are skipped: no table,
//! tenant, server or version gets one that had another meaning. A server whose last start is not in the copy is refused when it
//! starts (see [`Metadata::log_start`](super::Metadata::log_start)).

use serde::{Deserialize, Serialize};

use super::coordination::COORDINATOR;
use super::encoding::{decode, encode};
use super::packages::PACKAGES;
use super::row::Row;
use super::servers::CLUSTER;
use super::{Counter, FORMAT, MetadataError, ServerRow, UsageRow, VERSIONS};
use crate::limits::{
    CLIENT_IDS_RESERVED, RESTORED_AT_ONCE, RESTORED_BYTES_AT_ONCE, RESTORED_LARGE_AT_ONCE,
    RESTORED_NUMBERS_SKIPPED, RESTORED_VERSIONS_SKIPPED,
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

/// Keys and values, in the order of the keys.
pub type Pairs = [(String, Vec<u8>)];

fn value_of<'p>(pairs: &'p Pairs, key: &str) -> Option<&'p [u8]> {
    pairs.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_slice())
}

/// Returns the keys that say of which cluster records are, and which of two states of them is older.
#[must_use]
pub fn marks() -> [KeySpan; 2] {
    [KeySpan::one(CLUSTER), KeySpan::prefix(COUNTERS)]
}

/// Returns why records are no later state of the same cluster than a copy: of both the records with the keys of [`marks`]. `None` if
/// they are, or the copy has none.
///
/// # Errors
/// When a record is damaged.
pub fn why_not_later(copied: &Pairs, now: &Pairs) -> Result<Option<String>, MetadataError> {
    if !copied.is_empty() && value_of(copied, CLUSTER) != value_of(now, CLUSTER) {
        return Ok(Some("they are of another cluster".to_owned()));
    }
    for (key, value) in copied.iter().filter(|(key, _)| key.starts_with(COUNTERS)) {
        let Counter { next: before } = decode(key, value)?;
        let now = value_of(now, key).map(|value| decode::<Counter>(key, value)).transpose()?;
        let now = now.map_or(0, |counter| counter.next);
        if now < before {
            return Ok(Some(format!("`{key}` is {now}, and was {before}")));
        }
    }
    Ok(None)
}

/// Returns whether two copies are of one cluster.
#[must_use]
pub fn is_same_cluster(one: &CopiedRecords, other: &CopiedRecords) -> bool {
    value_of(&one.records, CLUSTER) == value_of(&other.records, CLUSTER)
}

/// Returns how new a copy is: of two copies of one cluster that with the greater result is newer.
///
/// # Errors
/// When it is damaged.
pub fn newness_of(copy: &CopiedRecords) -> Result<(u64, Revision), MetadataError> {
    let restored = value_of(&copy.records, RESTORED);
    let restored = restored.map(|value| decode::<Restored>(RESTORED, value)).transpose()?;
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
    let (times, _) = newness_of(copy)?;
    commit(&[RecordChange::put(RESTORING, "1")])?;
    let mut left = Vec::new();
    read_all(records, |some| {
        let keys = some.into_iter().map(|record| record.key).filter(|key| key != RESTORING);
        left.extend(keys.map(RecordChange::Delete));
        Ok(())
    })?;
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

/// Reads all records that a copy has, as of one commit, which it returns; passes them to `take`, some at a time.
///
/// # Errors
/// That of `take`, or when they cannot be read; `Overtaken` if that takes longer than the storage keeps what it was.
pub fn read_all(
    records: &dyn Records,
    mut take: impl FnMut(Vec<Record>) -> Result<(), RecordsError>,
) -> Result<Revision, RecordsError> {
    let (large, all) = (KeySpan::prefix(PACKAGES), KeySpan::all());
    let before = KeySpan { from: all.from, to: large.from.clone() };
    let after = KeySpan { from: large.to.clone(), to: all.to };
    let mut at = None;
    for (mut span, limit) in
        [(before, RESTORED_AT_ONCE), (large, RESTORED_LARGE_AT_ONCE), (after, RESTORED_AT_ONCE)]
    {
        loop {
            let query = Query { span: span.clone(), limit, from_last: false };
            let reading = records.read(&[query], at)?;
            at = Some(reading.revision);
            let mut found = reading.found.into_iter().flatten().collect::<Vec<_>>();
            let Some(last) = found.last() else { break };
            span.from = format!("{}\0", last.key);
            found.retain(|record| is_copied(&record.key));
            take(found)?;
        }
    }
    Ok(at.unwrap_or_default())
}
