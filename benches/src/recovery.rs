//! A server dies and others recover what it had: `splinter-bench recovery`.
//!
//! ```text
//!   victim       [ lost ] dies
//!   survivors    [ kept ]        ──► [ kept, a part of lost ] [ a part of lost ] ...
//!   load         gets of kept, an open loop; gets of lost, one after another
//!                | before | detected | first part served ... all served | after |
//! ```
//! Each run starts all servers anew, each as if on a machine of its own, so that every log is at others. Recovery
//! includes that what is recovered is on the disks of its new owners, and of their backups. Ousterhout et al., TOCS'15, §7
//! and §11.

mod cluster;
mod model;
mod namespace;
mod play;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use plotters::prelude::SeriesLabelPosition;
use serde::Serialize;

use self::cluster::SERVERS_MAX;
use self::model::{Kept, ModelRow, ModelSettings};
use self::play::RecoveryRow;
use crate::machine;
use crate::options::name_of;
use crate::plot::series::{Axes, Panel, Scale, Series, lines, panels};
use crate::report::{Figure, Report, Rows, Spreads, heads, median, print, range};

/// How the victim dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Death {
    /// Its process is killed: its machine refuses connections.
    Kill,
    /// Its process stands still: its lease has to end.
    Stop,
    /// Its machine loses all packets in both directions, and its process goes on; needs an administrator, and `ip` of iproute2.
    Drop,
}

/// The options of `splinter-bench recovery`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct RecoverySettings {
    /// Ways to die, in this order.
    #[arg(long, value_delimiter = ',', default_value = "kill,stop")]
    pub deaths: Vec<Death>,
    /// Servers that survive.
    #[arg(long, default_value_t = 3)]
    pub survivors: usize,
    /// Other servers that have each log.
    #[arg(long, default_value_t = 2)]
    pub replicas: usize,
    /// Megabytes of log that are lost.
    #[arg(long, default_value_t = 1_000)]
    pub megabytes: usize,
    /// Bytes of a key.
    #[arg(long, default_value_t = 30)]
    pub key_bytes: usize,
    /// Bytes of a value; 78 make 128 bytes with key and header.
    #[arg(long, default_value_t = 78)]
    pub value_bytes: usize,
    /// Gets a second of what is not lost.
    #[arg(long, default_value_t = 2_000.0)]
    pub rate: f64,
    /// Seconds before the death, and after all is served again.
    #[arg(long, default_value_t = 3.0)]
    pub margin_seconds: f64,
    /// Number of runs; the table shows medians.
    #[arg(long, default_value_t = 3)]
    pub runs: usize,
    /// Pin the load's thread to this core.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Folder for lines of JSON and the plot.
    #[arg(long)]
    #[serde(skip)]
    pub out: Option<PathBuf>,
    /// The server's program; default: the one in this program's folder.
    #[arg(long)]
    #[serde(skip)]
    pub server: Option<PathBuf>,
    /// The etcd program.
    #[arg(long, default_value = "etcd")]
    #[serde(skip)]
    pub etcd: String,
    /// What is simulated besides.
    #[command(flatten)]
    model: ModelSettings,
}

impl RecoverySettings {
    fn check(&self) -> Result<(), String> {
        if self.deaths.is_empty() || self.runs == 0 || self.megabytes == 0 {
            return Err("a measurement has a way to die, runs, and megabytes".into());
        }
        if !(1..SERVERS_MAX).contains(&self.survivors) || !(1..=self.survivors).contains(&self.replicas) {
            return Err(format!(
                "1 to {} servers survive, and 1 of them to all have each log",
                SERVERS_MAX - 1
            ));
        }
        let of_model = [self.model.model_cores, self.model.model_disks];
        if of_model.contains(&0) || self.model.model.iter().any(|servers| !(1..=1_000).contains(servers)) {
            return Err("1 to 1,000 servers are simulated, with cores and disks".into());
        }
        if !(0.5..=600.0).contains(&self.margin_seconds) {
            return Err("there is half a second to ten minutes around a death".into());
        }
        Ok(())
    }

    /// Bytes of an object in the log.
    fn object_bytes(&self) -> usize {
        (store::OBJECT_HEADER_BYTES + self.key_bytes + self.value_bytes).next_multiple_of(8)
    }

    /// Objects that are lost.
    fn objects(&self) -> u64 {
        (self.megabytes as u64 * 1_000_000) / self.object_bytes() as u64
    }
}

/// The figures of a way to die.
const FIGURES: &[Figure<RecoveryRow>] = &[
    median("detected_ms", "detected ms", 0, |row| row.detected_ms),
    range("first_ms", "first ms", 0, |row| row.first_ms),
    range("all_ms", "all ms", 0, |row| row.all_ms),
    median("megabytes_per_second", "MB/s", 0, |row| row.megabytes_per_second),
    range("megabytes_per_core_second", "MB/s a core", 0, |row| row.megabytes_per_core_second),
    median("kept_us_p99", "kept p99 us", 0, |row| row.during.latency_us_p99),
    median("kept_us_p99_before", "was", 0, |row| row.before.latency_us_p99),
    median("usual_us_p99", "of 100 ms", 0, |row| row.usual_us_p99),
    median("usual_us_p99_before", "was", 0, |row| row.usual_us_p99_before),
    median("stolen_ms", "stolen ms", 0, |row| row.stolen_ms),
    median("failed", "failed", 0, |row| row.errors.values().sum::<u64>() as f64),
];

/// The rows of a way to die.
type RecoveryRows = Rows<Death, RecoveryRow>;

