//! A session with a separate port: many outstanding requests, polled completions.
//!
//! [`Session::submit`] queues a request. [`Session::poll`] sends queued requests and due retransmissions in as few
//! frames as possible, receives frames, and delivers completions. No thread, no lock, and no allocation per request
//! once the buffers have grown. Requests are not ordered among each other.
//!
//! [`Session::call`] waits for one reply. It may be mixed with `submit`: the next poll delivers the other requests that
//! complete meanwhile.

#[cfg(feature = "tokio")]
mod driven;
mod waiting;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use net::{Batch, Outbox, Port};
use wire::{Completion, Opened, Request, RequestDurability, SessionLimits};

use self::waiting::{CALLERS_TAGS, Parked};

use crate::config::{Identity, SessionSettings};
use crate::connection::Connection;
use crate::limits::OUTBOX_FRAMES;
use crate::router::{HOME, Router};
use crate::session_state::{SessionState, open_any};
use crate::transport::{Channels, bind};
use crate::watch::Watch;

use crate::{ClientConfig, Error, SessionStatistics};

/// An open session of a tenant.
pub struct Session {
    router: Router,
    port: Box<dyn Port>,
    links: Channels,
    batch: Batch,
    outbox: Outbox,
    parked: Vec<Parked>,
    /// Number of tags given to blocking calls so far.
    own_tags: u64,
    /// Number of outstanding requests of blocking calls.
    own_outstanding: usize,
    statistics: SessionStatistics,
    watch: Watch,
    /// Number of the home that is the port's only peer. 0 before the first; `None` with several servers.
    peer: Option<u32>,
    /// See [`Session::next_generation`].
    generations: u64,
}

impl Session {
    /// Opens a session of a tenant with a server, over a separate socket. `address` is its host and TCP port. It may
    /// list several servers of a cluster, separated by commas: the session opens with the first that answers, and
    /// each further one is tried after some milliseconds.
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    pub fn open(address: &str, tenant: &str, secret: &str, config: ClientConfig) -> Result<Session, Error> {
        let (identity, opened) = open_any(address, (tenant, secret), &config)?;
        let any = match identity.server {
            SocketAddr::V4(_) => "0.0.0.0:0",
            SocketAddr::V6(_) => "[::]:0",
        };
        Session::over(bind(any, &config)?, (identity, opened), config)
    }

