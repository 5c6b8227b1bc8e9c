//! The command line of `splinter grant`.

use clap::{Args, Subcommand};

/// Grants.
#[derive(Debug, Subcommand)]
pub enum GrantCommand {
    /// Let another tenant use a table, as OWNER/TABLE.
    Table {
        /// Its name.
        name: String,
        /// The other tenant.
        #[arg(long)]
        to: String,
        #[command(flatten)]
        right: TableRight,
    },
    /// Let another tenant invoke an extension, as OWNER/EXTENSION, on tables of its own.
    Ext {
        /// Its name.
        name: String,
        /// The other tenant.
        #[arg(long)]
        to: String,
        /// To invoke: the one right that there is.
        #[arg(long, required = true)]
        invoke: bool,
    },
    /// List what was granted, and what is granted to the tenant.
    List,
    /// Take a grant back.
    #[command(subcommand)]
    Revoke(RevokeCommand),
}

/// What is granted of a table.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct TableRight {
    /// To read.
    #[arg(long)]
    pub read: bool,
    /// To read and write.
    #[arg(long)]
    pub write: bool,
}

/// What is taken back.
#[derive(Debug, Subcommand)]
pub enum RevokeCommand {
    /// A table.
    Table {
        /// Its name, without the owner.
        name: String,
        /// The other tenant.
        #[arg(long)]
        to: String,
    },
    /// An extension.
    Ext {
        /// Its name, without the owner.
        name: String,
        /// The other tenant.
        #[arg(long)]
        to: String,
    },
}
