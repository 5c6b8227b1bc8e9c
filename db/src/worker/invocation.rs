//! Invocations in the dispatcher: starting them, and answering them when they end.
//!
//! A function that writes claims a record of the exactly-once ring before it starts and completes it when it ends. One
//! that only reads may run again, unless a copy of it was begun at a worker where the function writes. A final refusal
//! is stored there as well. The invocation holds its reply until it ends, so a pending one occupies no frame.

use std::io;
use std::sync::Arc;

use wire::limits::TAKES_PARTS;
use wire::reply::PushedBack;
use wire::{Request, Status};

use super::outgoing::{Addressee, Outgoing};
use super::ports::Exits;
use super::prefetch::Located;
use super::replies::{self, Caller, ReplyPlace};
use crate::extension::CallMode;
use crate::extension::allowance::Limit;
use crate::extension::invocation::{Invocations, LimitOverrides, Offer, RefusedInvocation};
use crate::extension::version_metrics::Spent;
use crate::limits::{RETRY_BUSY_US, RETRY_UNHEARD_US, THROTTLED_AFTER_US_MIN};
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::WorkerEnvironment;
use crate::session::{Claim, Origin, Route, Session, StreamAnswer};
use crate::view::catalog::WorkerCatalog;

impl Invocations<Origin> {
    /// Creates those of a worker: with or without isolation, or for tests such that clients get theirs back after some yields.
    ///
    /// # Errors
    /// As [`Invocations::new`].
    pub fn of_a_worker(isolation: bool, push_back_after: Option<u32>) -> io::Result<Self> {
        let invocations = match (isolation, push_back_after) {
            (false, _) => Self::without_isolation(),
            (true, None) => Self::new(),
            (true, push_back_after) => Self::with_budget(LimitOverrides {
                stalls: true,
                push_back_after,
                ..LimitOverrides::default()
            }),
        };
        Ok(invocations?.identifying(Origin::request, Origin::asks_synced, Origin::may_push_back))
    }
}

/// Starts an invocation, or answers with a refusal. The request is an `Invoke`.
pub fn start(
    environment: &WorkerEnvironment<'_>,
    catalog: &WorkerCatalog,
    invocations: &mut Invocations<Origin>,
    (session, sequence): (&Arc<Session>, u64),
    (request, located): (&Request<'_>, Located<'_>),
    place: &mut impl ReplyPlace,
) {
    let Request::Invoke { extension, version, function, table, key, arguments } = *request else {
        unreachable!("only invocations come here");
    };
    let metrics = environment.metrics;
    let caller = Caller { session, sequence };
    let active = catalog.extension(extension).filter(|active| active.tenant == session.tenant);
    let Some(found) = active.and_then(|active| active.choose(version, session.client_id, sequence)) else {
        if catalog.may_come(session.tenant, extension) {
            return replies::retry_after(metrics, RETRY_UNHEARD_US, place);
        }
        replies::refuse_for_good(metrics, caller, Status::UnknownExtension, place);
        return;
    };
    let Some(index) = found.function(function) else {
        if replies::refuse_for_good(metrics, caller, Status::UnknownFunction, place) {
            found.metrics.ended(environment.core.index(), Status::UnknownFunction, None, &Spent::default());
        }
        return;
    };
    let writes = found.functions()[index].mode == CallMode::Write;
    if table != 0 && located.part.is_none() {
        return match located.missing(environment, session, table) {
            Status::NotOwned => replies::refuse_unexecuted(metrics, caller, Status::NotOwned, place),
            // No copy of the request has been executed here.
            Status::Retry => replies::retry_after(metrics, RETRY_UNHEARD_US, place),
            status => {
                replies::refuse_for_good(metrics, caller, status, place);
            }
        };
    }
    let claim = if writes { session.ring.begin_write(sequence) } else { session.ring.begin_read(sequence) };
    if claim != Claim::Execute {
        return replies::answer_copy(metrics, caller, claim, place);
    }
    metrics.count(Counter::Invocations);
    let route = place.route();
    if route.may_push_back() && invocations.goes_to_client(found, index) {
        found.metrics.pushed_back(environment.core.index());
        return push_back(metrics, caller, (found.version, writes), place);
    }
    let origin = Origin { session: Arc::clone(session), sequence, recorded: writes, route };
    if let Err(refused) = invocations.start(environment, found, index, table, key, arguments, origin) {
        not_started(metrics, caller, writes, &refused, place);
    }
}

/// Lets the client run an invocation that has not begun. A record keeps copies of the request from running here.
#[cold]
fn push_back(
    metrics: &WorkerMetrics,
    caller: Caller<'_>,
    (version, recorded): (u32, bool),
    place: &mut impl ReplyPlace,
) {
    metrics.count(Counter::InvocationsPushedBack);
    let body = PushedBack::head(version);
    if recorded {
        let inline = [u64::from(u32::from_le_bytes(body)), 0];
        caller.session.ring.complete_inline(caller.sequence, Status::PushedBack, body.len(), inline);
    }
    place.reply(Status::PushedBack, body.len(), |into| into.copy_from_slice(&body));
}

