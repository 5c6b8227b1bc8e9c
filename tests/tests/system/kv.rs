//! Objects through a real server: what was acknowledged is what is read, over datagrams and streams.

use std::collections::BTreeMap;

use client::{Client, Condition, Error, Request, Status};
use fastrand::Rng;
use tests::effort::{rng, rounds};
use tests::server::Server;

use super::replies::refusal;

/// A value that no datagram carries.
const LARGE_BYTES: usize = 300_000;

#[test]
fn get_sees_the_last_acknowledged_put() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    assert_eq!(client.get(table, b"k").unwrap(), None);
    let first = client.put(table, b"k", b"one").unwrap();
    let second = client.put(table, b"k", b"two").unwrap();
    assert!(second > first, "versions only grow");
    let object = client.get(table, b"k").unwrap().unwrap();
    assert_eq!((object.value.as_slice(), object.version), (b"two".as_slice(), second));
}

#[test]
fn versions_grow_over_delete_and_create() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let before = client.put(table, b"k", b"one").unwrap();
    assert!(client.delete(table, b"k").unwrap().is_some());
    assert_eq!(client.delete(table, b"k").unwrap(), None, "there is nothing left to delete");
    assert_eq!(client.get(table, b"k").unwrap(), None);
    assert!(client.put(table, b"k", b"again").unwrap() > before);
}

#[test]
fn conditions_hold_or_name_the_current_version() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let version = client.put_if(table, b"k", b"1", Condition::Absent).unwrap();
    let Err(Error::ConditionFailed { current }) = client.put_if(table, b"k", b"2", Condition::Absent) else {
        panic!("the object is there");
    };
    assert_eq!(current, version);
    let newer = client.put_if(table, b"k", b"2", Condition::Version(version)).unwrap();
    let stale = client.put_if(table, b"k", b"3", Condition::Version(version));
    assert!(matches!(stale, Err(Error::ConditionFailed { current }) if current == newer));
    let stale = client.delete_if(table, b"k", Condition::Version(version));
    assert!(matches!(stale, Err(Error::ConditionFailed { current }) if current == newer));
    client.delete_if(table, b"k", Condition::Version(newer)).unwrap();
    let gone = client.put_if(table, b"k", b"4", Condition::Present);
    assert!(matches!(gone, Err(Error::ConditionFailed { current: 0 })));
}

#[test]
fn increments_count_and_refuse_what_is_no_number() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    assert_eq!(client.increment(table, b"n", 5).unwrap().0, 5);
    assert_eq!(client.increment(table, b"n", -7).unwrap().0, -2);
    assert_eq!(client.get(table, b"n").unwrap().unwrap().value, (-2_i64).to_le_bytes());
    client.put(table, b"text", b"not a number").unwrap();
    assert_eq!(refusal(client.increment(table, b"text", 1)), Status::NotANumber);
    client.put(table, b"n", &i64::MAX.to_le_bytes()).unwrap();
    assert_eq!(refusal(client.increment(table, b"n", 1)), Status::Overflow);
    assert_eq!(client.get(table, b"n").unwrap().unwrap().value, i64::MAX.to_le_bytes());
}

#[test]
fn a_multi_get_answers_in_the_order_of_its_keys() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    for index in 0..50_u32 {
        client.put(table, format!("key {index}").as_bytes(), &index.to_le_bytes()).unwrap();
    }
    let names: Vec<String> = (0..60).rev().map(|index| format!("key {index}")).collect();
    let keys: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let found = client.multi_get(table, &keys).unwrap();
    assert_eq!(found.len(), 60);
    for (object, index) in found.iter().zip((0..60_u32).rev()) {
        let value = object.as_ref().map(|object| object.value.clone());
        assert_eq!(value, (index < 50).then(|| index.to_le_bytes().to_vec()), "key {index}");
    }
}

#[test]
fn large_values_travel_over_the_stream() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let mut random = Rng::with_seed(1);
    let value: Vec<u8> = (0..LARGE_BYTES).map(|_| random.u8(..)).collect();
    client.put(table, b"large", &value).unwrap();
    assert_eq!(client.get(table, b"large").unwrap().unwrap().value, value);
    let largest = vec![7; 1 << 20];
    client.put(table, b"largest", &largest).unwrap();
    let both = client.multi_get(table, &[b"large", b"largest"]);
    match both {
        Ok(objects) => {
            assert_eq!(objects[0].as_ref().map(|object| object.value.as_slice()), Some(value.as_slice()));
            assert_eq!(objects[1].as_ref().map(|object| object.value.as_slice()), Some(largest.as_slice()));
        }
        Err(error) => assert_eq!(error.status(), Some(Status::ReplyTooLarge)),
    }
    assert!(client.session().statistics().stream_requests >= 3);
}

