//! `splinter invoke --at client`: runs an installed function in this program.

use client::local::{Finished, LocalFailure};
use client::{Local, ModuleRuntime, split_function_name};

use super::version_named;
use crate::bytes::Bytes;
use crate::failure::{Failure, FailureKind};
use crate::object;
use crate::output::Answer;
use crate::settings::Settings;

/// Reads a function's module and runs it. Its log lines go to standard error.
pub fn run_here(
    settings: &Settings,
    function: &str,
    (table, key, arguments): (&str, &Bytes, &Bytes),
    version: Option<u32>,
) -> Result<Answer, Failure> {
    let name = version_named(function, version)?;
    let (key, arguments) = (key.read()?, arguments.read()?);
    let (mut client, id) = object::open(settings, table)?;
    let Some((extension, version, function)) = split_function_name(&name) else {
        return Err(client::Error::FunctionNameInvalid { name }.into());
    };
    let unable = |error: client::ModuleError| Failure::new(FailureKind::Local, error.to_string());
    let runtime = ModuleRuntime::start().map_err(unable)?;
    let module = runtime.load(&client.extension_module(extension, version)?).map_err(unable)?;
    let mut local = Local::new(client.into_session());
    local.spawn_module(&module, function, id, &key, &arguments)?;
    let mut ended = None;
    while local.outstanding() > 0 {
        local
            .poll_waiting(&mut |finished: Finished<'_>| ended = Some(finished.result.map(<[u8]>::to_vec)))?;
    }
    for (level, line) in local.take_log() {
        eprintln!("{}: {line}", format!("{level:?}").to_lowercase());
    }
    match ended {
        Some(Ok(reply)) => Ok(Answer::bytes(&reply, object::value_of(&reply))),
        Some(Err(LocalFailure::Server(error))) => Err(error.into()),
        Some(Err(failure)) => Err(Failure::new(FailureKind::Extension, failure.to_string())),
        None => Err(Failure::new(FailureKind::Local, "the function did not end")),
    }
}
