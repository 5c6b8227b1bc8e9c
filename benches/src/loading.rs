//! Writes the data of a workload, and says how far it is.
//!
//! Loading is idempotent: the same objects under the same keys, so a load that was broken off is begun
//! again. Progress goes to standard error, a line that is overwritten on a terminal and one at the end
//! elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use client::{CompletionError, Condition, Request, Status};
use tao::bulk::Put;

use crate::dataset::Dataset;
use crate::fleet::Fleet;
use crate::options::DataSettings;
use crate::workload::Workload;
use crate::{graph, lists};

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
    let mut data = Dataset::new(settings.keys, settings.key_bytes, settings.value_bytes)?;
    let mut loading = Loading { fleet, table, outstanding: 0, objects: 0, failure: None };
    if workload.uses_dataset() {
        loading.all("objects", settings.keys, |index| {
            let (key, value) = data.object(index);
            vec![Put { key: key.to_vec(), value: value.to_vec() }]
        })?;
    }
    if workload == Workload::Aggregate {
        loading.all("lists", lists::LISTS, |list| {
            vec![Put {
                key: lists::key(settings.records, list).to_vec(),
                value: lists::value(&mut data, settings.records, list),
            }]
        })?;
    }
    if workload == Workload::Tao {
        loading.all("graph objects", settings.keys, |id| {
            graph::records(id, settings.keys, settings.value_bytes, settings.edge_bytes)
        })?;
    }
    Ok(loading.objects)
}

struct Loading<'a> {
    fleet: &'a mut Fleet,
    table: u32,
    outstanding: usize,
    objects: u64,
    failure: Option<String>,
}

impl Loading<'_> {
    /// Writes the records of the items `0..items`.
    fn all(
        &mut self,
        what: &str,
        items: u64,
        mut records: impl FnMut(u64) -> Vec<Put>,
    ) -> Result<(), String> {
        let mut progress = Progress::new(what, items);
        for item in 0..items {
            for put in records(item) {
                while self.outstanding >= OUTSTANDING {
                    self.poll()?;
                }
                let Put { key, value } = &put;
                let request = Request::Put { table: self.table, key, value, condition: Condition::Always };
                while !self.fleet.submit(0, &request, 0)? {
                    self.poll()?;
                }
                self.outstanding += 1;
                self.objects += 1;
            }
            progress.show(item);
        }
        while self.outstanding > 0 {
            self.poll()?;
        }
        progress.end();
        Ok(())
    }

    fn poll(&mut self) -> Result<(), String> {
        let Self { fleet, outstanding, failure, .. } = self;
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

/// The progress line.
struct Progress<'a> {
    what: &'a str,
    items: u64,
    start: Instant,
    shown: Instant,
    terminal: bool,
}

impl<'a> Progress<'a> {
    fn new(what: &'a str, items: u64) -> Self {
        let now = Instant::now();
        Self { what, items, start: now, shown: now, terminal: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, item: u64) {
        if item.is_multiple_of(1024) && self.terminal && self.shown.elapsed() >= PROGRESS_EVERY {
            self.shown = Instant::now();
            let seconds = self.start.elapsed().as_secs_f64();
            eprint!(
                "\rloading {}: {} of {}, {:.0} a second, {:.0} s left ",
                self.what,
                item,
                self.items,
                item as f64 / seconds,
                seconds / (item + 1) as f64 * (self.items - item) as f64
            );
            // A progress line that cannot be shown is no reason to stop.
            let _ = std::io::stderr().flush();
        }
    }

    fn end(&self) {
        let seconds = self.start.elapsed().as_secs_f64();
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        eprintln!("{clear}loaded {} {} in {seconds:.1} s", self.items, self.what);
    }
}
