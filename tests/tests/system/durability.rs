//! Durable tables through real servers that crash: what was answered is there after a start, over full disks, damaged
//! files and servers that share a directory.
//!
//! A crash is `SIGKILL`: the kernel keeps what the server gave to it. What a device may forget is a matter of the tests of
//! `disk` and `db`, where it is simulated.

mod altering;
mod failed_disk;
mod full_disk;
mod load;
mod log_file;
mod model;
mod requests;
mod rounds;
mod soak;
mod starting;
mod starts;

use client::{Client, Durability, TableOptions};
use tests::server::{Server, Settings};

/// The log of durable tables in a data directory.
const LOG_FILE: &str = "log";

/// A server with small segments and these further arguments.
fn start(memory: &str, arguments: &[&str]) -> Server {
    Server::start_with(settings(memory, arguments))
}

fn settings(memory: &str, arguments: &[&str]) -> Settings {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    Settings { memory: memory.into(), segment: "1MiB".into(), arguments, ..Settings::default() }
}

/// Creates a table.
fn create(client: &mut Client, name: &str, durability: Durability, ordered: bool) -> u32 {
    let options = TableOptions { ordered, durability: Some(durability), ..TableOptions::default() };
    client.table_create_with(name, options).expect("a fresh name")
}

/// Ends the server as a crash would, and starts it again.
fn crash(server: &mut Server) {
    server.kill();
    server.restart();
}
