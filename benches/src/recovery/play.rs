//! One death under load: when it is noticed, when the first and when all of what was lost is served again, and what clients of
//! the rest see meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{ClientConfig, MigrationMode};
use fastrand::Rng;
use serde::Serialize;

use super::cluster::{KEPT_OBJECTS, RecoveryCluster};
use super::{Death, RecoverySettings};
use crate::dataset::Dataset;
use crate::drive::{Drive, Patience, ns_since};
use crate::fleet::{self, Fleet};
use crate::intervals::{BinSeen, Bins, INTERVAL_NS, Moment};
use crate::machine::{self, GoingFirst};
use crate::workload::{Generator, Target, Workload};

/// Requests of `kept` that may be under way.
const OUTSTANDING: usize = 64;
/// How long a get of `lost` waits: for less a client does not notice that a server is silent.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause of the load when there is nothing to send or to take, short beside what it measures.
const IDLE: Duration = Duration::from_micros(50);
/// Pause between two gets of `lost`.
const PROBE_EVERY: Duration = Duration::from_micros(500);
/// All is served once as many gets in a row were answered: with a part missing that is an eighth as likely as not.
const SERVED_IN_A_ROW: usize = 1_000;
/// Longest that a recovery may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Keys that are looked at in the end.
const CHECKED: u64 = 20_000;
/// Between two looks at migrations.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What one death showed; times count from it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RecoveryRow {
    death: Death,
    /// Until the first recovery is recorded.
    pub(super) detected_ms: f64,
    /// Until the first get of what was lost is answered, and until all are.
    pub(super) first_ms: f64,
    pub(super) all_ms: f64,
    /// Of the log's objects, from the detection on.
    pub(super) megabytes_per_second: f64,
    /// Of the log's objects, for each second that a core of the survivors worked for it.
    pub(super) megabytes_per_core_second: f64,
    /// What clients of the rest saw before, and until all was served.
    pub(super) before: BinSeen,
    pub(super) during: BinSeen,
    /// The medians of their 99th percentiles of 100 ms: what they see unless the machine stands still.
    pub(super) usual_us_p99_before: f64,
    pub(super) usual_us_p99: f64,
    /// How long the host kept cores from this machine meanwhile.
    pub(super) stolen_ms: f64,
    /// Their requests that failed or were answered wrongly, by status.
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) timeline: Vec<Moment>,
    /// The share of gets of what was lost that were answered, in percent, by seconds.
    pub(super) served: Vec<(f64, f64)>,
}

impl RecoveryRow {
    /// In one line, for who waits for the run.
    pub(super) fn line(&self) -> String {
        format!(
            "detected after {:.0} ms, first served {:.0}, all {:.0}; {:.0} MB/s, {:.0} a core; p99 of the rest {:.0} us (before {:.0}), usually \
             {:.0} ({:.0}); {:.0} ms stolen{}",
            self.detected_ms,
            self.first_ms,
            self.all_ms,
            self.megabytes_per_second,
            self.megabytes_per_core_second,
            self.during.latency_us_p99,
            self.before.latency_us_p99,
            self.usual_us_p99,
            self.usual_us_p99_before,
            self.stolen_ms,
            if self.errors.is_empty() { String::new() } else { format!(", failed {:?}", self.errors) }
        )
    }
}

/// A get of what was lost: when it was answered, or when one began that was not; and whether it was.
type Probe = (u64, bool);

/// Starts all servers, and lets one die under load.
pub(super) fn play(settings: &RecoverySettings, death: Death, run: u64) -> Result<RecoveryRow, String> {
    let (cluster, start) = (RecoveryCluster::start(settings, death)?, Instant::now());
    let (died_ns, detected_ns, all_ns) = (AtomicU64::new(u64::MAX), AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        let probing = scope.spawn(|| probe(settings, &cluster, (start, run), (&died_ns, &all_ns), &is_over));
        let watching = scope.spawn(|| watch(&cluster, start, (&died_ns, &detected_ns), &is_over));
        let seen = drive(settings, &cluster, (start, run), death, (&died_ns, &all_ns));
        drop(over);
        let probes = probing.join().map_err(|_| "who asks for what was lost has panicked")?;
        let watched = watching.join().map_err(|_| "who watches recoveries has panicked")?;
        // What was wrong first.
        let (probes, seen) = (probes?, seen?);
        watched?;
        let [died_ns, detected_ns, all_ns] =
            [&died_ns, &detected_ns, &all_ns].map(|at| at.load(Ordering::Relaxed));
        check(settings, &cluster)?;
        let since = |at_ns: u64| (at_ns as f64 - died_ns as f64) / 1e9;
        let first_ns = first_answer(&probes, died_ns).unwrap_or(all_ns);
        let megabytes = settings.objects() as f64 * settings.object_bytes() as f64 / 1e6;
        // What the rest takes is as before.
        let usual_ns = seen.cpu_before * (all_ns - died_ns) as f64;
        let worked_seconds = ((seen.cpu_ns as f64 - usual_ns) / 1e9).max(0.01);
        Ok(RecoveryRow {
            death,
            detected_ms: since(detected_ns) * 1e3,
            first_ms: since(first_ns) * 1e3,
            all_ms: since(all_ns) * 1e3,
            megabytes_per_second: megabytes / ((all_ns - detected_ns.min(all_ns - 1)) as f64 / 1e9),
            megabytes_per_core_second: megabytes / worked_seconds,
            before: seen.bins.seen(died_ns / 5, died_ns - INTERVAL_NS),
            during: seen.bins.seen(died_ns - INTERVAL_NS, all_ns),
            usual_us_p99_before: seen.bins.usual(died_ns / 5, died_ns - INTERVAL_NS, |it| it.latency_us_p99),
            usual_us_p99: seen.bins.usual(died_ns, all_ns, |it| it.latency_us_p99),
            stolen_ms: seen.stolen_ns as f64 / 1e6,
            errors: seen.errors,
            timeline: seen.bins.timeline(died_ns),
            served: shares(&probes, died_ns),
        })
    })
}

