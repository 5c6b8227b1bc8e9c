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

mod gauge;
mod histogram;
mod tally;

pub use gauge::Gauge;
pub use tally::MeasuredSummary;

use std::mem::offset_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use histogram::{STEPS, step_of};
use store::prefetch_value;
use wire::Status;

use crate::limits::CORES_MAX;
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

    /// Returns the sum over all workers.
    #[must_use]
    pub fn tally(&self) -> MeasuredSummary {
        let mut tally = MeasuredSummary::default();
        for cells in self.workers.iter().filter_map(OnceLock::get) {
            for (sum, count) in tally.ends.iter_mut().zip(&cells.ends) {
                *sum += count.load(Ordering::Relaxed);
            }
            tally.spent.include(&cells.spent);
            tally.cycles_estimated += cells.cycles_estimated.load(Ordering::Relaxed);
            tally.timed += cells.timed.load(Ordering::Relaxed);
            tally.timed_cycles += cells.timed_cycles.load(Ordering::Relaxed);
            for (sum, count) in tally.times.iter_mut().zip(&cells.times) {
                *sum += u64::from(count.load(Ordering::Relaxed));
            }
        }
        tally
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
        _ => 8,
    })
}

#[cfg(test)]
mod tests {
    use guest::cycles;
    use wire::Status;

    use super::{ENDS, Spent, VersionMetrics};

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
        let tally = metrics.tally();
        assert_eq!((tally.calls(), tally.errors(), tally.timed), (5, 1, 4));
        assert_eq!(tally.ends[ENDS.iter().position(|end| *end == "panicked").expect("an end")], 1);
        assert_eq!(tally.spent, spent);
        assert_eq!(tally.cycles_estimated, 103_000, "the last of worker 0 was not timed");
        metrics.ended(0, Status::Ok, Some(500), &Spent::default());
        assert_eq!(metrics.tally().cycles_estimated, 104_000, "two calls of 500");
        assert_eq!(tally.cpu_ns(), cycles::to_ns(103_000 * 5 / 4));
        let near =
            |found: u64, cycles: u64| found.abs_diff(cycles::to_ns(cycles)) * 10 <= cycles::to_ns(cycles);
        assert!(near(tally.quantile_ns(500), 1_000) && near(tally.quantile_ns(990), 100_000));
        assert_eq!(VersionMetrics::new().tally().quantile_ns(500), 0);
    }
}
