//! Places of replies, and the replies to requests that are not executed: copies, and requests that come too early,
//! exceed a limit, were sent under another view, or are refused.
//!
//! A refusal leaves no record in the session's ring if the request may be executed later, here or elsewhere. A final
//! refusal is stored there, because a copy may be on its way to a worker that would execute it. The ring is searched
//! first: if a copy has been executed, or is being executed, its answer counts.

use store::Object;
use wire::Status;
use wire::reply::Throttled;

use crate::limits::{RETRY_BUSY_US, RETRY_PASSING_US};
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::WorkerEnvironment;
use crate::ops::write::WriteOutcome;
use crate::session::{Claim, Route, Session};
use crate::tenant::limit::TenantLimit;
use crate::view::RoundView;

/// The place of the reply to one request.
pub trait ReplyPlace {
    /// Writes the reply; `fill` gets exactly `body_bytes`, which hold old bytes. Called once per request. If the reply
    /// is too large for the place, a status that says so replaces it.
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8]));

    /// Notes that the reply may show whatever can be read now, and so waits until that is stable on the disk.
    fn shows_anything(&self);

    /// Returns the route of the reply, which a request keeps that is answered later.
    fn route(&self) -> Route;
}

/// The outcome of executing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RequestOutcome {
    /// The reply is written.
    Answered,
    /// The request did nothing and has no reply, because it depends on objects that have not arrived. A mutation keeps
    /// its record in the ring.
    Lacks,
}

/// The session and sequence of a request.
#[derive(Clone, Copy)]
pub struct Caller<'b> {
    /// The session.
    pub session: &'b Session,
    /// The request's number in the session.
    pub sequence: u64,
}

/// Answers a request that may not execute: its reply is stored, it is running, or it is outside the window.
#[cold]
pub fn answer_copy(metrics: &WorkerMetrics, caller: Caller<'_>, claim: Claim, place: &mut impl ReplyPlace) {
    match claim {
        Claim::Replay => {
            // The stored reply may be one that waits for the disk.
            place.shows_anything();
            let replayed = caller.session.ring.replay(caller.sequence, |status, stored| {
                metrics.count(Counter::Replayed);
                place.reply(status, stored.len(), |body| body.copy_from_slice(stored));
            });
            // Another worker is answering a copy from it, or it was acknowledged and nobody waits for this one.
            if replayed.is_none() {
                answer_later(metrics, place);
            }
        }
        // The original request will be answered; the client repeats the request if that answer is lost.
        Claim::InFlight => metrics.count(Counter::DuplicatesInFlight),
        Claim::Expired => {
            metrics.count(Counter::Expired);
            reply_bare(place, Status::Expired);
        }
        Claim::Ahead => refuse(metrics, place, Status::TooManyOutstanding),
        Claim::Busy | Claim::Execute => answer_later(metrics, place),
    }
}

/// Answers `Retry` with a short delay.
pub fn answer_later(metrics: &WorkerMetrics, place: &mut impl ReplyPlace) {
    retry_after(metrics, RETRY_BUSY_US, place);
}

/// Answers `Retry` with a delay in microseconds.
pub fn retry_after(metrics: &WorkerMetrics, after_us: u32, place: &mut impl ReplyPlace) {
    metrics.count(Counter::Retries);
    let outcome = WriteOutcome::retry(after_us);
    place.reply(outcome.status, outcome.bytes, |body| outcome.write_body(body));
}

/// Answers a request sent under another view; it is not executed. While other workers have not reached the new view,
/// one of them may execute a copy, so the reply does not name the view yet.
#[cold]
pub fn refuse_other_view(
    metrics: &WorkerMetrics,
    caller: Caller<'_>,
    view: RoundView,
    place: &mut impl ReplyPlace,
) {
    if view.is_passing() && caller.session.ring.look(caller.sequence) == Claim::Execute {
        return retry_after(metrics, RETRY_PASSING_US, place);
    }
    refuse_unexecuted(metrics, caller, Status::WrongView, place);
}

/// Answers a request that exceeds a limit of its tenant. It has not been executed; if an earlier copy has, that copy's
/// answer counts.
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

/// Refuses a request that may be executed elsewhere or later. It leaves no record, unless a copy has been executed
/// here or is being executed.
#[cold]
pub fn refuse_unexecuted(
    metrics: &WorkerMetrics,
    caller: Caller<'_>,
    status: Status,
    place: &mut impl ReplyPlace,
) {
    match caller.session.ring.look(caller.sequence) {
        Claim::Execute => refuse(metrics, place, status),
        claim => answer_copy(metrics, caller, claim, place),
    }
}

/// Refuses a request for good: no copy of it executes from now on. Returns false if a copy has been executed or is
/// being executed; then that copy's answer counts.
#[cold]
pub fn refuse_for_good(
    metrics: &WorkerMetrics,
    caller: Caller<'_>,
    status: Status,
    place: &mut impl ReplyPlace,
) -> bool {
    let ring = &caller.session.ring;
    match ring.claim(caller.sequence) {
        Claim::Execute => ring.complete_inline(caller.sequence, status, 0, [0; 2]),
        claim => {
            answer_copy(metrics, caller, claim, place);
            return false;
        }
    }
    refuse(metrics, place, status);
    true
}

/// Answers `Throttled` with the limit's name and the delay in microseconds.
pub fn answer_throttled(metrics: &WorkerMetrics, limit: &str, after_us: u32, place: &mut impl ReplyPlace) {
    metrics.count(Counter::Throttled);
    let throttled = Throttled { after_us, limit: limit.as_bytes() };
    place.reply(Status::Throttled, throttled.body_bytes(), |body| throttled.encode(body));
}

/// Answers with a bare status and counts a refusal.
pub fn refuse(metrics: &WorkerMetrics, place: &mut impl ReplyPlace, status: Status) {
    metrics.count(Counter::Refused);
    reply_bare(place, status);
}

#[inline]
pub(super) fn reply_bare(place: &mut impl ReplyPlace, status: Status) {
    place.reply(status, 0, |_| {});
}

/// Returns the remaining time to live of an object; `None` if it never expires.
#[inline]
pub(super) fn ttl_ms(environment: &WorkerEnvironment<'_>, object: &Object<'_>) -> Option<u64> {
    let expires_ms = object.expires_ms();
    (expires_ms != store::NEVER_MS).then(|| expires_ms.saturating_sub(environment.core.store().now_ms()))
}
