//! The command line of `splinter-bench`.
//!
//! Lists the commands; their options are in the commands' own files or in [`crate::options`].

use clap::{Parser, Subcommand};

use crate::clients::ClientsSettings;
use crate::density::DensitySettings;
use crate::echo::EchoSettings;
use crate::fairness::FairnessSettings;
use crate::in_process::settings::StoreSettings;
use crate::migration::MigrationSettings;
use crate::neighbour::NeighbourSettings;
use crate::options::{Access, DataSettings, RunSettings};
use crate::placement::PlacementSettings;
use crate::plot::points::PlotSettings;
use crate::recovery::RecoverySettings;
use crate::scan::ScanSettings;
use crate::transports::TransportsSettings;
use crate::transports::client::ClientSettings;
use crate::workload::Workload;

/// Generates load for a Splinter server and prints one line of JSON per run.
#[derive(Debug, Parser)]
#[command(name = "splinter-bench", version, max_term_width = 110)]
pub struct Options {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands of `splinter-bench`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load the data of a workload and show progress.
    Load {
        /// Workload that defines the data.
        workload: Workload,
        /// Server and tenant.
        #[command(flatten)]
        access: Access,
        /// The data.
        #[command(flatten)]
        data: DataSettings,
    },
    /// Run a workload and print its figures; the extensions that it names must be installed before, with
    /// `splinter ext install ext/NAME`.
    Run {
        /// Workload to run.
        workload: Workload,
        /// Server and tenant.
        #[command(flatten)]
        access: Access,
        /// The data.
        #[command(flatten)]
        data: DataSettings,
        /// The load.
        #[command(flatten)]
        run: RunSettings,
    },
    /// Measure a bare polled UDP echo with the frame sizes of a get, without a server.
    Echo(EchoSettings),
    /// Measure how the functions of one tenant affect the latency of another.
    Neighbour(NeighbourSettings),
    /// Measure a great number of tenants with many extensions, beside one tenant.
    Density(DensitySettings),
    /// Measure each tenant's share of a core when tenants demand more than it has.
    Fairness(FairnessSettings),
    /// Measure the store in this process, without a server, beside Rust maps.
    Store(StoreSettings),
    /// Measure scans of an ordered table beside Redis; starts both servers.
    Scan(ScanSettings),
    /// Measure gets by a session and by the async client, and transactions; starts the server.
    Clients(ClientsSettings),
    /// Measure one function at the server and at the client, for several amounts of computation; starts the server.
    Placement(PlacementSettings),
    /// Measure how clients fare while half of a table migrates between servers, and how fast it migrates; starts etcd
    /// and both servers.
    Migration(MigrationSettings),
    /// Measure how clients fare while others recover a server that dies, and how fast that is; starts etcd and the servers.
    Recovery(RecoverySettings),
    /// Measure requests over every transport in turn; starts a server for each.
    Transports(TransportsSettings),
    /// Draw points that a script has measured.
    Plot(PlotSettings),
    /// The client of one transport, in a separate process.
    #[command(hide = true)]
    TransportsClient {
        /// What it is told.
        settings: ClientSettings,
    },
}

#[cfg(test)]
mod tests {
    use super::{Command, Options};
    use clap::{CommandFactory, Parser};

    fn run(arguments: &[&str]) -> Command {
        let always = ["splinter-bench", "run", "get", "--tenant", "t", "--secret", "s"];
        Options::try_parse_from(always.iter().chain(arguments)).unwrap().command
    }

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_run_has_defaults_and_refuses_nonsense() {
        let Command::Run { data, run, .. } = run(&["--sessions", "50"]) else { panic!("no run") };
        assert_eq!((data.keys, data.key_bytes, data.value_bytes), (1_000_000, 30, 100));
        assert_eq!((run.sessions, run.outstanding, run.rate), (50, 1, None));
        assert!(run.check().is_ok());
        let Command::Run { run, .. } = self::run(&["--outstanding", "0"]) else { panic!("no run") };
        assert!(run.check().is_err());
    }
}
