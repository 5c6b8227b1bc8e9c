//! Friends, and friends of friends, against answers found the long way.

use super::harness::{FRIEND, Graph, friends_of, seed};
use std::collections::{BTreeMap, BTreeSet};
use tao::key::ObjectId;
use tao::limits::TALLY_SLOTS_MAX;
use tao::message::{Call, Friends, FriendsOfFriends};
use tao::mix::Random;
use tao::object::{Object, ObjectType};
use tao::tally::Tally;

/// A random graph of people; node 0 knows most others, so its list is a long one.
fn people(nodes: u64, seed: u64) -> (Graph, BTreeMap<u64, BTreeSet<u64>>) {
    let (graph, mut random) = (Graph::new(), Random::new(seed));
    graph.call(&Call::AssocDeclare { atype: FRIEND, inverse: FRIEND }).unwrap();
    let mut known: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for step in 0..nodes * 6 {
        let (left, right) = (if step < nodes { 0 } else { random.below(nodes) }, random.below(nodes));
        if left == right {
            continue;
        }
        graph.add(friends_of(left), right, step, b"");
        known.entry(left).or_default().insert(right);
        known.entry(right).or_default().insert(left);
    }
    for id in (1..nodes).filter(|id| !id.is_multiple_of(5)) {
        let data = format!("person {id}");
        let object = Object { otype: ObjectType(1), data: data.as_bytes() };
        graph.call(&Call::ObjAdd(ObjectId(id), object)).unwrap();
    }
    (graph, known)
}

fn object_of(id: u64) -> Option<Vec<u8>> {
    let data = format!("person {id}");
    let object = Object { otype: ObjectType(1), data: data.as_bytes() };
    (id != 0 && !id.is_multiple_of(5)).then(|| object.encode())
}

fn paths(known: &BTreeMap<u64, BTreeSet<u64>>, id: u64) -> Vec<(ObjectId, u32)> {
    let friends = &known[&id];
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for friend in friends {
        for end in &known[friend] {
            if *end != id && !friends.contains(end) {
                *counts.entry(*end).or_default() += 1;
            }
        }
    }
    let mut ranked: Vec<(ObjectId, u32)> =
        counts.into_iter().map(|(id, count)| (ObjectId(id), count)).collect();
    ranked.sort_by_key(|entry| (std::cmp::Reverse(entry.1), entry.0));
    ranked
}

#[test]
fn friends_come_newest_first_with_their_objects() {
    let (graph, known) = people(300, seed(31));
    for (id, friends) in &known {
        let list = friends_of(*id);
        for limit in [0, 3, 10_000] {
            let reply = graph.call(&Call::Friends { list, limit, objects: true }).unwrap();
            let found = Friends::decode(&reply).unwrap();
            let range: Vec<ObjectId> =
                graph.range(list, 0, limit).into_iter().map(|entry| ObjectId(entry.1)).collect();
            assert_eq!(found.ids, range);
            assert_eq!(found.ids.len(), friends.len().min(limit as usize));
            let objects: Vec<_> = found.ids.iter().map(|id| object_of(id.0)).collect();
            assert_eq!(found.objects, objects);
        }
    }
}

#[test]
fn friends_of_friends_are_counted_by_paths() {
    let (graph, known) = people(300, seed(32));
    for id in known.keys() {
        let expected = paths(&known, *id);
        for limit in [5, 10_000] {
            let call =
                Call::FriendsOfFriends { list: friends_of(*id), limit, visits: 0, objects: limit == 5 };
            let found = FriendsOfFriends::decode(&graph.call(&call).unwrap()).unwrap();
            assert!(found.complete);
            assert_eq!(found.distinct as usize, expected.len());
            assert_eq!(found.ranked, expected[..expected.len().min(limit as usize)]);
            let objects: Vec<_> = found.ranked.iter().map(|entry| object_of(entry.0.0)).collect();
            assert_eq!(found.objects, if limit == 5 { objects } else { Vec::new() });
        }
    }
}

#[test]
fn a_walk_stops_at_the_edges_it_may_visit_and_says_so() {
    let (graph, _) = people(300, seed(33));
    let call = Call::FriendsOfFriends { list: friends_of(0), limit: 5, visits: 100, objects: false };
    let found = FriendsOfFriends::decode(&graph.call(&call).unwrap()).unwrap();
    assert!(!found.complete);
    assert_eq!(found.visited, 100);
}

#[test]
fn somebody_unknown_has_no_friends() {
    let graph = Graph::new();
    let list = friends_of(9);
    let reply = graph.call(&Call::Friends { list, limit: 5, objects: true }).unwrap();
    assert_eq!(Friends::decode(&reply), Some(Friends::default()));
    let call = Call::FriendsOfFriends { list, limit: 5, visits: 0, objects: true };
    let found = FriendsOfFriends::decode(&graph.call(&call).unwrap()).unwrap();
    assert_eq!(found, FriendsOfFriends { complete: true, ..FriendsOfFriends::default() });
}

#[test]
fn cut_replies_are_refused() {
    let (graph, _) = people(50, seed(34));
    let reply = graph.call(&Call::Friends { list: friends_of(0), limit: 5, objects: true }).unwrap();
    assert!(
        (0..reply.len())
            .all(|bytes| Friends::decode(&reply[..bytes]).is_none_or(|cut| cut.objects.len() < 5))
    );
    let call = Call::FriendsOfFriends { list: friends_of(3), limit: 5, visits: 0, objects: false };
    let reply = graph.call(&call).unwrap();
    assert!((0..reply.len()).all(|bytes| FriendsOfFriends::decode(&reply[..bytes]).is_none()));
}

#[test]
fn a_tally_counts_as_a_map_does() {
    let mut random = Random::new(seed(35));
    let (mut tally, mut map) = (Tally::new(20_000), BTreeMap::new());
    for id in [3, 9, 3_000_000] {
        assert!(tally.leave_out(id));
    }
    for _ in 0..100_000 {
        let id = random.below(20_000) * random.below(3);
        assert!(tally.meet(id));
        if ![3, 9, 3_000_000].contains(&id) {
            *map.entry(id).or_insert(0u32) += 1;
        }
    }
    assert!(tally.leave_out(10));
    map.remove(&10);
    let mut expected: Vec<(u64, u32)> = map.into_iter().collect();
    expected.sort_by_key(|entry| (std::cmp::Reverse(entry.1), entry.0));
    assert_eq!(tally.distinct(), expected.len());
    assert_eq!(tally.into_ranked(100), expected[..100]);
}

#[test]
fn a_full_tally_says_so_and_counts_on_what_it_has() {
    let mut tally = Tally::new(1 << 30);
    let room = (0..).take_while(|id| tally.meet(*id)).count();
    assert_eq!(room, TALLY_SLOTS_MAX / 8 * 7);
    assert!(tally.meet(5) && !tally.meet(u64::MAX) && !tally.leave_out(u64::MAX));
    assert_eq!(tally.distinct(), room);
    assert_eq!(tally.into_ranked(2), [(5, 2), (0, 1)]);
}
