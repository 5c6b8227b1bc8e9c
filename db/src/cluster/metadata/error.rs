//! Why the metadata refused.

use std::fmt;

use super::VersionStateError;
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
    Standing(VersionStateError),
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

impl From<TabletError> for MetadataError {
    fn from(error: TabletError) -> Self {
        Self::Tablets(error)
    }
}

/// Why tablets cannot be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TabletError {
    /// No tablet can begin at the hash.
    Uneven(u64),
    /// There is no edge of two tablets at the hash.
    NoEdge(u64),
    /// Several servers own the hashes.
    SeveralOwners,
    /// This migration moves some of the hashes.
    OnTheMove(u32),
    /// The server owns the hashes already.
    OwnedAlready(u32),
    /// There is no server of this number.
    NoServer(u32),
    /// The server is there.
    IsThere(u32),
    /// The plan of this number has not ended.
    PlanRuns(u32),
}

impl fmt::Display for TabletError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uneven(hash) => {
                write!(formatter, "a tablet begins at a multiple of 2^32, which {hash:016x} is not")
            }
            Self::NoEdge(hash) => write!(formatter, "no tablet begins at the hash {hash:016x}"),
            Self::SeveralOwners => formatter.write_str("more than one server owns these hashes"),
            Self::OnTheMove(id) => write!(formatter, "migration {id} moves some of these hashes"),
            Self::OwnedAlready(server) => write!(formatter, "server {server} owns these hashes already"),
            Self::IsThere(server) => write!(formatter, "server {server} is there"),
            Self::PlanRuns(plan) => write!(formatter, "plan {plan} is being carried out"),
            Self::NoServer(server) => write!(formatter, "server {server} is not there"),
        }
    }
}