/// Says that it is over, also when something fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What clients of `kept` saw.
struct Seen {
    bins: Bins,
    errors: BTreeMap<String, u64>,
    /// Cores that the survivors kept busy before.
    cpu_before: f64,
    /// How long they ran until all was served, in nanoseconds, and how long cores were kept from all.
    cpu_ns: u64,
    stolen_ns: u64,
}

/// Drives the load of `kept`, and lets the victim die in the middle.
fn drive(
    settings: &RecoverySettings,
    cluster: &RecoveryCluster,
    (start, run): (Instant, u64),
    death: Death,
    (died_ns, all_ns): (&AtomicU64, &AtomicU64),
) -> Result<Seen, String> {
    let _first = GoingFirst::begin();
    let seed = settings.seed + run;
    let table = fleet::table(&cluster.kept)?;
    let mut fleet = Fleet::open(&cluster.kept, 1, false)?;
    let dataset = Dataset::new(KEPT_OBJECTS, settings.key_bytes, settings.value_bytes)?;
    let target = Target { table, extension: 0, records: 1, seed };
    let generator = Generator::new(Workload::Get, target, dataset, 0.0)?;
    let mut drive = Drive::new(&mut fleet, generator, OUTSTANDING, start);
    drive.open_loop(settings.rate, seed)?;
    drive.times = Some(Vec::new());
    let (mut bins, mut patience) = (Bins::default(), Patience::default());
    let mut turn = |drive: &mut Drive<'_, Generator>| -> Result<u64, String> {
        let now_ns = ns_since(start);
        let answered = drive.turn(now_ns)?;
        patience.saw(answered);
        if answered == 0 {
            // The servers have these cores too.
            thread::sleep(IDLE);
        }
        drive.times.iter_mut().flat_map(|times| times.drain(..)).for_each(|times| bins.add(times));
        Ok(now_ns)
    };
    let margin_ns = (settings.margin_seconds * 1e9) as u64;
    let (began_ns, cpu_began_ns) = (ns_since(start), cluster.cpu_ns());
    while turn(&mut drive)? < began_ns + margin_ns {}
    cluster.kill(death)?;
    let killed_ns = ns_since(start);
    died_ns.store(killed_ns, Ordering::Relaxed);
    let (cpu_killed_ns, stolen_before_ns) = (cluster.cpu_ns(), machine::stolen_ns());
    while all_ns.load(Ordering::Relaxed) == 0 {
        if turn(&mut drive)? > killed_ns + PATIENCE.as_nanos() as u64 {
            return Err(format!("not all was served again after {PATIENCE:?}"));
        }
    }
    let cpu_ns = cluster.cpu_ns() - cpu_killed_ns;
    let stolen_ns = machine::stolen_ns() - stolen_before_ns;
    let ended_ns = ns_since(start);
    while turn(&mut drive)? < ended_ns + margin_ns {}
    drive.drain()?;
    drive.times.iter_mut().flat_map(|times| times.drain(..)).for_each(|times| bins.add(times));
    let cpu_before = (cpu_killed_ns - cpu_began_ns) as f64 / (killed_ns - began_ns) as f64;
    Ok(Seen { bins, errors: drive.measure.figures(1.0).errors, cpu_before, cpu_ns, stolen_ns })
}

