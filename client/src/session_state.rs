//! The requests of one session, from submission to completion.
//!
//! ```text
//! submit --> requester --> frames          answered: completion to the caller
//!        \-> stream_worker  --> stream           UseStream: the same request and sequence over the stream
//!                                          BadToken: the session is lost; resume it, or open another one
//! ```
//! The only socket here is the stream: [`crate::Session`] and [`crate::SessionGroup`] move the frames.

mod reopening;
mod second_step;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use net::{Port, shm};
use wire::limits::LISTING_IN_PARTS_BYTES;
use wire::{
    Attach, Completion, FrameError, FrameWriter, Group, Journey, OpenRequest, Opened, Request, Requester,
    RequesterConfig, SubmitError,
};

pub(crate) use self::reopening::{reopen, replies_at};
pub(crate) use self::second_step::Moved;
use self::second_step::{Connectivity, Trouble, sift};
use crate::config::{Identity, SessionSettings};
use crate::connection::{Connection, Opening, opened_of};
use crate::owned_request::OwnedRequest;
use crate::reach::{Reached, reach};
use crate::reconnecting_stream::ReconnectingStream;
use crate::stream_worker::{Job, StreamWorker};
use crate::transport::{Channels, SessionTransport};
use crate::{ClientConfig, Error, NoSharedMemory};

/// The state of one session with one server.
pub(crate) struct SessionState {
    settings: SessionSettings,
    pub(crate) opened: Opened,
    pub(crate) view: u64,
    home: SocketAddr,
    home_core: u16,
    pub(crate) transport: SessionTransport,
    /// Number of homes so far.
    homes: u32,
    pub(crate) requester: Requester,
    requester_config: RequesterConfig,
    pub(crate) stream_worker: StreamWorker,
    /// Number of outstanding requests on the stream.
    on_stream: usize,
    /// Number of them that belong to earlier clients.
    orphans: usize,
    /// Replies that need a second step, until the current batch is through.
    troubles: Vec<Trouble>,
    /// Sequences that the server refused because it does not know the session, until that is settled.
    refused: Vec<u64>,
    /// Requests that the stream of a lost session did not carry, until that is settled.
    stranded: Vec<Job>,
    /// Requests to repeat in this session.
    again: VecDeque<OwnedRequest>,
    /// Requests for another server.
    moved: Vec<Moved>,
    connectivity: Connectivity,
    /// A lost session is reopened synchronously, during the poll.
    is_patient: bool,
    /// A patient session that is lost is reopened by [`SessionState::reopen`] alone, so that no poll waits.
    defers: bool,
    /// Requests below this sequence were made before the session was resumed by another start of the server.
    resumed_below: u64,
    /// An answer has come over the stream since somebody last looked.
    has_heard: bool,
}

/// Counters of a session, or of a group of sessions. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Requests accepted from the caller.
    pub requests: u64,
    /// Datagrams sent.
    pub frames_sent: u64,
    /// Datagrams received.
    pub frames_received: u64,
    /// Bytes of the datagrams sent, without the headers of IP and UDP.
    pub bytes_sent: u64,
    /// Bytes of the datagrams received, without the headers of IP and UDP.
    pub bytes_received: u64,
    /// Received datagrams that could not be decoded.
    pub frames_refused: u64,
    /// Requests sent over the stream because request or reply exceeds a datagram.
    pub stream_requests: u64,
    /// Bytes of these requests and replies.
    pub stream_bytes: u64,
    /// Number of times that the session was reopened.
    pub reopened: u64,
    /// Number of these times that it was resumed, so that its requests continued.
    pub resumed: u64,
}

impl SessionState {
    /// Returns the state of a session that was opened and is not patient: its poll has other sessions to serve.
    pub(crate) fn impatient(opened: (Connection, Opened), settings: SessionSettings) -> SessionState {
        let mut state = SessionState::over(opened, settings);
        state.is_patient = false;
        state
    }

    /// Returns the state of a session that was opened.
    pub(crate) fn over(
        (connection, opened): (Connection, Opened),
        settings: SessionSettings,
    ) -> SessionState {
        let config = &settings.config;
        let requester_config = RequesterConfig {
            call_timeout_us: u64::try_from(config.call_timeout.as_micros()).unwrap_or(u64::MAX),
            frame_bytes_max: settings.frame_bytes_max,
            ..RequesterConfig::default()
        };
        let stream = stream_of(connection, &opened, &settings);
        SessionState {
            view: opened.view,
            home: core_address(&settings, &opened, opened.home_core),
            home_core: opened.home_core,
            transport: SessionTransport::of(&opened, config),
            homes: 1,
            requester: Requester::new(opened.token, opened.next_sequence, opened.credits, requester_config),
            requester_config,
            stream_worker: StreamWorker::new(stream, settings.waker.clone()),
            on_stream: 0,
            orphans: 0,
            troubles: Vec::new(),
            refused: Vec::new(),
            stranded: Vec::new(),
            again: VecDeque::new(),
            moved: Vec::new(),
            connectivity: Connectivity::Open,
            is_patient: true,
            defers: false,
            resumed_below: 0,
            has_heard: false,
            settings,
            opened,
        }
    }

