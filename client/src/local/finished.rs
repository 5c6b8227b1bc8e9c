//! Results of invocations in the client.

use crate::Error;

/// The result of an invocation.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The id that [`crate::Local::spawn`] gave.
    pub id: u64,
    /// The reply, or the reason for its absence.
    pub result: Result<&'a [u8], LocalFailure>,
    /// Number of times that it waited for records.
    pub round_trips: u32,
    /// Number of records that it requested from the server.
    pub reads: u32,
}

/// The reason why an invocation failed.
#[derive(Debug)]
pub enum LocalFailure {
    /// The function ended with an error; nothing was written.
    Function(sandstorm::Error),
    /// The server refused, or did not reply.
    Server(Error),
    /// A write met a conflict after others had been applied.
    PartlyApplied {
        /// Number of writes that were applied.
        applied: usize,
        /// Total number of writes.
        of: usize,
    },
}

impl std::fmt::Display for LocalFailure {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LocalFailure::Function(error) => write!(to, "The function ended with an error: {error}."),
            LocalFailure::Server(error) => error.fmt(to),
            LocalFailure::PartlyApplied { applied, of } => {
                write!(
                    to,
                    "Other writes changed what the function read; {applied} of its {of} writes were applied."
                )
            }
        }
    }
}

impl std::error::Error for LocalFailure {}
