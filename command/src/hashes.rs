//! Hashes on the command line: 16 hex digits, or a share of all hashes.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// A hash, or the end of all hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u128);

/// A range of hashes; excludes its end on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashes {
    first: u64,
    last: u64,
}

/// One past the last hash.
const END: u128 = 1 << 64;

/// Tablet boundaries are multiples of this.
const TABLET_STEP: u128 = 1 << 32;

impl Hash {
    /// Returns the hash; `None` for the end of all hashes.
    pub fn get(self) -> Option<u64> {
        u64::try_from(self.0).ok()
    }
}

impl FromStr for Hash {
    type Err = String;

    fn from_str(text: &str) -> Result<Hash, String> {
        let wrong = || format!("`{text}` is not a hash: give 16 hex digits or a share such as 50% or 12.5%");
        if let Some(percent) = text.strip_suffix('%') {
            // Integer millionths of a percent, so that decimal input is exact.
            let (whole, fraction) = percent.split_once('.').unwrap_or((percent, ""));
            let is_number = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
            if whole.is_empty()
                || whole.len() > 3
                || fraction.len() > 6
                || !is_number(whole)
                || !is_number(fraction)
            {
                return Err(wrong());
            }
            let millionths: u128 = format!("{whole}{fraction:0<6}").parse().map_err(|_| wrong())?;
            // Rounded down to a tablet boundary.
            let hash = millionths * END / 100_000_000 / TABLET_STEP * TABLET_STEP;
            return if hash <= END { Ok(Hash(hash)) } else { Err(wrong()) };
        }
        let digits = text.strip_prefix("0x").unwrap_or(text);
        if digits.len() != 16 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u128::from_str_radix(digits, 16).map(Hash).map_err(|_| wrong())
    }
}

impl Hashes {
    /// Returns the first and the last hash.
    pub fn range(self) -> RangeInclusive<u64> {
        self.first..=self.last
    }
}

impl FromStr for Hashes {
    type Err = String;

    fn from_str(text: &str) -> Result<Hashes, String> {
        let (from, to) = text.split_once("..").ok_or("give FROM..TO, such as 50%..75%, 50%.. or ..50%")?;
        let from = if from.is_empty() { Hash(0) } else { from.parse()? };
        let to = if to.is_empty() { Hash(END) } else { to.parse()? };
        match (from.get(), to.0.checked_sub(1)) {
            (Some(first), Some(last)) if u128::from(first) <= last => Ok(Hashes { first, last: last as u64 }),
            _ => Err(format!("the range `{text}` is empty")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Hash, Hashes};

    fn hash(text: &str) -> Option<u64> {
        text.parse::<Hash>().ok()?.get()
    }

    #[test]
    fn a_hash_is_sixteen_digits_or_a_part_of_all() {
        assert_eq!(hash("8000000000000000"), Some(1 << 63));
        assert_eq!(hash("0x00000000000000ff"), Some(255));
        assert_eq!(hash("50%"), Some(1 << 63));
        assert_eq!(hash("12.5%"), Some(1 << 61));
        assert_eq!(hash("33.3%"), Some(0x553f_7ced << 32));
        assert_eq!(hash("0%"), Some(0));
        assert!("100%".parse::<Hash>().is_ok());
        for wrong in
            ["", "%", "1", "101%", "-1%", "50.%%", "1e1%", "zz%", "800000000000000g", ".5%", "1.0000001%"]
        {
            assert!(wrong.parse::<Hash>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_ends_before_its_second_hash() {
        let range = |text: &str| text.parse::<Hashes>().map(Hashes::range);
        assert_eq!(range(".."), Ok(0..=u64::MAX));
        assert_eq!(range("50%.."), Ok(1 << 63..=u64::MAX));
        assert_eq!(range("..25%"), Ok(0..=(1 << 62) - 1));
        assert_eq!(range("50%..100%"), Ok(1 << 63..=u64::MAX));
        for wrong in ["", "50%", "50%..50%", "75%..25%", "100%..", "..0%", "a..b"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }
}
