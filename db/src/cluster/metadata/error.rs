//! Why the metadata refused.

use std::fmt;

use super::{StandingError, is_full};

/// Why the metadata refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataError {
    /// The name is taken.
    AlreadyExists,
    /// There is no such tenant, table or extension.
    NotFound,
    /// There are as many as may be.
    LimitExceeded,
    /// The versions of the extension do not allow it.
    Standing(StandingError),
    /// The disk is full.
    StorageFull,
    /// The file was written by another version of the server: the number of its layout.
    UnknownFormat(u64),
    /// The disk or the file failed in another way.
    Storage(String),
}

impl fmt::Display for MetadataError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyExists => formatter.write_str("the name is taken"),
            Self::NotFound => formatter.write_str("there is nothing of that name"),
            Self::LimitExceeded => formatter.write_str("there are as many as may be"),
            Self::Standing(error) => error.fmt(formatter),
            Self::StorageFull => formatter.write_str("the disk is full"),
            Self::UnknownFormat(version) => {
                write!(formatter, "the metadata has layout {version}, which this server does not know")
            }
            Self::Storage(text) => write!(formatter, "the metadata cannot be stored: {text}"),
        }
    }
}

impl std::error::Error for MetadataError {}

impl From<redb::Error> for MetadataError {
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
        $(impl From<redb::$part> for MetadataError {
            fn from(error: redb::$part) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

from_part!(DatabaseError, TransactionError, TableError, StorageError, CommitError);
