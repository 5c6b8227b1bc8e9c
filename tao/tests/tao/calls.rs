//! The functions one by one: objects, inverse associations, limits, malformed calls, damaged records.

use super::harness::{FRIEND, Graph, friends_of};
use sandstorm::Error;
use tao::entry::Span;
use tao::fault;
use tao::key::{self, AssocType, ListId, ObjectId};
use tao::message::{Call, decode_count, decode_flag};
use tao::mix::Random;
use tao::object::{ID_ASSIGNED_FIRST, Object, ObjectType};

fn object(data: &[u8]) -> Object<'_> {
    Object { otype: ObjectType(3), data }
}

#[test]
fn an_object_is_added_once_updated_read_and_deleted() {
    let graph = Graph::new();
    let id = ObjectId(42);
    assert_eq!(graph.call(&Call::ObjGet(id)), Ok(Vec::new()));
    assert_eq!(graph.call(&Call::ObjUpdate(id, object(b"no"))), Ok(vec![0]));
    let added = graph.call(&Call::ObjAdd(id, object(b"first"))).unwrap();
    assert_eq!(decode_count(&added), Some(42));
    assert_eq!(graph.call(&Call::ObjAdd(id, object(b"second"))), Err(fault::OBJECT_EXISTS));
    assert_eq!(graph.call(&Call::ObjGet(id)), Ok(object(b"first").encode()));
    assert_eq!(graph.call(&Call::ObjUpdate(id, object(b"third"))), Ok(vec![1]));
    let record = graph.call(&Call::ObjGet(id)).unwrap();
    assert_eq!(Object::parse(&record), Some(object(b"third")));
    assert_eq!(graph.call(&Call::ObjDelete(id)), Ok(vec![1]));
    assert_eq!(graph.call(&Call::ObjDelete(id)), Ok(vec![0]));
}

#[test]
fn new_ids_come_from_a_range_of_their_own() {
    let graph = Graph::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let reply = graph.call(&Call::ObjAdd(ObjectId::NEW, object(b"new"))).unwrap();
        ids.push(decode_count(&reply).unwrap());
    }
    assert_eq!(ids, [ID_ASSIGNED_FIRST + 1, ID_ASSIGNED_FIRST + 2, ID_ASSIGNED_FIRST + 3]);
    assert_eq!(graph.call(&Call::ObjAdd(ObjectId(0), object(b"nought"))), Ok(vec![0; 8]));
    let taken = Call::ObjAdd(ObjectId(ID_ASSIGNED_FIRST + 9), object(b""));
    assert_eq!(graph.call(&taken), Err(fault::ID_RESERVED));
}

#[test]
fn a_declared_type_keeps_its_inverse() {
    let graph = Graph::new();
    let (likes, liked_by) = (AssocType(1), AssocType(2));
    graph.call(&Call::AssocDeclare { atype: likes, inverse: liked_by }).unwrap();
    let (there, back) =
        (ListId { id1: ObjectId(10), atype: likes }, ListId { id1: ObjectId(20), atype: liked_by });
    assert!(graph.add(there, 20, 5, b"x"));
    assert_eq!(graph.range(back, 0, 10), [(5, 10, b"x".to_vec())]);
    assert!(graph.delete(back, 10), "the inverse of the inverse is the type itself");
    assert_eq!((graph.count(there), graph.count(back)), (0, 0));
}

#[test]
fn a_symmetric_type_is_its_own_inverse_also_to_oneself() {
    let graph = Graph::new();
    graph.call(&Call::AssocDeclare { atype: FRIEND, inverse: FRIEND }).unwrap();
    assert!(graph.add(friends_of(1), 2, 5, b""));
    assert_eq!(graph.range(friends_of(2), 0, 10), [(5, 1, Vec::new())]);
    assert!(!graph.add(friends_of(2), 1, 6, b"later"), "the other side is the same association");
    assert_eq!(graph.range(friends_of(1), 0, 10), [(6, 2, b"later".to_vec())]);
    assert!(graph.add(friends_of(3), 3, 1, b"self"));
    assert_eq!(graph.count(friends_of(3)), 1);
    assert!(graph.delete(friends_of(3), 3));
    assert_eq!(graph.count(friends_of(3)), 0);
}

