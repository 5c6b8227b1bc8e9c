//! Metrics of one version's invocations: how they ended, how long they ran, what they used.
//!
//! ```text
//!   worker 0 ─▶ counters, histogram ─┐
//!   worker 1 ─▶ counters, histogram ─┼─ summed when the extension is described  ─▶ MeasuredSummary
//! ```
//! Each worker has its own cells, which only it writes, with a load and a store. They are allocated when it first ends
//! an invocation of this version; so there is no contention and no later allocation. Every end is counted. One of
//! [`crate::limits::INVOCATIONS_PER_TIMING`] is timed by the worker's [`Gauge`] in its last poll, plus the time charged
//! for earlier polls. The times exclude waiting, in queues or between polls.

use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use guest::cycles;
use store::prefetch_value;
use wire::Status;

use crate::limits::{CORES_MAX, INVOCATIONS_PER_TIMING, TIME_CYCLES_MAX, TIME_STEPS_PER_DOUBLING};
use crate::metrics::add_alone;

/// The outcomes of an invocation, as counters name them; the first is success.
pub const ENDS: [&str; 9] = [
    "ok",
    "application_error",
    "panicked",
    "out_of_memory",
    "stack_overflow",
    "killed",
    "conflict",
    "unknown_function",
    "other_error",
];

/// An invocation's usage other than time. Excludes tries before a conflicted commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Objects read, including absent ones.
    pub reads: u64,
    /// Bytes of their keys and values.
    pub read_bytes: u64,
    /// Objects to be written.
    pub writes: u64,
    /// Bytes of their keys and values.
    pub write_bytes: u64,
    /// Yields.
    pub yields: u64,
    /// Used-up slices.
    pub preemptions: u64,
    /// Commits that met a conflict and were retried.
    pub conflicts: u64,
}

/// One worker's cells for a [`Spent`].
#[derive(Debug, Default)]
struct SpentCells {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    yields: AtomicU64,
    preemptions: AtomicU64,
    conflicts: AtomicU64,
}

/// The counters of one worker.
///
/// The first line holds every cell that an `ok` end changes.
#[derive(Debug)]
#[repr(C, align(64))]
struct Cells {
    spent: SpentCells,
    ends: [AtomicU64; ENDS.len()],
    /// Calls up to the last timed one, and the time estimated for them.
    calls_estimated: AtomicU64,
    cycles_estimated: AtomicU64,
    timed: AtomicU64,
    timed_cycles: AtomicU64,
    times: [AtomicU32; STEPS],
    pushed_back: AtomicU64,
}

const _: () = assert!(offset_of!(Cells, ends) + size_of::<AtomicU64>() <= 64);

/// The metrics of one version's invocations.
#[derive(Debug)]
pub struct VersionMetrics {
    workers: [OnceLock<Box<Cells>>; CORES_MAX],
}

impl VersionMetrics {
    /// Creates metrics with all counts at zero.
    #[must_use]
    pub const fn new() -> Self {
        Self { workers: [const { OnceLock::new() }; CORES_MAX] }
    }

    /// Prefetches the pointer to a worker's cells.
    #[inline]
    pub fn prefetch_place(&self, worker: usize) {
        prefetch_value(&self.workers[worker]);
    }

    /// Prefetches the cells of a worker that every end changes.
    #[inline]
    pub fn prefetch(&self, worker: usize) {
        if let Some(cells) = self.workers[worker].get() {
            prefetch_value(&cells.spent);
        }
    }

    /// Counts an end on a worker; `cycles` is its run time if it was timed. An invocation that will be retried has not
    /// ended.
    #[inline]
    pub fn ended(&self, worker: usize, status: Status, cycles: Option<u64>, spent: &Spent) {
        let Some(end) = end_of(status) else { return };
        let Some(cells) = self.workers.get(worker) else { return };
        let cells = cells.get_or_init(Cells::new);
        add_alone(&cells.ends[end], 1);
        cells.spent.add(spent);
        if let Some(cycles) = cycles {
            cells.time(cycles);
        }
    }

    /// Counts an invocation on a worker that its client is to run; it has not ended.
    #[cold]
    pub fn pushed_back(&self, worker: usize) {
        if let Some(cells) = self.workers.get(worker) {
            add_alone(&cells.get_or_init(Cells::new).pushed_back, 1);
        }
    }

