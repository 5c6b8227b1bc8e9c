//! What the command line says of a measurement of the store in process.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::in_process::side::{BATCH_MAX, SIDES};

/// How the bench is run.
#[derive(Args, Clone, Debug, Serialize)]
pub struct StoreSettings {
    /// What is measured.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "objects,counters,memory,growth")]
    pub parts: Vec<Part>,
    /// Numbers of objects, each a table of its own.
    #[arg(long, value_delimiter = ',', default_value = "1000000,20000000")]
    pub objects: Vec<u64>,
    /// Number of counters.
    #[arg(long, default_value_t = 10_000_000)]
    pub counters: u64,
    /// The store, and the maps beside it.
    #[arg(long, value_delimiter = ',', default_values_t = SIDES.map(String::from))]
    pub sides: Vec<String>,
    /// Cores: the first is used alone, then all.
    #[arg(long, value_delimiter = ',', default_value = "1,0")]
    pub cores: Vec<usize>,
    /// Operations that are handed over together.
    #[arg(long, default_value_t = 32)]
    pub batch: usize,
    /// Number of objects where memory is measured, and where it gets full.
    #[arg(long, default_value_t = 1_000_000)]
    pub memory_objects: u64,
    /// Live share of the store's log while it is written to.
    #[arg(long, default_value_t = 0.5)]
    pub utilization: f64,
    /// Live shares of the log at which writes are measured, in percent.
    #[arg(long, value_delimiter = ',', default_value = "30,40,50,60,70,75,80,85,90,93,95")]
    pub utilizations: Vec<u64>,
    /// Seconds of each figure.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Runs; sides take turns in each, and the table shows medians.
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Leave the maps with pages of 4 KiB, as the C library does where nobody asks for more.
    #[arg(long)]
    pub maps_small_pages: bool,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for lines of JSON and plots.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
    /// One row of one side, in this very process, as a line of JSON: how the bench calls itself.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub row: Option<String>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Part {
    /// Objects of 30 + 100 bytes: reads, writes, memory.
    Objects,
    /// FASTER's setting: counters of 8 + 8 bytes.
    Counters,
    /// Bytes that an object takes at 90 % utilization.
    Memory,
    /// How long requests wait while the index grows.
    Growth,
    /// Writes a second over the utilization of memory, as a plot.
    Utilization,
    /// How long a get takes while the cleaner runs flat out.
    Tail,
    /// Memory under changing workloads, as a plot.
    Changing,
}

impl StoreSettings {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |text: &str| Err(text.to_string());
        if self.runs == 0 || self.seconds.is_nan() || self.seconds <= 0.0 {
            return refuse("a measurement has runs and seconds");
        }
        if !(1..=BATCH_MAX).contains(&self.batch) {
            return Err(format!("a batch has 1 to {BATCH_MAX} operations"));
        }
        if self.cores.is_empty() || !(0.05..=0.95).contains(&self.utilization) {
            return refuse("there is at least one core, and a utilization between 0.05 and 0.95");
        }
        if self.objects.contains(&0) || self.counters == 0 || self.memory_objects < 10_000 {
            return refuse("there is at least one object, and 10,000 where memory is measured");
        }
        if self.utilizations.is_empty() || self.utilizations.iter().any(|percent| !(5..=95).contains(percent))
        {
            return refuse("writes are measured at one utilization at least, between 5 and 95 percent");
        }
        let unknown = self.sides.iter().find(|side| !SIDES.contains(&side.as_str()));
        unknown.map_or(Ok(()), |side| Err(format!("there is no side {side}, but {}", SIDES.join(", "))))
    }
}
