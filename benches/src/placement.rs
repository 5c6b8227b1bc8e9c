//! One function at the server, at the client, and where it is cheaper: calls a second, for several amounts of computation and numbers of
//! reads.
//!
//! The function `chase` of `ext/spin` reads records one after the other, each of which names the next, and then computes. At the
//! server it is one request; at the client each record is a get of its own, and the computation takes nothing of the server. The
//! server is pinned to one core, the load to another, and both run the function as a WebAssembly module. Kulkarni and others, "Adaptive
//! Placement for In-memory Storage Functions" (ATC'20), figure 5, has the same sweep.

use std::time::{Duration, Instant};

use clap::Args;
use client::local::Finished;
use client::{Local, Module, ModuleRuntime, PlacedFunction, Request, RunAt};
use fastrand::Rng;
use serde::Serialize;

use crate::machine;
use crate::measure::{Figures, Measure};
use crate::operator;
use crate::options::{Access, PairSettings, check_runs};
use crate::process::Folder;
use crate::report::{self, Figure, Report, Rows, Spreads, heads, median, range};
use crate::server::{Launch, OurServer};

/// Functions under way.
const OUTSTANDING: usize = 64;
/// Cycles of a round of the computation: three shifts, each followed by an exclusive or, one after the other.
const CYCLES_PER_ROUND: u64 = 6;
/// Objects that are written together while the table is filled.
const OBJECTS_AT_ONCE: u64 = 4_096;

/// The options of `splinter-bench placement`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct PlacementSettings {
    /// Number of objects.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Cycles that the function computes after its reads.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 500, 1_000, 2_500, 5_000, 10_000])]
    pub cycles: Vec<u64>,
    /// Records that the function reads one after the other.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4])]
    pub gets: Vec<u32>,
    /// Cores, runs and the server.
    #[command(flatten)]
    #[serde(flatten)]
    pub pair: PairSettings,
}

/// Where the function runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum RunsAt {
    Server,
    Client,
    Adaptive,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, Serialize)]
struct PlacementCase {
    gets: u32,
    cycles: u64,
    place: RunsAt,
}

/// What one case did in one run.
#[derive(Debug, Serialize)]
struct PlacementRow {
    #[serde(flatten)]
    case: PlacementCase,
    #[serde(flatten)]
    figures: Figures,
    /// Percentage of the calls that ran at the client.
    here_percent: f64,
}

const FIGURES: &[Figure<PlacementRow>] = &[
    range("per_second", "a second", 0, |row| row.figures.requests_per_second),
    median("us_p50", "p50 us", 1, |row| row.figures.latency_us_p50),
    median("us_p99", "p99 us", 1, |row| row.figures.latency_us_p99),
    median("here_percent", "at the client %", 0, |row| row.here_percent),
];

/// Where the load goes.
struct PlacementLoad<'l> {
    access: &'l Access,
    table: u32,
    module: &'l Module,
    settings: &'l PlacementSettings,
    seed: u64,
}

/// Measures, and prints the table.
pub fn run(settings: &PlacementSettings) -> Result<(), String> {
    check_runs(settings.pair.runs, settings.pair.seconds)?;
    let mut report = Report::open("placement", settings.pair.out.as_deref())?;
    machine::pin(settings.pair.server_cpu)?;
    let folder = Folder::make("placement")?;
    let memory_mib = (settings.keys * (settings.value_bytes + 200) as u64 * 2) >> 20;
    let launch = Launch::new("server", settings.pair.server.as_deref(), memory_mib.max(256));
    let server = OurServer::start(&folder, &launch)?;
    machine::pin(settings.pair.cpu)?;
    let mut access = server.tenant("bench", "objects")?;
    access.durability = settings.pair.durability;
    let (table, module) = prepare(&access, settings)?;
    let cases = settings.gets.iter().flat_map(|&gets| {
        settings.cycles.iter().flat_map(move |&cycles| {
            [RunsAt::Server, RunsAt::Client, RunsAt::Adaptive].map(|place| PlacementCase {
                gets,
                cycles,
                place,
            })
        })
    });
    let rows = report.rounds(settings.pair.runs, settings, cases, |case, run| {
        let seed = settings.pair.seed + run as u64;
        let load = PlacementLoad { access: &access, table, module: &module, settings, seed };
        let (figures, here_percent) = match case.place {
            RunsAt::Server => (load.invoke(case)?, 0.0),
            RunsAt::Client => load.place(case, RunAt::Client)?,
            RunsAt::Adaptive => load.place(case, RunAt::Adaptive)?,
        };
        if !figures.errors.is_empty() {
            return Err(format!("{case:?} went wrong: {:?}", figures.errors));
        }
        Ok(PlacementRow { case: *case, figures, here_percent })
    })?;
    show(&rows, settings, &mut report)
}

