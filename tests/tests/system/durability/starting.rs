//! A server while it replays its log: it says how far it is, and who comes early waits.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client::{Client, ClientConfig, Condition, Durability, ServerState, Status, server_state};
use tests::patience::comes;
use tests::server::{Server, Tenant, fetch, patient};

use super::{crash, create, damage_directories, settings};

/// Objects of the log: in a debug build their replay takes tenths of a second.
const OBJECTS: u32 = 20_000;
const TOGETHER: usize = 500;

fn fill(client: &mut Client, table: u32) {
    let value = [7; 1_000];
    for first in (0..OBJECTS).step_by(TOGETHER) {
        let keys: Vec<_> = (first..first + TOGETHER as u32).map(u32::to_be_bytes).collect();
        let objects: Vec<_> = keys.iter().map(|key| (&key[..], &value[..])).collect();
        let written = client.multi_put(table, &objects).expect("the server answers");
        assert!(written.iter().all(Result::is_ok), "there is room");
    }
}

#[test]
fn a_server_that_replays_says_how_far_it_is_and_who_comes_early_waits() {
    let metrics = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let mut server = Server::start_with(settings("256MiB", &["--metrics", &metrics.to_string()]));
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Written, false);
    fill(&mut client, table);
    client.table_alter("data", Durability::Synced).expect("it is on the disk");
    client.put(table, b"last", b"1").expect("and all before it");
    server.kill();
    damage_directories(&server);

    let (address, is_up) = (server.address(), AtomicBool::new(false));
    let look = || server_state(&address.to_string(), &ClientConfig::default());
    let mut seen: Vec<ServerState> = Vec::new();
    let [mut was_starting, mut was_unknown] = [String::new(), String::new()];
    thread::scope(|scope| {
        let wait = server.command(&tenant).args(["server", "wait", "--output", "json"]).spawn();
        let starting = scope.spawn(|| {
            server.restart();
            is_up.store(true, Ordering::SeqCst);
        });
        comes("somebody listens", || look().ok());
        // It comes before the server serves, and is served when it does.
        let early = scope.spawn(|| {
            let (address, tenant) = (address.to_string(), &tenant);
            let mut client = Client::connect_with(&address, &tenant.name, &tenant.secret, patient());
            client
                .as_mut()
                .map(|client| client.get(table, b"last"))
                .expect("it is let in")
                .expect("an answer")
        });
        while !is_up.load(Ordering::SeqCst) {
            let state = look().expect("the server answers from the beginning on");
            if !state.is_serving && was_starting.is_empty() {
                was_starting = fetch(metrics, "/health").unwrap_or_default();
                was_unknown = fetch(metrics, "/unknown").unwrap_or_default();
            }
            seen.push(state);
        }
        starting.join().expect("it starts");
        assert!(early.join().expect("no panic").is_some(), "nothing is missing");
        let waited = wait.expect("the command runs").wait().expect("it ends");
        assert!(waited.success());
    });
    let states = seen.iter().filter(|state| !state.is_serving && state.log_bytes > 0);
    println!("{} looks while it replayed: {:?}", states.clone().count(), seen.first());
    assert!(states.clone().count() > 0, "it was seen at work");
    assert!(seen.is_sorted_by_key(|state| (state.is_serving, state.replayed_bytes)));
    assert!(
        was_starting.starts_with("HTTP/1.1 503") && was_starting.contains("% of the log"),
        "{was_starting}"
    );
    assert!(was_unknown.starts_with("HTTP/1.1 404"), "{was_unknown}");
    let last = look().expect("it serves");
    assert!(last.is_serving && last.replayed_bytes == last.log_bytes && last.log_bytes > 0, "{last:?}");
    assert!(fetch(metrics, "/health").expect("it serves").starts_with("HTTP/1.1 200"));
    let shown = fetch(metrics, "/metrics").expect("it serves");
    assert!(shown.contains("\nsplinter_serving 1\n"), "{shown}");
    assert!(shown.contains(&format!("\nsplinter_log_replayed_bytes {}\n", last.log_bytes)), "{shown}");
}

/// A server with a synced table that is filled.
fn filled(memory: &str, ordered: bool) -> (Server, Tenant, Client, u32) {
    let server = Server::start_with(settings(memory, &[]));
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, ordered);
    fill(&mut client, table);
    (server, tenant, client, table)
}

/// The keys of [`fill`] by the round in which they are changed, and how.
fn of_round(round: u32, change: u32) -> impl Iterator<Item = [u8; 4]> {
    (0..OBJECTS).filter(move |key| key % 200 == round * 5 + change).map(u32::to_be_bytes)
}