    /// Opens a session whose datagrams travel over `port`.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open_over(
        port: Box<dyn Port>,
        address: &str,
        tenant: &str,
        secret: &str,
        config: ClientConfig,
    ) -> Result<Session, Error> {
        let opened = open_any(address, (tenant, secret), &config)?;
        Session::over(port, opened, config)
    }

    fn over(
        mut port: Box<dyn Port>,
        opened: (Identity, (Connection, Opened)),
        config: ClientConfig,
    ) -> Result<Session, Error> {
        let mut links = Channels::default();
        let mut session = Session {
            router: Router::over(opened, config, &mut *port, &mut links, 0)?,
            links,
            batch: Batch::new(),
            outbox: Outbox::with_frames(OUTBOX_FRAMES, port.frame_bytes_max()),
            parked: Vec::new(),
            own_tags: 0,
            own_outstanding: 0,
            statistics: SessionStatistics::default(),
            watch: Watch::start(),
            peer: Some(0),
            port,
            generations: 0,
        };
        session.follow_home()?;
        Ok(session)
    }

    /// Queues a copy of a request. Its completion carries `tag`, which may be anything below 2^62. Nothing is sent
    /// before [`Session::poll`] or [`Session::flush`].
    ///
    /// # Errors
    /// [`Error::Full`] if the window is full: poll. [`Error::Refused`] for a request that no server accepts.
    #[inline]
    pub fn submit(&mut self, request: &Request<'_>, tag: u64) -> Result<(), Error> {
        let now_us = self.watch.queue();
        self.router.submit(now_us, tag, request, &mut self.statistics).map(drop)
    }

    /// Does work whose requests say whether this client can run the invoked function itself, so that they may be answered with
    /// [`wire::Status::PushedBack`].
    #[cfg(feature = "modules")]
    pub(crate) fn with_push_back<T>(
        &mut self,
        may_push_back: bool,
        work: impl FnOnce(&mut Session) -> T,
    ) -> T {
        self.router.may_push_back = may_push_back;
        let done = work(self);
        self.router.may_push_back = false;
        done
    }

    /// Returns a number for a run of an executor of this session: of `bits` bits, each time the next one.
    pub(crate) fn next_generation(&mut self, bits: u32) -> u64 {
        self.generations = (self.generations + 1) & ((1 << bits) - 1);
        self.generations
    }

    /// Returns what replies to later requests wait for.
    pub(crate) fn durability(&self) -> RequestDurability {
        self.router.durability
    }

    /// Does work whose requests wait for something else than the others.
    pub(crate) fn with_durability<T>(
        &mut self,
        durability: RequestDurability,
        work: impl FnOnce(&mut Session) -> T,
    ) -> T {
        let usual = std::mem::replace(&mut self.router.durability, durability);
        let done = work(self);
        self.router.durability = usual;
        done
    }

    /// Sets what replies to later requests of this session wait for: the durability of each one's table, or one that the
    /// caller chooses. A request that is in transit keeps its own. Costs nothing, so each request can have another.
    pub fn set_durability(&mut self, durability: RequestDurability) {
        self.router.durability = durability;
    }

    /// Returns whether the window of [`Session::submit`] has room.
    #[must_use]
    #[inline]
    pub fn can_submit(&self) -> bool {
        self.router.can_submit()
    }

    /// Returns the number of requests without a delivered completion.
    #[must_use]
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.router.outstanding() + self.parked.len()
    }

    /// Sends queued requests and due retransmissions, and receives. Passes each completion to `complete` and returns
    /// their number. Does not block, except that it reopens a session that the server has ended, for at most the time
    /// of a call.
    ///
    /// # Errors
    /// The port failed, or the session is lost and cannot be reopened.
    #[inline]
    pub fn poll(&mut self, complete: &mut impl FnMut(Completion<'_>)) -> Result<usize, Error> {
        let mut completed = 0;
        self.poll_some(CALLERS_TAGS, &mut |completion| {
            completed += 1;
            complete(completion);
        })?;
        Ok(completed)
    }

    /// Sends queued requests and due retransmissions, without receiving.
    ///
    /// # Errors
    /// The port failed.
    pub fn flush(&mut self) -> Result<(), Error> {
        let now_us = self.watch.look();
        self.transmit(now_us)
    }

    /// Sleeps until a frame arrives, a timer is due, or `timeout` is over. For a loop around [`Session::poll`].
    ///
    /// # Errors
    /// The port failed.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let due = self.due().unwrap_or(timeout);
        self.watch.sleep();
        self.port.wait(timeout.min(due)).map_err(|error| Error::Port { error })
    }

    /// Returns the time until a timer is due.
    fn due(&mut self) -> Option<Duration> {
        let now_us = self.watch.look();
        let due_us = self.router.next_deadline_us(now_us)?;
        Some(Duration::from_micros(due_us.saturating_sub(now_us)))
    }

    /// Returns the server's address as the caller gave it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.settings().identity.address
    }

    /// Returns the counters of this session.
    #[must_use]
    pub fn statistics(&self) -> SessionStatistics {
        self.statistics
    }

    /// Returns the sizes that the server accepts from this session.
    #[must_use]
    pub fn limits(&self) -> SessionLimits {
        self.router.limits
    }

    /// Returns the maximum number of outstanding requests.
    #[must_use]
    pub fn credits(&self) -> u16 {
        self.router.credits
    }

    /// Returns the client's id, by which the session is listed and revoked.
    #[must_use]
    pub fn client_id(&self) -> u64 {
        self.router.client_id()
    }

    /// Returns the smoothed time from sending to reply. `None` before the first sample.
    #[must_use]
    pub fn round_trip_us(&self) -> Option<u64> {
        self.router.home().and_then(|state| state.requester.round_trip_us())
    }

    pub(crate) fn settings(&self) -> &SessionSettings {
        &self.router.settings
    }

    /// Returns the index of a key's server, if that is known.
    pub(crate) fn server_of(&mut self, table: u32, key: &[u8]) -> Option<usize> {
        self.router.server_of(table, key)
    }

    /// Returns the index of the server of all keys with a prefix, `None` if they may be at several; if that is known.
    pub(crate) fn server_of_prefix(&mut self, table: u32, prefix: &[u8]) -> Option<Option<usize>> {
        self.router.server_of_prefix(table, prefix)
    }

    /// Returns the number of datagrams lost in the local queue.
    #[must_use]
    pub fn drops(&self) -> u64 {
        self.port.drops()
    }

    #[inline]
    fn advance(&mut self, complete: &mut impl FnMut(Completion<'_>)) -> Result<(), Error> {
        let now_us = self.watch.begin_poll();
        self.transmit(now_us)?;
        if self.watch.is_everywhere_due() {
            self.port.look_everywhere();
        }
        let received = match self.port.receive(&mut self.batch) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                self.router.leave_lost_ways(&*self.port);
                0
            }
            received => received.map_err(|error| Error::Port { error })?,
        };
        if received > 0 {
            let now_us = self.watch.exact();
            self.statistics.frames_received += self.batch.len() as u64;
            for (frame, _) in self.batch.frames() {
                self.statistics.bytes_received += frame.len() as u64;
                if self.router.on_frame(now_us, frame, complete).is_err() {
                    self.statistics.frames_refused += 1;
                }
            }
        }
        let settled = self.router.finalize(self.watch.now_us(), &mut self.statistics, complete);
        self.follow_home()?;
        settled
    }

    /// Sets the port's peer to the session's current home, or to none.
    #[inline]
    fn follow_home(&mut self) -> Result<(), Error> {
        let Some(peer) = self.peer else { return Ok(()) };
        if self.router.is_shared() {
            self.peer = None;
            return self.port.forget_peer().map_err(|error| Error::Port { error });
        }
        let Some(state) = self.router.server(HOME).and_then(|server| server.state.as_mut()) else {
            return Ok(());
        };
        let home = state.follow_home();
        if home != peer {
            self.port.set_peer(state.home()).map_err(|error| Error::Port { error })?;
            self.peer = Some(home);
        }
        Ok(())
    }

    #[inline]
    fn transmit(&mut self, mut now_us: u64) -> Result<(), Error> {
        let Session { router, port, links, outbox, statistics, watch, .. } = self;
        for index in 0..router.servers() {
            let Some(state) = router.server(index).and_then(|server| server.state.as_mut()) else {
                continue;
            };
            while state.requester.wants_transmit(now_us) {
                // Postponed and repeated requests were not timed by `submit`.
                now_us = watch.exact();
                if state.transport.is_due(now_us) {
                    // Without a channel the session stays with UDP.
                    let _ = state.find_way(links, &mut **port, (now_us, Duration::ZERO));
                }
                fill_outbox(state, now_us, outbox, statistics);
                if outbox.is_empty() {
                    break;
                }
                port.send(outbox).map_err(|error| Error::Port { error })?;
            }
        }
        Ok(())
    }
}

#[inline]
fn fill_outbox(
    state: &mut SessionState,
    now_us: u64,
    outbox: &mut Outbox,
    statistics: &mut SessionStatistics,
) {
    let peer = state.home();
    while state.requester.wants_transmit(now_us)
        && let Some(index) = outbox.open(peer)
    {
        let Some(frame_bytes) = state.poll_transmit(now_us, outbox.buffer(index)) else {
            outbox.set_bytes(index, 0);
            if index == 0 {
                outbox.clear();
            }
            return;
        };
        outbox.set_bytes(index, frame_bytes);
        statistics.frames_sent += 1;
        statistics.bytes_sent += frame_bytes as u64;
    }
}
