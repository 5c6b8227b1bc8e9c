//! Dispatch of a batch, from received frames to their replies, and of the data requests of streams.
//!
//! ```text
//!   frame -> view -> group -> session -> message -> request ─┐  decode: hash, table, prefetch the bucket
//!                                                           ▼
//!                     chunk of 32 requests, of any frames and sessions
//!                     prefetch all objects -> execute in order -> reply into the peer's outgoing frame
//! ```
//! Decoding a whole chunk before execution lets the memory misses of its requests overlap, which is worth a factor of
//! five. Native requests run to completion here, unless they lack objects that have not arrived yet: those become
//! pending. Invocations are started here and run by the worker. Everything borrows from the batch and the catalog;
//! nothing is allocated.
//!
//! Every request of a session gets a typed status, malformed ones included. A group without a session gets `BadToken`
//! for each of its messages, never more bytes than it brought, and only within its source's rate. An invalid frame is
//! counted and dropped.

use std::net::SocketAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use net::Batch;
use wire::limits::{ASKS_SYNCED, TAKES_PARTS};
use wire::{FrameReader, Group, Message, Request, Status};

use super::batch_admission::BatchAdmission;
use super::invocation;
use super::native;
use super::outgoing::{Addressee, Outgoing};
use super::pending_requests::{self, PendingRequests, RequestContext};
use super::places::{FramePlace, StreamPlace};
use super::ports::Exits;
use super::prefetch::{Located, Sessions, TablePrefetch, locate, prefetch_extensions};
use super::replies::{self, Caller, RequestOutcome};
use super::response_limiter::ResponseLimiter;
use crate::extension::invocation::Invocations;
use crate::limits::{CHUNK_REQUESTS, INVOCATIONS_PER_TURN};
use crate::metrics::Counter;
use crate::ops::{WorkerEnvironment, read, write};
use crate::session::{Origin, Session};
use crate::tenant::ledger::{Entry, Page};
use crate::tenant::limit::TenantLimit;
use crate::view::RoundView;
use crate::view::catalog::WorkerCatalog;
use crate::view::change::StreamRequest;

/// The context in which one round of a worker dispatches a batch.
pub struct Dispatch<'w, P: Exits> {
    /// Store, tables, counters and time of this round.
    pub environment: WorkerEnvironment<'w>,
    /// Sessions, tables and extensions.
    pub catalog: &'w WorkerCatalog,
    /// The port that sends frames.
    pub port: &'w mut P,
    /// Index of the worker at whose port the frames arrived.
    pub arrived_at: u16,
    /// Frames under construction.
    pub outgoing: &'w mut Outgoing,
    /// Rate limit for replies to sources without a session.
    pub refusals: &'w mut ResponseLimiter,
    /// Limits of one session and one tenant within a batch.
    pub admission: &'w mut BatchAdmission,
    /// Invocations of this worker.
    pub invocations: &'w mut Invocations<Origin>,
    /// Pending requests.
    pub pending: &'w mut PendingRequests,
    /// The worker's view.
    pub view: RoundView,
    /// Number of live invocations at which they run before the batch ends: the pending ones plus few enough that their
    /// memory is still in the cache.
    pub run_at: usize,
}

/// A decoded request of a chunk.
struct Pending<'b> {
    request: Request<'b>,
    session: &'b Arc<Session>,
    located: Located<'b>,
    sequence: u64,
    peer: SocketAddr,
    /// See [`Addressee::flags`].
    flags: u8,
}

/// Requests that execute together. Unused places stay uninitialized: writing `None` into all of them took longer than
/// a get.
struct Chunk<'b> {
    pending: ArrayVec<Pending<'b>, CHUNK_REQUESTS>,
    tables: TablePrefetch<'b>,
}

