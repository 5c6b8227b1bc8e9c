//! How long requests wait: while the index grows, and while the cleaner runs flat out.
//!
//! Growth is a histogram of every put while a table is filled. Each put is timed, a get of an object that is there after
//! every eighth, and each background step, which the next request has to wait for. The log's memory is touched before, as a
//! server does, so that what is seen is the index.
//!
//! The tail is that of one thread, as a server's worker: batches of writes over what is there, each with a step of
//! background work behind it, and between them gets, one by one and in batches of 32, each timed. Three stores take turns,
//! a slice of time each: nobody writes; a writer with the log half live, when there is next to nothing to clean; the same
//! writer with the log 90 % live. So what writing alone does to the caches is told apart from what the cleaner does.
//!
//! What took long while the thread had no core is counted apart: that is the system's doing. What another machine of the
//! host takes cannot be seen from here.

use std::time::Instant;

use fastrand::Rng;
use hdrhistogram::Histogram;
use serde::Serialize;
use store::{Condition, Core, Table};

use crate::in_process::settings::StoreSettings;
use crate::in_process::side::{Kind, ObjectWorker, Side, Splinter, key_of, put, touch_all, value_of};
use crate::machine;
use crate::measure::latencies;
use crate::plot::{self, Curve};
use crate::report::{self, Report};

/// What is looked at closer: whether the thread had its core all the time.
const LONG_NS: u64 = 20_000;

/// The longest that growth may hold a request.
const GROWTH_TARGET_US: f64 = 100.0;
/// Puts for each get.
const PUTS_PER_GET: u64 = 8;

/// What a get may take at the 99.9th percentile with the cleaner at work, as a multiple of without.
const TAIL_TARGET: f64 = 1.5;
/// Operations of a batch.
const BATCH: usize = 32;
/// Batches of writes, each with the gets behind it, before the next store has its turn.
const ROUNDS_PER_TURN: usize = 2_000;
/// Gets one by one behind a batch of writes.
const SINGLE_GETS: usize = 8;
/// How often the memory is written over before anything is measured.
const WARMUP: u64 = 2;

/// Latencies of one kind of request.
struct TimedRequests {
    request: &'static str,
    latency_ns: Histogram<u64>,
    /// Requests during which the thread had no core for a while; left out of the rest.
    disturbed: u64,
}

