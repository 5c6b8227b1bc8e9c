//! What can go wrong in an extension, and its code at the border.
//!
//! An extension returns an [`Error`] to end its invocation: nothing it wrote takes effect, and the caller
//! gets the matching status. [`Error::Application`] carries a number of the author's own, and the caller
//! gets the reply written so far as its message.

use core::fmt;

use crate::abi::Code;

/// Why an operation, or a whole invocation, failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The author's own error; the caller sees the number, and the reply as its message.
    Application(u32),
    /// The arguments are not what the function expects.
    BadArguments,
    /// Something that the function needs is not there.
    NotFound,
    /// The reply would grow beyond its limit.
    ReplyTooLarge,
    /// The key is longer than the store takes.
    KeyTooLarge,
    /// The value is longer than the store takes.
    ValueTooLarge,
    /// The tenant has no such table.
    UnknownTable,
    /// The object's version is not what the condition asks for.
    ConditionFailed,
    /// The object to increment holds no number.
    NotANumber,
    /// The sum does not fit.
    Overflow,
    /// The store is full.
    OutOfMemory,
    /// The invocation read, wrote or called more than its limit.
    LimitExceeded,
    /// A function declared `read` tried to write.
    ReadOnly,
    /// The tenant may not do this.
    NotPermitted,
    /// Another invocation changed what this one read, too many times in a row.
    Conflict,
    /// The object lives on another server, and is to be written, or read by a tenant that is `local_only`.
    NotLocal,
    /// Too little stack is left for a call into the store.
    StackExhausted,
    /// The store cannot answer now.
    Unavailable,
    /// A scan of a table that was not created as an ordered one.
    NotOrdered,
    /// The time to live is nothing, or more than an object may have.
    OutOfRange,
    /// The cursor is not one of this table.
    CursorInvalid,
    /// A function that writes asked for what could not be relied on when its writes are applied.
    NotSerializable,
    /// The server of the cluster that has the object did not answer in time. The next read asks again.
    ServerAway,
    /// A code that this SDK does not know.
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
    /// The code at the border; never [`crate::abi::OK`] nor [`crate::abi::PENDING`].
    pub fn code(self) -> Code {
        match self {
            Error::Application(number) => Code::from(APPLICATION) | Code::from(number) << 32,
            plain => PLAIN.iter().find(|entry| entry.1 == plain).map_or(UNKNOWN, |entry| Code::from(entry.0)),
        }
    }

    /// The error of a code that is neither OK nor PENDING; an unlisted one becomes [`Error::Unknown`].
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
