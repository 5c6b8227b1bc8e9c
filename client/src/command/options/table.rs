//! The command line of `splinter table`.
//!
//! Tables of other tenants are named OWNER/TABLE where that is said; the others are the tenant's own.

use clap::{Subcommand, ValueEnum};
use client::MigrationMode;

use super::limits::bytes_of;

/// Bytes, with or without a unit.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || "write bytes, or with a unit: 256MiB".to_owned();
    bytes_of(text).ok_or_else(wrong)
}

/// How tablets move to other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableMigration {
    /// Reads of what has not arrived wait for it, and it comes first.
    Rocksteady,
    /// Such reads ask the server that it comes from too; costs up to a tenth more bytes.
    Cooperative,
}

impl TableMigration {
    /// The same in requests.
    pub const fn mode(self) -> MigrationMode {
        match self {
            Self::Rocksteady => MigrationMode::Rocksteady,
            Self::Cooperative => MigrationMode::Cooperative,
        }
    }
}

/// Tables.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Create a table.
    Create {
        /// Its name.
        name: String,
        /// Keep its keys in their order, so that they can be scanned; costs memory, and time of each new key.
        #[arg(long)]
        ordered: bool,
        /// Keep its objects within so many bytes, by evicting those that are used least (S3-FIFO): for instance 256MiB.
        #[arg(long, value_name = "SIZE", value_parser = size)]
        cache: Option<u64>,
        /// Spread it over the servers of the cluster in so many tablets, each at the one that owns fewest.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
        tablets: u16,
        /// How its tablets move to other servers, where nothing else is asked for.
        #[arg(long, value_enum, default_value = "cooperative")]
        migration: TableMigration,
    },
    /// List the tables with what they hold.
    List,
    /// Drop a table with all its objects.
    Drop {
        /// Its name.
        name: String,
    },
    /// Objects and bytes of a table.
    Stat {
        /// Its name.
        name: String,
    },
    /// List the objects of a table, each that is there all the time exactly once, in no order that has a meaning.
    Enumerate {
        /// Its name, or OWNER/TABLE of one that is granted.
        name: String,
        /// Leave out the values.
        #[arg(long)]
        keys_only: bool,
        /// How many objects about; what an enumeration has begun to read it prints.
        #[arg(long, default_value_t = 1_000)]
        limit: u64,
        /// Go on where another enumeration of the table has ended: the hex that it printed.
        #[arg(long, value_name = "CURSOR", alias = "from", default_value = "", hide_default_value = true)]
        cursor: String,
    },
    /// Check all objects of a table against their checksums.
    Verify {
        /// Its name, or OWNER/TABLE of one that is granted.
        name: String,
    },
}
