//! The reasons why a build fails. The author is responsible for some (refused, compile failed, crashed, timed out,
//! killed, import refused), the operator for the rest. Of those, timed out and killed may be the machine's fault too, so
//! another attempt may succeed.

use std::fmt;
use std::io;

use crate::Refusal;
use crate::refusal::listing;

/// The reason why there is no artefact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The source does not pass the check.
    Refused(Vec<Refusal>),
    /// The compiler refused the source.
    CompileFailed {
        /// The compiler's message.
        text: String,
    },
    /// The compiler itself crashed on the source, with no message that helps the author.
    CompilerCrashed {
        /// One line: the step, and how it ended.
        what: String,
    },
    /// The compiler, or the check, took longer than its limit of processor or wall time.
    TimedOut {
        /// The step.
        step: String,
    },
    /// The compiler, or the check of a module, was ended by a signal: its memory was used up, or the machine's.
    Killed {
        /// The step.
        step: String,
        /// What it said in the end, or the signal.
        how: String,
    },
    /// The artefact needs something that artefacts may not have.
    ImportRefused {
        /// The forbidden need.
        what: String,
    },
    /// This machine has no working `bwrap`, without which nothing is compiled.
    SandboxMissing {
        /// The reason why it does not work.
        why: String,
    },
    /// This machine has no usable compiler.
    ToolchainMissing {
        /// The searched places, and the result.
        why: String,
    },
    /// This machine cannot make modules.
    ModuleUnavailable {
        /// The missing tool. From the toolchain of a server it begins with "wasm unavailable".
        why: String,
    },
    /// No space is left on the disk.
    DiskFull,
    /// Another operation of the operating system failed.
    Io {
        /// The attempted operation, and the system's text.
        what: String,
    },
}

impl BuildError {
    /// Returns the build error of an I/O error during `what`.
    pub(crate) fn io(what: impl fmt::Display, error: &io::Error) -> BuildError {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        if full.contains(&error.kind()) {
            return BuildError::DiskFull;
        }
        BuildError::Io { what: format!("{what}: {error}") }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Refused(refusals) => out.write_str(&listing(refusals)),
            BuildError::CompileFailed { text } => write!(out, "the compiler refuses the source:\n{text}"),
            BuildError::CompilerCrashed { what } => {
                write!(out, "{what}; this is a bug of the compiler: write the source differently")
            }
            BuildError::TimedOut { step } => write!(out, "{step} took too long and was stopped"),
            BuildError::Killed { step, how } => {
                write!(out, "{step} was killed, perhaps for lack of memory ({how})")
            }
            BuildError::ImportRefused { what } => write!(out, "the artefact is refused: {what}"),
            BuildError::SandboxMissing { why } => {
                write!(out, "no sandbox to compile in (install the package bubblewrap): {why}")
            }
            BuildError::ToolchainMissing { why } => {
                write!(out, "no Rust compiler (install rustup, or set SPLINTER_RUSTC): {why}")
            }
            BuildError::ModuleUnavailable { why } => out.write_str(why),
            BuildError::DiskFull => out.write_str("no space is left on the disk"),
            BuildError::Io { what } => out.write_str(what),
        }
    }
}

impl std::error::Error for BuildError {}
