//! A TCP stream to a server: opened with a first record, then one request and one reply at a time.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use net::{Stream, StreamError};
use wire::limits::{RECORD_HEADER_BYTES, STREAM_BODY_BYTES_MAX};
use wire::{Body, OpenRequest, Opened, RecordHeader, Status, VersionRange, opcode};

use crate::{ClientConfig, Error};

/// Idle time after which the connection is checked before a request that must not be sent twice.
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

/// The reason why a call has no reply.
pub(crate) enum CallFailure {
    /// No reply in time; the stream is closed, because its next reply would belong to this request.
    TimedOut,
    /// The stream broke.
    Broken(io::Error),
    /// The bytes received are not a reply.
    Unintelligible,
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
    /// Connects and sends the first record; returns the connection and the server's reply.
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
        let StreamReply { status, body: answer, .. } = match connection.call(header, &body, timeout) {
            Ok(answer) => answer,
            Err(CallFailure::TimedOut) => return Err(unreachable(io::ErrorKind::TimedOut.into())),
            Err(CallFailure::Broken(error)) => return Err(unreachable(error)),
            Err(CallFailure::Unintelligible) => {
                return Err(Error::Unintelligible { expected: "an answer to the opening" });
            }
        };
        match status {
            Status::Ok => Ok((connection, answer)),
            Status::UnsupportedVersion => Err(Error::Refused { status, text: versions_text(&answer) }),
            _ => Err(Error::of_answer(status, &answer)),
        }
    }

    /// Sends one request and waits for its reply.
    pub(crate) fn call(
        &mut self,
        header: RecordHeader,
        body: &[u8],
        timeout: Duration,
    ) -> Result<StreamReply, CallFailure> {
        let head = RecordHeader { body_bytes: body.len() as u32, ..header }.encode();
        self.stream.write_record(&head, body).map_err(CallFailure::of)?;
        let limit = STREAM_BODY_BYTES_MAX + RECORD_HEADER_BYTES;
        self.stream.read_record(&mut self.record, timeout, limit).map_err(CallFailure::of)?;
        self.used_at = Instant::now();
        let (answer, body) = RecordHeader::split(&self.record).map_err(|_| CallFailure::Unintelligible)?;
        if answer.sequence != header.sequence {
            return Err(CallFailure::Unintelligible);
        }
        let status = Status::from_u8(answer.code).ok_or(CallFailure::Unintelligible)?;
        Ok(StreamReply { status, view: answer.view, body: body.to_vec() })
    }

    /// Sends the last request and does not read its reply.
    pub(crate) fn send_last(&mut self, body: &[u8]) {
        let code = opcode::ADMINISTER;
        let header = RecordHeader { body_bytes: body.len() as u32, code, ..RecordHeader::default() };
        // A server that it does not reach notices on its own that the client is gone.
        let _ = self.stream.write_record(&header.encode(), body);
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

impl CallFailure {
    fn of(error: StreamError) -> CallFailure {
        match error {
            StreamError::Idle => CallFailure::TimedOut,
            StreamError::Closed => CallFailure::Broken(io::ErrorKind::UnexpectedEof.into()),
            StreamError::Broken(error) => CallFailure::Broken(error),
            StreamError::TooLarge { .. } | StreamError::NoRoom { .. } => CallFailure::Unintelligible,
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
