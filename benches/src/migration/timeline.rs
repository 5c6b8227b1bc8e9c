//! Half of a table moves while clients use it: `splinter-bench migration`.
//!
//! ```text
//!   source   [ the table          ]          [ first half ]
//!   target                            ───►                [ second half ]
//!   load     YCSB-B, Zipf 0.99, an open loop at a part of what the source alone can do
//!            | before | moving ............................. | after |
//! ```
//! Each way of moving plays once a run, over the same servers: the half moves under load, then it moves back without
//! any, which shows how fast it can be. Every answer is checked. Rocksteady (SOSP'17, §4).

mod play;
mod stage;

use plotters::prelude::SeriesLabelPosition;

use self::play::{MoveRow, Scene};
pub use self::stage::MoveWay;
use self::stage::Stage;
use super::{MigrationRun, TimelineSettings};
use crate::intervals::BinSeen;
use crate::machine;
use crate::options::name_of;
use crate::plot::series::{Axes, Panel, Scale, Series, panels};
use crate::report::{Figure, Report, Rows, Spreads, heads, median, print};

/// How it is made.
pub type TimelineRun = MigrationRun<TimelineSettings>;

impl TimelineRun {
    /// Objects of the table.
    fn objects(&self) -> u64 {
        (self.megabytes as u64 * 1_000_000) / (self.key_bytes + self.own.value_bytes) as u64
    }
}

/// The figures of a way.
const FIGURES: &[Figure<MoveRow>] = &[
    median("megabytes_per_second", "MB/s", 0, |row| row.megabytes_per_second),
    median("idle_megabytes_per_second", "MB/s idle", 0, |row| row.idle_megabytes_per_second),
    median("second_read_percent", "more %", 1, |row| row.second_read_percent),
    median("seconds", "seconds", 1, |row| row.seconds),
    median("moving_us_p50", "p50 us", 0, |row| row.moving.latency_us_p50),
    median("before_us_p50", "was", 0, |row| row.before.latency_us_p50),
    median("moving_us_p999", "p99.9 us", 0, |row| row.moving.latency_us_p999),
    median("before_us_p999", "was", 0, |row| row.before.latency_us_p999),
    median("moving_ms_max", "longest ms", 1, |row| row.moving.latency_us_max / 1e3),
    median("before_ms_max", "was", 1, |row| row.before.latency_us_max / 1e3),
    median("hand_over_ms_max", "hand-over ms", 1, |row| row.hand_over.latency_us_max / 1e3),
    median("failed", "failed", 0, |row| row.errors.values().sum::<u64>() as f64),
];

/// The rows of a way.
type MoveRows = Rows<MoveWay, MoveRow>;

/// Plays all ways, prints the table, draws the picture.
pub fn run(settings: &TimelineRun, report: &mut Report) -> Result<(), String> {
    settings.cpu.map_or(Ok(()), machine::pin)?;
    let stage = Stage::start(settings)?;
    let mut scene = Scene::open(settings, &stage)?;
    let played = report.rounds(settings.runs, settings, settings.own.ways.clone(), |&mut way, run| {
        let row = scene.play(&stage, way, run as u64)?;
        eprintln!("{}: {}", name_of(&way), row.line());
        Ok(row)
    })?;
    show(settings, scene.rate(), &played);
    let Some(path) = report.plot("migration.svg") else { return Ok(()) };
    draw(&path, settings, &played)
}

fn show(settings: &TimelineRun, rate: f64, played: &[MoveRows]) {
    let title = format!(
        "Half of {:.1} GB moves under {rate:.0} requests/s (YCSB-B, Zipf {}); medians of {} runs",
        settings.megabytes as f64 / 1000.0,
        settings.own.zipf,
        settings.runs
    );
    let cells = |Rows { case: way, rows }: &MoveRows| {
        [vec![name_of(way)], Spreads::of(FIGURES, rows).cells()].concat()
    };
    let rows: Vec<Vec<String>> = played.iter().map(cells).collect();
    print(&title, &format!("way|{}", heads(FIGURES)), &rows);
}

/// Throughput, p50 and p99.9 over time, one above the other, a line for each way.
fn draw(path: &std::path::Path, settings: &TimelineRun, played: &[MoveRows]) -> Result<(), String> {
    let title = format!("Half of {:.1} GB moves, YCSB-B", settings.megabytes as f64 / 1000.0);
    let series = |scale: Scale, figure: &dyn Fn(&BinSeen) -> f64| -> Vec<Series> {
        let line = |Rows { case: way, rows }: &MoveRows| Series {
            name: name_of(way),
            // Of the latest run.
            points: rows
                .last()
                .into_iter()
                .flat_map(|row| &row.timeline)
                .map(|moment| (moment.at, figure(&moment.seen)))
                // An interval without requests has no latency; one without answers has a throughput, which is none.
                .filter(|point| point.1 > 0.0 || scale == Scale::Linear)
                .collect(),
        };
        played.iter().map(line).collect()
    };
    let x = "seconds since the beginning of the migration";
    panels(
        path,
        Scale::Linear,
        &[
            Panel {
                axes: Axes { title: &title, x: "", y: "thousand answers/s" },
                scale: Scale::Linear,
                series: series(Scale::Linear, &|seen| seen.answers_per_second / 1e3),
                names: SeriesLabelPosition::LowerLeft,
            },
            Panel {
                axes: Axes { title: "", x: "", y: "p50, us" },
                scale: Scale::Logarithmic,
                series: series(Scale::Logarithmic, &|seen| seen.latency_us_p50),
                names: SeriesLabelPosition::LowerLeft,
            },
            Panel {
                axes: Axes { title: "", x, y: "p99.9, us" },
                scale: Scale::Logarithmic,
                series: series(Scale::Logarithmic, &|seen| seen.latency_us_p999),
                names: SeriesLabelPosition::LowerLeft,
            },
        ],
        false,
    )
}
