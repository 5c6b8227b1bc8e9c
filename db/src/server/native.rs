//! One native request, run to completion: get, put, delete, increment, multi-get, ping; whole tables in `listing.rs`.
//!
//! No task, no allocation, no copy of a value but the one into the reply. Mutations pass the exactly-once
//! ring of their session before they touch anything, so a copy of a request is answered from the ring even
//! when its table is gone by now. Where the reply is written, a frame or a stream's answer, is a
//! [`ReplyPlace`].

use store::Object;
use wire::reply::{Entry, Object as GetReply, Objects, Throttled};
use wire::{Keys, Request, Status};

use super::listing;
use crate::limits::RETRY_BUSY_US;
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::write::Outcome;
use crate::ops::{WorkerEnvironment, read, write};
use crate::session::{Claim, Route, Session};
use crate::tablet::TableEntry;
use crate::tenant::limit::TenantLimit;

/// Where the reply to one request is written.
pub trait ReplyPlace {
    /// Writes the reply; `fill` gets exactly `body_bytes` that hold old bytes. Called once per request. A
    /// reply that is too large for the place becomes a status that says so.
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8]));

    /// The place as something that can be kept, for a request that is answered later.
    fn route(&self) -> Route;
}

/// Who asks, and under which number.
#[derive(Clone, Copy)]
pub struct Caller<'b> {
    /// The session.
    pub session: &'b Session,
    /// The request's number in the session.
    pub sequence: u64,
}

/// Runs `request`, which is not an invocation. `entry` is its table, already found to be the tenant's;
/// `hash` is that of its key.
#[inline]
pub fn execute(
    environment: &WorkerEnvironment<'_>,
    caller: Caller<'_>,
    request: &Request<'_>,
    entry: Option<&TableEntry>,
    hash: u64,
    place: &mut impl ReplyPlace,
) {
    let (pin, metrics) = (environment.pin, environment.metrics);
    match *request {
        Request::Get { key, .. } => {
            metrics.count(Counter::Gets);
            match entry.map(|entry| read::get(pin, entry, hash, key)) {
                Some(Some(object)) => {
                    let ttl_ms = ttl_ms(environment, &object);
                    let reply = GetReply { version: object.version(), ttl_ms, value: object.value() };
                    place.reply(Status::Ok, reply.body_bytes(), |body| reply.encode(body));
                }
                Some(None) => reply_bare(place, Status::NotFound),
                None => refuse(metrics, place, Status::UnknownTable),
            }
        }
        Request::Put { key, value, condition, .. } => {
            metrics.count(Counter::Puts);
            mutate(metrics, caller, entry, place, |entry| {
                write::put(pin, entry, hash, key, value, condition)
            });
        }
        Request::PutFor { key, value, condition, ttl_ms, .. } => {
            metrics.count(Counter::Puts);
            mutate(metrics, caller, entry, place, |entry| {
                write::put_for(environment, entry, hash, (key, value), condition, ttl_ms)
            });
        }
        Request::Delete { key, condition, .. } => {
            metrics.count(Counter::Deletes);
            mutate(metrics, caller, entry, place, |entry| write::delete(pin, entry, hash, key, condition));
        }
        Request::Increment { key, delta, .. } => {
            metrics.count(Counter::Increments);
            mutate(metrics, caller, entry, place, |entry| write::increment(pin, entry, hash, key, delta));
        }
        Request::IncrementFloat { key, delta_bits, .. } => {
            metrics.count(Counter::Increments);
            let delta = f64::from_bits(delta_bits);
            mutate(metrics, caller, entry, place, |entry| {
                write::increment_float(pin, entry, hash, key, delta)
            });
        }
        Request::Enumerate { .. } | Request::Scan { .. } | Request::Verify { .. } => {
            listing::execute(environment, request, entry, place);
        }
        Request::MultiGet { keys, .. } => {
            metrics.count(Counter::MultiGets);
            match entry {
                Some(entry) => multi_get(environment, entry, keys, place),
                None => refuse(metrics, place, Status::UnknownTable),
            }
        }
        Request::Ping => {
            metrics.count(Counter::Pings);
            reply_bare(place, Status::Ok);
        }
        Request::Invoke { .. } => unreachable!("the dispatcher takes invocations elsewhere"),
    }
}

