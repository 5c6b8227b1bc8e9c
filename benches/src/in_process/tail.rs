//! How long a get waits while the cleaner runs flat out.
//!
//! One thread, as a server's worker: batches of writes over what is there, each with a step of background work behind
//! it, and between them gets, one by one and in batches of 32, each timed. Three stores take turns, a slice of time
//! each: nobody writes; a writer with the log half live, when there is next to nothing to clean; the same writer with
//! the log 90 % live. So what writing alone does to the caches is told apart from what the cleaner does. A step itself
//! stands beside them, since a request that arrives meanwhile waits for it. What took long while the thread had no core
//! is counted apart.

use std::time::Instant;

use fastrand::Rng;
use hdrhistogram::Histogram;
use serde::Serialize;
use store::Core;

use crate::in_process::settings::StoreSettings;
use crate::in_process::side::{ObjectWorker, Side, Splinter, key_of, touch_all};
use crate::machine;
use crate::report::{self, Report};

/// What a get may take at the 99.9th percentile with the cleaner at work, as a multiple of without.
const TARGET: f64 = 1.5;
/// Operations of a batch.
const BATCH: usize = 32;
/// Batches of writes, each with the gets behind it, before the next store has its turn.
const ROUNDS_PER_TURN: usize = 2_000;
/// Gets one by one behind a batch of writes.
const SINGLE_GETS: usize = 8;
/// What is looked at closer: whether the thread had its core all the time.
const LONG_NS: u64 = 20_000;

/// The longest that is told apart.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// How often the memory is written over before anything is measured.
const WARMUP: u64 = 2;

/// A store, by what is done to it.
struct Setting {
    name: &'static str,
    live_percent: u64,
    writes: bool,
}

const SETTINGS: [Setting; 3] = [
    Setting { name: "nobody writes", live_percent: 50, writes: false },
    Setting { name: "writer, 50 % live", live_percent: 50, writes: true },
    Setting { name: "writer, 90 % live", live_percent: 90, writes: true },
];

/// One line of the table.
#[derive(Serialize)]
struct Tail {
    setting: &'static str,
    request: &'static str,
    count: u64,
    disturbed: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    worst_ns: u64,
    /// p99.9 as a multiple of that where nobody writes, and of that with the log half live.
    of_alone: f64,
    of_half: f64,
    /// Bytes that the cleaner copied for each byte written meanwhile.
    copied: f64,
}

/// Latencies of one kind of request.
struct TailLatencies {
    request: &'static str,
    latency_ns: Histogram<u64>,
    disturbed: u64,
}

impl TailLatencies {
    fn new(request: &'static str) -> Result<Self, String> {
        let latency_ns =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(|error| error.to_string())?;
        Ok(Self { request, latency_ns, disturbed: 0 })
    }

    /// Times `work`, and leaves it out if the thread lost its core meanwhile.
    fn time<T>(&mut self, delayed_ns: &mut u64, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        let elapsed_ns = start.elapsed().as_nanos() as u64;
        if elapsed_ns >= LONG_NS {
            let now_delayed_ns = machine::own_delay_ns();
            if std::mem::replace(delayed_ns, now_delayed_ns) != now_delayed_ns {
                self.disturbed += 1;
                return result;
            }
        }
        self.latency_ns.saturating_record(elapsed_ns);
        result
    }

    fn p999_ns(&self) -> u64 {
        self.latency_ns.value_at_quantile(0.999)
    }
}

/// A store with what was measured of it.
struct Bed {
    side: Splinter,
    timed: [TailLatencies; 3],
    written_bytes: u64,
    copied_bytes: u64,
}

impl Bed {
    fn open(setting: &Setting, objects: u64) -> Result<Self, String> {
        let side = Splinter::full(objects, setting.live_percent)?;
        touch_all(side.store())?;
        let timed = [
            TailLatencies::new("get")?,
            TailLatencies::new("32 gets")?,
            TailLatencies::new("background step")?,
        ];
        Ok(Self { side, timed, written_bytes: 0, copied_bytes: 0 })
    }

    fn counters(&self) -> (u64, u64) {
        let statistics = self.side.store().statistics();
        (statistics.cleaner.written_bytes, statistics.bytes_relocated)
    }

