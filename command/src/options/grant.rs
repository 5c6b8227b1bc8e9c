//! The command line of `splinter grant`.

use clap::{Args, Subcommand};

/// The commands of `splinter grant`.
#[derive(Debug, Subcommand)]
pub enum GrantCommand {
    /// Let another tenant use a table, as OWNER/TABLE.
    Table {
        /// Name of the table.
        name: String,
        /// Tenant that gets the right.
        #[arg(long)]
        to: String,
        #[command(flatten)]
        right: TableRight,
    },
    /// Let another tenant invoke an extension on its own tables, as OWNER/EXTENSION.
    Ext {
        /// Name of the extension.
        name: String,
        /// Tenant that gets the right.
        #[arg(long)]
        to: String,
        /// The right to invoke, which is the only one.
        #[arg(long, required = true)]
        invoke: bool,
    },
    /// List the grants that the tenant gave and got.
    List,
    /// Revoke a grant.
    #[command(subcommand)]
    Revoke(RevokeCommand),
}

/// The right granted on a table.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct TableRight {
    /// Let the tenant read.
    #[arg(long)]
    pub read: bool,
    /// Let the tenant read and write.
    #[arg(long)]
    pub write: bool,
}

/// The commands of `splinter grant revoke`.
#[derive(Debug, Subcommand)]
pub enum RevokeCommand {
    /// Revoke a right on a table.
    Table {
        /// Name of the table, without the owner.
        name: String,
        /// Tenant that loses the right.
        #[arg(long)]
        to: String,
    },
    /// Revoke a right on an extension.
    Ext {
        /// Name of the extension, without the owner.
        name: String,
        /// Tenant that loses the right.
        #[arg(long)]
        to: String,
    },
}
