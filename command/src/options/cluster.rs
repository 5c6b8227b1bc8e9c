//! The command line of `splinter cluster`.
//!
//! All commands require the administrator's secret; tenants cannot see the servers.

use clap::{Args, Subcommand, ValueEnum};

use super::super::hashes::{Hash, Hashes};

/// The commands of `splinter cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Draw the cluster: registered and missing servers, what each owns, running migrations, and the last plan.
    Status,
    /// Move everything a server owns to others by migrations; it receives nothing more until it restarts or a
    /// balance is requested.
    Drain {
        /// Number of the server.
        server: u32,
        /// Return when the plan is complete, not when it has begun.
        #[arg(long)]
        wait: bool,
    },
    /// Move tablets, or parts of them, until all servers own about the same; every table has the same weight.
    Balance {
        /// Return when the plan is complete, not when it has begun.
        #[arg(long)]
        wait: bool,
    },
    /// Stop a drain or balance: no more migrations begin; running ones continue.
    Stop {
        /// Number of the plan, as `splinter cluster status` shows it.
        plan: u32,
    },
    /// Give other servers, empty, the tablets of a server that is permanently gone; its objects are lost.
    Adopt {
        /// Number of the server.
        server: u32,
        /// Confirm that the server no longer runs; the command cannot check this.
        #[arg(long)]
        it_is_off: bool,

        /// Give up durable tables too, which others would recover from replicas, because too many of these are lost
        #[arg(long)]
        lose_objects: bool,
    },
    /// List the registered servers; a star marks the one that was asked.
    Servers,
    /// List the tablets: table, hash range and owning server.
    Tablets {
        /// Only the tablets of this table: OWNER/NAME.
        table: Option<String>,
    },
    /// Split a tablet in two that can move separately. No object moves.
    Split {
        /// The table: OWNER/NAME.
        table: String,
        /// First hash of the upper tablet: 16 hex digits, or a share of all hashes such as 50%.
        at: Hash,
    },
    /// Merge two adjacent tablets of one server. No object moves.
    Merge {
        /// The table: OWNER/NAME.
        table: String,
        /// First hash of the upper tablet, as `splinter cluster tablets` shows it, or a share such as 50%.
        at: Hash,
    },
    /// Move a hash range of a table from its owner to another server, while it is in use.
    Migrate(MigrateOptions),
    /// List the running migrations.
    Migrations,
    /// Undo a migration: the source gets back what was written at the target meanwhile.
    Abort {
        /// Number of the migration.
        migration: u32,
    },
}

/// The options of `splinter cluster migrate`.
#[derive(Args, Debug)]
pub struct MigrateOptions {
    /// The table: OWNER/NAME.
    pub table: String,
    /// Number of the target server.
    #[arg(long)]
    pub to: u32,
    /// Hash range; excludes its end: 50%..75%, 8000000000000000.., ..25%; default: all hashes.
    #[arg(long, default_value = "..")]
    pub hashes: Hashes,
    /// Mode of the migration; default: as set for its table.
    #[arg(long, value_enum)]
    pub mode: Option<MigrationWay>,
    /// Return when the migration is complete and its hashes can move again, not when it has begun.
    #[arg(long)]
    pub wait: bool,
}

/// Modes of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MigrationWay {
    /// The target serves at once and pulls; requested objects come first.
    Rocksteady,
    /// As rocksteady, but clients read both servers instead of waiting for an object in transit.
    Cooperative,
    /// For comparison: the range is unavailable until everything has moved.
    StopAndCopy,
    /// For comparison: the source sends everything while serving, and stops serving for the last part.
    PreCopy,
}
