//! The store alone, in this process, beside maps of the Rust world: `splinter-bench store`.
//!
//! [`side`] and [`maps`] are what is measured; [`table`] puts them beside each other, each row in a process of its own
//! ([`settings`]): sides take turns, none inherits the heap of another, and all of them get huge pages (ours by itself, the
//! maps' heap through the C library). [`footprint`] says how many bytes an object takes, [`waits`] how long a request waits
//! while the index grows or the cleaner runs, [`utilization`] and [`changing`] what happens when memory gets full.

pub mod changing;
pub mod footprint;
pub mod maps;
pub mod settings;
pub mod side;
pub mod table;
pub mod utilization;
pub mod waits;

use clap::ValueEnum;

use crate::in_process::settings::{Part, StoreSettings};
use crate::in_process::side::{Kind, SPLINTER, Side, Splinter};
use crate::report::Report;

/// Makes a side for so many numbers. `utilization` is the store's: the live share of its log when all are written.
pub fn open(
    name: &str,
    kind: Kind,
    numbers: u64,
    cores: usize,
    utilization: f64,
) -> Result<Box<dyn Side>, String> {
    match name {
        SPLINTER => Ok(Box::new(Splinter::new(kind, numbers, cores, utilization)?)),
        _ => maps::open(name, kind).ok_or_else(|| format!("there is no side {name}")),
    }
}

/// Measures, prints the tables, draws the plots.
pub fn run(settings: &StoreSettings) -> Result<(), String> {
    settings.check()?;
    if let Some(row) = &settings.row {
        return answer(settings, row);
    }
    let mut report = Report::open("store", settings.out.as_deref())?;
    for &part in &settings.parts {
        match part {
            Part::Objects => {
                for &objects in &settings.objects {
                    table::run(settings, part, objects, &mut report)?;
                }
            }
            Part::Counters => table::run(settings, part, settings.counters, &mut report)?,
            Part::Memory => footprint::run(settings, &mut report)?,
            Part::Growth => waits::growth(settings, &mut report)?,
            Part::Utilization => utilization::run(settings, &mut report)?,
            Part::Changing => changing::run(settings, &mut report)?,
            Part::Tail => waits::tail(settings, &mut report)?,
        }
    }
    Ok(())
}

/// In a process of its own: `row` is PART:SIDE:NUMBER.
fn answer(settings: &StoreSettings, row: &str) -> Result<(), String> {
    let words: Vec<&str> = row.split(':').collect();
    let [part, side, number] = words[..] else { return Err(format!("{row} is no row")) };
    let number = number.parse().map_err(|_| format!("{row} has no number"))?;
    match Part::from_str(part, true)? {
        Part::Memory => footprint::row(settings, number),
        Part::Changing => changing::row(settings, side, number),
        part => table::row(settings, part, side, number),
    }
}
