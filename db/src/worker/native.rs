//! Executes one native request to completion: get, put, delete, increment, multi-get, commit, ping; `listing.rs` handles whole
//! tables.
//!
//! A request needs no task, no allocation, and no copy of a value except the one into the reply. Mutations pass the
//! exactly-once ring of their session first, so the ring answers a copy of a request even if the table is gone by
//! then. `replies.rs` answers requests that are not executed, and defines the places of replies: a frame, or a
//! stream's answer.

use store::{Object, RequestId, Table};
use wire::reply::{Entry, Object as GetReply, Objects};
use wire::{Changes, Keys, Request, Status, opcode};

use super::listing;
use super::prefetch::Located;
use super::replies::{Caller, ReplyPlace, RequestOutcome, answer_copy, refuse, reply_bare, ttl_ms};
use super::stale_read;
use crate::extension::allowance::Allowance;
use crate::limits::RETRY_UNHEARD_US;
use crate::metrics::Counter;
use crate::ops::commit::CommitLimits;
use crate::ops::write::{WriteOutcome, WriteTarget};
use crate::ops::{self, WorkerEnvironment, read, write};
use crate::session::{Claim, Session};
use crate::tablet::TableEntry;

/// Returns whether a request that asks for the disk is a write to a table in memory.
#[inline]
pub fn cannot_sync(request: &Request<'_>, located: Located<'_>) -> bool {
    !matches!(request, Request::Invoke { .. } | Request::Commit { .. })
        && !opcode::is_read(request.opcode())
        && located.entry.is_some_and(|entry| !entry.durability.is_on_disk())
}

/// Executes a native request, unless it lacks objects. `located` names its key's place in a table that was already
/// found to be the tenant's. `IS_NEW`: the request runs for the first time and is counted.
#[inline]
pub fn execute<const IS_NEW: bool>(
    environment: &WorkerEnvironment<'_>,
    caller: Caller<'_>,
    request: &Request<'_>,
    located: Located<'_>,
    place: &mut impl ReplyPlace,
) -> RequestOutcome {
    let metrics = environment.metrics;
    let count = |counter| {
        if IS_NEW {
            metrics.count(counter);
        }
    };
    match *request {
        Request::Commit { changes } => {
            count(Counter::Commits);
            return commit(environment, caller, (request, located), &changes, place);
        }
        Request::Get { key, .. } => {
            count(Counter::Gets);
            if let Some(part) = located.part {
                return get(environment, (part, located.hash), key, place);
            }
        }
        Request::GetNow { key, .. } => {
            count(Counter::Gets);
            if let Some(entry) = located.entry {
                return stale_read::get(environment, caller.session, (entry, located), key, place);
            }
        }
        Request::Put { .. }
        | Request::PutFor { .. }
        | Request::Delete { .. }
        | Request::Increment { .. }
        | Request::IncrementFloat { .. } => {
            return mutation::<IS_NEW>(environment, caller, request, located, place);
        }
        Request::Enumerate { .. } | Request::Scan { .. } | Request::Verify { .. } => {
            if let Some(entry) = located.entry {
                listing::execute(environment, request, entry, place);
                return RequestOutcome::Answered;
            }
        }
        Request::MultiGet { keys, .. } => {
            count(Counter::MultiGets);
            if let Some(entry) = located.entry {
                return multi_get(environment, entry, keys, place);
            }
        }
        Request::Tablets { .. } => {
            if let Some(map) = located.entry.map(TableEntry::map_bytes) {
                place.reply(Status::Ok, map.len(), |body| body.copy_from_slice(map));
                return RequestOutcome::Answered;
            }
        }
        Request::Ping => {
            count(Counter::Pings);
            reply_bare(place, Status::Ok);
            return RequestOutcome::Answered;
        }
        Request::Invoke { .. } => unreachable!("the dispatcher handles invocations elsewhere"),
    }
    let outcome = missing(environment, caller.session, request, located);
    metrics.count(if outcome.status == Status::Retry { Counter::Retries } else { Counter::Refused });
    place.reply(outcome.status, outcome.bytes, |body| outcome.write_body(body));
    RequestOutcome::Answered
}

