//! Many sessions over one port: a frame carries the requests of all that are ready.
//!
//! For a process that serves many tenants: a proxy, a load generator, a test of a thousand tenants. A frame holds a
//! group per session, so fifty sessions with one request each cost two datagrams instead of fifty.
//! [`SessionGroup::open`] returns the index that identifies a member.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use net::{Batch, Outbox, Port};
use wire::{Completion, FrameError, FrameReader, FrameWriter, Request};

use crate::limits::OUTBOX_FRAMES;
use crate::router::{HOME, Router, Server};
use crate::session_state::{SessionState, open_any};
use crate::transport::{Channels, bind};
use crate::watch::Watch;
use crate::{ClientConfig, Error, SessionStatistics};

/// Interval between checks of timers, in microseconds: the shortest retransmission timeout.
const TIMERS_EVERY_US: u64 = 1_000;

struct Member {
    router: Router,
    /// Token of its session with each server, 0 for none.
    tokens: Vec<u64>,
    /// The member is in [`SessionGroup::busy`].
    is_busy: bool,
}

/// Sessions that share a port, possibly of different tenants and servers.
pub struct SessionGroup {
    port: Box<dyn Port>,
    links: Channels,
    config: ClientConfig,
    members: Vec<Member>,
    /// Maps a session's token to its member and server.
    by_token: HashMap<u64, (usize, usize)>,
    /// Members and servers with something to send, in order of submission.
    ready: Vec<(usize, usize)>,
    /// Members with outstanding work; only their timers are checked.
    busy: Vec<usize>,
    batch: Batch,
    outbox: Outbox,
    statistics: SessionStatistics,
    watch: Watch,
    timers_at_us: u64,
}

/// The frame that is being filled.
struct OpenFrame {
    index: usize,
    peer: SocketAddr,
    view: u64,
    writer: FrameWriter,
}

impl SessionGroup {
    /// Returns a group without sessions, over a UDP socket.
    ///
    /// # Errors
    /// If there is no free port.
    pub fn new(config: ClientConfig) -> Result<SessionGroup, Error> {
        Ok(SessionGroup::over(bind("0.0.0.0:0", &config)?, config))
    }

    /// Returns a group without sessions, over any port.
    #[must_use]
    pub fn over(port: Box<dyn Port>, config: ClientConfig) -> SessionGroup {
        let frame_bytes_max = port.frame_bytes_max();
        SessionGroup {
            port,
            links: Channels::default(),
            config,
            members: Vec::new(),
            by_token: HashMap::new(),
            ready: Vec::new(),
            busy: Vec::new(),
            batch: Batch::new(),
            outbox: Outbox::with_frames(OUTBOX_FRAMES, frame_bytes_max),
            statistics: SessionStatistics::default(),
            watch: Watch::start(),
            timers_at_us: 0,
        }
    }

    /// Opens a session and returns its index; accepts several addresses as [`crate::Session::open`].
    ///
    /// # Errors
    /// [`Error::Unreachable`], or the server's refusal.
    pub fn open(&mut self, address: &str, tenant: &str, secret: &str) -> Result<usize, Error> {
        let opened = open_any(address, (tenant, secret), &self.config)?;
        let (config, now_us) = (self.config.clone(), self.watch.now_us());
        let router = Router::over(opened, config, &mut *self.port, &mut self.links, now_us)?;
        let (index, token) = (self.members.len(), router.home().map_or(0, |state| state.opened.token));
        self.by_token.insert(token, (index, HOME));
        self.members.push(Member { router, tokens: vec![token], is_busy: false });
        Ok(index)
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether there is no session.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Closes a member's streams until they are needed. A server accepts many more sessions than streams.
    /// Without a stream, a session ends after a minute without requests, and is then reopened automatically.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn rest_stream(&self, member: usize) {
        self.members[member].router.rest_streams();
    }

