//! The text of an error: the failure and a suggestion.
//!
//! The status's own sentence comes first, then the server's text if it adds anything. The suggestion follows `Next:`,
//! so that the command can print it on a separate line.

use std::fmt;

use wire::Status;

use super::Error;

/// The limit on the memory that a tenant's suspended invocations hold.
const HELD_BYTES: &str = "held_bytes_of_a_core";
/// Prefix of the server's texts about limits of one invocation.
const INVOCATION_LIMIT: &str = "the limit invocation_";
/// The word that all of the server's texts about the durability of tables have.
const DURABILITY: &str = "durability";
/// Beginning of the server's reasons why an extension has no module.
const NO_MODULE: &str = "wasm unavailable:";

impl Error {
    fn next(&self) -> Option<&'static str> {
        Some(match self {
            // The server's text about a missing permission is a suggestion already.
            Error::Refused { status: Status::NotPermitted, text } if !text.is_empty() => return None,
            Error::Refused { status: Status::ExtensionKilled, text } if text.contains(HELD_BYTES) => {
                "run fewer calls at a time, or let the function hold less memory while it yields"
            }
            Error::Refused { status: Status::Unavailable, text } if text.contains(NO_MODULE) => {
                "install a version that has a module (`splinter ext describe` shows which have and why others do \
                 not), or keep sandbox=native, which the operator sets (`splinter tenant limits`)"
            }
            // The server's text says what to do instead.
            Error::Refused { status: Status::Unavailable | Status::OutOfRange, text }
                if text.contains(DURABILITY) =>
            {
                return None;
            }
            Error::Refused { text, .. } if text.contains(INVOCATION_LIMIT) => {
                "do less in one call, or ask the operator for a higher limit (see `splinter tenant limits`)"
            }
            Error::Refused { status, .. } => return next_after(*status),
            Error::ConditionFailed { .. } => "read the object again and repeat with its version",
            Error::Conflict { .. } | Error::NotCommitted { .. } => return next_after(Status::Conflict),
            Error::AddressInvalid { .. } => {
                "give HOST:PORT, for instance 127.0.0.1:7700, or several separated by commas"
            }
            Error::Unreachable { .. } => "check the address, and that splinter-server is running there",
            Error::ServerAway { .. } => "see `splinter cluster servers`; repeat it when the server is back",
            Error::NoSharedMemory { .. } => "use --transport auto or --transport udp",
            Error::NotSent | Error::Overloaded => "repeat it with fewer outstanding requests",
            Error::Throttled { .. } => {
                "send fewer requests, or ask the operator for a higher limit (see `splinter tenant limits`)"
            }
            Error::TimedOut => "check the server, and read the object before repeating a write",
            Error::SessionLost => {
                "read the object before repeating a write; a restart of the server loses the data in memory"
            }
            Error::StreamBroken { .. } => "list to see whether it took effect before repeating it",
            Error::Full => "poll completions before submitting more",
            Error::Unintelligible { .. } => "check that the client and the server are the same release",
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
            "check the name and the secret: `splinter tenant create` printed the tenant's secret, and \
             `splinter tenant rotate` makes a new one; the administrator's secret is in the file admin.secret \
             in the server's data directory"
        }
        Status::UnknownTable => {
            "create it with `splinter table create`; list the tenant's tables with `splinter table list`, \
             and those granted by other tenants with `splinter grant list`"
        }
        Status::KeyTooLarge => "a key has at most 65,535 bytes",
        Status::ValueTooLarge => "a value has at most 1 MiB; split it into several objects",
        Status::ArgumentsTooLarge => "arguments have at most 1 MiB; put longer data into objects",
        Status::AlreadyExists => "choose another name",
        Status::UnknownLimit | Status::OutOfRange => {
            "list the limits and their ranges with `splinter tenant limits NAME`; a time to live is from \
             1 ms to 139 years, an increment is a finite number, and a cache is from 4,096 bytes to the \
             server's memory"
        }
        Status::NotOrdered => "recreate the table with `splinter table create NAME --ordered`",
        Status::OverBudget => "recreate the table with a larger `--cache`, or write less at once",
        Status::CursorInvalid => {
            "start over without a cursor: a cursor is valid only for its table (a scan's only for its \
             range), until the table is dropped or the server stops"
        }
        Status::Corrupted => {
            "find other corrupted objects with `splinter table verify`, and write the object again"
        }
        Status::UnsupportedVersion => "use a client of the server's release",
        Status::NotPermitted => "ask the owner for a grant, or the operator",
        Status::BadToken => "open a new session",
        Status::NameInvalid => {
            "use at most 64 letters, digits, `_`, `-` and `.`, starting with a letter or digit; give an owner or a \
             version only where the command's --help does"
        }
        Status::Conflict => "repeat the call",
        Status::Malformed => {
            "for a call, pass the arguments that `splinter ext describe` shows; otherwise use a client of the \
             server's release"
        }
        Status::Internal => "read the server's log",
        Status::Unavailable => "repeat it later",
        Status::NotOwned => "repeat it: the object has just moved to another server",
        Status::WrongTablets => {
            "see `splinter cluster tablets`, `splinter cluster servers` and `splinter cluster migrations`"
        }
        Status::SeveralTablets => "repeat it: the tablets of the table have just changed",
        _ => return next_of_storage(status).or_else(|| next_for_author(status)),
    })
}

