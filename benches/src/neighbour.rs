//! A victim beside an attacker: what the functions of one tenant do to the latency of another.
//!
//! The victim reads in an open loop, and its latency counts from when a request was due. It is measured alone,
//! then beside an attacker that runs functions back to back. One thread drives both, on sockets of their own, so
//! that server and load have a core each. Beside the figures of all requests stand those of the requests that were
//! under way while neither the thread nor the server's worker was kept from running, as [`crate::absences`] has it: the
//! difference is the machine's. [`loops`] measures how soon a loop ends.

mod loops;
mod scene;

use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::fleet::Fleet;
use crate::loading;
use crate::machine;
use crate::measure::latencies;
use crate::operator::{Operator, OperatorSettings};
use crate::options::{Access, DataSettings};
use crate::plot::{self, Curve};
use crate::report::{self, Figure, Report, Rows, Spreads, heads, hidden, median, range, yes_or_no};
use crate::spin;
use crate::workload::Workload;
use scene::{AttackCase, NeighbourRow};

/// What the victim's p99 and p99.9 may be, in microseconds.
const TARGETS_US: (f64, f64) = (200.0, 500.0);

/// What the columns of disturbance are.
const NOTE: &str = "disturbed: gets under way while something else than the server had the core of the load thread, or, \
                    with --server-process, of the server's worker, for 50 us and more";

/// The limit of a tenant that ends its loops.
const BUDGET: &str = "invocation_cpu_us";

/// Bytes of the victim's keys and values.
const OBJECT_BYTES: (usize, usize) = (30, 100);

/// The options of `splinter-bench neighbour`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct NeighbourSettings {
    /// Server and duration.
    #[command(flatten)]
    #[serde(flatten)]
    pub operator: OperatorSettings,
    /// Gets per second of the victim.
    #[arg(long, default_value_t = 10_000.0)]
    pub rate: f64,
    /// Number of the victim's sessions.
    #[arg(long, default_value_t = 16)]
    pub sessions: usize,
    /// Give each session of the victim a socket; by default they share one.
    #[arg(long)]
    pub sockets: bool,
    /// Number of the victim's objects.
    #[arg(long, default_value_t = 10_000)]
    pub keys: u64,
    /// Number of infinite loops to time, each from its start to the reply; 0 for none.
    #[arg(long, default_value_t = 300)]
    pub loops: usize,
    /// Processor time limit of these loops, in microseconds.
    #[arg(long, default_value_t = 1_000)]
    pub budget_us: u64,
}

/// The tenants of a run.
struct NeighbourStage {
    victim: Access,
    table: u32,
    attacker: Access,
    attackers_table: u32,
    extension: u32,
    rounds_per_us: f64,
}

/// A case with the latencies of all runs, and its rows.
type NeighbourRows = Rows<(AttackCase, Histogram<u64>), NeighbourRow>;

/// Measures, and prints the tables.
pub fn run(settings: &NeighbourSettings) -> Result<(), String> {
    settings.operator.check()?;
    settings.operator.cpu.map_or(Ok(()), machine::pin)?;
    let mut report = Report::open("neighbour", settings.operator.out.as_deref())?;
    let mut operator = Operator::connect(&settings.operator)?;
    let stage = set_up(&mut operator, settings)?;
    eprintln!("the server does {:.0} rounds in a microsecond", stage.rounds_per_us);
    let cases = AttackCase::ALL.iter().map(|&case| (case, latencies()));
    let all = report.rounds(settings.operator.runs, settings, cases, |(case, latency_ns), number| {
        operator.limit(&stage.attacker.tenant, BUDGET, case.budget_us())?;
        scene::play(&stage, settings, *case, number, latency_ns)
    })?;
    show(&all, settings, &mut report)?;
    if settings.loops > 0 {
        operator.limit(&stage.attacker.tenant, BUDGET, settings.budget_us)?;
        loops::run(&stage, settings, &mut report)?;
    }
    operator.clean_up()
}

