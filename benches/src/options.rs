//! What the command line of `splinter-bench` says of server, data and load, checked into plain values.
//!
//! The settings are printed with the figures, secrets apart, so that a line of output says how to get it
//! again.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use client::{ClientConfig, Transport};
use serde::Serialize;

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
    /// How requests travel.
    #[arg(long, value_enum, default_value = "udp")]
    pub transport: TransportOption,
}

/// How requests travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TransportOption {
    /// Kernel UDP.
    Udp,
    /// Memory shared with a server on the same host.
    Shm,
}

impl Access {
    /// Settings of a client that goes this way.
    pub fn config(&self) -> ClientConfig {
        let transport = match self.transport {
            TransportOption::Udp => Transport::Udp,
            TransportOption::Shm => Transport::Shm,
        };
        ClientConfig { transport, ..ClientConfig::default() }
    }
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
        secret(&self.secret)
    }
}

/// A secret as it is given: itself, or the first line of the file after `@`.
pub fn secret(given: &str) -> Result<String, String> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_string()) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_string())
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
