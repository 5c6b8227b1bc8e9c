//! A server that starts after a crash: objects, deletes, versions, times to live, orders and counts are those of before.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Condition, Durability, Error, KeyRange, LimitChange, Status, TableOptions};
use fastrand::Rng;
use tests::effort::rng;
use tests::server::{Server, Tenant};

use super::{crash, create};

/// Difference between what two clocks show at a time, in milliseconds.
const CLOCK_MS: u64 = 5;
/// Bytes that an object may have before a crash and not after it: the number of a segment that the disk holds no more.
const PREDECESSOR_BYTES: u64 = 8;

/// Key, value and version of objects.
type Objects = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

fn all(client: &mut Client, table: u32) -> Objects {
    let listed = client.enumerate(table).map(|object| object.expect("a page"));
    listed.map(|object| (object.key, (object.value, object.version))).collect()
}

fn bytes(random: &mut Rng, count: usize) -> Vec<u8> {
    std::iter::repeat_with(|| random.u8(..)).take(count).collect()
}

/// Writes, overwrites and deletes at random; adds what stays to what is there.
fn change(client: &mut Client, table: u32, random: &mut Rng, expected: &mut Objects) {
    for _ in 0..1_000 {
        let key = random.u32(0..400).to_be_bytes().to_vec();
        if random.u8(0..4) == 0 {
            let removed = client.delete(table, &key).expect("the server answers");
            assert_eq!(removed.is_some(), expected.remove(&key).is_some());
            continue;
        }
        let length = random.usize(0..2_000);
        let value = bytes(random, length);
        let version = client.put(table, &key, &value).expect("there is room");
        expected.insert(key, (value, version));
    }
}

#[test]
fn objects_and_deletes_are_there_after_each_of_several_crashes() {
    let mut random = rng();
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let tables = [false, true].map(|ordered| {
        create(&mut client, if ordered { "ordered" } else { "plain" }, Durability::Synced, ordered)
    });
    let mut expected = [Objects::new(), Objects::new()];
    for large in [300_000, 1 << 20, 0] {
        for (table, expected) in tables.into_iter().zip(&mut expected) {
            change(&mut client, table, &mut random, expected);
            let value = bytes(&mut random, large);
            let version = client.put(table, b"large", &value).unwrap();
            expected.insert(b"large".to_vec(), (value, version));
        }
        // The second time, what was recovered is recovered again.
        for _ in 0..2 {
            crash(&mut server);
            client = server.client(&tenant);
            for (table, expected) in tables.into_iter().zip(&expected) {
                assert!(all(&mut client, table) == *expected, "the objects are those of before the crash");
                assert!(client.verify(table).unwrap().corrupted.is_empty());
            }
        }
    }
}

#[test]
fn versions_grow_over_crashes_also_those_of_deleted_keys() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    let mut newest = 0;
    for round in 0..4_u8 {
        let kept = client.put(table, b"kept", &[round]).unwrap();
        for _ in 0..5 {
            let version = client.put(table, b"deleted", &[round]).unwrap();
            assert!(version > newest, "{version} is not above {newest}");
            newest = version;
        }
        assert_eq!(client.delete(table, b"deleted").unwrap(), Some(newest));
        crash(&mut server);
        client = server.client(&tenant);
        assert_eq!(client.get(table, b"deleted").unwrap(), None);
        for condition in [Condition::Version(newest), Condition::Present] {
            let refused = client.put_if(table, b"deleted", b"stale", condition);
            assert!(matches!(refused, Err(Error::ConditionFailed { current: 0 })), "{refused:?}");
        }
        let refused = client.put_if(table, b"kept", b"new", Condition::Absent);
        assert!(matches!(refused, Err(Error::ConditionFailed { current }) if current == kept), "{refused:?}");
        let next = client.put_if(table, b"kept", b"new", Condition::Version(kept)).unwrap();
        assert!(next > kept, "a condition on a version of before holds");
    }
}

