//! Very many tenants on one core, beside one tenant with the same load.
//!
//! Each tenant has a table with some objects and an extension; many of the extensions differ. A load of single
//! invocations is drawn among them, uniformly or with a skew, and compared with that of one tenant which has as
//! many objects. What makes frames dear is kept equal: every frame to the server carries the same number of
//! requests, each of another session as a rule. All sessions share one socket ([`crowd`]).
//!
//! Throughput is compared with as much outstanding as keeps the server busy. Latency is compared with two frames
//! outstanding: with more of them it is the queue's, and one tenant is so quick that the load thread, not the server,
//! has that queue.

mod crowd;

use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::machine;
use crate::measure::latencies;
use crate::operator::{Operator, OperatorSettings};
use crate::plot::rows::{self, Column, PlotRow};
use crate::plot::series::Scale;
use crate::plot::{self, Curve};
use crate::report::{self, Figure, Report, Rows, Spreads, heads, median, range, yes_or_no};
use crowd::{Crowd, CrowdSeen};

/// Frames outstanding where latencies are compared.
const LIGHT_FRAMES: usize = 2;

/// The least throughput, beside that of one tenant.
const THROUGHPUT_RATIO_MIN: f64 = 0.8;

/// The largest p99, beside that of one tenant.
const P99_RATIO_MAX: f64 = 2.0;

/// From here on the load thread is said to be the limit, in percent of its time.
const LOAD_BUSY_PERCENT: f64 = 95.0;

/// The options of `splinter-bench density`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct DensitySettings {
    /// Server and duration.
    #[command(flatten)]
    #[serde(flatten)]
    pub operator: OperatorSettings,
    /// Number of tenants, each with a table and an extension.
    #[arg(long, default_value_t = 1_000)]
    pub tenants: usize,
    /// Number of different extensions; each is compiled once per data directory of a server.
    #[arg(long, default_value_t = 500)]
    pub extensions: usize,
    /// Number of objects of a tenant.
    #[arg(long, default_value_t = 10)]
    pub objects: u64,
    /// Number of requests per frame.
    #[arg(long, default_value_t = 16)]
    pub frame_requests: usize,
    /// Total number of outstanding requests.
    #[arg(long, default_value_t = 256)]
    pub outstanding: usize,
    /// Skew of the skewed distribution among tenants: YCSB's theta.
    #[arg(long, default_value_t = 0.99)]
    pub zipf: f64,
    /// Number of sessions of the single tenant; default: the number of tenants, or the maximum of one tenant.
    #[arg(long)]
    pub baseline_sessions: Option<usize>,
    /// Only create the tenants and install the extensions, so that the server has compiled them.
    #[arg(long)]
    pub set_up_only: bool,
}

/// Sessions that a server lets one tenant have, with room for the bench's own.
const BASELINE_SESSIONS_MAX: usize = 1_000;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct DensityRow {
    case: &'static str,
    outstanding: usize,
    tenants: usize,
    sessions: usize,
    #[serde(flatten)]
    seen: CrowdSeen,
    server_resident_bytes: Option<u64>,
}

/// A load of one tenant, or of all.
struct DensityCase {
    name: &'static str,
    /// Beside it stand the others of the same loop.
    is_baseline: bool,
    /// Throughput is compared, and latency otherwise.
    is_busy: bool,
    theta: f64,
    outstanding: usize,
    latency_ns: Histogram<u64>,
}

/// A load with its rows.
type DensityRows = Rows<DensityCase, DensityRow>;

/// The figures of a case.
const FIGURES: &[Figure<DensityRow>] = &[
    range("requests_per_second", "requests/s", 0, |row| row.seen.figures.requests_per_second),
    median("latency_us_p50", "p50 us", 0, |row| row.seen.figures.latency_us_p50),
    median("latency_us_p99", "p99 us", 0, |row| row.seen.figures.latency_us_p99),
    median("requests_per_frame", "sent/frame", 1, |row| row.seen.requests_per_frame),
    median("replies_per_frame", "answers/frame", 1, |row| row.seen.replies_per_frame),
    median("load_busy_percent", "load busy %", 0, |row| row.seen.load_busy_percent),
];

/// What the runs of a case come to.
#[derive(Serialize)]
struct DensitySummary {
    case: &'static str,
    outstanding: usize,
    throughput_ratio: f64,
    p99_ratio: f64,
    load_is_the_limit: bool,
    server_resident_bytes: Option<u64>,
    within_targets: bool,
    #[serde(flatten)]
    figures: Spreads,
}

/// Measures, and prints the table.
pub fn run(settings: &DensitySettings) -> Result<(), String> {
    check(settings)?;
    let mut report = Report::open("density", settings.operator.out.as_deref())?;
    let mut operator = Operator::connect(&settings.operator)?;
    let resident = || settings.operator.server_process.and_then(machine::resident_bytes);
    let empty = resident();
    let mut one = crowd::one(&mut operator, settings)?;
    let mut many = crowd::many(&mut operator, settings)?;
    if settings.set_up_only {
        drop((one, many));
        return operator.clean_up();
    }
    settings.operator.cpu.map_or(Ok(()), machine::pin)?;
    let mut all = Vec::new();
    for outstanding in [settings.outstanding, LIGHT_FRAMES * settings.frame_requests] {
        let cases = DensityCase::all(settings, outstanding);
        all.push(report.rounds(settings.operator.runs, settings, cases, |case, number| {
            let crowd = if case.is_baseline { &mut one } else { &mut many };
            measure(crowd, case, settings, number, resident())
        })?);
    }
    show(&all, settings, empty, &mut report)?;
    drop((one, many));
    operator.clean_up()
}