    /// Queues a request of a member. See [`crate::Session::submit`].
    ///
    /// # Errors
    /// As [`crate::Session::submit`].
    ///
    /// # Panics
    /// If there is no such member.
    #[inline]
    pub fn submit(&mut self, member: usize, request: &Request<'_>, tag: u64) -> Result<(), Error> {
        let now_us = self.watch.queue();
        let Member { router, is_busy, .. } = &mut self.members[member];
        if !*is_busy {
            *is_busy = true;
            self.busy.push(member);
        }
        let Some(index) = router.submit(now_us, tag, request, &mut self.statistics)? else {
            self.note_ready(member);
            return Ok(());
        };
        if let Some(server) = router.server(index)
            && !server.is_ready
        {
            server.is_ready = true;
            self.ready.push((member, index));
        }
        Ok(())
    }

    /// Returns the number of a member's requests without a delivered completion.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn outstanding(&self, member: usize) -> usize {
        self.members[member].router.outstanding()
    }

    /// Sends, receives and completes for all members. Passes each completion to `complete` with its member. Returns the
    /// number of completions.
    ///
    /// # Errors
    /// The port failed, or a session is lost and cannot be reopened.
    pub fn poll(&mut self, complete: &mut impl FnMut(usize, Completion<'_>)) -> Result<usize, Error> {
        self.watch.begin_poll();
        if !self.ready.is_empty() {
            // Postponed and repeated requests were not timed by `submit`.
            self.watch.exact();
            self.transmit()?;
        }
        if self.watch.is_everywhere_due() {
            self.port.look_everywhere();
        }
        let mut completed = 0;
        let mut complete = |member: usize, completion: Completion<'_>| {
            completed += 1;
            complete(member, completion);
        };
        let received = match self.port.receive(&mut self.batch) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                let port = &*self.port;
                self.members.iter_mut().for_each(|member| member.router.leave_lost_ways(port));
                0
            }
            received => received.map_err(|error| Error::Port { error })?,
        };
        if received > 0 {
            self.take_batch(&mut complete)?;
        }
        if self.watch.now_us() >= self.timers_at_us {
            self.timers_at_us = self.watch.now_us() + TIMERS_EVERY_US;
            self.settle_busy(&mut complete)?;
        }
        Ok(completed)
    }

    /// Sleeps until a frame arrives, a timer is due, or `timeout` is over.
    ///
    /// # Errors
    /// The port failed.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let awaits = self.busy.iter().any(|&member| self.members[member].router.outstanding() > 0);
        let timeout = if awaits { timeout.min(Duration::from_micros(TIMERS_EVERY_US)) } else { timeout };
        self.watch.sleep();
        self.port.wait(timeout).map_err(|error| Error::Port { error })
    }

    /// Returns the sum of all members' counters.
    #[must_use]
    pub fn statistics(&self) -> SessionStatistics {
        self.statistics
    }

    fn take_batch(&mut self, complete: &mut impl FnMut(usize, Completion<'_>)) -> Result<(), Error> {
        self.statistics.frames_received += self.batch.len() as u64;
        let SessionGroup { batch, members, by_token, statistics, watch, .. } = self;
        let now_us = watch.exact();
        let mut troubled = Vec::new();
        for (frame, _) in batch.frames() {
            statistics.bytes_received += frame.len() as u64;
            if take_frame(now_us, frame, members, by_token, &mut troubled, complete).is_err() {
                statistics.frames_refused += 1;
            }
        }
        for member in troubled {
            self.finalize(member, complete)?;
        }
        Ok(())
    }

    /// Does the due work of all busy members. Removes those without outstanding work from the list.
    fn settle_busy(&mut self, complete: &mut impl FnMut(usize, Completion<'_>)) -> Result<(), Error> {
        let mut next = 0;
        while let Some(&member) = self.busy.get(next) {
            self.finalize(member, complete)?;
            let Member { router, is_busy, .. } = &mut self.members[member];
            *is_busy = !router.is_at_rest();
            if *is_busy {
                next += 1;
            } else {
                self.busy.swap_remove(next);
            }
        }
        Ok(())
    }

    /// Does a member's work that is due by time or replies.
    fn finalize(
        &mut self,
        member: usize,
        complete: &mut impl FnMut(usize, Completion<'_>),
    ) -> Result<(), Error> {
        let Member { router, tokens, .. } = &mut self.members[member];
        let settled = router.finalize(self.watch.now_us(), &mut self.statistics, &mut |completion| {
            complete(member, completion);
        });
        tokens.resize(router.servers(), 0);
        for (index, known) in tokens.iter_mut().enumerate() {
            let Some(server) = router.server(index) else { continue };
            let token = server.state.as_ref().map_or(0, |state| state.opened.token);
            if token != *known {
                self.by_token.remove(known);
                if token != 0 {
                    self.by_token.insert(token, (member, index));
                }
                *known = token;
            }
        }
        self.note_ready(member);
        settled
    }

    /// Notes the servers for which a member has something to send.
    fn note_ready(&mut self, member: usize) {
        let router = &mut self.members[member].router;
        for index in 0..router.servers() {
            let Some(server) = router.server(index) else { continue };
            let wants = |state: &SessionState| state.requester.wants_transmit(self.watch.now_us());
            if !server.is_ready && server.state.as_ref().is_some_and(wants) {
                server.is_ready = true;
                self.ready.push((member, index));
            }
        }
    }

    /// Packs the ready members' requests into as few frames as possible.
    fn transmit(&mut self) -> Result<(), Error> {
        let mut open: Option<OpenFrame> = None;
        let mut next = 0;
        while next < self.ready.len() {
            let (member, server) = self.ready[next];
            let server = self.members[member].router.server(server);
            let Some(Server { state: Some(state), is_ready, .. }) = server else {
                // Its session has ended since.
                server.into_iter().for_each(|server| server.is_ready = false);
                next += 1;
                continue;
            };
            if state.transport.is_due(self.watch.now_us()) {
                // Without a channel the session stays with UDP.
                let now = (self.watch.now_us(), Duration::ZERO);
                let _ = state.find_way(&mut self.links, &mut *self.port, now);
            }
            let (peer, view) = (state.home(), state.view);
            let frame = match open.take_if(|frame| frame.peer == peer && frame.view == view) {
                Some(frame) => Some(frame),
                None => {
                    close(&mut self.outbox, open.take(), &mut self.statistics);
                    start(&mut self.outbox, peer, view)
                }
            };
            let Some(mut frame) = frame else {
                self.port.send(&mut self.outbox).map_err(|error| Error::Port { error })?;
                continue;
            };
            let buffer = self.outbox.buffer(frame.index);
            if state.poll_group(self.watch.now_us(), &mut frame.writer, buffer) {
                *is_ready = false;
                next += 1;
                open = Some(frame);
            } else {
                close(&mut self.outbox, Some(frame), &mut self.statistics);
            }
        }
        self.ready.clear();
        close(&mut self.outbox, open, &mut self.statistics);
        if !self.outbox.is_empty() {
            self.port.send(&mut self.outbox).map_err(|error| Error::Port { error })?;
        }
        Ok(())
    }
}

/// Passes each group of a frame to its member. Notes the members whose replies need a second step.
fn take_frame(
    now_us: u64,
    frame: &[u8],
    members: &mut [Member],
    by_token: &HashMap<u64, (usize, usize)>,
    troubled: &mut Vec<usize>,
    complete: &mut impl FnMut(usize, Completion<'_>),
) -> Result<(), FrameError> {
    let reader = FrameReader::new(frame)?;
    for group in reader.groups() {
        let group = group?;
        let Some(&(index, server)) = by_token.get(&group.token) else { continue };
        let router = &mut members[index].router;
        router.on_group(now_us, server, (reader.view(), &group), &mut |completion| {
            complete(index, completion)
        })?;
        if router.is_troubled(server) {
            troubled.push(index);
        }
    }
    Ok(())
}

fn start(outbox: &mut Outbox, peer: SocketAddr, view: u64) -> Option<OpenFrame> {
    let index = outbox.open(peer)?;
    let mut writer = FrameWriter::new();
    writer.start(outbox.buffer(index), view);
    Some(OpenFrame { index, peer, view, writer })
}

fn close(outbox: &mut Outbox, frame: Option<OpenFrame>, statistics: &mut SessionStatistics) {
    let Some(mut frame) = frame else { return };
    let frame_bytes = frame.writer.finish(outbox.buffer(frame.index));
    outbox.set_bytes(frame.index, frame_bytes);
    if frame_bytes > 0 {
        statistics.frames_sent += 1;
        statistics.bytes_sent += frame_bytes as u64;
    }
}
