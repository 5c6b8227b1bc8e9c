//! Replies about archives: what a tenant has as of one cut of the log, and its objects in pieces.
//!
//! The server only reads: an archive under way is a number, which ends by itself when nobody reads it.

use serde::{Deserialize, Serialize};

use crate::byte_string::ByteString;
use crate::{GrantEntry, TableOptions, TenantLimitEntry, VersionState};

/// An archive that begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchiveBegun {
    /// Its number, for the requests that read it.
    pub id: u64,
    /// The tenant.
    pub tenant: String,
    /// The number of the cut of the log.
    pub cut: u64,
    /// The server's clock at the cut, in milliseconds since the Unix epoch. Objects that have expired by then are not in
    /// the archive.
    pub clock_ms: u64,
    /// The tables whose objects are on the disk.
    pub tables: Vec<ArchivedTable>,
    /// Names of the tables in memory, which are left out.
    pub left_out: Vec<String>,
    /// The tenant's extensions.
    pub extensions: Vec<ArchivedExtension>,
    /// The tenant's limits.
    pub limits: Vec<TenantLimitEntry>,
    /// The grants that the tenant gave.
    pub grants: Vec<GrantEntry>,
    /// The server's number in its cluster; 0 outside one.
    #[serde(default)]
    pub server: u32,
    /// In a cluster, the positions of keys that the server owned at the cut: it archives these, other servers the others.
    #[serde(default)]
    pub owned: Vec<OwnedPositions>,
}

/// Positions of a table that one server owns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnedPositions {
    /// The table's id.
    pub table: u32,
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
}

/// A table of an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchivedTable {
    /// The id that pieces name it by.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: TableOptions,
    /// In a cluster, the number of its tablets.
    #[serde(default)]
    pub tablets: u32,
}

/// An extension of an archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchivedExtension {
    /// Its name.
    pub name: String,
    /// Its kept versions, the oldest first.
    pub versions: Vec<u32>,
    /// Which of them are invoked.
    pub state: VersionState,
}

/// A piece of an archive: records, one after the other, in the order of the log.
///
/// A record of keys is the keyed hash of table and key (16 bytes), the table's id (u32), and a word (u64): the version,
/// plus 2^63 if the key ends there. A record of objects is the same, then the length of the entry (u32) and the entry as
/// the log has it. Numbers are little-endian.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchivePiece {
    /// The records.
    pub records: ByteString,
    /// The number of the segment that they come from; a segment's records come in pieces one after the other.
    pub segment: u32,
    /// Whether no piece follows.
    pub is_last: bool,
    /// Bytes of the log that were read up to here.
    pub done_bytes: u64,
    /// Bytes of the log that are read in all.
    pub all_bytes: u64,
    /// Of a check: blocks of the piece's segment that are not as they were written, told with its first piece.
    #[serde(default)]
    pub damaged_blocks: u32,
    /// Of a check: bytes of entries of any tenant that were left out because they are damaged.
    #[serde(default)]
    pub damaged_bytes: u64,
}

/// A piece of the source of an extension's version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ArchiveSource {
    /// The piece.
    pub bytes: ByteString,
    /// Bytes of the whole source: the body of a request that installs it.
    pub all_bytes: u64,
}

/// The result of restoring objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Restored {
    /// Objects that were stored.
    pub stored: u64,
    /// Objects that have expired, or of which the table has a version as new.
    pub late: u64,
}