impl<'w, P: Exits> Dispatch<'w, P> {
    /// Serves all frames of a batch and writes the replies into outgoing frames.
    pub fn batch(&mut self, batch: &'w Batch) {
        let mut chunk = Chunk { pending: ArrayVec::new(), tables: TablePrefetch::default() };
        let metrics = self.environment.metrics;
        let mut bytes_received = 0;
        self.admission.begin();
        for (frame, peer) in batch.frames() {
            bytes_received += frame.len() as u64;
            let Ok(reader) = FrameReader::new(frame) else {
                metrics.count(Counter::FramesMalformed);
                continue;
            };
            let sessions = Sessions::of(&reader, self.catalog, self.environment.core.index());
            for (index, group) in reader.groups().enumerate() {
                let Ok(group) = group else {
                    metrics.count(Counter::FramesMalformed);
                    break;
                };
                match sessions.session(index, group.token, self.catalog) {
                    Some(session) => self.group(&mut chunk, &group, session, peer, reader.view()),
                    None => self.refuse_group(&group, peer),
                }
            }
        }
        self.execute(&mut chunk);
        metrics.add(Counter::FramesReceived, batch.len() as u64);
        metrics.add(Counter::BytesReceived, bytes_received);
    }

    fn group(
        &mut self,
        chunk: &mut Chunk<'w>,
        group: &Group<'w>,
        session: &'w Arc<Session>,
        peer: SocketAddr,
        view: u64,
    ) {
        session.seen(self.environment.now_us);
        session.ring.acknowledge(group.first_unacknowledged);
        let now_us = self.environment.now_us;
        let (page, messages) = (self.page(session), u64::from(group.message_count()));
        let share = self.admission.share(session, page, messages, now_us);
        let admission = session.account.admit(now_us, messages.min(share.served));
        let admitted = admission.admitted.min(share.served);
        let (mut requests, mut body_bytes) = (0, 0);
        for message in group.messages() {
            let Ok(message) = message else {
                self.environment.metrics.count(Counter::FramesMalformed);
                break;
            };
            if requests == share.answered {
                self.environment.metrics.add(Counter::MessagesDropped, messages.saturating_sub(requests));
                break;
            }
            requests += 1;
            body_bytes += message.body.len();
            let sequence = group.sequence(message.sequence_low);
            if requests > admitted {
                let after_us = (requests <= share.served).then(|| admission.after_us(requests - 1));
                self.hold_off(session, sequence, peer, after_us);
                continue;
            }
            let decoded = if view == self.view.own {
                Request::decode(message.code, message.body)
            } else {
                Err(Status::WrongView)
            };
            match decoded {
                Ok(request) => {
                    let may_take_parts = message.flags & TAKES_PARTS == 0 || session.is_reached_at(peer.ip());
                    let flags = if may_take_parts { message.flags } else { message.flags & !TAKES_PARTS };
                    let located =
                        chunk.tables.locate(&self.environment, session, &request, chunk.pending.len());
                    self.admit(chunk, Pending { request, session, located, sequence, peer, flags });
                }
                Err(Status::WrongView) => self.refuse_other_view(session, sequence, peer),
                Err(status) => {
                    let metrics = self.environment.metrics;
                    replies::refuse(metrics, &mut self.place(session, sequence, peer), status);
                }
            }
        }
        self.environment.metrics.add(Counter::Requests, requests);
        page.add(Entry::Requests, requests);
        page.add(Entry::BytesReceived, body_bytes as u64);
    }

    /// Answers a request beyond its tenant's rate, which may be sent again after `throttled_us`, or beyond its batch
    /// limit.
    #[cold]
    fn hold_off(
        &mut self,
        session: &'w Arc<Session>,
        sequence: u64,
        peer: SocketAddr,
        throttled_us: Option<u32>,
    ) {
        let (metrics, caller) = (self.environment.metrics, Caller { session, sequence });
        let (limit, mut place) = (TenantLimit::OperationsPerSecond, self.place(session, sequence, peer));
        match throttled_us {
            Some(after_us) => replies::throttle(metrics, caller, limit, after_us, &mut place),
            None => replies::answer_later(metrics, &mut place),
        }
    }

