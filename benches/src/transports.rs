//! A request over every way that frames can travel, in one run: `splinter-bench transports`.
//!
//! ```text
//!   run 1   udp   udp-packed   shm   ...   af-xdp-packed        each: a server, a client, both fresh
//!   run 2   udp   udp-packed   shm   ...                        medians of all runs
//! ```
//! Server and client are processes of their own on a core each ([`stage`], [`client`]). The client measures one outstanding
//! request, then as many as it is told, for each number anew. A frame carries one request, or as many as fit (`-packed`); the server's answers are packed in both
//! cases, as it sees fit. A way that cannot run here is a row that says why.

pub mod client;
mod narrow;
mod seen;
mod stage;
mod table;
mod way;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::options::{PairSettings, SandboxOption, check_runs};
use crate::report::{Report, Rows};
use crate::workload::{RECORDS_MAX, Workload};
use seen::ClientSeen;
pub use way::{Medium, TransportWay};

/// The options of `splinter-bench transports`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct TransportsSettings {
    /// Transports to measure, in this order: udp, shm, memif, virtio-user, veth-udp, af-packet, af-xdp, each also with
    /// the suffix -packed; default: all.
    #[arg(long, value_delimiter = ',')]
    pub ways: Vec<TransportWay>,
    /// Workload to run; its extension is installed automatically.
    #[arg(long, value_enum, default_value = "get")]
    pub workload: Workload,
    /// Number of objects of the data set or graph.
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,
    /// Bytes of a key.
    #[arg(long, default_value_t = 30)]
    pub key_bytes: usize,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Number of objects of one multiget or aggregate.
    #[arg(long, default_value_t = 64)]
    pub records: usize,
    /// Form in which invocations run.
    #[arg(long, value_enum, default_value = "wasm")]
    pub sandbox: SandboxOption,
    /// Outstanding requests for throughput; of several numbers, the table shows the one with the highest throughput.
    #[arg(long, value_delimiter = ',', default_values_t = [256, 1_024])]
    pub outstanding: Vec<usize>,
    /// Cores, runs and the server.
    #[command(flatten)]
    #[serde(flatten)]
    pub pair: PairSettings,
    /// The client's program, a `splinter-bench`; default: this one.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub client: Option<PathBuf>,
}

/// A way in a run, as it is written.
#[derive(Serialize)]
struct TransportRow {
    way: TransportWay,
    seen: Option<ClientSeen>,
    failure: Option<String>,
}

/// What came of a way.
pub(crate) struct Played {
    way: TransportWay,
    /// Of the runs that were measured to their end.
    seen: Vec<ClientSeen>,
    /// Why others were not, and how many of them.
    failures: Vec<String>,
}

/// Measures, prints the table, draws the plot.
pub fn run(settings: &TransportsSettings) -> Result<(), String> {
    settings.check()?;
    let mut report = Report::open("transports", settings.pair.out.as_deref())?;
    let ways = if settings.ways.is_empty() { TransportWay::all() } else { settings.ways.clone() };
    let rows = report.rounds(settings.pair.runs, settings, ways, |&mut way, run| {
        let outcome = stage::obstacle(way.medium).map_or_else(|| stage::play(way, settings, run), Err);
        match &outcome {
            Ok(seen) => {
                eprintln!("{way}: p50 {:.2} us, {:.0} requests/s", seen.latency_us_p50, seen.most());
            }
            Err(why) => eprintln!("{way}: {why}"),
        }
        Ok(TransportRow { way, seen: outcome.as_ref().ok().cloned(), failure: outcome.err() })
    })?;
    let played: Vec<Played> = rows.into_iter().map(Played::of).collect();
    table::show(settings, &played, &mut report)?;
    match played.iter().any(|played| !played.seen.is_empty()) {
        true => Ok(()),
        false => Err("no way could be measured".into()),
    }
}

impl Played {
    fn of(Rows { case: way, rows }: Rows<TransportWay, TransportRow>) -> Self {
        let (mut seen, mut failures) = (Vec::new(), Vec::new());
        for row in rows {
            seen.extend(row.seen);
            failures.extend(row.failure);
        }
        Self { way, seen, failures }
    }
}

impl TransportsSettings {
    /// Refuses settings that make no sense.
    fn check(&self) -> Result<(), String> {
        if self.outstanding.is_empty() || self.outstanding.contains(&0) {
            return Err("a measurement has requests outstanding".into());
        }
        if self.keys == 0 || !(1..=RECORDS_MAX).contains(&self.records) {
            return Err(format!("there are objects, and a request touches 1 to {RECORDS_MAX}"));
        }
        check_runs(self.pair.runs, self.pair.seconds)
    }
}