    /// Returns the sum over all workers.
    #[must_use]
    pub fn summary(&self) -> MeasuredSummary {
        let mut summary = MeasuredSummary::default();
        for cells in self.workers.iter().filter_map(OnceLock::get) {
            for (sum, count) in summary.ends.iter_mut().zip(&cells.ends) {
                *sum += count.load(Ordering::Relaxed);
            }
            summary.spent.include(&cells.spent);
            summary.pushed_back += cells.pushed_back.load(Ordering::Relaxed);
            summary.cycles_estimated += cells.cycles_estimated.load(Ordering::Relaxed);
            summary.timed += cells.timed.load(Ordering::Relaxed);
            summary.timed_cycles += cells.timed_cycles.load(Ordering::Relaxed);
            for (sum, count) in summary.times.iter_mut().zip(&cells.times) {
                *sum += u64::from(count.load(Ordering::Relaxed));
            }
        }
        summary
    }
}

impl Default for VersionMetrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Cells {
    #[cold]
    fn new() -> Box<Self> {
        Box::new(Self {
            spent: SpentCells::default(),
            ends: [const { AtomicU64::new(0) }; ENDS.len()],
            calls_estimated: AtomicU64::new(0),
            cycles_estimated: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            timed_cycles: AtomicU64::new(0),
            times: [const { AtomicU32::new(0) }; STEPS],
            pushed_back: AtomicU64::new(0),
        })
    }

    #[cold]
    fn time(&self, cycles: u64) {
        add_alone(&self.timed, 1);
        add_alone(&self.timed_cycles, cycles);
        let calls = self.ends.iter().map(|end| end.load(Ordering::Relaxed)).sum::<u64>();
        let before = self.calls_estimated.load(Ordering::Relaxed);
        self.calls_estimated.store(calls, Ordering::Relaxed);
        add_alone(&self.cycles_estimated, cycles.saturating_mul(calls.wrapping_sub(before)));
        let count = &self.times[step_of(cycles)];
        count.store(count.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }
}

impl SpentCells {
    /// Adds the usage. Most invocations use few of these counters; unused ones are not touched.
    #[inline]
    fn add(&self, spent: &Spent) {
        if spent.reads != 0 {
            add_alone(&self.reads, spent.reads);
            add_alone(&self.read_bytes, spent.read_bytes);
        }
        if spent.writes != 0 {
            add_alone(&self.writes, spent.writes);
            add_alone(&self.write_bytes, spent.write_bytes);
        }
        if spent.yields | spent.preemptions | spent.conflicts != 0 {
            add_alone(&self.yields, spent.yields);
            add_alone(&self.preemptions, spent.preemptions);
            add_alone(&self.conflicts, spent.conflicts);
        }
    }
}

impl Spent {
    fn include(&mut self, cells: &SpentCells) {
        self.reads += cells.reads.load(Ordering::Relaxed);
        self.read_bytes += cells.read_bytes.load(Ordering::Relaxed);
        self.writes += cells.writes.load(Ordering::Relaxed);
        self.write_bytes += cells.write_bytes.load(Ordering::Relaxed);
        self.yields += cells.yields.load(Ordering::Relaxed);
        self.preemptions += cells.preemptions.load(Ordering::Relaxed);
        self.conflicts += cells.conflicts.load(Ordering::Relaxed);
    }
}

/// Returns the position of a status in [`ENDS`]; `None` if it does not end an invocation.
#[inline]
fn end_of(status: Status) -> Option<usize> {
    Some(match status {
        Status::Ok => 0,
        Status::ExtensionError => 1,
        Status::ExtensionPanicked => 2,
        Status::ExtensionOutOfMemory => 3,
        Status::ExtensionStackOverflow => 4,
        Status::ExtensionKilled => 5,
        Status::Conflict => 6,
        Status::UnknownFunction => 7,
        // An action of the server says nothing about the invocation's code.
        Status::Retry | Status::Unavailable | Status::BadToken => return None,
        Status::StorageFull | Status::StorageFailed | Status::PushedBack => return None,
        _ => 8,
    })
}

/// The sum of all workers' counts of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredSummary {
    /// Invocations by outcome, in the order of [`ENDS`].
    pub ends: [u64; ENDS.len()],
    /// Their usage.
    pub spent: Spent,
    /// Invocations that their clients were to run.
    pub pushed_back: u64,
    /// Timed invocations.
    pub timed: u64,
    /// The cycles of the timed ones.
    pub timed_cycles: u64,
    /// The cycles of all calls up to the last timed one, each estimated as the next timed one. Only grows.
    pub cycles_estimated: u64,
    times: Vec<u64>,
}

