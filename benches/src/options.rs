//! The command line of `splinter-bench`, checked into plain values.
//!
//! The settings are printed with the figures, secrets apart, so that a line of output says how to get it
//! again.

use std::net::SocketAddr;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::echo::EchoSettings;
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
    /// Run a workload and print its figures.
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
}

/// Where the server is and who is asking.
#[derive(Args, Clone, Debug)]
pub struct Access {
    /// Where the server is: HOST:PORT of its stream port.
    #[arg(long, env = "SPLINTER_ADDRESS", default_value = "127.0.0.1:7700")]
    pub address: SocketAddr,
    /// Who is asking.
    #[arg(long, env = "SPLINTER_TENANT")]
    pub tenant: String,
    /// The tenant's secret, or @FILE that holds it.
    #[arg(long, env = "SPLINTER_SECRET", hide_env_values = true)]
    pub secret: String,
    /// The table; made if it is missing.
    #[arg(long, default_value = "bench")]
    pub table: String,
    /// Pin the load thread to this core.
    #[arg(long)]
    pub cpu: Option<usize>,
}

/// The generated data.
#[derive(Args, Clone, Debug, Serialize)]
pub struct DataSettings {
    /// Objects of the data set, or of the graph.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a key.
    #[arg(long, default_value_t = 30)]
    pub key_bytes: usize,
    /// Bytes of a value, or of the data of a graph's object.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Bytes of the data of a graph's association.
    #[arg(long, default_value_t = 8)]
    pub edge_bytes: usize,
    /// Objects of one multiget or aggregate.
    #[arg(long, default_value_t = 64)]
    pub records: usize,
}

/// How the load is made.
#[derive(Args, Clone, Debug, Serialize)]
pub struct RunSettings {
    /// Sessions, each as a client of its own would have.
    #[arg(long, default_value_t = 1)]
    pub sessions: usize,
    /// Requests that each session keeps outstanding, or may have outstanding in an open loop.
    #[arg(long, default_value_t = 1)]
    pub outstanding: usize,
    /// A socket for each session; else all share one and their requests share frames.
    #[arg(long)]
    pub sockets: bool,
    /// Open loop: requests a second of all sessions together, arriving as a Poisson process.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Seconds before that.
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// Skew of the choice of keys: YCSB's theta, 0 for none.
    #[arg(long, default_value_t = 0.0)]
    pub zipf: f64,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Load the data first.
    #[arg(long)]
    #[serde(skip)]
    pub load: bool,
    /// Process of the server, to report its memory for each object that was loaded.
    #[arg(long)]
    #[serde(skip)]
    pub server_process: Option<u32>,
}

impl Access {
    /// The secret itself, or the first line of the file after `@`.
    pub fn secret(&self) -> Result<String, String> {
        let Some(path) = self.secret.strip_prefix('@') else { return Ok(self.secret.clone()) };
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        Ok(text.lines().next().unwrap_or_default().trim().to_string())
    }
}

impl RunSettings {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |text: &str| Err(text.to_string());
        if self.sessions == 0 || self.outstanding == 0 {
            return refuse("a run needs at least one session with one outstanding request");
        }
        if self.seconds.is_nan() || self.seconds <= 0.0 || self.warmup.is_nan() || self.warmup < 0.0 {
            return refuse("a run has seconds to measure, and no negative warm-up");
        }
        Ok(())
    }
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