fn set_up(operator: &mut Operator, settings: &NeighbourSettings) -> Result<NeighbourStage, String> {
    let mut victim = operator.tenant("bench-victim")?;
    let table = victim.table()?;
    let mut fleet = Fleet::open(&victim.access, 1, false)?;
    loading::load(&mut fleet, table, Workload::Get, &data(settings))?;
    let mut attacker = operator.tenant("bench-attacker")?;
    let attackers_table = attacker.table()?;
    let extension = attacker.install("spin", &spin::source(0))?;
    let rounds_per_us = spin::rounds_per_us(&attacker.access, extension, attackers_table)?;
    Ok(NeighbourStage {
        victim: victim.access,
        table,
        attacker: attacker.access,
        attackers_table,
        extension,
        rounds_per_us,
    })
}

fn data(settings: &NeighbourSettings) -> DataSettings {
    DataSettings::plain(settings.keys, OBJECT_BYTES.0, OBJECT_BYTES.1)
}

/// The figures of a case; the last are those of the gets that were not disturbed.
const FIGURES: &[Figure<NeighbourRow>] = &[
    median("latency_us_p50", "p50 us", 1, |row| row.victim.latency_us_p50),
    range("latency_us_p99", "p99 us", 1, |row| row.victim.latency_us_p99),
    range("latency_us_p999", "p99.9 us", 1, |row| row.victim.latency_us_p999),
    median("latency_us_max", "max us", 0, |row| row.victim.latency_us_max),
    median("gets_per_second", "gets/s", 0, |row| row.victim.requests_per_second),
    hidden("attacker_per_second", |row| row.attacker.as_ref().map_or(0.0, |it| it.requests_per_second)),
    hidden("load_away_us_max", |row| row.load_away_us_max),
    hidden("worker_delayed_percent", |row| row.worker_delayed_percent.unwrap_or(0.0)),
    median("left_out_percent", "disturbed %", 1, |row| row.undisturbed.left_out_percent),
    median("undisturbed_us_p99", "p99 of the rest", 1, |row| row.undisturbed.undisturbed_us_p99),
    median("undisturbed_us_p999", "p99.9 of it", 1, |row| row.undisturbed.undisturbed_us_p999),
];

/// What the runs of a case come to.
#[derive(Serialize)]
struct NeighbourSummary {
    case: &'static str,
    within_targets: bool,
    undisturbed_within_targets: bool,
    #[serde(flatten)]
    figures: Spreads,
}

impl NeighbourSummary {
    fn of(Rows { case: (case, _), rows }: &NeighbourRows) -> Self {
        let figures = Spreads::of(FIGURES, rows);
        let is_within = |p99: &str, p999: &str| {
            figures.median(p99) <= TARGETS_US.0 && figures.median(p999) <= TARGETS_US.1
        };
        Self {
            case: case.name(),
            within_targets: is_within("latency_us_p99", "latency_us_p999"),
            undisturbed_within_targets: is_within("undisturbed_us_p99", "undisturbed_us_p999"),
            figures,
        }
    }
}

fn show(all: &[NeighbourRows], settings: &NeighbourSettings, report: &mut Report) -> Result<(), String> {
    let mut lines = Vec::new();
    for rows in all {
        let summary = NeighbourSummary::of(rows);
        report.line(None, settings, &summary)?;
        let mut cells = vec![summary.case.to_string()];
        cells.extend(summary.figures.cells());
        cells.push(scene::ends(rows.case.0, &rows.rows));
        cells.extend([summary.within_targets, summary.undisturbed_within_targets].map(yes_or_no));
        lines.push(cells);
    }
    let title = format!(
        "A victim's gets ({} a second, open loop) beside another tenant's functions ({}); target p99 {} us, p99.9 {} us",
        settings.rate, settings.operator.sandbox, TARGETS_US.0, TARGETS_US.1
    );
    let heads = format!("attacker|{}|attacker's ends a second|target|of the rest", heads(FIGURES));
    report::print(&title, &heads, &lines);
    println!("\n{NOTE}");
    if let Some(path) = report.plot("neighbour.svg") {
        let cases = all.iter().map(|rows| &rows.case);
        let curves: Vec<Curve<'_>> =
            cases.map(|(case, latency_ns)| Curve { name: case.name(), latency_ns }).collect();
        plot::percentiles(
            &path,
            "Latency of a victim's gets beside an attacker's functions",
            &curves,
            &[(0.99, TARGETS_US.0), (0.999, TARGETS_US.1)],
        )?;
    }
    Ok(())
}
