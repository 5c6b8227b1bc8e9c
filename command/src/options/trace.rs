//! The command line of `splinter trace`.

use std::time::Duration;

use clap::Args;

/// The options of `splinter trace`.
#[derive(Args, Clone, Debug)]
pub struct TraceOptions {
    /// Name of the extension, or OWNER/NAME for a granted one.
    pub extension: String,
    /// Only this function.
    #[arg(long)]
    pub function: Option<String>,
    /// Only invocations that took at least this long, such as 100us or 2ms.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slow_than: Option<Duration>,
    /// Number of invocations.
    #[arg(long, default_value_t = 10, conflicts_with = "follow")]
    pub count: u64,
    /// Maximum time to wait for them, in seconds.
    #[arg(long, default_value_t = 10, conflicts_with = "follow")]
    pub seconds: u64,
    /// Continue until interrupted.
    #[arg(long)]
    pub follow: bool,
}

/// Parses a time such as `100us`, `2ms` or `1s`.
fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("`{text}` is not a time such as 100us, 2ms or 1s");
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| refuse())?;
    let us = match &text[digits..] {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        _ => return Err(refuse()),
    };
    number.checked_mul(us).map(Duration::from_micros).ok_or_else(refuse)
}

#[cfg(test)]
mod tests {
    use super::duration;
    use std::time::Duration;

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(duration("100us"), Ok(Duration::from_micros(100)));
        assert_eq!(duration("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(duration("1s"), Ok(Duration::from_secs(1)));
        for text in ["", "us", "5", "-1s", "1.5ms", "99999999999999999999s", "18446744073709551615s", "3 h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
