//! How an invocation ended.

use std::fmt;
use std::time::Duration;

use wire::Status;

use crate::Error;

/// The result of an invocation.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The id that [`Local::spawn`](super::Local::spawn) gave.
    pub id: u64,
    /// The reply, or the reason for its absence.
    pub result: Result<&'a [u8], LocalFailure>,
    /// Whether it ran here, and not at the server.
    pub ran_here: bool,
    /// Number of times that it waited for records, here.
    pub round_trips: u32,
    /// Number of requests for objects, pages and tables that it made here, over all runs.
    pub reads: u32,
    /// What its last run here used.
    pub usage: Usage,
}

/// What a run of a function used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Bytes of the keys and values that it was lent.
    pub read_bytes: usize,
    /// Objects that it wrote; none once it has failed.
    pub writes: usize,
    /// Bytes of their keys and values.
    pub write_bytes: usize,
    /// Time in the code of a module, without its host calls; zero for a function of the program.
    pub compute: Duration,
    /// Bytes that a module's function has allocated, at most at any time.
    pub arena_bytes: usize,
}

/// The reason why an invocation failed.
#[derive(Debug)]
pub enum LocalFailure {
    /// The function ended with an error; nothing was written.
    Function(sandstorm::Error),
    /// The server refused, or did not reply. For a function of a module, also the error that a server would answer.
    Server(Error),
}

impl fmt::Display for LocalFailure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalFailure::Function(error) => write!(to, "The function ended with an error: {error}."),
            LocalFailure::Server(error) => error.fmt(to),
        }
    }
}

impl std::error::Error for LocalFailure {}

impl From<LocalFailure> for Error {
    /// The server's error; of a function of the program, which no server knows, `Internal` with its text.
    fn from(failure: LocalFailure) -> Error {
        match failure {
            LocalFailure::Server(error) => error,
            LocalFailure::Function(error) => {
                Error::Refused { status: Status::Internal, text: error.to_string() }
            }
        }
    }
}
