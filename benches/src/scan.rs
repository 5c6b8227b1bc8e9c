//! Scans of an ordered table beside Redis: the same records, read in turn, in one run.
//!
//! A scan reads the records behind a random key, in the order of their keys. Here they are the objects of an ordered
//! table. In Redis they are the members of one sorted set whose scores are equal, which `ZRANGEBYLEX` orders by their
//! bytes; a member is the key with the value behind it, since a member apart from its value would cost a `GET` more for
//! each. Both servers are started by the bench and pinned to one core, the load to another; the records go in over the
//! network, in an order that is none. Where there is no Redis it measures us alone and says so.

mod peer;
mod servers;

use std::time::Instant;

use clap::Args;
use client::{KeyRange, Request};
use fastrand::Rng;
use serde::Serialize;
use wire::limits::{ENUMERATE_BYTES_MAX, ENUMERATE_OBJECTS_MAX};

use crate::dataset::Dataset;
use crate::drive::Drive;
use crate::fleet::Fleet;
use crate::machine::{self, ServerThreads};
use crate::measure::{Figures, Measure};
use crate::options::{PairSettings, check_runs};
use crate::process::Folder;
use crate::report::{self, Figure, Report, Rows, Spreads, heads, median, range};
use crate::server::OurServer;
use crate::workload::{Expected, Source};
use peer::Peer;
use servers::Theirs;

/// How many times as fast as Redis a scan is to be.
const TARGET_TIMES: f64 = 3.0;

/// What stands under the table.
const NOTE: &str = "times: scans a second of ours by those of Redis; target 3.0. Redis: ZRANGEBYLEX zset [KEY + LIMIT 0 N over \
                    members that are key and value. cpu: time that the server's threads ran for each scan; our worker runs on while it looks for work.";

/// The options of `splinter-bench scan`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct ScanSettings {
    /// Number of records of the table and of the sorted set.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a key.
    #[arg(long, default_value_t = 30)]
    pub key_bytes: usize,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Number of records of a scan.
    #[arg(long, default_value_t = 100)]
    pub records: usize,
    /// Cores, runs and the server; Redis runs on the server's core.
    #[command(flatten)]
    #[serde(flatten)]
    pub pair: PairSettings,
    /// Redis: a program to start, or HOST:PORT of a running server.
    #[arg(long, default_value = "redis-server")]
    pub redis: String,
}

/// A prime larger than any number of records.
const STRIDE: u64 = 2_654_435_761;

/// How many ask, and how much at once.
#[derive(Clone, Copy, Debug)]
struct ScanLoad {
    name: &'static str,
    /// Connections, or sessions with a socket each.
    clients: usize,
    /// Scans that each keeps outstanding.
    outstanding: usize,
}

/// The rows of the table.
const LOADS: &[ScanLoad] = &[
    ScanLoad { name: "one at a time", clients: 1, outstanding: 1 },
    ScanLoad { name: "1 client, 16 outstanding", clients: 1, outstanding: 16 },
    ScanLoad { name: "16 clients, one each", clients: 16, outstanding: 1 },
];

/// What one side did under one load in one run.
#[derive(Debug, Serialize)]
struct ScanRow {
    load: &'static str,
    side: &'static str,
    #[serde(flatten)]
    figures: Figures,
    /// Time that the server's threads ran for each scan; a worker of ours that looks for work counts as running.
    server_cpu_us: Option<f64>,
}

/// The figures of a side.
const FIGURES: &[Figure<ScanRow>] = &[
    range("per_second", "scans/s", 0, |row| row.figures.requests_per_second),
    median("us_p50", "p50 us", 1, |row| row.figures.latency_us_p50),
    median("us_p99", "p99 us", 1, |row| row.figures.latency_us_p99),
    median("cpu_us", "cpu us", 1, |row| row.server_cpu_us.unwrap_or(0.0)),
];

