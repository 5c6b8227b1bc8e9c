//! The reasons why records refuse, and the detection of a full disk.

use std::fmt;
use std::io;

/// The reason why records refused. Unless stated otherwise nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsError {
    /// Reading as of that earlier commit is no longer possible.
    Overtaken,
    /// The lease is over.
    LeaseGone,
    /// The storage does not answer.
    Unavailable(String),
    /// The storage stopped answering during a commit: it may have happened or not.
    Uncertain(String),
    /// The storage is full.
    StorageFull,
    /// A commit exceeds the maximum of parts or bytes.
    TooLarge(String),
    /// Another version of the server wrote the records, with this layout number.
    UnknownFormat(u64),
    /// Another failure of the storage.
    Storage(String),
}

impl fmt::Display for RecordsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overtaken => formatter.write_str("the metadata has changed since it was read"),
            Self::LeaseGone => formatter.write_str("the lease is over"),
            Self::Unavailable(text) => write!(formatter, "the metadata cannot be reached: {text}"),
            Self::Uncertain(text) => {
                write!(formatter, "the metadata stopped answering, and the change may have been made: {text}")
            }
            Self::StorageFull => formatter.write_str("the disk is full"),
            Self::TooLarge(text) => write!(formatter, "the change is too large for the metadata: {text}"),
            Self::UnknownFormat(version) => {
                write!(formatter, "the metadata has layout {version}, which this server does not know")
            }
            Self::Storage(text) => write!(formatter, "the metadata cannot be stored: {text}"),
        }
    }
}

impl std::error::Error for RecordsError {}

impl From<redb::Error> for RecordsError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(error) if is_full(&error) => Self::StorageFull,
            redb::Error::DatabaseAlreadyOpen => {
                Self::Storage("another server has this data directory open".to_owned())
            }
            other => Self::Storage(other.to_string()),
        }
    }
}

macro_rules! from_part {
    ($($part:ident),*) => {
        $(impl From<redb::$part> for RecordsError {
            fn from(error: redb::$part) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

from_part!(DatabaseError, TransactionError, TableError, StorageError, CommitError);

/// Returns whether an error of the operating system means that there is no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
        || error.kind() == io::ErrorKind::StorageFull
}
