//! Writes a second over the utilization of memory (RAMCloud, TOCS'15, figure 6): what the cleaner costs as memory gets
//! full.
//!
//! The cleaner works on the core that writes, so all of its work is in the figure. Each point is a store of its own
//! with so much memory that its objects fill the given share of the log (a point where that is refused is left out); it is written over until the cleaner has been
//! everywhere, then measured. Keys are drawn uniformly and by Zipf's law with 0.99.

use plotters::prelude::SeriesLabelPosition;
use serde::Serialize;

use crate::in_process::settings::StoreSettings;
use crate::in_process::side::{OBJECT_LOG_BYTES, ObjectWorker, Splinter, touch_all};
use crate::machine;
use crate::plot::series::{self, Axes, Panel, Scale, Series};
use crate::popularity::Popularity;
use crate::report::{self, Report};

/// Popularities: name, and Zipf's theta.
const POPULARITIES: [(&str, f64); 2] = [("uniform", 0.0), ("zipf 0.99", 0.99)];

/// What a popularity should keep of its writes at 50 %, in percent, at (80 %, 90 %).
const TARGETS: [(f64, f64); 2] = [(70.0, 35.0), (80.0, 60.0)];

/// Keys that are drawn before, and then used in a circle.
const DRAWN: usize = 1 << 22;

/// Writes that are handed over together.
const BATCH: usize = 32;

/// Writes between two looks at the clock.
const WRITES_PER_LOOK: usize = 1024;

/// How often the memory is written over before it is measured.
const WARMUP: f64 = 2.0;

/// One point.
#[derive(Clone, Debug, Serialize)]
struct Point {
    popularity: &'static str,
    utilization_percent: u64,
    writes_per_second: f64,
    /// Bytes that the cleaner copied for each byte written.
    copied: f64,
}

/// Measures, prints the table, draws the plots.
pub fn run(settings: &StoreSettings, report: &mut Report) -> Result<(), String> {
    machine::pin(settings.cores[0])?;
    let mut curves: Vec<Vec<Point>> = Vec::new();
    for (name, theta) in POPULARITIES {
        let numbers = draw(settings, theta)?;
        let mut points = Vec::new();
        for &percent in &settings.utilizations {
            let Some(point) = measure(settings, name, &numbers, percent)? else {
                eprintln!("{name}, {percent} %: the store is full");
                break;
            };
            eprintln!("{name}, {percent} %: {:.2} M/s", point.writes_per_second / 1e6);
            report.line(Some(0), settings, &point)?;
            points.push(point);
        }
        curves.push(points);
    }
    show(&curves);
    draw_plot(&curves, report)
}

fn draw(settings: &StoreSettings, theta: f64) -> Result<Vec<u32>, String> {
    let popularity = Popularity::new(settings.memory_objects, theta)?;
    let mut random = fastrand::Rng::with_seed(settings.seed);
    Ok((0..DRAWN).map(|_| popularity.pick(&mut random) as u32).collect())
}

fn measure(
    settings: &StoreSettings,
    popularity: &'static str,
    numbers: &[u32],
    percent: u64,
) -> Result<Option<Point>, String> {
    let objects = settings.memory_objects;
    let side = Splinter::full(objects, percent)?;
    let store = side.store();
    let memory_bytes = store.statistics().memory_bytes as usize;
    touch_all(store)?;
    let mut worker = ObjectWorker::new(store.core(0), side.table());
    let mut batch = [0; BATCH];
    // As many writes or a few more, of the numbers that come next; false where the store is full.
    let mut write = |count: usize, next: &mut dyn FnMut() -> u64| {
        (0..count.div_ceil(BATCH)).all(|_| {
            batch.iter_mut().for_each(|number| *number = next());
            worker.try_write(&batch).is_ok()
        })
    };
    let mut in_order = 0..;
    let mut circle = numbers.iter().cycle();
    let mut drawn = || u64::from(*circle.next().expect("a circle has no end"));
    let warmup = (WARMUP * memory_bytes as f64 / OBJECT_LOG_BYTES as f64) as usize;
    let filled = write(objects as usize, &mut || in_order.next().map_or(0, |number: u64| number % objects));
    if !filled || !write(warmup, &mut drawn) {
        return Ok(None);
    }
    let copied = || store.statistics().bytes_relocated;
    let (start_ns, copied_before, mut written) = (machine::own_cpu_ns(), copied(), 0);
    // At least a fifth of the memory: the cleaner works in bursts.
    let least = memory_bytes / OBJECT_LOG_BYTES / 5;
    let elapsed_ns = loop {
        if !write(WRITES_PER_LOOK, &mut drawn) {
            return Ok(None);
        }
        written += WRITES_PER_LOOK;
        let elapsed_ns = machine::own_cpu_ns() - start_ns;
        if elapsed_ns as f64 >= settings.seconds * 1e9 && written >= least {
            break elapsed_ns;
        }
    };
    Ok(Some(Point {
        popularity,
        utilization_percent: percent,
        writes_per_second: written as f64 * 1e9 / elapsed_ns as f64,
        copied: (copied() - copied_before) as f64 / (written * OBJECT_LOG_BYTES) as f64,
    }))
}

fn rate_at(points: &[Point], percent: u64) -> f64 {
    let point = points.iter().find(|point| point.utilization_percent == percent);
    point.map_or(0.0, |point| point.writes_per_second)
}

fn show(curves: &[Vec<Point>]) {
    for (points, (at_80, at_90)) in curves.iter().zip(TARGETS) {
        let half = rate_at(points, 50);
        let rows: Vec<Vec<String>> = points
            .iter()
            .map(|point| {
                let target = match point.utilization_percent {
                    80 => format!("{at_80:.0} %"),
                    90 => format!("{at_90:.0} %"),
                    _ => String::new(),
                };
                vec![
                    format!("{} %", point.utilization_percent),
                    format!("{:.2} M/s", point.writes_per_second / 1e6),
                    format!("{:.0} %", 100.0 * point.writes_per_second / half),
                    target,
                    format!("{:.2}", point.copied),
                ]
            })
            .collect();
        let title = format!("Writes over utilization, {}, cleaner on the same core", points[0].popularity);
        report::print(&title, "live|writes|of 50 %|target|copied/written", &rows);
    }
}

fn draw_plot(curves: &[Vec<Point>], report: &Report) -> Result<(), String> {
    let Some(path) = report.plot("store-utilization.svg") else { return Ok(()) };
    let series: Vec<Series> = curves
        .iter()
        .map(|points| Series {
            name: points[0].popularity.into(),
            points: points
                .iter()
                .map(|point| (point.utilization_percent as f64, point.writes_per_second / 1e6))
                .collect(),
        })
        .collect();
    let axes = Axes {
        title: "Writes of 100-byte values, one core, cleaner included",
        x: "live share of the log, in percent",
        y: "million writes a second",
    };
    let names = SeriesLabelPosition::LowerLeft;
    series::lines(&path, &Panel { axes, scale: Scale::Linear, series, names })
}
