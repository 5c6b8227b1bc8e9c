//! Where a reply is written, and the replies to requests that are not executed: copies of others, those that come too
//! early, that a limit holds off, that were sent under another view, or that are refused.
//!
//! A refusal leaves no trace in the session's ring where the request may be executed later, here or elsewhere; one for good
//! is stored there, since a copy may be on its way to a worker that would execute it. But where a copy has been executed, or
//! is being executed, that one's answer counts: it is looked for first.

use store::Object;
use wire::Status;
use wire::reply::Throttled;

use super::view::RoundView;
use crate::limits::{RETRY_BUSY_US, RETRY_PASSING_US};
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::WorkerEnvironment;
use crate::ops::write::WriteOutcome;
use crate::session::{Claim, Route, Session, StreamAnswer};
use crate::sync::oneshot::Sender;
use crate::tenant::ledger::Page;
use crate::tenant::limit::TenantLimit;

/// Where the reply to one request is written.
pub trait ReplyPlace {
    /// Writes the reply; `fill` gets exactly `body_bytes` that hold old bytes. Called once per request. A
    /// reply that is too large for the place becomes a status that says so.
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8]));

    /// The place as something that can be kept, for a request that is answered later.
    fn route(&self) -> Route;
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum RequestOutcome {
    /// It has its answer.
    Answered,
    /// It has none, and did nothing: it depends on objects that have still to arrive. That of a mutation keeps its record
    /// of the ring.
    Lacks,
}

/// Who asks, and under which number.
#[derive(Clone, Copy)]
pub struct Caller<'b> {
    /// The session.
    pub session: &'b Session,
    /// The request's number in the session.
    pub sequence: u64,
}

/// Answers a request that may not run: its reply is stored, or it runs already, or it is outside of the
/// window.
#[cold]
pub fn answer_copy(metrics: &WorkerMetrics, caller: Caller<'_>, claim: Claim, place: &mut impl ReplyPlace) {
    match claim {
        Claim::Replay => {
            let replayed = caller.session.ring.replay(caller.sequence, |status, stored| {
                metrics.count(Counter::Replayed);
                place.reply(status, stored.len(), |body| body.copy_from_slice(stored));
            });
            // Another worker is answering a copy from it, or it was acknowledged and nobody waits for this one.
            if replayed.is_none() {
                answer_later(metrics, place);
            }
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
    retry_after(metrics, RETRY_BUSY_US, place);
}

/// Answers that the request should come again after so many microseconds.
pub fn retry_after(metrics: &WorkerMetrics, after_us: u32, place: &mut impl ReplyPlace) {
    metrics.count(Counter::Retries);
    let outcome = WriteOutcome::retry(after_us);
    place.reply(outcome.status, outcome.bytes, |body| outcome.write_body(body));
}

/// Answers a request that was sent under another view than the worker's: it is not executed. While other workers have
/// still to pass, a copy of it may be, so the client hears nothing of the new view yet.
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

/// Refuses a request that may be executed elsewhere, or later: unless a copy of it has been executed here, or is being
/// executed, it leaves no trace.
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

/// Refuses a request for good: no copy of it is executed from now on. False where one has been, or is being executed: then
/// that one's answer counts.
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
pub(super) fn reply_bare(place: &mut impl ReplyPlace, status: Status) {
    place.reply(status, 0, |_| {});
}

/// How long an object is there yet.
#[inline]
pub(super) fn ttl_ms(environment: &WorkerEnvironment<'_>, object: &Object<'_>) -> Option<u64> {
    let expires_ms = object.expires_ms();
    (expires_ms != store::NEVER_MS).then(|| expires_ms.saturating_sub(environment.core.store().now_ms()))
}

/// A reply to who waits for it at a stream.
pub struct StreamPlace<'s> {
    /// Takes it.
    pub answer: &'s Sender<StreamAnswer>,
    /// The tenant's counters.
    pub page: &'s Page,
}

impl ReplyPlace for StreamPlace<'_> {
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        self.page.answered(status, body_bytes);
        let mut body = vec![0; body_bytes];
        fill(&mut body);
        // The stream may be gone; then nobody waits.
        self.answer.send(StreamAnswer { status, body });
    }

    fn route(&self) -> Route {
        Route::Stream(self.answer.clone())
    }
}