#[inline(always)]
fn mutation<const IS_NEW: bool>(
    environment: &WorkerEnvironment<'_>,
    caller: Caller<'_>,
    request: &Request<'_>,
    located: Located<'_>,
    place: &mut impl ReplyPlace,
) -> RequestOutcome {
    let (pin, metrics) = (environment.pin, environment.metrics);
    let count = |counter| {
        if IS_NEW {
            metrics.count(counter);
        }
    };
    match *request {
        Request::Put { key, value, condition, .. } => {
            count(Counter::Puts);
            mutate(environment, caller, (request, located), place, |target| {
                write::put(pin, target, key, value, condition)
            })
        }
        Request::PutFor { key, value, condition, ttl_ms, .. } => {
            count(Counter::Puts);
            mutate(environment, caller, (request, located), place, |target| {
                write::put_for(environment, target, (key, value), condition, ttl_ms)
            })
        }
        Request::Delete { key, condition, .. } => {
            count(Counter::Deletes);
            mutate(environment, caller, (request, located), place, |target| {
                write::delete(pin, target, key, condition)
            })
        }
        Request::Increment { key, delta, .. } => {
            count(Counter::Increments);
            mutate(environment, caller, (request, located), place, |target| {
                write::increment(pin, target, key, delta)
            })
        }
        Request::IncrementFloat { key, delta_bits, .. } => {
            count(Counter::Increments);
            let delta = f64::from_bits(delta_bits);
            mutate(environment, caller, (request, located), place, |target| {
                write::increment_float(pin, target, key, delta)
            })
        }
        _ => unreachable!("other requests are not mutations"),
    }
}

/// Returns the outcome of a request without a part: `Retry` if another server of the cluster may have created the
/// table and this server has not followed that yet.
#[cold]
fn missing(
    environment: &WorkerEnvironment<'_>,
    session: &Session,
    request: &Request<'_>,
    located: Located<'_>,
) -> WriteOutcome {
    match located.missing(environment, session, request.table().unwrap_or(0)) {
        Status::Retry => WriteOutcome::retry(RETRY_UNHEARD_US),
        status => WriteOutcome::bare(status),
    }
}

#[inline(always)]
fn get(
    environment: &WorkerEnvironment<'_>,
    (part, hash): (&Table, u64),
    key: &[u8],
    place: &mut impl ReplyPlace,
) -> RequestOutcome {
    match read::get(environment.pin, part, hash, key) {
        Some(object) => reply_object(environment, &object, place),
        None if part.is_arrival() => return get_arriving(environment, (part, hash), key, place),
        None => reply_bare(place, Status::NotFound),
    }
    RequestOutcome::Answered
}

#[inline(always)]
fn reply_object(environment: &WorkerEnvironment<'_>, object: &Object<'_>, place: &mut impl ReplyPlace) {
    let ttl_ms = ttl_ms(environment, object);
    let reply = GetReply { version: object.version(), ttl_ms, value: object.value() };
    place.reply(Status::Ok, reply.body_bytes(), |body| reply.encode(body));
}

/// Answers a get that found nothing in an arriving part; looks again, because the object may have arrived meanwhile.
#[cold]
fn get_arriving(
    environment: &WorkerEnvironment<'_>,
    (part, hash): (&Table, u64),
    key: &[u8],
    place: &mut impl ReplyPlace,
) -> RequestOutcome {
    match read::get_arriving(environment.pin, part, hash, key) {
        Some(None) => reply_bare(place, Status::NotFound),
        Some(Some(object)) => reply_object(environment, &object, place),
        None => return RequestOutcome::Lacks,
    }
    RequestOutcome::Answered
}

