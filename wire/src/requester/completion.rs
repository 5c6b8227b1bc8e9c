//! The requester's interface for callers: settings, refusals and completions.
//!
//! Each accepted request gets exactly one completion: a reply of the server, or the reason why there is none.
//! [`CompletionError::NotSent`] and [`CompletionError::Away`] promise that nothing was executed.

use core::fmt;

use crate::durability::RequestDurability;
use crate::limits::{FRAME_BYTES_MAX, MAY_PUSH_BACK};
use crate::status::Status;

/// Settings of a requester; the defaults suit a local network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequesterConfig {
    /// Time after which a request without a reply is given up.
    pub call_timeout_us: u64,
    /// First retransmission interval before any round trip was measured.
    pub resend_initial_us: u64,
    /// Minimum retransmission interval.
    pub resend_min_us: u64,
    /// Maximum retransmission interval.
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

/// The reason why a request was not queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubmitError {
    /// The window is full; a completion makes room.
    Full,
    /// It does not fit in a frame: reserve a sequence and use the stream.
    TooLarge,
    /// It exceeds a limit of the protocol, for this reason.
    Refused(Status),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Full => {
                formatter.write_str("the session has its maximum number of outstanding requests")
            }
            SubmitError::TooLarge => formatter.write_str("the request does not fit in a datagram"),
            SubmitError::Refused(status) => status.fmt(formatter),
        }
    }
}

impl std::error::Error for SubmitError {}

/// The reason why there is no reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompletionError {
    /// The deadline passed before the request was sent: it was not executed.
    NotSent,
    /// The deadline passed without a reply: it may have been executed, once.
    TimedOut,
    /// The deadline passed and the server asked to send it again each time: it was not executed. A write of which a
    /// transmission had no reply ends with [`CompletionError::TimedOut`].
    Overloaded,
    /// As [`CompletionError::Overloaded`], but a limit of the tenant delayed the request.
    Throttled,
    /// The session ended: it may have been executed, once.
    Closed,
    /// The server of the cluster that the request is for cannot be reached: it was not executed.
    Away {
        /// The server's number.
        server: u32,
    },
}

impl fmt::Display for CompletionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            CompletionError::Away { server } => {
                return write!(formatter, "server {server} of the cluster cannot be reached");
            }
            CompletionError::NotSent => "the request could not be sent in time",
            CompletionError::TimedOut => "the server did not answer in time",
            CompletionError::Overloaded => "the server was too busy until the request timed out",
            CompletionError::Throttled => "the tenant's limits delayed the request until it timed out",
            CompletionError::Closed => "the session ended before the answer came",
        };
        formatter.write_str(text)
    }
}

impl std::error::Error for CompletionError {}

/// The end of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion<'a> {
    /// The tag that the caller passed to `submit`.
    pub tag: u64,
    /// The request's sequence. After [`Status::UseStream`] it stays reserved: the caller sends the same
    /// request over the stream under this sequence and then releases it. After [`Status::BadToken`] it stays
    /// outstanding too: the caller resumes the session, or releases it.
    pub sequence: u64,
    /// The server's reply, any but [`Status::Retry`], [`Status::Throttled`] and [`Status::WrongView`], or the reason
    /// why there is none. After [`Status::NotOwned`] this server can execute no copy of the request any more,
    /// including those in transit: the caller may send it to another server.
    pub status: Result<Status, CompletionError>,
    /// The body of the reply, see [`crate::reply`]. Borrows the received frame.
    pub body: &'a [u8],
}

/// The deadline of a call, and its number of moves, across all its attempts: other sessions, other servers, the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journey {
    /// The time at which it is given up, wherever it is.
    pub deadline_us: u64,
    /// Number of servers that replied that another one owns the key.
    pub moves: u8,
    /// What its reply waits for.
    pub durability: RequestDurability,
    /// Whether its client can run the invoked function itself: see [`crate::Status::PushedBack`].
    pub may_push_back: bool,
}

impl Journey {
    /// Creates the journey of a call that is made now.
    #[inline]
    #[must_use]
    pub const fn begin(now_us: u64, timeout_us: u64) -> Journey {
        let durability = RequestDurability::OfTable;
        Journey { deadline_us: now_us.saturating_add(timeout_us), moves: 0, durability, may_push_back: false }
    }

    /// Returns the flags of the request.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> u8 {
        self.durability.flags() | if self.may_push_back { MAY_PUSH_BACK } else { 0 }
    }

    /// Returns the journey after one more server has refused the call.
    #[must_use]
    pub const fn moved(self) -> Journey {
        Journey { moves: self.moves.saturating_add(1), ..self }
    }
}

/// A request as it was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted<'a> {
    /// The tag of the caller.
    pub tag: u64,
    /// Its journey, with the deadline.
    pub journey: Journey,
    /// The opcode.
    pub code: u8,
    /// The encoded body.
    pub body: &'a [u8],
    /// Whether it was transmitted more than once.
    pub was_repeated: bool,
}
