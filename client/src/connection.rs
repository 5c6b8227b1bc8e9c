//! A TCP stream to a server: opened with a first record, then one request and one reply at a time.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use control::AdminRequest;
use net::{Stream, StreamCloser, StreamError};
use wire::limits::{RECORD_HEADER_BYTES, STREAM_BODY_BYTES_MAX};
use wire::{Body, OpenRequest, Opened, RecordHeader, ServerState, Status, VersionRange, opcode};

use crate::config::resolve;
use crate::{ClientConfig, Error};

/// Idle time after which the connection is checked before an administrative request.
const STALE_AFTER: Duration = Duration::from_millis(500);
/// Maximum time to transfer a record once it has begun.
const RECORD_TIMEOUT: Duration = Duration::from_secs(20);

/// The first record of a stream, kept to open it again.
#[derive(Clone)]
pub(crate) enum Opening {
    /// Opens a session of a tenant.
    Session { tenant: String, secret: String },
    /// Attaches to the session with this token.
    Attach { token: u64 },
    /// Opens with the administrator's secret.
    Admin { secret: String },
}

/// A stream after its first record.
pub(crate) struct Connection {
    stream: Stream,
    used_at: Instant,
    record: Vec<u8>,
}

/// The reply to a request on the stream.
pub(crate) struct StreamReply {
    pub(crate) status: Status,
    /// The server's view, for a data request.
    pub(crate) view: u64,
    pub(crate) body: Vec<u8>,
}

impl Opening {
    pub(crate) fn request(&self) -> OpenRequest<'_> {
        match self {
            Opening::Session { tenant, secret } => OpenRequest::Session { tenant, secret },
            Opening::Attach { token } => OpenRequest::Attach { token: *token },
            Opening::Admin { secret } => OpenRequest::Admin { secret },
        }
    }
}

impl Connection {
    /// Connects and sends the first record. Returns the connection and the server's reply.
    pub(crate) fn open(
        server: SocketAddr,
        config: &ClientConfig,
        request: OpenRequest<'_>,
    ) -> Result<(Connection, Vec<u8>), Error> {
        let unreachable = |error| Error::Unreachable { address: server, error };
        let stream = Stream::connect(server, config.connect_timeout, RECORD_TIMEOUT).map_err(unreachable)?;
        let mut connection = Connection { stream, used_at: Instant::now(), record: Vec::new() };
        let header = RecordHeader { code: request.opcode(), ..RecordHeader::default() };
        let body = request.encode(VersionRange::OURS);
        let timeout = config.connect_timeout.max(config.call_timeout);
        let answer = connection.call(header, &body, timeout).map_err(|error| match error {
            Error::TimedOut => unreachable(io::ErrorKind::TimedOut.into()),
            Error::StreamBroken { error } => unreachable(error),
            _ => Error::Unintelligible { expected: "an answer to the opening" },
        });
        let StreamReply { status, body: answer, .. } = answer?;
        match status {
            Status::Ok => Ok((connection, answer)),
            Status::UnsupportedVersion => Err(Error::Refused { status, text: versions_text(&answer) }),
            _ => Err(Error::of_answer(status, &answer)),
        }
    }

    /// Sends one request and waits for its reply. After an error the connection is useless: the next reply would belong
    /// to this request.
    pub(crate) fn call(
        &mut self,
        header: RecordHeader,
        body: &[u8],
        timeout: Duration,
    ) -> Result<StreamReply, Error> {
        let head = RecordHeader { body_bytes: body.len() as u32, ..header }.encode();
        self.stream.write_record(&head, body).map_err(call_error)?;
        let limit = STREAM_BODY_BYTES_MAX + RECORD_HEADER_BYTES;
        self.stream.read_record(&mut self.record, timeout, limit).map_err(call_error)?;
        self.used_at = Instant::now();
        let unintelligible = || Error::Unintelligible { expected: "an answer" };
        let (answer, body) = RecordHeader::split(&self.record).map_err(|_| unintelligible())?;
        if answer.sequence != header.sequence {
            return Err(unintelligible());
        }
        let status = Status::from_u8(answer.code).ok_or_else(unintelligible)?;
        Ok(StreamReply { status, view: answer.view, body: body.to_vec() })
    }

    /// Returns what ends a call from another thread, unless the process has no descriptor left.
    pub(crate) fn closer(&self) -> Option<StreamCloser> {
        self.stream.closer().ok()
    }

    /// Ends a session without waiting for the reply.
    pub(crate) fn end_session(&mut self, client_id: u64) {
        let Ok(body) = AdminRequest::SessionRevoke { client_id }.encode() else { return };
        let (body_bytes, code) = (body.len() as u32, opcode::ADMINISTER);
        let header = RecordHeader { body_bytes, code, ..RecordHeader::default() };
        // A server that the request does not reach ends an idle session by itself.
        let _ = self.stream.write_record(&header.encode(), &body);
    }

    /// Returns whether the server has closed this stream while it was idle.
    pub(crate) fn is_stale(&mut self) -> bool {
        if self.used_at.elapsed() < STALE_AFTER {
            return false;
        }
        let heard = self.stream.read_record(&mut self.record, Duration::from_millis(1), 0);
        !matches!(heard, Err(StreamError::Idle))
    }
}

/// Asks the server at HOST:PORT how far its start is; a server answers before it serves anything else.
///
/// # Errors
/// [`Error::Unreachable`] if nobody answers there within the timeouts of the configuration.
pub fn server_state(address: &str, config: &ClientConfig) -> Result<ServerState, Error> {
    match Connection::open(resolve(address)?, config, OpenRequest::State) {
        Ok((_, answer)) => {
            ServerState::decode(&answer).map_err(|_| Error::Unintelligible { expected: "the server's state" })
        }
        // Of an earlier release, which answers nobody before it serves.
        Err(Error::Refused { status: Status::UnknownOpcode, .. }) => {
            Ok(ServerState { is_serving: true, replayed_bytes: 0, log_bytes: 0 })
        }
        Err(error) => Err(error),
    }
}

/// Returns the error of a call over a failed stream.
fn call_error(error: StreamError) -> Error {
    match error {
        StreamError::Idle => Error::TimedOut,
        StreamError::Closed => Error::StreamBroken { error: io::ErrorKind::UnexpectedEof.into() },
        StreamError::Broken(error) => Error::StreamBroken { error },
        StreamError::TooLarge { .. } | StreamError::NoRoom { .. } => {
            Error::Unintelligible { expected: "an answer" }
        }
    }
}

/// Decodes the opened session from the reply to an opening.
pub(crate) fn opened_of(answer: &[u8]) -> Result<Opened, Error> {
    Opened::decode(answer).map_err(|_| Error::Unintelligible { expected: "an opened session" })
}

fn versions_text(answer: &[u8]) -> String {
    match VersionRange::decode(answer) {
        Ok(VersionRange { min, max }) => {
            let ours = VersionRange::OURS.max;
            format!("it speaks versions {min} to {max}, this client version {ours}")
        }
        Err(_) => String::new(),
    }
}
