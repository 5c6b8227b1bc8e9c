//! The reasons for refusals by the metadata.

use std::fmt;

use super::VersionStateError;
use crate::records::RecordsError;

/// The reason for a refusal by the metadata. Nothing was changed, unless it is [`RecordsError::Uncertain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataError {
    /// The name is taken.
    AlreadyExists,
    /// The tenant, table or extension does not exist.
    NotFound,
    /// The maximum number exists already.
    LimitExceeded,
    /// The state of the extension's versions does not allow it.
    VersionState(VersionStateError),
    /// The table's tablets do not allow it.
    Tablets(TabletError),
    /// The table of a cluster would change between memory and the disk.
    DurabilityFixed,
    /// Other servers repeatedly changed what the change depends on.
    Conflict,
    /// The storage of the records refused.
    Records(RecordsError),
}

impl fmt::Display for MetadataError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyExists => formatter.write_str("the name is taken"),
            Self::NotFound => formatter.write_str("nothing has that name"),
            Self::LimitExceeded => formatter.write_str("the maximum number already exists"),
            Self::VersionState(error) => error.fmt(formatter),
            Self::Tablets(error) => error.fmt(formatter),
            Self::DurabilityFixed => formatter.write_str(
                "in a cluster the durability of a table changes only between written and synced; create a new table and copy the \
                 objects: export them with `splinter scan --output json`, or of a table without order with \
                 `splinter table enumerate --output json`, and import them with `splinter put --from`",
            ),
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

/// The reason why a change of tablets is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TabletError {
    /// No tablet can begin at the hash.
    Uneven(u64),
    /// No two tablets meet at the hash.
    NoEdge(u64),
    /// Several servers own the hashes.
    SeveralOwners,
    /// This migration moves some of the hashes.
    OnTheMove(u32),
    /// The server owns the hashes already.
    OwnedAlready(u32),
    /// The server with this number does not exist.
    NoServer(u32),
    /// The server is present.
    IsThere(u32),
    /// The table is on the disk, and the server with this number has none.
    NoDisk(u32),
    /// The table is on the disk, and no present server has one.
    NoDisks,
    /// The plan with this number has not ended.
    PlanRuns(u32),
    /// The table is tagged: its tablets stay as they were created, and move one at a time.
    Tagged,
    /// The server with this number is of a release without tagged tables.
    NoTags(u32),
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
            Self::NoDisk(server) => {
                write!(
                    formatter,
                    "the table is on the disk, and server {server} was started with `--disk off`"
                )
            }
            Self::NoDisks => formatter
                .write_str("the table is on the disk, and all servers were started with `--disk off`"),
            Self::IsThere(server) => write!(formatter, "server {server} is there"),
            Self::Tagged => formatter.write_str(
                "the table is tagged: its tablets are neither split nor merged, and move one at a time; `splinter cluster \
                 tablets` lists them",
            ),
            Self::NoTags(server) => write!(
                formatter,
                "server {server} is of a release without tagged tables: start it with this release first"
            ),
            Self::PlanRuns(plan) => write!(formatter, "plan {plan} is being carried out"),
            Self::NoServer(server) => write!(formatter, "server {server} is not there"),
        }
    }
}
