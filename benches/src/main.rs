//! `splinter-bench`: loads a server with data and with requests, and prints figures as lines of JSON.
//!
//! Only wires the parts of the library together; see its head for what they are. Figures go to standard
//! output, everything for people to standard error.

use std::process::ExitCode;

use benches::clients;
use benches::command::{Command, Options};
use benches::density;
use benches::drive;
use benches::echo::{self, EchoSettings};
use benches::fairness;
use benches::fleet::{self, Fleet};
use benches::in_process;
use benches::loading;
use benches::machine::{self, Machine};
use benches::measure::Figures;
use benches::migration;
use benches::neighbour;
use benches::options::{Access, DataSettings, DurabilityOption, RunSettings};
use benches::placement;
use benches::plot;
use benches::recovery;
use benches::scan;
use benches::transports;
use benches::workload::{Generator, Target, Workload};
use clap::Parser;
use serde::Serialize;
use serde_json::json;

/// The settings of a run as they are printed.
#[derive(Serialize)]
struct PrintedSettings<'a> {
    #[serde(flatten)]
    data: &'a DataSettings,
    #[serde(flatten)]
    run: &'a RunSettings,
    cpu: Option<usize>,
    durability: DurabilityOption,
}

fn main() -> ExitCode {
    let done = match Options::parse().command {
        Command::Load { workload, access, data } => load(workload, &access, &data),
        Command::Run { workload, access, data, run } => measure(workload, &access, &data, &run),
        Command::Echo(settings) => bare_echo(&settings),
        Command::Neighbour(settings) => neighbour::run(&settings),
        Command::Density(settings) => density::run(&settings),
        Command::Fairness(settings) => fairness::run(&settings),
        Command::Store(settings) => in_process::run(&settings),
        Command::Scan(settings) => scan::run(&settings),
        Command::Clients(settings) => clients::run(&settings),
        Command::Placement(settings) => placement::run(&settings),
        Command::Migration(settings) => migration::run(&settings),
        Command::Recovery(settings) => recovery::run(&settings),
        Command::Transports(settings) => transports::run(&settings),
        Command::Plot(settings) => plot::points::run(&settings),
        Command::TransportsClient { settings } => transports::client::run(&settings),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("splinter-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn load(workload: Workload, access: &Access, data: &DataSettings) -> Result<(), String> {
    let table = fleet::table(access)?;
    loading::load(&mut Fleet::open(access, 1, false)?, table, workload, data).map(drop)
}

fn measure(
    workload: Workload,
    access: &Access,
    data: &DataSettings,
    run: &RunSettings,
) -> Result<(), String> {
    access.cpu.map_or(Ok(()), machine::pin)?;
    run.check()?;
    let table = fleet::table(access)?;
    let extension = workload.extension().map_or(Ok(0), |name| fleet::extension(access, name))?;
    let mut fleet = Fleet::open(access, run.sessions, run.sockets)?;
    let resident = || run.server_process.and_then(machine::resident_bytes);
    let before = resident();
    let loaded = if run.load { loading::load(&mut fleet, table, workload, data)? } else { 0 };
    let after = resident();

    let target = Target { table, extension, records: data.records, seed: run.seed };
    let generator = Generator::new(workload, target, data.dataset()?, run.zipf)?;
    let mut figures = drive::run(&mut fleet, generator, run)?;
    if let (Some(before), Some(after), 1..) = (before, after, loaded) {
        figures.bytes_per_object = Some(after.saturating_sub(before) as f64 / loaded as f64);
    }
    let (cpu, durability) = (access.cpu, access.durability);
    print(&workload, &PrintedSettings { data, run, cpu, durability }, &figures)
}

fn bare_echo(settings: &EchoSettings) -> Result<(), String> {
    print(&"echo", settings, &echo::run(settings)?)
}

fn print(workload: &impl Serialize, settings: &impl Serialize, figures: &Figures) -> Result<(), String> {
    let machine = Machine::read();
    let line = json!({ "workload": workload, "machine": machine, "settings": settings, "figures": figures });
    println!("{line}");
    let undisturbed = figures.undisturbed.as_ref().map_or_else(String::new, |rest| {
        let (p99, p999, out) = (rest.undisturbed_us_p99, rest.undisturbed_us_p999, rest.left_out_percent);
        format!("; without the {out:.1} % that were disturbed p99 {p99:.1} us, p99.9 {p999:.1} us")
    });
    eprintln!(
        "{:.0} requests/s, p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us{undisturbed}{}",
        figures.requests_per_second,
        figures.latency_us_p50,
        figures.latency_us_p99,
        figures.latency_us_p999,
        if figures.errors.is_empty() { String::new() } else { format!(", errors {:?}", figures.errors) }
    );
    Ok(())
}
