//! One migration under load, and the way back without; and what clients saw over time.
//!
//! Latencies and answers are counted in intervals of a tenth of a second. A request counts where it was due, so that who
//! had to wait is seen when the waiting began; its answer counts where it came.

use std::collections::BTreeMap;
use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::TimelineRun;
use super::stage::{Move, MoveWay, Stage};
use crate::dataset::Dataset;
use crate::drive::{Drive, Patience, ns_since};
use crate::fleet::Fleet;
use crate::loading;
use crate::measure::{LATENCY_NS_MAX, Times};
use crate::options::DataSettings;
use crate::workload::{Generator, Target, Workload};

/// Seconds over which it is measured what the source can do.
const CAPACITY_SECONDS: f64 = 2.0;
/// What follows the beginning of a migration and counts as its hand-over, in nanoseconds.
const HAND_OVER_NS: u64 = 500_000_000;
/// Length of an interval.
const INTERVAL_NS: u64 = 100_000_000;

/// What one migration showed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MoveRow {
    way: MoveWay,
    /// Under load, of keys and values.
    pub(super) megabytes_per_second: f64,
    /// Without load.
    pub(super) idle_megabytes_per_second: f64,
    /// Bytes of reads at a second server and of telling progress, in percent of the bytes of the keys and values that moved
    /// under load.
    pub(super) second_read_percent: f64,
    /// How long it took under load.
    pub(super) seconds: f64,
    pub(super) before: BinSeen,
    pub(super) moving: BinSeen,
    /// The half second in which the owner changes: the first, or the last where the source serves until then.
    pub(super) hand_over: BinSeen,
    pub(super) after: BinSeen,
    /// Requests that failed or were answered wrongly, by status.
    pub(super) errors: BTreeMap<String, u64>,
    /// What clients saw over time.
    pub(super) timeline: Vec<Moment>,
}

/// An interval of the timeline.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Moment {
    /// Seconds since the beginning of the migration.
    pub(super) at: f64,
    #[serde(flatten)]
    pub(super) seen: BinSeen,
}

impl MoveRow {
    /// In one line, for who waits for the run.
    pub(super) fn line(&self) -> String {
        format!(
            "{:.0} MB/s under load, {:.0} without; p50 {:.0} us (before {:.0}), p99.9 {:.0} us ({:.0}), longest {:.1} ms, {:.1} % more bytes{}",
            self.megabytes_per_second,
            self.idle_megabytes_per_second,
            self.moving.latency_us_p50,
            self.before.latency_us_p50,
            self.moving.latency_us_p999,
            self.before.latency_us_p999,
            self.moving.latency_us_max / 1e3,
            self.second_read_percent,
            if self.errors.is_empty() { String::new() } else { format!(", failed {:?}", self.errors) }
        )
    }
}

/// The table, its clients, and the rate at which they ask.
pub(super) struct Scene<'a> {
    settings: &'a TimelineRun,
    fleet: Fleet,
    table: u32,
    objects: u64,
    rate: f64,
}

impl<'a> Scene<'a> {
    /// Loads the table and measures what the source can do.
    pub(super) fn open(settings: &'a TimelineRun, stage: &Stage) -> Result<Self, String> {
        let objects = settings.objects();
        let data = DataSettings::plain(objects, settings.key_bytes, settings.own.value_bytes);
        let table = stage.table();
        let mut fleet = Fleet::open(stage.access(), settings.own.sessions, settings.own.sockets)?;
        loading::load(&mut fleet, table, Workload::YcsbB, &data)?;
        let mut scene = Self { settings, fleet, table, objects, rate: 0.0 };
        scene.rate = match settings.own.rate {
            Some(rate) => rate,
            None => scene.capacity()? * settings.own.load,
        };
        eprintln!("the load is {:.0} requests/s", scene.rate);
        Ok(scene)
    }

