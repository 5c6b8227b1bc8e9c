//! One core at the source, one core at the target, by the size of objects.
//!
//! The source gathers pulls of all partitions in turn into a buffer that is used again, as one is that goes to a socket.
//! The target replays pulls that were gathered just before, as one that has come from a socket lies in the caches, and
//! does its background work after each. Both count the time that the thread ran; bytes are those that travel, headers
//! and padding included. Objects were put in an order that is not that of their hashes, and are many times what caches hold.

use std::sync::Arc;

use serde::Serialize;
use store::{
    Condition, Config, Core, Cursor, HashRange, Quota, ReplayError, Replayed, Store, Table, TableOptions,
    WriteError,
};

use crate::dataset::Dataset;
use crate::in_process::side::touch_all;
use crate::machine;
use crate::migration::{IsolatedSettings, MigrationRun};
use crate::plot::series::{self, Axes, Group};
use crate::report::{self, Figure, Report, Spreads, median};

/// What 128 bytes in all should come to, in MB/s: source, target.
const TARGETS_MB: (f64, f64) = (800.0, 400.0);
/// Bytes of a header in the log.
const HEADER_BYTES: usize = store::OBJECT_HEADER_BYTES;
/// Memory beside what objects take: log heads, reserve, indexes.
const ROOM_BYTES: usize = 256 << 20;

/// How it is measured.
pub type IsolatedRun = MigrationRun<IsolatedSettings>;

/// What a side did.
#[derive(Clone, Copy, Debug, Serialize)]
struct SideRate {
    mb_per_second: f64,
    objects_per_second: f64,
}

/// A size in a run.
#[derive(Clone, Debug, Serialize)]
struct IsolatedRow {
    value_bytes: usize,
    /// As an object travels.
    object_bytes: usize,
    objects: u64,
    source: SideRate,
    target: SideRate,
}

/// A source with its objects.
struct Loaded {
    core: Core,
    table: Arc<Table>,
}

/// Measures all sizes, prints the table, draws the plot.
pub fn run(settings: &IsolatedRun, report: &mut Report) -> Result<(), String> {
    settings.cpu.map_or(Ok(()), machine::pin)?;
    let mut rows = Vec::new();
    for &value_bytes in &settings.own.sizes {
        let loaded = load(settings, value_bytes)?;
        rows.extend(report.rounds(settings.runs, settings, [value_bytes], |_, _| {
            let row = measure(settings, value_bytes, &loaded)?;
            eprintln!(
                "{value_bytes} B: source {:.0} MB/s, target {:.0} MB/s",
                row.source.mb_per_second, row.target.mb_per_second
            );
            Ok(row)
        })?);
    }
    let rows: Vec<Vec<IsolatedRow>> = rows.into_iter().map(|size| size.rows).collect();
    show(settings, &rows);
    draw(&rows, report)
}

fn object_bytes(settings: &IsolatedRun, value_bytes: usize) -> usize {
    (HEADER_BYTES + settings.key_bytes + value_bytes).next_multiple_of(8)
}

fn store(memory_bytes: usize) -> Result<Arc<Store>, String> {
    let config = Config { memory_bytes, cores: 1, ..Config::default() };
    let store = Store::new(config).map_err(|error| error.to_string())?;
    touch_all(&store)?;
    Ok(store)
}

/// As much as objects of that size need.
fn memory_bytes(settings: &IsolatedRun) -> usize {
    (settings.megabytes << 20) * 5 / 4 + ROOM_BYTES
}

fn load(settings: &IsolatedRun, value_bytes: usize) -> Result<Loaded, String> {
    let objects = ((settings.megabytes << 20) / object_bytes(settings, value_bytes)) as u64;
    let mut dataset = Dataset::new(objects, settings.key_bytes, value_bytes)?;
    let store = store(memory_bytes(settings))?;
    let (core, table) = (store.core(0), store.table(1));
    for number in 0..objects {
        let (key, value) = dataset.object(number);
        let put = core.pin().put(&table, store::hash(key), key, value, Condition::Always);
        put.map_err(|error| format!("the source is full: {error}"))?;
        core.step();
    }
    while core.step() {}
    Ok(Loaded { core, table })
}

/// The pulls that all objects come in: partitions in turn, one pull each.
struct Pulls<'a> {
    loaded: &'a Loaded,
    bytes_max: usize,
    parts: Vec<(HashRange, Option<Cursor>)>,
    turn: usize,
}

impl<'a> Pulls<'a> {
    fn new(settings: &IsolatedRun, loaded: &'a Loaded, partitions: &[HashRange]) -> Self {
        let part = |&hashes: &HashRange| (hashes, Some(Cursor::before(hashes.first())));
        let parts = partitions.iter().map(part).collect();
        Pulls { loaded, bytes_max: settings.own.pull_bytes, parts, turn: 0 }
    }

    /// Gathers the next one; `None` where all is gathered.
    fn next(&mut self, pull: &mut Vec<u8>) -> Result<Option<(usize, HashRange, Option<Cursor>)>, String> {
        let count = self.parts.len();
        let due = (0..count).map(|behind| (self.turn + behind) % count);
        let Some(at) = due.into_iter().find(|&at| self.parts[at].1.is_some()) else { return Ok(None) };
        self.turn = at + 1;
        let (hashes, cursor) = self.parts[at];
        pull.clear();
        let Some(from) = cursor else { return Ok(None) };
        let pinned = self.loaded.core.pin();
        let next = pinned.gather(&self.loaded.table, from, hashes.last(), self.bytes_max, pull);
        self.parts[at].1 = next.map_err(|_| "the source's table is gone")?;
        Ok(Some((at, hashes, self.parts[at].1)))
    }
}