/// Fills the table, installs the function, and loads its module.
fn prepare(access: &Access, settings: &PlacementSettings) -> Result<(u32, Module), String> {
    let said = |error: client::Error| error.to_string();
    let mut client = access.connect()?;
    let table = access.table_id(&mut client)?;
    let mut random = Rng::with_seed(settings.pair.seed);
    let mut value = vec![0; settings.value_bytes.max(8)];
    for first in (0..settings.keys).step_by(OBJECTS_AT_ONCE as usize) {
        let keys = first..(first + OBJECTS_AT_ONCE).min(settings.keys);
        let objects: Vec<([u8; 8], Vec<u8>)> = keys
            .map(|key| {
                value[..8].copy_from_slice(&random.u64(0..settings.keys).to_le_bytes());
                (key.to_le_bytes(), value.clone())
            })
            .collect();
        let objects: Vec<(&[u8], &[u8])> =
            objects.iter().map(|(key, value)| (&key[..], &value[..])).collect();
        for written in client.multi_put(table, &objects).map_err(said)? {
            written.map_err(said)?;
        }
    }
    operator::install(&mut client, "spin")?;
    let runtime = ModuleRuntime::start().map_err(|error| error.to_string())?;
    let module = client.extension_module("spin", 0).map_err(said)?;
    Ok((table, runtime.load(&module).map_err(|error| error.to_string())?))
}

