//! Options of `splinter cluster`.
//!
//! All of it takes the administrator's secret: tenants do not see which servers there are.

use clap::{Args, Subcommand, ValueEnum};

use super::super::hashes::{Hash, Hashes};

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Draw the cluster: its servers, there or not, what each owns, what is on the move, and the last plan.
    Status,
    /// Move all that a server owns to others, migration by migration; it gets nothing more until it is started again or a
    /// balance is asked for.
    Drain {
        /// Number of the server.
        server: u32,
        /// Return when it is done, not when it has begun.
        #[arg(long)]
        wait: bool,
    },
    /// Move tablets, or parts of them, until all servers own about the same; each table counts as much as any other.
    Balance {
        /// Return when it is done, not when it has begun.
        #[arg(long)]
        wait: bool,
    },
    /// Stop draining or balancing: nothing more is begun, and what is on the move goes on.
    Stop {
        /// Number of the plan, as `splinter cluster status` shows it.
        plan: u32,
    },
    /// Give to others, empty, what a server owned that is gone for good; its objects are lost.
    Adopt {
        /// Number of the server.
        server: u32,
        /// It does not run any more: nobody can see that from here.
        #[arg(long)]
        it_is_off: bool,
    },
    /// List the servers that are there; the one that was asked has a star.
    Servers,
    /// List the tablets: which server owns which hashes of which table.
    Tablets {
        /// Those of this table alone: OWNER/NAME.
        table: Option<String>,
    },
    /// Make two tablets of one, so that each can move by itself. No object moves.
    Split {
        /// The table: OWNER/NAME.
        table: String,
        /// First hash of the upper one: 16 hex digits, or a part of all hashes such as 50%.
        at: Hash,
    },
    /// Make one tablet of two of one server. No object moves.
    Merge {
        /// The table: OWNER/NAME.
        table: String,
        /// First hash of the upper one, as `splinter cluster tablets` shows it, or a part such as 50%.
        at: Hash,
    },
    /// Move a range of hashes of a table from the server that owns it to another, while it is in use.
    Migrate(MigrateOptions),
    /// List what is on the move.
    Migrations,
    /// Undo a migration: what the target was given meanwhile goes back to the source.
    Abort {
        /// Number of the migration.
        migration: u32,
    },
}

/// What moves where.
#[derive(Args, Debug)]
pub struct MigrateOptions {
    /// The table: OWNER/NAME.
    pub table: String,
    /// Number of the server that gets it.
    #[arg(long)]
    pub to: u32,
    /// From the first hash up to the other one, without it: 50%..75%, 8000000000000000.., ..25%; all if nothing is said.
    #[arg(long, default_value = "..")]
    pub hashes: Hashes,
    /// How it moves; as its table says if nothing is said.
    #[arg(long, value_enum)]
    pub mode: Option<MigrationWay>,
    /// Return when it is done and the hashes could move again, not when it has begun.
    #[arg(long)]
    pub wait: bool,
}

/// How a tablet moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MigrationWay {
    /// The target serves at once and pulls; what somebody waits for comes first.
    Rocksteady,
    /// The same, and clients read of both servers what may not have arrived, instead of waiting for it.
    Cooperative,
    /// For comparison: the range stands still until all has moved.
    StopAndCopy,
    /// For comparison: the source sends it all while it serves it, and stands still for the last.
    PreCopy,
}
