//! A call across all its attempts: other sessions, other servers, the stream.
//!
//! A request that is sent again elsewhere keeps its journey, so that the caller's deadline covers all attempts.

/// The deadline of a call, and its number of moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journey {
    /// The time at which it is given up, wherever it is.
    pub deadline_us: u64,
    /// Number of servers that replied that another one owns the key.
    pub moves: u16,
}

impl Journey {
    /// Creates the journey of a call that is made now.
    #[inline]
    #[must_use]
    pub const fn begin(now_us: u64, timeout_us: u64) -> Journey {
        Journey { deadline_us: now_us.saturating_add(timeout_us), moves: 0 }
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
