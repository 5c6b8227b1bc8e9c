//! The command line: every command with its options, as clap parses it.
//!
//! [`Global`] holds the options common to all commands (address, credentials, output); each command declares its own.

mod archive;
mod cluster;
mod extension;
mod grant;
mod limits;
mod object;
mod table;
mod tao;
mod trace;

pub use self::tao::{DemoOptions, GraphTable, TaoCommand, Through};
pub use archive::ArchiveCommand;
pub use cluster::{ClusterCommand, MigrateOptions, MigrationWay};
pub use extension::{ExplainOptions, ExtensionCommand, LogLevel, RegressionOptions, RunsAt};
pub use grant::{GrantCommand, RevokeCommand};
pub use limits::{Setting, UNITS, UNLIMITED};
pub use object::{
    AnswerOptions, DeleteOptions, GetOptions, LineFormat, PutOptions, ScanOptions, TimeToLive, WriteCondition,
};
pub use table::{TableCommand, TableDurability};
pub use trace::TraceOptions;

use super::bytes::Bytes;
use super::settings::Global;
use clap::{Parser, Subcommand};
use clap_complete::Shell;
use client::RequestDurability;
use std::path::PathBuf;

/// Talks to a Splinter server: tenants, tables, objects, extensions, graphs.
#[derive(Debug, Parser)]
#[command(name = "splinter", version, max_term_width = 110, after_help = AFTER_HELP)]
pub struct Options {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "Address, tenant and secrets are taken from the command line, else from the environment, else \
from the profile (~/.config/splinter/profile.toml: lines such as address = \"127.0.0.1:7700\", tenant = \"name\", \
secret = \"@/path/to/file\"). Keys and values are text, hex (0x...) or the content of a file (@path).

Exit codes: 0 done, 1 failed here, 2 command line, 3 not found, 4 condition, 5 refused, 6 no answer, or the disk \
failed, 7 extension, 8 answers, checksums or an archive differ, or the log is damaged.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create, list, limit and drop tenants, renew a secret (administrator); show your own limits (tenant).
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Create, list, drop, measure, enumerate and verify tables.
    #[command(subcommand)]
    Table(TableCommand),
    /// Read one object or several.
    Get(GetOptions),
    /// Write one object, or the objects of a file.
    Put(PutOptions),
    /// Delete one object or several.
    Delete(DeleteOptions),
    /// Read the objects of an ordered table in key order.
    Scan(ScanOptions),
    /// Add to the number (8 bytes, little-endian) that an object holds. The object keeps its expiry time.
    Increment {
        /// Name of the table, or OWNER/TABLE for a granted one.
        table: String,
        /// Key: text, 0xHEX or @FILE.
        key: Bytes,
        /// Number to add.
        #[arg(default_value_t = 1, allow_negative_numbers = true)]
        delta: i64,
        /// Add this floating-point number (IEEE 754, 64 bits) instead.
        #[arg(long, value_name = "NUMBER", conflicts_with = "delta", allow_negative_numbers = true)]
        float: Option<f64>,
        #[command(flatten)]
        waits: AnswerOptions,
    },
    /// Create, list, verify and restore archives of tenants, in a directory or an S3 bucket.
    #[command(subcommand)]
    Archive(ArchiveCommand),
    /// Write, check, explain, install, list, describe and remove extensions.
    #[command(subcommand)]
    Ext(ExtensionCommand),
    /// Grant other tenants the use of tables and extensions.
    #[command(subcommand)]
    Grant(GrantCommand),
    /// Call a function of an extension.
    Invoke {
        /// EXTENSION.FUNCTION, EXTENSION@VERSION.FUNCTION, or OWNER/EXTENSION.FUNCTION for a granted one.
        function: String,
        /// Name of the table that the function gets, or OWNER/TABLE for a granted one.
        #[arg(long)]
        table: String,
        /// Key that the function gets: text, 0xHEX or @FILE.
        #[arg(long, default_value = "")]
        key: Bytes,
        /// Arguments: text, 0xHEX or @FILE.
        #[arg(long, default_value = "")]
        arguments: Bytes,
        /// Version of the extension; default: the current one.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        version: Option<u32>,
        /// Where it runs: at the server; in this program, which reads its module and then the objects over the network; or where the
        /// server says.
        #[arg(long, value_enum, default_value = "server")]
        at: RunsAt,
        #[command(flatten)]
        waits: AnswerOptions,
    },
    /// Load, query or generate a graph. Requires the extension of ext/tao.
    #[command(subcommand)]
    Tao(TaoCommand),
    /// Ask a graph the same questions in three ways and compare (scripts/demo also sets everything up).
    Demo(DemoOptions),
    /// Measure the round-trip time to the server.
    Ping {
        /// Number of pings.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
        count: u32,
    },
    /// Show single invocations of an extension: waiting, running, host calls, commit.
    Trace(TraceOptions),
    /// Show counters: all for the administrator, one tenant's with --tenant; else the tenant's own.
    Stats {
        /// Show only names that contain this text.
        filter: Option<String>,
    },
    /// Wait for a server.
    #[command(subcommand)]
    Server(ServerCommand),
    /// List and end open sessions: all for the administrator, else the tenant's own.
    #[command(subcommand)]
    Session(SessionCommand),
    /// Show and manage the servers of a cluster (administrator).
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show administrative actions and their outcomes: all for the administrator, else the tenant's own.
    Audit {
        /// Show this many of the latest entries.
        #[arg(long, default_value_t = 50)]
        lines: u32,
        /// Continue with new entries until interrupted.
        #[arg(long)]
        follow: bool,
    },
    /// Print the completions of a shell, such as: source <(splinter completions bash)
    Completions {
        /// Name of the shell.
        shell: Shell,
    },
    /// Write the manual pages of all commands.
    Man {
        /// Directory to write to, such as ~/.local/share/man/man1; created if missing.
        directory: PathBuf,
    },
}

