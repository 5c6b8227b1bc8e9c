//! Times to live on the command line: `500ms`, `30s`, `15m`, `12h`, `7d`.
//!
//! Refuses zero and values beyond the protocol's limit before asking a server.

use client::TTL_MS_MAX;
use std::str::FromStr;

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