    /// Answers a request that was sent under another view.
    #[cold]
    fn refuse_other_view(&mut self, session: &'w Arc<Session>, sequence: u64, peer: SocketAddr) {
        let (metrics, view) = (self.environment.metrics, self.view);
        let mut place = self.place(session, sequence, peer);
        replies::refuse_other_view(metrics, Caller { session, sequence }, view, &mut place);
    }

    /// Puts a request into the chunk; executes the chunk when it is full.
    #[inline]
    fn admit(&mut self, chunk: &mut Chunk<'w>, pending: Pending<'w>) {
        chunk.pending.push(pending);
        if chunk.pending.is_full() {
            self.execute(chunk);
        }
    }

    /// Executes the chunk's requests and empties it.
    fn execute(&mut self, chunk: &mut Chunk<'w>) {
        let Chunk { pending: chunk, tables } = chunk;
        tables.locate_all(&self.environment, chunk, |it| (&mut it.located, it.session, &it.request));
        for pending in chunk.iter() {
            let Located { part, hash, .. } = pending.located;
            if let Some(part) = part {
                match pending.request {
                    Request::Put { key, .. } | Request::PutFor { key, .. } | Request::Delete { key, .. } => {
                        write::prefetch_replaced(self.environment.pin, part, hash, key.len());
                    }
                    _ => read::prefetch_object(self.environment.pin, part, hash),
                }
            }
        }
        let requests = chunk.iter().map(|pending| &pending.request);
        prefetch_extensions(requests, self.catalog, self.invocations, self.environment.core.index());
        for pending in chunk.iter() {
            self.run(pending);
        }
        chunk.clear();
        if self.invocations.live() >= self.run_at {
            if self.invocations.expects_long_polls() {
                self.outgoing.send_hurried(self.port, self.environment.metrics);
            }
            invocation::run(&self.environment, self.invocations, self.port, self.outgoing);
            self.run_at = self.invocations.live() + INVOCATIONS_PER_TURN;
        }
    }

    #[inline]
    fn run(&mut self, pending: &Pending<'_>) {
        let (environment, session) = (self.environment, pending.session);
        let caller = Caller { session, sequence: pending.sequence };
        let (catalog, invocations) = (self.catalog, &mut *self.invocations);
        let to = Addressee::of(session, (self.arrived_at, pending.peer), pending.flags);
        let exits = (&mut *self.outgoing, &mut *self.port);
        let mut place = FramePlace::new(exits, &environment, (session, pending.sequence), to);
        place.page.add(Entry::of(&pending.request), 1);
        environment.core.ask_for_disk(pending.flags & ASKS_SYNCED != 0);
        if pending.flags & ASKS_SYNCED != 0 && native::cannot_sync(&pending.request, pending.located) {
            replies::refuse(environment.metrics, &mut place, Status::NotDurable);
        } else if let Request::Invoke { .. } = pending.request {
            invocation::start(
                &environment,
                catalog,
                invocations,
                (session, pending.sequence),
                (&pending.request, pending.located),
                &mut place,
            );
        } else {
            let turn =
                native::execute::<true>(&environment, caller, &pending.request, pending.located, &mut place);
            if turn == RequestOutcome::Lacks {
                self.park(pending);
            }
        }
    }

    /// Makes a request pending that lacks objects.
    #[cold]
    fn park(&mut self, pending: &Pending<'_>) {
        self.environment.core.take_seen();
        let Pending { session, sequence, peer, flags, .. } = *pending;
        let environment = self.environment;
        let (view, since_us) = (self.view.own, environment.now_us);
        let came = RequestContext { session, sequence, view, since_us };
        let exits = (&mut *self.outgoing, &mut *self.port);
        let to = Addressee::of(session, (self.arrived_at, peer), flags);
        let mut place = FramePlace::new(exits, &environment, (session, sequence), to);
        let wanted = (&pending.request, pending.located);
        pending_requests::park(&environment, self.pending, came, wanted, &mut place);
    }

