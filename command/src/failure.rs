//! Why a command failed, what to do next, and the exit code that scripts see.
//!
//! | Code | Meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | something failed on this side: a file, a setting, an answer that makes no sense |
//! | 2 | the command line is wrong |
//! | 3 | what was asked for does not exist |
//! | 4 | a condition did not hold (`--if-version`, `--if-absent`, a name that is taken) |
//! | 5 | the server refuses: secret, permission, limit |
//! | 6 | the server cannot be reached or does not answer in time |
//! | 7 | an extension was refused, did not compile, or failed while it ran |
//! | 8 | the demo's answers differ, or a table has corrupted objects |

use client::{Error, Status};
use serde_json::{Value, json};
use std::fmt;
use std::process::ExitCode;

/// What kind of failure, as the exit code tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// On this side.
    Local = 1,
    /// The command line contradicts itself in a way that clap does not see.
    Usage = 2,
    /// Not there.
    Missing = 3,
    /// A condition did not hold.
    Condition = 4,
    /// The server refuses.
    Refused = 5,
    /// No answer.
    Unreachable = 6,
    /// An extension.
    Extension = 7,
    /// Answers that should be equal are not.
    Different = 8,
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    kind: FailureKind,
    what: String,
    next: Option<String>,
    /// The server's answer, or what it would be called where an answer was `Ok` and empty.
    status: Option<Status>,
}

impl Failure {
    /// A failure of a kind; `what` says what went wrong, in a sentence without a full stop.
    pub fn new(kind: FailureKind, what: impl Into<String>) -> Failure {
        Failure { kind, what: what.into(), next: None, status: None }
    }

    /// Adds what to do next.
    pub fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }

    /// Says what had happened before, in front of what went wrong.
    pub fn after(self, before: impl fmt::Display) -> Failure {
        Failure { what: format!("{before}: {}", self.what), ..self }
    }

    /// Says by which status programs know it.
    pub fn known_as(self, status: Status) -> Failure {
        Failure { status: Some(status), ..self }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }

    /// What programs are told.
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
        // The library's text ends with what to do next; here that gets a line of its own.
        let text = error.to_string();
        let failure = match text.rsplit_once(" Next: ") {
            Some((what, next)) => Failure::new(kind, what).next(next.trim_end_matches('.')),
            None => Failure::new(kind, text.as_str()),
        };
        Failure { status: error.status(), ..failure }
    }
}

/// The kind of failure that a refusal of the server is.
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
