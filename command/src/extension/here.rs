//! `splinter invoke --at client`: runs an installed function in this program.

use client::local::{Finished, LocalFailure};
use client::{Client, Local, ModuleRuntime, split_function_name};

use crate::failure::{Failure, FailureKind};

/// Reads a function's module and runs it; returns its reply. Its log lines go to standard error.
pub fn run(
    mut client: Client,
    name: &str,
    (table, key, arguments): (u32, &[u8], &[u8]),
) -> Result<Vec<u8>, Failure> {
    let Some((extension, version, function)) = split_function_name(name) else {
        return Err(client::Error::FunctionNameInvalid { name: name.to_owned() }.into());
    };
    let unable = |error: client::ModuleError| Failure::new(FailureKind::Local, error.to_string());
    let runtime = ModuleRuntime::start().map_err(unable)?;
    let module = runtime.load(&client.extension_module(extension, version)?).map_err(unable)?;
    let mut local = Local::new(client.into_session());
    local.spawn_module(&module, function, table, key, arguments)?;
    let mut ended = None;
    while local.outstanding() > 0 {
        local
            .poll_waiting(&mut |finished: Finished<'_>| ended = Some(finished.result.map(<[u8]>::to_vec)))?;
    }
    for (level, line) in local.take_log() {
        eprintln!("{}: {line}", format!("{level:?}").to_lowercase());
    }
    match ended {
        Some(Ok(reply)) => Ok(reply),
        Some(Err(LocalFailure::Server(error))) => Err(error.into()),
        Some(Err(failure)) => Err(Failure::new(FailureKind::Extension, failure.to_string())),
        None => Err(Failure::new(FailureKind::Local, "the function did not end")),
    }
}