impl Default for MeasuredSummary {
    fn default() -> Self {
        Self {
            ends: [0; ENDS.len()],
            spent: Spent::default(),
            pushed_back: 0,
            timed: 0,
            timed_cycles: 0,
            cycles_estimated: 0,
            times: vec![0; STEPS],
        }
    }
}

impl MeasuredSummary {
    /// Returns the number of ended invocations.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.ends.iter().sum()
    }

    /// Returns the number of invocations that did not end with success.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.ends[1..].iter().sum()
    }

    /// Returns the processor time of all invocations, in nanoseconds, estimated from the timed ones.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        let cycles = u128::from(self.timed_cycles) * u128::from(self.calls());
        cycles::to_ns((cycles / u128::from(self.timed.max(1))).try_into().unwrap_or(u64::MAX))
    }

    /// Returns the processor time of the timed invocations, in nanoseconds.
    #[must_use]
    pub fn timed_ns(&self) -> u64 {
        cycles::to_ns(self.timed_cycles)
    }

    /// Returns what was counted since `before`, an earlier summary of the same version: ends and times; the other counts are totals.
    #[must_use]
    pub fn since(mut self, before: &MeasuredSummary) -> MeasuredSummary {
        let counts = self.ends.iter_mut().zip(before.ends);
        let times = self.times.iter_mut().zip(before.times.iter().copied());
        counts.chain(times).for_each(|(count, before)| *count = count.saturating_sub(before));
        self.timed = self.timed.saturating_sub(before.timed);
        self.timed_cycles = self.timed_cycles.saturating_sub(before.timed_cycles);
        self
    }

    /// Returns how many of the timed invocations took longer than so many nanoseconds.
    #[must_use]
    pub fn slower_than(&self, ns: u64) -> u64 {
        let slow = self.times.iter().enumerate().filter(|(step, _)| cycles::to_ns(middle_of(*step)) > ns);
        slow.map(|(_, count)| count).sum()
    }

    /// Returns the time that `permille` of 1000 invocations do not exceed, in nanoseconds; 0 if none was timed.
    #[must_use]
    pub fn quantile_ns(&self, permille: u64) -> u64 {
        let timed: u64 = self.times.iter().sum();
        let rank = (timed * permille).div_ceil(1000).max(1);
        let mut below = 0;
        let reached = |count: &u64| {
            below += count;
            below >= rank
        };
        self.times.iter().position(reached).map_or(0, |step| cycles::to_ns(middle_of(step)))
    }
}

/// Chooses and times a sample of a worker's invocations.
///
/// One of [`INVOCATIONS_PER_TIMING`] on average, at random distances, by two readings of the cycle counter around the
/// poll that ends it.
#[derive(Debug)]
pub struct Gauge {
    /// Invocations until the next timed one.
    left: u32,
    /// Randomizes the distances, so that no pattern of calls stays unsampled.
    random: u32,
    /// The begin of the timed poll; 0 if none is timed.
    began: u64,
}

impl Gauge {
    /// Creates a gauge that times the first invocation.
    #[must_use]
    pub const fn new() -> Self {
        Self { left: 1, random: 1, began: 0 }
    }

    /// Notes that a poll begins.
    #[inline]
    pub fn begin(&mut self) {
        self.left -= 1;
        self.began = 0;
        if self.left == 0 {
            // Numerical Recipes' generator; its high bits give 1 to twice the mean less one.
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.left = 1 + (self.random >> 8) % (2 * INVOCATIONS_PER_TIMING - 1);
            self.began = cycles::now();
        }
    }

    /// Ends the poll of a finished invocation; returns its duration if it was timed.
    #[inline]
    pub fn end(&mut self) -> Option<u64> {
        match std::mem::take(&mut self.began) {
            0 => None,
            began => Some(cycles::now().wrapping_sub(began)),
        }
    }
}

impl Default for Gauge {
    fn default() -> Self {
        Self::new()
    }
}

const STEP_BITS: u32 = TIME_STEPS_PER_DOUBLING.trailing_zeros();