    /// Accepts a request; its completion will carry `tag`.
    #[inline]
    pub(crate) fn submit(
        &mut self,
        journey: Journey,
        tag: u64,
        request: &Request<'_>,
        statistics: &mut SessionStatistics,
    ) -> Result<(), Error> {
        if self.connectivity == Connectivity::Closed {
            if self.defers {
                return Err(Error::Full);
            }
            // Nothing is outstanding, so the time is of no importance.
            self.reopen(0, statistics, &mut |_| {})?;
        }
        if let Request::Enumerate { bytes_max, .. } | Request::Scan { bytes_max, .. } = request
            && *bytes_max as usize > LISTING_IN_PARTS_BYTES
            && request.check().is_ok()
        {
            // Saves the server the work on a page that does not fit in parts.
            return self.submit_to_stream(journey, tag, request, statistics);
        }
        match self.requester.submit_on(journey, tag, request) {
            Ok(_) => Ok(()),
            Err(SubmitError::Full) => Err(Error::Full),
            Err(SubmitError::Refused(status)) => Err(Error::Refused { status, text: String::new() }),
            Err(SubmitError::TooLarge) => self.submit_to_stream(journey, tag, request, statistics),
        }
    }

    #[cold]
    fn submit_to_stream(
        &mut self,
        journey: Journey,
        tag: u64,
        request: &Request<'_>,
        statistics: &mut SessionStatistics,
    ) -> Result<(), Error> {
        let sequence = self.requester.reserve_sequence().ok_or(Error::Full)?;
        self.send_over_stream(sequence, OwnedRequest::new(tag, journey, request), statistics);
        Ok(())
    }

    fn send_over_stream(&mut self, sequence: u64, request: OwnedRequest, statistics: &mut SessionStatistics) {
        statistics.stream_requests += 1;
        statistics.stream_bytes += request.body.len() as u64;
        self.send_job(sequence, request);
    }

    fn send_job(&mut self, sequence: u64, request: OwnedRequest) {
        self.on_stream += 1;
        let first_unacknowledged = self.requester.first_unacknowledged();
        let (token, client_id, view) = (self.opened.token, self.opened.client_id, self.view);
        self.stream_worker.send(Job { token, client_id, request, sequence, first_unacknowledged, view });
    }

    /// Returns the number of requests without a completion.
    #[inline]
    pub(crate) fn outstanding(&self) -> usize {
        self.requester.outstanding() + self.again.len() + self.orphans
    }

    /// Returns whether an answer has come over the stream since the last call.
    pub(crate) fn take_heard(&mut self) -> bool {
        std::mem::take(&mut self.has_heard)
    }

    /// Returns whether some request without a completion was made before this time; one on the stream is not known to.
    pub(crate) fn owes_since(&self, us: u64) -> bool {
        let limit_us = us.saturating_add(self.requester_config.call_timeout_us);
        self.requester.calls().any(|(_, call)| call.journey.deadline_us < limit_us)
    }

    /// Returns whether a request is on the stream.
    pub(crate) fn has_streamed(&self) -> bool {
        self.on_stream > 0
    }

    /// Fills one frame; returns `None` if there is nothing to send.
    #[inline]
    pub(crate) fn poll_transmit(&mut self, now_us: u64, buffer: &mut [u8]) -> Option<usize> {
        self.requester.poll_transmit(now_us, self.view, buffer)
    }

    /// Adds requests to a frame that sessions share; returns whether all fitted.
    #[inline]
    pub(crate) fn poll_group(&mut self, now_us: u64, writer: &mut FrameWriter, buffer: &mut [u8]) -> bool {
        self.requester.poll_group(now_us, self.view, writer, buffer)
    }

    /// Processes a received frame that belongs to this session only.
    #[inline]
    pub(crate) fn on_frame(
        &mut self,
        now_us: u64,
        frame: &[u8],
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), FrameError> {
        let SessionState { requester, troubles, view, .. } = self;
        let theirs =
            requester.on_frame(now_us, frame, &mut |completion| sift(troubles, completion, complete))?;
        // A reply that was overtaken does not set the view back.
        *view = theirs.max(*view);
        Ok(())
    }

