//! `splinter`: the command line of a Splinter server. See `command` for the commands.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    builder::child_main();
    command::run()
}
