//! The command line of `splinter ext`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Extensions.
#[derive(Debug, Subcommand)]
pub enum ExtensionCommand {
    /// Write a new extension with a unit test, ready for `cargo test`.
    New {
        /// Its name, which is also the name of the folder.
        name: String,
    },
    /// Check the source as the server would, without a server.
    Check {
        /// The folder of the package.
        #[arg(default_value = ".")]
        directory: PathBuf,
    },
    /// Send the source to the server, which checks, compiles and loads it.
    Install {
        /// The folder of the package.
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Name to install it under; that of its package when left out.
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        placement: Placing,
    },
    /// List the installed extensions and their versions.
    List,
    /// Functions, limits, and the figures of each version of an extension.
    Describe {
        /// Its name, or OWNER/NAME of one that is granted.
        name: String,
    },
    /// What an extension logged.
    Logs {
        /// Its name, or OWNER/NAME of one that is granted.
        name: String,
        /// How many lines, the latest.
        #[arg(long, default_value_t = 50)]
        lines: u32,
        /// Lines of this level and graver ones.
        #[arg(long, value_enum, default_value = "debug")]
        level: LogLevel,
        /// Go on with what is logged from now on, until interrupted.
        #[arg(long)]
        follow: bool,
    },
    /// Make the version before current again, or end the canary.
    Rollback {
        /// Its name.
        name: String,
        /// Which version becomes current; the one before when left out.
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
    },
    /// Make a version current and keep it so when others are installed.
    Pin {
        /// Its name.
        name: String,
        /// The version; left out with --off.
        #[arg(required_unless_present = "off", conflicts_with = "off")]
        version: Option<u32>,
        /// Let the next installation become current again.
        #[arg(long)]
        off: bool,
    },
    /// Make the canary current.
    Promote {
        /// Its name.
        name: String,
    },
    /// Remove an extension, or one version of it.
    Remove {
        /// NAME or NAME@VERSION.
        name: String,
    },
}

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something looks wrong.
    Warning,
    /// Worth knowing.
    Info,
    /// For the author.
    Debug,
}

/// Who gets a version that is installed; without a word it becomes current.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct Placing {
    /// Keep the current version current, and pin it; the new one is invoked as NAME@VERSION.
    #[arg(long)]
    pub pin: bool,
    /// Give the new version so many of 100 invocations.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=99))]
    pub canary: Option<u8>,
}
