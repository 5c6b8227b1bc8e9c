//! The command line of `splinter session`.
//!
//! A client's number identifies its session; tokens are never shown.

use clap::Subcommand;

/// The commands of `splinter session`.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the open sessions.
    List,
    /// End a session. Its client opens another automatically if the tenant's secret is still valid.
    Revoke {
        /// Number of the client, as `splinter session list` shows it.
        client: u64,
    },
}
