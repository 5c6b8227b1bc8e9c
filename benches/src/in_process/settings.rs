//! The command line of `splinter-bench store`, and how the bench calls itself.
//!
//! Most rows are measured in a process of their own, which prints a line of JSON: so none inherits the heap of another, and
//! what is resident is the measurement's alone.

use std::path::PathBuf;
use std::process::Command;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::in_process::side::{BATCH_MAX, SIDES};
use crate::options::check_runs;
use crate::process::this_program;

/// The options of `splinter-bench store`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct StoreSettings {
    /// Parts to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "objects,counters,memory,growth")]
    pub parts: Vec<Part>,
    /// Numbers of objects; each is measured in a separate table.
    #[arg(long, value_delimiter = ',', default_value = "1000000,20000000")]
    pub objects: Vec<u64>,
    /// Number of counters.
    #[arg(long, default_value_t = 10_000_000)]
    pub counters: u64,
    /// The store and the maps to compare it with.
    #[arg(long, value_delimiter = ',', default_values_t = SIDES.map(String::from))]
    pub sides: Vec<String>,
    /// Cores to use: first only the first one, then all.
    #[arg(long, value_delimiter = ',', default_value = "1,0")]
    pub cores: Vec<usize>,
    /// Number of operations submitted together.
    #[arg(long, default_value_t = 32)]
    pub batch: usize,
    /// Number of objects in the measurements of memory and of a full log.
    #[arg(long, default_value_t = 1_000_000)]
    pub memory_objects: u64,
    /// Live share of the store's log during writes.
    #[arg(long, default_value_t = 0.5)]
    pub utilization: f64,
    /// Live shares of the log at which to measure writes, in percent.
    #[arg(long, value_delimiter = ',', default_value = "30,40,50,60,70,75,80,85,90,93,95")]
    pub utilizations: Vec<u64>,
    /// Seconds per figure.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Number of runs; each run measures all sides in turn, and the table shows medians.
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Leave the maps on 4 KiB pages, the default of the C library.
    #[arg(long)]
    pub maps_small_pages: bool,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for lines of JSON and plots.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
    /// Measure one row of one side in this process and print a line of JSON: how the bench calls itself.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub row: Option<String>,
}

/// The parts of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
pub enum Part {
    /// Objects of 30 + 100 bytes: reads, writes, memory.
    Objects,
    /// FASTER's setting: counters of 8 + 8 bytes.
    Counters,
    /// Bytes per object at 90 % utilization.
    Memory,
    /// Waiting time of requests while the index grows.
    Growth,
    /// Writes per second over memory utilization, as a plot.
    Utilization,
    /// Latency of a get while the cleaner runs at full speed.
    Tail,
    /// Memory under changing workloads, as a plot.
    Changing,
}

impl StoreSettings {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |text: &str| Err(text.to_string());
        check_runs(self.runs, self.seconds)?;
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

/// Measures `row` in a process of its own. `huge_heap`: whether the C library shall ask for huge pages for its heap.
pub fn call<T: DeserializeOwned>(settings: &StoreSettings, row: &str, huge_heap: bool) -> Result<T, String> {
    let joined = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(this_program()?);
    command.args(["store", "--row", row]);
    command.args(["--cores", &joined(&settings.cores), "--batch", &settings.batch.to_string()]);
    command.args(["--utilization", &settings.utilization.to_string(), "--seed", &settings.seed.to_string()]);
    command.args(["--seconds", &settings.seconds.to_string()]);
    command.args(["--memory-objects", &settings.memory_objects.to_string()]);
    if huge_heap {
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    let output = command.output().map_err(|error| format!("cannot start {row}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{row} failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("{row} said nothing useful: {error}"))
}

/// Says the answer, in the process of its own.
pub fn answer(answer: &impl Serialize) -> Result<(), String> {
    println!("{}", serde_json::to_string(answer).map_err(|error| error.to_string())?);
    Ok(())
}
