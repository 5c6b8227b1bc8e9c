//! The interfaces of the client beside each other, in one run: gets by a session and by the async client, and transactions.
//!
//! A transaction reads four objects and overwrites two of them: two round trips, one for the reads together, one for the
//! commit. It is run by the blocking client, one at a time; by many tasks of the async client; and by a loop over a session that
//! does nothing else ([`pipelined`]), which shows what the server's core can do. The server is pinned to one core, the load to
//! another; the async client runs on a runtime of one thread.

mod pipelined;
mod tasks;

use std::time::{Duration, Instant};

use clap::Args;
use client::Client;
use fastrand::Rng;
use serde::Serialize;

use crate::dataset::{Dataset, index_of};
use crate::drive::Drive;
use crate::fleet::{self, Fleet};
use crate::loading;
use crate::machine;
use crate::measure::{Figures, Measure};
use crate::options::{Access, DataSettings, PairSettings, check_runs};
use crate::process::Folder;
use crate::report::{self, Figure, Report, Rows, Spreads, heads, median, range, yes_or_no};
use crate::server::{Launch, OurServer};
use crate::workload::{Generator, Target, Workload};

/// Objects that a transaction reads.
const READS: usize = 4;
/// Objects that it overwrites, the first of those that it has read.
const WRITES: usize = 2;
/// Requests, or transactions, of a load that pipelines.
const OUTSTANDING: usize = 64;

/// The options of `splinter-bench clients`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct ClientsSettings {
    /// Number of objects.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: u64,
    /// Bytes of a key.
    #[arg(long, default_value_t = 30)]
    pub key_bytes: usize,
    /// Bytes of a value.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Cores, runs and the server.
    #[command(flatten)]
    #[serde(flatten)]
    pub pair: PairSettings,
}

/// Who asks for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Interface {
    GetBySession,
    GetByTasks,
    TransactionByClient,
    TransactionBySession,
    TransactionByTasks,
}