/// Gets objects of `lost`, one after another, and says when all are served again.
fn probe(
    settings: &RecoverySettings,
    cluster: &RecoveryCluster,
    (start, run): (Instant, u64),
    (died_ns, all_ns): (&AtomicU64, &AtomicU64),
    is_over: &AtomicBool,
) -> Result<Vec<Probe>, String> {
    let config = ClientConfig { call_timeout: PROBE_TIMEOUT, ..ClientConfig::default() };
    let (mut client, table) = cluster.client_of_lost(config)?;
    let mut dataset = Dataset::new(settings.objects(), settings.key_bytes, settings.value_bytes)?;
    let mut random = Rng::with_seed(settings.seed + run);
    let (mut probes, mut in_a_row, mut row_began_ns) = (Vec::new(), 0, 0);
    while !is_over.load(Ordering::Relaxed) {
        let at_ns = ns_since(start);
        let key = dataset.key(random.u64(..settings.objects())).to_vec();
        let is_served = match client.get(table, &key) {
            Ok(None) => return Err("an object is gone".into()),
            answer => answer.is_ok(),
        };
        probes.push((if is_served { ns_since(start) } else { at_ns }, is_served));
        if !is_served || at_ns < died_ns.load(Ordering::Relaxed) {
            in_a_row = 0;
        } else {
            if in_a_row == 0 {
                row_began_ns = ns_since(start);
            }
            in_a_row += 1;
            if in_a_row == SERVED_IN_A_ROW && all_ns.load(Ordering::Relaxed) == 0 {
                all_ns.store(row_began_ns, Ordering::Relaxed);
            }
        }
        thread::sleep(PROBE_EVERY);
    }
    Ok(probes)
}

/// Notes when the first recovery is recorded.
fn watch(
    cluster: &RecoveryCluster,
    start: Instant,
    (died_ns, detected_ns): (&AtomicU64, &AtomicU64),
    is_over: &AtomicBool,
) -> Result<(), String> {
    let (mut admin, victim) = cluster.admin()?;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(LOOK_EVERY);
        if died_ns.load(Ordering::Relaxed) == u64::MAX {
            continue;
        }
        let list = admin.migration_list().map_err(|error| format!("no migrations: {error}"))?;
        let is_recovery =
            |mode: MigrationMode, source: u32| mode == MigrationMode::Recovery && source == victim;
        if list.iter().any(|entry| is_recovery(entry.mode, entry.source)) {
            detected_ns.store(ns_since(start), Ordering::Relaxed);
            return Ok(());
        }
    }
    Ok(())
}

/// When the first get was answered after one that failed, behind the death.
fn first_answer(probes: &[Probe], died_ns: u64) -> Option<u64> {
    let mut behind = probes.iter().skip_while(|(at_ns, is_served)| *at_ns < died_ns || *is_served);
    behind.find(|(_, is_served)| *is_served).map(|(at_ns, _)| *at_ns)
}

/// The share of gets that were answered in each interval, in percent, by seconds since the death.
fn shares(probes: &[Probe], died_ns: u64) -> Vec<(f64, f64)> {
    let mut intervals: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for (at_ns, is_served) in probes {
        let (all, served) = intervals.entry(at_ns / INTERVAL_NS).or_default();
        (*all, *served) = (*all + 1, *served + u64::from(*is_served));
    }
    let at = |interval: u64| ((interval * INTERVAL_NS) as f64 - died_ns as f64) / 1e9;
    let share =
        |(interval, (all, served)): (u64, (u64, u64))| (at(interval), 100.0 * served as f64 / all as f64);
    intervals.into_iter().map(share).collect()
}

/// Looks at keys all over the table: what was acknowledged is there.
fn check(settings: &RecoverySettings, cluster: &RecoveryCluster) -> Result<(), String> {
    let (mut client, table) = cluster.client_of_lost(ClientConfig::default())?;
    let mut dataset = Dataset::new(settings.objects(), settings.key_bytes, settings.value_bytes)?;
    let step = (settings.objects() / CHECKED).max(1) as usize;
    for index in (0..settings.objects()).step_by(step) {
        let (key, value) = dataset.object(index);
        let (key, value) = (key.to_vec(), value.to_vec());
        let found = client.get(table, &key).map_err(|error| format!("object {index}: {error}"))?;
        if found.is_none_or(|found| found.value != value) {
            return Err(format!("object {index} is not as it was written"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{INTERVAL_NS, first_answer, shares};

    #[test]
    fn what_is_served_is_told_by_gets_behind_the_death() {
        let died_ns = 10 * INTERVAL_NS;
        let probes = [(9, true), (10, true), (11, false), (12, false), (13, true), (14, false), (15, true)];
        let probes = probes.map(|(at, is_served)| (at * INTERVAL_NS, is_served));
        assert_eq!(first_answer(&probes, died_ns), Some(13 * INTERVAL_NS));
        assert_eq!(first_answer(&probes[..4], died_ns), None);
        let found = shares(&[&probes[..], &[(15 * INTERVAL_NS + 5, false)]].concat(), died_ns);
        assert_eq!((found.len(), found[2]), (7, (0.1, 0.0)));
        assert_eq!(found[6], (0.5, 50.0));
    }
}