    /// One turn of a store.
    fn turn(&mut self, setting: &Setting, objects: u64, random: &mut Rng) -> Result<(), String> {
        let before = self.counters();
        let mut missing = 0;
        {
            let (store, table) = (self.side.store(), self.side.table());
            let core = store.core(0);
            let mut draw = || std::array::from_fn::<u64, BATCH, _>(|_| random.u64(0..objects));
            let mut delayed_ns = machine::own_delay_ns();
            let [single, batch, step] = &mut self.timed;
            let mut worker = ObjectWorker::new(core, table);
            for _ in 0..ROUNDS_PER_TURN {
                if setting.writes {
                    let refused = worker.put_all(&draw()).map_err(|error| error.to_string())?;
                    step.time(&mut delayed_ns, || worker.core().step());
                    worker.put_later(&refused).map_err(|error| error.to_string())?;
                }
                for &number in &draw()[..SINGLE_GETS] {
                    let found = single.time(&mut delayed_ns, || get(worker.core(), table, number));
                    missing += u64::from(!found);
                }
                let numbers = draw();
                missing += BATCH as u64 - batch.time(&mut delayed_ns, || worker.get_all(&numbers)) as u64;
            }
        }
        let after = self.counters();
        self.written_bytes += after.0 - before.0;
        self.copied_bytes += after.1 - before.1;
        if missing == 0 { Ok(()) } else { Err(format!("{missing} reads found nothing, or the wrong value")) }
    }
}

fn get(core: &Core, table: &store::Table, number: u64) -> bool {
    let key = key_of(number);
    core.pin().get(table, store::hash(&key), &key).is_some()
}

/// Measures and prints the table.
pub fn run(settings: &StoreSettings, report: &mut Report) -> Result<(), String> {
    machine::pin(settings.cores[0])?;
    let objects = settings.memory_objects;
    let mut random = Rng::with_seed(settings.seed);
    let mut beds =
        SETTINGS.iter().map(|setting| Bed::open(setting, objects)).collect::<Result<Vec<_>, _>>()?;
    for (bed, setting) in beds.iter().zip(&SETTINGS) {
        let mut worker = bed.side.worker(0);
        let overwrites = if setting.writes { WARMUP * objects } else { 0 };
        for first in (0..objects + overwrites).step_by(BATCH) {
            let number = |at| if first < objects { (first + at) % objects } else { random.u64(0..objects) };
            let numbers: Vec<u64> = (0..BATCH as u64).map(number).collect();
            worker.write(&numbers);
        }
        worker.settle();
    }
    let start_ns = machine::own_cpu_ns();
    while ((machine::own_cpu_ns() - start_ns) as f64) < settings.seconds * settings.runs as f64 * 1e9 {
        for (bed, setting) in beds.iter_mut().zip(&SETTINGS) {
            bed.turn(setting, objects, &mut random)?;
        }
    }
    show(settings, &beds, report)
}

fn show(settings: &StoreSettings, beds: &[Bed], report: &mut Report) -> Result<(), String> {
    let mut rows = Vec::new();
    for kind in 0..beds[0].timed.len() {
        for (bed, setting) in beds.iter().zip(&SETTINGS) {
            let TailLatencies { request, latency_ns, disturbed } = &bed.timed[kind];
            if latency_ns.is_empty() {
                continue;
            }
            let times =
                |other: &Bed| latency_ns.value_at_quantile(0.999) as f64 / other.timed[kind].p999_ns() as f64;
            let tail = Tail {
                setting: setting.name,
                request,
                count: latency_ns.len(),
                disturbed: *disturbed,
                p50_ns: latency_ns.value_at_quantile(0.5),
                p99_ns: latency_ns.value_at_quantile(0.99),
                p999_ns: bed.timed[kind].p999_ns(),
                worst_ns: latency_ns.max(),
                of_alone: times(&beds[0]),
                of_half: times(&beds[1]),
                copied: bed.copied_bytes as f64 / bed.written_bytes.max(1) as f64,
            };
            report.line(Some(0), settings, &tail)?;
            let us = |ns: u64| format!("{:.2} us", ns as f64 / 1e3);
            let times = |times: f64| if times.is_finite() { format!("{times:.2} x") } else { String::new() };
            rows.push(vec![
                tail.request.to_string(),
                tail.setting.to_string(),
                us(tail.p50_ns),
                us(tail.p99_ns),
                us(tail.p999_ns),
                us(tail.worst_ns),
                times(tail.of_alone),
                times(tail.of_half),
                format!("{:.2}", tail.copied),
                tail.disturbed.to_string(),
            ]);
        }
    }
    let title = format!("Gets while the cleaner runs flat out (target: p99.9 at most {TARGET} x without)");
    let heads = [
        "request",
        "setting",
        "p50",
        "p99",
        "p99.9",
        "worst",
        "of alone",
        "of 50 %",
        "copied/written",
        "without a core",
    ];
    report::print(&title, &heads, &rows);
    Ok(())
}
