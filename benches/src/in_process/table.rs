//! The table: the store beside the maps, reads and writes, one core and all.
//!
//! Every row of a run is measured by a process of its own; sides take turns. Each thread is pinned to its core, draws
//! numbers and hands them over in batches for a given time; it looks at the clock every so many batches. All begin
//! together. Drawing and hashing are in the figure (3 and 5 ns of each). A second is one of the thread's own processor
//! time: what else runs on the machine takes less away from the figure, and on a quiet machine it is the same.

use std::sync::Barrier;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::in_process::open;
use crate::in_process::settings::{Part, StoreSettings, answer, call};
use crate::in_process::side::{Kind, SPLINTER, Side, Worker};
use crate::machine;
use crate::report::{self, Figure, Report, Rows, Spreads, heads, median, range};

/// Batches between two looks at the clock: some 0.1 ms.
const BATCHES_PER_LOOK: u32 = 32;

/// A row: one side with so many numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SideRow {
    side: String,
    numbers: u64,
    /// Operations a second: on one core, on all.
    reads: [f64; 2],
    writes: [f64; 2],
    /// Writes a second while it was filled.
    load: f64,
    /// Resident bytes that each number costs, right after loading.
    resident_bytes: f64,
    /// How much of what is resident is in huge pages.
    huge_percent: f64,
}

/// The figures of a side; operations in millions a second.
const FIGURES: &[Figure<SideRow>] = &[
    range("million_reads_one_core", "get, one core", 2, |row| row.reads[0] / 1e6),
    range("million_reads", "get, all", 2, |row| row.reads[1] / 1e6),
    range("million_writes_one_core", "write, one core", 2, |row| row.writes[0] / 1e6),
    range("million_writes", "write, all", 2, |row| row.writes[1] / 1e6),
    range("million_loads", "load", 2, |row| row.load / 1e6),
    median("resident_bytes", "B each", 0, |row| row.resident_bytes),
    median("huge_percent", "huge %", 0, |row| row.huge_percent),
];

/// The rows of one side, summed up.
#[derive(Serialize)]
struct SideSummary {
    part: Part,
    side: String,
    numbers: u64,
    #[serde(flatten)]
    figures: Spreads,
}

impl Part {
    fn kind(self) -> Kind {
        match self {
            Part::Counters => Kind::Counters,
            _ => Kind::Objects,
        }
    }

    fn title(self, numbers: u64) -> String {
        let millions = numbers as f64 / 1e6;
        let what = match self.kind() {
            Kind::Objects => "objects of 30 + 100 bytes",
            Kind::Counters => "counters of 8 + 8 bytes",
        };
        format!("{millions} M {what} (millions of operations a second)")
    }
}

/// Measures one table: every run, every side in turn; prints it.
pub fn run(settings: &StoreSettings, part: Part, numbers: u64, report: &mut Report) -> Result<(), String> {
    let rows = report.rounds(settings.runs, settings, settings.sides.clone(), |side, _| {
        let huge_heap = side != SPLINTER && !settings.maps_small_pages;
        let row: SideRow = call(settings, &format!("{part:?}:{side}:{numbers}"), huge_heap)?;
        eprintln!("{side}: reads {:.2} M/s, writes {:.2} M/s", row.reads[0] / 1e6, row.writes[0] / 1e6);
        Ok(row)
    })?;
    let summary = |Rows { case: side, rows }| {
        let figures = Spreads::of(FIGURES, &rows);
        SideSummary { part, side, numbers, figures }
    };
    let summaries: Vec<SideSummary> = rows.into_iter().map(summary).collect();
    for summary in &summaries {
        report.line(None, settings, summary)?;
    }
    show(part, numbers, &summaries);
    Ok(())
}

