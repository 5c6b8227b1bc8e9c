//! Scans of an ordered table beside Redis: the same records, read in turn, in one run.
//!
//! A scan reads the records behind a random key, in the order of their keys. Here they are the objects of an ordered
//! table. In Redis they are the members of one sorted set whose scores are equal, which `ZRANGEBYLEX` orders by their
//! bytes; a member is the key with the value behind it, since a member apart from its value would cost a `GET` more for
//! each. Both servers are started by the bench and pinned to one core, the load to another; the records go in over the
//! network, in an order that is none. Where there is no Redis it measures us alone and says so.

mod peer;
mod requests;
mod servers;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::dataset::Dataset;
use crate::drive::Drive;
use crate::fleet::Fleet;
use crate::machine::{self, ServerThreads};
use crate::measure::{Figures, Measure};
use crate::report::{self, Report, Spread};
use peer::Peer;
use requests::Scans;
use servers::{Ours, Theirs};

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
    /// Seconds of each row in a run.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Number of runs; each measures both servers in turn, and the table shows medians.
    #[arg(long, default_value_t = 5)]
    pub runs: usize,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Core of both servers.
    #[arg(long, default_value_t = 0)]
    pub server_cpu: usize,
    /// Core of the load.
    #[arg(long, default_value_t = 1)]
    pub cpu: usize,
    /// The program of the Splinter server; default: the one in this program's folder.
    #[arg(long)]
    pub server: Option<PathBuf>,
    /// Redis: a program to start, or HOST:PORT of a running server.
    #[arg(long, default_value = "redis-server")]
    pub redis: String,
    /// Folder for lines of JSON.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
}

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
struct ScanRow<'a> {
    load: &'a str,
    side: &'static str,
    #[serde(flatten)]
    measured: &'a Measured,
}

/// What one side did under one load.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    figures: Figures,
    /// Time that the server's threads ran for each scan; a worker of ours that looks for work counts as running.
    server_cpu_us: Option<f64>,
}

/// The medians of a load.
#[derive(Debug, Serialize)]
struct ScanSummary {
    load: &'static str,
    splinter_per_second: Spread,
    splinter_us_p50: Spread,
    splinter_us_p99: Spread,
    splinter_cpu_us: Spread,
    redis_per_second: Option<Spread>,
    redis_us_p50: Option<Spread>,
    redis_us_p99: Option<Spread>,
    redis_cpu_us: Option<Spread>,
    times: Option<f64>,
    meets_target: Option<bool>,
}

/// Measures, and prints the table.
pub fn run(settings: &ScanSettings) -> Result<(), String> {
    settings.check()?;
    let data = || Dataset::new(settings.keys, settings.key_bytes, settings.value_bytes);
    let mut report = Report::open("scan", settings.out.as_deref())?;
    machine::pin(settings.server_cpu)?;
    let ours = Ours::start(settings, data()?)?;
    let theirs = Theirs::start(&settings.redis)?;
    machine::pin(settings.cpu)?;
    let (access, table) = ours.load(data()?)?;
    if let Some(theirs) = &theirs {
        peer::load(theirs.address(), &mut data()?)?;
    }
    let mut rows: Vec<Vec<(Measured, Option<Measured>)>> = LOADS.iter().map(|_| Vec::new()).collect();
    for run in 0..settings.runs {
        for (load, rows) in LOADS.iter().zip(&mut rows) {
            let mut fleet = Fleet::open(&access, load.clients, load.clients > 1)?;
            let scans = Scans::new(table, settings, data()?, run);
            let mine = measure_ours(&ours, &mut fleet, scans, load.outstanding, settings)?;
            report.line(
                Some(run),
                settings,
                &ScanRow { load: load.name, side: "splinter", measured: &mine },
            )?;
            let beside = theirs.as_ref().map(|theirs| measure_theirs(theirs, load, settings, data()?, run));
            let beside = beside.transpose()?;
            if let Some(measured) = &beside {
                report.line(Some(run), settings, &ScanRow { load: load.name, side: "redis", measured })?;
            }
            rows.push((mine, beside));
        }
    }
    show(&rows, settings, theirs.is_some(), &mut report)
}

fn measure_ours(
    ours: &Ours,
    fleet: &mut Fleet,
    scans: Scans,
    outstanding: usize,
    settings: &ScanSettings,
) -> Result<Measured, String> {
    let mut drive = Drive::new(fleet, scans, outstanding, Instant::now());
    drive.warm_up_and_measure(0.0, settings.warmup())?;
    let running = Running::begin(ours.threads());
    let seconds = drive.warm_up_and_measure(0.0, settings.seconds)?;
    let measured = running.end(drive.measure.figures(seconds));
    drive.drain()?;
    let wrong = &measured.figures.errors;
    if wrong.is_empty() { Ok(measured) } else { Err(format!("scans of ours went wrong: {wrong:?}")) }
}

fn measure_theirs(
    theirs: &Theirs,
    load: &ScanLoad,
    settings: &ScanSettings,
    data: Dataset,
    run: usize,
) -> Result<Measured, String> {
    let scans = Scans::new(0, settings, data, run);
    let mut peer = Peer::connect(theirs.address(), load.clients, load.outstanding, scans)?;
    let mut measure = Measure::new();
    peer.until(settings.warmup(), &mut measure)?;
    measure.clear();
    let running = Running::begin(theirs.threads());
    let seconds = peer.until(settings.seconds, &mut measure)?;
    Ok(running.end(measure.figures(seconds)))
}

