//! Why a call failed, and what to do next.
//!
//! One enum for all faces of the client. What the server answered keeps its [`Status`]; what happened on
//! the way tells whether the request may have been executed. The text of each is for people, the variants
//! are for programs.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use wire::{Completion, CompletionError, Status, reply};

/// A failed call.
#[derive(Debug)]
pub enum Error {
    /// The server answered, and refused or failed.
    Refused {
        /// Its answer.
        status: Status,
        /// What it said besides; may be empty.
        text: String,
    },
    /// The condition of a write does not hold; nothing was written.
    ConditionFailed {
        /// The object's version now, 0 when there is none.
        current: u64,
    },
    /// A function of an extension ended with an error of its own; nothing was written.
    ExtensionFailed {
        /// The number that the function chose.
        code: u32,
        /// The reply that it had written until then.
        message: Vec<u8>,
    },
    /// The address names no machine.
    AddressInvalid {
        /// The address as it was given.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// No connection to the server.
    Unreachable {
        /// Where it should be.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The request was not sent in time: it was not executed.
    NotSent,
    /// No answer in time: the request may have been executed, once.
    TimedOut,
    /// The server kept putting the request off until its time was up.
    Overloaded,
    /// Limits of the tenant held the request off until its time was up.
    Throttled {
        /// Which one did last, and after how many microseconds it would have let the request through, if that is known.
        limit: Option<(String, u32)>,
    },
    /// The session ended, by a restart of the server or by revocation, while a request that may write was
    /// under way: it may have been executed, once. The session has been opened anew.
    SessionLost,
    /// The stream broke during an administrative request: it may have been executed.
    StreamBroken {
        /// What the system says.
        error: io::Error,
    },
    /// As many requests are outstanding as the session may have.
    Full,
    /// The answer makes no sense.
    Unintelligible {
        /// What was expected.
        expected: &'static str,
    },
    /// A function is named `extension.function`, or `extension@version.function`.
    FunctionNameInvalid {
        /// The name as it was given.
        name: String,
    },
    /// The local network port failed.
    Port {
        /// What the system says.
        error: io::Error,
    },
}

impl Error {
    /// The server's answer, when there was one.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Refused { status, .. } => Some(*status),
            Error::ConditionFailed { .. } => Some(Status::ConditionFailed),
            Error::ExtensionFailed { .. } => Some(Status::ExtensionError),
            Error::Throttled { .. } => Some(Status::Throttled),
            _ => None,
        }
    }

    /// Whether the request may have been executed although there is no answer. Reading the object, or
    /// listing, tells.
    #[must_use]
    pub fn outcome_is_unknown(&self) -> bool {
        matches!(self, Error::TimedOut | Error::SessionLost | Error::StreamBroken { .. })
    }

    /// The error of an answer that is not `Ok`.
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

    /// The body of a completion that ended well.
    ///
    /// # Errors
    /// What the completion reports instead.
    #[inline]
    pub fn check<'a>(completion: &Completion<'a>) -> Result<&'a [u8], Error> {
        match completion.status {
            Ok(Status::Ok) => Ok(completion.body),
            Ok(status) => Err(Error::of_answer(status, completion.body)),
            Err(error) => Err(error.into()),
        }
    }

    fn next(&self) -> Option<&'static str> {
        Some(match self {
            // What the server says of a missing permission is what to do already.
            Error::Refused { status: Status::NotPermitted, text } if !text.is_empty() => return None,
            Error::Refused { status: Status::ExtensionKilled, text } if text.contains(HELD_BYTES) => {
                "repeat it with fewer under way at a time, or let the function hold less while it yields"
            }
            Error::Refused { text, .. } if text.contains(INVOCATION_LIMIT) => {
                "do less in one call, or ask the operator for more; `splinter tenant limits` shows what may be used"
            }
            Error::Refused { status, .. } => return next_after(*status),
            Error::ConditionFailed { .. } => "read the object again and repeat with its version",
            Error::AddressInvalid { .. } => "give HOST:PORT, for instance 127.0.0.1:7700",
            Error::Unreachable { .. } => "check the address and that splinter-server runs there",
            Error::NotSent | Error::Overloaded => "repeat it, with fewer requests outstanding",
            Error::Throttled { .. } => {
                "ask for less at a time, or the operator for more; `splinter tenant limits` shows"
            }
            Error::TimedOut => "check the server, then read before repeating a write",
            Error::SessionLost => "read before repeating it; data in memory is gone after a restart",
            Error::StreamBroken { .. } => "list to see whether it took effect, then repeat",
            Error::Full => "poll completions before submitting more",
            Error::Unintelligible { .. } => "check that client and server are of the same release",
            Error::FunctionNameInvalid { .. } => "name it EXTENSION.FUNCTION, for instance tao.assoc_range",
            Error::ExtensionFailed { .. } | Error::Port { .. } => return None,
        })
    }
}

/// The limit of what the invocations of a tenant hold while they wait, as the server names it.
const HELD_BYTES: &str = "held_bytes_of_a_core";
/// How the server begins to name a limit of one invocation that was reached.
const INVOCATION_LIMIT: &str = "the limit invocation_";

