//! A session with a port of its own: many requests outstanding, completions polled.
//!
//! [`Session::submit`] queues, [`Session::poll`] moves: it sends what is queued or due again, as few frames
//! as it fits in, takes what has arrived and completes it. No thread, no lock, and no allocation per request
//! once the buffers have grown. Requests are not ordered among each other.
//!
//! [`Session::call`] waits for one answer. It may be mixed with submitting: what completes meanwhile is
//! delivered by the next poll.

use std::time::{Duration, Instant};

use net::{Batch, IdleAction, Outbox, Port, UdpPort};
use wire::{Completion, CompletionError, Request, SessionLimits, Status};

use crate::config::{Identity, resolve};
use crate::exchange::Exchange;
use crate::{ClientConfig, Error, SessionStatistics};

/// Bits of a tag that are the caller's; the two above tell whose it is.
const TAG_BITS: u32 = 62;
/// Tags of callers.
const CALLERS_TAGS: u64 = 0;
/// Tags of blocking calls.
const OWN_TAGS: u64 = 1 << 63;
/// Frames that one poll sends at most before it looks at what has arrived.
const OUTBOX_FRAMES: usize = 64;
/// Longest sleep of a blocking call, in case its waker is lost with a thread.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A completion that came while a blocking call waited for another.
struct Parked {
    tag: u64,
    sequence: u64,
    status: Result<Status, CompletionError>,
    body: Vec<u8>,
}

/// Time since a waiting loop last found something.
pub(crate) struct Idle {
    since: Instant,
}

impl Idle {
    pub(crate) fn new() -> Idle {
        Idle { since: Instant::now() }
    }

    fn elapsed_us(&self) -> u64 {
        self.since.elapsed().as_micros() as u64
    }
}

/// An open session of a tenant.
pub struct Session {
    exchange: Exchange,
    port: Box<dyn Port>,
    batch: Batch,
    outbox: Outbox,
    parked: Vec<Parked>,
    /// Tags given to blocking calls so far.
    own_tags: u64,
    /// Requests of blocking calls without a completion.
    own_outstanding: usize,
    statistics: SessionStatistics,
    started: Instant,
    /// The time of the latest look at the clock; requests submitted between two polls share one look.
    now_us: u64,
    clock_is_fresh: bool,
    /// The port knows its peer.
    peer: std::net::SocketAddr,
}

impl Session {
    /// Opens a session of a tenant with the server at `address` (host and TCP port), with a socket of its
    /// own.
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    pub fn open(address: &str, tenant: &str, secret: &str, config: ClientConfig) -> Result<Session, Error> {
        let server = resolve(address)?;
        let any = match server {
            std::net::SocketAddr::V4(_) => "0.0.0.0:0",
            std::net::SocketAddr::V6(_) => "[::]:0",
        };
        let local = resolve(any)?;
        let port = UdpPort::bind(local, config.udp).map_err(|error| Error::Port { error })?;
        Session::open_over(Box::new(port), address, tenant, secret, config)
    }

