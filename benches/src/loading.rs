//! Writes the data of a workload, and says how far it is.
//!
//! Loading is idempotent: the same objects under the same keys, so a load that was broken off is begun
//! again. Progress goes to standard error, a line that is overwritten on a terminal and one at the end
//! elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use client::{CompletionError, Condition, Request, Status};
use tao::bulk::Put;

use crate::dataset::{LISTS, graph_records, list_key, list_value};
use crate::fleet::Fleet;
use crate::options::DataSettings;
use crate::workload::Workload;

/// Puts that are outstanding while loading.
const OUTSTANDING: usize = 128;

/// Between two looks at the progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Loads what `workload` asks for into `table`, over the first session, and returns the number of objects.
pub fn load(
    fleet: &mut Fleet,
    table: u32,
    workload: Workload,
    settings: &DataSettings,
) -> Result<u64, String> {
    let mut data = settings.dataset()?;
    let mut objects = 0;
    if workload.uses_dataset() {
        objects += put_all(fleet, table, "loading objects", settings.keys, |index| vec![data.record(index)])?;
    }
    if workload == Workload::Aggregate {
        objects += put_all(fleet, table, "loading lists", LISTS, |list| {
            let key = list_key(settings.records, list).to_vec();
            vec![Put { key, value: list_value(&mut data, settings.records, list) }]
        })?;
    }
    if workload == Workload::Tao {
        objects += put_all(fleet, table, "loading a graph", settings.keys, |id| {
            graph_records(id, settings.keys, settings.value_bytes, settings.edge_bytes)
        })?;
    }
    Ok(objects)
}

/// Writes the records of the items `0..items`, over the first session, and returns their number.
pub fn put_all(
    fleet: &mut Fleet,
    table: u32,
    what: &str,
    items: u64,
    mut records: impl FnMut(u64) -> Vec<Put>,
) -> Result<u64, String> {
    let mut loading = Loading { fleet, outstanding: 0, failure: None };
    let (mut progress, mut objects) = (Progress::new(what, items), 0);
    for item in 0..items {
        for Put { key, value } in &records(item) {
            while loading.outstanding >= OUTSTANDING {
                loading.poll()?;
            }
            let request = Request::Put { table, key, value, condition: Condition::Always };
            while !loading.fleet.submit(0, &request, 0)? {
                loading.poll()?;
            }
            loading.outstanding += 1;
            objects += 1;
        }
        if item.is_multiple_of(1024) {
            progress.show(item);
        }
    }
    while loading.outstanding > 0 {
        loading.poll()?;
    }
    progress.end(items);
    Ok(objects)
}

struct Loading<'a> {
    fleet: &'a mut Fleet,
    outstanding: usize,
    failure: Option<String>,
}

impl Loading<'_> {
    fn poll(&mut self) -> Result<(), String> {
        let Self { fleet, outstanding, failure } = self;
        fleet.poll(&mut |_, completion| {
            *outstanding -= 1;
            if completion.status != Ok(Status::Ok) {
                failure.get_or_insert_with(|| explain(completion.status));
            }
        })?;
        failure.take().map_or(Ok(()), Err)
    }
}

fn explain(status: Result<Status, CompletionError>) -> String {
    match status {
        Ok(Status::OutOfMemory) => "the store is full: start the server with more --memory".into(),
        Ok(status) => format!("a put was refused: {status}"),
        Err(error) => format!("a put got no answer: {error}"),
    }
}

/// The progress line of some work on many items.
pub struct Progress<'a> {
    what: &'a str,
    items: u64,
    start: Instant,
    shown: Instant,
    terminal: bool,
}

impl<'a> Progress<'a> {
    /// Of work that begins now.
    pub fn new(what: &'a str, items: u64) -> Self {
        let now = Instant::now();
        Self { what, items, start: now, shown: now, terminal: std::io::stderr().is_terminal() }
    }

    /// Shows on a terminal that so many items are done, unless it was shown a moment ago.
    pub fn show(&mut self, done: u64) {
        if self.terminal && self.shown.elapsed() >= PROGRESS_EVERY {
            self.shown = Instant::now();
            let seconds = self.start.elapsed().as_secs_f64();
            let (rate, left) = (done as f64 / seconds, self.items.saturating_sub(done) as f64);
            let left = left * seconds / done.max(1) as f64;
            eprint!("\r{}: {done} of {}, {rate:.0} a second, {left:.0} s left ", self.what, self.items);
            // A progress line that cannot be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    }

    /// Says how many were done, and how long it took.
    pub fn end(&self, done: u64) {
        let seconds = self.start.elapsed().as_secs_f64();
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}{}: {done} in {seconds:.1} s", self.what);
    }
}
