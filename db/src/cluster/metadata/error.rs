//! Why the metadata refused.

use std::fmt;

use super::{StandingError, TabletError};
use crate::cluster::records::RecordsError;

/// Why the metadata refused. Nothing was changed, unless it is [`RecordsError::Uncertain`].
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
    /// The tablets of the table do not allow it.
    Tablets(TabletError),
    /// Others kept changing what the change depends on.
    Conflict,
    /// What keeps the records refused.
    Records(RecordsError),
}

impl fmt::Display for MetadataError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyExists => formatter.write_str("the name is taken"),
            Self::NotFound => formatter.write_str("there is nothing of that name"),
            Self::LimitExceeded => formatter.write_str("there are as many as may be"),
            Self::Standing(error) => error.fmt(formatter),
            Self::Tablets(error) => error.fmt(formatter),
            Self::Conflict => formatter.write_str("others keep changing the same metadata; try again"),
            Self::Records(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for MetadataError {}

impl From<RecordsError> for MetadataError {
    fn from(error: RecordsError) -> Self {
        Self::Records(error)
    }
}
