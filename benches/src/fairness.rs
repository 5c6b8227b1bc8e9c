//! Tenants that want more than a core has, and what each gets of it.
//!
//! Every tenant keeps so many functions of a known cost outstanding that the worker is never done, and has a
//! weight. What it gets is measured twice: by the server's own account of the time that its functions took, and by
//! what those that ended would have cost alone. When functions of one tenant are longer than those of another,
//! requests and shares part: only the shares follow the weights; and what parking and resuming costs is time of
//! its tenant, but no work. One thread drives all, each tenant on a socket of its own.

use std::time::Instant;

use clap::Args;
use client::Client;
use serde::Serialize;

use crate::drive::{Drive, ns_since, take_turns};
use crate::fleet::Fleet;
use crate::machine;
use crate::measure::Figures;
use crate::operator::{Operator, OperatorSettings};
use crate::options::Access;
use crate::plot::rows::{self, Column, PlotRow};
use crate::plot::series::Scale;
use crate::report::{self, Figure, Report, Rows, Spread, Spreads, heads, median, range, yes_or_no};
use crate::spin::{self, Call};

/// How far from its weight a share may be.
const TOLERANCE: f64 = 0.10;

/// Sessions of a tenant.
const SESSIONS: usize = 4;

/// Requests that all tenants together have outstanding: a few milliseconds of work, so that the worker does not
/// wait for the load thread, and fewer than a server lets wait after a slice.
const OUTSTANDING: usize = 240;

/// What a tenant's weight is multiplied with for the server, whose default is 100.
const WEIGHT_UNIT: u64 = 100;

/// The options of `splinter-bench fairness`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct FairnessSettings {
    /// Server and duration.
    #[command(flatten)]
    #[serde(flatten)]
    pub operator: OperatorSettings,
    /// Weights of the tenants.
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    pub weights: Vec<u64>,
    /// Cost of a function, in microseconds.
    #[arg(long, default_value_t = 20)]
    pub cost_us: u64,
    /// Cost of the last tenant's functions in the second case, in microseconds.
    #[arg(long, default_value_t = 200)]
    pub long_cost_us: u64,
}

/// The server's counter of the time of a tenant's functions, in microseconds.
const COUNTER: &str = "invocation_us";

/// A tenant with its extension.
struct Party {
    access: Access,
    client: Client,
    weight: u64,
    table: u32,
    extension: u32,
}

