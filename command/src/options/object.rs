//! The command lines of `splinter get`, `put`, `delete` and `scan`.
//!
//! Times to live are written `500ms`, `30s`, `15m`, `12h`, `7d`; zero and values beyond the protocol's limit are refused
//! before a server is asked.

use crate::bytes::Bytes;
use clap::{Args, ValueEnum};
use client::{RequestDurability, TTL_MS_MAX};
use std::str::FromStr;

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
    #[command(flatten)]
    pub waits: AnswerOptions,
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
    #[command(flatten)]
    pub waits: AnswerOptions,
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
    #[command(flatten)]
    pub waits: AnswerOptions,
}

/// What the answer of a command on objects waits for.
#[derive(Args, Clone, Copy, Debug)]
pub struct AnswerOptions {
    /// When the answer comes, whatever the durability of the table.
    #[arg(long, value_enum, value_name = "DURABILITY")]
    pub durability: Option<AnswerDurability>,
}

/// A durability that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AnswerDurability {
    /// As for a table that is `written`: a crash may undo what the answer says.
    Written,
    /// When all that it says is stable on the disk. A table in memory refuses such a write.
    Synced,
}

impl AnswerOptions {
    /// Returns the durability as requests encode it.
    pub fn durability(self) -> RequestDurability {
        match self.durability {
            None => RequestDurability::OfTable,
            Some(AnswerDurability::Written) => RequestDurability::Written,
            Some(AnswerDurability::Synced) => RequestDurability::Synced,
        }
    }
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

/// The options of `splinter scan`.
#[derive(Args, Clone, Debug)]
pub struct ScanOptions {
    /// Name of the table, or OWNER/TABLE for a granted one.
    pub table: String,
    /// Only keys with this prefix: text, 0xHEX or @FILE.
    #[arg(long, value_name = "KEY")]
    pub prefix: Option<Bytes>,
    /// Only keys from this one on.
    #[arg(long, value_name = "KEY")]
    pub from: Option<Bytes>,
    /// Only keys below this one.
    #[arg(long, value_name = "KEY")]
    pub to: Option<Bytes>,
    /// Scan from the largest key to the smallest.
    #[arg(long)]
    pub reverse: bool,
    /// Maximum number of objects.
    #[arg(long, default_value_t = 100)]
    pub limit: u64,
    /// Omit the values.
    #[arg(long)]
    pub keys_only: bool,
    /// Continue where an earlier scan of the same range ended: the hex that it printed.
    #[arg(long, value_name = "CURSOR", default_value = "", hide_default_value = true)]
    pub cursor: String,
}

/// A time to live in milliseconds, from 1 to [`TTL_MS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeToLive(pub u64);

/// Units and their milliseconds; the first one that matches the suffix applies.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl FromStr for TimeToLive {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeToLive, String> {
        let known = UNITS.iter().find_map(|&(unit, ms)| Some((text.strip_suffix(unit)?, ms)));
        let (number, unit_ms) =
            known.ok_or("a time is a number followed by ms, s, m, h or d, such as 30s")?;
        let number: u64 = number.parse().map_err(|_| format!("`{number}` is not a whole number"))?;
        match number.checked_mul(unit_ms) {
            Some(ms) if (1..=TTL_MS_MAX).contains(&ms) => Ok(TimeToLive(ms)),
            _ => Err("a time to live must be from 1 ms to 139 years".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TimeToLive;

    #[test]
    fn a_time_has_a_unit_and_is_within_its_range() {
        for (text, ms) in
            [("1ms", 1), ("30s", 30_000), ("15m", 900_000), ("12h", 43_200_000), ("7d", 604_800_000)]
        {
            assert_eq!(text.parse(), Ok(TimeToLive(ms)));
        }
        for wrong in ["", "30", "s", "0s", "-1s", "1.5s", "51000d", "18446744073709551615d", "ten s"] {
            assert!(wrong.parse::<TimeToLive>().is_err(), "{wrong}");
        }
    }
}
