//! How an invocation at the client ended.

use crate::Error;

/// How an invocation ended.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The id that [`crate::Local::spawn`] gave.
    pub id: u64,
    /// The reply, or why there is none.
    pub result: Result<&'a [u8], LocalFailure>,
    /// How often it waited for records.
    pub round_trips: u32,
    /// Records that it asked the server for.
    pub reads: u32,
}

/// Why an invocation failed.
#[derive(Debug)]
pub enum LocalFailure {
    /// The function ended with an error; nothing was written.
    Function(sandstorm::Error),
    /// The server did not answer, or refused.
    Server(Error),
    /// A write found a conflict after others had been applied.
    PartlyApplied {
        /// Writes that were applied.
        applied: usize,
        /// Writes in all.
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
                    "Others changed what the function read; {applied} of its {of} writes were applied."
                )
            }
        }
    }
}

impl std::error::Error for LocalFailure {}
