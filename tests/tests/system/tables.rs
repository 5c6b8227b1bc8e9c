//! Whole tables and the lives of their objects through a real server: times to live, enumerations, verifications, many
//! writes at once, tables that go.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use client::{Client, Condition, Cursor, Error, PageSize, Status, TTL_MS_MAX, Write};
use serde_json::Value;
use tests::server::{Server, Tenant, create_in_memory};

use super::replies::refusal;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until it is so.
fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn fill(client: &mut Client, table: u32, count: u32, value: &[u8]) {
    let keys: Vec<_> = (0..count).map(u32::to_le_bytes).collect();
    let objects: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (key.as_slice(), value)).collect();
    for chunk in objects.chunks(1_000) {
        let results = client.multi_put(table, chunk).expect("the session lives");
        assert!(results.iter().all(Result::is_ok));
    }
}

#[test]
fn an_object_lives_for_its_time() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let long = client.put_for(table, b"long", b"value", 3_600_000, Condition::Absent).unwrap();
    let object = client.get(table, b"long").unwrap().unwrap();
    assert_eq!((object.version, object.value.as_slice()), (long, b"value".as_slice()));
    assert!(object.ttl_ms.is_some_and(|left| left <= 3_600_000 && left > 3_000_000), "{object:?}");
    let short = client.put_for(table, b"short", b"value", 30, Condition::Always).unwrap();
    until(|| client.get(table, b"short").unwrap().is_none(), "it expires");
    let stale = client.put_if(table, b"short", b"", Condition::Version(short));
    assert!(matches!(stale, Err(Error::ConditionFailed { current: 0 })), "{stale:?}");
    assert!(client.put_if(table, b"short", b"", Condition::Absent).unwrap() > short, "versions go on");
    assert_eq!(client.get(table, b"short").unwrap().unwrap().ttl_ms, None, "a put decides anew");

    client.put_for(table, b"number", &[0; 8], 3_600_000, Condition::Always).unwrap();
    client.increment(table, b"number", 5).unwrap();
    assert!(client.get(table, b"number").unwrap().unwrap().ttl_ms.is_some(), "a number keeps its time");

    for ttl_ms in [0, TTL_MS_MAX + 1, u64::MAX] {
        let put = client.put_for(table, b"never", b"", ttl_ms, Condition::Always);
        assert_eq!(refusal(put), Status::OutOfRange);
    }
    client.put_for(table, b"longest", b"", TTL_MS_MAX, Condition::Always).unwrap();
    assert_eq!(client.get(table, b"never").unwrap(), None);
}

#[test]
fn what_has_expired_gives_its_memory_back_though_nobody_asks_for_it() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let name = client.table_list().unwrap()[0].name.clone();
    let kept = client.put(table, b"kept", b"value").map(|_| client.table_stat(&name).unwrap()).unwrap();
    for number in 0..500_u32 {
        client.put_for(table, &number.to_le_bytes(), &[1; 100], 50, Condition::Always).unwrap();
    }
    until(|| client.table_stat(&name).unwrap().objects == 1, "background work removes them");
    assert_eq!(client.table_stat(&name).unwrap().bytes, kept.bytes);
}

#[test]
fn an_enumeration_meets_each_object_once_and_goes_on_in_another_session() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("table").unwrap();
    assert_eq!(client.enumerate(table).count(), 0);
    fill(&mut client, table, 3_000, &[7; 100]);
    client.put(table, b"large", &[1; 300_000]).unwrap();
    let sizes = [(1, 1), (7, 1_000_000), (512, 1_000), (usize::MAX, usize::MAX)];
    for (objects, bytes) in sizes {
        let size = PageSize { objects, bytes, keys_only: objects == 7 };
        let mut keys = BTreeSet::new();
        for object in client.enumerate_from(table, Cursor::start(), size) {
            let object = object.expect("the table is there");
            let bytes = if size.keys_only {
                0
            } else if object.key == b"large" {
                300_000
            } else {
                100
            };
            assert_eq!(object.value.len(), bytes);
            assert!(keys.insert(object.key), "an object is met once");
        }
        assert_eq!(keys.len(), 3_001);
    }
    let size = PageSize { objects: 100, ..PageSize::default() };
    let first = client.enumerate_page(table, &Cursor::start(), size).unwrap();
    let kept = first.next.expect("there is more").as_bytes().to_vec();
    drop(client);
    let mut client = server.client(&tenant);
    let table = client.table_list().unwrap()[0].id;
    let rest = client.enumerate_from(table, Cursor::from_bytes(&kept), size).count();
    assert_eq!(first.objects.len() + rest, 3_001);
}

