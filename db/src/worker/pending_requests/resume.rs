//! Adds pending requests and executes them again: decoded, located and executed as on arrival.

use std::sync::Arc;

use store::Table;
use wire::{Request, Status};

use super::{PendingRequest, PendingRequests};
use crate::limits::{RESUMED_PER_ROUND, RETRY_ARRIVING_US};
use crate::metrics::Counter;
use crate::ops::{WorkerEnvironment, commit, read};
use crate::session::{Route, Session};
use crate::view::RoundView;
use crate::view::catalog::WorkerCatalog;
use crate::worker::native;
use crate::worker::outgoing::{Addressee, Outgoing};
use crate::worker::places::{FramePlace, StreamPlace};
use crate::worker::ports::Exits;
use crate::worker::prefetch::{Located, locate};
use crate::worker::replies::{self, Caller, ReplyPlace, RequestOutcome};

/// The circumstances in which a request arrived.
#[derive(Clone, Copy)]
pub struct RequestContext<'s> {
    /// The session.
    pub session: &'s Arc<Session>,
    /// The request's number in the session.
    pub sequence: u64,
    /// The view under which it was sent.
    pub view: u64,
    /// Time since which it waits, in microseconds.
    pub since_us: u64,
}

/// Makes a request pending that [lacks](RequestOutcome::Lacks) objects, and requests those. If there is no room,
/// answers `Retry`. It allocates, and copies the request.
#[cold]
pub fn park(
    environment: &WorkerEnvironment<'_>,
    pending: &mut PendingRequests,
    came: RequestContext<'_>,
    (request, located): (&Request<'_>, Located<'_>),
    place: &mut impl ReplyPlace,
) {
    let lacks: Vec<(&Table, u64)> = match (*request, located.entry) {
        (Request::MultiGet { keys, .. }, Some(entry)) => read::lacking(environment.pin, entry, keys),
        (Request::Commit { changes }, _) => commit::lacking(environment, came.session.tenant, &changes),
        _ => located.part.map(|part| (part, located.hash)).into_iter().collect(),
    };
    let mut body = vec![0; request.body_bytes()];
    request.encode(&mut body);
    let RequestContext { session, sequence, view, since_us } = came;
    let parked = PendingRequest {
        session: Arc::clone(session),
        sequence,
        view,
        opcode: request.opcode(),
        body,
        route: place.route(),
        since_us,
    };
    let metrics = environment.metrics;
    let refused = if !lacks.is_empty() && lacks.iter().all(|(part, hash)| part.want(*hash)) {
        pending.park(parked, lacks.iter().map(|(part, hash)| (part.id(), *hash)).collect()).err()
    } else {
        Some(parked)
    };
    metrics.waits().set_waiting(pending.requests() as u64);
    match refused {
        None => metrics.count(Counter::RequestsParked),
        Some(parked) => {
            metrics.count(Counter::RequestsNotParked);
            parked.give_record_back();
            replies::retry_after(metrics, RETRY_ARRIVING_US, place);
        }
    }
}

/// The context in which pending requests execute again.
pub struct Resume<'w, P: Exits> {
    /// Store, tables, counters and time of this round.
    pub environment: WorkerEnvironment<'w>,
    /// Sessions and tables.
    pub catalog: &'w WorkerCatalog,
    /// The worker's view.
    pub view: RoundView,
    /// The port that sends frames.
    pub port: &'w mut P,
    /// Frames under construction.
    pub outgoing: &'w mut Outgoing,
    /// The pending requests.
    pub pending: &'w mut PendingRequests,
}

/// The fate of a pending request.
#[derive(Clone, Copy)]
enum Fate {
    GoesOn,
    IsGivenUp,
}

impl<P: Exits> Resume<'_, P> {
    /// Executes some of the due requests; answers `Retry` to those that waited too long.
    pub fn run(&mut self) {
        let (now_us, metrics) = (self.environment.now_us, self.environment.metrics);
        for _ in 0..RESUMED_PER_ROUND {
            let Some(parked) = self.pending.take_due() else { break };
            metrics.waits().note(now_us.saturating_sub(parked.since_us));
            self.conclude(&parked, Fate::GoesOn);
        }
        for _ in 0..RESUMED_PER_ROUND {
            let Some(parked) = self.pending.take_overdue(now_us) else { break };
            metrics.count(Counter::RequestsOverdue);
            self.conclude(&parked, Fate::IsGivenUp);
        }
        metrics.waits().set_waiting(self.pending.requests() as u64);
    }

    /// Answers `Retry` to all, because the worker stops.
    pub fn give_up_all(&mut self) {
        while let Some(parked) = self.pending.take_any() {
            self.conclude(&parked, Fate::IsGivenUp);
        }
    }

    fn conclude(&mut self, parked: &PendingRequest, fate: Fate) {
        let PendingRequest { session, sequence, route, .. } = parked;
        parked.give_record_back();
        let known = (self.catalog, self.view);
        match route {
            Route::Frame { port, peer, flags } => {
                let to = Addressee::of(session, (*port, *peer), *flags);
                let exits = (&mut *self.outgoing, &mut *self.port);
                let mut place = FramePlace::new(exits, &self.environment, (session, *sequence), to);
                answer(&self.environment, known, self.pending, (parked, fate), &mut place);
            }
            Route::Stream(answered, flags) => {
                let page = session.account.ledger.page(self.environment.core.index());
                let (outgoing, environment) = (&mut *self.outgoing, self.environment);
                let mut place = StreamPlace { outgoing, environment, answer: answered, flags: *flags, page };
                answer(&self.environment, known, self.pending, (parked, fate), &mut place);
            }
        }
    }
}

fn answer(
    environment: &WorkerEnvironment<'_>,
    (catalog, view): (&WorkerCatalog, RoundView),
    pending: &mut PendingRequests,
    (parked, fate): (&PendingRequest, Fate),
    place: &mut impl ReplyPlace,
) {
    let metrics = environment.metrics;
    let PendingRequest { session, sequence, view: sent_under, since_us, .. } = parked;
    let caller = Caller { session, sequence: *sequence };
    if catalog.session(session.token).is_none() {
        return replies::refuse(metrics, place, Status::BadToken);
    }
    if *sent_under != view.own {
        return replies::refuse_other_view(metrics, caller, view, place);
    }
    let request = match (fate, Request::decode(parked.opcode, &parked.body)) {
        (Fate::GoesOn, Ok(request)) => request,
        (Fate::GoesOn, Err(status)) => return replies::refuse(metrics, place, status),
        (Fate::IsGivenUp, _) => return replies::retry_after(metrics, RETRY_ARRIVING_US, place),
    };
    let located = locate(environment, session, &request);
    environment.core.take_seen();
    environment.core.ask_for_disk(parked.route.asks_synced());
    // Its table may have moved to memory meanwhile.
    if parked.route.asks_synced() && native::cannot_sync(&request, located) {
        return replies::refuse(metrics, place, Status::NotDurable);
    }
    if native::execute::<false>(environment, caller, &request, located, place) == RequestOutcome::Lacks {
        let came = RequestContext { session, sequence: *sequence, view: *sent_under, since_us: *since_us };
        park(environment, pending, came, (&request, located), place);
    }
}
