//! How long a request waits while the index grows: a histogram of every put while a table is filled.
//!
//! Each put is timed, a get of an object that is there after every eighth, and each background step, which the next
//! request has to wait for. The log's memory is touched before, as a
//! server does, so that what is seen is the index. A put that took long while the thread had no core is counted apart:
//! that is the system's doing. What another machine of the host takes cannot be seen from here.

use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;
use store::Condition;

use crate::in_process::settings::StoreSettings;
use crate::in_process::side::{Kind, Splinter, key_of, touch_all, until_there_is_memory, value_of};
use crate::machine;
use crate::plot::{self, Curve};
use crate::report::{self, Report};

/// The longest that growth may hold a request.
const TARGET_US: f64 = 100.0;

/// What is looked at closer: whether the thread had its core all the time.
const LONG_NS: u64 = 20_000;

/// The longest that is told apart.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Puts for each get.
const PUTS_PER_GET: u64 = 8;

/// How long requests took.
#[derive(Serialize)]
struct Waits {
    objects: u64,
    request: &'static str,
    count: u64,
    /// Requests during which the thread had no core for a while; left out of the rest.
    disturbed: u64,
    p50_ns: u64,
    p9999_ns: u64,
    worst_ns: u64,
    beyond_target: u64,
}

/// Latencies of one kind of request.
struct GrowthLatencies {
    request: &'static str,
    latency_ns: Histogram<u64>,
    disturbed: u64,
    delayed_ns: u64,
}

impl GrowthLatencies {
    fn new(request: &'static str) -> Result<Self, String> {
        let latency_ns =
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).map_err(|error| error.to_string())?;
        Ok(Self { request, latency_ns, disturbed: 0, delayed_ns: machine::own_delay_ns() })
    }

    fn record(&mut self, elapsed_ns: u64) {
        if elapsed_ns >= LONG_NS {
            let delayed_ns = machine::own_delay_ns();
            if delayed_ns > self.delayed_ns {
                self.delayed_ns = delayed_ns;
                self.disturbed += 1;
                return;
            }
        }
        self.latency_ns.saturating_record(elapsed_ns);
    }

    fn waits(&self, objects: u64) -> Waits {
        let latency = &self.latency_ns;
        Waits {
            objects,
            request: self.request,
            count: latency.len(),
            disturbed: self.disturbed,
            p50_ns: latency.value_at_quantile(0.5),
            p9999_ns: latency.value_at_quantile(0.9999),
            worst_ns: latency.max(),
            beyond_target: latency.count_between((TARGET_US * 1e3) as u64, u64::MAX),
        }
    }
}

/// Measures, prints the table, draws the plot.
pub fn run(settings: &StoreSettings, report: &mut Report) -> Result<(), String> {
    machine::pin(settings.cores[0])?;
    let objects = settings.objects.iter().copied().max().unwrap_or(1_000_000);
    let timed = fill(objects)?;
    let mut rows = Vec::new();
    for timed in &timed {
        let waits = timed.waits(objects);
        report.line(Some(0), settings, &waits)?;
        let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
        rows.push(vec![
            waits.request.to_string(),
            waits.count.to_string(),
            us(waits.p50_ns),
            us(waits.p9999_ns),
            us(waits.worst_ns),
            waits.beyond_target.to_string(),
            waits.disturbed.to_string(),
        ]);
    }
    let title =
        format!("Requests while a table grows to {objects} objects (target: none beyond {TARGET_US} us)");
    let heads = ["request", "count", "p50", "p99.99", "worst", "beyond", "without a core"];
    report::print(&title, &heads, &rows);
    if let Some(path) = report.plot("store-growth.svg") {
        let curves: Vec<Curve<'_>> =
            timed.iter().map(|timed| Curve { name: timed.request, latency_ns: &timed.latency_ns }).collect();
        plot::percentiles(&path, &title, &curves, &[(1.0 - 1e-5, TARGET_US)])?;
    }
    Ok(())
}

fn fill(objects: u64) -> Result<[GrowthLatencies; 3], String> {
    let side = Splinter::new(Kind::Objects, objects, 1, 0.9)?;
    touch_all(side.store())?;
    let (core, table) = (side.store().core(0), side.table());
    let (mut puts, mut gets) = (GrowthLatencies::new("put")?, GrowthLatencies::new("get")?);
    let mut steps = GrowthLatencies::new("background step")?;
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..objects {
        let (key, value) = (key_of(number), value_of(number));
        let hash = store::hash(&key);
        let start = Instant::now();
        let put = core.pin().put(table, hash, &key, &value, Condition::Always);
        puts.record(start.elapsed().as_nanos() as u64);
        if put.is_err() {
            until_there_is_memory(&core, || core.pin().put(table, hash, &key, &value, Condition::Always))
                .map_err(|error| error.to_string())?;
        }
        if number.is_multiple_of(PUTS_PER_GET) {
            let key = key_of(random.u64(0..=number));
            let start = Instant::now();
            let found = core.pin().get(table, store::hash(&key), &key).is_some();
            gets.record(start.elapsed().as_nanos() as u64);
            if !found {
                return Err("an object is not there that was put".into());
            }
        }
        let start = Instant::now();
        core.step();
        steps.record(start.elapsed().as_nanos() as u64);
    }
    Ok([puts, gets, steps])
}
