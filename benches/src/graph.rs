//! The synthetic graph of `tao::mix` as records, for loading with plain puts, and the mix over it.
//!
//! Every object has 1 to 19 associations of one type, on average 10, to objects all over the graph; each
//! carries the same number of bytes of data. The records are those that the graph functions would have
//! written one by one.

use tao::bulk::{self, Put};
use tao::entry::Entry;
use tao::key::{self, AssocType, ListId, ObjectId};
use tao::mix::{self, Mix};
use tao::object::{Object, ObjectType};

/// The type of all associations.
const FRIEND: AssocType = AssocType(1);

/// The type of all objects.
const PERSON: ObjectType = ObjectType(1);

/// Entries that a range asks for.
const RANGE_LIMIT: u32 = 10;

/// The mix over a graph of `objects` objects. Its span of time holds 70 % of the associations.
pub fn mix(objects: u64) -> Mix {
    Mix { objects, atype: FRIEND, limit: RANGE_LIMIT, high: 1_590_000_000, low: 1_520_000_000 }
}

/// The records of object `id` and of its list.
pub fn records(id: u64, objects: u64, object_bytes: usize, edge_bytes: usize) -> Vec<Put> {
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
    use super::{mix, records};
    use tao::mix::{Question, Random, degree, neighbour};

    #[test]
    fn every_object_has_a_record_and_a_list() {
        for id in 0..100 {
            let puts = records(id, 1000, 100, 8);
            assert_eq!(puts.len(), 2, "a list of at most 19 entries is one record");
            assert_eq!(puts[1].value.len(), 104);
            assert!(puts[0].value.len() >= degree(id).min(2) as usize * 26);
        }
    }

    #[test]
    fn the_mix_asks_for_associations_that_are_there() {
        let (mix, mut random) = (mix(1000), Random::new(1));
        for _ in 0..1000 {
            let question = mix.draw(&mut random, |id, choice| neighbour(id, choice % degree(id), 1000));
            let Question::AssocGet { list, id2 } = question else { continue };
            let there = (0..degree(list.id1.0)).any(|index| neighbour(list.id1.0, index, 1000) == id2.0);
            assert!(there, "{question:?}");
        }
    }
}
