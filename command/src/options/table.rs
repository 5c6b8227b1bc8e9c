//! The command line of `splinter table`.
//!
//! A name is the tenant's own table, or OWNER/TABLE of another tenant where the option says so.

use clap::{Subcommand, ValueEnum};
use client::{Durability, MigrationMode};

use super::limits::bytes_of;

/// Parses bytes, with or without a unit.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "give a size in bytes or with a unit, such as 256MiB".to_owned();
    bytes_of(text).ok_or_else(wrong)
}

/// Modes of migration of a table's tablets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableMigration {
    /// Reads of an object in transit wait for it, and it moves first.
    Rocksteady,
    /// Reads of an object in transit also ask the source server; costs up to a tenth more bytes.
    Cooperative,
}

impl TableMigration {
    /// Returns the mode as requests encode it.
    pub const fn mode(self) -> MigrationMode {
        match self {
            Self::Rocksteady => MigrationMode::Rocksteady,
            Self::Cooperative => MigrationMode::Cooperative,
        }
    }
}

/// What of a table survives the end of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableDurability {
    /// Nothing survives the end of the server.
    Memory,
    /// Answered at once, and on the disk within the server's flush interval: a crash loses the newest writes. In a cluster with
    /// replicas answered when these have it in memory: it is lost only if all of them crash at the same time.
    Written,
    /// Answered when stable on the disk: no answered write is lost.
    Synced,
}

impl TableDurability {
    /// Returns the durability as requests encode it.
    pub const fn durability(self) -> Durability {
        match self {
            Self::Memory => Durability::Memory,
            Self::Written => Durability::Written,
            Self::Synced => Durability::Synced,
        }
    }
}

/// The commands of `splinter table`.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Create a table.
    Create {
        /// Name of the table.
        name: String,
        /// Keep keys in order, so that they can be scanned; costs memory, and time for each new key.
        #[arg(long)]
        ordered: bool,
        /// Limit the table to this many bytes by evicting the least used objects (S3-FIFO): for instance 256MiB.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        cache: Option<u64>,
        /// Keep keys with the same tag on one server of a cluster: the tag is the text between the first { and the next },
        /// as in user:{42}:name, or the whole key. A function that uses keys of one tag then finds all of them on its server.
        /// Tablets of such a table are not split or merged.
        #[arg(long)]
        tagged: bool,
        /// Spread the table over the cluster in this many tablets, each on the server that owns fewest [default: 1, with
        /// --tagged 64].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        tablets: Option<u16>,
        /// Mode in which its tablets migrate, unless a migration sets another.
        #[arg(long, value_enum, default_value = "cooperative")]
        migration: TableMigration,
        /// What survives the end of the server; default: synced on a server with a disk, memory on others and for a
        /// table with --cache.
        #[arg(long, value_enum)]
        durability: Option<TableDurability>,
    },
    /// Change the durability of a table, while it is in use.
    ///
    /// Between written and synced the next write has it. From memory all objects are rewritten to the server's disk, with
    /// the table in use; nothing is promised before the command says so, and if there is no room the table stays as it was.
    /// To memory the server promises nothing from the beginning on. A table with --cache stays in memory, and so does each
    /// table of a cluster where it was created: in memory or on the disk.
    Alter {
        /// Name of the table.
        name: String,
        /// What survives the end of the server.
        #[arg(long, value_enum)]
        durability: TableDurability,
    },
    /// List the tables with their sizes.
    List,
    /// Drop a table with all its objects.
    Drop {
        /// Name of the table.
        name: String,
    },
    /// Show the number of objects and bytes of a table.
    Stat {
        /// Name of the table.
        name: String,
    },
    /// List the objects of a table in arbitrary order; an object present throughout is listed exactly once.
    Enumerate {
        /// Name of the table, or OWNER/TABLE for a granted one.
        name: String,
        /// Omit the values.
        #[arg(long)]
        keys_only: bool,
        /// Approximate maximum number of objects; a page that was read is printed in full.
        #[arg(long, default_value_t = 1_000)]
        limit: u64,
        /// Continue where an earlier enumeration of the table ended: the hex that it printed.
        #[arg(long, value_name = "CURSOR", alias = "from", default_value = "", hide_default_value = true)]
        cursor: String,
    },
    /// Check all objects of a table against their checksums.
    Verify {
        /// Name of the table, or OWNER/TABLE for a granted one.
        name: String,
        /// Check instead that the server's disk has each object, and name those that it has not: a start would lose them.
        #[arg(long)]
        disk: bool,
    },
}
