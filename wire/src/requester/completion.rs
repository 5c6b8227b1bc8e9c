//! What a caller of the requester sees: settings, refusals and completions.
//!
//! Exactly one completion comes for each accepted request: an answer of the server, or the reason why there
//! is none. [`CompletionError::NotSent`] and [`CompletionError::Away`] promise that nothing was executed.

use core::fmt;

use crate::limits::FRAME_BYTES_MAX;
use crate::status::Status;

/// Settings of a requester; the defaults suit a local network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequesterConfig {
    /// A request without answer is given up after this time.
    pub call_timeout_us: u64,
    /// First retransmission before any round trip was measured.
    pub resend_initial_us: u64,
    /// Earliest retransmission.
    pub resend_min_us: u64,
    /// Longest time between retransmissions.
    pub resend_max_us: u64,
    /// Largest frame to send, [`FRAME_BYTES_MAX`] over IPv4.
    pub frame_bytes_max: usize,
}

impl Default for RequesterConfig {
    fn default() -> RequesterConfig {
        RequesterConfig {
            call_timeout_us: 5_000_000,
            resend_initial_us: 20_000,
            resend_min_us: 8_000,
            resend_max_us: 200_000,
            frame_bytes_max: FRAME_BYTES_MAX,
        }
    }
}

/// Why a request was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// The window is full; a completion makes room.
    Full,
    /// It does not fit in a frame: reserve a sequence and use the stream.
    TooLarge,
    /// No server takes it, for this reason.
    Refused(Status),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Full => {
                formatter.write_str("as many requests are outstanding as the session may have")
            }
            SubmitError::TooLarge => formatter.write_str("the request does not fit in a datagram"),
            SubmitError::Refused(status) => status.fmt(formatter),
        }
    }
}

impl std::error::Error for SubmitError {}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionError {
    /// The deadline passed before the request was sent: it was not executed.
    NotSent,
    /// The deadline passed without an answer: it may have been executed, once.
    TimedOut,
    /// The deadline passed and the server's latest answer was to come again: it was not executed unless an
    /// earlier transmission is still under way.
    Overloaded,
    /// The same, and the answer was that a limit of the tenant held the request off.
    Throttled,
    /// The session ended: it may have been executed, once.
    Closed,
    /// There is no way to the server of the cluster that the request is for: it was not executed.
    Away {
        /// The server's number.
        server: u32,
    },
}

impl fmt::Display for CompletionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            CompletionError::Away { server } => {
                return write!(formatter, "there is no way to server {server} of the cluster");
            }
            CompletionError::NotSent => "the request could not be sent in time",
            CompletionError::TimedOut => "the server did not answer in time",
            CompletionError::Overloaded => "the server was too busy until the request's time was up",
            CompletionError::Throttled => "the tenant's limits held the request off until its time was up",
            CompletionError::Closed => "the session ended before the answer came",
        };
        formatter.write_str(text)
    }
}

impl std::error::Error for CompletionError {}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion<'a> {
    /// What the caller gave to `submit`.
    pub tag: u64,
    /// The request's sequence. After [`Status::UseStream`] it stays reserved: the caller sends the same
    /// request over the stream under this sequence and then releases it.
    pub sequence: u64,
    /// The server's answer, any but [`Status::Retry`], [`Status::Throttled`] and [`Status::WrongView`], or why there is
    /// none. After [`Status::NotOwned`] no copy of the request can be executed by this server any more, whatever is still
    /// on its way: it may be made to another one.
    pub status: Result<Status, CompletionError>,
    /// What the answer carries, see [`crate::reply`]. Borrows the received frame.
    pub body: &'a [u8],
}
