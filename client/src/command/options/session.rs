//! The command line of `splinter session`.
//!
//! Sessions are named by the number of their client; their tokens are never shown.

use clap::Subcommand;

/// Sessions.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the open sessions.
    List,
    /// End a session. Its client opens another one by itself, if the tenant's secret still does.
    Revoke {
        /// Number of its client, as `splinter session list` shows it.
        client: u64,
    },
}
