//! Why records refused, and what a full disk looks like.

use std::fmt;
use std::io;

/// Why records refused. Unless it says otherwise nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordsError {
    /// What was to be read as of an earlier commit cannot be read any more.
    Overtaken,
    /// The lease is over.
    LeaseGone,
    /// Whoever keeps the records does not answer.
    Unavailable(String),
    /// Whoever keeps the records stopped answering in the middle of a commit: it may have happened or not.
    Uncertain(String),
    /// There is no room.
    StorageFull,
    /// A commit has more parts or bytes than one may have.
    TooLarge(String),
    /// The records were written by another version of the server: the number of their layout.
    UnknownFormat(u64),
    /// It failed in another way.
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

/// Whether an error of the operating system says that there is no room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
        || error.kind() == io::ErrorKind::StorageFull
}
