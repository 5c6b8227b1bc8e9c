//! The order of a table's keys, which every complete walk follows.
//!
//! Keys are ordered by their hash, which is the order of the buckets, then by a second hash, which separates keys
//! that share the first. A key keeps its place forever.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Makes the second hash differ from the first.
const SECOND_SEED: u64 = 0x5345_434f_4e44;

/// The place of a key in the order of an enumeration.
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
