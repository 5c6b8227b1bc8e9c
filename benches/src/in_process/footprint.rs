//! How many bytes an object of 30 + 100 bytes takes when the log is 90 % live, index included.
//!
//! The store is filled, and then written over at random for twice its memory, so that the cleaner has been everywhere.
//! What counts is what the process has in memory then, all told. The index takes more for an object right after it has
//! grown than right before, so several numbers of objects are measured, a fifth apart.

use serde::{Deserialize, Serialize};
use store::{Config, Store};

use crate::in_process::settings::{Part, StoreSettings, answer, call};
use crate::in_process::side::{OBJECT_LOG_BYTES, put, touch_all};
use crate::machine;
use crate::report::{self, Report};

/// The live share of the log.
const UTILIZATION: f64 = 0.9;

/// The most bytes that an object may take.
const TARGET_BYTES: f64 = 182.0;

/// Numbers of objects, in percent of what is asked for.
const SIZES_PERCENT: [u64; 6] = [100, 104, 108, 113, 118, 123];

/// Bytes of a segment: small ones, so that the cleaner's reserve is a small part also of a few million objects.
const SEGMENT_BYTES: usize = 1 << 20;

/// What came out for one number of objects.
#[derive(Debug, Serialize, Deserialize)]
struct Footprint {
    objects: u64,
    /// Live share of the log.
    utilization: f64,
    /// Limit of log and index, for each object.
    limit_bytes: f64,
    /// Resident, for each object.
    resident_bytes: f64,
    /// Index, for each object.
    index_bytes: f64,
    /// Bytes that the cleaner copied for each byte written.
    copied: f64,
}

/// Measures, and prints the table.
pub fn run(settings: &StoreSettings, report: &mut Report) -> Result<(), String> {
    let mut rows = Vec::new();
    for percent in SIZES_PERCENT {
        let objects = settings.memory_objects * percent / 100;
        let row: Footprint = call(settings, &format!("{:?}:splinter:{objects}", Part::Memory), false)?;
        report.line(Some(0), settings, &row)?;
        rows.push(vec![
            format!("{objects}"),
            format!("{:.1} %", 100.0 * row.utilization),
            format!("{:.1}", row.index_bytes),
            format!("{:.1}", row.limit_bytes),
            format!("{:.1}", row.resident_bytes),
            format!("{:.2}", row.copied),
        ]);
    }
    let title = format!("Bytes of an object of 30 + 100 bytes (target: at most {TARGET_BYTES})");
    report::print(&title, "objects|live|index|limit|resident|copied/written", &rows);
    Ok(())
}

/// Measures one number of objects, in a process of its own.
pub fn row(settings: &StoreSettings, objects: u64) -> Result<(), String> {
    let before = machine::resident().bytes;
    // What the index will take is known when it is full: so a first store tells, a second is measured.
    let index_bytes = fill(objects, objects as usize * 2 * OBJECT_LOG_BYTES)?.statistics().index_bytes;
    let log_bytes = (objects as f64 * OBJECT_LOG_BYTES as f64 / UTILIZATION) as usize;
    let memory_bytes = (log_bytes + index_bytes as usize).next_multiple_of(SEGMENT_BYTES);
    let store = fill(objects, memory_bytes)?;
    touch_all(&store)?;
    let (core, table) = (store.core(0), store.table(1));
    let mut random = fastrand::Rng::with_seed(settings.seed);
    let (writes, copied_before) = (2 * memory_bytes / OBJECT_LOG_BYTES, store.statistics().bytes_relocated);
    for _ in 0..writes {
        put(&core, &table, random.u64(0..objects)).map_err(|error| error.to_string())?;
    }
    let resident = machine::resident().bytes.saturating_sub(before);
    let after = store.statistics();
    let each = |bytes: u64| bytes as f64 / objects as f64;
    answer(&Footprint {
        objects,
        utilization: after.object_bytes as f64 / (after.memory_bytes - after.index_bytes) as f64,
        limit_bytes: each(after.memory_bytes),
        resident_bytes: each(resident),
        index_bytes: each(after.index_bytes),
        copied: (after.bytes_relocated - copied_before) as f64 / (writes * OBJECT_LOG_BYTES) as f64,
    })
}

/// A store with so many objects.
fn fill(objects: u64, memory_bytes: usize) -> Result<std::sync::Arc<Store>, String> {
    let config = Config { memory_bytes, segment_bytes: SEGMENT_BYTES, ..Config::default() };
    let store = Store::new(config).map_err(|error| error.to_string())?;
    let (core, table) = (store.core(0), store.table(1));
    for number in 0..objects {
        put(&core, &table, number).map_err(|error| error.to_string())?;
    }
    while core.step() {}
    drop(core);
    Ok(store)
}
