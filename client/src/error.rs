//! The errors of the client, with a suggestion for each.
//!
//! One enum serves all interfaces of the client. A server's reply keeps its [`Status`]; for other failures the variant
//! tells whether the request may have been executed. Programs use the variants; people read the texts, which are in
//! [`text`].

mod text;

use std::fmt;
use std::io;
use std::net::SocketAddr;

use net::AttachError;
use wire::{Completion, CompletionError, Status, reply};

/// A failed call.
#[derive(Debug)]
pub enum Error {
    /// The server replied with a refusal or a failure.
    Refused {
        /// Status of the reply.
        status: Status,
        /// Further text of the server; may be empty.
        text: String,
    },
    /// The condition of a write does not hold; nothing was written.
    ConditionFailed {
        /// Current version of the object, 0 if there is none.
        current: u64,
    },
    /// Others kept changing what a transaction had read; nothing was written.
    Conflict {
        /// Table of the object, or of the range, that was changed last.
        table: u32,
        /// Its key; of a range the lower bound or the prefix.
        key: Vec<u8>,
    },
    /// A read of a transaction was not answered; nothing was written.
    NotCommitted {
        /// The error of the read.
        cause: Box<Error>,
    },
    /// A function of an extension returned its own error; nothing was written.
    ExtensionFailed {
        /// Error code that the function chose.
        code: u32,
        /// Reply that the function had written so far.
        message: Vec<u8>,
    },
    /// The address does not resolve.
    AddressInvalid {
        /// The address as the caller gave it.
        address: String,
        /// Cause.
        error: io::Error,
    },
    /// No connection to the server.
    Unreachable {
        /// Address of the server.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The request was not sent in time and was not executed.
    NotSent,
    /// No reply in time: the request may have been executed, once.
    TimedOut,
    /// The server kept deferring the request until its time was up.
    Overloaded,
    /// Limits of the tenant deferred the request until its time was up.
    Throttled {
        /// The last limit that did so, and its wait in microseconds, if known.
        limit: Option<(String, u32)>,
    },
    /// The session ended during a request that may write, and could not be resumed. The request may have been executed,
    /// once. The session was revoked, a server of a cluster was restarted, or the server was out of reach for most of a
    /// minute. Another session has been opened.
    SessionLost,
    /// The stream broke during an administrative request, which may have been executed.
    StreamBroken {
        /// Error of the operating system.
        error: io::Error,
    },
    /// The server that owns the key is unreachable: the request was not executed. Requests to other servers continue.
    ServerAway {
        /// Number of the server. 0 for the connected one if its number is unknown.
        server: u32,
    },
    /// The client requires shared memory, but has none with this server.
    NoSharedMemory {
        /// Cause.
        reason: NoSharedMemory,
    },
    /// The session has its maximum number of outstanding requests.
    Full,
    /// The reply cannot be decoded.
    Unintelligible {
        /// Expected contents.
        expected: &'static str,
    },
    /// The name is neither `extension.function` nor `extension@version.function`.
    FunctionNameInvalid {
        /// The name as the caller gave it.
        name: String,
    },
    /// The local network port failed.
    Port {
        /// Error of the operating system.
        error: io::Error,
    },
}

/// A reason why a client and a server share no memory.
#[derive(Debug)]
pub enum NoSharedMemory {
    /// The server has no shared-memory listener.
    NotOffered,
    /// The server runs on another machine.
    OtherMachine,
    /// The caller gave the addresses of the server's cores ([`crate::ClientConfig::core_addresses`]).
    AddressesGiven,
    /// Attaching failed at the listener.
    Listener(AttachError),
}

impl Error {
    /// Returns the status of the server's reply, if there was one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Refused { status, .. } => Some(*status),
            Error::ConditionFailed { .. } => Some(Status::ConditionFailed),
            Error::Conflict { .. } => Some(Status::Conflict),
            Error::ExtensionFailed { .. } => Some(Status::ExtensionError),
            Error::Throttled { .. } => Some(Status::Throttled),
            _ => None,
        }
    }

    /// Returns whether the request may have been executed without a reply. To find out, read the object, or list.
    ///
    /// A restart of a server alone leaves no outcome unknown, unless another server owns the key by then: the session is
    /// resumed, and the request gets the answer of its execution, or is executed, if its time is not up before. A
    /// request whose time is up is given up, so its outcome stays unknown. After a failure of its disk a server does not
    /// know itself what of the last writes is there: that shows after its restart.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        let is_lost = matches!(self, Error::TimedOut | Error::SessionLost | Error::StreamBroken { .. });
        is_lost || self.status() == Some(Status::StorageFailed)
    }

    /// Returns the error for a reply that is not `Ok`.
    #[must_use]
    pub fn of_answer(status: Status, body: &[u8]) -> Error {
        match status {
            Status::ConditionFailed => match reply::decode_version(body) {
                Ok(current) => Error::ConditionFailed { current },
                Err(_) => Error::Unintelligible { expected: "a version" },
            },
            Status::ExtensionError => match reply::ExtensionFailure::decode(body) {
                Ok(failure) => {
                    Error::ExtensionFailed { code: failure.code, message: failure.message.to_vec() }
                }
                Err(_) => Error::Unintelligible { expected: "an error of the extension" },
            },
            Status::Throttled => match reply::Throttled::decode(body) {
                Ok(reply::Throttled { after_us, limit }) => {
                    let (seconds, limit) = (after_us.div_ceil(1_000_000), String::from_utf8_lossy(limit));
                    Error::Refused { status, text: format!("{limit}, {seconds} s") }
                }
                Err(_) => Error::Unintelligible { expected: "a time to wait" },
            },
            _ => Error::Refused { status, text: String::from_utf8_lossy(body).into_owned() },
        }
    }

    /// Returns the body of a successful completion.
    ///
    /// # Errors
    /// The error that the completion reports instead.
    #[inline]
    pub fn check<'a>(completion: &Completion<'a>) -> Result<&'a [u8], Error> {
        Error::checked(completion.status.map_err(Error::from), completion.body)
    }

    /// Returns the body of a reply, if it is a success.
    #[inline]
    pub(crate) fn checked(status: Result<Status, Error>, body: &[u8]) -> Result<&[u8], Error> {
        match status? {
            Status::Ok => Ok(body),
            status => Err(Error::of_answer(status, body)),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::AddressInvalid { error, .. }
            | Error::Unreachable { error, .. }
            | Error::StreamBroken { error }
            | Error::Port { error } => Some(error),
            Error::NotCommitted { cause } => Some(cause),
            _ => None,
        }
    }
}