/// The steps of a histogram of times: a fixed number per doubling, so that each step covers a narrow range.
const STEPS: usize = ((TIME_CYCLES_MAX.trailing_zeros() - STEP_BITS + 1) as usize) * TIME_STEPS_PER_DOUBLING;

/// Returns the step of a number of cycles.
#[inline]
fn step_of(cycles: u64) -> usize {
    let cycles = cycles.min(TIME_CYCLES_MAX - 1);
    let shift = (u64::BITS - 1 - (cycles | (TIME_STEPS_PER_DOUBLING as u64)).leading_zeros()) - STEP_BITS;
    (shift as usize) * TIME_STEPS_PER_DOUBLING + (cycles >> shift) as usize
}

/// Returns the middle of a step, in cycles.
fn middle_of(step: usize) -> u64 {
    let shift = (step / TIME_STEPS_PER_DOUBLING).saturating_sub(1);
    let first = (step - shift * TIME_STEPS_PER_DOUBLING) as u64;
    (first << shift) + ((1 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use guest::cycles;
    use wire::Status;

    use super::{ENDS, Gauge, STEPS, Spent, VersionMetrics, middle_of, step_of};
    use crate::limits::INVOCATIONS_PER_TIMING;

    #[test]
    fn workers_are_added_up() {
        let metrics = VersionMetrics::new();
        for (worker, cycles) in [(0, 1_000), (1, 1_000), (1, 1_000), (63, 100_000)] {
            metrics.ended(worker, Status::Ok, Some(cycles), &Spent::default());
        }
        let spent = Spent { reads: 3, read_bytes: 40, writes: 0, conflicts: 1, ..Spent::default() };
        metrics.ended(0, Status::ExtensionPanicked, None, &spent);
        metrics.ended(0, Status::Retry, None, &spent);
        metrics.ended(999, Status::Ok, None, &spent);
        let summary = metrics.summary();
        assert_eq!((summary.calls(), summary.errors(), summary.timed), (5, 1, 4));
        assert_eq!(summary.ends[ENDS.iter().position(|end| *end == "panicked").expect("an end")], 1);
        assert_eq!((summary.spent, summary.pushed_back), (spent, 0));
        metrics.pushed_back(3);
        metrics.ended(3, Status::PushedBack, Some(500), &spent);
        assert_eq!((metrics.summary().pushed_back, metrics.summary().calls()), (1, 5));
        assert_eq!(summary.cycles_estimated, 103_000, "the last of worker 0 was not timed");
        metrics.ended(0, Status::Ok, Some(500), &Spent::default());
        assert_eq!(metrics.summary().cycles_estimated, 104_000, "two calls of 500");
        assert_eq!(summary.cpu_ns(), cycles::to_ns(103_000 * 5 / 4));
        let near =
            |found: u64, cycles: u64| found.abs_diff(cycles::to_ns(cycles)) * 10 <= cycles::to_ns(cycles);
        assert!(near(summary.quantile_ns(500), 1_000) && near(summary.quantile_ns(990), 100_000));
        assert_eq!(VersionMetrics::new().summary().quantile_ns(500), 0);
    }

    #[test]
    fn one_of_some_invocations_is_timed() {
        let mut gauge = Gauge::new();
        let mut timed = 0;
        let count = 100_000;
        for _ in 0..count {
            gauge.begin();
            timed += u32::from(gauge.end().is_some());
        }
        assert!(
            timed.abs_diff(count / INVOCATIONS_PER_TIMING) < count / INVOCATIONS_PER_TIMING / 10,
            "{timed}"
        );
        assert_eq!(gauge.end(), None, "a poll that did not begin has no time");
    }

    #[test]
    fn steps_grow_with_the_time_and_lie_close() {
        let mut last = 0;
        for cycles in 0..100_000 {
            let step = step_of(cycles);
            assert!(step == last || step == last + 1, "{cycles}");
            last = step;
        }
        for bits in 4..36 {
            for part in 16..32_u64 {
                let cycles = (part << bits) >> 4;
                let middle = middle_of(step_of(cycles));
                assert!(middle.abs_diff(cycles) * 16 <= cycles, "{middle} stands for {cycles}");
            }
        }
        assert_eq!(step_of(u64::MAX), STEPS - 1);
    }
}
