//! Replies about the extensions of a tenant: versions, functions, log lines and traces.
//!
//! An invocation names an extension by its id, a version of it (or 0, for no version) and a function by
//! [`wire::function_hash`] of its name; [`ExtensionResolved`] maps names to these numbers. An extension has one current
//! version. It may have a canary, which gets a share of the invocations that name no version, and other stored
//! versions, for invocation by number or for a rollback. Every installation chooses the role of the new version by a
//! [`Placement`]; [`VersionState`] is the resulting state.

use serde::{Deserialize, Serialize, Serializer};

use crate::Statistic;
use crate::byte_string::ByteString;

/// The access mode of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionMode {
    /// The function cannot write, and is not recorded for exactly-once execution.
    Read,
    /// The function's writes are applied together when it succeeds.
    Write,
}

/// One function of an extension.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FunctionEntry {
    /// Its name.
    pub name: String,
    /// [`wire::function_hash`] of its name.
    pub hash: u32,
    /// The access mode.
    pub mode: FunctionMode,
    /// The author's doc comment; may be empty.
    pub doc: String,
}

/// The reply to an installation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtensionInstalled {
    /// The id that invocations use; the same for all its versions.
    pub extension: u32,
    /// The installed version.
    pub version: u32,
    /// The version that is current now.
    pub current: u32,
    /// Milliseconds of checking and compiling; 0 if the source was built before.
    pub compile_ms: u32,
    /// The compiler's warnings of the source's build, now or earlier; may be empty.
    pub diagnostics: String,
    /// The reason why the version has no WebAssembly module; empty if it has one. `None` from an earlier server.
    #[serde(default)]
    pub no_module: Option<String>,
}

/// One extension of the list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtensionEntry {
    /// The id that invocations use.
    pub extension: u32,
    /// Its name.
    pub name: String,
    /// The versions that invocations get.
    pub state: VersionState,
    /// Number of functions of the current version; 0 if it could not be loaded.
    pub functions: u32,
    /// All stored versions, oldest first.
    pub versions: Vec<VersionEntry>,
}

/// The mapping from names to the numbers of an invocation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtensionResolved {
    /// The id that invocations use.
    pub extension: u32,
    /// The current version.
    pub version: u32,
    /// Its functions.
    pub functions: Vec<FunctionEntry>,
}

/// A piece of the module of a version, and what is needed to run it elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtensionModule {
    /// The id that invocations use.
    pub extension: u32,
    /// The version.
    pub version: u32,
    /// The version of the border between the module and its host: its memory, its imports and their meaning.
    pub border: u32,
    /// Whether the builder has checked its source.
    pub source_checked: bool,
    /// Its functions.
    pub functions: Vec<FunctionEntry>,
    /// The limits of the caller's invocations, by the names under which they are changed.
    pub limits: Vec<Statistic>,
    /// SHA-256 of the whole module, in hex.
    pub sha256: String,
    /// Bytes of the whole module.
    pub all_bytes: u64,
    /// The piece.
    pub bytes: ByteString,
}

/// The invocations that get a newly installed version. The first version of an extension is always current.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// The version becomes current, unless the current one is pinned.
    #[default]
    Current,
    /// Only invocations that name the version get it; the current one is pinned.
    Pinned,
    /// The version gets this percentage of invocations that name none: 1 to 99.
    Canary(u8),
}

/// The versions for invocations that name none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VersionState {
    /// The current version.
    pub current: u32,
    /// The canary; 0 if there is none.
    pub canary: u32,
    /// The canary's percentage of invocations; 0 if there is none.
    pub canary_percent: u8,
    /// Whether the current version stays current across installations.
    pub pinned: bool,
}

/// A stored version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionEntry {
    /// Its number.
    pub version: u32,
    /// The time of its installation, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
}

/// Statistics of a version's invocations at this server since its start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Number of invocations by outcome. The server names the outcomes and omits those that did not occur; `ok` means
    /// success.
    pub ends: Vec<Statistic>,
    /// Number of invocations that their clients were told to run. 0 from an earlier server.
    #[serde(default)]
    pub pushed_back: u64,
    /// Processor time in nanoseconds, extrapolated from the timed invocations.
    pub cpu_ns: u64,
    /// Number of timed invocations.
    pub timed: u64,
    /// Median in nanoseconds; 0 if none was timed.
    pub ns_p50: u64,
    /// 99th percentile in nanoseconds.
    pub ns_p99: u64,
    /// 99.9th percentile in nanoseconds.
    pub ns_p999: u64,
}

