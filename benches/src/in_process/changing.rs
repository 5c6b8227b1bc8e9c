//! Memory under workloads whose sizes change (RAMCloud, TOCS'15, figure 7; Rumble, FAST'14): W1 to W8.
//!
//! A workload allocates objects of one distribution of sizes, deleting at random so that the live bytes stay the same;
//! then it deletes a share of what lives, and goes on with sizes of another distribution. An allocator that does not
//! move objects keeps holes of the old sizes. Shown is what the process has in memory at most, for each live byte of
//! keys and values: of the store, whose limit leaves the log 90 % live, and of a vector of boxes in the heap of the C
//! library. Every row runs in a process of its own.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use store::{Condition, Config, Core, Store, Table};

use crate::in_process::settings::{Part, StoreSettings, answer, call};
use crate::in_process::side::{SPLINTER, until_there_is_memory};
use crate::machine;
use crate::plot::series::{self, Axes, Group};
use crate::report::{self, Report};

/// Bytes of a key: the number.
const KEY_BYTES: usize = 8;

/// How often the live bytes are written before the sizes change, and after.
const WRITTEN_TIMES: usize = 5;

/// The live share of the log.
const UTILIZATION: f64 = 0.9;

/// What the index may take for an object at its emptiest, in bytes.
const INDEX_BYTES: usize = 17;

/// Bytes of a segment.
const SEGMENT_BYTES: usize = 1 << 20;

/// The other side: the heap of the C library.
const HEAP: &str = "heap";

/// A workload: sizes of values before and after, and the share that is deleted between, in percent.
struct ChangingWorkload {
    name: &'static str,
    before: Range<usize>,
    deleted_percent: usize,
    after: Range<usize>,
}

/// The workloads of the paper.
fn workloads() -> [ChangingWorkload; 8] {
    let workload =
        |name, before, deleted_percent, after| ChangingWorkload { name, before, deleted_percent, after };
    [
        workload("W1", 100..101, 0, 100..101),
        workload("W2", 100..101, 0, 130..131),
        workload("W3", 100..101, 90, 130..131),
        workload("W4", 100..151, 0, 200..251),
        workload("W5", 100..151, 90, 200..251),
        workload("W6", 100..201, 50, 1000..2001),
        workload("W7", 1000..2001, 90, 1500..2501),
        workload("W8", 50..151, 90, 5000..15_001),
    ]
}

/// What came out.
#[derive(Debug, Serialize, Deserialize)]
struct ChangingRow {
    workload: String,
    side: String,
    live_bytes: u64,
    /// Most that was resident.
    resident_bytes: u64,
    /// The same for each live byte.
    times: f64,
}

/// Measures, prints the table, draws the plot.
pub fn run(settings: &StoreSettings, report: &mut Report) -> Result<(), String> {
    let (mut groups, mut rows) = (Vec::new(), Vec::new());
    for (number, workload) in workloads().iter().enumerate() {
        let mut heights = Vec::new();
        for side in [SPLINTER, HEAP] {
            let row: ChangingRow = call(settings, &format!("{:?}:{side}:{number}", Part::Changing), false)?;
            eprintln!("{}, {side}: {:.2} bytes for a live one", workload.name, row.times);
            report.line(Some(0), settings, &row)?;
            heights.push(row.times);
        }
        let ChangingWorkload { name, before, deleted_percent, after } = workload;
        let sizes = |range: &Range<usize>| match range.len() {
            1 => range.start.to_string(),
            _ => format!("{}-{}", range.start, range.end - 1),
        };
        let mut cells =
            vec![(*name).to_string(), sizes(before), format!("{deleted_percent} %"), sizes(after)];
        cells.extend(heights.iter().map(|height| format!("{height:.2}")));
        rows.push(cells);
        groups.push(Group { name: (*name).to_string(), heights });
    }
    let heads = format!("workload|bytes before|deleted|bytes after|{SPLINTER}|{HEAP}");
    report::print("Resident bytes for each live byte while sizes change, at most", &heads, &rows);
    let Some(path) = report.plot("store-changing.svg") else { return Ok(()) };
    let axes = Axes {
        title: "Memory for each live byte of keys and values while sizes change",
        x: "workload",
        y: "resident bytes for a live one, at most",
    };
    let names = ["splinter, log 90 % live", "heap of the C library"];
    series::groups(&path, &axes, &names, &groups)
}

/// Measures one side of one workload, in a process of its own.
pub fn row(settings: &StoreSettings, side: &str, number: u64) -> Result<(), String> {
    let workloads = workloads();
    let workload = workloads.get(number as usize).ok_or("there are eight workloads")?;
    let live_bytes = settings.memory_objects as usize * 108 / 2;
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let mut books =
        Books::new(live_bytes / (KEY_BYTES + workload.before.start.min(workload.after.start)) + 1);
    let before = machine::resident().bytes;
    let most = if side == SPLINTER {
        play(workload, live_bytes, &mut random, &mut books, &mut Log::new(workload, live_bytes)?)?
    } else {
        play(workload, live_bytes, &mut random, &mut books, &mut Heap::default())?
    };
    let resident_bytes = most.saturating_sub(before);
    answer(&ChangingRow {
        workload: workload.name.into(),
        side: side.into(),
        live_bytes: live_bytes as u64,
        resident_bytes,
        times: resident_bytes as f64 / live_bytes as f64,
    })
}

