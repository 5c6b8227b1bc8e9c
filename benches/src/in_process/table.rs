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
use crate::in_process::side::{BATCH_MAX, Kind, SPLINTER, Side, Worker};
use crate::machine;
use crate::report::{self, Report, Spread};

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

/// The rows of one side, summed up.
#[derive(Serialize)]
struct SideSummary {
    part: Part,
    side: String,
    numbers: u64,
    reads: [Spread; 2],
    writes: [Spread; 2],
    load: Spread,
    resident_bytes: Spread,
    huge_percent: Spread,
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
    let mut rows: Vec<Vec<SideRow>> = vec![Vec::new(); settings.sides.len()];
    for run in 0..settings.runs {
        for (side, rows) in settings.sides.iter().zip(&mut rows) {
            let huge_heap = side != SPLINTER && !settings.maps_small_pages;
            let row: SideRow = call(settings, &format!("{part:?}:{side}:{numbers}"), huge_heap)?;
            eprintln!("{side}: reads {:.2} M/s, writes {:.2} M/s", row.reads[0] / 1e6, row.writes[0] / 1e6);
            report.line(Some(run), settings, &row)?;
            rows.push(row);
        }
    }
    let summaries: Vec<SideSummary> = rows.iter().map(|rows| SideSummary::of(part, rows)).collect();
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
    let rate = |cores| StoreRate {
        numbers,
        batch: settings.batch,
        seconds: settings.seconds,
        cores,
        seed: settings.seed,
    };
    let both = |work| {
        let one = rate(&settings.cores[..1]).measure(&*side, work)?;
        Ok::<_, String>([one, rate(&settings.cores).measure(&*side, work)?])
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

impl SideSummary {
    fn of(part: Part, rows: &[SideRow]) -> Self {
        let spread = |figure: &dyn Fn(&SideRow) -> f64| Spread::of(rows.iter().map(figure));
        Self {
            part,
            side: rows[0].side.clone(),
            numbers: rows[0].numbers,
            reads: [spread(&|row| row.reads[0]), spread(&|row| row.reads[1])],
            writes: [spread(&|row| row.writes[0]), spread(&|row| row.writes[1])],
            load: spread(&|row| row.load),
            resident_bytes: spread(&|row| row.resident_bytes),
            huge_percent: spread(&|row| row.huge_percent),
        }
    }

    fn cells(&self) -> Vec<String> {
        let millions = |spread: &Spread| {
            let Spread { median, least, most } = spread;
            format!("{:.2} ({:.2}-{:.2})", median / 1e6, least / 1e6, most / 1e6)
        };
        vec![
            self.side.clone(),
            millions(&self.reads[0]),
            millions(&self.reads[1]),
            millions(&self.writes[0]),
            millions(&self.writes[1]),
            millions(&self.load),
            format!("{:.0}", self.resident_bytes.median),
            format!("{:.0} %", self.huge_percent.median),
        ]
    }
}

fn show(part: Part, numbers: u64, summaries: &[SideSummary]) {
    let write = if part == Part::Objects { "put" } else { "increment" };
    let heads = format!("side|get, one core|get, all|{write}, one core|{write}, all|load|B each|huge");
    let mut rows: Vec<Vec<String>> = summaries.iter().map(SideSummary::cells).collect();
    if let Some((ours, maps)) = summaries.split_first()
        && ours.side == SPLINTER
        && !maps.is_empty()
    {
        let times = |figure: &dyn Fn(&SideSummary) -> f64| {
            let best = maps.iter().map(figure).fold(f64::MIN_POSITIVE, f64::max);
            format!("x {:.2}", figure(ours) / best)
        };
        rows.push(vec![
            "of the best map".into(),
            times(&|row| row.reads[0].median),
            times(&|row| row.reads[1].median),
            times(&|row| row.writes[0].median),
            times(&|row| row.writes[1].median),
            times(&|row| row.load.median),
        ]);
    }
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

/// One measurement.
#[derive(Clone, Copy, Debug)]
struct StoreRate<'a> {
    /// Numbers are drawn from below this.
    numbers: u64,
    /// How many are handed over together.
    batch: usize,
    /// How long.
    seconds: f64,
    /// Where each thread runs; as many threads as cores.
    cores: &'a [usize],
    /// Seed of the choices.
    seed: u64,
}

impl StoreRate<'_> {
    /// Operations a second of all threads together.
    fn measure(&self, side: &dyn Side, work: Work) -> Result<f64, String> {
        assert!((1..=BATCH_MAX).contains(&self.batch), "a batch has a length");
        let barrier = Barrier::new(self.cores.len());
        std::thread::scope(|scope| {
            let start = |(index, &core): (usize, &usize)| {
                let barrier = &barrier;
                let body = move || {
                    let pinned = machine::pin(core);
                    let mut worker = side.worker(index);
                    barrier.wait();
                    pinned?;
                    self.drive(&mut *worker, work, self.seed + index as u64)
                };
                scope.spawn(body)
            };
            let threads: Vec<_> = self.cores.iter().enumerate().map(start).collect();
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?);
            joined.sum::<Result<f64, String>>()
        })
    }

    fn drive(&self, worker: &mut dyn Worker, work: Work, seed: u64) -> Result<f64, String> {
        let mut random = Rng::with_seed(seed);
        let mut numbers = [0; BATCH_MAX];
        let numbers = &mut numbers[..self.batch];
        let (start_ns, length_ns) = (machine::own_cpu_ns(), (self.seconds * 1e9) as u64);
        let (mut done, mut missing) = (0_u64, 0_u64);
        loop {
            for _ in 0..BATCHES_PER_LOOK {
                numbers.iter_mut().for_each(|number| *number = random.u64(0..self.numbers));
                match work {
                    Work::Read => missing += (self.batch - worker.read(numbers)) as u64,
                    Work::Write => worker.write(numbers),
                }
                done += self.batch as u64;
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
}

/// Writes all numbers once, in order, and settles; returns writes a second.
fn load(side: &dyn Side, numbers: u64, batch: usize) -> f64 {
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