/// The description of one version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionDescription {
    /// Its number.
    pub version: u32,
    /// Hash of the artefact, as hexadecimal text.
    pub content_hash: String,
    /// Bytes of the artefact.
    pub artefact_bytes: u64,
    /// Bytes of the source, or of the finished module.
    pub source_bytes: u64,
    /// Whether it was made of source that the server checked; `false`: it is a finished module. `None` of a server that
    /// knows no finished modules.
    pub source_checked: Option<bool>,
    /// The time of its installation, in milliseconds since the Unix epoch.
    pub installed_ms: u64,
    /// Milliseconds of checking and compiling.
    pub compile_ms: u32,
    /// Statistics of its invocations.
    pub measured: Measured,
    /// The reason why it has no WebAssembly module; empty if it has one. `None` from an earlier server.
    #[serde(default)]
    pub no_module: Option<String>,
}

/// The description of an extension.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExtensionDescription {
    /// The id that invocations use.
    pub extension: u32,
    /// Its name.
    pub name: String,
    /// The versions that invocations get.
    pub state: VersionState,
    /// The functions of the current version.
    pub functions: Vec<FunctionEntry>,
    /// The limits of an invocation; the name of each ends with its unit.
    pub limits: Vec<Statistic>,
    /// The loaded versions, oldest first.
    pub versions: Vec<VersionDescription>,
    /// The form in which the caller's invocations run, by the word of the limit [`crate::SANDBOX`]. `None` from an
    /// earlier server.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// The reason why the current version has no WebAssembly module; empty if it has one. `None` from an earlier
    /// server, or when the current version is not loaded.
    #[serde(default)]
    pub no_module: Option<String>,
}

/// One line of an extension's log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogEntry {
    /// Its number in the tenant's log; later lines have higher ones.
    pub number: u64,
    /// The time of writing, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// 0 error, 1 warning, 2 information, 3 debug.
    pub level: u8,
    /// The version of the extension.
    pub version: u32,
    /// The text.
    pub text: String,
}

/// Log lines, and the position to continue from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogLines {
    /// The last line examined: the `after` of the next request. 0 if there is none.
    pub looked_at: u64,
    /// Lines of the tenant behind `after` that were already discarded.
    pub missed: u64,
    /// The requested lines, oldest first.
    pub lines: Vec<LogEntry>,
}

/// Host calls of one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedCalls {
    /// The kind: `get`, `put`, ...
    pub kind: String,
    /// Number of calls.
    pub count: u64,
    /// Total duration, in nanoseconds.
    pub ns: u64,
}

/// One poll of the function.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedPoll {
    /// The time of its beginning, in nanoseconds since the invocation arrived.
    pub at_ns: u64,
    /// Its duration, host calls included.
    pub ns: u64,
    /// The reason of its end: 0 completion, 1 yield, 2 end of its slice, 3 conflict at the commit.
    pub end: u8,
    /// Duration of the commit behind it.
    pub commit_ns: u64,
    /// Its host calls by kind.
    pub calls: Vec<TracedCalls>,
}

/// The trace of one invocation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceEntry {
    /// The time of its arrival, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The version of the extension.
    pub version: u32,
    /// The function.
    pub function: String,
    /// The status of its reply.
    pub status: u8,
    /// Nanoseconds from its arrival until its reply was ready to be sent.
    pub ns: u64,
    /// The duration of the reply, in nanoseconds.
    pub reply_ns: u64,
    /// Total number of polls; those beyond the list are added to its last one.
    pub polls_made: u64,
    /// Its polls in order.
    pub polls: Vec<TracedPoll>,
}

/// Traces, and the position to continue from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Traces {
    /// The last trace examined: the `after` of the next request.
    pub looked_at: u64,
    /// Traces behind `after` that were already discarded.
    pub missed: u64,
    /// The traces, oldest first.
    pub traces: Vec<TraceEntry>,
}

/// One file of an extension's source, or of its finished module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PackageFile<'a> {
    /// The path relative to the package, with parts separated by `/`.
    pub path: &'a str,
    /// The file's bytes.
    #[serde(serialize_with = "as_bytes")]
    pub bytes: &'a [u8],
}

/// Serializes bytes as a byte string, not as a list of numbers.
pub(crate) fn as_bytes<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}