    /// Answers each message of a group without a session, in no more bytes than the group has.
    #[cold]
    fn refuse_group(&mut self, group: &Group<'_>, peer: SocketAddr) {
        let environment = self.environment;
        let is_late = self.catalog.has_ended(group.token);
        let counter = if is_late { Counter::GroupsOfEndedSessions } else { Counter::GroupsUnauthenticated };
        environment.metrics.count(counter);
        if !self.refusals.take_for(peer, environment.now_us) {
            environment.metrics.count(Counter::GroupsUnanswered);
            return;
        }
        let to = Addressee { port: self.arrived_at, peer, token: group.token, home_core: 0, flags: 0 };
        for Message { sequence_low, .. } in group.messages().map_while(Result::ok) {
            let head = (sequence_low, Status::BadToken);
            self.outgoing.reply(self.port, environment.metrics, &to, head, 0, |_| {});
        }
    }

    /// Returns the worker's page in the ledger of a session's tenant.
    #[inline]
    fn page<'s>(&self, session: &'s Session) -> &'s Page {
        session.account.ledger.page(self.environment.core.index())
    }

    /// Returns the place of a short answer.
    fn place<'s>(&'s mut self, session: &'s Session, sequence: u64, peer: SocketAddr) -> FramePlace<'s, P> {
        let to = Addressee::of(session, (self.arrived_at, peer), 0);
        FramePlace::new((self.outgoing, self.port), &self.environment, (session, sequence), to)
    }
}

/// Serves a data request of a stream on the session's home worker; its answer goes to the stream's thread, now or when
/// its invocation ends.
///
/// The operations, the exactly-once ring and the sequences are the same as for frames. Only the place of the reply
/// differs: the stream's control thread waits for it. Streams carry messages that do not fit a frame, so copies and
/// allocations here are not on the hot path.
pub fn stream_request(
    environment: &WorkerEnvironment<'_>,
    (catalog, view): (&WorkerCatalog, RoundView),
    (invocations, pending, outgoing): (&mut Invocations<Origin>, &mut PendingRequests, &mut Outgoing),
    asked: &StreamRequest,
) {
    let StreamRequest { session, sequence, first_unacknowledged, opcode, flags, .. } = asked;
    let metrics = environment.metrics;
    metrics.count(Counter::Requests);
    metrics.count(Counter::StreamRequests);
    let page = session.account.ledger.page(environment.core.index());
    page.add(Entry::Requests, 1);
    page.add(Entry::BytesReceived, asked.body().len() as u64);
    let (answer, flags) = (&asked.answer, *flags);
    let mut place = StreamPlace { outgoing, environment: *environment, answer, flags, page };
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
    if asked.view != view.own {
        let caller = Caller { session, sequence: *sequence };
        return replies::refuse_other_view(metrics, caller, view, &mut place);
    }
    let request = match Request::decode(*opcode, asked.body()) {
        Ok(request) => request,
        Err(status) => return replies::refuse(metrics, &mut place, status),
    };
    page.add(Entry::of(&request), 1);
    let located = locate(environment, session, &request);
    environment.core.ask_for_disk(flags & ASKS_SYNCED != 0);
    if flags & ASKS_SYNCED != 0 && native::cannot_sync(&request, located) {
        replies::refuse(metrics, &mut place, Status::NotDurable);
    } else if let Request::Invoke { .. } = request {
        let (caller, request) = ((session, *sequence), (&request, located));
        invocation::start(environment, catalog, invocations, caller, request, &mut place);
    } else {
        let caller = Caller { session, sequence: *sequence };
        if native::execute::<true>(environment, caller, &request, located, &mut place)
            == RequestOutcome::Lacks
        {
            let (sequence, view, since_us) = (*sequence, view.own, environment.now_us);
            let came = RequestContext { session, sequence, view, since_us };
            pending_requests::park(environment, pending, came, (&request, located), &mut place);
        }
    }
}