#[test]
fn while_the_log_is_replayed_each_key_is_read_and_written_as_before_and_starts_may_end_in_the_middle() {
    let (mut server, tenant, mut client, table) = filled("256MiB", true);
    client.put(table, b"n", &0_i64.to_le_bytes()).expect("there is room");
    // A session that is resumed at each start.
    let mut old = server.client(&tenant);
    let [mut seen_at_work, mut resumed_at_work] = [0; 2];
    for round in 0..4 {
        match round {
            0 | 2 => server.kill(),
            1 => assert!(server.stop().success()),
            // The log of an older release: everything is replayed first, and has directories then.
            _ => {
                server.kill();
                damage_directories(&server);
            }
        }
        server.restart();
        seen_at_work += u32::from(server.is_replaying());
        client = server.client(&tenant);
        // Nobody has asked for these before.
        assert_eq!(client.increment(table, b"n", 1).expect("it is there").0, i64::from(round) * 11 + 1);
        assert_eq!(old.increment(table, b"n", 10).expect("it resumes").0, (i64::from(round) + 1) * 11);
        resumed_at_work += u32::from(server.is_replaying());
        for key in of_round(round, 0) {
            let object = client.get(table, &key).expect("it is read ahead");
            assert!(object.is_some_and(|object| object.value == [7; 1_000]), "{key:?}");
        }
        for key in of_round(round, 1) {
            assert!(client.delete(table, &key).expect("it is read ahead").is_some(), "{key:?}");
            assert!(client.get(table, &key).expect("an answer").is_none(), "{key:?}");
        }
        for key in of_round(round, 2) {
            let version = client.get(table, &key).expect("an answer").expect("it is there").version;
            let put = client.put_if(table, &key, &[8; 10], Condition::Version(version));
            assert!(put.expect("nobody else has it") > version, "{key:?}");
        }
        assert!(client.get(table, b"nowhere").expect("an answer").is_none());
    }
    assert!(seen_at_work > 0, "the server served after the replay each time");
    println!("the session was resumed before the end of {resumed_at_work} replays of 4");
    assert_eq!(client.increment(table, b"n", 1).expect("it is there").0, 4 * 11 + 1);
    // Waits for the end.
    let keys: BTreeSet<Vec<u8>> = client.enumerate(table).map(|object| object.expect("a page").key).collect();
    server.await_replay();
    for round in 0..4 {
        assert!(of_round(round, 0).chain(of_round(round, 2)).all(|key| keys.contains(&key[..])));
        assert!(of_round(round, 1).all(|key| !keys.contains(&key[..])), "what was deleted stays so");
    }
    assert_eq!(keys.len(), OBJECTS as usize - 4 * OBJECTS as usize / 200 + 1);
    assert_eq!(client.table_stat("data").expect("an answer").objects, keys.len() as u64);
    for key in (0..4).flat_map(|round| of_round(round, 2)) {
        let object = client.get(table, &key).expect("an answer").expect("it is there");
        assert_eq!(object.value, [8; 10], "{key:?}");
    }
}

#[test]
fn a_table_does_not_leave_the_disk_before_all_its_objects_are_there() {
    let (mut server, tenant, _, _) = filled("256MiB", false);
    crash(&mut server);
    let mut client = server.client(&tenant);
    let altered = client.table_alter("data", Durability::Memory);
    if let Err(error) = &altered {
        assert_eq!(error.status(), Some(Status::Unavailable));
        assert!(error.to_string().contains("splinter server wait --replayed"), "{error}");
        let waited = server.command(&tenant).args(["server", "wait", "--replayed"]).status();
        assert!(waited.expect("the command runs").success());
        client.table_alter("data", Durability::Memory).expect("everything is there");
    }
    println!("at first: {altered:?}");
    assert_eq!(client.table_stat("data").expect("an answer").objects, u64::from(OBJECTS));
}

#[test]
fn a_table_that_is_dropped_while_the_log_is_replayed_does_not_return() {
    let (mut server, tenant, _, _) = filled("256MiB", false);
    crash(&mut server);
    let mut client = server.client(&tenant);
    client.table_drop("data").expect("it is there");
    let again = create(&mut client, "data", Durability::Synced, false);
    assert!(client.get(again, &0_u32.to_be_bytes()).expect("an answer").is_none());
    client.put(again, b"new", b"1").expect("there is room");
    for _ in 0..2 {
        server.await_replay();
        assert_eq!(client.table_stat("data").expect("an answer").objects, 1);
        crash(&mut server);
        client = server.client(&tenant);
    }
}

#[test]
fn writers_leave_a_memory_that_is_nearly_full_to_the_rest_of_the_log() {
    let (mut server, tenant, _, table) = filled("32MiB", false);
    for round in 0_u8..3 {
        crash(&mut server);
        let was_replaying = server.is_replaying();
        let mut client = server.client(&tenant);
        let keys: Vec<_> = (0..OBJECTS).map(|key| (key + OBJECTS).to_be_bytes()).collect();
        let (value, mut written, mut refused) = ([round; 1_000], Vec::new(), 0);
        for together in keys.chunks(TOGETHER) {
            let objects: Vec<_> = together.iter().map(|key| (&key[..], &value[..])).collect();
            let results = client.multi_put(table, &objects).expect("the server answers");
            for (key, result) in together.iter().zip(results) {
                match result {
                    Ok(_) => written.push(key),
                    Err(error) => {
                        let is_full =
                            [Status::OutOfMemory, Status::Retry].map(Some).contains(&error.status());
                        assert!(is_full, "{error}");
                        refused += 1;
                    }
                }
            }
        }
        println!("replaying: {was_replaying}, {} written, {refused} refused", written.len());
        // After the first round the memory is full of live objects, and may refuse each write.
        assert!((!written.is_empty() || round > 0) && refused > 0, "memory has room for some of them");
        server.await_replay();
        let mut client = server.client(&tenant);
        for key in (0..OBJECTS).step_by(7).map(u32::to_be_bytes) {
            let object = client.get(table, &key).expect("an answer");
            assert!(object.is_some_and(|object| object.value == [7; 1_000]), "{key:?}");
        }
        for key in written {
            let object = client.get(table, key).expect("an answer");
            assert!(object.is_some_and(|object| object.value == value), "{key:?}");
        }
    }
}
