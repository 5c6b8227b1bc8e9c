//! Errors of an extension and their ABI codes.
//!
//! An extension returns an [`Error`] to end its invocation: none of its writes takes effect, and the caller gets the
//! matching status. [`Error::Application`] carries the author's own number, and the caller gets the reply written so
//! far as its message.

use core::fmt;

use crate::abi::Code;

/// The reason why an operation or an invocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The author's own error; the caller gets the number, and the reply as its message.
    Application(u32),
    /// The arguments are not what the function expects.
    BadArguments,
    /// An object that the function needs does not exist.
    NotFound,
    /// The reply would exceed its limit.
    ReplyTooLarge,
    /// The key exceeds the store's limit.
    KeyTooLarge,
    /// The value exceeds the store's limit.
    ValueTooLarge,
    /// The tenant has no such table.
    UnknownTable,
    /// The object does not satisfy the condition of the write.
    ConditionFailed,
    /// The object to increment does not hold a number.
    NotANumber,
    /// The sum is out of range.
    Overflow,
    /// The store is full.
    OutOfMemory,
    /// The invocation exceeded a limit on its reads, writes or calls.
    LimitExceeded,
    /// A function declared `read` tried to write.
    ReadOnly,
    /// The tenant may not do this.
    NotPermitted,
    /// Other invocations changed what this one read, too many times in a row.
    Conflict,
    /// Another server owns the object, and the function writes it, or the tenant is `local_only`.
    NotLocal,
    /// Too little stack is left for a host call.
    StackExhausted,
    /// The store cannot answer now.
    Unavailable,
    /// The table was not created as an ordered one, so it cannot be scanned.
    NotOrdered,
    /// The time to live is zero or too long.
    OutOfRange,
    /// The cursor does not belong to this table.
    CursorInvalid,
    /// A function that writes requested data that the commit could not verify.
    NotSerializable,
    /// The server of the cluster that owns the object did not answer in time. The next read asks again.
    ServerAway,
    /// The code is unknown to this SDK.
    Unknown,
}

/// Low half of the code of [`Error::Application`].
const APPLICATION: u32 = 1;
/// Code of [`Error::Unknown`].
const UNKNOWN: Code = 19;

/// The errors without a number, each with its code. Codes are never reused.
const PLAIN: [(u32, Error, &str); 23] = [
    (2, Error::BadArguments, "bad arguments"),
    (3, Error::NotFound, "not found"),
    (4, Error::ReplyTooLarge, "reply too large"),
    (5, Error::KeyTooLarge, "key too large"),
    (6, Error::ValueTooLarge, "value too large"),
    (7, Error::UnknownTable, "unknown table"),
    (8, Error::ConditionFailed, "condition failed"),
    (9, Error::NotANumber, "not a number"),
    (10, Error::Overflow, "number overflow"),
    (11, Error::OutOfMemory, "out of memory"),
    (12, Error::LimitExceeded, "limit exceeded"),
    (13, Error::ReadOnly, "the function is declared read-only"),
    (14, Error::NotPermitted, "not permitted"),
    (15, Error::Conflict, "conflict"),
    (16, Error::NotLocal, "not on this server"),
    (17, Error::StackExhausted, "stack exhausted"),
    (18, Error::Unavailable, "unavailable"),
    (19, Error::Unknown, "unknown error"),
    (20, Error::NotOrdered, "the table is not an ordered one"),
    (21, Error::OutOfRange, "out of range"),
    (22, Error::CursorInvalid, "the cursor is not one of this table"),
    (23, Error::NotSerializable, "not in a function that writes"),
    (24, Error::ServerAway, "the server that has it does not answer"),
];

impl Error {
    /// Returns the ABI code; never [`crate::abi::OK`] or [`crate::abi::PENDING`].
    pub fn code(self) -> Code {
        match self {
            Error::Application(number) => Code::from(APPLICATION) | Code::from(number) << 32,
            plain => PLAIN.iter().find(|entry| entry.1 == plain).map_or(UNKNOWN, |entry| Code::from(entry.0)),
        }
    }

    /// Returns the error of a code other than OK and PENDING; an unlisted one is [`Error::Unknown`].
    #[cold]
    pub fn from_code(code: Code) -> Error {
        let low = code as u32;
        if low == APPLICATION {
            return Error::Application((code >> 32) as u32);
        }
        PLAIN.iter().find(|entry| entry.0 == low).map_or(Error::Unknown, |entry| entry.1)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::Application(number) => write!(out, "application error {number}"),
            plain => out.write_str(PLAIN.iter().find(|entry| entry.1 == plain).map_or("", |entry| entry.2)),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::{Error, PLAIN};

    #[test]
    fn every_code_comes_back_as_its_error() {
        for (code, error, _) in PLAIN {
            assert_eq!(error.code(), u64::from(code));
            assert_eq!(Error::from_code(error.code()), error);
        }
        for number in [0, 1, 77, u32::MAX] {
            assert_eq!(Error::from_code(Error::Application(number).code()), Error::Application(number));
        }
        assert_eq!(Error::from_code(9_999), Error::Unknown);
    }

    #[test]
    fn codes_are_distinct() {
        for (index, entry) in PLAIN.iter().enumerate() {
            assert!(PLAIN[..index].iter().all(|other| other.0 != entry.0 && other.1 != entry.1));
        }
    }
}
