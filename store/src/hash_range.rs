//! The order of a table's keys: ranges of hashes, and the place of a key.
//!
//! A table of a cluster is cut into tablets, each a range of hashes. A server has one `Table` of the store per
//! tablet, whose index spreads its buckets over that range only, so that a narrow range wastes nothing. Walks through an
//! index, cursors outside the store and notes of removed keys name places by their position.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::limits::HASH_RANGE_WIDTH_MIN;

/// Makes the second hash differ from the first.
const SECOND_SEED: u64 = 0x5345_434f_4e44;

/// The hashes from `first` to `last`, both included: those of the objects that one [`crate::Table`] holds.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct HashRange {
    first: u64,
    last: u64,
}

/// The range of all hashes.
impl Default for HashRange {
    fn default() -> HashRange {
        HashRange::ALL
    }
}

impl HashRange {
    /// Every hash.
    pub const ALL: HashRange = HashRange { first: 0, last: u64::MAX };

    /// Creates a range; `None` if it would have fewer than [`HASH_RANGE_WIDTH_MIN`] hashes.
    #[must_use]
    pub const fn new(first: u64, last: u64) -> Option<HashRange> {
        if first <= last && last - first >= HASH_RANGE_WIDTH_MIN - 1 {
            Some(HashRange { first, last })
        } else {
            None
        }
    }

    /// Returns the first hash.
    #[inline]
    #[must_use]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// Returns the last hash.
    #[inline]
    #[must_use]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// Returns whether the range contains `hash`.
    #[inline]
    #[must_use]
    pub const fn contains(self, hash: u64) -> bool {
        // One comparison for both bounds.
        hash.wrapping_sub(self.first) <= self.last - self.first
    }

    /// Splits the range into `count` ranges of equal width, in order, or fewer if they would be too narrow.
    #[must_use]
    pub fn split(self, count: usize) -> Vec<HashRange> {
        let pieces = |count: usize| {
            let bound =
                |at: usize| (u128::from(self.first) + self.width() * at as u128 / count as u128) as u64;
            let last = |at: usize| if at + 1 == count { self.last } else { bound(at + 1) - 1 };
            (0..count).map(|at| HashRange::new(bound(at), last(at))).collect::<Option<Vec<_>>>()
        };
        (1..=count.max(1)).rev().find_map(pieces).expect("one range has all hashes")
    }

    /// Returns the number of hashes.
    #[must_use]
    pub const fn width(self) -> u128 {
        (self.last - self.first) as u128 + 1
    }
}

/// The place of a key in the order that every complete walk follows. A key keeps it forever.
///
/// Keys are ordered by their hash, which is the order of the buckets, then by a second hash, which separates keys that
/// share the first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Position {
    pub(crate) hash: u64,
    pub(crate) second: u64,
}

impl Position {
    /// Returns the position of a key.
    pub(crate) fn of(key: &[u8]) -> Position {
        Position { hash: crate::hash(key), second: xxh3_64_with_seed(key, SECOND_SEED) }
    }

    /// Returns the last position of a hash.
    pub(crate) fn last_of(hash: u64) -> Position {
        Position { hash, second: u64::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::HashRange;
    use crate::limits::HASH_RANGE_WIDTH_MIN;

    #[test]
    fn a_range_has_its_bounds_and_nothing_beside_them() {
        let (first, last) = (1 << 40, (1 << 40) + HASH_RANGE_WIDTH_MIN - 1);
        let range = HashRange::new(first, last).expect("as narrow as may be");
        assert_eq!(range.width(), u128::from(HASH_RANGE_WIDTH_MIN));
        assert!(range.contains(first) && range.contains(last) && range.contains(first + 1));
        assert!(![0, first - 1, last + 1, u64::MAX].into_iter().any(|hash| range.contains(hash)));
        assert!([0, 1, u64::MAX].into_iter().all(|hash| HashRange::ALL.contains(hash)));
        assert_eq!(HashRange::new(0, u64::MAX), Some(HashRange::ALL));
        assert_eq!(HashRange::ALL.width(), 1 << 64);
    }

    #[test]
    fn ranges_that_are_empty_or_too_narrow_are_none() {
        assert_eq!(HashRange::new(5, 4), None);
        assert_eq!(HashRange::new(u64::MAX, 0), None);
        assert_eq!(HashRange::new(0, HASH_RANGE_WIDTH_MIN - 2), None);
    }
}