/// Measures one row, in a process of its own.
pub fn row(settings: &StoreSettings, part: Part, side_name: &str, numbers: u64) -> Result<(), String> {
    machine::pin(settings.cores[0])?;
    let cores = settings.cores.len();
    let before = machine::resident().bytes;
    let side = open(side_name, part.kind(), numbers, cores, settings.utilization)?;
    let load = load(&*side, numbers, settings.batch);
    let resident = machine::resident();
    let both = |work| {
        let one = rate(settings, &settings.cores[..1], numbers, (&*side, work))?;
        Ok::<_, String>([one, rate(settings, &settings.cores, numbers, (&*side, work))?])
    };
    side.touch_all()?;
    // Writes first: the log is then as it is after a while, not in the order of the numbers.
    let writes = both(Work::Write)?;
    let reads = both(Work::Read)?;
    answer(&SideRow {
        side: side_name.to_string(),
        numbers,
        reads,
        writes,
        load,
        resident_bytes: resident.bytes.saturating_sub(before) as f64 / numbers as f64,
        huge_percent: 100.0 * resident.huge_bytes as f64 / resident.bytes.max(1) as f64,
    })
}

fn show(part: Part, numbers: u64, summaries: &[SideSummary]) {
    let row = |summary: &SideSummary| [vec![summary.side.clone()], summary.figures.cells()].concat();
    let mut rows: Vec<Vec<String>> = summaries.iter().map(row).collect();
    if let Some((ours, maps)) = summaries.split_first()
        && ours.side == SPLINTER
        && !maps.is_empty()
    {
        let times = |figure: &Figure<SideRow>| {
            let of = |summary: &SideSummary| summary.figures.median(figure.name());
            let best = maps.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
            // Rates alone are compared; each has a column for least and most.
            match figure.name().starts_with("million") {
                true => vec![format!("x {:.2}", of(ours) / best), String::new()],
                false => vec![String::new()],
            }
        };
        let mut cells = vec!["of the best map".to_owned()];
        cells.extend(FIGURES.iter().flat_map(times));
        rows.push(cells);
    }
    let heads = format!("side|{}", heads(FIGURES));
    report::print(&part.title(numbers), &heads, &rows);
}

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Reads.
    Read,
    /// Writes over what is there.
    Write,
}

/// Returns operations a second of all threads, one on each core.
fn rate(
    settings: &StoreSettings,
    cores: &[usize],
    numbers: u64,
    (side, work): (&dyn Side, Work),
) -> Result<f64, String> {
    let barrier = Barrier::new(cores.len());
    std::thread::scope(|scope| {
        let start = |(index, &core): (usize, &usize)| {
            let barrier = &barrier;
            let body = move || {
                let pinned = machine::pin(core);
                let mut worker = side.worker(index);
                barrier.wait();
                pinned?;
                drive(settings, &mut *worker, work, numbers, settings.seed + index as u64)
            };
            scope.spawn(body)
        };
        let threads: Vec<_> = cores.iter().enumerate().map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?);
        joined.sum::<Result<f64, String>>()
    })
}

fn drive(
    settings: &StoreSettings,
    worker: &mut dyn Worker,
    work: Work,
    numbers: u64,
    seed: u64,
) -> Result<f64, String> {
    let mut random = Rng::with_seed(seed);
    let mut batch = vec![0; settings.batch];
    let (start_ns, length_ns) = (machine::own_cpu_ns(), (settings.seconds * 1e9) as u64);
    let (mut done, mut missing) = (0_u64, 0_u64);
    loop {
        for _ in 0..BATCHES_PER_LOOK {
            batch.iter_mut().for_each(|number| *number = random.u64(0..numbers));
            match work {
                Work::Read => missing += (batch.len() - worker.read(&batch)) as u64,
                Work::Write => worker.write(&batch),
            }
            done += batch.len() as u64;
        }
        let elapsed_ns = machine::own_cpu_ns() - start_ns;
        if missing > 0 {
            return Err(format!("{missing} of {done} reads found nothing, or the wrong value"));
        }
        if elapsed_ns >= length_ns {
            return Ok(done as f64 * 1e9 / elapsed_ns as f64);
        }
    }
}

/// Writes all numbers once, in order, and settles; returns writes a second.
pub fn load(side: &dyn Side, numbers: u64, batch: usize) -> f64 {
    let mut worker = side.worker(0);
    let start_ns = machine::own_cpu_ns();
    let mut chunk = Vec::with_capacity(batch);
    for first in (0..numbers).step_by(batch) {
        chunk.clear();
        chunk.extend(first..numbers.min(first + batch as u64));
        worker.write(&chunk);
    }
    let seconds = (machine::own_cpu_ns() - start_ns) as f64 / 1e9;
    worker.settle();
    numbers as f64 / seconds
}