    /// Processes this session's group of a received frame.
    #[inline]
    pub(crate) fn on_group(
        &mut self,
        now_us: u64,
        view: u64,
        group: &Group<'_>,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), FrameError> {
        let SessionState { requester, troubles, .. } = self;
        self.view = view.max(self.view);
        requester.on_group(now_us, view, group, &mut |completion| sift(troubles, completion, complete))
    }

    /// Returns whether a reply needs a second step.
    #[inline]
    pub(crate) fn is_troubled(&self) -> bool {
        !self.troubles.is_empty()
    }

    /// Returns whether [`SessionState::finalize`] has something to do.
    #[inline]
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        self.requester.is_due(now_us)
            || !self.troubles.is_empty()
            || self.on_stream > 0
            || !self.again.is_empty()
    }

    /// Returns the address of the home core, by the latest reply.
    #[inline]
    pub(crate) fn home(&mut self) -> SocketAddr {
        self.follow_home();
        self.home
    }

    /// Updates the home core; returns the number of homes so far.
    #[inline]
    pub(crate) fn follow_home(&mut self) -> u32 {
        match self.requester.home_core() {
            Some(core) if core != self.home_core => self.move_home(core),
            _ => {}
        }
        self.homes
    }

    #[cold]
    fn move_home(&mut self, core: u16) {
        if usize::from(core) < self.opened.core_ports.len() {
            self.home_core = core;
            self.home = core_address(&self.settings, &self.opened, core);
            self.homes += 1;
            self.transport.open();
        }
    }

    /// Attaches to the home core over shared memory; returns whether it succeeded. Otherwise its address remains that
    /// of its UDP port. Waits for at most `patience`.
    #[cold]
    pub(crate) fn find_way(
        &mut self,
        links: &mut Channels,
        port: &mut dyn Port,
        (now_us, patience): (u64, Duration),
    ) -> Result<bool, NoSharedMemory> {
        let attach = Attach { token: self.opened.token, core: self.home_core };
        let Some(home) = self.transport.find(links, port, attach, (now_us, patience))? else {
            return Ok(false);
        };
        self.home = home;
        self.homes += 1;
        Ok(true)
    }

    /// Falls back to UDP if the channel to the home core is lost. Attaches again later.
    #[cold]
    pub(crate) fn leave_lost_way(&mut self, port: &dyn Port) {
        if shm::is_link(self.home.ip()) && !port.is_attached(self.home) {
            self.home = core_address(&self.settings, &self.opened, self.home_core);
            self.homes += 1;
            self.transport.open();
        }
    }
}

/// Ends the session at the server. Otherwise it would count among its tenant's sessions until the idle limit.
impl Drop for SessionState {
    fn drop(&mut self) {
        self.stream_worker.end_session(self.opened.client_id);
    }
}

/// Opens a session with one of these addresses: `HOST:PORT`, several separated by commas.
pub(crate) fn open_any(
    addresses: &str,
    (tenant, secret): (&str, &str),
    config: &ClientConfig,
) -> Result<(Identity, (Connection, Opened)), Error> {
    let (tenant, secret) = (tenant.to_owned(), secret.to_owned());
    let opening = Opening::Session { tenant: tenant.clone(), secret: secret.clone() };
    let Reached { server, address, connection, answer } = reach(addresses, &opening, config)?;
    let opened = opened_of(&answer)?;
    let others = addresses.split(',').map(str::trim).filter(|other| *other != address);
    let others = others.map(str::to_owned).collect();
    Ok((Identity { server, address, others, tenant, secret }, (connection, opened)))
}

fn open(SessionSettings { identity, config, .. }: &SessionSettings) -> Result<(Connection, Opened), Error> {
    let request = OpenRequest::Session { tenant: &identity.tenant, secret: &identity.secret };
    let (connection, answer) = Connection::open(identity.server, config, request)?;
    Ok((connection, opened_of(&answer)?))
}

/// Returns a session's stream, which attaches again when it breaks.
fn stream_of(connection: Connection, opened: &Opened, settings: &SessionSettings) -> ReconnectingStream {
    let opening = Opening::Attach { token: opened.token };
    ReconnectingStream::new(connection, settings.identity.server, opening, settings.config.clone())
}

fn core_address(settings: &SessionSettings, opened: &Opened, core: u16) -> SocketAddr {
    let index = usize::from(core);
    match settings.config.core_addresses.get(index) {
        Some(&address) => address,
        // `Opened` has checked that the home core has a port.
        None => SocketAddr::new(settings.identity.server.ip(), opened.core_ports[index]),
    }
}
