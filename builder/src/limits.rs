//! The limits of packages and builds, each with its reason.

use std::time::Duration;

/// Bytes of a package's name, and of a function's: both appear in file names and one-line lists.
pub const NAME_BYTES_MAX: usize = 64;
/// Files of a package, including those of its dependencies.
pub const FILES_MAX: usize = 256;
/// Bytes of one file: a hundred times a long source file.
pub const FILE_BYTES_MAX: usize = 256 << 10;
/// Bytes of a package: it is held in memory several times, and stored in the server's metadata.
pub const PACKAGE_BYTES_MAX: usize = 2 << 20;
/// Bytes of a path within a package.
pub const PATH_BYTES_MAX: usize = 160;
/// Packages that an extension may depend on, directly or indirectly: each is one run of the compiler.
pub const DEPENDENCIES_MAX: usize = 8;
/// Bytes of the list of functions of a finished module: a page of documentation for each.
pub const FUNCTION_LIST_BYTES_MAX: usize = 64 << 10;
/// Functions of an extension.
pub const FUNCTIONS_MAX: usize = 64;

/// Nesting depth of brackets, because the parser and the compiler recurse on their stacks.
pub const NESTING_MAX: usize = 64;
/// Tokens of one statement or item head, nested brackets counted as one, because chains of operators nest too.
pub const STATEMENT_TOKENS_MAX: usize = 2_000;
/// Reported refusals; more would not be read.
pub const REFUSALS_MAX: usize = 64;
/// Stack of the parsing thread: the maximum for [`NESTING_MAX`] x [`STATEMENT_TOKENS_MAX`], and spare.
pub const PARSER_STACK_BYTES: usize = 512 << 20;

/// Processor seconds of one compiler run; ends the evaluation of an endless constant.
pub const CPU_SECONDS_MAX: u64 = 10;
/// Wall time of one run in the sandbox: its processor time on a machine that gives it a twelfth of a core. A run cannot
/// wait for anything, so this ends no run that the processor limit would not have ended first.
pub const WALL_TIME_MAX: Duration = Duration::from_secs(120);
/// Address space of one run: a compiler maps 700 MB before it reads anything.
pub const ADDRESS_SPACE_BYTES_MAX: u64 = 3 << 30;
/// Bytes of a file that a run writes; the compiled crates before linking are the largest.
pub const OUTPUT_FILE_BYTES_MAX: u64 = 32 << 20;
/// Bytes of an artefact, in its file and in memory: most have 10 to 100 KB, a server keeps hundreds.
pub const ARTEFACT_BYTES_MAX: usize = 4 << 20;
/// Processes and threads of one run.
pub const PROCESSES_MAX: u64 = 64;
/// Kept bytes of a run's output.
pub const PRINTED_BYTES_MAX: usize = 4 << 20;
/// Bytes of the compiler's text that a tenant sees.
pub const DIAGNOSTICS_BYTES_MAX: usize = 16 << 10;
/// Characters of a compiler's crash message that a tenant sees; the rest concerns only the compiler.
pub const CRASH_CHARACTERS_MAX: usize = 200;

/// Bytes of a WebAssembly module: twenty times the largest of the project's own.
pub const MODULE_BYTES_MAX: usize = 2 << 20;
/// Functions of a module, imports included; also the calls that replace an instruction of three bytes need it.
pub const MODULE_FUNCTIONS_MAX: u32 = 10_000;
/// Types of a module, used or not: the server keeps one list of those of all modules.
pub const MODULE_TYPES_MAX: u32 = 10_000;
/// Segments of a module's data, and of its table's elements: the linker makes a few, and each takes a worker time
/// whenever it makes an instance.
pub const MODULE_SEGMENTS_MAX: u32 = 1_000;
/// Bytes of a module's name in the reason of a refusal, which is cut after [`CRASH_CHARACTERS_MAX`].
pub const MODULE_NAME_SHOWN_BYTES_MAX: usize = 64;
/// Globals of a module: the linker makes three.
pub const MODULE_GLOBALS_MAX: u32 = 1_000;
/// Elements of a module's table: each function whose address is taken has one.
pub const MODULE_TABLE_ELEMENTS_MAX: u64 = 10_000;
/// Bytes of a module's data, zeroes included: a worker copies them whenever it makes an instance, which nothing
/// interrupts; 2 MB take 0.7 ms. The project's own extensions have 10 KB.
pub const MODULE_DATA_BYTES_MAX: usize = 256 << 10;
/// Bytes of one function of a module, of which the project's own have 11,000: the compiler's time grows with the square.
pub const MODULE_FUNCTION_BYTES_MAX: usize = 64 << 10;
/// Locals of one function of a module, parameters excluded: the project's own have 36. Many of them times many branches
/// are what makes the compiler slow: 2,000 locals in a function of 28 KB take 10 s.
pub const MODULE_LOCALS_MAX: u64 = 500;
/// Targets of all branch tables of one function of a module: the project's own have 61.
pub const MODULE_BRANCH_TARGETS_MAX: u64 = 2_048;
/// Processor seconds of one run of the module compiler, or of the check before it.
pub const MODULE_CPU_SECONDS_MAX: u64 = 2;
/// Builds of one source whose module is missing because a limit or a signal ended them; then it stays without. The
/// machine may have been busy or short of memory, but a source that always meets the limit must not delay every start.
pub const MODULE_ATTEMPTS_MAX: u32 = 5;
/// Address space of such a run.
pub const MODULE_COMPILER_BYTES_MAX: u64 = 512 << 20;

const _: () = assert!(MODULE_FUNCTIONS_MAX < 1 << 14);
const _: () = assert!(FILE_BYTES_MAX <= PACKAGE_BYTES_MAX && MODULE_BYTES_MAX <= PACKAGE_BYTES_MAX);
const _: () = assert!(DIAGNOSTICS_BYTES_MAX <= PRINTED_BYTES_MAX);
