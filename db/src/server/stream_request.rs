//! Serves a data request of a stream on the session's home worker.
//!
//! The operations, the exactly-once ring and the sequences are the same as for frames. Only the place of the reply
//! differs: the reply is sent to the stream's control thread, which waits for it. Streams carry messages that do not
//! fit a frame, so copies and allocations here are not on the hot path.

use wire::{Request, Status};

use super::catalog::WorkerCatalog;
use super::change::StreamRequest;
use super::invocation;
use super::native;
use super::pending_requests::{self, PendingRequests, RequestContext};
use super::prefetch::locate;
use super::replies::{self, Caller, RequestOutcome, StreamPlace};
use super::view::RoundView;
use crate::extension::invocation::Invocations;
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::session::Origin;
use crate::tenant::ledger::Entry;
use crate::tenant::limit::TenantLimit;

/// Serves one request; its answer goes to the stream's thread, now or when its invocation ends.
pub fn serve(
    environment: &WorkerEnvironment<'_>,
    (catalog, view): (&WorkerCatalog, RoundView),
    (invocations, pending): (&mut Invocations<Origin>, &mut PendingRequests),
    stream_request: &StreamRequest,
) {
    let StreamRequest { session, sequence, first_unacknowledged, opcode, .. } = stream_request;
    let metrics = environment.metrics;
    metrics.count(Counter::Requests);
    metrics.count(Counter::StreamRequests);
    let page = session.account.ledger.page(environment.core.index());
    page.add(Entry::Requests, 1);
    page.add(Entry::BytesReceived, stream_request.body().len() as u64);
    let mut place = StreamPlace { answer: &stream_request.answer, page };
    if catalog.session(session.token).is_none() {
        return replies::refuse(metrics, &mut place, Status::BadToken);
    }
    session.seen(environment.now_us);
    session.ring.acknowledge(*first_unacknowledged);
    let admission = session.account.admit(environment.now_us, 1);
    if admission.admitted == 0 {
        let (caller, limit) = (Caller { session, sequence: *sequence }, TenantLimit::OperationsPerSecond);
        return replies::throttle(metrics, caller, limit, admission.after_us(0), &mut place);
    }
    if stream_request.view != view.own {
        let caller = Caller { session, sequence: *sequence };
        return replies::refuse_other_view(metrics, caller, view, &mut place);
    }
    let request = match Request::decode(*opcode, stream_request.body()) {
        Ok(request) => request,
        Err(status) => return replies::refuse(metrics, &mut place, status),
    };
    page.add(Entry::of(&request), 1);
    let located = locate(environment, session, &request);
    if let Request::Invoke { .. } = request {
        let (caller, request) = ((session, *sequence), (&request, located));
        invocation::start(environment, catalog, invocations, caller, request, &mut place);
    } else {
        let caller = Caller { session, sequence: *sequence };
        if native::execute::<true>(environment, caller, &request, located, &mut place)
            == RequestOutcome::Lacks
        {
            let (sequence, view, since_us) = (*sequence, view.own, environment.now_us);
            let came = RequestContext { session, sequence, view, takes_parts: false, since_us };
            pending_requests::park(environment, pending, came, (&request, located), &mut place);
        }
    }
}