/// Commits once what a client asks for. Each of its writes is an operation of the tenant's rate.
fn commit(
    environment: &WorkerEnvironment<'_>,
    caller: Caller<'_>,
    (request, located): (&Request<'_>, Located<'_>),
    changes: &Changes<'_>,
    place: &mut impl ReplyPlace,
) -> RequestOutcome {
    let session = caller.session;
    let Allowance { reads, writes, write_bytes, .. } = Allowance::of(&session.account);
    let (limits, for_disk) = (CommitLimits { reads, writes, write_bytes }, environment.core.asks_for_disk());
    let [.., written] = changes.counts();
    mutate(environment, caller, (request, located), place, |_| {
        let outcome = ops::commit::commit(environment, (session.tenant, limits, for_disk), changes);
        if outcome.status != Status::Retry {
            session.account.charge(environment.now_us, (written as u64).saturating_sub(1));
        }
        outcome
    })
}

/// Executes a mutation once, and answers every copy of it alike.
#[inline]
fn mutate(
    environment: &WorkerEnvironment<'_>,
    caller: Caller<'_>,
    (request, located): (&Request<'_>, Located<'_>),
    place: &mut impl ReplyPlace,
    change: impl FnOnce(WriteTarget<'_>) -> WriteOutcome,
) -> RequestOutcome {
    let metrics = environment.metrics;
    let (ring, sequence) = (&caller.session.ring, caller.sequence);
    match ring.claim(sequence) {
        Claim::Execute => {
            let nowhere = || missing(environment, caller.session, request, located);
            environment.core.begin_request(RequestId { client: caller.session.client_id, sequence }, &[]);
            let outcome = located.target().map_or_else(nowhere, change);
            environment.core.end_request();
            if outcome.status == Status::Retry {
                if outcome.lacks() {
                    return RequestOutcome::Lacks;
                }
                metrics.count(Counter::Retries);
                ring.release(sequence);
            } else if outcome.status == Status::NotOwned {
                // Another server may execute it, so no record stays here.
                metrics.count(Counter::Refused);
                ring.release(sequence);
            } else {
                ring.complete_inline(sequence, outcome.status, outcome.bytes, outcome.words);
            }
            place.reply(outcome.status, outcome.bytes, |body| outcome.write_body(body));
        }
        claim => answer_copy(metrics, caller, claim, place),
    }
    RequestOutcome::Answered
}

fn multi_get(
    environment: &WorkerEnvironment<'_>,
    entry: &TableEntry,
    keys: Keys<'_>,
    place: &mut impl ReplyPlace,
) -> RequestOutcome {
    let count = keys.len();
    let heads_bytes = Objects::HEAD_BYTES + count * Objects::ENTRY_HEAD_BYTES;
    let mut found: [Option<Object<'_>>; wire::limits::MULTI_GET_KEYS_MAX] =
        [const { None }; wire::limits::MULTI_GET_KEYS_MAX];
    let found = &mut found[..count];
    let value_bytes_max = wire::limits::REPLY_BYTES_MAX - heads_bytes;
    match read::get_many(environment.pin, entry, keys, value_bytes_max, found) {
        Ok(value_bytes) => {
            place.reply(Status::Ok, heads_bytes + value_bytes, |body| encode_objects(found, body))
        }
        Err(Status::Retry) => return RequestOutcome::Lacks,
        Err(status) => refuse(environment.metrics, place, status),
    }
    RequestOutcome::Answered
}

fn encode_objects(found: &[Option<Object<'_>>], body: &mut [u8]) {
    let mut rest = Objects::encode_count(body, found.len());
    for object in found {
        let entry = match object {
            Some(object) => Entry { status: Status::Ok, version: object.version(), value: object.value() },
            None => Entry { status: Status::NotFound, version: 0, value: &[] },
        };
        rest = Objects::encode_entry(rest, &entry).expect("the body was sized for these entries");
    }
}
