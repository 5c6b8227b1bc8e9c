//! The check as a separate program, in the sandbox.
//!
//! The server and the `splinter` command are started again inside the sandbox with one hidden argument: the package
//! arrives on standard input and the verdict leaves on standard output, both as JSON. So a crash of the parser is a
//! refusal and does not end a server.

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
use crate::sandbox::Job;

/// The hidden argument.
const ARGUMENT: &str = "--splinter-check";

/// Acts as the checker and exits if this process was started as one; otherwise returns at once.
///
/// To be called first in the `main` of every program that calls [`Toolchain::prepare`].
pub fn child_main() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|argument| argument == ARGUMENT) {
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
    // JSON may write a byte as six.
    let limit = 6 * limits::PACKAGE_BYTES_MAX as u64 + 4096;
    let read = std::io::stdin().take(limit).read_to_end(&mut input);
    read.map_err(|error| format!("read a package: {error}"))?;
    let package: Package = serde_json::from_slice(&input).map_err(|error| format!("a package: {error}"))?;
    let verdict: Result<Checked, Vec<Refusal>> = check(&package);
    let text = serde_json::to_vec(&verdict).map_err(|error| format!("a verdict: {error}"))?;
    std::io::stdout().write_all(&text).map_err(|error| format!("write a verdict: {error}"))
}

impl Toolchain {
    /// Checks a package in the sandbox.
    ///
    /// # Errors
    /// [`BuildError::Refused`] when it does not pass, the errors of the sandbox otherwise.
    pub fn check(&self, package: &Package) -> Result<Checked, BuildError> {
        let input = serde_json::to_vec(package)
            .map_err(|error| BuildError::Io { what: format!("write a package: {error}") })?;
        let outcome = self.sandbox.run(Job {
            step: "the check of the source".into(),
            program: "/box/checker".into(),
            arguments: vec![ARGUMENT.into()],
            shown: vec![(self.checker.clone(), "/box/checker".into())],
            environment: Vec::new(),
            folder: "/".into(),
            output: None,
            input,
            cpu_seconds: limits::CPU_SECONDS_MAX,
        })?;
        let verdict = outcome.status.success().then(|| serde_json::from_slice(&outcome.printed));
        match verdict {
            Some(Ok(Ok(checked))) => Ok(checked),
            Some(Ok(Err(refusals))) => Err(BuildError::Refused(refusals)),
            _ => Err(crashed(&outcome.errors)),
        }
    }
}

/// Returns the refusal of a source that crashed the checker.
fn crashed(errors: &[u8]) -> BuildError {
    let said = String::from_utf8_lossy(errors);
    let said: String = said.trim().chars().take(200).collect();
    let what = format!("the check could not read the source to its end ({said})");
    BuildError::Refused(vec![Refusal::of("", what, "write it plainer")])
}