#[test]
fn an_undeclared_type_has_no_inverse() {
    let graph = Graph::new();
    assert!(graph.add(friends_of(1), 2, 5, b""));
    assert_eq!(graph.count(friends_of(2)), 0);
}

#[test]
fn data_and_ids_beyond_the_limits_are_refused_and_nothing_is_written() {
    let graph = Graph::new();
    let large = vec![0; tao::limits::ASSOC_DATA_BYTES_MAX + 1];
    let call = Call::AssocAdd { list: friends_of(1), id2: ObjectId(2), time: 1, data: &large };
    assert_eq!(graph.call(&call), Err(fault::DATA_TOO_LARGE));
    assert_eq!(graph.count(friends_of(1)), 0);
    let large = vec![0; tao::limits::OBJECT_DATA_BYTES_MAX + 1];
    assert_eq!(graph.call(&Call::ObjAdd(ObjectId(1), object(&large))), Err(fault::DATA_TOO_LARGE));
    let ids = vec![ObjectId(1); tao::limits::ASSOC_IDS_MAX + 1];
    let call = Call::AssocGet { list: friends_of(1), ids: &ids, span: Span::ALL };
    assert_eq!(graph.call(&call), Err(fault::TOO_MANY));
}

#[test]
fn malformed_calls_are_bad_arguments() {
    let graph = Graph::new();
    let head = key::head(friends_of(1));
    let names = ["assoc_get", "assoc_range", "assoc_time_range", "assoc_add", "assoc_delete", "friends"];
    for name in names {
        for key in [&b""[..], b"l", &head[..12], &[head.as_slice(), b"x"].concat(), b"o12345678"] {
            assert_eq!(graph.raw(name, true, key, &[0; 40]), Err(Error::BadArguments), "{name}");
        }
        assert_eq!(graph.raw(name, true, &head, &[1; 3]), Err(Error::BadArguments), "{name}");
    }
    assert_eq!(graph.raw("assoc_get", false, &head, &[0; 19]), Err(Error::BadArguments));
    for name in ["obj_get", "obj_add", "obj_update", "obj_delete"] {
        assert_eq!(graph.raw(name, true, &head, b"data"), Err(Error::BadArguments), "{name}");
    }
    assert_eq!(graph.raw("assoc_declare", true, b"t123", &[0; 4]), Err(Error::BadArguments));
    assert_eq!(graph.raw("no_such_function", true, b"", b""), Err(Error::NotFound));
}

#[test]
fn damaged_records_end_in_an_answer() {
    let mut random = Random::new(super::harness::seed(21));
    let list = friends_of(1);
    for _ in 0..3_000 {
        let graph = Graph::new();
        let bytes = random.below(120) as usize;
        let mut record: Vec<u8> = (0..bytes).map(|_| random.next_u64() as u8).collect();
        if let Some(form) = record.first_mut() {
            *form &= 1;
        }
        graph.db.put(graph.table, &key::head(list), &record);
        let ids = [ObjectId(1), ObjectId(2)];
        let calls = [
            Call::AssocCount(list),
            Call::AssocRange { list, position: 1, limit: 10 },
            Call::AssocTimeRange { list, span: Span::ALL, limit: 10 },
            Call::AssocGet { list, ids: &ids, span: Span::ALL },
            Call::Friends { list, limit: 10, objects: true },
            Call::FriendsOfFriends { list, limit: 10, visits: 0, objects: true },
            Call::AssocAdd { list, id2: ObjectId(2), time: 1, data: b"x" },
            Call::AssocDelete { list, id2: ObjectId(2) },
        ];
        for call in &calls {
            match graph.call(call) {
                Ok(_) | Err(fault::DAMAGED) => {}
                other => panic!("{call:?}: {other:?}"),
            }
        }
    }
}

#[test]
fn flags_and_counts_refuse_other_bytes() {
    assert_eq!(decode_flag(&[2]), None);
    assert_eq!(decode_flag(&[]), None);
    assert_eq!(decode_count(&[0; 7]), None);
}