    /// Requests a second of the load.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    fn generator(&self, seed: u64) -> Result<Generator, String> {
        let settings = self.settings;
        let dataset = Dataset::new(self.objects, settings.key_bytes, settings.own.value_bytes)?;
        let target = Target { table: self.table, extension: 0, records: 1, seed };
        Generator::new(Workload::YcsbB, target, dataset, settings.own.zipf)
    }

    /// Requests a second that a closed loop gets.
    fn capacity(&mut self) -> Result<f64, String> {
        let generator = self.generator(self.settings.own.seed)?;
        let mut drive = Drive::new(&mut self.fleet, generator, self.settings.own.outstanding, Instant::now());
        let seconds = drive.warm_up_and_measure(0.5, CAPACITY_SECONDS)?;
        drive.drain()?;
        Ok(drive.measure.figures(seconds).requests_per_second)
    }

    /// Moves half of the table under load, and back without.
    pub(super) fn play(&mut self, stage: &Stage, way: MoveWay, run: u64) -> Result<MoveRow, String> {
        let (settings, start, seed) = (self.settings, Instant::now(), self.settings.own.seed + run);
        let generator = self.generator(seed)?;
        let rate = self.rate;
        let mut drive = Drive::new(&mut self.fleet, generator, settings.own.outstanding, start);
        drive.open_loop(rate, seed)?;
        drive.times = Some(Vec::new());
        let (mut bins, mut patience) = (Bins::default(), Patience::default());
        let mut turn = |drive: &mut Drive<'_, Generator>| -> Result<u64, String> {
            let now_ns = ns_since(start);
            patience.saw(drive.turn(now_ns)?);
            drive.times.iter_mut().flat_map(|times| times.drain(..)).for_each(|times| bins.add(times));
            Ok(now_ns)
        };
        let margin_ns = (settings.own.margin_seconds * 1e9) as u64;
        while turn(&mut drive)? < margin_ns {}
        let second_before = stage.second_read_bytes()?;
        let began_ns = ns_since(start);
        let moving = stage.begin(way, Move::There);
        while !moving.is_over()? {
            turn(&mut drive)?;
        }
        let ended_ns = ns_since(start);
        while turn(&mut drive)? < ended_ns + margin_ns {}
        drive.drain()?;
        drive.times.iter_mut().flat_map(|times| times.drain(..)).for_each(|times| bins.add(times));
        let errors = drive.measure.figures(1.0).errors;
        let second_bytes = stage.second_read_bytes()? - second_before;
        let back = Instant::now();
        stage.begin(way, Move::Back).wait()?;
        let half_megabytes =
            self.objects as f64 / 2e6 * (settings.key_bytes + settings.own.value_bytes) as f64;
        let seconds = (ended_ns - began_ns) as f64 / 1e9;
        let edge_ns = HAND_OVER_NS.min(ended_ns - began_ns);
        let edge = match way {
            MoveWay::PreCopy => (ended_ns - edge_ns, ended_ns),
            MoveWay::Rocksteady | MoveWay::Cooperative | MoveWay::StopAndCopy => {
                (began_ns, began_ns + edge_ns)
            }
        };
        let at = |at_ns: u64| (at_ns as f64 - began_ns as f64) / 1e9;
        Ok(MoveRow {
            way,
            megabytes_per_second: half_megabytes / seconds,
            idle_megabytes_per_second: half_megabytes / back.elapsed().as_secs_f64(),
            second_read_percent: second_bytes as f64 / (half_megabytes * 1e4),
            seconds,
            before: bins.seen(margin_ns / 5, began_ns - INTERVAL_NS),
            moving: bins.seen(began_ns - INTERVAL_NS, ended_ns),
            hand_over: bins.seen(edge.0 - INTERVAL_NS, edge.1),
            after: bins.seen(ended_ns, ended_ns + margin_ns),
            errors,
            timeline: bins.each().map(|(at_ns, seen)| Moment { at: at(at_ns), seen }).collect(),
        })
    }
}

