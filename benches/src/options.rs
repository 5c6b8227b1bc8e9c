//! Server, data and load on the command line of `splinter-bench`, checked into plain values.
//!
//! The output contains the settings without secrets, so that every line tells how to reproduce it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use client::{Admin, Client, ClientConfig, Durability, Error, TableOptions, Transport};
use serde::{Deserialize, Serialize};

use crate::dataset::Dataset;

/// Address and credentials.
#[derive(Args, Clone, Debug)]
pub struct Access {
    /// Stream address HOST:PORT of the server.
    #[arg(long, env = "SPLINTER_ADDRESS", default_value = "127.0.0.1:7700")]
    pub address: SocketAddr,
    /// Tenant that makes the requests.
    #[arg(long, env = "SPLINTER_TENANT")]
    pub tenant: String,
    /// The tenant's secret, or @FILE to read it from.
    #[arg(long, env = "SPLINTER_SECRET", hide_env_values = true)]
    pub secret: String,
    /// Name of the table; created if it does not exist.
    #[arg(long, default_value = "bench")]
    pub table: String,
    /// Pin the load thread to this core.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Transport of requests.
    #[arg(long, value_enum, default_value = "udp")]
    pub transport: TransportOption,
    /// Durability of the table, if it is created.
    #[arg(long, value_enum, default_value = "memory")]
    pub durability: DurabilityOption,
}

/// The durability of the tables that a bench creates: by default memory, whatever the server's default is, so that
/// figures stay comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum DurabilityOption {
    /// Nothing survives the end of the server.
    Memory,
    /// Answered at once, on the disk within the server's flush interval.
    Written,
    /// Answered when stable on the disk.
    Synced,
}

impl DurabilityOption {
    /// Returns the options of a table with this durability.
    pub fn table_options(self) -> TableOptions {
        let durability = match self {
            Self::Memory => Durability::Memory,
            Self::Written => Durability::Written,
            Self::Synced => Durability::Synced,
        };
        TableOptions { durability: Some(durability), ..TableOptions::default() }
    }
}

/// The transport of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum TransportOption {
    /// Kernel UDP.
    Udp,
    /// Memory shared with a server on the same host.
    Shm,
}

/// The form in which a tenant's invocations run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxOption {
    /// Machine code of the server's process.
    Native,
    /// WebAssembly.
    Wasm,
}

impl SandboxOption {
    /// The limit of a tenant that chooses the form.
    pub const LIMIT: &str = "sandbox";

    /// Returns the value of the limit.
    pub const fn value(self) -> u64 {
        match self {
            Self::Native => 0,
            Self::Wasm => 1,
        }
    }
}

impl fmt::Display for SandboxOption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&name_of(self))
    }
}

impl TransportOption {
    /// Returns the settings of a client that uses this transport.
    pub fn config(self) -> ClientConfig {
        let transport = match self {
            Self::Udp => Transport::Udp,
            Self::Shm => Transport::Shm,
        };
        ClientConfig { transport, ..ClientConfig::default() }
    }
}

impl Access {
    /// Returns access over UDP, from any core, to a table in memory.
    pub fn new(address: SocketAddr, tenant: &str, secret: String, table: &str) -> Self {
        let (tenant, table) = (tenant.to_owned(), table.to_owned());
        let (transport, durability) = (TransportOption::Udp, DurabilityOption::Memory);
        Self { address, tenant, secret, table, cpu: None, transport, durability }
    }

    /// Returns the secret itself, or the first line of the file after `@`.
    pub fn secret(&self) -> Result<String, String> {
        secret(&self.secret)
    }

    /// Opens a session for single requests.
    pub fn connect(&self) -> Result<Client, String> {
        let (address, secret) = (self.address.to_string(), self.secret()?);
        let opened = Client::connect_with(&address, &self.tenant, &secret, self.config());
        opened.map_err(|error| self.not_opened(&error))
    }

    /// Returns the id of the table, which is created if it is missing.
    pub fn table_id(&self, client: &mut Client) -> Result<u32, String> {
        let opened = client.table_open_or_create_with(&self.table, self.durability.table_options());
        opened.map_err(|error| format!("no table {}: {error}", self.table))
    }

