//! The generated data: which key and which value belong to an index; lists of objects; a graph.
//!
//! Keys are `user` and the index in decimal digits with leading zeros, so that a Redis or memcached loaded by another tool
//! holds the very same keys. The first eight bytes of a value are the index, little-endian, the rest is a fixed pattern: a
//! reader can tell a right answer from a wrong one. Nothing of a [`Dataset`] allocates after construction; `scripts/peers`
//! relies on the format.
//!
//! A list that an aggregate sums is a record whose value is the keys of other records. A list of n names n objects of the
//! data set, chosen by a formula, so that its sum is known without asking. Lists of every length live side by side in the
//! table of the data set.
//!
//! The graph is that of `tao::mix` as records, for loading with plain puts. Every object has 1 to 19 associations of one
//! type, on average 10, to objects all over the graph; each carries the same number of bytes of data. The records are
//! those that the graph functions would have written one by one.

use tao::bulk::{self, Put};
use tao::entry::Entry;
use tao::key::{self, AssocType, ListId, ObjectId};
use tao::mix::{self, Mix};
use tao::object::{Object, ObjectType};

use crate::popularity::scramble;

/// Bytes that every key starts with.
const PREFIX: &[u8] = b"user";

/// Bytes of the shortest key: the prefix and twelve digits.
pub const KEY_BYTES_MIN: usize = 16;

/// Bytes of the longest key, which fits a frame with room for a value.
pub const KEY_BYTES_MAX: usize = 255;

/// Bytes of the shortest value: the index.
pub const VALUE_BYTES_MIN: usize = 8;

/// Different lists of each length.
pub const LISTS: u64 = 10_000;

/// Bytes of the key of a list.
const LIST_KEY_BYTES: usize = 16;

/// The type of all associations.
const FRIEND: AssocType = AssocType(1);

/// The type of all objects.
const PERSON: ObjectType = ObjectType(1);

/// Entries that a range asks for.
const RANGE_LIMIT: u32 = 10;

/// The shape of the data set.
#[derive(Clone, Debug)]
pub struct Dataset {
    keys: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Dataset {
    /// A data set of `keys` objects; refuses sizes that cannot hold an index.
    pub fn new(keys: u64, key_bytes: usize, value_bytes: usize) -> Result<Self, String> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key_bytes) {
            return Err(format!("keys have {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes, not {key_bytes}"));
        }
        if value_bytes < VALUE_BYTES_MIN {
            return Err(format!("values have at least {VALUE_BYTES_MIN} bytes, not {value_bytes}"));
        }
        if keys == 0 || keys > 1_000_000_000_000 {
            return Err(format!("a data set has 1 to 10^12 objects, not {keys}"));
        }
        let mut key = vec![b'0'; key_bytes];
        key[..PREFIX.len()].copy_from_slice(PREFIX);
        let value = (0..value_bytes).map(|at| b'a' + (at % 26) as u8).collect();
        Ok(Self { keys, key, value })
    }

    /// Number of objects.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// Bytes of each key.
    pub fn key_bytes(&self) -> usize {
        self.key.len()
    }

    /// Bytes of each value.
    pub fn value_bytes(&self) -> usize {
        self.value.len()
    }

    /// The key of `index`, in a buffer that the next call overwrites.
    pub fn key(&mut self, index: u64) -> &[u8] {
        write_digits(&mut self.key[PREFIX.len()..], index);
        &self.key
    }

    /// The record of `index`.
    pub fn record(&mut self, index: u64) -> Put {
        let (key, value) = self.object(index);
        Put { key: key.to_vec(), value: value.to_vec() }
    }

    /// Key and value of `index`, in buffers that the next call overwrites.
    pub fn object(&mut self, index: u64) -> (&[u8], &[u8]) {
        write_digits(&mut self.key[PREFIX.len()..], index);
        self.value[..8].copy_from_slice(&index.to_le_bytes());
        (&self.key, &self.value)
    }
}