impl PlacementLoad<'_> {
    /// When measuring begins, and when it ends.
    fn window(&self) -> (Instant, Instant) {
        let seconds = Duration::from_secs_f64(self.settings.pair.seconds);
        let begin = Instant::now() + seconds / 5;
        (begin, begin + seconds)
    }

    fn arguments(case: &PlacementCase) -> Vec<u8> {
        let rounds = case.cycles / CYCLES_PER_ROUND;
        [&case.gets.to_le_bytes()[..], &rounds.to_le_bytes()].concat()
    }

    fn invoke(&self, case: &PlacementCase) -> Result<Figures, String> {
        let mut client = self.access.connect()?;
        let function = client.resolve("spin.chase").map_err(|error| error.to_string())?;
        let mut session = client.into_session();
        let (arguments, mut random) = (Self::arguments(case), Rng::with_seed(self.seed));
        let (mut measure, (begin, end)) = (Measure::default(), self.window());
        let mut begun = [Instant::now(); OUTSTANDING];
        let mut ready: Vec<usize> = (0..OUTSTANDING).collect();
        let mut ended: Vec<(usize, Option<String>)> = Vec::new();
        loop {
            for place in ready.drain(..) {
                begun[place] = Instant::now();
                let key = random.u64(0..self.settings.keys).to_le_bytes();
                let request: Request<'_> = function.request(self.table, &key, &arguments);
                session.submit(&request, place as u64).map_err(|error| error.to_string())?;
            }
            session
                .poll(&mut |completion| {
                    let failure = client::Error::check(&completion).err();
                    ended.push((completion.tag as usize, failure.map(|error| error.to_string())));
                })
                .map_err(|error| error.to_string())?;
            let now = Instant::now();
            for (place, failure) in ended.drain(..) {
                note(&mut measure, (begun[place], now), (begin, end), failure);
                ready.push(place);
            }
            if now >= end {
                return Ok(measure.figures((end - begin).as_secs_f64()));
            }
        }
    }

    /// Returns the figures, and the percentage of the calls that ran here.
    fn place(&self, case: &PlacementCase, run_at: RunAt) -> Result<(Figures, f64), String> {
        let mut client = self.access.connect()?;
        let function = client.resolve("spin.chase").map_err(|error| error.to_string())?;
        let function = PlacedFunction::new(function, "chase", self.module.clone(), run_at);
        let function = function.map_err(|error| error.to_string())?;
        let mut local = Local::new(client.into_session());
        let (mut ran, mut ran_here) = (0_u64, 0_u64);
        let (arguments, mut random) = (Self::arguments(case), Rng::with_seed(self.seed));
        let (mut measure, (begin, end)) = (Measure::default(), self.window());
        // Ids are counted from 1: that of an invocation leads to its place.
        let (mut begun, mut place_of) = ([Instant::now(); OUTSTANDING], Vec::new());
        let mut ready: Vec<usize> = (0..OUTSTANDING).collect();
        let mut ended: Vec<(u64, Option<String>)> = Vec::new();
        loop {
            for place in ready.drain(..) {
                begun[place] = Instant::now();
                let key = random.u64(0..self.settings.keys).to_le_bytes();
                let called = local.invoke(&function, self.table, &key, &arguments);
                let id = called.map_err(|error| error.to_string())? as usize;
                if place_of.len() <= id {
                    place_of.resize(id + 1, 0);
                }
                place_of[id] = place;
            }
            local
                .poll(&mut |finished: Finished<'_>| {
                    (ran, ran_here) = (ran + 1, ran_here + u64::from(finished.ran_here));
                    ended.push((finished.id, finished.result.err().map(|failure| failure.to_string())));
                })
                .map_err(|error| error.to_string())?;
            let now = Instant::now();
            for (id, failure) in ended.drain(..) {
                let place = place_of[id as usize];
                note(&mut measure, (begun[place], now), (begin, end), failure);
                ready.push(place);
            }
            if now >= end {
                let percent = 100.0 * ran_here as f64 / ran.max(1) as f64;
                return Ok((measure.figures((end - begin).as_secs_f64()), percent));
            }
        }
    }
}

/// Counts a call that has ended, if that was within the window.
fn note(
    measure: &mut Measure,
    (begun, now): (Instant, Instant),
    (begin, end): (Instant, Instant),
    failure: Option<String>,
) {
    match failure {
        Some(failure) => measure.failed(&failure),
        None if begun >= begin && now < end => measure.answered((now - begun).as_nanos() as u64, 1),
        None => {}
    }
}

fn show(
    rows: &[Rows<PlacementCase, PlacementRow>],
    settings: &PlacementSettings,
    report: &mut Report,
) -> Result<(), String> {
    let mut lines = Vec::new();
    for row in rows {
        let spreads = Spreads::of(FIGURES, &row.rows);
        report.line(None, settings, &PlacementSummary { case: row.case, spreads: &spreads })?;
        let PlacementCase { gets, cycles, place } = row.case;
        let place = format!("{place:?}").to_lowercase();
        lines.push([vec![gets.to_string(), cycles.to_string(), place], spreads.cells()].concat());
    }
    let title = format!(
        "{} objects, {} B value, table {}, {OUTSTANDING} calls under way, {} runs of {} s in turn",
        settings.keys,
        settings.value_bytes,
        crate::options::name_of(&settings.pair.durability),
        settings.pair.runs,
        settings.pair.seconds
    );
    report::print(&title, &format!("gets|cycles|at|{}", heads(FIGURES)), &lines);
    Ok(())
}

/// The medians of a case.
#[derive(Serialize)]
struct PlacementSummary<'s> {
    #[serde(flatten)]
    case: PlacementCase,
    #[serde(flatten)]
    spreads: &'s Spreads,
}
