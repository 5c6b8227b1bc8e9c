//! How fast objects move from one server to another: `splinter-bench migration`.
//!
//! [`isolated`] measures what one core does at either end, without a network and without requests: gathering pulls at the
//! source, replaying them at the target (Rocksteady, SOSP'17, §4.5, figure 15 of the paper, 2.15 of the thesis).

pub mod isolated;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::report::Report;

/// Most that a pull may ask for here, in bytes.
const PULL_BYTES_MAX: usize = 1 << 20;

/// How the bench is run.
#[derive(Args, Clone, Debug, Serialize)]
pub struct MigrationSettings {
    /// Measure source and target each by itself, in this process.
    #[arg(long, required = true)]
    pub isolated: bool,
    /// Bytes of values; 78 are 128 bytes with key and header.
    #[arg(long, value_delimiter = ',', default_value = "64,78,128,256,512,1024,2048,4096,8192,16384")]
    pub value_bytes: Vec<usize>,
    /// Bytes of keys.
    #[arg(long, default_value_t = 30)]
    pub key_bytes: usize,
    /// Megabytes of objects that move, of each size.
    #[arg(long, default_value_t = 512)]
    pub megabytes: usize,
    /// Bytes of a pull.
    #[arg(long, default_value_t = 20_000)]
    pub pull_bytes: usize,
    /// Partitions that are pulled in turn.
    #[arg(long, default_value_t = 8)]
    pub partitions: usize,
    /// Runs; the table shows medians.
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// The core.
    #[arg(long, default_value_t = 0)]
    pub cpu: usize,
    /// Folder for lines of JSON and the plot.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
}

impl MigrationSettings {
    fn check(&self) -> Result<(), String> {
        let refuse = |text: &str| Err(text.to_string());
        if self.runs == 0 || self.megabytes == 0 || self.value_bytes.is_empty() {
            return refuse("a measurement has runs, megabytes, and a size of values");
        }
        if !(1..=1024).contains(&self.partitions) || !(1..=PULL_BYTES_MAX).contains(&self.pull_bytes) {
            return refuse("there are 1 to 1,024 partitions, and pulls have 1 byte to a megabyte");
        }
        Ok(())
    }
}

/// Measures, prints the table, draws the plot.
pub fn run(settings: &MigrationSettings) -> Result<(), String> {
    settings.check()?;
    let mut report = Report::open("migration-isolated", settings.out.as_deref())?;
    isolated::run(settings, &mut report)
}