/// The index that a value belongs to, if it is long enough to say.
pub fn index_of(value: &[u8]) -> Option<u64> {
    value.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Writes `number` in decimal over the end of `out` and zeros before it.
fn write_digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The key of a list of `records` objects: never that of an object.
pub fn list_key(records: usize, list: u64) -> [u8; LIST_KEY_BYTES] {
    let mut key = *b"list\0\0\0\0\0\0\0\0\0\0\0\0";
    key[4..8].copy_from_slice(&(records as u32).to_le_bytes());
    key[8..].copy_from_slice(&list.to_le_bytes());
    key
}

/// The indexes of the objects of a list, out of `keys`.
pub fn list_members(records: usize, list: u64, keys: u64) -> impl Iterator<Item = u64> {
    let seed = list.wrapping_mul(131).wrapping_add(records as u64 * 1_000_003);
    (0..records as u64).map(move |at| scramble(seed.wrapping_add(at * 7_919)) % keys)
}

/// The value of a list: the keys of its members, one behind the other.
pub fn list_value(data: &mut Dataset, records: usize, list: u64) -> Vec<u8> {
    let keys = data.keys();
    let mut value = Vec::with_capacity(records * data.key_bytes());
    for index in list_members(records, list, keys) {
        value.extend_from_slice(data.key(index));
    }
    value
}

/// The mix over a graph of `objects` objects. Its span of time holds 70 % of the associations.
pub fn graph_mix(objects: u64) -> Mix {
    Mix { objects, atype: FRIEND, limit: RANGE_LIMIT, high: 1_590_000_000, low: 1_520_000_000 }
}

/// The records of object `id` and of its list.
pub fn graph_records(id: u64, objects: u64, object_bytes: usize, edge_bytes: usize) -> Vec<Put> {
    let data = vec![b'd'; object_bytes.max(edge_bytes)];
    let list = ListId { id1: ObjectId(id), atype: FRIEND };
    let entries: Vec<Entry<'_>> = (0..mix::degree(id))
        .map(|index| Entry {
            time: mix::time(id, index),
            id2: ObjectId(mix::neighbour(id, index, objects)),
            data: &data[..edge_bytes],
        })
        .collect();
    let mut puts = bulk::list_records(list, &entries);
    let value = Object { otype: PERSON, data: &data[..object_bytes] }.encode();
    puts.push(Put { key: key::object(ObjectId(id)).to_vec(), value });
    puts
}

#[cfg(test)]
mod tests {
    use tao::mix::{Question, Random, degree, neighbour};

    use super::{Dataset, graph_mix, graph_records, index_of, list_key, list_members, list_value};

    #[test]
    fn a_key_is_the_index_in_thirty_bytes() {
        let mut data = Dataset::new(1_000_000, 30, 100).unwrap();
        assert_eq!(data.key(7), b"user00000000000000000000000007");
        assert_eq!(data.key(999_999), b"user00000000000000000000999999");
        assert_eq!(data.key(0), format!("user{:026}", 0).as_bytes());
    }

    #[test]
    fn a_value_names_its_index() {
        let mut data = Dataset::new(1_000_000, 30, 100).unwrap();
        let (_, value) = data.object(123_456);
        assert_eq!(value.len(), 100);
        assert_eq!(index_of(value), Some(123_456));
        assert_eq!(index_of(&value[..7]), None);
    }

    #[test]
    fn sizes_without_room_for_an_index_are_refused() {
        assert!(Dataset::new(10, 15, 100).is_err());
        assert!(Dataset::new(10, 300, 100).is_err());
        assert!(Dataset::new(10, 30, 7).is_err());
        assert!(Dataset::new(0, 30, 100).is_err());
    }

    #[test]
    fn a_list_names_its_members_in_order() {
        let mut data = Dataset::new(1000, 30, 100).unwrap();
        let text = list_value(&mut data, 8, 5);
        let expected: Vec<u8> = list_members(8, 5, 1000).flat_map(|index| data.key(index).to_vec()).collect();
        assert_eq!(text, expected);
        assert_eq!(text.len(), 8 * 30);
    }

    #[test]
    fn lists_differ_by_length_and_number() {
        assert_ne!(list_key(8, 5), list_key(8, 6));
        assert_ne!(list_key(8, 5), list_key(64, 5));
        assert!(list_members(64, 5, 1000).ne(list_members(64, 6, 1000)));
        assert!(list_members(64, 5, 1000).all(|index| index < 1000));
    }

    #[test]
    fn every_object_has_a_record_and_a_list() {
        for id in 0..100 {
            let puts = graph_records(id, 1000, 100, 8);
            assert_eq!(puts.len(), 2, "a list of at most 19 entries is one record");
            assert_eq!(puts[1].value.len(), 104);
            assert!(puts[0].value.len() >= degree(id).min(2) as usize * 26);
        }
    }

    #[test]
    fn the_mix_asks_for_associations_that_are_there() {
        let (mix, mut random) = (graph_mix(1000), Random::new(1));
        for _ in 0..1000 {
            let question = mix.draw(&mut random, |id, choice| neighbour(id, choice % degree(id), 1000));
            let Question::AssocGet { list, id2 } = question else { continue };
            let there = (0..degree(list.id1.0)).any(|index| neighbour(list.id1.0, index, 1000) == id2.0);
            assert!(there, "{question:?}");
        }
    }
}
