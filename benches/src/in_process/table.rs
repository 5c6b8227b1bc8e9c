//! The table: the store beside the maps, reads and writes, one core and all.
//!
//! Every row of a run is measured by a process of its own; sides take turns.

use serde::{Deserialize, Serialize};

use crate::in_process::child;
use crate::in_process::open;
use crate::in_process::rate::{self, StoreRate, Work};
use crate::in_process::settings::{Part, StoreSettings};
use crate::in_process::side::{Kind, SPLINTER};
use crate::machine;
use crate::report::{self, Report, Spread};

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
            let row: SideRow = child::call(settings, &format!("{part:?}:{side}:{numbers}"), huge_heap)?;
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
    let load = rate::load(&*side, numbers, settings.batch);
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
    child::answer(&SideRow {
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
    let heads = [
        "side",
        "get, one core",
        "get, all",
        &format!("{write}, one core"),
        &format!("{write}, all"),
        "load",
        "B each",
        "huge",
    ];
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