/// What a caller can do about a refusal.
fn next_after(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::UnknownTenant => {
            "check the name; the administrator lists tenants with `splinter tenant list`"
        }
        Status::BadSecret => {
            "check name and secret: `splinter tenant create` gave the tenant's and `splinter tenant rotate` gives \
             another one, the administrator's is in the file admin.secret of the server's data directory"
        }
        Status::UnknownTable => {
            "create it with `splinter table create`, or list with `splinter table list`; those of others with \
             `splinter grant list`"
        }
        Status::UnknownExtension => {
            "list with `splinter ext list`, those of others with `splinter grant list`; install with `splinter ext \
             install`"
        }
        Status::UnknownFunction => "see what there is with `splinter ext describe`",
        Status::KeyTooLarge => "a key has at most 65,535 bytes",
        Status::ValueTooLarge => "a value has at most 1 MiB; part it into several objects",
        Status::ArgumentsTooLarge => "arguments have at most 1 MiB; put what is longer into objects",
        Status::AlreadyExists => "choose another name",
        Status::UnknownLimit | Status::OutOfRange => {
            "see names and ranges with `splinter tenant limits NAME`"
        }
        Status::UnsupportedVersion => "use a client of the server's release",
        Status::OutOfMemory => "delete objects, or give the server more memory",
        Status::OverQuota => {
            "ask the operator for more, or free some; `splinter tenant limits` shows what may be used"
        }
        Status::ReplyForgotten => {
            "read what it wrote; acknowledge answers, by asking on, before more are kept"
        }
        Status::StorageFull => "free disk space at the server",
        Status::NotPermitted => "ask the owner for a grant, or the operator",
        Status::BadToken => "open a new session",
        Status::NameInvalid => {
            "use letters, digits, `_`, `-` and `.`, at most 64, a letter or digit first; name an owner or a version \
             only where the command's --help does"
        }
        Status::SourceRefused => {
            "mend what each line names; `splinter ext check` says the same without a server"
        }
        Status::CompileFailed => {
            "mend what the compiler names; `cargo test` in the package's folder says the same"
        }
        Status::Conflict => "repeat the call",
        Status::Malformed => {
            "for a call, see what the function takes with `splinter ext describe`; else use a client of the server's \
             release"
        }
        Status::ReadOnly => "declare the function as `write` in `sandstorm::extension!`",
        Status::ExtensionStackOverflow => {
            "a stack has 64 KiB: recurse less deeply, keep large buffers in `alloc`"
        }
        Status::Internal => "look into the server's log",
        Status::Unavailable => "repeat it later",
        _ => return None,
    })
}

/// The status, and what the server says besides if that is more.
fn write_refusal(to: &mut fmt::Formatter<'_>, status: Status, text: &str) -> fmt::Result {
    let sentence = status.text();
    let plain = sentence.trim_end_matches('.');
    if text.is_empty() || text.trim_end_matches('.').eq_ignore_ascii_case(plain) {
        return to.write_str(sentence);
    }
    match status {
        // Not only objects are not found: what it was, the server says.
        Status::NotFound => write!(to, "Not found: {text}")?,
        _ => write!(to, "{plain}: {text}")?,
    }
    let ends = text.ends_with('.') || text.contains('\n');
    if ends { Ok(()) } else { to.write_str(".") }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { status, text } => write_refusal(to, *status, text)?,
            Error::ConditionFailed { current: 0 } => {
                write!(to, "The condition does not hold: there is no such object.")?;
            }
            Error::ConditionFailed { current } => {
                write!(to, "The condition does not hold: the object's version is {current}.")?;
            }
            Error::ExtensionFailed { code, message } => {
                write!(to, "The extension answered with its error {code}")?;
                match str::from_utf8(message) {
                    Ok("") => write!(to, ".")?,
                    Ok(text) => write!(to, ": {text}")?,
                    Err(_) => write!(to, " and {} bytes.", message.len())?,
                }
            }
            Error::AddressInvalid { address, error } => write!(to, "No machine at \"{address}\": {error}.")?,
            Error::Unreachable { address, error } => write!(to, "No connection to {address}: {error}.")?,
            Error::NotSent => write!(to, "The request could not be sent in time; it was not executed.")?,
            Error::TimedOut => write!(to, "No answer in time; the request may have been executed.")?,
            Error::Overloaded => write!(to, "The server was too busy until the request's time was up.")?,
            Error::Throttled { limit: Some((limit, after_us)) } => {
                let seconds = after_us.div_ceil(1_000_000);
                write!(to, "The tenant's {limit} held the request off until its time was up; ")?;
                write!(to, "{seconds} s more were left to wait.")?;
            }
            Error::Throttled { limit: None } => {
                write!(
                    to,
                    "Limits of the tenant (operations_per_second, invocations, {HELD_BYTES}; for an installation "
                )?;
                write!(to, "compile_ms_per_minute) held the request off until its time was up.")?;
            }
            Error::SessionLost => {
                write!(to, "The session ended while the request was under way; it may have been executed.")?;
            }
            Error::StreamBroken { error } => write!(to, "The stream to the server broke: {error}.")?,
            Error::Full => write!(to, "As many requests are outstanding as the session may have.")?,
            Error::Unintelligible { expected } => {
                write!(to, "The server's answer makes no sense: expected {expected}.")?;
            }
            Error::FunctionNameInvalid { name } => write!(to, "\"{name}\" does not name a function.")?,
            Error::Port { error } => write!(to, "The local network port failed: {error}.")?,
        }
        match self.next() {
            Some(next) => write!(to, " Next: {next}."),
            None => Ok(()),
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
        assert_eq!(failed.to_string(), "The extension answered with its error 7: no");
        let refused = Error::of_answer(Status::UnknownTable, b"table 4");
        assert!(refused.to_string().contains("table 4") && refused.to_string().contains("Next:"));
        let killed =
            Error::of_answer(Status::ExtensionKilled, b"the limit held_bytes_of_a_core = 9 was reached");
        assert!(killed.to_string().contains("Next: repeat it with fewer under way"), "{killed}");
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
        assert!(refused.contains("2:1: no Next: mend"), "{refused}");
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
