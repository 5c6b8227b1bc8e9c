//! The command line of `splinter get`, `put` and `delete`.

use super::TimeToLive;
use crate::bytes::Bytes;
use clap::{Args, ValueEnum};

/// The options of `splinter get`.
#[derive(Args, Clone, Debug)]
pub struct GetOptions {
    /// Name of the table, or OWNER/TABLE for a granted one.
    pub table: String,
    /// Key: text, 0xHEX or @FILE. Several keys are read together.
    #[arg(required_unless_present = "from", value_name = "KEY")]
    pub keys: Vec<Bytes>,
    /// Read many objects; this file lists one key per line (- for standard input).
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub from: Option<String>,
    /// Format of the lines.
    #[arg(long, value_enum, default_value = "tab", conflicts_with = "keys")]
    pub format: LineFormat,
}

/// The options of `splinter put`.
#[derive(Args, Clone, Debug)]
pub struct PutOptions {
    /// Name of the table, or OWNER/TABLE for a granted one.
    pub table: String,
    /// Key: text, 0xHEX or @FILE.
    #[arg(required_unless_present = "from")]
    pub key: Option<Bytes>,
    /// Value: text, 0xHEX or @FILE.
    #[arg(allow_negative_numbers = true, required_unless_present = "from")]
    pub value: Option<Bytes>,
    /// Write many objects, one per line of this file (- for standard input), each as a separate request.
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    pub from: Option<String>,
    /// Format of the lines.
    #[arg(long, value_enum, default_value = "tab", conflicts_with = "key")]
    pub format: LineFormat,
    #[command(flatten)]
    pub condition: WriteCondition,
    /// Time to live: a number with ms, s, m, h or d. Default: no expiry.
    #[arg(long, value_name = "TIME")]
    pub ttl: Option<TimeToLive>,
}

/// The options of `splinter delete`.
#[derive(Args, Clone, Debug)]
pub struct DeleteOptions {
    /// Name of the table, or OWNER/TABLE for a granted one.
    pub table: String,
    /// Key: text, 0xHEX or @FILE. Several keys are deleted one by one.
    #[arg(required_unless_present = "from", value_name = "KEY")]
    pub keys: Vec<Bytes>,
    /// Delete many objects; this file lists one key per line (- for standard input).
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub from: Option<String>,
    /// Format of the lines.
    #[arg(long, value_enum, default_value = "tab", conflicts_with = "keys")]
    pub format: LineFormat,
    /// Only if the object has exactly this version.
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
}

/// Formats of a file with one object per line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LineFormat {
    /// Key, tab, value; each is text or 0xHEX.
    Tab,
    /// {"key": .., "value": .., "ttl_ms": ..} as `scan` and `table enumerate` print them, or with texts.
    Json,
}

/// The condition of a put.
#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
pub struct WriteCondition {
    /// Only if the object has exactly this version.
    #[arg(long, value_name = "VERSION")]
    pub if_version: Option<u64>,
    /// Only if the object does not exist.
    #[arg(long)]
    pub if_absent: bool,
    /// Only if the object exists.
    #[arg(long)]
    pub if_present: bool,
}
