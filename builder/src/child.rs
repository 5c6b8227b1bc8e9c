//! The check as a separate program, in the sandbox.
//!
//! The server and the `splinter` command are started again inside the sandbox with one hidden argument: the package
//! arrives on standard input and the verdict leaves on standard output, both as JSON. So a crash of the parser is a
//! refusal and does not end a server.
//!
//! With a second hidden argument, which the names of functions follow, a WebAssembly module arrives, and the finished
//! one leaves, or the reason of its refusal on standard error.

use std::ffi::OsString;
use std::io::Read;
use std::io::Write;
use std::process::ExitCode;

use crate::BuildError;
use crate::Checked;
use crate::Package;
use crate::Refusal;
use crate::Toolchain;
use crate::check::check;
use crate::limits;
use crate::module;
use crate::sandbox::Job;
use crate::sandbox::Outcome;

/// The hidden argument of the check of sources.
const ARGUMENT: &str = "--splinter-check";
/// The hidden argument by which a module is finished.
const MODULE_ARGUMENT: &str = "--splinter-module";
/// The exit status of a refused module; any other but 0 is a crash.
const MODULE_REFUSED: i32 = 3;

/// Acts as the checker and exits if this process was started as one; otherwise returns at once.
///
/// To be called first in the `main` of every program that calls [`Toolchain::prepare`].
pub fn child_main() {
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    if first.as_ref().is_some_and(|argument| argument == MODULE_ARGUMENT) {
        let functions: Vec<_> = arguments.map(|name| name.to_string_lossy().into_owned()).collect();
        std::process::exit(serve_module(&functions));
    }
    if first.is_some_and(|argument| argument == ARGUMENT) {
        let code = match serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(what) => {
                eprintln!("{what}");
                ExitCode::FAILURE
            }
        };
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Reads a package, checks it, writes the verdict.
fn serve() -> Result<(), String> {
    let mut input = Vec::new();
    // JSON may write a byte of a text as six, and writes one of a module as two.
    let limit = 6 * limits::PACKAGE_BYTES_MAX as u64 + 4096;
    let read = std::io::stdin().take(limit).read_to_end(&mut input);
    read.map_err(|error| format!("read a package: {error}"))?;
    let package: Package = serde_json::from_slice(&input).map_err(|error| format!("a package: {error}"))?;
    let verdict: Result<Checked, Vec<Refusal>> = check(&package);
    let text = serde_json::to_vec(&verdict).map_err(|error| format!("a verdict: {error}"))?;
    std::io::stdout().write_all(&text).map_err(|error| format!("write a verdict: {error}"))
}

/// Reads a module, finishes it, writes it; returns the exit status.
fn serve_module(functions: &[String]) -> i32 {
    let mut input = Vec::new();
    // One byte more than may be, so that a longer one is refused as such.
    let limit = limits::MODULE_BYTES_MAX as u64 + 1;
    if let Err(error) = std::io::stdin().take(limit).read_to_end(&mut input) {
        eprintln!("read a module: {error}");
        return 1;
    }
    let finished = match module::finish(&input, functions) {
        Ok(finished) => finished,
        Err(what) => {
            eprintln!("{what}");
            return MODULE_REFUSED;
        }
    };
    match std::io::stdout().write_all(&finished) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("write a module: {error}");
            1
        }
    }
}

impl Toolchain {
    /// Checks a package in the sandbox.
    ///
    /// # Errors
    /// [`BuildError::Refused`] when it does not pass, the errors of the sandbox otherwise.
    pub fn check(&self, package: &Package) -> Result<Checked, BuildError> {
        let input = serde_json::to_vec(package)
            .map_err(|error| BuildError::Io { what: format!("write a package: {error}") })?;
        // A finished module has no source, whose parser wants more.
        let (cpu_seconds, memory_bytes) = match package.is_finished() {
            true => (limits::MODULE_CPU_SECONDS_MAX, limits::MODULE_COMPILER_BYTES_MAX),
            false => (limits::CPU_SECONDS_MAX, limits::ADDRESS_SPACE_BYTES_MAX),
        };
        let outcome = self.sandbox.run(Job {
            step: "the check of the source".into(),
            program: "/box/checker".into(),
            arguments: vec![ARGUMENT.into()],
            shown: vec![(self.checker.clone(), "/box/checker".into())],
            environment: Vec::new(),
            folder: "/".into(),
            output: None,
            input,
            cpu_seconds,
            memory_bytes,
        })?;
        let verdict = outcome.status.success().then(|| serde_json::from_slice(&outcome.printed));
        match verdict {
            Some(Ok(Ok(checked))) => Ok(checked),
            Some(Ok(Err(refusals))) => Err(BuildError::Refused(refusals)),
            _ => Err(crashed(&outcome)),
        }
    }

    /// Lowers and checks a module in the sandbox.
    pub(crate) fn finish_module(&self, module: &[u8], functions: &[&str]) -> Result<Vec<u8>, BuildError> {
        let mut arguments = vec![OsString::from(MODULE_ARGUMENT)];
        arguments.extend(functions.iter().map(OsString::from));
        let outcome = self.sandbox.run(Job {
            step: "the check of the module".into(),
            program: "/box/checker".into(),
            arguments,
            shown: vec![(self.checker.clone(), "/box/checker".into())],
            environment: Vec::new(),
            folder: "/".into(),
            output: None,
            input: module.to_vec(),
            cpu_seconds: limits::MODULE_CPU_SECONDS_MAX,
            memory_bytes: limits::MODULE_COMPILER_BYTES_MAX,
        })?;
        match outcome.status.code() {
            Some(0) => Ok(outcome.printed),
            Some(MODULE_REFUSED) => Err(BuildError::ImportRefused { what: outcome.said() }),
            _ if outcome.was_killed() => Err(outcome.killed("the check of the module")),
            _ => Err(BuildError::ImportRefused {
                what: format!("the check could not read the module to its end ({})", outcome.said()),
            }),
        }
    }
}

/// Returns the refusal of a source that crashed the checker.
fn crashed(outcome: &Outcome) -> BuildError {
    let what = format!("the check could not read the package to its end ({})", outcome.said());
    BuildError::Refused(vec![Refusal::of("", what, "write it plainer")])
}