#[test]
fn numbers_go_on_after_a_crash() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    for round in 1..4_i64 {
        assert_eq!(client.increment(table, b"n", 5).unwrap().0, 5 * round);
        assert_eq!(client.increment_float(table, b"f", 0.5).unwrap().0, 0.5 * round as f64);
        crash(&mut server);
        client = server.client(&tenant);
    }
}

#[test]
fn times_to_live_go_on_over_a_crash_and_what_has_expired_stays_so() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    client.put(table, b"renewed", b"first").unwrap();
    let expired = client.put_for(table, b"expired", b"value", 20, Condition::Always).unwrap();
    client.put_for(table, b"renewed", b"second", 20, Condition::Always).unwrap();
    client.put_for(table, b"short", b"value", 1_500, Condition::Always).unwrap();
    client.put_for(table, b"long", b"value", 3_600_000, Condition::Always).unwrap();
    let began = Instant::now();
    client.put(table, b"never", b"value").unwrap();
    thread::sleep(Duration::from_millis(50));
    assert_eq!(client.get(table, b"expired").unwrap(), None);
    for _ in 0..2 {
        crash(&mut server);
        client = server.client(&tenant);
        assert_eq!(client.get(table, b"expired").unwrap(), None);
        assert_eq!(client.get(table, b"renewed").unwrap(), None, "nor does an older value return");
        let passed_ms = began.elapsed().as_millis() as u64;
        let left = client.get(table, b"long").unwrap().expect("it lives an hour").ttl_ms;
        let most = 3_600_000 - passed_ms + CLOCK_MS;
        assert!(left.is_some_and(|left| left <= most && left > 3_000_000), "{left:?} of {most}");
        assert_eq!(client.get(table, b"never").unwrap().expect("it does not expire").ttl_ms, None);
    }
    thread::sleep(Duration::from_millis(1_600).saturating_sub(began.elapsed()));
    assert_eq!(client.get(table, b"short").unwrap(), None, "its time went on");
    assert!(client.put_if(table, b"expired", b"", Condition::Absent).unwrap() > expired);
    crash(&mut server);
    let mut client = server.client(&tenant);
    assert_eq!(client.get(table, b"short").unwrap(), None);
    assert_eq!(client.enumerate(table).count(), 3);
}

#[test]
fn an_ordered_table_scans_the_same_after_a_crash() {
    let mut random = rng();
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, true);
    change(&mut client, table, &mut random, &mut Objects::new());
    for length in [0, 1, 300, 65_535] {
        client.put(table, &vec![7; length], &[1; 10]).unwrap();
    }
    let (from, to) = (100_u32.to_be_bytes(), 300_u32.to_be_bytes());
    let ranges = [false, true].into_iter().flat_map(|reverse| {
        [
            KeyRange { reverse, ..KeyRange::default() },
            KeyRange { from: &from, to: Some(&to), reverse, ..KeyRange::default() },
            KeyRange { prefix: &[7], reverse, ..KeyRange::default() },
        ]
    });
    let ranges: Vec<KeyRange<'_>> = ranges.collect();
    let scan = |client: &mut Client| {
        ranges.iter().map(|range| client.scan(table, *range, usize::MAX).unwrap()).collect::<Vec<_>>()
    };
    let before = scan(&mut client);
    crash(&mut server);
    let mut client = server.client(&tenant);
    assert!(scan(&mut client) == before, "keys, order, values and versions are those of before");
    client.delete(table, &[7]).unwrap();
    client.put(table, &[7; 2], b"new").unwrap();
    let met = client.scan(table, KeyRange { prefix: &[7], ..KeyRange::default() }, 10).unwrap();
    let lengths: Vec<usize> = met.iter().map(|object| object.key.len()).collect();
    assert_eq!(lengths, [2, 300, 65_535]);
}