/// Measures all ways to die, prints the table, draws the picture.
pub fn run(settings: &RecoverySettings) -> Result<(), String> {
    settings.check()?;
    let mut report = Report::open("recovery", settings.out.as_deref())?;
    settings.cpu.map_or(Ok(()), machine::pin)?;
    let all = report.rounds(settings.runs, settings, settings.deaths.clone(), |&mut death, run| {
        let row = play::play(settings, death, run as u64)?;
        eprintln!("{}: {}", name_of(&death), row.line());
        Ok(row)
    })?;
    show(settings, &all);
    let measured = all.first().map(|Rows { rows, .. }| Spreads::of(FIGURES, rows));
    let per_core_second = measured.map_or(0.0, |spreads| spreads.median("megabytes_per_core_second"));
    let simulate = |kept| {
        let servers = settings.model.model.iter();
        servers.map(move |servers| model::simulate(&settings.model, kept, *servers, 1.0 / per_core_second))
    };
    let simulated: Vec<ModelRow> = simulate(Kept::InMemory).chain(simulate(Kept::OnDisk)).collect();
    simulated.iter().try_for_each(|row| report.line(None, settings, row))?;
    show_simulated(settings, &simulated);
    if let Some(path) = report.plot("recovery-servers.svg").filter(|_| !simulated.is_empty()) {
        draw_simulated(&path, &simulated)?;
    }
    let Some(path) = report.plot("recovery.svg") else { return Ok(()) };
    draw(&path, settings, &all)
}

fn show(settings: &RecoverySettings, all: &[RecoveryRows]) {
    let title = format!(
        "{:.1} GB of objects of {} bytes are recovered by {} servers, each log at {} others; medians of {} runs",
        settings.megabytes as f64 / 1000.0,
        settings.object_bytes(),
        settings.survivors,
        settings.replicas,
        settings.runs
    );
    let cells = |Rows { case, rows }: &RecoveryRows| {
        [vec![name_of(case)], Spreads::of(FIGURES, rows).cells()].concat()
    };
    let rows: Vec<Vec<String>> = all.iter().map(cells).collect();
    print(&title, &format!("death|{}", heads(FIGURES)), &rows);
}

fn show_simulated(settings: &RecoverySettings, rows: &[ModelRow]) {
    let ModelSettings { model_cores, model_disks, model_disk_reads, model_network, model_replicas, .. } =
        settings.model;
    let cells = |row: &ModelRow| {
        let percent = |busy: f64| format!("{:.0}", 100.0 * busy);
        let size = [
            name_of(&row.kept),
            row.servers.to_string(),
            format!("{:.1}", row.gigabytes),
            format!("{:.2}", row.seconds),
        ];
        let busy = [row.cores_busy, row.disks_busy, row.network_busy].map(percent);
        [&size[..], &busy[..]].concat()
    };
    if rows.is_empty() {
        return;
    }
    let title = format!(
        "simulated with the processor time of the first row above, without detection; of each server {model_cores} cores, \
         {model_disks} disks of {model_disk_reads} MB/s, network {model_network} MB/s; {model_replicas} replicas; the busiest \
         server's share"
    );
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    print(&title, "acknowledged|servers|lost GB|seconds|cores %|disks %|network %", &rows);
}

/// Seconds over the number of servers, as much being lost for each of them; a line for each thing that backups acknowledge.
fn draw_simulated(path: &std::path::Path, rows: &[ModelRow]) -> Result<(), String> {
    let line = |kept| {
        let own = rows.iter().filter(move |row| row.kept == kept);
        let points = own.map(|row| (row.servers as f64, row.seconds)).collect();
        Series { name: format!("replicas {}", name_of(&kept)), points }
    };
    let each = rows.first().map_or(0.0, |row| 1e3 * row.gigabytes / row.servers as f64);
    let title = format!("{each:.0} MB are lost and recovered for each server (simulated)");
    let axes = Axes { title: &title, x: "servers", y: "seconds" };
    let (scale, names) = (Scale::Linear, SeriesLabelPosition::LowerRight);
    let series = vec![line(Kept::InMemory), line(Kept::OnDisk)];
    lines(path, &Panel { axes, scale, series, names })
}

/// The share that is served, and what clients of the rest see, one above the other; a line for each way to die.
fn draw(path: &std::path::Path, settings: &RecoverySettings, all: &[RecoveryRows]) -> Result<(), String> {
    let line = |points: &dyn Fn(&RecoveryRow) -> Vec<(f64, f64)>| -> Vec<Series> {
        let line = |Rows { case, rows }: &RecoveryRows| Series {
            name: name_of(case),
            // Of the latest run.
            points: rows.last().map(points).unwrap_or_default(),
        };
        all.iter().map(line).collect()
    };
    let title = format!("{:.1} GB are lost and recovered", settings.megabytes as f64 / 1000.0);
    let panel = |title, x, y, scale, series| Panel {
        axes: Axes { title, x, y },
        scale,
        series,
        names: SeriesLabelPosition::LowerRight,
    };
    let of_kept = |figure: fn(&crate::intervals::BinSeen) -> f64| {
        move |row: &RecoveryRow| -> Vec<(f64, f64)> {
            let points = row.timeline.iter().map(|moment| (moment.at, figure(&moment.seen)));
            points.filter(|point| point.1 > 0.0).collect()
        }
    };
    let served = line(&|row| row.served.clone());
    let answers = line(&of_kept(|seen| seen.answers_per_second / 1e3));
    let p99 = line(&of_kept(|seen| seen.latency_us_p99));
    panels(
        path,
        Scale::Linear,
        &[
            panel(&title, "", "% of gets of lost answered", Scale::Linear, served),
            panel("", "", "thousand answers/s of kept", Scale::Linear, answers),
            panel("", "seconds since the death", "p99 of kept, us", Scale::Logarithmic, p99),
        ],
        false,
    )
}