/// A server's threads since a measurement began.
struct Running {
    threads: Option<ServerThreads>,
    before_ns: Option<u64>,
}

impl Running {
    fn begin(threads: Option<ServerThreads>) -> Self {
        let before_ns = threads.as_ref().map(Self::ran_ns);
        Self { threads, before_ns }
    }

    fn ran_ns(threads: &ServerThreads) -> u64 {
        threads.workers().ran_ns + threads.others().ran_ns
    }

    fn end(self, figures: Figures) -> Measured {
        let after_ns = self.threads.as_ref().map(Self::ran_ns);
        let ran_ns = self.before_ns.zip(after_ns).map(|(before, after)| after.saturating_sub(before));
        let scans = figures.requests.max(1) as f64;
        Measured { server_cpu_us: ran_ns.map(|ns| ns as f64 / 1000.0 / scans), figures }
    }
}

fn show(
    rows: &[Vec<(Measured, Option<Measured>)>],
    settings: &ScanSettings,
    beside: bool,
    report: &mut Report,
) -> Result<(), String> {
    let mut lines = Vec::new();
    for (load, rows) in LOADS.iter().zip(rows) {
        let summary = ScanSummary::of(load.name, rows);
        report.line(None, settings, &summary)?;
        let mut cells = vec![load.name.to_string()];
        cells.extend(cells_of(
            &summary.splinter_per_second,
            &summary.splinter_us_p50,
            &summary.splinter_us_p99,
            &summary.splinter_cpu_us,
        ));
        if let (Some(rate), Some(p50), Some(p99), Some(cpu)) =
            (&summary.redis_per_second, &summary.redis_us_p50, &summary.redis_us_p99, &summary.redis_cpu_us)
        {
            cells.extend(cells_of(rate, p50, p99, cpu));
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
        settings.runs,
        settings.seconds
    );
    let ours = ["", "scans/s", "least-most", "p50 us", "p99 us", "cpu us"];
    let theirs = ["Redis/s", "least-most", "p50 us", "p99 us", "cpu us", "times"];
    let heads: Vec<&str> = ours.into_iter().chain(theirs.into_iter().filter(|_| beside)).collect();
    report::print(&title, &heads, &lines);
    match beside {
        true => println!("{NOTE}"),
        false => println!("there is no {} on this machine: ours alone", settings.redis),
    }
    Ok(())
}

fn cells_of(rate: &Spread, p50: &Spread, p99: &Spread, cpu: &Spread) -> [String; 5] {
    [
        format!("{:.0}", rate.median),
        format!("{:.0}-{:.0}", rate.least, rate.most),
        format!("{:.1}", p50.median),
        format!("{:.1}", p99.median),
        format!("{:.1}", cpu.median),
    ]
}

impl ScanSummary {
    fn of(load: &'static str, rows: &[(Measured, Option<Measured>)]) -> Self {
        let ours = |figure: fn(&Measured) -> f64| Spread::of(rows.iter().map(|(ours, _)| figure(ours)));
        let theirs = |figure: fn(&Measured) -> f64| {
            let figures: Vec<f64> =
                rows.iter().filter_map(|(_, theirs)| theirs.as_ref().map(figure)).collect();
            (!figures.is_empty()).then(|| Spread::of(figures))
        };
        let rate: fn(&Measured) -> f64 = |measured| measured.figures.requests_per_second;
        let cpu: fn(&Measured) -> f64 = |measured| measured.server_cpu_us.unwrap_or(0.0);
        let times = theirs(rate).map(|theirs| ours(rate).median / theirs.median);
        Self {
            load,
            splinter_per_second: ours(rate),
            splinter_us_p50: ours(|measured| measured.figures.latency_us_p50),
            splinter_us_p99: ours(|measured| measured.figures.latency_us_p99),
            splinter_cpu_us: ours(cpu),
            redis_per_second: theirs(rate),
            redis_us_p50: theirs(|measured| measured.figures.latency_us_p50),
            redis_us_p99: theirs(|measured| measured.figures.latency_us_p99),
            redis_cpu_us: theirs(cpu),
            times,
            meets_target: times.map(|times| times >= TARGET_TIMES),
        }
    }
}

impl ScanSettings {
    /// Seconds before each row that are not measured.
    fn warmup(&self) -> f64 {
        self.seconds / 5.0
    }

    /// Refuses settings that make no sense.
    fn check(&self) -> Result<(), String> {
        let refuse = |text: &str| Err(text.to_string());
        if self.runs == 0 || self.seconds.is_nan() || self.seconds <= 0.0 {
            return refuse("a measurement has runs and seconds");
        }
        if self.keys > 1_000_000_000 || self.records as u64 >= self.keys {
            return refuse("a table has more records than a scan, and at most 1,000,000,000");
        }
        if !(1..=wire::limits::ENUMERATE_OBJECTS_MAX).contains(&self.records) {
            return Err(format!("a scan has 1 to {} records", wire::limits::ENUMERATE_OBJECTS_MAX));
        }
        Ok(())
    }
}