#[test]
fn tables_in_memory_are_empty_after_a_crash_and_say_so_while_durable_ones_do_not() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let cache = TableOptions { cache_bytes: Some(1 << 20), ..TableOptions::default() };
    let memory = create(&mut client, "memory", Durability::Memory, false);
    let cache = client.table_create_with("cache", cache).unwrap();
    let default = client.table_create("default").unwrap();
    for table in [memory, cache, default] {
        client.put(table, b"k", b"value").unwrap();
    }
    crash(&mut server);
    let mut client = server.client(&tenant);
    let found = [memory, cache, default].map(|table| client.get(table, b"k").unwrap().is_some());
    assert_eq!(found, [false, false, true]);
    let entries = client.table_list().unwrap();
    let emptied = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap().emptied_ms.is_some();
    assert_eq!(["memory", "cache", "default"].map(emptied), [true, true, false]);
    let stat = server.command(&tenant).args(["table", "stat", "memory"]).output().unwrap();
    assert!(String::from_utf8_lossy(&stat.stdout).contains("lost its objects"));
}

/// Objects and bytes of the tenant's tables.
fn counts(server: &Server, tenant: &Tenant) -> Vec<(u64, u64)> {
    server.await_replay();
    let mut client = server.client(tenant);
    let entries = client.table_list().unwrap();
    for entry in &entries {
        let found = client.verify(entry.id).unwrap();
        assert_eq!((found.objects, found.bytes), (entry.objects, entry.bytes), "{}", entry.name);
    }
    let own = server.admin().tenant_statistics(&tenant.name).unwrap();
    let own = |name: &str| own.iter().find(|own| own.name == name).expect("it is counted").value;
    let objects: u64 = entries.iter().map(|entry| entry.objects).sum();
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    assert_eq!((own("objects"), own("object_bytes")), (objects, bytes));
    entries.iter().map(|entry| (entry.objects, entry.bytes)).collect()
}

#[test]
fn counts_of_tables_and_tenants_are_those_of_before_a_crash() {
    let mut random = rng();
    let mut server = Server::start();
    let tenants = ["acme", "other"].map(|name| server.tenant(name));
    for tenant in &tenants {
        let mut client = server.client(tenant);
        for (name, ordered) in [("plain", false), ("ordered", true), ("empty", false)] {
            let table = create(&mut client, name, Durability::Synced, ordered);
            change(&mut client, table, &mut random, &mut Objects::new());
            if name == "empty" {
                let keys: Vec<_> = all(&mut client, table).into_keys().collect();
                keys.iter().for_each(|key| assert!(client.delete(table, key).unwrap().is_some()));
            }
        }
        let dropped = create(&mut client, "dropped", Durability::Synced, false);
        change(&mut client, dropped, &mut random, &mut Objects::new());
        client.table_drop("dropped").unwrap();
    }
    let before = tenants.each_ref().map(|tenant| counts(&server, tenant));
    assert!(before.iter().all(|tables| tables.len() == 3 && tables[0] == (0, 0) && tables[1].0 > 0));
    crash(&mut server);
    let after = tenants.each_ref().map(|tenant| counts(&server, tenant));
    for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
        assert_eq!(before.0, after.0);
        let least = before.1 - PREDECESSOR_BYTES * before.0;
        assert!((least..=before.1).contains(&after.1), "{before:?} {after:?}");
    }
    crash(&mut server);
    assert_eq!(tenants.each_ref().map(|tenant| counts(&server, tenant)), after);
}

#[test]
fn a_quota_counts_what_was_recovered() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let change = LimitChange { limit: "memory_bytes", value: Some(1 << 20) };
    server.admin().tenant_limits_set("acme", &[change]).unwrap();
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    let fill = |client: &mut Client, from: u32| {
        let refused = (from..).find_map(|key| client.put(table, &key.to_be_bytes(), &[7; 10_000]).err());
        assert_eq!(refused.expect("it ends").status(), Some(Status::OverQuota));
        client.table_stat("data").unwrap().objects as u32
    };
    let stored = fill(&mut client, 0);
    assert!(stored > 50, "{stored}");
    crash(&mut server);
    server.await_replay();
    let mut client = server.client(&tenant);
    assert_eq!(fill(&mut client, stored), stored, "it was full before");
    client.delete(table, &0_u32.to_be_bytes()).unwrap();
    assert_eq!(fill(&mut client, stored), stored);
}
