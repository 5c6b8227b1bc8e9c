//! Options of `splinter cluster`.
//!
//! All of it takes the administrator's secret: tenants do not see which servers there are.

use clap::Subcommand;

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// List the servers that are there; the one that was asked has a star.
    Servers,
}
