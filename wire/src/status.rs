//! The list of statuses: every reply in a frame or a stream carries one of these bytes.
//!
//! Numbers are never reused, and an unknown byte is not an error of the frame (see [`Status::from_u8`]).
//! [`crate::reply`] lists the body of each status.

use core::fmt;

macro_rules! statuses {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)+) => {
        /// How a request ended.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Status {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl Status {
            /// Every status, by number.
            pub const ALL: &'static [Status] = &[$(Status::$name),+];

            /// Returns the status of a byte; `None` if this version does not know it.
            pub const fn from_u8(number: u8) -> Option<Status> {
                match number {
                    $($number => Some(Status::$name),)+
                    _ => None,
                }
            }

            /// Returns the name as written in this list, for output that programs read.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Status::$name => stringify!($name),)+
                }
            }

            /// Returns one sentence for people.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Status::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

statuses! {
    /// The request was carried out.
    Ok = 0,
    /// There is no such object.
    NotFound = 1,
    /// The condition of the write does not hold; nothing was written.
    ConditionFailed = 2,
    /// The object's value is not a number of eight bytes.
    NotANumber = 3,
    /// The sum does not fit in 64 bits; nothing was written.
    Overflow = 4,
    /// The request is malformed.
    Malformed = 5,
    /// The server does not speak this version of the protocol.
    UnsupportedVersion = 6,
    /// The server does not know this opcode.
    UnknownOpcode = 7,
    /// No session has this token.
    BadToken = 8,
    /// The secret is wrong.
    BadSecret = 9,
    /// There is no such tenant.
    UnknownTenant = 10,
    /// The tenant has no such table.
    UnknownTable = 11,
    /// The tenant has no such extension, or no such version of it.
    UnknownExtension = 12,
    /// The extension has no such function.
    UnknownFunction = 13,
    /// The name is taken.
    AlreadyExists = 14,
    /// The key is longer than allowed.
    KeyTooLarge = 15,
    /// The value is longer than allowed.
    ValueTooLarge = 16,
    /// The reply is longer than allowed.
    ReplyTooLarge = 17,
    /// The arguments are longer than allowed.
    ArgumentsTooLarge = 18,
    /// The name or path is invalid.
    NameInvalid = 19,
    /// The store is full; reads and deletes still work.
    OutOfMemory = 20,
    /// The server cannot do this yet; send the same request again after the time in the answer.
    Retry = 21,
    /// The sequence is below the exactly-once window; the request was not executed this time.
    Expired = 22,
    /// The sequence is above the exactly-once window.
    TooManyOutstanding = 23,
    /// The answer does not fit in a datagram; send the request over the stream with the same sequence.
    UseStream = 24,
    /// The caller may not do this.
    NotPermitted = 25,
    /// A limit would be exceeded.
    LimitExceeded = 26,
    /// The extension returned an error of its own.
    ExtensionError = 27,
    /// The extension panicked; nothing was written.
    ExtensionPanicked = 28,
    /// The extension used up its memory; nothing was written.
    ExtensionOutOfMemory = 29,
    /// The extension used up its stack; nothing was written.
    ExtensionStackOverflow = 30,
    /// The invocation exceeded its budget and was killed; nothing was written.
    ExtensionKilled = 31,
    /// A read-only function tried to write.
    ReadOnly = 32,
    /// Other writes kept changing objects that the invocation read; nothing was written.
    Conflict = 33,
    /// The checker refused the source of the extension.
    SourceRefused = 34,
    /// The source of the extension does not compile.
    CompileFailed = 35,
    /// The server's disk is full; what must be on it is refused until space is free.
    StorageFull = 36,
    /// The server cannot do this at present.
    Unavailable = 37,
    /// The server failed; its log says why.
    Internal = 38,
    /// Too many keys have the same hash.
    Collisions = 39,
    /// The frame's view differs from the server's; nothing in the frame was executed.
    WrongView = 40,
    /// The function asked for an object that another server holds; nothing was written.
    NotLocal = 41,
    /// There is no limit with this name; nothing was changed.
    UnknownLimit = 42,
    /// The value is out of range; nothing was changed.
    OutOfRange = 43,
    /// A limit on rate or concurrency was reached; send the same request again after the time in the answer.
    Throttled = 44,
    /// A limit of the tenant is used up; nothing was changed.
    OverQuota = 45,
    /// The request has already been executed, and its answer is no longer kept.
    ReplyForgotten = 46,
    /// The cursor is not valid for this table; start over without it.
    CursorInvalid = 47,
    /// The object's bytes differ from those that were written.
    Corrupted = 48,
    /// The table is not ordered; only an ordered table can be scanned.
    NotOrdered = 49,
    /// The write exceeds the cache budget of the table; nothing was changed.
    OverBudget = 50,
    /// A write function used an operation that its commit cannot validate; only read functions may use it.
    NotSerializable = 51,
    /// Another server owns the key in the frame's view; nothing was executed.
    NotOwned = 52,
    /// The request covers several tablets of the table; it must stay within one.
    SeveralTablets = 53,
    /// The state of the tablets or servers does not allow this; nothing was changed.
    WrongTablets = 54,
    /// The server owns the key, but does not know yet whether the object exists.
    NotArrived = 55,
    /// The key is moving to another server, which owns it now; this is its last state here.
    Frozen = 56,
    /// The server's disk failed; the outcome of the request is unknown until the server is restarted.
    StorageFailed = 57,
    /// A table to be written is in memory, and the request asked for the disk; nothing was written.
    NotDurable = 58,
    /// The client is to run the function itself; nothing was written.
    PushedBack = 59,
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

impl std::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn numbers_names_and_texts_are_one_to_one() {
        for (index, &status) in Status::ALL.iter().enumerate() {
            assert_eq!(status as usize, index);
            assert_eq!(Status::from_u8(index as u8), Some(status));
            assert!(status.text().ends_with('.') && !status.text().starts_with(' '));
            assert!(Status::ALL[..index].iter().all(|other| other.name() != status.name()));
        }
        for number in Status::ALL.len()..=255 {
            assert_eq!(Status::from_u8(number as u8), None);
        }
    }
}
