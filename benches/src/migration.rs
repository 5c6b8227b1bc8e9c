//! Moving objects from one server to another: `splinter-bench migration`.
//!
//! [`timeline`] starts two servers and shows what their clients see while half of a table moves, and how fast it does.
//! [`isolated`] measures what one core does at either end, without a network and without requests: gathering pulls at the
//! source, replaying them at the target (Rocksteady, SOSP'17, §4.5, figure 15 of the paper, 2.15 of the thesis).

pub mod isolated;
pub mod timeline;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use self::timeline::MoveWay;
use crate::report::Report;

/// Most that a pull may ask for here, in bytes.
const PULL_BYTES_MAX: usize = 1 << 20;

/// The options of `splinter-bench migration`.
#[derive(Args, Clone, Debug)]
pub struct MigrationSettings {
    /// Measure source and target separately, in this process.
    #[arg(long)]
    pub isolated: bool,
    /// Options of both measurements.
    #[command(flatten)]
    pub common: CommonSettings,
    /// Options of the timeline.
    #[command(flatten)]
    pub timeline: TimelineSettings,
    /// Options of the measurement without servers.
    #[command(flatten)]
    pub apart: IsolatedSettings,
}

/// The options of both measurements.
#[derive(Args, Clone, Debug, Serialize)]
pub struct CommonSettings {
    /// Bytes of a key.
    #[arg(long, default_value_t = 30)]
    pub key_bytes: usize,
    /// Megabytes of keys and values; with --isolated, of each size. Default: 5,120, or 512 with --isolated.
    #[arg(long)]
    pub megabytes: Option<usize>,
    /// Number of runs; the table shows medians. Default: one, or three with --isolated.
    #[arg(long)]
    pub runs: Option<usize>,
    /// Pin the load thread, or with --isolated the measured thread, to this core. Default with --isolated: core 0.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Folder for lines of JSON and the plot.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
}

/// The options of the timeline.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Options of the timeline")]
pub struct TimelineSettings {
    /// Ways to move the tablet, in this order.
    #[arg(long, value_delimiter = ',', default_value = "rocksteady,cooperative,pre-copy,stop-and-copy")]
    pub ways: Vec<MoveWay>,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Load as a share of the source's own capacity.
    #[arg(long, default_value_t = 0.5)]
    pub load: f64,
    /// Load in requests per second instead.
    #[arg(long)]
    pub rate: Option<f64>,
    /// Skew of the key distribution: YCSB's theta, 0 for none.
    #[arg(long, default_value_t = 0.99)]
    pub zipf: f64,
    /// Number of sessions of the load.
    #[arg(long, default_value_t = 8)]
    pub sessions: usize,
    /// Maximum number of outstanding requests of each session.
    #[arg(long, default_value_t = 64)]
    pub outstanding: usize,
    /// Give each session a socket; by default all share one, and their requests share frames.
    #[arg(long)]
    pub sockets: bool,
    /// Seconds before and after each migration.
    #[arg(long, default_value_t = 5.0)]
    pub margin_seconds: f64,
    /// Pin the whole source to this core.
    #[arg(long)]
    pub source_cpu: Option<usize>,
    /// Pin the whole target to this core.
    #[arg(long)]
    pub target_cpu: Option<usize>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The server's program; default: the one in this program's folder.
    #[arg(long)]
    #[serde(skip)]
    pub server: Option<PathBuf>,
    /// The etcd program.
    #[arg(long, default_value = "etcd")]
    #[serde(skip)]
    pub etcd: String,
}

/// The options of the measurement without servers.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Options with --isolated")]
pub struct IsolatedSettings {
    /// Bytes of a value; 78 make 128 bytes with key and header.
    #[arg(long, value_delimiter = ',', default_value = "64,78,128,256,512,1024,2048,4096,8192,16384")]
    pub sizes: Vec<usize>,
    /// Bytes of a pull.
    #[arg(long, default_value_t = 20_000)]
    pub pull_bytes: usize,
    /// Number of partitions, pulled in turn.
    #[arg(long, default_value_t = 8)]
    pub partitions: usize,
}

/// A measurement, with all that the options leave open decided.
#[derive(Clone, Debug, Serialize)]
pub struct MigrationRun<S> {
    /// Bytes of keys.
    pub key_bytes: usize,
    /// Megabytes of keys and values; without servers, of each size.
    pub megabytes: usize,
    /// Runs.
    pub runs: usize,
    /// Core of the load, or of the measured thread.
    pub cpu: Option<usize>,
    /// Its own options.
    #[serde(flatten)]
    pub own: S,
}

fn refuse(text: &str) -> Result<(), String> {
    Err(text.to_string())
}

impl MigrationSettings {
    fn check(&self) -> Result<(), String> {
        let IsolatedSettings { sizes, pull_bytes, partitions } = &self.apart;
        let TimelineSettings { ways, load, margin_seconds, sessions, outstanding, .. } = &self.timeline;
        if self.common.runs == Some(0) || self.common.megabytes == Some(0) || sizes.is_empty() {
            return refuse("a measurement has runs, megabytes, and a size of values");
        }
        if !(1..=1024).contains(partitions) || !(1..=PULL_BYTES_MAX).contains(pull_bytes) {
            return refuse("there are 1 to 1,024 partitions, and pulls have 1 byte to a megabyte");
        }
        if ways.is_empty() || *sessions == 0 || *outstanding == 0 {
            return refuse("a timeline has a way of moving, sessions, and requests of each");
        }
        if !(0.01..=1.0).contains(load) || !(0.5..=600.0).contains(margin_seconds) {
            return refuse(
                "the load is a hundredth to all of what is possible, and there is half a second to ten minutes around it",
            );
        }
        Ok(())
    }
}

/// Measures, prints the table, draws the plot.
pub fn run(settings: &MigrationSettings) -> Result<(), String> {
    settings.check()?;
    let MigrationSettings { isolated, common, timeline, apart } = settings.clone();
    let CommonSettings { key_bytes, megabytes, runs, cpu, out } = common;
    if isolated {
        let (megabytes, runs) = (megabytes.unwrap_or(512), runs.unwrap_or(3));
        let settings = MigrationRun { key_bytes, megabytes, runs, cpu: cpu.or(Some(0)), own: apart };
        return isolated::run(&settings, &mut Report::open("migration-isolated", out.as_deref())?);
    }
    let (megabytes, runs) = (megabytes.unwrap_or(5_120), runs.unwrap_or(1));
    let settings = MigrationRun { key_bytes, megabytes, runs, cpu, own: timeline };
    timeline::run(&settings, &mut Report::open("migration", out.as_deref())?)
}
