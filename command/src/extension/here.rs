//! `splinter invoke --at client` and `--at adaptive`: runs an installed function in this program, or where the server says.

use client::{Client, ModuleRuntime, RunAt};

use crate::failure::{Failure, FailureKind};

/// Calls a function, which may run here; returns its reply. Its log lines go to standard error.
pub fn run(
    mut client: Client,
    name: &str,
    (table, key, arguments): (u32, &[u8], &[u8]),
    run_at: RunAt,
) -> Result<Vec<u8>, Failure> {
    let runtime = ModuleRuntime::start();
    let runtime = runtime.map_err(|error| Failure::new(FailureKind::Local, error.to_string()))?;
    client.run_functions(&runtime, run_at);
    let reply = client.invoke(name, table, key, arguments);
    for (level, line) in client.take_log() {
        eprintln!("{}: {line}", format!("{level:?}").to_lowercase());
    }
    Ok(reply?)
}