impl TimedRequests {
    fn new(request: &'static str) -> Self {
        Self { request, latency_ns: latencies(), disturbed: 0 }
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

    fn ns(&self, quantile: f64) -> u64 {
        self.latency_ns.value_at_quantile(quantile)
    }
}

/// How long requests took while the index grew.
#[derive(Serialize)]
struct Waits {
    objects: u64,
    request: &'static str,
    count: u64,
    disturbed: u64,
    p50_ns: u64,
    p9999_ns: u64,
    worst_ns: u64,
    beyond_target: u64,
}

/// Measures growth, prints the table, draws the plot.
pub fn growth(settings: &StoreSettings, report: &mut Report) -> Result<(), String> {
    machine::pin(settings.cores[0])?;
    let objects = settings.objects.iter().copied().max().unwrap_or(1_000_000);
    let all = fill(objects)?;
    let mut rows = Vec::new();
    for timed in &all {
        let waits = Waits {
            objects,
            request: timed.request,
            count: timed.latency_ns.len(),
            disturbed: timed.disturbed,
            p50_ns: timed.ns(0.5),
            p9999_ns: timed.ns(0.9999),
            worst_ns: timed.latency_ns.max(),
            beyond_target: timed.latency_ns.count_between((GROWTH_TARGET_US * 1e3) as u64, u64::MAX),
        };
        report.line(Some(0), settings, &waits)?;
        let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
        let mut cells = vec![waits.request.to_string(), waits.count.to_string()];
        cells.extend([waits.p50_ns, waits.p9999_ns, waits.worst_ns].map(us));
        cells.extend([waits.beyond_target, waits.disturbed].map(|count| count.to_string()));
        rows.push(cells);
    }
    let title = format!(
        "Requests while a table grows to {objects} objects (target: none beyond {GROWTH_TARGET_US} us)"
    );
    report::print(&title, "request|count|p50|p99.99|worst|beyond|without a core", &rows);
    if let Some(path) = report.plot("store-growth.svg") {
        let curves: Vec<Curve<'_>> =
            all.iter().map(|timed| Curve { name: timed.request, latency_ns: &timed.latency_ns }).collect();
        plot::percentiles(&path, &title, &curves, &[(1.0 - 1e-5, GROWTH_TARGET_US)])?;
    }
    Ok(())
}

fn fill(objects: u64) -> Result<[TimedRequests; 3], String> {
    let side = Splinter::new(Kind::Objects, objects, 1, 0.9)?;
    touch_all(side.store())?;
    let (core, table) = (side.store().core(0), side.table());
    let mut all = ["put", "get", "background step"].map(TimedRequests::new);
    let [puts, gets, steps] = &mut all;
    let (mut random, mut delayed_ns) = (Rng::with_seed(1), machine::own_delay_ns());
    for number in 0..objects {
        let (key, value) = (key_of(number), value_of(number));
        let hash = store::hash(&key);
        let is_put = puts
            .time(&mut delayed_ns, || core.pin().put(table, hash, &key, &value, Condition::Always).is_ok());
        if !is_put {
            put(&core, table, number).map_err(|error| error.to_string())?;
        }
        if number.is_multiple_of(PUTS_PER_GET) {
            let number = random.u64(0..=number);
            if !gets.time(&mut delayed_ns, || get(&core, table, number)) {
                return Err("an object is not there that was put".into());
            }
        }
        steps.time(&mut delayed_ns, || core.step());
    }
    Ok(all)
}

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

/// A store with what was measured of it.
struct Bed {
    side: Splinter,
    timed: [TimedRequests; 3],
    written_bytes: u64,
    copied_bytes: u64,
}

impl Bed {
    fn open(setting: &Setting, objects: u64) -> Result<Self, String> {
        let side = Splinter::full(objects, setting.live_percent)?;
        touch_all(side.store())?;
        let timed = ["get", "32 gets", "background step"].map(TimedRequests::new);
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

fn get(core: &Core, table: &Table, number: u64) -> bool {
    let key = key_of(number);
    core.pin().get(table, store::hash(&key), &key).is_some()
}

/// Measures the tail and prints the table.
pub fn tail(settings: &StoreSettings, report: &mut Report) -> Result<(), String> {
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
    show_tail(settings, &beds, report)
}

fn show_tail(settings: &StoreSettings, beds: &[Bed], report: &mut Report) -> Result<(), String> {
    let mut rows = Vec::new();
    for kind in 0..beds[0].timed.len() {
        for (bed, setting) in beds.iter().zip(&SETTINGS) {
            let TimedRequests { request, latency_ns, disturbed } = &bed.timed[kind];
            if latency_ns.is_empty() {
                continue;
            }
            let times = |other: &Bed| bed.timed[kind].ns(0.999) as f64 / other.timed[kind].ns(0.999) as f64;
            let tail = Tail {
                setting: setting.name,
                request,
                count: latency_ns.len(),
                disturbed: *disturbed,
                p50_ns: bed.timed[kind].ns(0.5),
                p99_ns: bed.timed[kind].ns(0.99),
                p999_ns: bed.timed[kind].ns(0.999),
                worst_ns: latency_ns.max(),
                of_alone: times(&beds[0]),
                of_half: times(&beds[1]),
                copied: bed.copied_bytes as f64 / bed.written_bytes.max(1) as f64,
            };
            report.line(Some(0), settings, &tail)?;
            let us = |ns: u64| format!("{:.2} us", ns as f64 / 1e3);
            let times = |times: f64| if times.is_finite() { format!("{times:.2} x") } else { String::new() };
            let mut cells = vec![tail.request.to_string(), tail.setting.to_string()];
            cells.extend([tail.p50_ns, tail.p99_ns, tail.p999_ns, tail.worst_ns].map(us));
            cells.extend([tail.of_alone, tail.of_half].map(times));
            cells.extend([format!("{:.2}", tail.copied), tail.disturbed.to_string()]);
            rows.push(cells);
        }
    }
    let title =
        format!("Gets while the cleaner runs flat out (target: p99.9 at most {TAIL_TARGET} x without)");
    let heads = "request|setting|p50|p99|p99.9|worst|of alone|of 50 %|copied/written|without a core";
    report::print(&title, heads, &rows);
    Ok(())
}
