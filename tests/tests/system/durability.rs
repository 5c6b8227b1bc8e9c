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

use std::fs::File;
use std::os::unix::fs::FileExt;

use client::{Client, Durability, TableOptions};
use tests::server::{Server, Settings};

/// The log of durable tables in a data directory.
const LOG_FILE: &str = "log";

/// Bytes of a block in the file, and where its trailer begins.
const BLOCK_BYTES: usize = 4096;
const TRAILER: usize = 4048;

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

/// Damages the directories of segments in the log of a server that has ended: the next one has to replay everything first.
fn damage_directories(server: &Server) {
    let log = File::options().read(true).write(true).open(server.directory().join(LOG_FILE)).expect("a log");
    let mut block = [0; BLOCK_BYTES];
    let mut damaged = 0;
    for at in (0..log.metadata().expect("its size").len()).step_by(BLOCK_BYTES) {
        log.read_exact_at(&mut block, at).expect("whole blocks");
        if block[TRAILER + 4..].starts_with(b"SDIR") {
            log.write_all_at(&[0; 4], at + TRAILER as u64 + 4).expect("it is ours");
            damaged += 1;
        }
    }
    assert!(damaged > 0, "there are directories");
}

/// Ends the server as a crash would, and starts it again.
fn crash(server: &mut Server) {
    server.kill();
    server.restart();
}