#[test]
fn sizes_beyond_the_limits_are_refused_and_the_session_goes_on() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    assert_eq!(refusal(client.put(table, &vec![b'k'; 1 << 16], b"v")), Status::KeyTooLarge);
    assert_eq!(refusal(client.get(table, &vec![b'k'; 1 << 16])), Status::KeyTooLarge);
    assert_eq!(refusal(client.put(table, b"k", &vec![0; (1 << 20) + 1])), Status::ValueTooLarge);
    let longest = vec![b'k'; (1 << 16) - 1];
    client.put(table, &longest, b"v").unwrap();
    assert_eq!(client.get(table, &longest).unwrap().unwrap().value, b"v");
    client.put(table, b"", b"the empty key is a key").unwrap();
    assert_eq!(client.get(table, b"").unwrap().unwrap().value, b"the empty key is a key");
    client.put(table, b"empty", b"").unwrap();
    assert_eq!(client.get(table, b"empty").unwrap().unwrap().value, b"");
}

#[test]
fn a_pipelined_session_agrees_with_a_map() {
    let mut random = rng();
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let mut model: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    for round in 0..200_u32 {
        // One write a key and round, so that their order among each other does not matter.
        let written: BTreeMap<u32, Option<Vec<u8>>> = (0..60)
            .map(|_| {
                let value = random.bool().then(|| vec![round as u8; random.usize(0..600)]);
                (random.u32(0..500), value)
            })
            .collect();
        pipeline(&mut client, table, &written);
        for (key, value) in written {
            match value {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        for _ in 0..5 {
            let key = random.u32(0..500);
            let found = client.get(table, &key.to_le_bytes()).unwrap().map(|object| object.value);
            assert_eq!(found.as_ref(), model.get(&key), "key {key} in round {round}");
        }
    }
    assert_eq!(client.table_stat("data").unwrap().objects, model.len() as u64);
}

/// Submits all writes, as many at a time as the session takes, and waits for their answers.
fn pipeline(client: &mut Client, table: u32, written: &BTreeMap<u32, Option<Vec<u8>>>) {
    let session = client.session();
    let mut left = written.len();
    let mut waiting = written.iter().peekable();
    while left > 0 {
        while let Some((key, value)) = waiting.peek().filter(|_| session.can_submit()) {
            let key = key.to_le_bytes();
            let condition = Condition::Always;
            let request = match value {
                Some(value) => Request::Put { table, key: &key, value, condition },
                None => Request::Delete { table, key: &key, condition },
            };
            session.submit(&request, 0).unwrap();
            waiting.next();
        }
        session
            .poll(&mut |completion| {
                assert!(matches!(completion.status, Ok(Status::Ok | Status::NotFound)), "{completion:?}");
                left -= 1;
            })
            .unwrap();
    }
}

#[test]
fn a_full_store_refuses_writes_serves_reads_and_takes_deletes() {
    let settings =
        tests::server::Settings { memory: "16MiB".into(), segment: "1MiB".into(), ..Default::default() };
    let server = Server::start_with(settings);
    let (mut client, table) = server.tenant_with_table("acme");
    let value = vec![1; 10_000];
    let mut stored = 0_u32;
    let refused = loop {
        match client.put(table, &stored.to_le_bytes(), &value) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 10_000, "16 MiB hold no 100 MB");
    };
    assert_eq!(refused.status(), Some(Status::OutOfMemory));
    assert!(stored > 500, "{stored} objects of 10 KB in 16 MiB");
    for key in 0..stored {
        assert_eq!(client.get(table, &key.to_le_bytes()).unwrap().unwrap().value, value, "object {key}");
    }
    for key in 0..stored / 2 {
        assert!(client.delete(table, &key.to_le_bytes()).unwrap().is_some());
    }
    for key in 0..stored / 4 {
        client.put(table, &key.to_le_bytes(), &value).expect("deletes make room");
    }
    assert_eq!(client.get(table, &(stored - 1).to_le_bytes()).unwrap().unwrap().value, value);
}

#[test]
fn overwriting_many_times_the_memory_works() {
    let settings =
        tests::server::Settings { memory: "32MiB".into(), segment: "1MiB".into(), ..Default::default() };
    let server = Server::start_with(settings);
    let (mut client, table) = server.tenant_with_table("acme");
    let rounds = rounds(100, 2_000);
    for round in 0..rounds {
        let written = (0..2_000).map(|key| (key, Some(vec![round as u8; 1_200]))).collect();
        pipeline(&mut client, table, &written);
    }
    for key in 0..2_000_u32 {
        let object = client.get(table, &key.to_le_bytes()).unwrap().unwrap();
        assert_eq!(object.value, vec![(rounds - 1) as u8; 1_200]);
    }
}
