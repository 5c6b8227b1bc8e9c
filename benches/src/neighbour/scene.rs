//! One measurement of a victim beside an attacker.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{NeighbourSettings, NeighbourStage, data};
use crate::absences::{Absences, SHORTEST_NS};
use crate::drive::{Drive, ns_since, take_turns};
use crate::fleet::Fleet;
use crate::machine::ServerThreads;
use crate::measure::{Figures, Undisturbed};
use crate::spin::Call;
use crate::workload::{Generator, Target, Workload};

/// Sessions of the attacker's storm, and requests that each has outstanding.
const STORM: (usize, usize) = (16, 16);

/// How long the victim's last requests are waited for, in seconds.
const DRAIN_SECONDS: f64 = 5.0;

/// What the attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttackCase {
    /// There is none.
    Alone,
    /// Functions of so many microseconds, one after another.
    Functions(u64),
    /// Functions that never end, one after another.
    Loops,
    /// Functions of so many microseconds, as many as the server takes.
    Storm(u64),
}

/// What one measurement showed.
#[derive(Debug, Serialize)]
pub(super) struct NeighbourRow {
    pub(super) case: &'static str,
    pub(super) victim: Figures,
    pub(super) attacker: Option<Figures>,
    /// The longest time between two looks of the load thread at the victim's answers.
    pub(super) load_away_us_max: f64,
    /// Time for which the server's worker was ready and had no core.
    pub(super) worker_delayed_percent: Option<f64>,
    /// The victim's requests that were not under way when the load thread or the worker was kept from running.
    pub(super) undisturbed: Undisturbed,
}

impl AttackCase {
    /// All, in the order of the table.
    pub(super) const ALL: &'static [AttackCase] = &[
        AttackCase::Alone,
        AttackCase::Functions(1_000),
        AttackCase::Functions(10_000),
        AttackCase::Functions(100_000),
        AttackCase::Loops,
        AttackCase::Storm(2),
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            AttackCase::Alone => "none",
            AttackCase::Functions(1_000) => "1 ms functions",
            AttackCase::Functions(10_000) => "10 ms functions",
            AttackCase::Functions(_) => "100 ms functions",
            AttackCase::Loops => "infinite loops",
            AttackCase::Storm(_) => "storm of 2 us functions",
        }
    }

    /// What the attacker's functions may use of the processor: the default, and enough for the longest to end well.
    pub(super) const fn budget_us(self) -> u64 {
        match self {
            AttackCase::Functions(us) if us >= 100_000 => 2 * us,
            _ => 100_000,
        }
    }

    /// Sessions and outstanding requests of each.
    fn load(self) -> (usize, usize) {
        match self {
            AttackCase::Storm(_) => STORM,
            _ => (1, 1),
        }
    }

    fn call(self, stage: &NeighbourStage) -> Option<Call> {
        let spin = |us: u64| {
            let rounds = (us as f64 * stage.rounds_per_us) as u64;
            Call::spin(stage.extension, stage.attackers_table, rounds)
        };
        match self {
            AttackCase::Alone => None,
            AttackCase::Functions(us) | AttackCase::Storm(us) => Some(spin(us)),
            AttackCase::Loops => Some(Call::endless(stage.extension, stage.attackers_table)),
        }
    }
}

