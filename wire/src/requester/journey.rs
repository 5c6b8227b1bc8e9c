//! A call over all that it takes: other sessions, other servers, the stream.
//!
//! Who makes a request again elsewhere makes it on the same journey, so that the caller's deadline holds for all of it.

/// How long a call may still take, and where it has been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Journey {
    /// When it is given up, wherever it is.
    pub deadline_us: u64,
    /// Servers that have answered that it is another one's.
    pub moves: u16,
}

impl Journey {
    /// That of a call which is made now.
    #[inline]
    #[must_use]
    pub const fn begin(now_us: u64, timeout_us: u64) -> Journey {
        Journey { deadline_us: now_us.saturating_add(timeout_us), moves: 0 }
    }

    /// The same after another server has refused it.
    #[must_use]
    pub const fn moved(self) -> Journey {
        Journey { moves: self.moves.saturating_add(1), ..self }
    }
}

/// A request as it was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accepted<'a> {
    /// What the caller gave with it.
    pub tag: u64,
    /// How long it may still take.
    pub journey: Journey,
    /// The opcode.
    pub code: u8,
    /// The encoded body.
    pub body: &'a [u8],
    /// It was transmitted more than once.
    pub was_repeated: bool,
}
