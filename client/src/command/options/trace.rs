//! What `splinter trace` takes.

use std::time::Duration;

use clap::Args;

/// Which invocations are traced, and for how long.
#[derive(Args, Clone, Debug)]
pub struct TraceOptions {
    /// The extension, or OWNER/NAME of one that is granted.
    pub extension: String,
    /// This function alone.
    #[arg(long)]
    pub function: Option<String>,
    /// Those alone that took at least so long, such as 100us or 2ms.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slow_than: Option<Duration>,
    /// How many.
    #[arg(long, default_value_t = 10, conflicts_with = "follow")]
    pub count: u64,
    /// How long to wait for them, in seconds.
    #[arg(long, default_value_t = 10, conflicts_with = "follow")]
    pub seconds: u64,
    /// Go on until interrupted.
    #[arg(long)]
    pub follow: bool,
}

/// A time as people write it: `100us`, `2ms`, `1s`.
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
