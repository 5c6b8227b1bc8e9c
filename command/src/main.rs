//! `splinter`: parses the command line, runs the command, prints the answer.
//!
//! Each command is a function from settings and options to an [`Answer`](output::Answer), printed as text or as JSON.
//! An error becomes a [`Failure`](failure::Failure), printed on standard error with a suggestion, and sets the exit
//! code.

mod archive;
mod audit;
mod bytes;
mod cluster;
mod demo;
mod extension;
mod failure;
mod grant;
mod graph;
mod hashes;
mod limits;
mod object;
mod options;
mod output;
mod pipeline;
mod server;
mod settings;
mod table;
mod tao;
mod tenant;
mod trace;
mod usage;

use clap::Parser;
use failure::Failure;
use options::{Command, Options, ServerCommand};
use output::{Answer, print_failure};
use settings::Settings;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    builder::child_main();
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => return usage::refused(error, std::env::args_os().collect()),
    };
    let output = options.global.output;
    match answer(options) {
        Ok(mut answer) => {
            let printed = answer.print(output);
            let Some(failure) = answer.take_failure().or(printed.err()) else { return ExitCode::SUCCESS };
            print_failure(&failure, output);
            failure.exit_code()
        }
        Err(failure) => {
            print_failure(&failure, output);
            failure.exit_code()
        }
    }
}

fn answer(options: Options) -> Result<Answer, Failure> {
    let settings = &Settings::read(&options.global)?.with_durability(options.command.durability());
    match options.command {
        Command::Tenant(command) => tenant::run(settings, command),
        Command::Table(command) => table::run(settings, command),
        Command::Archive(command) => archive::run(settings, command),
        Command::Get(options) => object::get(settings, &options),
        Command::Put(options) => object::put(settings, &options),
        Command::Delete(options) => object::delete(settings, &options),
        Command::Scan(options) => object::scan(settings, &options),
        Command::Increment { table, key, delta, float: None, .. } => {
            object::increment(settings, &table, &key, delta)
        }
        Command::Increment { table, key, float: Some(delta), .. } => {
            object::increment_float(settings, &table, &key, delta)
        }
        Command::Grant(command) => grant::run(settings, command),
        Command::Ext(command) => extension::run(settings, command),
        Command::Invoke { function, table, key, arguments, version, at, .. } => {
            extension::invoke(settings, &function, (&table, &key, &arguments), version, at)
        }
        Command::Trace(options) => trace::run(settings, &options),
        Command::Tao(command) => tao::run(settings, command),
        Command::Demo(options) => demo::run(settings, &options),
        Command::Ping { count } => server::ping(settings, count),
        Command::Stats { filter } => server::stats(settings, filter.as_deref()),
        Command::Server(ServerCommand::Wait { timeout, replayed }) => {
            server::wait(settings, Duration::from_millis(timeout.0), replayed)
        }
        Command::Session(command) => server::session(settings, command),
        Command::Cluster(command) => cluster::run(settings, command),
        Command::Audit { lines, follow } => audit::run(settings, lines, follow),
        Command::Completions { shell } => Ok(usage::completions(shell)),
        Command::Man { directory } => usage::man_pages(&directory),
    }
}
