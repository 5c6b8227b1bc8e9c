//! The command line of `splinter-bench`.
//!
//! Only names what there is to do; what each needs to know stands with it, or in [`crate::options`].

use clap::{Parser, Subcommand};

use crate::density::DensitySettings;
use crate::echo::EchoSettings;
use crate::fairness::FairnessSettings;
use crate::in_process::settings::StoreSettings;
use crate::migration::MigrationSettings;
use crate::neighbour::NeighbourSettings;
use crate::options::{Access, DataSettings, RunSettings};
use crate::scan::ScanSettings;
use crate::transports::TransportsSettings;
use crate::transports::client::ClientSettings;
use crate::workload::Workload;

/// Generates load for a Splinter server and prints one line of JSON per run.
#[derive(Debug, Parser)]
#[command(name = "splinter-bench", version, max_term_width = 110)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Load the data of a workload, with a progress line.
    Load {
        /// The workload whose data is loaded.
        workload: Workload,
        /// Server and tenant.
        #[command(flatten)]
        access: Access,
        /// The data.
        #[command(flatten)]
        data: DataSettings,
    },
    /// Run a workload and print its figures; extensions that it names are installed before, with
    /// `splinter ext install ext/NAME`.
    Run {
        /// The workload.
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
    /// Measure a bare polled UDP echo of the sizes of a get, without a server.
    Echo(EchoSettings),
    /// Measure what the functions of one tenant do to the latency of another.
    Neighbour(NeighbourSettings),
    /// Measure very many tenants with many extensions beside one.
    Density(DensitySettings),
    /// Measure what tenants that want more than a core has get of it.
    Fairness(FairnessSettings),
    /// Measure the store in this process, without a server, beside maps of the Rust world.
    Store(StoreSettings),
    /// Measure scans of an ordered table beside Redis; starts both servers.
    Scan(ScanSettings),
    /// Measure what clients see while half of a table moves from one server to another, and how fast it does; starts etcd
    /// and both servers.
    Migration(MigrationSettings),
    /// Measure requests over every way that frames can travel, in turn; starts a server for each.
    Transports(TransportsSettings),
    /// The client of one of those ways, in a process of its own.
    #[command(hide = true)]
    TransportsClient(ClientSettings),
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