/// What keeps values under numbers.
trait ValueKeeper {
    fn put(&mut self, number: u64, value: &[u8]) -> Result<(), String>;
    fn delete(&mut self, number: u64);
}

/// What is there, as the workload knows it; its memory is touched before anything is measured.
struct Books {
    /// Numbers with the lengths of their values.
    live: Vec<(u32, u32)>,
    /// Numbers of what was deleted, to be used again.
    free: Vec<u32>,
    /// Live bytes of keys and values.
    bytes: usize,
    /// The first number that was never used.
    next: u32,
}

impl Books {
    fn new(objects_max: usize) -> Self {
        let (mut live, mut free) = (vec![(1, 1); objects_max], vec![1; objects_max]);
        live.clear();
        free.clear();
        Self { live, free, bytes: 0, next: 0 }
    }

    fn delete(&mut self, random: &mut fastrand::Rng, keeper: &mut dyn ValueKeeper) {
        let (number, length) = self.live.swap_remove(random.usize(0..self.live.len()));
        keeper.delete(u64::from(number));
        self.free.push(number);
        self.bytes -= length as usize + KEY_BYTES;
    }

    fn put(&mut self, value: &[u8], keeper: &mut dyn ValueKeeper) -> Result<(), String> {
        let number = self.free.pop().unwrap_or(self.next);
        self.next = self.next.max(number + 1);
        self.live.push((number, value.len() as u32));
        self.bytes += value.len() + KEY_BYTES;
        keeper.put(u64::from(number), value)
    }
}

/// Plays a workload; returns the most that was resident.
fn play(
    workload: &ChangingWorkload,
    live_bytes: usize,
    random: &mut fastrand::Rng,
    books: &mut Books,
    keeper: &mut dyn ValueKeeper,
) -> Result<u64, String> {
    let value = vec![b'v'; workload.before.end.max(workload.after.end)];
    let mut most = 0;
    for (sizes, deleted_percent) in [(&workload.before, 0), (&workload.after, workload.deleted_percent)] {
        for _ in 0..books.live.len() * deleted_percent / 100 {
            books.delete(random, keeper);
        }
        let (mut written, mut looked_at) = (0, 0);
        while written < WRITTEN_TIMES * live_bytes {
            let length = random.usize(sizes.clone());
            while books.bytes + length + KEY_BYTES > live_bytes {
                books.delete(random, keeper);
            }
            books.put(&value[..length], keeper)?;
            written += length + KEY_BYTES;
            if written >= looked_at {
                looked_at = written + live_bytes / 10;
                most = most.max(machine::resident().bytes);
            }
        }
    }
    Ok(most.max(machine::resident().bytes))
}

/// The store.
struct Log {
    core: Core,
    table: Arc<Table>,
}

impl Log {
    fn new(workload: &ChangingWorkload, live_bytes: usize) -> Result<Self, String> {
        // Heads and index count: they are more for smaller objects.
        let smallest = KEY_BYTES + (workload.before.start + workload.before.end - 1) / 2;
        let objects = live_bytes / smallest;
        let padding = 4;
        let log_bytes = live_bytes + objects * (store::OBJECT_HEADER_BYTES + padding);
        let memory_bytes = (log_bytes as f64 / UTILIZATION) as usize + objects * INDEX_BYTES;
        let config = Config { memory_bytes, segment_bytes: SEGMENT_BYTES, ..Config::default() };
        let store = Store::new(config).map_err(|error| error.to_string())?;
        Ok(Self { core: store.core(0), table: store.table(1) })
    }
}

impl ValueKeeper for Log {
    fn put(&mut self, number: u64, value: &[u8]) -> Result<(), String> {
        let (core, key) = (&self.core, number.to_le_bytes());
        let hash = store::hash(&key);
        until_there_is_memory(core, || core.pin().put(&self.table, hash, &key, value, Condition::Always))
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn delete(&mut self, number: u64) {
        let key = number.to_le_bytes();
        let deleted = self.core.pin().delete(&self.table, store::hash(&key), &key, Condition::Always);
        assert!(deleted.is_ok(), "a delete needs no memory");
        self.core.step();
    }
}

/// Boxes in the heap.
#[derive(Default)]
struct Heap {
    values: Vec<Option<(u64, Box<[u8]>)>>,
}

impl ValueKeeper for Heap {
    fn put(&mut self, number: u64, value: &[u8]) -> Result<(), String> {
        let at = number as usize;
        if at >= self.values.len() {
            self.values.resize_with(at + 1, || None);
        }
        self.values[at] = Some((number, value.into()));
        Ok(())
    }

    fn delete(&mut self, number: u64) {
        self.values[number as usize] = None;
    }
}
