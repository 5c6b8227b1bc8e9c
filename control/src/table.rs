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

/// What of a table survives the end of its server.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing survives the end of the server.
    Memory,
    /// A write is answered at once and is on the disk within the server's flush interval: a crash loses the newest. In a cluster
    /// with replicas it is answered when these have it in memory, and lost if all of them crash at the same time.
    Written,
    /// A write is answered when it is stable on the disk.
    Synced,
}

impl Durability {
    /// Returns the name on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Written => "written",
            Self::Synced => "synced",
        }
    }

    /// Returns whether a disk has the objects.
    #[must_use]
    pub const fn is_on_disk(self) -> bool {
        !matches!(self, Self::Memory)
    }
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
    /// What of it survives the end of the server. `None`: the server chooses when it creates the table; what it chose
    /// is stored with the table. Tables of releases without this field are in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Whether keys with the same tag, the text between `{` and `}`, are always on one server.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tagged: bool,
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
    /// What of it survives the end of the server; `None` from a server that does not say.
    #[serde(default)]
    pub durability: Option<Durability>,
    /// Bytes of its objects that have been rewritten, roughly, while the table goes from memory to the disk or back.
    #[serde(default)]
    pub rewritten_bytes: Option<u64>,
    /// Whether keys with the same tag are always on one server.
    #[serde(default)]
    pub tagged: bool,
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
    /// What of it survives the end of the server; `None` from a server that does not say.
    #[serde(default)]
    pub durability: Option<Durability>,
    /// Bytes of its objects that have been rewritten, roughly, while the table goes from memory to the disk or back.
    #[serde(default)]
    pub rewritten_bytes: Option<u64>,
}