fn measure(settings: &IsolatedRun, value_bytes: usize, loaded: &Loaded) -> Result<IsolatedRow, String> {
    let objects = loaded.table.objects();
    let store = store(memory_bytes(settings))?;
    let options = TableOptions { objects_expected: objects, ..TableOptions::default() };
    let table = store.table_with(2, options, &Arc::new(Quota::new(1, u64::MAX)));
    table.expect_arrivals(settings.own.partitions, loaded.table.version_ceiling());
    let partitions = table.partitions();
    let source = gather_all(settings, loaded, &partitions)?;
    let (core, mut pulls) = (store.core(0), Pulls::new(settings, loaded, &partitions));
    let (mut pull, mut bytes, mut target_ns, mut replayed) = (Vec::new(), 0, 0, Replayed::default());
    while let Some((at, hashes, next)) = pulls.next(&mut pull)? {
        bytes += pull.len();
        let start_ns = machine::own_cpu_ns();
        let mut rest = &pull[..];
        replay(&core, &table, hashes, &mut rest, &mut replayed)?;
        let done = next.map_or(Some(hashes.last()), |next| next.done_to());
        if let Some(done) = done.filter(|&done| hashes.contains(done)) {
            table.arrived(at, done);
        }
        core.step();
        target_ns += machine::own_cpu_ns() - start_ns;
    }
    if replayed.stored != objects || table.objects() != objects || !table.is_complete() {
        return Err(format!("{objects} objects left, and {replayed:?} came"));
    }
    let target = rate(bytes, objects, target_ns);
    Ok(IsolatedRow {
        value_bytes,
        object_bytes: object_bytes(settings, value_bytes),
        objects,
        source,
        target,
    })
}

fn gather_all(settings: &IsolatedRun, loaded: &Loaded, partitions: &[HashRange]) -> Result<SideRate, String> {
    let mut pulls = Pulls::new(settings, loaded, partitions);
    let (mut pull, mut bytes) = (Vec::with_capacity(2 * settings.own.pull_bytes), 0);
    let start_ns = machine::own_cpu_ns();
    while pulls.next(&mut pull)?.is_some() {
        bytes += pull.len();
    }
    Ok(rate(bytes, loaded.table.objects(), machine::own_cpu_ns() - start_ns))
}

fn replay(
    core: &Core,
    table: &Table,
    hashes: HashRange,
    rest: &mut &[u8],
    replayed: &mut Replayed,
) -> Result<(), String> {
    loop {
        match core.pin().replay(table, hashes, rest, replayed) {
            Err(ReplayError::Refused(WriteError::Retry { .. })) => core.step(),
            done => return done.map_err(|error| error.to_string()),
        };
    }
}

fn rate(bytes: usize, objects: u64, ns: u64) -> SideRate {
    let seconds = ns.max(1) as f64 / 1e9;
    SideRate { mb_per_second: bytes as f64 / 1e6 / seconds, objects_per_second: objects as f64 / seconds }
}

/// The figures of a size.
const FIGURES: &[Figure<IsolatedRow>] = &[
    median("source_mb", "source MB/s", 0, |row| row.source.mb_per_second),
    median("source_objects", "M/s", 2, |row| row.source.objects_per_second / 1e6),
    median("target_mb", "target MB/s", 0, |row| row.target.mb_per_second),
    median("target_objects", "M/s", 2, |row| row.target.objects_per_second / 1e6),
];

fn show(settings: &IsolatedRun, rows: &[Vec<IsolatedRow>]) {
    let line = |runs: &Vec<IsolatedRow>| {
        let (row, figures) = (&runs[0], Spreads::of(FIGURES, runs));
        let is_asked = settings.key_bytes == 30 && row.object_bytes == 128;
        let times = |name: &str, target: f64| match is_asked {
            true => format!("{:.2} x", figures.median(name) / target),
            false => String::new(),
        };
        let mut cells = vec![format!("{} B", row.value_bytes), format!("{} B", row.object_bytes)];
        cells.extend(figures.cells());
        cells.insert(4, times("source_mb", TARGETS_MB.0));
        cells.push(times("target_mb", TARGETS_MB.1));
        cells
    };
    let rows: Vec<Vec<String>> = rows.iter().map(line).collect();
    let title =
        "Moving objects, one core at each side; MB/s as they travel, M/s objects, times what is asked";
    let heads = "value|object|source MB/s|M/s|of 800|target MB/s|M/s|of 400";
    report::print(title, heads, &rows);
}

fn draw(rows: &[Vec<IsolatedRow>], report: &Report) -> Result<(), String> {
    let Some(path) = report.plot("migration-isolated.svg") else { return Ok(()) };
    let groups: Vec<Group> = rows
        .iter()
        .map(|runs| Group {
            name: format!("{} B", runs[0].object_bytes),
            heights: ["source_mb", "target_mb"].map(|name| Spreads::of(FIGURES, runs).median(name)).to_vec(),
        })
        .collect();
    let axes = Axes {
        title: "Moving objects: one core at the source, one core at the target",
        x: "bytes of an object, header and key of 30 bytes included",
        y: "MB/s",
    };
    series::groups(&path, &axes, &["source: gather", "target: replay"], &groups)
}