impl Command {
    /// Returns what the answers of the command's requests wait for.
    pub fn durability(&self) -> RequestDurability {
        match self {
            Self::Get(GetOptions { waits, .. })
            | Self::Put(PutOptions { waits, .. })
            | Self::Delete(DeleteOptions { waits, .. })
            | Self::Increment { waits, .. }
            | Self::Invoke { waits, .. } => waits.durability(),
            _ => RequestDurability::OfTable,
        }
    }
}

/// The commands of `splinter tenant`.
#[derive(Debug, Subcommand)]
pub enum TenantCommand {
    /// Create a tenant and print its secret, which is shown only once.
    Create {
        /// Name of the tenant.
        name: String,
        /// Write the secret to this file (mode 0600) instead of printing it.
        #[arg(long)]
        secret_file: Option<PathBuf>,
    },
    /// Give a tenant a new secret and print it, only once. The old secret opens no more sessions; open sessions
    /// continue.
    Rotate {
        /// Name of the tenant.
        name: String,
        /// Write the secret to this file (mode 0600) instead of printing it.
        #[arg(long)]
        secret_file: Option<PathBuf>,
    },
    /// List all tenants.
    List,
    /// Drop a tenant with all its tables and extensions.
    Drop {
        /// Name of the tenant.
        name: String,
    },
    /// Show or change the limits of a tenant. Changes apply from the next request on.
    Limits {
        /// Name of the tenant (administrator); default: your own limits (tenant).
        name: Option<String>,
        /// Set a limit: a number, `unlimited`, for bytes also KiB, MiB, GiB, TiB; `sandbox` is native or wasm. May be
        /// repeated.
        #[arg(long, value_name = "LIMIT=VALUE", requires = "name")]
        set: Vec<Setting>,
        /// Reset a limit to its default. May be repeated.
        #[arg(long, value_name = "LIMIT", requires = "name")]
        reset: Vec<String>,
        /// Set sandbox=wasm even if a version that the tenant keeps has no WebAssembly module; its calls then fail.
        #[arg(long, requires = "set")]
        force: bool,
    },
}

/// The commands of `splinter server`.
#[derive(Debug, Subcommand)]
pub enum ServerCommand {
    /// Wait until the server serves, all of them if --address lists several. Shows how much of its log it has replayed.
    Wait {
        /// Give up after this time: a number with ms, s, m, h or d.
        #[arg(long, value_name = "TIME", default_value = "5m")]
        timeout: TimeToLive,
        /// Wait until all of the log is replayed, too: servers serve before that, and read ahead what a request needs.
        #[arg(long)]
        replayed: bool,
    },
}