/// Measures one case once; the victim's latencies are added to `latency_ns`.
pub(super) fn play(
    stage: &NeighbourStage,
    settings: &NeighbourSettings,
    case: AttackCase,
    number: usize,
    latency_ns: &mut Histogram<u64>,
) -> Result<NeighbourRow, String> {
    let mut victims = Fleet::open(&stage.victim, settings.sessions, settings.sockets)?;
    let (sessions, outstanding) = case.load();
    let mut attackers = Fleet::open(&stage.attacker, sessions, false)?;
    let seed = settings.operator.seed + number as u64;
    let target = Target { table: stage.table, extension: 0, records: 1, seed };
    let start = Instant::now();
    let generator = Generator::new(Workload::Get, target, data(settings).dataset()?, 0.0)?;
    let mut victim = Drive::new(&mut victims, generator, 64, start);
    victim.open_loop(settings.rate, seed)?;
    let mut attacker = case.call(stage).map(|call| Drive::new(&mut attackers, call, outstanding, start));
    let mut away_ns_max = 0_u64;
    let process = settings.operator.server_process;
    let mut absences = Absences::new(process, SHORTEST_NS, ns_since(start));
    let mut until =
        |seconds: f64, victim: &mut Drive<'_, Generator>, attacker: &mut Option<Drive<'_, Call>>| {
            let mut seen_ns = ns_since(start);
            away_ns_max = 0;
            take_turns(start, (seconds * 1e9) as u64, |now_ns| {
                away_ns_max = away_ns_max.max(now_ns - seen_ns);
                seen_ns = now_ns;
                let mut answers = victim.turn(now_ns)?;
                if let Some(attacker) = attacker {
                    answers += attacker.turn(ns_since(start))?;
                }
                absences.look(ns_since(start));
                Ok(answers)
            })
        };
    until(settings.operator.warmup, &mut victim, &mut attacker)?;
    victim.measure.clear();
    victim.times = Some(Vec::with_capacity((2.0 * settings.rate * settings.operator.seconds) as usize));
    attacker.iter_mut().for_each(|attacker| attacker.measure.clear());
    let threads = process.and_then(ServerThreads::of);
    let delay = || threads.as_ref().map(|threads| threads.workers().delayed_ns);
    let (from_ns, delay_before) = (ns_since(start), delay());
    until(from_ns as f64 / 1e9 + settings.operator.seconds, &mut victim, &mut attacker)?;
    let seconds = (ns_since(start) - from_ns) as f64 / 1e9;
    let delayed = delay_before.zip(delay()).map(|(before, after)| after.saturating_sub(before));
    let attackers_figures = attacker.as_ref().map(|attacker| attacker.measure.figures(seconds));
    finish(&mut victim, &mut attacker)?;
    latency_ns.add(victim.measure.latency_ns()).map_err(|error| format!("latencies: {error:?}"))?;
    Ok(NeighbourRow {
        case: case.name(),
        victim: victim.measure.figures(seconds),
        attacker: attackers_figures,
        load_away_us_max: away_ns_max as f64 / 1000.0,
        worker_delayed_percent: delayed.map(|ns| ns as f64 / seconds / 1e7),
        undisturbed: absences.without(victim.times.as_deref().unwrap_or_default()),
    })
}

/// Waits for the victim's last answers while the attacker goes on, then for the attacker's.
fn finish(victim: &mut Drive<'_, Generator>, attacker: &mut Option<Drive<'_, Call>>) -> Result<(), String> {
    let began = Instant::now();
    while victim.under_way() > 0 && began.elapsed().as_secs_f64() < DRAIN_SECONDS {
        victim.poll()?;
        if let Some(attacker) = attacker {
            attacker.turn(0)?;
        }
    }
    victim.drain()?;
    attacker.as_mut().map_or(Ok(()), Drive::drain)
}

/// How the attacker's functions ended, a second: well and by kind of error, of all runs.
pub(super) fn ends(case: AttackCase, rows: &[NeighbourRow]) -> String {
    if case == AttackCase::Alone {
        return "-".into();
    }
    let figures: Vec<&Figures> = rows.iter().filter_map(|row| row.attacker.as_ref()).collect();
    let seconds: f64 = figures.iter().map(|figures| figures.seconds).sum();
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    ends.insert("Ok", figures.iter().map(|figures| figures.requests).sum());
    for (error, count) in figures.iter().flat_map(|figures| &figures.errors) {
        *ends.entry(error).or_default() += count;
    }
    let mut texts: Vec<String> = ends
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(kind, count)| rate(kind, *count, seconds))
        .collect();
    texts.reverse();
    if texts.is_empty() { "none".into() } else { texts.join(", ") }
}

fn rate(kind: &str, count: u64, seconds: f64) -> String {
    let rate = count as f64 / seconds;
    if rate < 100.0 { format!("{rate:.1} {kind}") } else { format!("{rate:.0} {kind}") }
}
