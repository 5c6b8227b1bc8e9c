//! The limits of packages and builds, each with its reason.

use std::time::Duration;

/// Bytes of a package's name, and of a function's: both appear in file names and one-line lists.
pub const NAME_BYTES_MAX: usize = 64;
/// Files of a package, those of its dependencies included.
pub const FILES_MAX: usize = 256;
/// Bytes of one file: a hundred times what a long source file has.
pub const FILE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a package: it is held in memory a few times over, and kept in the server's metadata.
pub const PACKAGE_BYTES_MAX: usize = 2 << 20;
/// Bytes of a path within a package.
pub const PATH_BYTES_MAX: usize = 160;
/// Packages that an extension may depend on, directly or not: each is one run of the compiler.
pub const DEPENDENCIES_MAX: usize = 8;
/// Functions of an extension.
pub const FUNCTIONS_MAX: usize = 64;

/// Brackets within brackets. The parser and the compiler recurse on their stacks.
pub const NESTING_MAX: usize = 64;
/// Tokens of one statement or item head, nested brackets counted as one: chains of operators nest too.
pub const STATEMENT_TOKENS_MAX: usize = 2_000;
/// Refusals that are reported: nobody reads more.
pub const REFUSALS_MAX: usize = 64;
/// Stack of the thread that parses: what [`NESTING_MAX`] x [`STATEMENT_TOKENS_MAX`] can need, and spare.
pub const PARSER_STACK_BYTES: usize = 512 << 20;

/// Processor seconds of one compiler run; a constant that never ends evaluating stops here.
pub const CPU_SECONDS_MAX: u64 = 10;
/// Wall time of one run in the sandbox: its processor time on a machine that gives it a twelfth of a core. A run cannot
/// wait for anything, so this ends none that a processor would have ended before.
pub const WALL_TIME_MAX: Duration = Duration::from_secs(120);
/// Address space of one run: a compiler maps 700 MB before it reads anything.
pub const ADDRESS_SPACE_BYTES_MAX: u64 = 3 << 30;
/// Bytes of a file that a run writes; the compiled crates before linking are the largest.
pub const OUTPUT_FILE_BYTES_MAX: u64 = 32 << 20;
/// Bytes of an artefact, in its file and in memory: most have 10 to 100 KB, a server keeps hundreds.
pub const ARTEFACT_BYTES_MAX: usize = 4 << 20;
/// Processes and threads of one run.
pub const PROCESSES_MAX: u64 = 64;
/// Bytes that are kept of what a run prints.
pub const PRINTED_BYTES_MAX: usize = 4 << 20;
/// Bytes of the compiler's text that a tenant gets to see.
pub const DIAGNOSTICS_BYTES_MAX: usize = 16 << 10;
/// Characters that a tenant sees of the line with which a compiler crashed: the rest is the compiler's own business.
pub const CRASH_CHARACTERS_MAX: usize = 200;

const _: () = assert!(FILE_BYTES_MAX <= PACKAGE_BYTES_MAX);
const _: () = assert!(DIAGNOSTICS_BYTES_MAX <= PRINTED_BYTES_MAX);