    /// Says why a session of this tenant does not open.
    pub fn not_opened(&self, error: &Error) -> String {
        format!("cannot open a session of {}: {error}", self.tenant)
    }

    /// Returns the settings of a client that uses this transport.
    pub fn config(&self) -> ClientConfig {
        self.transport.config()
    }
}

/// The generated data.
#[derive(Args, Clone, Debug, Serialize, Deserialize)]
pub struct DataSettings {
    /// Number of objects of the data set or graph.
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
    /// Number of objects of one multiget or aggregate.
    #[arg(long, default_value_t = 64)]
    pub records: usize,
}

impl DataSettings {
    /// Returns plain objects, without lists and without a graph.
    pub fn plain(keys: u64, key_bytes: usize, value_bytes: usize) -> Self {
        Self { keys, key_bytes, value_bytes, edge_bytes: 8, records: 1 }
    }

    /// Returns the objects.
    pub fn dataset(&self) -> Result<Dataset, String> {
        Dataset::new(self.keys, self.key_bytes, self.value_bytes)
    }
}

/// The options of the load.
#[derive(Args, Clone, Debug, Serialize)]
pub struct RunSettings {
    /// Number of sessions, each like that of a separate client.
    #[arg(long, default_value_t = 1)]
    pub sessions: usize,
    /// Requests that each session keeps outstanding; in an open loop, the maximum.
    #[arg(long, default_value_t = 1)]
    pub outstanding: usize,
    /// Give each session a socket; by default all share one, and their requests share frames.
    #[arg(long)]
    pub sockets: bool,
    /// Open loop: total requests per second of all sessions, arriving as a Poisson process.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Seconds to measure.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Seconds of warm-up.
    #[arg(long, default_value_t = 0.5)]
    pub warmup: f64,
    /// Skew of the key distribution: YCSB's theta, 0 for none.
    #[arg(long, default_value_t = 0.0)]
    pub zipf: f64,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Load the data first.
    #[arg(long)]
    #[serde(skip)]
    pub load: bool,
    /// Report also the latency of requests during which nothing but the load and, with `--server-process`, the server had
    /// their cores.
    #[arg(long)]
    pub undisturbed: bool,
    /// Process id of the server, to report its memory per loaded object.
    #[arg(long)]
    #[serde(skip)]
    pub server_process: Option<u32>,
}

/// The options of a bench that starts a server and a load on a core each.
#[derive(Args, Clone, Debug, Serialize)]
pub struct PairSettings {
    /// Seconds of each measurement in a run.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Number of runs; each measures everything in turn, and the table shows medians.
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Durability of our table.
    #[arg(long, value_enum, default_value = "memory")]
    pub durability: DurabilityOption,
    /// Core of the server.
    #[arg(long, default_value_t = 0)]
    pub server_cpu: usize,
    /// Core of the load.
    #[arg(long, default_value_t = 1)]
    pub cpu: usize,
    /// The server's program; default: the one in this program's folder.
    #[arg(long)]
    #[serde(skip)]
    pub server: Option<PathBuf>,
    /// Folder for lines of JSON and plots.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
}

/// Returns a secret as given, or the first line of the file after `@`.
fn secret(given: &str) -> Result<String, String> {
    let Some(path) = given.strip_prefix('@') else { return Ok(given.to_string()) };
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(text.lines().next().unwrap_or_default().trim().to_string())
}

/// Returns what a value is called on the command line.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Connects as the administrator, with the secret or its @FILE.
pub fn admin(address: SocketAddr, given: &str) -> Result<Admin, String> {
    let admin = Admin::connect(&address.to_string(), &secret(given)?, ClientConfig::default());
    admin.map_err(|error| format!("the administrator is not let in: {error}"))
}

/// Refuses a number of runs, or of seconds of each figure, that makes no sense.
pub fn check_runs(runs: usize, seconds: f64) -> Result<(), String> {
    if runs == 0 || seconds.is_nan() || seconds <= 0.0 {
        return Err("a measurement has runs and seconds".into());
    }
    Ok(())
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
