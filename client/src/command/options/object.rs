//! The command line of `splinter get`, `put` and `delete`.

use super::TimeToLive;
use crate::command::bytes::Bytes;
use clap::{Args, ValueEnum};

/// Which objects to read.
#[derive(Args, Clone, Debug)]
pub struct GetOptions {
    /// Name of the table, or OWNER/TABLE of one that is granted.
    pub table: String,
    /// Key: text, 0xHEX or @FILE. Several are read together.
    #[arg(required_unless_present = "from", value_name = "KEY")]
    pub keys: Vec<Bytes>,
    /// Read many objects, the key of one a line of this file (- for standard input).
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub from: Option<String>,
    /// How the lines are written.
    #[arg(long, value_enum, default_value = "tab", conflicts_with = "keys")]
    pub format: LineFormat,
}

/// What to write.
#[derive(Args, Clone, Debug)]
pub struct PutOptions {
    /// Name of the table, or OWNER/TABLE of one that is granted.
    pub table: String,
    /// Key: text, 0xHEX or @FILE.
    #[arg(required_unless_present = "from")]
    pub key: Option<Bytes>,
    /// Value: text, 0xHEX or @FILE.
    #[arg(allow_negative_numbers = true, required_unless_present = "from")]
    pub value: Option<Bytes>,
    /// Write many objects, one a line of this file (- for standard input), each as a request of its own.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub from: Option<String>,
    /// How the lines are written.
    #[arg(long, value_enum, default_value = "tab", conflicts_with = "key")]
    pub format: LineFormat,
    #[command(flatten)]
    pub condition: WriteCondition,
    /// How long it is there: a number with ms, s, m, h or d behind it. It stays when left out.
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<TimeToLive>,
}

/// What to delete.
#[derive(Args, Clone, Debug)]
pub struct DeleteOptions {
    /// Name of the table, or OWNER/TABLE of one that is granted.
    pub table: String,
    /// Key: text, 0xHEX or @FILE. Several are deleted, each by itself.
    #[arg(required_unless_present = "from", value_name = "KEY")]
    pub keys: Vec<Bytes>,
    /// Delete many objects, the key of one a line of this file (- for standard input).
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub from: Option<String>,
    /// How the lines are written.
    #[arg(long, value_enum, default_value = "tab", conflicts_with = "keys")]
    pub format: LineFormat,
    /// Only when the object has exactly this version.
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
}

/// How objects stand in a file, one a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// Key, tab, value; each is text, or 0xHEX.
    Tab,
    /// {"key": .., "value": .., "ttl_ms": ..} as `scan` and `table enumerate` print them, or with texts.
    Json,
}

/// When a put applies.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct WriteCondition {
    /// Only when the object has exactly this version.
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
    /// Only when there is no such object.
    #[arg(long)]
    pub if_absent: bool,
    /// Only when there is such an object.
    #[arg(long)]
    pub if_present: bool,
}