    /// Opens a session whose datagrams travel over `port`.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_over(
        mut port: Box<dyn Port>,
        address: &str,
        tenant: &str,
        secret: &str,
        config: ClientConfig,
    ) -> Result<Session, Error> {
        let identity =
            Identity { server: resolve(address)?, tenant: tenant.to_owned(), secret: secret.to_owned() };
        let frame_bytes_max = port.frame_bytes_max();
        let mut exchange = Exchange::open(identity, config, frame_bytes_max, port.waker())?;
        let peer = exchange.home();
        port.set_peer(peer).map_err(|error| Error::Port { error })?;
        Ok(Session {
            exchange,
            batch: Batch::new(),
            outbox: Outbox::with_frames(OUTBOX_FRAMES, frame_bytes_max),
            parked: Vec::new(),
            own_tags: 0,
            own_outstanding: 0,
            statistics: SessionStatistics::default(),
            started: Instant::now(),
            now_us: 0,
            clock_is_fresh: false,
            peer,
            port,
        })
    }

    /// Queues a request. Its completion carries `tag`, which may be anything below 2^62. Copies the
    /// request; nothing is sent before [`Session::poll`] or [`Session::flush`].
    ///
    /// # Errors
    /// [`Error::Full`] when the window has no place: poll. [`Error::Refused`] for what no server takes.
    #[inline]
    pub fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<(), Error> {
        if !self.clock_is_fresh {
            self.read_clock();
            self.clock_is_fresh = true;
        }
        self.exchange.submit(self.now_us, tag, request, &mut self.statistics)
    }

    /// Whether [`Session::submit`] would find a place.
    #[must_use]
    #[inline]
    pub fn can_submit(&self) -> bool {
        self.exchange.can_submit()
    }

    /// Requests whose completion has not been delivered.
    #[must_use]
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.exchange.outstanding() + self.parked.len()
    }

    /// Sends what is queued or due again, takes what has arrived, hands each completion to `complete` and
    /// returns their number. Returns at once; only when the server has forgotten the session, it waits until
    /// that is open again, for the time of a call at most.
    ///
    /// # Errors
    /// The port failed, or the session is lost and cannot be opened again.
    #[inline]
    pub fn poll(&mut self, complete: &mut impl FnMut(Completion<'_>)) -> Result<usize, Error> {
        let mut completed = 0;
        self.poll_some(CALLERS_TAGS, &mut |completion| {
            completed += 1;
            complete(completion);
        })?;
        Ok(completed)
    }

    /// Sends what is queued or due again, without looking for answers.
    ///
    /// # Errors
    /// The port failed.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.read_clock();
        self.transmit()
    }

    /// Sleeps until something arrives or is due, `timeout` at most. For a loop of its own around
    /// [`Session::poll`].
    ///
    /// # Errors
    /// The port failed.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.read_clock();
        let due = match self.exchange.next_deadline_us() {
            Some(due_us) => Duration::from_micros(due_us.saturating_sub(self.now_us)),
            None => timeout,
        };
        self.port.wait(timeout.min(due)).map_err(|error| Error::Port { error })
    }

    /// Polls until something is completed, as [`Session::poll`] says it; 0 when nothing is outstanding.
    ///
    /// # Errors
    /// As [`Session::poll`].
    pub fn poll_waiting(&mut self, complete: &mut impl FnMut(Completion<'_>)) -> Result<usize, Error> {
        let idle = Idle::new();
        loop {
            let completed = self.poll(complete)?;
            if completed > 0 || self.exchange.outstanding() == 0 {
                return Ok(completed);
            }
            self.idle(&idle)?;
        }
    }

    /// Submits a request and waits for its answer: the status, and the body in `body`.
    ///
    /// # Errors
    /// When there is no answer; a refusal is an answer.
    pub fn call(&mut self, request: &Request<'_>, body: &mut Vec<u8>) -> Result<Status, Error> {
        let tag = self.own_tags(1);
        let mut answer = None;
        let mut take = |completion: Completion<'_>| {
            if completion.tag == tag {
                body.clear();
                body.extend_from_slice(completion.body);
                answer = Some(completion.status);
            }
        };
        self.submit_own(request, tag, &mut take)?;
        self.await_own(&mut take)?;
        match answer {
            Some(status) => Ok(status?),
            None => Err(Error::NotSent),
        }
    }

    /// The first of `count` tags for a blocking call.
    pub(crate) fn own_tags(&mut self, count: usize) -> u64 {
        let first = OWN_TAGS | self.own_tags;
        self.own_tags += count as u64;
        first
    }

    /// Submits under a tag of [`Session::own_tags`], waiting for a place if there is none.
    pub(crate) fn submit_own(
        &mut self,
        request: &Request<'_>,
        tag: u64,
        take: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        self.clock_is_fresh = false;
        let idle = Idle::new();
        loop {
            match self.submit(request, tag) {
                Ok(()) => {
                    self.own_outstanding += 1;
                    return Ok(());
                }
                Err(Error::Full) => self.advance_own(take)?,
                Err(error) => return Err(error),
            }
            self.idle(&idle)?;
        }
    }

    /// Waits until all that was submitted by [`Session::submit_own`] is complete.
    pub(crate) fn await_own(&mut self, take: &mut impl FnMut(Completion<'_>)) -> Result<(), Error> {
        let mut idle = Idle::new();
        loop {
            let received = self.statistics.frames_received;
            self.advance_own(take)?;
            if self.own_outstanding == 0 {
                return Ok(());
            }
            if self.statistics.frames_received != received {
                idle = Idle::new();
            }
            self.idle(&idle)?;
        }
    }

    /// What this session has moved.
    #[must_use]
    pub fn statistics(&self) -> SessionStatistics {
        self.statistics
    }

    /// Sizes that the server takes from this session.
    #[must_use]
    pub fn limits(&self) -> SessionLimits {
        self.exchange.limits()
    }

    /// Requests that may be outstanding.
    #[must_use]
    pub fn credits(&self) -> u16 {
        self.exchange.credits()
    }

    /// The client's id, by which the session is listed and revoked.
    #[must_use]
    pub fn client_id(&self) -> u64 {
        self.exchange.client_id()
    }

    /// Smoothed time from sending to reply; `None` before the first sample.
    #[must_use]
    pub fn round_trip_us(&self) -> Option<u64> {
        self.exchange.round_trip_us()
    }

    /// Datagrams that arrived and were lost in the local queue.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.port.drops()
    }

    /// Makes an administrative request over the session's stream.
    pub(crate) fn administer(
        &mut self,
        code: u8,
        body: &[u8],
        repeatable: bool,
    ) -> Result<(Status, Vec<u8>), Error> {
        let config = self.exchange.config();
        let timeout = match code {
            wire::opcode::EXTENSION_INSTALL => config.install_timeout,
            _ => config.admin_timeout,
        };
        self.exchange.administer(code, body, repeatable, timeout)
    }

    /// Spins, yields or sleeps, by the time without work.
    pub(crate) fn idle(&mut self, idle: &Idle) -> Result<(), Error> {
        match self.exchange.config().idle.next(idle.elapsed_us()) {
            IdleAction::Spin => std::hint::spin_loop(),
            IdleAction::Yield => std::thread::yield_now(),
            IdleAction::Sleep => self.wait(SLEEP_MAX)?,
        }
        Ok(())
    }

    fn read_clock(&mut self) {
        self.now_us = self.started.elapsed().as_micros() as u64;
    }

    #[inline]
    fn advance(&mut self, complete: &mut impl FnMut(Completion<'_>)) -> Result<(), Error> {
        self.read_clock();
        self.clock_is_fresh = false;
        self.transmit()?;
        if self.port.receive(&mut self.batch).map_err(|error| Error::Port { error })? > 0 {
            self.statistics.frames_received += self.batch.len() as u64;
            for (frame, _) in self.batch.frames() {
                self.statistics.bytes_received += frame.len() as u64;
                if self.exchange.on_frame(self.now_us, frame, complete).is_err() {
                    self.statistics.frames_refused += 1;
                }
            }
        }
        let settled = self.exchange.settle(self.now_us, &mut self.statistics, complete);
        let home = self.exchange.home();
        if home != self.peer {
            self.port.set_peer(home).map_err(|error| Error::Port { error })?;
            self.peer = home;
        }
        settled
    }

    /// Advances for blocking calls: their completions go to `take`, those of others are parked.
    fn advance_own(&mut self, take: &mut impl FnMut(Completion<'_>)) -> Result<(), Error> {
        let mut taken = 0;
        let advanced = self.poll_some(OWN_TAGS, &mut |completion| {
            taken += 1;
            take(completion);
        });
        self.own_outstanding = self.own_outstanding.saturating_sub(taken);
        // An answer that came is worth more than trouble that came with it.
        if taken > 0 { Ok(()) } else { advanced }
    }

    /// Advances: completions whose tags start like `tags` go to `take`, those of others are parked.
    #[inline]
    pub(crate) fn poll_some(
        &mut self,
        tags: u64,
        take: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        let mut parked = std::mem::take(&mut self.parked);
        if !parked.is_empty() {
            take_parked(&mut parked, tags, take);
        }
        let advanced = self.advance(&mut |completion| {
            let Completion { tag, sequence, status, body } = completion;
            if tag >> TAG_BITS == tags >> TAG_BITS {
                take(completion);
            } else {
                parked.push(Parked { tag, sequence, status, body: body.to_vec() });
            }
        });
        self.parked = parked;
        advanced
    }

    #[inline]
    fn transmit(&mut self) -> Result<(), Error> {
        while self.exchange.wants_transmit(self.now_us) {
            self.fill_outbox();
            if self.outbox.is_empty() {
                break;
            }
            self.port.send(&mut self.outbox).map_err(|error| Error::Port { error })?;
        }
        Ok(())
    }

    #[inline]
    fn fill_outbox(&mut self) {
        while let Some(index) = self.outbox.open(self.peer) {
            let filled = self.exchange.poll_transmit(self.now_us, self.outbox.buffer(index));
            let Some(frame_bytes) = filled else {
                self.outbox.set_bytes(index, 0);
                if index == 0 {
                    self.outbox.clear();
                }
                return;
            };
            self.outbox.set_bytes(index, frame_bytes);
            self.statistics.frames_sent += 1;
            self.statistics.bytes_sent += frame_bytes as u64;
        }
    }
}

/// Delivers the parked completions whose tags start like `tags`.
#[cold]
fn take_parked(parked: &mut Vec<Parked>, tags: u64, take: &mut impl FnMut(Completion<'_>)) {
    for Parked { tag, sequence, status, body } in
        parked.extract_if(.., |it| it.tag >> TAG_BITS == tags >> TAG_BITS)
    {
        take(Completion { tag, sequence, status, body: &body });
    }
}
