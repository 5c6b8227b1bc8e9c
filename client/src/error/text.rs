//! The text of an error: the failure and a suggestion.
//!
//! The status's own sentence comes first, then the server's text if it says more. The suggestion follows `Next:`, so
//! that the command can print it on a separate line.

use std::fmt;

use wire::Status;

use super::Error;

/// The server's name for the limit on memory that a tenant's waiting invocations hold.
const HELD_BYTES: &str = "held_bytes_of_a_core";
/// The start of the server's text about a limit of one invocation.
const INVOCATION_LIMIT: &str = "the limit invocation_";

impl Error {
    fn next(&self) -> Option<&'static str> {
        Some(match self {
            // The server's text about a missing permission is a suggestion already.
            Error::Refused { status: Status::NotPermitted, text } if !text.is_empty() => return None,
            Error::Refused { status: Status::ExtensionKilled, text } if text.contains(HELD_BYTES) => {
                "repeat it with fewer under way at a time, or let the function hold less while it yields"
            }
            Error::Refused { text, .. } if text.contains(INVOCATION_LIMIT) => {
                "do less in one call, or ask the operator for more; `splinter tenant limits` shows what may be used"
            }
            Error::Refused { status, .. } => return next_after(*status),
            Error::ConditionFailed { .. } => "read the object again and repeat with its version",
            Error::AddressInvalid { .. } => {
                "give HOST:PORT, for instance 127.0.0.1:7700, or several with commas between them"
            }
            Error::Unreachable { .. } => "check the address and that splinter-server runs there",
            Error::ServerAway { .. } => "see `splinter cluster servers`; repeat it when the server is back",
            Error::NoSharedMemory { .. } => {
                "let it find its way by itself (--transport auto), or go over UDP"
            }
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

/// Returns the suggestion for a refusal.
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
        Status::KeyTooLarge => "a key has at most 65,535 bytes",
        Status::ValueTooLarge => "a value has at most 1 MiB; part it into several objects",
        Status::ArgumentsTooLarge => "arguments have at most 1 MiB; put what is longer into objects",
        Status::AlreadyExists => "choose another name",
        Status::UnknownLimit | Status::OutOfRange => {
            "see names and ranges of limits with `splinter tenant limits NAME`; a time to live is from 1 ms to 139 \
             years, what is added a finite number, a cache from 4,096 bytes to the server's memory"
        }
        Status::NotOrdered => "create the table anew with `splinter table create NAME --ordered`",
        Status::OverBudget => "create the table anew with a larger `--cache`, or write less at once",
        Status::CursorInvalid => {
            "begin anew: a cursor is good for its table (and that of a scan for its range) alone, until the table is \
             dropped or the server ends"
        }
        Status::Corrupted => "see with `splinter table verify` what else is; write the object anew",
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
        Status::Conflict => "repeat the call",
        Status::Malformed => {
            "for a call, give what the function takes (`splinter ext describe` shows it); else use a client of the \
             server's release"
        }
        Status::Internal => "look into the server's log",
        Status::Unavailable => "repeat it later",
        Status::NotOwned => "repeat it: the object has just gone to another server",
        Status::WrongTablets => {
            "see what there is with `splinter cluster tablets`, `servers` and `migrations`"
        }
        Status::SeveralTablets => "repeat it: where its tablets are has just changed",
        _ => return next_for_author(status),
    })
}

/// Returns the suggestion for an extension's author or caller.
fn next_for_author(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::UnknownExtension => {
            "list with `splinter ext list`, those of others with `splinter grant list`; install with `splinter ext \
             install`"
        }
        Status::UnknownFunction => "see what there is with `splinter ext describe`",
        Status::NotSerializable => "declare the function `read`, or scan an ordered table",
        Status::SourceRefused => {
            "mend what each line names; `splinter ext check` says the same without a server"
        }
        Status::CompileFailed => {
            "mend what the compiler names; `cargo test` in the package's folder says the same"
        }
        Status::ReadOnly => "declare the function as `write` in `sandstorm::extension!`",
        Status::ExtensionStackOverflow => {
            "a stack has 64 KiB: recurse less deeply, keep large buffers in `alloc`"
        }
        _ => return None,
    })
}

/// Writes the status, and the server's text if it says more.
fn write_refusal(to: &mut fmt::Formatter<'_>, status: Status, text: &str) -> fmt::Result {
    let sentence = status.text();
    let plain = sentence.trim_end_matches('.');
    if text.is_empty() || text.trim_end_matches('.').eq_ignore_ascii_case(plain) {
        return to.write_str(sentence);
    }
    match status {
        // The server's text names what was not found, which need not be an object.
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
            Error::NoSharedMemory { reason } => {
                write!(to, "There is no shared memory with this server: {reason}.")?;
            }
            Error::ServerAway { server: 0 } => {
                write!(to, "There is no way to the server that has this; it was not executed.")?;
            }
            Error::ServerAway { server } => {
                write!(
                    to,
                    "There is no way to server {server} of the cluster, which has this; it was not executed."
                )?;
            }
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
