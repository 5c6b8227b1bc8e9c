//! The command line of `splinter tenant limits`: `LIMIT=VALUE`, with units for bytes.
//!
//! The server knows the limits, so this file does not check their names. Limits whose names end with `_bytes` accept
//! units; the values of `sandbox` are words.

use client::limit_words;
use std::fmt;
use std::str::FromStr;

/// The value that means "no limit".
pub const UNLIMITED: u64 = u64::MAX;

/// Units of bytes, each 1,024 times the previous one.
pub const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// A limit and its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the limit.
    pub limit: String,
    /// New value.
    pub value: u64,
}

/// The reason why a text is not a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSetting(String);

impl fmt::Display for NoSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for NoSetting {}

impl FromStr for Setting {
    type Err = NoSetting;

    fn from_str(text: &str) -> Result<Setting, NoSetting> {
        let Some((limit, value)) = text.split_once('=') else {
            return Err(NoSetting("write LIMIT=VALUE, for instance weight=300".to_owned()));
        };
        if let Some(words) = limit_words(limit) {
            let found = words.iter().position(|word| *word == value);
            let value = found.ok_or_else(|| {
                NoSetting(format!("the value of {limit} must be {}, not `{value}`", quoted(words)))
            })?;
            return Ok(Setting { limit: limit.to_owned(), value: value as u64 });
        }
        let of_bytes = limit.ends_with("_bytes");
        let value = amount(value, of_bytes).ok_or_else(|| {
            let example = if of_bytes { ", or bytes with a unit: 64MiB" } else { "" };
            NoSetting(format!("the value of {limit} must be a whole number or `unlimited`{example}"))
        })?;
        Ok(Setting { limit: limit.to_owned(), value })
    }
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
}

/// Parses bytes, with or without one of [`UNITS`].
pub fn bytes_of(text: &str) -> Option<u64> {
    amount(text, true).filter(|_| text != "unlimited")
}

fn amount(text: &str, of_bytes: bool) -> Option<u64> {
    if text == "unlimited" {
        return Some(UNLIMITED);
    }
    let digits = text.find(|other: char| !other.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (text[..digits].parse::<u64>().ok()?, text[digits..].trim_start());
    let scale = match unit {
        "" => 0,
        unit if of_bytes => UNITS.iter().position(|known| known.eq_ignore_ascii_case(unit))?,
        _ => return None,
    };
    number.checked_mul(1 << (10 * scale))
}

#[cfg(test)]
mod tests {
    use super::{Setting, UNLIMITED};

    fn value(text: &str) -> Option<u64> {
        text.parse::<Setting>().ok().map(|setting| setting.value)
    }

    #[test]
    fn a_value_is_a_number_unlimited_or_bytes_with_a_unit() {
        assert_eq!(value("weight=300"), Some(300));
        assert_eq!(value("operations_per_second=unlimited"), Some(UNLIMITED));
        assert_eq!(value("memory_bytes=64MiB"), Some(64 << 20));
        assert_eq!(value("memory_bytes=3 gib"), Some(3 << 30));
        assert_eq!(value("memory_bytes=0"), Some(0));
        for wrong in ["weight", "weight=", "weight=64MiB", "memory_bytes=64MB", "memory_bytes=-1"] {
            assert_eq!(value(wrong), None, "{wrong}");
        }
        assert_eq!(value("memory_bytes=99999999999TiB"), None, "beyond 64 bits");
        let refused = "memory_bytes=much".parse::<Setting>().expect_err("no amount");
        assert!(refused.to_string().contains("64MiB"), "{refused}");
    }

    #[test]
    fn the_form_of_invocations_is_a_word() {
        assert_eq!((value("sandbox=native"), value("sandbox=wasm")), (Some(0), Some(1)));
        for wrong in ["sandbox=", "sandbox=Wasm", "sandbox=1", "sandbox=unlimited", "sandbox=wasm,native"] {
            let refused = wrong.parse::<Setting>().expect_err("no form").to_string();
            assert!(refused.contains("must be `native` or `wasm`, not `"), "{refused}");
        }
    }
}
