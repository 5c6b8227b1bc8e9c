//! The command line of `splinter ext`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

use crate::bytes::Bytes;

/// What `splinter ext explain` runs, and on what.
#[derive(Debug, Args)]
pub struct ExplainOptions {
    /// Folder of the package, or FILE.wasm with functions.toml beside it.
    #[arg(default_value = ".", value_name = "PATH")]
    pub package: PathBuf,
    /// Table that the functions get.
    #[arg(long)]
    pub table: String,
    /// Number of keys to use, the first of the table in hash order; each function is called once for each.
    #[arg(long, default_value_t = 1_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub sample: usize,
    /// Call only this function.
    #[arg(long)]
    pub function: Option<String>,
    /// Arguments of every call: text, 0xHEX or @FILE; with several functions, use --function too.
    #[arg(long, default_value = "")]
    pub arguments: Bytes,
    /// Calls a second; adds the share of one core that the functions' own code would use, without host calls, and the requests and
    /// writes a second.
    #[arg(long)]
    pub rate: Option<u64>,
    /// Name of the extension whose current version is compared; default: the name of the folder, or of FILE.
    #[arg(long)]
    pub name: Option<String>,
}

/// What a version may cost more than the current one to be installed, and on what that is measured.
#[derive(Debug, Args)]
pub struct RegressionOptions {
    /// Refuse the version if a function costs the server over PERCENT (and 0.1 us) more than in the current version, in the median,
    /// or if fewer calls succeed, on keys of --table as by `splinter ext explain`. A function that only one of them has is
    /// not compared.
    #[arg(long, value_name = "PERCENT", value_parser = percent, requires = "regression_table")]
    pub max_regression: Option<f64>,
    /// Table that the functions get for --max-regression.
    #[arg(long = "table", id = "regression_table", value_name = "TABLE", requires = "max_regression")]
    pub table: Option<String>,
    /// Number of keys for --max-regression.
    #[arg(long, requires = "max_regression", default_value_t = 1_000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    pub sample: usize,
    /// Compare only this function.
    #[arg(long, requires = "max_regression")]
    pub function: Option<String>,
    /// Arguments of every call for --max-regression: text, 0xHEX or @FILE.
    #[arg(long, requires = "max_regression", default_value = "")]
    pub arguments: Bytes,
}

/// Reads a percentage.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    let number = number.ok().filter(|number| (0.0..=10_000.0).contains(number));
    number.ok_or_else(|| "write a percentage from 0 to 10000, for instance 20%".to_owned())
}

/// Where a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunsAt {
    /// Beside the data, in one round trip.
    Server,
    /// In this program, if it is the tenant's own extension; needs splinter-wasmc and bubblewrap.
    Client,
    /// In this program if a busy server says so, else at the server; needs splinter-wasmc and bubblewrap.
    Adaptive,
}

/// The commands of `splinter ext`.
#[derive(Debug, Subcommand)]
pub enum ExtensionCommand {
    /// Create a new extension with a unit test, ready for `cargo test`.
    New {
        /// Name of the extension and of its folder.
        name: String,
    },
    /// Check the source, or a finished module, with the server's rules, without a server.
    Check {
        /// Folder of the package, or FILE.wasm with functions.toml beside it.
        #[arg(default_value = ".", value_name = "PATH")]
        package: PathBuf,
    },
    /// Run the functions of a package on keys of a table, beside the current version, and show what they cost; nothing is
    /// installed, and nothing that they write is kept. Needs rustc with the target wasm32-unknown-unknown, splinter-wasmc and
    /// bubblewrap on this machine.
    Explain(ExplainOptions),
    /// Send the source, or a finished module, to the server, which checks, compiles and loads it.
    Install {
        /// Folder of the package, or FILE.wasm with functions.toml beside it.
        #[arg(default_value = ".", value_name = "PATH")]
        package: PathBuf,
        /// Name to install it under; default: the name of its folder, or of FILE.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        placement: Placing,
        #[command(flatten)]
        regression: RegressionOptions,
    },
    /// List the installed extensions and their versions.
    List,
    /// Show functions, limits, and the figures of each version of an extension.
    Describe {
        /// Name of the extension, or OWNER/NAME for a granted one.
        name: String,
    },
    /// Show what an extension logged.
    Logs {
        /// Name of the extension, or OWNER/NAME for a granted one.
        name: String,
        /// Show this many of the latest lines.
        #[arg(long, default_value_t = 50)]
        lines: u32,
        /// Show lines of this level and more severe ones.
        #[arg(long, value_enum, default_value = "debug")]
        level: LogLevel,
        /// Continue with new lines until interrupted.
        #[arg(long)]
        follow: bool,
    },
    /// Make the previous version current again, or end the canary.
    Rollback {
        /// Name of the extension.
        name: String,
        /// Version that becomes current; default: the previous one.
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
    },
    /// Make a version current and keep it current across later installations.
    Pin {
        /// Name of the extension.
        name: String,
        /// Version to pin; omit it with --off.
        #[arg(required_unless_present = "off", conflicts_with = "off")]
        version: Option<u32>,
        /// Let the next installed version become current again.
        #[arg(long)]
        off: bool,
    },
    /// Make the canary current.
    Promote {
        /// Name of the extension.
        name: String,
    },
    /// Remove an extension, or one version of it.
    Remove {
        /// NAME or NAME@VERSION.
        name: String,
    },
}

/// Severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something looks wrong.
    Warning,
    /// Worth knowing.
    Info,
    /// Details for the author.
    Debug,
}

/// The share of invocations for an installed version; by default it becomes current.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct Placing {
    /// Keep and pin the current version; invoke the new one as NAME@VERSION.
    #[arg(long)]
    pub pin: bool,
    /// Give the new version this many of 100 invocations.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub canary: Option<u8>,
}