impl From<CompletionError> for Error {
    fn from(error: CompletionError) -> Error {
        match error {
            CompletionError::NotSent => Error::NotSent,
            CompletionError::TimedOut => Error::TimedOut,
            CompletionError::Overloaded => Error::Overloaded,
            CompletionError::Throttled => Error::Throttled { limit: None },
            CompletionError::Closed => Error::SessionLost,
            CompletionError::Away { server } => Error::ServerAway { server },
        }
    }
}

impl fmt::Display for NoSharedMemory {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSharedMemory::NotOffered => to.write_str("the server does not offer it"),
            NoSharedMemory::OtherMachine => to.write_str("the server is on another machine"),
            NoSharedMemory::AddressesGiven => to.write_str("the caller gave the addresses of its cores"),
            NoSharedMemory::Listener(error) => write!(to, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Status, reply};

    use super::Error;

    #[test]
    fn every_refusal_names_what_happened() {
        for &status in Status::ALL {
            let error = Error::of_answer(status, b"");
            assert!(!error.to_string().is_empty());
            if !matches!(status, Status::ConditionFailed | Status::ExtensionError | Status::Throttled) {
                assert_eq!(error.status(), Some(status));
            }
        }
    }

    #[test]
    fn who_is_held_off_hears_by_which_limit_and_for_how_long() {
        let text = Error::Throttled { limit: Some(("compile_ms_per_minute".into(), 41_000_001)) }.to_string();
        assert!(text.contains("compile_ms_per_minute") && text.contains("42 s"), "{text}");
        assert!(!text.contains("operations_per_second"), "{text}");
        assert!(Error::Throttled { limit: None }.to_string().contains("operations_per_second"));
    }

    #[test]
    fn answers_keep_what_they_carry() {
        let failed = Error::of_answer(Status::ConditionFailed, &reply::encode_version(9));
        assert!(matches!(failed, Error::ConditionFailed { current: 9 }));
        let failed = Error::of_answer(Status::ExtensionError, &[7, 0, 0, 0, b'n', b'o']);
        assert_eq!(failed.to_string(), "The extension returned error 7: no");
        let refused = Error::of_answer(Status::UnknownTable, b"table 4");
        assert!(refused.to_string().contains("table 4") && refused.to_string().contains("Next:"));
        let killed =
            Error::of_answer(Status::ExtensionKilled, b"the limit held_bytes_of_a_core = 9 was reached");
        assert!(killed.to_string().contains("Next: run fewer calls at a time"), "{killed}");
        let body = b"tao@3 has no module to run with sandbox=wasm (wasm unavailable: no tools)";
        let missing = Error::of_answer(Status::Unavailable, body).to_string();
        assert!(
            missing.contains("tao@3") && missing.contains("Next: install a version that has a module"),
            "{missing}"
        );
    }

    #[test]
    fn what_the_server_says_besides_is_not_said_twice() {
        let text = |status, body: &str| Error::of_answer(status, body.as_bytes()).to_string();
        for body in ["", "the name is taken", "The name is taken."] {
            assert_eq!(text(Status::AlreadyExists, body), "The name is taken. Next: choose another name.");
        }
        assert!(
            text(Status::UnknownTable, "there is no table `t`")
                .starts_with("The tenant has no such table: there is no table `t`. Next: create it")
        );
        assert_eq!(
            text(Status::NotFound, "the extension has no canary"),
            "Not found: the extension has no canary."
        );
        let refused = text(Status::SourceRefused, "src/lib.rs:1:1: no\nsrc/lib.rs:2:1: no");
        assert!(refused.contains("2:1: no Next: fix"), "{refused}");
    }

    #[test]
    fn sizes_beyond_a_limit_name_it() {
        use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
        let limits = [KEY_BYTES_MAX, VALUE_BYTES_MAX, ARGUMENTS_BYTES_MAX];
        assert_eq!(limits, [65_535, 1 << 20, 1 << 20]);
        let texts = [Status::KeyTooLarge, Status::ValueTooLarge, Status::ArgumentsTooLarge]
            .map(|status| Error::of_answer(status, b"").to_string());
        assert!(texts[0].contains("65,535 bytes") && texts[1..].iter().all(|text| text.contains("1 MiB")));
    }

    #[test]
    fn only_lost_answers_leave_the_outcome_open() {
        assert!(Error::TimedOut.outcome_is_unknown() && Error::SessionLost.outcome_is_unknown());
        assert!(!Error::NotSent.outcome_is_unknown() && !Error::Full.outcome_is_unknown());
    }
}