/// How long an object is there yet.
#[inline]
fn ttl_ms(environment: &WorkerEnvironment<'_>, object: &Object<'_>) -> Option<u64> {
    let expires_ms = object.expires_ms();
    (expires_ms != store::NEVER_MS).then(|| expires_ms.saturating_sub(environment.core.store().now_ms()))
}

/// Runs a mutation once, and answers every copy of it alike.
#[inline]
fn mutate(
    metrics: &WorkerMetrics,
    caller: Caller<'_>,
    entry: Option<&TableEntry>,
    place: &mut impl ReplyPlace,
    change: impl FnOnce(&TableEntry) -> Outcome,
) {
    let (ring, sequence) = (&caller.session.ring, caller.sequence);
    match ring.claim(sequence) {
        Claim::Execute => {
            let outcome = entry.map_or(Outcome::bare(Status::UnknownTable), change);
            if outcome.status == Status::Retry {
                metrics.count(Counter::Retries);
                ring.release(sequence);
            } else {
                ring.complete_inline(sequence, outcome.status, outcome.bytes, outcome.words);
            }
            place.reply(outcome.status, outcome.bytes, |body| outcome.write_body(body));
        }
        claim => answer_copy(metrics, caller, claim, place),
    }
}

/// Answers a request that may not run: its reply is stored, or it runs already, or it is outside of the
/// window.
#[cold]
pub fn answer_copy(metrics: &WorkerMetrics, caller: Caller<'_>, claim: Claim, place: &mut impl ReplyPlace) {
    match claim {
        Claim::Replay => {
            metrics.count(Counter::Replayed);
            // A record that is gone by now was acknowledged, so nobody waits for this copy.
            let _ = caller.session.ring.replay(caller.sequence, |status, stored| {
                place.reply(status, stored.len(), |body| body.copy_from_slice(stored));
            });
        }
        // The original answers; the client asks again should that answer be lost.
        Claim::InFlight => metrics.count(Counter::DuplicatesInFlight),
        Claim::Expired => {
            metrics.count(Counter::Expired);
            reply_bare(place, Status::Expired);
        }
        Claim::Ahead => refuse(metrics, place, Status::TooManyOutstanding),
        Claim::Busy | Claim::Execute => answer_later(metrics, place),
    }
}

/// Answers that the request should come again soon.
pub fn answer_later(metrics: &WorkerMetrics, place: &mut impl ReplyPlace) {
    metrics.count(Counter::Retries);
    let outcome = Outcome::retry(RETRY_BUSY_US);
    place.reply(outcome.status, outcome.bytes, |body| outcome.write_body(body));
}

/// Answers a request that a limit of its tenant holds off. It has not run, unless an earlier copy has: then that
/// one's answer counts.
#[cold]
pub fn throttle(
    metrics: &WorkerMetrics,
    caller: Caller<'_>,
    limit: TenantLimit,
    after_us: u32,
    place: &mut impl ReplyPlace,
) {
    match caller.session.ring.claim(caller.sequence) {
        Claim::Execute => {
            caller.session.ring.release(caller.sequence);
            answer_throttled(metrics, limit.name(), after_us, place);
        }
        claim => answer_copy(metrics, caller, claim, place),
    }
}

/// Answers that a limit of the tenant holds the request off.
pub fn answer_throttled(metrics: &WorkerMetrics, limit: &str, after_us: u32, place: &mut impl ReplyPlace) {
    metrics.count(Counter::Throttled);
    let throttled = Throttled { after_us, limit: limit.as_bytes() };
    place.reply(Status::Throttled, throttled.body_bytes(), |body| throttled.encode(body));
}

/// Answers without a body and counts a refusal.
pub fn refuse(metrics: &WorkerMetrics, place: &mut impl ReplyPlace, status: Status) {
    metrics.count(Counter::Refused);
    reply_bare(place, status);
}

#[inline]
fn reply_bare(place: &mut impl ReplyPlace, status: Status) {
    place.reply(status, 0, |_| {});
}

fn multi_get(
    environment: &WorkerEnvironment<'_>,
    entry: &TableEntry,
    keys: Keys<'_>,
    place: &mut impl ReplyPlace,
) {
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
        Err(status) => refuse(environment.metrics, place, status),
    }
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