/// A load of one side, with its rows.
type ScanRows = Rows<(ScanLoad, &'static str), ScanRow>;

/// The sides: ours, and Redis where there is one.
const SIDES: [&str; 2] = ["splinter", "redis"];

/// The medians of a load.
#[derive(Serialize)]
struct ScanSummary {
    load: &'static str,
    splinter: Spreads,
    redis: Option<Spreads>,
    times: Option<f64>,
    meets_target: Option<bool>,
}

/// Measures, and prints the table.
pub fn run(settings: &ScanSettings) -> Result<(), String> {
    settings.check()?;
    let data = || Dataset::new(settings.keys, settings.key_bytes, settings.value_bytes);
    let mut report = Report::open("scan", settings.pair.out.as_deref())?;
    machine::pin(settings.pair.server_cpu)?;
    let folder = Folder::make("scan")?;
    let ours = servers::start(&folder, settings, &data()?)?;
    let theirs = Theirs::start(&settings.redis)?;
    machine::pin(settings.pair.cpu)?;
    let (access, table) = servers::load(&ours, settings.pair.durability, data()?)?;
    if let Some(theirs) = &theirs {
        peer::load(theirs.address(), &mut data()?)?;
    }
    let sides = &SIDES[..1 + usize::from(theirs.is_some())];
    let cases = LOADS.iter().flat_map(|&load| sides.iter().map(move |&side| (load, side)));
    let rows = report.rounds(settings.pair.runs, settings, cases, |&mut (load, side), run| {
        let scans = Scans::new(table, settings, data()?, run);
        let (figures, server_cpu_us) = match &theirs {
            Some(theirs) if side != SIDES[0] => measure_theirs(theirs, load, scans, settings)?,
            _ => {
                let mut fleet = Fleet::open(&access, load.clients, load.clients > 1)?;
                measure_ours(&ours, &mut fleet, scans, load.outstanding, settings)?
            }
        };
        Ok(ScanRow { load: load.name, side, figures, server_cpu_us })
    })?;
    show(&rows.chunks(sides.len()).collect::<Vec<_>>(), settings, theirs.is_some(), &mut report)
}

/// The figures, and the server's microseconds of processor for each scan.
type Measured = (Figures, Option<f64>);

fn measure_ours(
    ours: &OurServer,
    fleet: &mut Fleet,
    scans: Scans,
    outstanding: usize,
    settings: &ScanSettings,
) -> Result<Measured, String> {
    let mut drive = Drive::new(fleet, scans, outstanding, Instant::now());
    drive.warm_up_and_measure(0.0, settings.warmup())?;
    let threads = ServerThreads::of(ours.id());
    let before_ns = threads.as_ref().map(ran_ns);
    let seconds = drive.warm_up_and_measure(0.0, settings.pair.seconds)?;
    let measured = measured(drive.measure.figures(seconds), threads.as_ref(), before_ns);
    drive.drain()?;
    let wrong = &measured.0.errors;
    if wrong.is_empty() { Ok(measured) } else { Err(format!("scans of ours went wrong: {wrong:?}")) }
}

fn measure_theirs(
    theirs: &Theirs,
    load: ScanLoad,
    scans: Scans,
    settings: &ScanSettings,
) -> Result<Measured, String> {
    let mut peer = Peer::connect(theirs.address(), load.clients, load.outstanding, scans)?;
    let mut measure = Measure::default();
    peer.until(settings.warmup(), &mut measure)?;
    measure.clear();
    let threads = theirs.threads();
    let before_ns = threads.as_ref().map(ran_ns);
    let seconds = peer.until(settings.pair.seconds, &mut measure)?;
    Ok(measured(measure.figures(seconds), threads.as_ref(), before_ns))
}

/// How long a server's threads have run, in nanoseconds.
fn ran_ns(threads: &ServerThreads) -> u64 {
    threads.workers().ran_ns + threads.others().ran_ns
}

/// Figures with the time that threads ran since `before_ns`.
fn measured(figures: Figures, threads: Option<&ServerThreads>, before_ns: Option<u64>) -> Measured {
    let ran_ns = threads.zip(before_ns).map(|(threads, before)| ran_ns(threads).saturating_sub(before));
    let scans = figures.requests.max(1) as f64;
    (figures, ran_ns.map(|ns| ns as f64 / 1000.0 / scans))
}

fn show(
    loads: &[&[ScanRows]],
    settings: &ScanSettings,
    beside: bool,
    report: &mut Report,
) -> Result<(), String> {
    let mut lines = Vec::new();
    for &sides in loads {
        let summary = ScanSummary::of(sides);
        report.line(None, settings, &summary)?;
        let mut cells = vec![summary.load.to_string()];
        cells.extend(summary.splinter.cells());
        if let Some(redis) = &summary.redis {
            cells.extend(redis.cells());
            cells.push(format!("{:.2}", summary.times.unwrap_or(0.0)));
        }
        lines.push(cells);
    }
    let title = format!(
        "Scans of {} records ({} B key, {} B value) of {}, {} runs of {} s in turn",
        settings.records,
        settings.key_bytes,
        settings.value_bytes,
        settings.keys,
        settings.pair.runs,
        settings.pair.seconds
    );
    let one = heads(FIGURES);
    let heads = if beside { format!("|{one}|Redis: {one}|times") } else { format!("|{one}") };
    report::print(&title, &heads, &lines);
    match beside {
        true => println!("{NOTE}"),
        false => println!("there is no {} on this machine: ours alone", settings.redis),
    }
    Ok(())
}

impl ScanSummary {
    fn of(sides: &[ScanRows]) -> Self {
        let (load, spreads) = (sides[0].case.0.name, |side: &ScanRows| Spreads::of(FIGURES, &side.rows));
        let (splinter, redis) = (spreads(&sides[0]), sides.get(1).map(spreads));
        let times = redis.as_ref().map(|redis| splinter.median("per_second") / redis.median("per_second"));
        Self { load, splinter, redis, times, meets_target: times.map(|times| times >= TARGET_TIMES) }
    }
}

impl ScanSettings {
    /// Seconds before each row that are not measured.
    fn warmup(&self) -> f64 {
        self.pair.seconds / 5.0
    }

    /// Refuses settings that make no sense.
    fn check(&self) -> Result<(), String> {
        if self.keys > 1_000_000_000 || self.records as u64 >= self.keys {
            return Err("a table has more records than a scan, and at most 1,000,000,000".into());
        }
        if !(1..=ENUMERATE_OBJECTS_MAX).contains(&self.records) {
            return Err(format!("a scan has 1 to {ENUMERATE_OBJECTS_MAX} records"));
        }
        check_runs(self.pair.runs, self.pair.seconds)
    }
}

/// The record that is loaded as the `turn`th of so many: each once, and neighbours far from each other.
fn shuffled(turn: u64, records: u64) -> u64 {
    turn * STRIDE % records
}

/// Draws scans.
struct Scans {
    table: u32,
    records: usize,
    data: Dataset,
    random: Rng,
}

impl Scans {
    /// The scans of a run; both sides get the same.
    fn new(table: u32, settings: &ScanSettings, data: Dataset, run: usize) -> Self {
        let random = Rng::with_seed(settings.pair.seed + run as u64);
        Self { table, records: settings.records, data, random }
    }

    /// Draws the first key of a scan, behind which there are enough; its index.
    fn draw(&mut self) -> (u64, &[u8]) {
        let first = self.random.u64(0..=self.data.keys() - self.records as u64);
        (first, self.data.key(first))
    }

    /// Records of a scan.
    fn records(&self) -> usize {
        self.records
    }

    /// Bytes of a record.
    fn record_bytes(&self) -> usize {
        self.data.key_bytes() + self.data.value_bytes()
    }
}

impl Source for Scans {
    fn next<R>(&mut self, send: impl FnOnce(&Request<'_>, Expected) -> R) -> R {
        let (table, count) = (self.table, self.records);
        // No more than are asked for, so that a page ends there.
        let bytes_max = (count * self.record_bytes()).min(ENUMERATE_BYTES_MAX) as u32;
        let (first, from) = self.draw();
        let (range, objects_max) = (KeyRange { from, ..KeyRange::default() }, count as u16);
        let request = Request::Scan { table, range, cursor: &[], keys_only: false, objects_max, bytes_max };
        send(&request, Expected::Ordered(first, count))
    }

    fn objects(&self) -> u64 {
        self.records as u64
    }
}

#[cfg(test)]
mod tests {
    use super::shuffled;

    #[test]
    fn each_record_is_loaded_once() {
        for records in [1, 2, 1_000, 4_096, 9_999] {
            let mut loaded: Vec<u64> = (0..records).map(|turn| shuffled(turn, records)).collect();
            loaded.sort_unstable();
            assert!(loaded.into_iter().eq(0..records));
        }
    }
}