/// A row of the table: its name, who asks, and how many requests or transactions are outstanding.
#[derive(Clone, Copy, Debug)]
struct ClientsCase(&'static str, Interface, usize);

const CASES: &[ClientsCase] = &[
    ClientsCase("get, session", Interface::GetBySession, 1),
    ClientsCase("get, async client", Interface::GetByTasks, 1),
    ClientsCase("transaction, blocking client", Interface::TransactionByClient, 1),
    ClientsCase("get, session", Interface::GetBySession, OUTSTANDING),
    ClientsCase("get, async client", Interface::GetByTasks, OUTSTANDING),
    ClientsCase("transaction, session", Interface::TransactionBySession, OUTSTANDING),
    ClientsCase("transaction, async client", Interface::TransactionByTasks, OUTSTANDING),
];

/// What one case did in one run.
#[derive(Debug, Serialize)]
struct ClientsRow {
    case: &'static str,
    interface: Interface,
    outstanding: usize,
    #[serde(flatten)]
    figures: Figures,
}

const FIGURES: &[Figure<ClientsRow>] = &[
    range("per_second", "a second", 0, |row| row.figures.requests_per_second),
    median("us_p50", "p50 us", 1, |row| row.figures.latency_us_p50),
    median("us_p99", "p99 us", 1, |row| row.figures.latency_us_p99),
];

/// A bound of a figure: what it is of, the bound, and whether it is a lower one.
struct Bound(&'static str, f64, bool);

/// Where the load goes, and for how long.
struct ClientsLoad<'l> {
    access: &'l Access,
    table: u32,
    settings: &'l ClientsSettings,
    seed: u64,
}

/// Measures, and prints the table.
pub fn run(settings: &ClientsSettings) -> Result<(), String> {
    check_runs(settings.pair.runs, settings.pair.seconds)?;
    let mut report = Report::open("clients", settings.pair.out.as_deref())?;
    machine::pin(settings.pair.server_cpu)?;
    let folder = Folder::make("clients")?;
    let memory_mib = (settings.keys * (settings.key_bytes + settings.value_bytes + 150) as u64 * 3) >> 20;
    let launch = Launch::new("server", settings.pair.server.as_deref(), memory_mib.max(256));
    let server = OurServer::start(&folder, &launch)?;
    machine::pin(settings.pair.cpu)?;
    let mut access = server.tenant("bench", "objects")?;
    access.durability = settings.pair.durability;
    let table = fleet::table(&access)?;
    let data = DataSettings::plain(settings.keys, settings.key_bytes, settings.value_bytes);
    loading::load(&mut Fleet::open(&access, 1, false)?, table, Workload::Get, &data)?;
    let rows = report.rounds(settings.pair.runs, settings, CASES.iter().copied(), |case, run| {
        let ClientsCase(name, interface, outstanding) = *case;
        let load = ClientsLoad { access: &access, table, settings, seed: settings.pair.seed + run as u64 };
        let figures = load.measure(interface, outstanding)?;
        if !figures.errors.is_empty() {
            return Err(format!("{name} went wrong: {:?}", figures.errors));
        }
        Ok(ClientsRow { case: name, interface, outstanding, figures })
    })?;
    show(&rows, settings, &mut report)
}

impl ClientsLoad<'_> {
    fn measure(&self, interface: Interface, outstanding: usize) -> Result<Figures, String> {
        match interface {
            Interface::GetBySession => self.gets(outstanding),
            Interface::GetByTasks => tasks::gets(self, outstanding),
            Interface::TransactionByClient => self.transactions(),
            Interface::TransactionBySession => pipelined::transactions(self, outstanding),
            Interface::TransactionByTasks => tasks::transactions(self, outstanding),
        }
    }

    fn data(&self) -> Result<Dataset, String> {
        Dataset::new(self.settings.keys, self.settings.key_bytes, self.settings.value_bytes)
    }

    /// When measuring begins, and when it ends.
    fn window(&self) -> (Instant, Instant) {
        let seconds = Duration::from_secs_f64(self.settings.pair.seconds);
        let begin = Instant::now() + seconds / 5;
        (begin, begin + seconds)
    }

    fn gets(&self, outstanding: usize) -> Result<Figures, String> {
        let mut fleet = Fleet::open(self.access, 1, true)?;
        let target = Target { table: self.table, extension: 0, records: 1, seed: self.seed };
        let generator = Generator::new(Workload::Get, target, self.data()?, 0.0)?;
        let mut drive = Drive::new(&mut fleet, generator, outstanding, Instant::now());
        let seconds = self.settings.pair.seconds;
        let measured = drive.warm_up_and_measure(seconds / 5.0, seconds)?;
        let figures = drive.measure.figures(measured);
        drive.drain()?;
        Ok(figures)
    }

    fn transactions(&self) -> Result<Figures, String> {
        let mut client: Client = self.access.connect()?;
        let mut draw = Draw::new(self.data()?, self.seed);
        let (mut measure, (begin, end)) = (Measure::default(), self.window());
        let mut drawn = draw.begin();
        loop {
            draw.again(&mut drawn);
            let begun = Instant::now();
            if begun >= end {
                return Ok(measure.figures((end - begin).as_secs_f64()));
            }
            let DrawnKeys { indices, keys, value } = &mut drawn;
            let indices = &*indices;
            let keys: [&[u8]; READS] = std::array::from_fn(|at| keys[at].as_slice());
            let done = client.transaction(|tx| {
                let right = are_right(&tx.multi_get(self.table, &keys)?, indices);
                for (key, index) in keys.iter().zip(indices).take(WRITES) {
                    value[..8].copy_from_slice(&index.to_le_bytes());
                    tx.put(self.table, key, value);
                }
                Ok(right)
            });
            if begun >= begin {
                note(&mut measure, Some(begun), done);
            }
        }
    }
}

/// Draws the keys of requests, and of transactions: all different in each.
struct Draw {
    data: Dataset,
    random: Rng,
}

/// What a transaction is about.
struct DrawnKeys {
    indices: [u64; READS],
    keys: [Vec<u8>; READS],
    /// A value, whose index is still to be set.
    value: Vec<u8>,
}

impl Draw {
    fn new(data: Dataset, seed: u64) -> Self {
        Self { data, random: Rng::with_seed(seed) }
    }

