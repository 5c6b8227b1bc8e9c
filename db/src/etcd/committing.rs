//! Commits in etcd that happen once, even if their replies are lost.
//!
//! ```text
//!   stage     large values, each alone, under a lease of a minute        (more than a request may hold)
//!   commit    if all conditions hold and the mark does not exist: write changes and mark
//!   resolve   reply lost: if the mark does not exist: write the mark "void"
//!               void   -> the commit did not happen and cannot any more: retry under another mark
//!               a mark -> the commit happened, at the revision of the mark
//! ```
//! A mark is a record `commits/NUMBER` with a random number. Its lease is held for much longer than a commit and its
//! resolution take; if that ever fails, the commit is `Uncertain`. The next commit removes the marks of commits whose
//! outcome is known.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::limits::RECORD_STAGED_BYTES;
use cluster::secret::random_token;
use etcd_client::{Compare, CompareOp, DeleteOptions, PutOptions, Txn, TxnOp, TxnOpResponse, TxnResponse};
use tokio::time::sleep;

use super::EtcdShared;
use super::members::{Failure, patiently};
use crate::limits::{
    ETCD_CALL_MS, ETCD_LOOK_MS, ETCD_MARKS_SETTLED_AT_ONCE, ETCD_PARTS_MAX, ETCD_RESOLVE_MS,
    ETCD_STAGE_TTL_MS,
};
use cluster::records::{Committed, Condition, KeySpan, LeaseId, RecordChange, RecordsError, Revision};

/// The values of a mark: the commit happened, or cannot happen any more.
const DONE: &str = "done";
const VOID: &str = "void";

/// The outcome of a commit whose reply was lost.
enum Resolved {
    Happened(Revision),
    Void,
}

/// Commits once, by the protocol of the file's head.
pub(super) async fn commit(
    shared: &EtcdShared,
    conditions: &[Condition],
    changes: &[RecordChange],
) -> Result<Committed, RecordsError> {
    let parts = conditions.len().max(changes.len());
    if parts > ETCD_PARTS_MAX {
        return Err(RecordsError::TooLarge(format!("{parts} parts, at most {ETCD_PARTS_MAX} are possible")));
    }
    let staged = stage(shared, changes).await?;
    let result = commit_staged(shared, conditions, changes).await;
    if let Some(lease) = staged {
        // Values that the commit took no longer have the lease; the others end with it.
        let _ = shared.leases.revoke(&shared.members, lease).await;
    }
    result
}

/// Writes large values to their keys before anything refers to them.
async fn stage(shared: &EtcdShared, changes: &[RecordChange]) -> Result<Option<LeaseId>, RecordsError> {
    let mut lease = None;
    for change in changes {
        let RecordChange::Put { key, value, .. } = change else { continue };
        if value.len() <= RECORD_STAGED_BYTES {
            continue;
        }
        let ttl = Duration::from_millis(ETCD_STAGE_TTL_MS);
        let held = match lease {
            Some(held) => held,
            None => shared.leases.grant(&shared.members, ttl).await?.lease,
        };
        lease = Some(held);
        let key = shared.key(key);
        // A request that comes late must not take back what the commit has taken: it finds the key there.
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let put = TxnOp::put(key, value.clone(), Some(PutOptions::new().with_lease(held.0)));
        let transaction = Txn::new().when([absent]).and_then([put]);
        patiently(|| {
            let (mut kv, transaction) = (shared.members.kv(), transaction.clone());
            async move { shared.members.answer(kv.txn(transaction)).await }
        })
        .await?;
    }
    Ok(lease)
}

async fn commit_staged(
    shared: &EtcdShared,
    conditions: &[Condition],
    changes: &[RecordChange],
) -> Result<Committed, RecordsError> {
    let deadline = Instant::now() + Duration::from_millis(ETCD_CALL_MS);
    loop {
        let lease = shared.leases.for_marks(&shared.members).await?;
        let number = random_token().map_err(|error| RecordsError::Storage(error.to_string()))?;
        let mark = shared.key(&format!("commits/{number:016x}"));
        let settled = take_settled(shared);
        let transaction = transaction(shared, conditions, changes, &settled, (&mark, lease));
        let mut kv = shared.members.kv();
        let why = match shared.members.answer(kv.txn(transaction)).await {
            Ok(answer) => return Ok(outcome(shared, mark, &settled, &answer)),
            Err(Failure::Refused(RecordsError::LeaseGone)) if Instant::now() < deadline => {
                put_back(shared, settled);
                shared.leases.lose_marks();
                lease_of_changes(shared, changes).await?;
                continue;
            }
            Err(Failure::Refused(error)) => {
                put_back(shared, settled);
                return Err(error);
            }
            Err(Failure::Lost(why)) => why,
        };
        // Marks of the commit that may have happened; they end with their lease at the latest.
        drop(settled);
        shared.lost.store(true, Ordering::Relaxed);
        match resolve(shared, &mark, lease).await? {
            Resolved::Happened(revision) => return Ok(Committed::At(revision)),
            Resolved::Void if Instant::now() >= deadline => return Err(RecordsError::Unavailable(why)),
            Resolved::Void => {}
        }
    }
}