/// The commands of `splinter session`. A client's number identifies its session; tokens are never shown.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the open sessions.
    List,
    /// End a session. Its client opens another automatically if the tenant's secret is still valid.
    Revoke {
        /// Number of the client, as `splinter session list` shows it.
        client: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::{Command, Options};
    use crate::output::Output;
    use clap::{CommandFactory, Parser};

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn what_every_command_takes_is_listed_apart() {
        let mut command = Options::command();
        command.build();
        let help = command.find_subcommand_mut("put").unwrap().render_help().to_string();
        let of_put = help.find("--if-version").unwrap();
        let of_all = help.find("Options of every command:").unwrap();
        assert!(of_put < of_all && of_all < help.find("--address").unwrap(), "{help}");
    }

    #[test]
    fn what_every_command_takes_may_stand_behind_it() {
        let line = ["splinter", "table", "list", "--output", "json", "--address", "127.0.0.1:9"];
        let options = Options::try_parse_from(line).unwrap();
        assert_eq!(options.global.output, Output::Json);
        assert_eq!(options.global.address.as_deref(), Some("127.0.0.1:9"));
    }

    #[test]
    fn a_new_version_is_placed_in_one_way() {
        let with = |more: &[&str]| {
            let line = ["splinter", "ext", "install", "."].iter().chain(more);
            Options::try_parse_from(line).map(|options| options.command)
        };
        assert!(with(&[]).is_ok() && with(&["--pin"]).is_ok() && with(&["--canary", "10"]).is_ok());
        assert!(with(&["--pin", "--canary", "10"]).is_err());
        assert!(with(&["--canary", "0"]).is_err() && with(&["--canary", "100"]).is_err());
        let pin =
            |more: &[&str]| Options::try_parse_from(["splinter", "ext", "pin", "tao"].iter().chain(more));
        assert!(pin(&["3"]).is_ok() && pin(&["--off"]).is_ok());
        assert!(pin(&[]).is_err() && pin(&["3", "--off"]).is_err());
    }

    #[test]
    fn limits_are_set_by_name_and_for_a_tenant_that_is_named() {
        let parses = |line: &str| {
            let words = ["splinter", "tenant", "limits"].into_iter().chain(line.split(' '));
            Options::try_parse_from(words.filter(|word| !word.is_empty())).is_ok()
        };
        assert!(parses("") && parses("acme") && parses("acme --reset weight"));
        assert!(parses("acme --set weight=300 --set memory_bytes=64MiB --reset invocations"));
        for wrong in ["--set weight=300", "--reset weight", "acme --set weight", "acme --set weight=much"] {
            assert!(!parses(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_grant_says_for_what() {
        let parses = |line: &str| {
            Options::try_parse_from(["splinter", "grant"].into_iter().chain(line.split(' '))).is_ok()
        };
        assert!(parses("table t --to bob --read") && parses("table t --to bob --write"));
        assert!(parses("ext e --to bob --invoke") && parses("list") && parses("revoke ext e --to bob"));
        for wrong in
            ["table t --to bob", "table t --to bob --read --write", "ext e --to bob", "revoke table t"]
        {
            assert!(!parses(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_put_has_one_condition_at_most() {
        let put = ["splinter", "put", "table", "key", "value"];
        let with =
            |more: &[&str]| Options::try_parse_from(put.iter().chain(more)).map(|options| options.command);
        assert!(matches!(with(&["--if-version", "3"]), Ok(Command::Put(_))));
        assert!(Options::try_parse_from(["splinter", "put", "table", "key", "-5"]).is_ok());
        assert!(with(&["--if-absent", "--if-version", "3"]).is_err());
    }

    #[test]
    fn objects_are_named_on_the_line_or_by_a_file() {
        let parses =
            |line: &str| Options::try_parse_from(["splinter"].into_iter().chain(line.split(' '))).is_ok();
        assert!(parses("get t a") && parses("get t a b c") && parses("delete t a b"));
        assert!(parses("put t --from - --format json") && parses("delete t --from keys"));
        assert!(parses("get t --from keys --format json"));
        for wrong in [
            "get t",
            "get t a --from -",
            "put t",
            "put t a",
            "put t a b --from -",
            "put t a b --format json",
            "delete t",
            "delete t a --from -",
        ] {
            assert!(!parses(wrong), "{wrong}");
        }
    }

    #[test]
    fn an_increment_may_be_negative_and_is_one_by_default() {
        let delta = |line: &[&str]| match Options::try_parse_from(line).unwrap().command {
            Command::Increment { delta, .. } => delta,
            _ => panic!("an increment"),
        };
        assert_eq!(delta(&["splinter", "increment", "table", "key"]), 1);
        assert_eq!(delta(&["splinter", "increment", "table", "key", "-5"]), -5);
    }
}
