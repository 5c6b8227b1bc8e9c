//! Reading from etcd: linearizable, all queries as of one revision, a page at a time. Watching: every event once and in
//! order, over any number of connections.
//!
//! A watch remembers the last commit that it has sent, and requests its successors whenever the stream breaks. Etcd
//! sends a commit in one piece. If the requested history was compacted, there may be a gap, which the watch reports.
//! Etcd's progress notifications without events are not used: before 3.4.25 they may be ahead of the events.

use std::time::Duration;

use etcd_client::{
    EventType, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, WatchOptions,
    WatchResponse,
};
use tokio::time::sleep;

use super::EtcdShared;
use super::members::{Failure, patiently};
use crate::limits::{ETCD_LOOK_MS, ETCD_PAGE_RECORDS, ETCD_READS_AT_ONCE};
use cluster::records::{Event, Query, Reading, Record, RecordsError, Revision, WatchSource};

/// Reads, with retries within the time limit.
pub(super) async fn read(
    shared: &EtcdShared,
    queries: &[Query],
    at: Option<Revision>,
) -> Result<Reading, RecordsError> {
    patiently(|| attempt(shared, queries, at)).await
}

/// Reads once. Without queries it only requests the revision.
pub(super) async fn attempt(
    shared: &EtcdShared,
    queries: &[Query],
    at: Option<Revision>,
) -> Result<Reading, Failure> {
    let mut reading = Reading { revision: at.unwrap_or_default(), found: Vec::new() };
    let mut rest = queries;
    if at.is_none() && queries.is_empty() {
        reading.revision = revision_now(shared).await?;
    }
    while !rest.is_empty() {
        let ones = rest.iter().take(ETCD_READS_AT_ONCE).take_while(|query| query.span.is_one()).count();
        if ones > 1 {
            let (some, others) = rest.split_at(ones);
            read_ones(shared, some, &mut reading).await?;
            rest = others;
        } else {
            let (query, others) = rest.split_first().map_or((&queries[0], rest), |split| split);
            let found = read_span(shared, query, &mut reading.revision).await?;
            reading.found.push(found);
            rest = others;
        }
    }
    Ok(reading)
}

async fn revision_now(shared: &EtcdShared) -> Result<Revision, Failure> {
    let options = GetOptions::new().with_count_only();
    let mut kv = shared.members.kv();
    let answer = shared.members.answer(kv.get(shared.key("format"), Some(options))).await?;
    Ok(Revision(answer.header().map_or(0, |header| header.revision() as u64)))
}

/// Reads single keys with one request.
async fn read_ones(shared: &EtcdShared, queries: &[Query], reading: &mut Reading) -> Result<(), Failure> {
    let revision = reading.revision.0 as i64;
    let get = |query: &Query| {
        TxnOp::get(shared.key(&query.span.from), Some(GetOptions::new().with_revision(revision)))
    };
    let transaction = Txn::new().and_then(queries.iter().map(get).collect::<Vec<_>>());
    let mut kv = shared.members.kv();
    let answer = shared.members.answer(kv.txn(transaction)).await?;
    if reading.revision == Revision(0) {
        reading.revision = Revision(answer.header().map_or(0, |header| header.revision() as u64));
    }
    for found in answer.op_responses() {
        let TxnOpResponse::Get(found) = found else { continue };
        reading.found.push(records(shared, found.kvs()));
    }
    Ok(())
}

async fn read_span(shared: &EtcdShared, query: &Query, at: &mut Revision) -> Result<Vec<Record>, Failure> {
    let (mut from, mut to) = (shared.key(&query.span.from), shared.key(&query.span.to));
    let mut found: Vec<Record> = Vec::new();
    while found.len() < query.limit {
        let page = ETCD_PAGE_RECORDS.min(query.limit - found.len());
        let mut options = GetOptions::new().with_limit(page as i64).with_revision(at.0 as i64);
        if query.from_last {
            options = options.with_sort(SortTarget::Key, SortOrder::Descend);
        }
        if !query.span.is_one() {
            options = options.with_range(to.clone());
        }
        let mut kv = shared.members.kv();
        let answer = shared.members.answer(kv.get(from.clone(), Some(options))).await?;
        if *at == Revision(0) {
            *at = Revision(answer.header().map_or(0, |header| header.revision() as u64));
        }
        found.extend(records(shared, answer.kvs()));
        let (true, Some(last)) = (answer.more() && !query.span.is_one(), answer.kvs().last()) else { break };
        let last = String::from_utf8_lossy(last.key()).into_owned();
        if query.from_last {
            to = last;
        } else {
            from = format!("{last}\0");
        }
    }
    Ok(found)
}

fn records(shared: &EtcdShared, found: &[KeyValue]) -> Vec<Record> {
    let record = |found: &KeyValue| {
        let key = std::str::from_utf8(found.key()).ok()?.strip_prefix(&shared.root)?;
        let revision = Revision(found.mod_revision() as u64);
        Some(Record { key: key.to_owned(), value: found.value().to_vec(), revision })
    };
    found.iter().filter_map(record).collect()
}

/// Whether a watch continues.
enum Next {
    On,
    Anew,
    Ended,
}

/// Sends the commits below a prefix after `after`, until the receiver is gone or there is a gap.
pub(super) async fn follow(shared: &EtcdShared, prefix: &str, after: Revision, source: &WatchSource) {
    let mut after = after;
    loop {
        let options = WatchOptions::new().with_prefix().with_start_revision(after.0 as i64 + 1);
        let mut client = shared.members.watches();
        if let Ok(mut stream) = shared.members.answer(client.watch(prefix, Some(options))).await {
            while let Ok(Some(response)) = stream.message().await {
                match show(shared, &response, &mut after, source) {
                    Next::On => {}
                    Next::Anew => break,
                    Next::Ended => return,
                }
            }
        }
        sleep(Duration::from_millis(ETCD_LOOK_MS)).await;
    }
}

fn show(shared: &EtcdShared, response: &WatchResponse, after: &mut Revision, source: &WatchSource) -> Next {
    if response.compact_revision() > 0 {
        source.lose();
        return Next::Ended;
    }
    if response.canceled() {
        return Next::Anew;
    }
    for commit in response.events().chunk_by(|one, other| revision_of(one) == revision_of(other)) {
        let revision = commit.first().map(revision_of).unwrap_or_default();
        let changes = commit.iter().filter_map(|event| {
            let kv = event.kv()?;
            let key = std::str::from_utf8(kv.key()).ok()?.strip_prefix(&shared.root)?.to_owned();
            let value = (event.event_type() == EventType::Put).then(|| kv.value().to_vec());
            Some((key, value))
        });
        if !source.show(Event { revision, changes: changes.collect() }) {
            return Next::Ended;
        }
        *after = revision;
    }
    Next::On
}

fn revision_of(event: &etcd_client::Event) -> Revision {
    Revision(event.kv().map_or(0, |kv| kv.mod_revision() as u64))
}