#[test]
fn cursors_of_others_are_refused() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let other = client.table_create("other").unwrap();
    fill(&mut client, table, 100, b"");
    let size = PageSize { objects: 10, ..PageSize::default() };
    let cursor = client.enumerate_page(table, &Cursor::start(), size).unwrap().next.expect("there is more");
    assert_eq!(refusal(client.enumerate_page(other, &cursor, size)), Status::CursorInvalid);
    let made_up = [vec![1], vec![0; 24], vec![255; 64], vec![1; 65]];
    for bytes in &made_up {
        let page = client.enumerate_page(table, &Cursor::from_bytes(bytes), size);
        assert_eq!(refusal(page), Status::CursorInvalid);
    }
    assert_eq!(client.enumerate_from(table, cursor, size).count(), 90);
    assert_eq!(refusal(client.enumerate_page(12_345, &Cursor::start(), size)), Status::UnknownTable);
}

#[test]
fn a_table_that_is_dropped_under_an_enumeration_is_a_typed_error_and_its_memory_comes_back() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("table").unwrap();
    let name = client.table_list().unwrap()[0].name.clone();
    fill(&mut client, table, 20_000, &[7; 100]);
    let mut other = server.client(&tenant);
    let mut enumeration = client.enumerate_from(table, Cursor::start(), PageSize::default());
    assert!(enumeration.next().expect("there are objects").is_ok());
    other.table_drop(&name).unwrap();
    let last = enumeration.find(Result::is_err).expect("it does not end as if that were all");
    assert_eq!(refusal(last), Status::UnknownTable);
    assert!(enumeration.next().is_none(), "an enumeration ends behind its error");
    assert_eq!(refusal(client.put(table, b"k", b"v")), Status::UnknownTable);
    assert_eq!(refusal(client.verify(table)), Status::UnknownTable);
    let mut admin = server.admin();
    let mut count = |counter: &str| {
        let statistics = admin.statistics().unwrap();
        statistics.iter().find(|statistic| statistic.name == counter).expect("it is counted").value
    };
    until(|| count("store_objects") == 0, "the table is taken apart in the background");
    assert_eq!(count("store_object_bytes"), 0);
}

#[test]
fn a_table_is_as_it_was_written() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let name = client.table_list().unwrap()[0].name.clone();
    assert_eq!(client.verify(table).unwrap().objects, 0);
    fill(&mut client, table, 5_000, &[7; 100]);
    client.put_for(table, b"expires", &[1; 200_000], 3_600_000, Condition::Always).unwrap();
    let found = client.verify(table).unwrap();
    let held = client.table_stat(&name).unwrap();
    assert_eq!((found.objects, found.bytes, found.corrupted.len()), (held.objects, held.bytes, 0));
    let listed = &client.table_list().unwrap()[0];
    assert_eq!((listed.objects, listed.bytes), (held.objects, held.bytes));
}

#[test]
fn many_writes_have_a_result_each() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    let large = vec![1; (1 << 20) + 1];
    let put = |key, value, condition| Write { key, value: Some(value), condition, ttl_ms: None };
    client.put(table, b"there", b"old").unwrap();
    let writes = [
        put(b"new", b"1", Condition::Absent),
        put(b"there", b"2", Condition::Absent),
        put(b"large", &large, Condition::Always),
        Write { ttl_ms: Some(0), ..put(b"zero", b"3", Condition::Always) },
        Write { ttl_ms: Some(3_600_000), ..put(b"hour", b"4", Condition::Always) },
        Write { value: None, ..put(b"nothing", b"", Condition::Always) },
    ];
    let results = client.multi_write(table, &writes).unwrap();
    assert!(matches!(results[0], Ok(1..)));
    assert!(matches!(results[1], Err(Error::ConditionFailed { current: 1.. })));
    let status = |index: usize| results[index].as_ref().err().and_then(Error::status);
    assert_eq!((status(2), status(3)), (Some(Status::ValueTooLarge), Some(Status::OutOfRange)));
    assert!(matches!(results[4], Ok(1..)));
    assert_eq!(status(5), Some(Status::NotFound));
    let deleted = client.multi_delete(table, &[b"new", b"nothing", b"there"]).unwrap();
    assert!(deleted[0].is_ok() && deleted[1].is_err() && deleted[2].is_ok());
    assert!(client.multi_put(table, &[]).unwrap().is_empty());
    assert_eq!(client.enumerate(table).count(), 1);
}