/// Handles a missing lease: that of a record is the caller's error, that of the mark is not.
async fn lease_of_changes(shared: &EtcdShared, changes: &[RecordChange]) -> Result<(), RecordsError> {
    for change in changes {
        if let RecordChange::Put { lease: Some(lease), .. } = change {
            shared.leases.keep(&shared.members, *lease).await?;
        }
    }
    Ok(())
}

fn transaction(
    shared: &EtcdShared,
    conditions: &[Condition],
    changes: &[RecordChange],
    settled: &[String],
    (mark, lease): (&str, LeaseId),
) -> Txn {
    let mut compares: Vec<Compare> = conditions.iter().map(|condition| compare(shared, condition)).collect();
    compares.push(Compare::create_revision(mark, CompareOp::Equal, 0));
    let mut operations: Vec<TxnOp> = changes.iter().map(|change| operation(shared, change)).collect();
    operations.extend(settled.iter().map(|mark| TxnOp::delete(mark.clone(), None)));
    operations.push(TxnOp::put(mark, DONE, Some(PutOptions::new().with_lease(lease.0))));
    Txn::new().when(compares).and_then(operations).or_else([TxnOp::get(mark, None)])
}

fn compare(shared: &EtcdShared, condition: &Condition) -> Compare {
    match condition {
        Condition::Absent(key) => Compare::create_revision(shared.key(key), CompareOp::Equal, 0),
        Condition::Is(key, revision) => {
            Compare::mod_revision(shared.key(key), CompareOp::Equal, revision.0 as i64)
        }
        Condition::NoneNewer(span, revision) => {
            let newer = revision.0 as i64 + 1;
            let compare = Compare::mod_revision(shared.key(&span.from), CompareOp::Less, newer);
            if span.is_one() { compare } else { compare.with_range(shared.key(&span.to)) }
        }
    }
}

fn operation(shared: &EtcdShared, change: &RecordChange) -> TxnOp {
    match change {
        RecordChange::Put { key, value, lease } => {
            let options = PutOptions::new().with_lease(lease.map_or(0, |lease| lease.0));
            if value.len() > RECORD_STAGED_BYTES {
                return TxnOp::put(shared.key(key), "", Some(options.with_ignore_value()));
            }
            TxnOp::put(shared.key(key), value.clone(), Some(options))
        }
        RecordChange::Delete(key) => TxnOp::delete(shared.key(key), None),
        RecordChange::DeletePrefix(prefix) => {
            let KeySpan { from, to } = KeySpan::prefix(&shared.key(prefix));
            TxnOp::delete(from, Some(DeleteOptions::new().with_range(to)))
        }
    }
}

/// Returns the outcome that a reply contains.
fn outcome(shared: &EtcdShared, mark: String, settled: &[String], answer: &TxnResponse) -> Committed {
    if answer.succeeded() {
        put_back(shared, vec![mark]);
        return Committed::At(Revision(answer.header().map_or(0, |header| header.revision() as u64)));
    }
    put_back(shared, settled.to_vec());
    match found(answer) {
        // The network brought it twice, and the first one happened.
        Some((revision, true)) => Committed::At(revision),
        _ => Committed::Conflict,
    }
}

/// Returns the mark in a reply: its revision, and whether the commit happened.
fn found(answer: &TxnResponse) -> Option<(Revision, bool)> {
    let Some(TxnOpResponse::Get(found)) = answer.op_responses().pop() else { return None };
    let mark = found.kvs().first()?;
    Some((Revision(mark.mod_revision() as u64), mark.value() == DONE.as_bytes()))
}

/// Determines whether a commit happened whose reply was lost, and otherwise prevents it.
async fn resolve(shared: &EtcdShared, mark: &str, lease: LeaseId) -> Result<Resolved, RecordsError> {
    let deadline = Instant::now() + Duration::from_millis(ETCD_RESOLVE_MS);
    loop {
        let absent = Compare::create_revision(mark, CompareOp::Equal, 0);
        let void = TxnOp::put(mark, VOID, Some(PutOptions::new().with_lease(lease.0)));
        let transaction = Txn::new().when([absent]).and_then([void]).or_else([TxnOp::get(mark, None)]);
        let mut kv = shared.members.kv();
        match shared.members.answer(kv.txn(transaction)).await {
            Ok(answer) if answer.succeeded() => return Ok(Resolved::Void),
            Ok(answer) => {
                return match found(&answer) {
                    Some((revision, true)) => Ok(Resolved::Happened(revision)),
                    Some((_, false)) => Ok(Resolved::Void),
                    None => Err(RecordsError::Uncertain("the mark of the commit is gone".to_owned())),
                };
            }
            Err(Failure::Refused(error)) => return Err(RecordsError::Uncertain(error.to_string())),
            Err(Failure::Lost(why)) if Instant::now() >= deadline => {
                return Err(RecordsError::Uncertain(why));
            }
            Err(Failure::Lost(_)) => sleep(Duration::from_millis(ETCD_LOOK_MS)).await,
        }
    }
}

fn take_settled(shared: &EtcdShared) -> Vec<String> {
    let mut settled = shared.settled.lock().unwrap_or_else(PoisonError::into_inner);
    let left = settled.len().saturating_sub(ETCD_MARKS_SETTLED_AT_ONCE);
    settled.split_off(left)
}

fn put_back(shared: &EtcdShared, mut marks: Vec<String>) {
    shared.settled.lock().unwrap_or_else(PoisonError::into_inner).append(&mut marks);
}