/// What a tenant got in one measurement.
#[derive(Clone, Debug, Serialize)]
struct Share {
    weight: u64,
    cost_us: u64,
    target_percent: f64,
    /// Of the time that all tenants' functions took, by the server's counters.
    percent: f64,
    /// Of the work that all tenants' functions did.
    work_percent: f64,
    figures: Figures,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct FairnessRow {
    case: &'static str,
    shares: Vec<Share>,
    /// What of the core's time the tenants' functions took, by the server's counters.
    used_percent: f64,
    /// What of the core's time those that ended would have taken alone.
    work_percent: f64,
    /// How long the load thread had something to do.
    load_busy_percent: f64,
}

/// The figures of a tenant.
const FIGURES: &[Figure<Share>] = &[
    median("per_second", "ended/s", 0, |share| share.figures.requests_per_second),
    median("latency_us_p50", "p50 us", 0, |share| share.figures.latency_us_p50),
    median("latency_us_p99", "p99 us", 0, |share| share.figures.latency_us_p99),
    range("percent", "time %", 1, |share| share.percent),
    median("work_percent", "work %", 1, |share| share.work_percent),
];

/// A tenant's share over all runs of a case.
#[derive(Serialize)]
struct FairnessSummary {
    case: &'static str,
    tenant: usize,
    weight: u64,
    cost_us: u64,
    target_percent: f64,
    within_target: bool,
    #[serde(flatten)]
    figures: Spreads,
}

/// Names of the cases.
const CASES: [&str; 2] = ["equal costs", "the last tenant's are longer"];

/// Measures, and prints the table.
pub fn run(settings: &FairnessSettings) -> Result<(), String> {
    settings.operator.check()?;
    if settings.weights.is_empty() || settings.weights.contains(&0) || settings.cost_us == 0 {
        return Err("weights and costs are positive numbers".into());
    }
    settings.operator.cpu.map_or(Ok(()), machine::pin)?;
    let mut report = Report::open("fairness", settings.operator.out.as_deref())?;
    let mut operator = Operator::connect(&settings.operator)?;
    let mut parties = set_up(&mut operator, &settings.weights)?;
    let first = &parties[0];
    let rounds_per_us = spin::rounds_per_us(&first.access, first.extension, first.table)?;
    eprintln!("the server does {rounds_per_us:.0} rounds in a microsecond");
    let rows = report.rounds(settings.operator.runs, settings, 0..CASES.len(), |case, _| {
        measure(&mut parties, settings, *case, rounds_per_us)
    })?;
    show(&rows, settings, &mut report)?;
    operator.clean_up()
}

fn set_up(operator: &mut Operator, weights: &[u64]) -> Result<Vec<Party>, String> {
    let one = |(index, &weight): (usize, &u64)| {
        let mut tenant = operator.tenant(&format!("bench-share-{index}"))?;
        operator.limit(&tenant.access.tenant, "weight", weight * WEIGHT_UNIT)?;
        let table = tenant.table()?;
        let extension = tenant.install("spin", &spin::source(0))?;
        Ok(Party { access: tenant.access, client: tenant.client, weight, table, extension })
    };
    weights.iter().enumerate().map(one).collect()
}

/// What the server has counted for each, in microseconds.
fn counted(parties: &mut [Party]) -> Result<Vec<u64>, String> {
    let of = |party: &mut Party| {
        let statistics = party.client.statistics().map_err(|error| format!("no counters: {error}"))?;
        let found = statistics.iter().find(|statistic| statistic.name == COUNTER);
        found.map(|statistic| statistic.value).ok_or_else(|| format!("the server has no counter {COUNTER}"))
    };
    parties.iter_mut().map(of).collect()
}

fn measure(
    parties: &mut [Party],
    settings: &FairnessSettings,
    case: usize,
    rounds_per_us: f64,
) -> Result<FairnessRow, String> {
    let open = |party: &Party| Fleet::open(&party.access, SESSIONS, false);
    let mut fleets = parties.iter().map(open).collect::<Result<Vec<_>, String>>()?;
    let count = parties.len();
    let cost_us = |index: usize| {
        if case == 1 && index + 1 == count { settings.long_cost_us } else { settings.cost_us }
    };
    let outstanding = (OUTSTANDING / SESSIONS / parties.len()).max(1);
    let start = Instant::now();
    let mut drives: Vec<Drive<'_, Call>> = fleets
        .iter_mut()
        .zip(parties.iter())
        .enumerate()
        .map(|(index, (fleet, party))| {
            let rounds = (cost_us(index) as f64 * rounds_per_us) as u64;
            Drive::new(fleet, Call::spin(party.extension, party.table, rounds), outstanding, start)
        })
        .collect();
    let until = |seconds: f64, drives: &mut [Drive<'_, Call>]| {
        take_turns(start, (seconds * 1e9) as u64, |_| {
            drives.iter_mut().map(|drive| drive.turn(ns_since(start))).sum()
        })
    };
    until(settings.operator.warmup, &mut drives)?;
    drives.iter_mut().for_each(|drive| drive.measure.clear());
    let (from, before) = (start.elapsed().as_secs_f64(), counted(parties)?);
    let busy = until(from + settings.operator.seconds, &mut drives)? as f64 / 1e9;
    let (seconds, after) = (start.elapsed().as_secs_f64() - from, counted(parties)?);
    let figures: Vec<Figures> = drives.iter().map(|drive| drive.measure.figures(seconds)).collect();
    for drive in &mut drives {
        drive.drain()?;
    }
    let used: Vec<f64> = after.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
    let work: Vec<f64> = figures
        .iter()
        .enumerate()
        .map(|(index, figures)| figures.requests as f64 * cost_us(index) as f64)
        .collect();
    let weights: u64 = settings.weights.iter().sum();
    let percent = |of: &[f64], index: usize| 100.0 * of[index] / of.iter().sum::<f64>().max(1.0);
    let share = |(index, figures): (usize, Figures)| Share {
        weight: parties[index].weight,
        cost_us: cost_us(index),
        target_percent: 100.0 * parties[index].weight as f64 / weights as f64,
        percent: percent(&used, index),
        work_percent: percent(&work, index),
        figures,
    };
    Ok(FairnessRow {
        case: CASES[case],
        shares: figures.into_iter().enumerate().map(share).collect(),
        used_percent: used.iter().sum::<f64>() / seconds / 1e4,
        work_percent: work.iter().sum::<f64>() / seconds / 1e4,
        load_busy_percent: 100.0 * busy / seconds,
    })
}

fn summaries(rows: &[FairnessRow]) -> Vec<FairnessSummary> {
    let Some(first) = rows.first() else { return Vec::new() };
    let of = |(tenant, share): (usize, &Share)| {
        let figures = Spreads::of(FIGURES, rows.iter().map(|row| &row.shares[tenant]));
        FairnessSummary {
            case: first.case,
            tenant,
            weight: share.weight,
            cost_us: share.cost_us,
            target_percent: share.target_percent,
            within_target: (figures.median("percent") / share.target_percent - 1.0).abs() <= TOLERANCE,
            figures,
        }
    };
    first.shares.iter().enumerate().map(of).collect()
}

fn show(
    all: &[Rows<usize, FairnessRow>],
    settings: &FairnessSettings,
    report: &mut Report,
) -> Result<(), String> {
    let (mut lines, mut bars) = (Vec::new(), Vec::new());
    for Rows { rows, .. } in all {
        let median = |figure: fn(&FairnessRow) -> f64| Spread::of(rows.iter().map(figure)).median;
        let (used, work) = (median(|row| row.used_percent), median(|row| row.work_percent));
        let busy = median(|row| row.load_busy_percent);
        let errors: u64 =
            rows.iter().flat_map(|row| &row.shares).flat_map(|share| share.figures.errors.values()).sum();
        for summary in summaries(rows) {
            report.line(None, settings, &summary)?;
            bars.push(PlotRow {
                name: format!("weight {}, {} us each", summary.weight, summary.cost_us),
                group: summary.tenant,
                figures: Ok(vec![summary.figures.get("percent")]),
                target: Some(summary.target_percent),
            });
            let mut cells = vec![
                if summary.tenant == 0 { summary.case.to_string() } else { String::new() },
                summary.weight.to_string(),
                summary.cost_us.to_string(),
                format!("{:.1}", summary.target_percent),
            ];
            cells.extend(summary.figures.cells());
            cells.push(yes_or_no(summary.within_target));
            cells.extend([used, work, busy].map(|percent| format!("{percent:.0}")));
            cells.push(errors.to_string());
            lines.push(cells);
        }
    }
    let heads = format!(
        "|weight|cost us|target %|{}|within 10 %|core used %|core's work %|load busy %|errors",
        heads(FIGURES)
    );
    let sandbox = settings.operator.sandbox;
    let title = format!("Shares of a core between tenants that want all of it ({sandbox})");
    report::print(&title, &heads, &lines);
    let Some(path) = report.plot("fairness.svg") else { return Ok(()) };
    let columns = [Column { name: "percent of the time of all tenants", scale: Scale::Linear }];
    rows::rows(&path, "Share of the core; the line is what the weight asks for", &columns, &bars)
}