#[test]
fn floating_point_numbers_are_added_to() {
    let server = Server::start();
    let (mut client, table) = server.tenant_with_table("acme");
    assert_eq!(client.increment_float(table, b"n", 0.5).unwrap().0, 0.5);
    assert_eq!(client.increment_float(table, b"n", -2.25).unwrap().0, -1.75);
    assert_eq!(refusal(client.increment_float(table, b"n", f64::NAN)), Status::OutOfRange);
    assert_eq!(refusal(client.increment_float(table, b"n", f64::INFINITY)), Status::OutOfRange);
    client.increment_float(table, b"most", f64::MAX).unwrap();
    assert_eq!(refusal(client.increment_float(table, b"most", f64::MAX)), Status::Overflow);
    client.put(table, b"text", b"abc").unwrap();
    assert_eq!(refusal(client.increment_float(table, b"text", 1.0)), Status::NotANumber);
}

#[test]
fn a_version_of_before_a_restart_never_holds_again_and_the_tenant_sees_when_its_objects_went() {
    let mut server = Server::start();
    let acme = server.tenant("acme");
    let mut client = server.client(&acme);
    let table = create_in_memory(&mut client, "data");
    assert_eq!(client.put(table, b"k", b"first").unwrap(), 1, "the first start counts from 1");
    assert_eq!(emptied(&server, &acme), Value::Null);
    let mut newest = client.put(table, b"k", b"second").unwrap();
    let mut last_ms = 0;
    for round in 0..3 {
        if round == 1 {
            server.kill();
        } else {
            server.stop();
        }
        server.restart();
        let mut client = server.client(&acme);
        let table = client.table_open("data").unwrap();
        for condition in [Condition::Version(1), Condition::Version(newest)] {
            let refused = client.put_if(table, b"k", b"stale", condition);
            assert!(matches!(refused, Err(Error::ConditionFailed { current: 0 })), "{refused:?}");
        }
        let version = client.put(table, b"k", b"new").unwrap();
        assert!(version > newest, "{version} is not above {newest}");
        for stale in 1..=newest.min(3) {
            let refused = client.put_if(table, b"k", b"stale", Condition::Version(stale));
            assert!(matches!(refused, Err(Error::ConditionFailed { .. })), "{refused:?}");
        }
        newest = client.put_if(table, b"k", b"newer", Condition::Version(version)).unwrap();
        let since_ms = emptied(&server, &acme).as_u64().expect("a moment");
        assert!(since_ms > last_ms, "each restart is another moment");
        last_ms = since_ms;
    }
    client = server.client(&acme);
    client.table_create("later").unwrap();
    let entries = client.table_list().unwrap();
    let later = entries.iter().find(|entry| entry.name == "later").expect("it is there");
    assert_eq!(later.emptied_ms, None, "it was made after the restart");
}

#[test]
fn the_command_sets_and_shows_the_durability_of_tables() {
    let server = Server::start();
    let acme = server.tenant("acme");
    let run = |line: &str| server.command(&acme).args(line.split(' ')).output().expect("the command runs");
    let json = |line: &str| -> Value {
        let output = run(&format!("--output json {line}"));
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    assert_eq!(json("table create data --durability memory")["durability"], "memory");
    assert_eq!(json("table alter data --durability memory")["durability"], "memory");
    assert_eq!(json("table list")[0]["durability"], "memory");
    assert_eq!(json("table stat data")["durability"], "memory");
    for line in ["table list", "table stat data"] {
        let said = String::from_utf8(run(line).stdout).expect("text");
        assert!(said.contains("durability") && said.contains(" memory "), "{said}");
    }
    let refused = run("table create cache --cache 64KiB --durability synced");
    let said = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(5));
    assert!(said.contains("its durability is memory") && !said.contains("tenant limits"), "{said}");
}

/// When the table `data` lost its objects, as the tenant's commands show it.
fn emptied(server: &Server, tenant: &Tenant) -> Value {
    let json = |arguments: &[&str]| -> Value {
        let output = server.command(tenant).args(arguments).args(["--output", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let (stat, list) = (json(&["table", "stat", "data"]), json(&["table", "list"]));
    assert_eq!(stat["emptied_ms"], list[0]["emptied_ms"]);
    let text = server.command(tenant).args(["table", "stat", "data"]).output().unwrap();
    let text = String::from_utf8(text.stdout).expect("text");
    assert_eq!(text.contains("lost its objects"), !stat["emptied_ms"].is_null(), "{text}");
    stat["emptied_ms"].clone()
}
