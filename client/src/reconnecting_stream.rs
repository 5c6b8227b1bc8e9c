//! A stream to a server that reconnects when it breaks.
//!
//! Carries one request at a time. One that may be repeated (it only reads, or the server recognizes its sequence) is sent
//! again over the next stream; any other is reported as interrupted.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use net::StreamCloser;
use wire::{RecordHeader, Status, opcode, reply};

use crate::admin_call::AdminCall;
use crate::connection::{Connection, Opening, StreamReply};
use crate::{ClientConfig, Error};

/// Pause before a broken stream is reopened.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Pause before repeating a request rejected because of its view.
const VIEW_PAUSE: Duration = Duration::from_millis(1);

/// A stream that reopens when it breaks.
pub(crate) struct ReconnectingStream {
    connection: Option<Connection>,
    server: SocketAddr,
    pub(crate) opening: Opening,
    pub(crate) config: ClientConfig,
}

impl ReconnectingStream {
    /// Returns a stream over a connection; `opening` opens the next one.
    pub(crate) fn new(
        connection: Connection,
        server: SocketAddr,
        opening: Opening,
        config: ClientConfig,
    ) -> ReconnectingStream {
        ReconnectingStream { connection: Some(connection), server, opening, config }
    }

    /// Closes the stream; the next call reopens it.
    pub(crate) fn close(&mut self) {
        self.connection = None;
    }

    /// Returns what ends a call from another thread, if the stream is open.
    pub(crate) fn closer(&self) -> Option<StreamCloser> {
        self.connection.as_ref().and_then(Connection::closer)
    }

    /// Makes an administrative request. Replaces a stream that the server has closed.
    pub(crate) fn administer(&mut self, call: &AdminCall) -> Result<(Status, Vec<u8>), Error> {
        if self.connection.as_mut().is_some_and(Connection::is_stale) {
            self.connection = None;
        }
        let header = RecordHeader { code: opcode::ADMINISTER, ..RecordHeader::default() };
        self.call(header, &call.body, &|| call.is_repeatable, call.timeout)
    }

    /// Ends a session, if the stream is open. Does not wait for the reply.
    pub(crate) fn end_session(&mut self, client_id: u64) {
        if let Some(connection) = &mut self.connection {
            connection.end_session(client_id);
        }
    }

    /// Calls until a reply arrives or the time is up. If the stream breaks, repeats the request only if it may.
    pub(crate) fn call(
        &mut self,
        mut header: RecordHeader,
        body: &[u8],
        may_repeat: &dyn Fn() -> bool,
        timeout: Duration,
    ) -> Result<(Status, Vec<u8>), Error> {
        let deadline = Instant::now() + timeout;
        loop {
            let connection = self.connect(deadline)?;
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match connection.call(header, body, left) {
                Ok(StreamReply {
                    status: status @ (Status::Retry | Status::Throttled), body: after, ..
                }) => {
                    let (after_us, too_late) = match status {
                        Status::Throttled => {
                            let throttled = reply::Throttled::decode(&after);
                            let name = |limit| String::from_utf8_lossy(limit).into_owned();
                            let limit = throttled.ok().map(|it| (name(it.limit), it.after_us));
                            (throttled.map(|it| it.after_us), Error::Throttled { limit })
                        }
                        _ => (reply::decode_retry(&after), Error::Overloaded),
                    };
                    let pause = Duration::from_micros(u64::from(after_us.unwrap_or(1_000).min(1_000_000)));
                    if Instant::now() + pause > deadline {
                        return Err(too_late);
                    }
                    thread::sleep(pause);
                }
                Ok(StreamReply { status, view, .. })
                    if status == Status::WrongView || status == Status::NotOwned && view < header.view =>
                {
                    if Instant::now() + VIEW_PAUSE > deadline {
                        return Err(Error::Overloaded);
                    }
                    if view <= header.view {
                        thread::sleep(VIEW_PAUSE);
                    }
                    header.view = header.view.max(view);
                }
                Ok(StreamReply { status, body, .. }) => return Ok((status, body)),
                Err(error) => {
                    self.connection = None;
                    let may_repeat = matches!(error, Error::StreamBroken { .. }) && may_repeat();
                    if !may_repeat || Instant::now() + RECONNECT_PAUSE > deadline {
                        return Err(error);
                    }
                    thread::sleep(RECONNECT_PAUSE);
                }
            }
        }
    }

    /// Returns the connection; attaches to the session again if it broke.
    fn connect(&mut self, deadline: Instant) -> Result<&mut Connection, Error> {
        while self.connection.is_none() {
            match Connection::open(self.server, &self.config, self.opening.request()) {
                Ok((connection, _)) => self.connection = Some(connection),
                Err(Error::Refused { status: Status::BadToken, .. }) => return Err(Error::SessionLost),
                Err(error) if Instant::now() + RECONNECT_PAUSE > deadline => return Err(error),
                Err(Error::Unreachable { .. }) => thread::sleep(RECONNECT_PAUSE),
                Err(error) => return Err(error),
            }
        }
        let missing = || Error::StreamBroken { error: io::ErrorKind::NotConnected.into() };
        self.connection.as_mut().ok_or_else(missing)
    }
}
