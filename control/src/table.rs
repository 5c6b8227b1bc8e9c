//! Replies about the tables of a tenant.
//!
//! Data requests name a table by its id, which is never reused after the table is dropped.

use serde::{Deserialize, Serialize};

use crate::MigrationMode;

/// The reply to the creation or opening of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableId {
    /// The id that data requests use.
    pub id: u32,
}

/// The options of a new table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TableOptions {
    /// Whether its keys can be scanned in order.
    pub ordered: bool,
    /// Byte budget of its objects: the table evicts the least used ones to stay within it (S3-FIFO). `None`: no
    /// eviction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
    /// The default migration mode of its tablets: rocksteady or cooperative.
    pub migration: MigrationMode,
}

/// One table of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableEntry {
    /// The id that data requests use.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whether its keys can be scanned in order.
    pub ordered: bool,
    /// Live objects.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
    /// Bytes of memory of the index and of the eviction queues.
    pub index_bytes: u64,
    /// Byte budget of its objects, if it evicts.
    pub cache_bytes: Option<u64>,
    /// Objects that it has evicted since the server started.
    pub evicted: u64,
    /// Its last loss of objects, in milliseconds since the Unix epoch; `None` for no loss. A table loses objects when
    /// their server ends.
    pub emptied_ms: Option<u64>,
}

/// The statistics of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TableStatistics {
    /// The id that data requests use.
    pub id: u32,
    /// Live objects.
    pub objects: u64,
    /// Bytes of memory of these objects, headers included.
    pub bytes: u64,
    /// Bytes of memory of the index and of the eviction queues.
    pub index_bytes: u64,
    /// Byte budget of its objects, if it evicts.
    pub cache_bytes: Option<u64>,
    /// Objects that it has evicted since the server started.
    pub evicted: u64,
    /// Its last loss of objects, in milliseconds since the Unix epoch; `None` for no loss. A table loses objects when
    /// their server ends.
    pub emptied_ms: Option<u64>,
}