/// Returns the suggestion for what memory and disk refuse.
fn next_of_storage(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::OutOfMemory => "delete objects, or give the server more memory",
        Status::OverQuota => {
            "free some of it, or ask the operator for a higher limit (see `splinter tenant limits`)"
        }
        Status::ReplyForgotten => {
            "read what it wrote; keep fewer answers unacknowledged (a later request acknowledges earlier answers)"
        }
        Status::StorageFull => {
            "delete objects, or ask the operator to free disk space or, for durable writes, to raise --disk"
        }
        Status::StorageFailed => {
            "ask the operator to check the disk and restart the server, and read the object before repeating a write"
        }
        Status::Collisions => {
            "use other keys; a part of an enumeration fits a new table only with the rest: export all of it, with \
             --limit 4000000000"
        }
        Status::PushedBack => {
            "report it: a server pushes back only calls that their clients said they can run"
        }
        Status::NotDurable => {
            "write without asking for the disk, or to a table that has another durability than memory"
        }
        _ => return None,
    })
}

/// Returns the suggestion for an extension's author or caller.
fn next_for_author(status: Status) -> Option<&'static str> {
    Some(match status {
        Status::UnknownExtension => {
            "install it with `splinter ext install`; list the tenant's extensions with `splinter ext list`, \
             and those granted by other tenants with `splinter grant list`"
        }
        Status::UnknownFunction => "list the functions with `splinter ext describe`",
        Status::NotSerializable => "declare the function as `read`, or scan an ordered table",
        Status::SourceRefused => {
            "fix what each line reports; `splinter ext check` reports the same without a server"
        }
        Status::CompileFailed => {
            "fix the compiler's errors; `cargo test` in the package's folder shows the same ones"
        }
        Status::ReadOnly => "declare the function as `write` in `sandstorm::extension!`",
        Status::ExtensionStackOverflow => {
            "a stack has 64 KiB: recurse less deeply, and keep large buffers on the heap (`alloc`)"
        }
        _ => return None,
    })
}

/// Writes the status, and the server's text if it adds anything.
fn write_refusal(to: &mut fmt::Formatter<'_>, status: Status, text: &str) -> fmt::Result {
    let sentence = status.text();
    let plain = sentence.trim_end_matches('.');
    if text.is_empty() || text.trim_end_matches('.').eq_ignore_ascii_case(plain) {
        return to.write_str(sentence);
    }
    match status {
        // The missing thing is not always an object; the server's text names it.
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
            Error::NotCommitted { .. } => {
                write!(to, "A read of the transaction had no answer; nothing was written.")?
            }
            Error::Conflict { table, key } => {
                let key = key.escape_ascii();
                write!(to, "Others kept changing `{key}` of table {table}; nothing was written.")?;
            }
            Error::ExtensionFailed { code, message } => {
                write!(to, "The extension returned error {code}")?;
                match str::from_utf8(message) {
                    Ok("") => write!(to, ".")?,
                    Ok(text) => write!(to, ": {text}")?,
                    Err(_) => write!(to, " with {} bytes that are not text.", message.len())?,
                }
            }
            Error::AddressInvalid { address, error } => write!(to, "Cannot resolve \"{address}\": {error}.")?,
            Error::Unreachable { address, error } => write!(to, "Cannot connect to {address}: {error}.")?,
            Error::NoSharedMemory { reason } => {
                write!(to, "Shared memory with this server is not available: {reason}.")?;
            }
            Error::ServerAway { server: 0 } => {
                write!(to, "The server that owns this key cannot be reached; the request was not executed.")?;
            }
            Error::ServerAway { server } => {
                write!(
                    to,
                    "Server {server}, which owns this key, cannot be reached; the request was not executed."
                )?;
            }
            Error::NotSent => write!(to, "The request could not be sent in time; it was not executed.")?,
            Error::TimedOut => write!(to, "No answer in time; the request may have been executed.")?,
            Error::Overloaded => write!(to, "The server was too busy until the request timed out.")?,
            Error::Throttled { limit: Some((limit, after_us)) } => {
                let seconds = after_us.div_ceil(1_000_000);
                write!(to, "The tenant's limit {limit} delayed the request until it timed out; ")?;
                write!(to, "it allows the request again in {seconds} s.")?;
            }
            Error::Throttled { limit: None } => {
                write!(
                    to,
                    "Limits of the tenant (operations_per_second, invocations, {HELD_BYTES}; for an installation "
                )?;
                write!(to, "compile_ms_per_minute) delayed the request until it timed out.")?;
            }
            Error::SessionLost => {
                write!(to, "The session ended before the answer came; the request may have been executed.")?;
            }
            Error::StreamBroken { error } => write!(to, "The stream to the server broke: {error}.")?,
            Error::Full => write!(to, "The session has its maximum number of outstanding requests.")?,
            Error::Unintelligible { expected } => {
                write!(to, "The server's answer cannot be decoded: expected {expected}.")?;
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