/// Latencies and answers by interval.
#[derive(Default)]
struct Bins {
    latency_ns: Vec<Histogram<u32>>,
    answers: Vec<u64>,
}

/// What was seen between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct BinSeen {
    /// Answers a second.
    pub(super) answers_per_second: f64,
    /// Median latency in microseconds.
    pub(super) latency_us_p50: f64,
    /// 999 of 1,000 requests were faster.
    pub(super) latency_us_p999: f64,
    /// The longest that any request waited.
    pub(super) latency_us_max: f64,
}

impl Bins {
    /// Adds a request.
    fn add(&mut self, times: Times) {
        let (due, answered) =
            ((times.due_ns / INTERVAL_NS) as usize, (times.answered_ns / INTERVAL_NS) as usize);
        while self.latency_ns.len() <= answered {
            let empty = Histogram::new_with_bounds(1_000, LATENCY_NS_MAX, 2).expect("the bounds are valid");
            self.latency_ns.push(empty);
            self.answers.push(0);
        }
        let latency_ns = times.answered_ns.saturating_sub(times.due_ns);
        self.latency_ns[due].saturating_record(latency_ns.max(1_000));
        self.answers[answered] += 1;
    }

    /// What was seen in the intervals that begin at `from_ns` or later and before `to_ns`.
    fn seen(&self, from_ns: u64, to_ns: u64) -> BinSeen {
        let last = self.answers.len();
        let from = (from_ns.div_ceil(INTERVAL_NS) as usize).min(last);
        let to = (to_ns.div_ceil(INTERVAL_NS) as usize).clamp(from, last);
        let Some(mut all) = self.latency_ns[from..to].first().cloned() else { return BinSeen::default() };
        self.latency_ns[from + 1..to].iter().for_each(|one| all.add(one).expect("the bounds are alike"));
        let answers: u64 = self.answers[from..to].iter().sum();
        let us = |ns: u64| ns as f64 / 1000.0;
        BinSeen {
            answers_per_second: answers as f64 / ((to - from) as f64 * INTERVAL_NS as f64 / 1e9),
            latency_us_p50: us(all.value_at_quantile(0.5)),
            latency_us_p999: us(all.value_at_quantile(0.999)),
            latency_us_max: us(all.max()),
        }
    }

    /// Each interval but the last, which is not over: when it begins, and what was seen in it.
    fn each(&self) -> impl Iterator<Item = (u64, BinSeen)> {
        let begin = |at: usize| at as u64 * INTERVAL_NS;
        (0..self.answers.len().saturating_sub(1))
            .map(move |at| (begin(at), self.seen(begin(at), begin(at + 1))))
    }
}

#[cfg(test)]
mod tests {
    use super::{Bins, INTERVAL_NS};
    use crate::measure::Times;

    #[test]
    fn a_request_counts_where_it_was_due_and_its_answer_where_it_came() {
        let mut bins = Bins::default();
        for at in 0..1000 {
            let due_ns = at * INTERVAL_NS / 1000;
            bins.add(Times { due_ns, answered_ns: due_ns + 20_000 });
        }
        bins.add(Times { due_ns: INTERVAL_NS / 2, answered_ns: 5 * INTERVAL_NS / 2 });
        let first = bins.seen(0, INTERVAL_NS);
        assert!((19.0..22.0).contains(&first.latency_us_p50), "{first:?}");
        assert!(first.latency_us_max > 190_000.0, "{first:?}");
        assert!((first.answers_per_second - 10_000.0).abs() < 20.0, "{first:?}");
        let third = bins.seen(2 * INTERVAL_NS, 3 * INTERVAL_NS);
        assert_eq!((third.answers_per_second, third.latency_us_max), (10.0, 0.0));
        assert_eq!(bins.each().count(), 2);
        assert_eq!(bins.seen(7 * INTERVAL_NS, 9 * INTERVAL_NS).answers_per_second, 0.0);
    }
}