    /// Draws an object; its index and its key.
    fn one(&mut self) -> (u64, &[u8]) {
        let index = self.random.u64(0..self.data.keys());
        (index, self.data.key(index))
    }

    /// Draws a transaction.
    fn begin(&mut self) -> DrawnKeys {
        let value = self.data.object(0).1.to_vec();
        let mut drawn = DrawnKeys { indices: [0; READS], keys: Default::default(), value };
        self.again(&mut drawn);
        drawn
    }

    /// Draws another one in its place.
    fn again(&mut self, drawn: &mut DrawnKeys) {
        let Self { data, random } = self;
        for at in 0..READS {
            let index = loop {
                let index = random.u64(0..data.keys());
                if !drawn.indices[..at].contains(&index) {
                    break index;
                }
            };
            drawn.indices[at] = index;
            drawn.keys[at].clear();
            drawn.keys[at].extend_from_slice(data.key(index));
        }
    }
}

/// Whether values are those of the objects that were asked for.
fn are_right(values: &[Option<Vec<u8>>], indices: &[u64; READS]) -> bool {
    values.len() == READS
        && values
            .iter()
            .zip(indices)
            .all(|(value, index)| value.as_deref().and_then(index_of) == Some(*index))
}

/// Counts a request or a transaction that ended now, with its time if it is known when it began.
fn note(measure: &mut Measure, begun: Option<Instant>, done: Result<bool, client::Error>) {
    match (done, begun) {
        (Ok(true), Some(begun)) => measure.answered(begun.elapsed().as_nanos() as u64, 1),
        (Ok(true), None) => measure.answered_untimed(1),
        (Ok(false), _) => measure.failed("WrongAnswer"),
        (Err(error), _) => measure.failed(&error.to_string()),
    }
}

fn show(
    rows: &[Rows<ClientsCase, ClientsRow>],
    settings: &ClientsSettings,
    report: &mut Report,
) -> Result<(), String> {
    let spreads: Vec<Spreads> = rows.iter().map(|row| Spreads::of(FIGURES, &row.rows)).collect();
    let mut lines = Vec::new();
    for (Rows { case: ClientsCase(name, interface, outstanding), .. }, spreads) in rows.iter().zip(&spreads) {
        report.line(
            None,
            settings,
            &ClientsSummary { case: name, interface: *interface, outstanding: *outstanding, spreads },
        )?;
        lines.push([vec![(*name).to_owned(), outstanding.to_string()], spreads.cells()].concat());
    }
    let title = format!(
        "{} objects, {} B key, {} B value, table {}, {} runs of {} s in turn; a transaction reads {READS} and writes {WRITES}",
        settings.keys,
        settings.key_bytes,
        settings.value_bytes,
        crate::options::name_of(&settings.pair.durability),
        settings.pair.runs,
        settings.pair.seconds
    );
    report::print(&title, &format!("|outstanding|{}", heads(FIGURES)), &lines);
    let of = |case: usize, name: &str| spreads[case].median(name);
    let targets = [
        (
            Bound("async client, 1 outstanding: p50 by that of a session, at most", 1.15, false),
            of(1, "us_p50") / of(0, "us_p50"),
        ),
        (
            Bound("async client, pipelined: rate by that of a session, at least", 0.8, true),
            of(4, "per_second") / of(3, "per_second"),
        ),
        (
            Bound("transaction, 1 outstanding: p50 by that of a get, at most", 2.2, false),
            of(2, "us_p50") / of(0, "us_p50"),
        ),
        (Bound("transactions a second, pipelined, at least", 150_000.0, true), of(5, "per_second")),
    ];
    for (Bound(what, bound, is_least), figure) in targets {
        let is_met = if is_least { figure >= bound } else { figure <= bound };
        println!("{what} {bound}: {figure:.2}, {}", yes_or_no(is_met));
    }
    Ok(())
}

/// The medians of a case.
#[derive(Serialize)]
struct ClientsSummary<'s> {
    case: &'static str,
    interface: Interface,
    outstanding: usize,
    #[serde(flatten)]
    spreads: &'s Spreads,
}