/// Answers an invocation that the worker did not accept. It has not run, so the client may repeat it, unless the
/// refusal is final.
#[cold]
fn not_started(
    metrics: &WorkerMetrics,
    caller: Caller<'_>,
    recorded: bool,
    refused: &RefusedInvocation<Origin>,
    place: &mut impl ReplyPlace,
) {
    let may_come_again = matches!(refused.status, Status::Retry | Status::Throttled);
    match (recorded, may_come_again) {
        (true, true) => caller.session.ring.release(caller.sequence),
        (true, false) => caller.session.ring.complete_inline(caller.sequence, refused.status, 0, [0; 2]),
        (false, _) => {}
    }
    match refused.status {
        Status::Retry => replies::answer_later(metrics, place),
        Status::Throttled => {
            let after_us = THROTTLED_AFTER_US_MIN as u32;
            let limit = refused.limit.map_or("", Limit::name);
            replies::answer_throttled(metrics, limit, after_us, place);
        }
        status => replies::refuse(metrics, place, status),
    }
}

/// Takes over an invocation that another worker offered, or answers it with a refusal. Ends an invocation whose
/// session ended while it moved between workers.
pub fn take<P: Exits>(
    environment: &WorkerEnvironment<'_>,
    invocations: &mut Invocations<Origin>,
    offer: Offer<Origin>,
    port: &mut P,
    outgoing: &mut Outgoing,
) {
    if offer.origin().session.is_closed() {
        return finish(environment, port, outgoing, offer.into_origin(), Status::BadToken, &[]);
    }
    let Err(RefusedInvocation { status, origin, .. }) = invocations.take(environment, offer) else { return };
    let after_us = RETRY_BUSY_US.to_le_bytes();
    // The tenant had room when the request was accepted, and will have again.
    let (status, body) = match status {
        Status::Retry | Status::Throttled => (Status::Retry, &after_us[..]),
        status => (status, &[][..]),
    };
    finish(environment, port, outgoing, origin, status, body);
}

/// Polls every invocation of the worker once and answers those that have ended.
pub fn run<P: Exits>(
    environment: &WorkerEnvironment<'_>,
    invocations: &mut Invocations<Origin>,
    port: &mut P,
    outgoing: &mut Outgoing,
) {
    invocations.run(environment, &mut |origin, status, reply| {
        finish(environment, port, outgoing, origin, status, reply);
    });
    if invocations.answered_a_last_one() {
        outgoing.hurry();
    }
}

/// Ends and answers the invocations of closed sessions.
pub fn end_of_closed<P: Exits>(
    environment: &WorkerEnvironment<'_>,
    invocations: &mut Invocations<Origin>,
    port: &mut P,
    outgoing: &mut Outgoing,
) {
    let over = |origin: &Origin| origin.session.is_closed();
    invocations.end_of_sessions(environment, over, &mut |origin, status, reply| {
        finish(environment, port, outgoing, origin, status, reply);
    });
}

/// Ends and answers every invocation of a worker that stops.
pub fn end_all<P: Exits>(
    environment: &WorkerEnvironment<'_>,
    invocations: &mut Invocations<Origin>,
    port: &mut P,
    outgoing: &mut Outgoing,
) {
    invocations.end_all(environment, &mut |origin, status, reply| {
        finish(environment, port, outgoing, origin, status, reply);
    });
}

/// Handles the end of an invocation: stores the reply for copies of the request and sends it.
#[inline(always)]
fn finish<P: Exits>(
    environment: &WorkerEnvironment<'_>,
    port: &mut P,
    outgoing: &mut Outgoing,
    origin: Origin,
    status: Status,
    reply: &[u8],
) {
    let (session, sequence) = (&origin.session, origin.sequence);
    session.account.ledger.page(environment.core.index()).answered(status, reply.len());
    if origin.recorded {
        match status {
            Status::Retry => session.ring.release(sequence),
            _ => session.ring.complete(sequence, status, reply),
        }
    }
    match origin.route {
        Route::Frame { port: arrived_at, peer, flags } => {
            let to = Addressee::of(session, (arrived_at, peer), flags & !TAKES_PARTS);
            let head = (sequence as u32, status);
            let fill = |body: &mut [u8]| body.copy_from_slice(reply);
            outgoing.reply_when_stable(port, environment, &to, head, reply.len(), fill);
        }
        Route::Stream(answer, flags) => {
            let reply = StreamAnswer { status, body: reply.to_vec() };
            outgoing.answer_when_stable(environment, (&answer, flags), reply);
        }
    }
}

#[cfg(test)]
mod tests;
