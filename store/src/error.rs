//! The errors of the store, as small enums, and the condition that a write may carry.
//!
//! None is a bug of the store: a caller can meet every variant and must handle it.

use std::fmt;

/// The condition under which a write takes place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Condition {
    /// In any case.
    Always,
    /// Only if the key is absent.
    Absent,
    /// Only if the key is present.
    Present,
    /// Only if the object has this version (0 means absent).
    Version(u64),
}

impl Condition {
    /// Returns whether the condition holds for the version `current` (0 = absent).
    #[inline]
    pub fn holds(self, current: u64) -> bool {
        match self {
            Condition::Always => true,
            Condition::Absent => current == 0,
            Condition::Present => current != 0,
            Condition::Version(version) => current == version,
        }
    }
}

/// The reason why a write did not take place. Nothing has changed when it is returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WriteError {
    /// The condition does not hold; `current` is the object's version (0 = absent).
    ConditionFailed {
        /// Version of the present object, 0 if there is none.
        current: u64,
    },
    /// An increment met a value that is not eight bytes long.
    NotANumber,
    /// An increment would leave the range of `i64`, or a version its 54 bits.
    Overflow,
    /// The store is full of live data. Reads and deletes keep working.
    OutOfMemory,
    /// The tables that share the table's quota would exceed it. Deletes and writes that do not grow keep working.
    OverQuota,
    /// The written object is larger than the budget of a table that evicts.
    OverBudget,
    /// The write should be retried later: memory is short and cleaning will bring some, or another thread that holds
    /// the bucket has lost its core.
    Retry {
        /// The recommended delay, in microseconds.
        after_us: u32,
    },
    /// The key is longer than [`crate::KEY_BYTES_MAX`].
    KeyTooLarge,
    /// The value is longer than [`crate::VALUE_BYTES_MAX`], or than a segment of this store can take.
    ValueTooLarge,
    /// Too many keys share a narrow range of hashes.
    Collisions,
    /// The table has been retired.
    TableRetired,
    /// The disk of a durable table has no room. Reads, removals as long as they fit, and other tables keep working.
    StorageFull,
    /// The disk of a durable table has failed.
    StorageFailed,
    /// The write depends on an object that may still have to arrive from another store.
    NotArrived,
}

impl fmt::Display for WriteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConditionFailed { current } => {
                write!(out, "condition failed, current version is {current}")
            }
            Self::NotANumber => out.write_str("the value is not an eight-byte number"),
            Self::Overflow => out.write_str("the number would overflow"),
            Self::OutOfMemory => out.write_str("the store is full"),
            Self::OverQuota => out.write_str("the quota of the table is used up"),
            Self::OverBudget => out.write_str("the object exceeds the budget of the table"),
            Self::Retry { after_us } => write!(out, "not now, retry after {after_us} us"),
            Self::KeyTooLarge => out.write_str("the key is too large"),
            Self::ValueTooLarge => out.write_str("the value is too large"),
            Self::Collisions => out.write_str("too many keys share a range of hashes"),
            Self::TableRetired => out.write_str("the table is retired"),
            Self::StorageFull => out.write_str("the disk is full"),
            Self::StorageFailed => out.write_str("the disk has failed"),
            Self::NotArrived => out.write_str("the key's object has not arrived"),
        }
    }
}

impl std::error::Error for WriteError {}

/// The reason why a commit did not take place. Nothing has changed when it is returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommitError {
    /// A read has become invalid: `read` is the index of the first such check.
    Conflict {
        /// Index into the read checks, or, from their number on, into the range checks.
        read: usize,
    },
    /// More than [`crate::COMMIT_OPERATIONS_MAX`] reads and writes.
    TooManyOperations,
    /// One of the writes was refused.
    Write(WriteError),
}

impl From<WriteError> for CommitError {
    fn from(error: WriteError) -> Self {
        CommitError::Write(error)
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict { read } => write!(out, "read {read} has changed since"),
            Self::TooManyOperations => out.write_str("too many operations in one commit"),
            Self::Write(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for CommitError {}

/// The reason why a store could not be created.
#[derive(Debug)]
pub enum StoreError {
    /// A number of the configuration is invalid; the text says which and why.
    Config(&'static str),
    /// The operating system gave no memory.
    Memory(std::io::Error),
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => write!(out, "bad store configuration: {what}"),
            Self::Memory(error) => write!(out, "cannot map the store's memory: {error}"),
        }
    }
}

impl std::error::Error for StoreError {}
