//! The lists that aggregates sum: records whose value is the keys of other records.
//!
//! A list of n names n objects of the data set, chosen by a formula, so that its sum is known without
//! asking. Lists of every length live side by side in the table of the data set.

use crate::dataset::Dataset;
use crate::popularity::scramble;

/// Different lists of each length.
pub const LISTS: u64 = 10_000;

/// Bytes of the key of a list.
pub const KEY_BYTES: usize = 16;

/// The key of a list of `records` objects: never that of an object.
pub fn key(records: usize, list: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"list\0\0\0\0\0\0\0\0\0\0\0\0";
    key[4..8].copy_from_slice(&(records as u32).to_le_bytes());
    key[8..].copy_from_slice(&list.to_le_bytes());
    key
}

/// The indexes of the objects of a list, out of `keys`.
pub fn members(records: usize, list: u64, keys: u64) -> impl Iterator<Item = u64> {
    let seed = list.wrapping_mul(131).wrapping_add(records as u64 * 1_000_003);
    (0..records as u64).map(move |at| scramble(seed.wrapping_add(at * 7_919)) % keys)
}

/// The value of a list: the keys of its members, one behind the other.
pub fn value(data: &mut Dataset, records: usize, list: u64) -> Vec<u8> {
    let keys = data.keys();
    let mut value = Vec::with_capacity(records * data.key_bytes());
    for index in members(records, list, keys) {
        value.extend_from_slice(data.key(index));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::{key, members, value};
    use crate::dataset::Dataset;

    #[test]
    fn a_list_names_its_members_in_order() {
        let mut data = Dataset::new(1000, 30, 100).unwrap();
        let text = value(&mut data, 8, 5);
        let expected: Vec<u8> = members(8, 5, 1000).flat_map(|index| data.key(index).to_vec()).collect();
        assert_eq!(text, expected);
        assert_eq!(text.len(), 8 * 30);
    }

    #[test]
    fn lists_differ_by_length_and_number() {
        assert_ne!(key(8, 5), key(8, 6));
        assert_ne!(key(8, 5), key(64, 5));
        assert!(members(64, 5, 1000).ne(members(64, 6, 1000)));
        assert!(members(64, 5, 1000).all(|index| index < 1000));
    }
}