impl DensityCase {
    fn all(settings: &DensitySettings, outstanding: usize) -> [Self; 3] {
        [("one tenant", 0.0), ("uniform", 0.0), ("zipf", settings.zipf)].map(|(name, theta)| Self {
            name,
            is_baseline: name == "one tenant",
            is_busy: outstanding == settings.outstanding,
            theta,
            outstanding,
            latency_ns: latencies(),
        })
    }
}

fn check(settings: &DensitySettings) -> Result<(), String> {
    settings.operator.check()?;
    if settings.tenants == 0 || settings.extensions == 0 || settings.objects == 0 {
        return Err("there are tenants, extensions and objects".into());
    }
    if settings.frame_requests == 0 || settings.outstanding < settings.frame_requests {
        return Err("what is outstanding fills a frame at least".into());
    }
    Ok(())
}

fn measure(
    crowd: &mut Crowd,
    case: &mut DensityCase,
    settings: &DensitySettings,
    number: usize,
    resident: Option<u64>,
) -> Result<DensityRow, String> {
    crowd.wake()?;
    let OperatorSettings { seed, warmup, seconds, .. } = settings.operator;
    let seen = crowd.load(
        (case.outstanding, settings.frame_requests),
        (case.theta, seed + number as u64),
        (warmup, seconds),
        &mut case.latency_ns,
    )?;
    Ok(DensityRow {
        case: case.name,
        outstanding: case.outstanding,
        tenants: crowd.tenants(),
        sessions: crowd.sessions(),
        seen,
        server_resident_bytes: resident,
    })
}

fn summary(Rows { case, rows }: &DensityRows, baseline: &DensityRows) -> DensitySummary {
    let (figures, beside) = (Spreads::of(FIGURES, rows), Spreads::of(FIGURES, &baseline.rows));
    let ratio = |name: &str, least: f64| figures.median(name) / beside.median(name).max(least);
    let throughput_ratio = ratio("requests_per_second", 1.0);
    let p99_ratio = ratio("latency_us_p99", 0.001);
    DensitySummary {
        case: case.name,
        outstanding: case.outstanding,
        throughput_ratio,
        p99_ratio,
        load_is_the_limit: figures.median("load_busy_percent") >= LOAD_BUSY_PERCENT,
        server_resident_bytes: rows.last().and_then(|row| row.server_resident_bytes),
        within_targets: match case.is_busy {
            true => throughput_ratio >= THROUGHPUT_RATIO_MIN,
            false => p99_ratio < P99_RATIO_MAX,
        },
        figures,
    }
}

fn mebibytes(bytes: Option<u64>) -> String {
    bytes.map_or("-".into(), |bytes| format!("{}", bytes >> 20))
}

fn show(
    loads: &[Vec<DensityRows>],
    settings: &DensitySettings,
    empty: Option<u64>,
    report: &mut Report,
) -> Result<(), String> {
    let (mut lines, mut bars, mut limited) = (Vec::new(), Vec::new(), false);
    for (all, baseline) in loads.iter().flat_map(|cases| cases.iter().map(move |case| (case, &cases[0]))) {
        let (summary, Rows { case, rows }) = (summary(all, baseline), all);
        report.line(None, settings, &summary)?;
        limited |= summary.load_is_the_limit;
        if case.is_busy {
            let beside = Spreads::of(FIGURES, &baseline.rows).median("requests_per_second");
            bars.push(PlotRow {
                name: case.name.to_string(),
                group: bars.len(),
                figures: Ok(vec![summary.figures.get("requests_per_second")]),
                target: (!case.is_baseline).then_some(beside * THROUGHPUT_RATIO_MIN),
            });
        }
        let errors: u64 = rows.iter().flat_map(|row| row.seen.figures.errors.values()).sum();
        let mut cells = vec![
            format!("{}{}", case.name, if summary.load_is_the_limit { " *" } else { "" }),
            case.outstanding.to_string(),
            rows.last().map_or(0, |row| row.tenants).to_string(),
        ];
        cells.extend(summary.figures.cells());
        cells.extend([summary.throughput_ratio, summary.p99_ratio].map(|ratio| format!("{ratio:.2}")));
        cells.extend([mebibytes(summary.server_resident_bytes), errors.to_string()]);
        cells.push(yes_or_no(summary.within_targets));
        lines.push(cells);
    }
    print(settings, empty, &lines, limited);
    let (Some(path), Some(light)) = (report.plot("density.svg"), loads.last()) else { return Ok(()) };
    let title = format!("{} tenants beside one; the line is the target", settings.tenants);
    rows::rows(&path, &title, &[Column { name: "invocations a second", scale: Scale::Linear }], &bars)?;
    let Some(path) = report.plot("density-latency.svg") else { return Ok(()) };
    let cases = light.iter().map(|all| &all.case);
    let curves: Vec<Curve<'_>> =
        cases.map(|case| Curve { name: case.name, latency_ns: &case.latency_ns }).collect();
    let title = format!("Latency with {} outstanding", light[0].case.outstanding);
    plot::percentiles(&path, &title, &curves, &[])
}

fn print(settings: &DensitySettings, empty: Option<u64>, lines: &[Vec<String>], limited: bool) {
    let title = format!(
        "{} tenants with {} extensions ({}) beside one tenant; targets: throughput {THROUGHPUT_RATIO_MIN}, and p99 \
         below {P99_RATIO_MAX} with two frames outstanding; the empty server has {} MiB",
        settings.tenants,
        settings.extensions.min(settings.tenants),
        settings.operator.sandbox,
        mebibytes(empty),
    );
    let heads = format!(
        "load|outstanding|tenants|{}|throughput ratio|p99 ratio|server MiB|errors|target",
        heads(FIGURES)
    );
    report::print(&title, &heads, lines);
    if limited {
        println!("* the load thread had no time left: the server was not the limit of this row");
    }
}
