//! Failures of commands: the cause, a suggestion and the exit code.
//!
//! | Code | Meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | a local failure: a file, a setting, an answer that cannot be decoded |
//! | 2 | the command line is invalid |
//! | 3 | what was asked for does not exist |
//! | 4 | a condition did not hold (`--if-version`, `--if-absent`, a name that is taken) |
//! | 5 | the server refused: secret, permission, limit |
//! | 6 | the server cannot be reached or does not answer in time, or its disk failed |
//! | 7 | an extension was refused, did not compile, or failed while it ran |
//! | 8 | the demo's answers differ, a table has corrupted objects, or the log on the disk is damaged |

use client::{Error, Status};
use serde_json::{Value, json};
use std::fmt;
use std::process::ExitCode;

/// Kinds of failures; the numbers are exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A local failure.
    Local = 1,
    /// A contradiction in the command line that clap does not detect.
    Usage = 2,
    /// The requested thing does not exist.
    Missing = 3,
    /// A condition did not hold.
    Condition = 4,
    /// The server refused.
    Refused = 5,
    /// No answer from the server.
    Unreachable = 6,
    /// A failure of an extension.
    Extension = 7,
    /// Answers or checksums differ.
    Different = 8,
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    kind: FailureKind,
    what: String,
    next: Option<String>,
    /// Status of the server's reply, or the status that describes an empty `Ok` reply.
    status: Option<Status>,
}

impl Failure {
    /// Returns a failure; `what` is a sentence about the cause, without a full stop.
    pub fn new(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure { kind, what: what.into(), next: None, status: None }
    }

    /// Adds a suggestion.
    pub fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }

    /// Prefixes the cause with what happened before it.
    pub fn after(self, before: impl fmt::Display) -> Failure {
        Failure { what: format!("{before}: {}", self.what), ..self }
    }

    /// Returns what all of these failures say, with the kind and the suggestion of the first one; `None` of none.
    pub fn of_all(failures: Vec<Failure>) -> Option<Failure> {
        let what = failures.iter().map(|failure| &*failure.what).collect::<Vec<_>>().join("; ");
        let first = failures.into_iter().next()?;
        Some(Failure { what, ..first })
    }

    /// Returns whether the next of several may do better: it is neither the place's failure nor the connection's.
    pub fn is_of_one(&self) -> bool {
        !matches!(self.kind, FailureKind::Local | FailureKind::Unreachable)
    }

    /// Returns whether it is this refusal of the server.
    pub fn is(&self, status: Status) -> bool {
        self.status == Some(status)
    }

    /// Sets the status in JSON output.
    pub fn known_as(self, status: Status) -> Failure {
        Failure { status: Some(status), ..self }
    }

    /// Returns the process's exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }

    /// Returns the JSON form.
    pub fn json(&self) -> Value {
        json!({
            "error": self.what, "next": self.next, "status": self.status.map(Status::name),
            "exit_code": self.kind as u8,
        })
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let kind = match &error {
            Error::Refused { status, .. } => kind_of(*status),
            Error::ConditionFailed { .. } => FailureKind::Condition,
            Error::ExtensionFailed { .. } => FailureKind::Extension,
            Error::Unreachable { .. }
            | Error::ServerAway { .. }
            | Error::NoSharedMemory { .. }
            | Error::NotSent
            | Error::TimedOut
            | Error::Overloaded
            | Error::Throttled { .. }
            | Error::SessionLost
            | Error::StreamBroken { .. } => FailureKind::Unreachable,
            _ => FailureKind::Local,
        };
        // The library's text ends with the suggestion; the command prints it on a separate line.
        let text = error.to_string();
        let failure = match text.rsplit_once(" Next: ") {
            Some((what, next)) => Failure::new(kind, what).next(next.trim_end_matches('.')),
            None => Failure::new(kind, text.as_str()),
        };
        Failure { status: error.status(), ..failure }
    }
}

/// Returns the kind of a refusal by the server.
fn kind_of(status: Status) -> FailureKind {
    match status {
        Status::NotFound
        | Status::UnknownTenant
        | Status::UnknownTable
        | Status::UnknownExtension
        | Status::UnknownFunction
        | Status::UnknownLimit => FailureKind::Missing,
        Status::ConditionFailed | Status::AlreadyExists => FailureKind::Condition,
        Status::SourceRefused
        | Status::CompileFailed
        | Status::ExtensionError
        | Status::ExtensionPanicked
        | Status::ExtensionOutOfMemory
        | Status::ExtensionStackOverflow
        | Status::ExtensionKilled
        | Status::ReadOnly
        | Status::NotSerializable
        | Status::Conflict => FailureKind::Extension,
        // What came of the request is unknown, as without an answer.
        Status::StorageFailed => FailureKind::Unreachable,
        _ => FailureKind::Refused,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error: {}", self.what)?;
        if let Some(next) = &self.next {
            write!(out, "\nnext:  {next}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, FailureKind, kind_of};
    use client::{Error, Status};

    #[test]
    fn what_to_do_next_gets_a_line_of_its_own() {
        let failure = Failure::from(Error::TimedOut);
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert!(failure.to_string().contains("\nnext:  "), "{failure}");
    }

    #[test]
    fn programs_see_the_status_of_the_answer() {
        assert_eq!(
            Failure::from(Error::ConditionFailed { current: 3 }).status,
            Some(Status::ConditionFailed)
        );
        assert_eq!(Failure::from(Error::TimedOut).status, None);
    }

    #[test]
    fn refusals_have_the_exit_code_of_their_kind() {
        assert_eq!(kind_of(Status::UnknownTable), FailureKind::Missing);
        assert_eq!(kind_of(Status::BadSecret), FailureKind::Refused);
        assert_eq!(kind_of(Status::CompileFailed), FailureKind::Extension);
        assert_eq!(kind_of(Status::AlreadyExists), FailureKind::Condition);
    }
}
