//! One migration under load, and the way back without; and what clients saw over time.
//!
//! Latencies and answers are counted in intervals of a tenth of a second. A request counts where it was due, so that who
//! had to wait is seen when the waiting began; its answer counts where it came.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use super::TimelineRun;
use super::stage::{Move, MoveWay, Stage};
use crate::dataset::Dataset;
use crate::drive::{Drive, Patience, ns_since};
use crate::fleet::Fleet;
use crate::intervals::{BinSeen, Bins, INTERVAL_NS, Moment};
use crate::loading;
use crate::options::DataSettings;
use crate::workload::{Generator, Target, Workload};

/// Seconds over which it is measured what the source can do.
const CAPACITY_SECONDS: f64 = 2.0;
/// What follows the beginning of a migration and counts as its hand-over, in nanoseconds.
const HAND_OVER_NS: u64 = 500_000_000;

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
            timeline: bins.timeline(began_ns),
        })
    }
}
