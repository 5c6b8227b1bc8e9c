//! A disk that fills up: refusals with a reason, everything else goes on, and space comes back without an operator.

use std::io;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Durability, Error, Status};
use tests::effort::rounds;
use tests::patience::comes;
use tests::server::Server;

use super::super::replies::refusal;
use super::{crash, create, settings, start};

/// Bytes of each value.
const VALUE_BYTES: usize = 4_000;
/// Objects that are put together.
const TOGETHER: usize = 50;
/// Memory of the store, in which much more has room than on the disk.
const MEMORY: &str = "128MiB";
/// Time in which a disk that is not full takes a write again.
const CLEANING: Duration = Duration::from_secs(20);

fn refused_with(disk: &str) -> Option<String> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let started = Server::start_in(directory, settings(MEMORY, &["--disk", disk]));
    started.err().as_ref().map(io::Error::to_string)
}

/// The smallest disk that the server accepts, as it says itself.
fn least_disk() -> String {
    let said = refused_with("1MiB").expect("1 MiB hold no log");
    let (_, least) = said.split_once("--disk is too small: at least ").expect("it says how much it needs");
    format!("{}MiB", least.split(' ').next().expect("a number"))
}

fn value(key: u32, round: u8) -> Vec<u8> {
    let mut value = vec![round; VALUE_BYTES];
    value[..4].copy_from_slice(&key.to_le_bytes());
    value
}

/// Puts objects until some are refused; returns how many there are then, from key 0 on. Of the next [`TOGETHER`] there
/// may be some.
fn fill(client: &mut Client, table: u32, round: u8) -> u32 {
    for first in (0_u32..30_000).step_by(TOGETHER) {
        let refused = put_many(client, table, first, round);
        if let Some(status) = refused {
            assert_eq!(status, Status::StorageFull);
            return first;
        }
    }
    panic!("the disk is much smaller");
}

/// Puts objects together; returns the status of the first that was refused.
fn put_many(client: &mut Client, table: u32, first: u32, round: u8) -> Option<Status> {
    let keys: Vec<[u8; 4]> = (first..first + TOGETHER as u32).map(u32::to_le_bytes).collect();
    let values: Vec<Vec<u8>> = (first..first + TOGETHER as u32).map(|key| value(key, round)).collect();
    let objects: Vec<(&[u8], &[u8])> =
        keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..])).collect();
    let results = client.multi_put(table, &objects).expect("the session lives");
    results.into_iter().find_map(|result| result.err().map(|error| error.status().expect("an answer")))
}

/// Deletes what [`fill`] left behind that many.
fn delete_rest(client: &mut Client, table: u32, stored: u32) {
    for key in stored..stored + TOGETHER as u32 {
        client.delete(table, &key.to_le_bytes()).expect("a delete is taken");
    }
}

/// Deletes every so manieth of these objects, which are there.
fn delete_many(client: &mut Client, table: u32, keys: Range<u32>, step: usize) {
    let keys: Vec<[u8; 4]> = keys.step_by(step).map(u32::to_le_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for deleted in client.multi_delete(table, &keys).expect("the session lives") {
        assert!(deleted.is_ok(), "a delete is taken: {deleted:?}");
    }
}

/// Puts until the disk has room again; returns what happened else.
fn put_when_possible(client: &mut Client, table: u32, key: &[u8]) -> Result<u64, Error> {
    let deadline = Instant::now() + CLEANING;
    loop {
        match client.put(table, key, b"value") {
            Err(error) if error.status() == Some(Status::StorageFull) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            put => return put,
        }
    }
}

fn assert_all(client: &mut Client, table: u32, keys: Range<u32>, round: u8) {
    let names: Vec<[u8; 4]> = keys.clone().map(u32::to_le_bytes).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let found = client.multi_get(table, &names).expect("the server answers");
    for (key, object) in keys.zip(found) {
        assert!(object.is_some_and(|object| object.value == value(key, round)), "object {key}");
    }
}

#[test]
fn a_disk_that_is_too_small_is_refused_with_the_size_that_would_do() {
    let least = least_disk();
    assert_eq!(refused_with(&least), None);
    let mebibytes: u64 = least.trim_end_matches("MiB").parse().expect("a number");
    let said = refused_with(&format!("{}MiB", mebibytes - 2)).expect("it was the least");
    assert!(said.contains(&format!("at least {mebibytes} MiB")), "{said}");
}

#[test]
fn a_full_disk_refuses_writes_serves_reads_and_takes_deletes_which_make_room_again() {
    let mut server = start(MEMORY, &["--disk", &least_disk()]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let synced = create(&mut client, "synced", Durability::Synced, false);
    let written = create(&mut client, "written", Durability::Written, false);
    let memory = create(&mut client, "memory", Durability::Memory, false);
    client.put(written, b"k", b"old").unwrap();
    let mut first = None;
    for round in 0..rounds(3, 40) as u8 {
        let stored = fill(&mut client, synced, round);
        let first = *first.get_or_insert(stored);
        assert!(stored > 500 && stored > first / 2, "{stored} objects after {first}");
        if round == 0 {
            // Later, cleaning may free what earlier deletes left.
            assert_eq!(refusal(client.increment(synced, b"n", 1)), Status::StorageFull);
            assert_eq!(refusal(client.put(written, b"k", b"new")), Status::StorageFull);
        }
        assert_all(&mut client, synced, 0..stored, round);
        client.put(memory, &[round], b"value").unwrap();
        assert!(client.get(memory, &[round]).unwrap().is_some());
        if round % 2 == 1 {
            crash(&mut server);
            client = server.client(&tenant);
            assert_all(&mut client, synced, 0..stored, round);
        }
        let kept = stored / 10;
        delete_many(&mut client, synced, kept..stored, 1);
        delete_rest(&mut client, synced, stored);
        put_when_possible(&mut client, synced, b"again").expect("deletes make room");
        put_when_possible(&mut client, written, b"again").expect("also for other tables");
        client.delete(synced, b"again").unwrap();
        assert_all(&mut client, synced, 0..kept, round);
        assert_eq!(client.get(synced, &kept.to_le_bytes()).unwrap(), None);
    }
    crash(&mut server);
    let mut client = server.client(&tenant);
    assert_eq!(client.get(written, b"k").unwrap().expect("it was never deleted").value, b"old");
}

#[test]
fn one_delete_after_another_is_taken_until_a_full_disk_is_empty() {
    let mut server = start(MEMORY, &["--disk", &least_disk()]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, true);
    let stored = fill(&mut client, table, 1);
    crash(&mut server);
    let mut client = server.client(&tenant);
    for key in 0..stored {
        assert!(client.delete(table, &key.to_le_bytes()).expect("a delete is taken").is_some());
    }
    delete_rest(&mut client, table, stored);
    server.await_replay();
    assert_eq!(client.table_stat("data").unwrap().objects, 0);
    crash(&mut server);
    let mut client = server.client(&tenant);
    assert_eq!(client.enumerate(table).count(), 0);
    let again =
        comes("the disk has room", || Some(fill(&mut client, table, 2)).filter(|&all| all > stored / 2));
    assert_all(&mut client, table, 0..again, 2);
}

#[test]
fn a_little_garbage_everywhere_on_a_full_disk_is_cleaned_in_pieces() {
    let mut server = start(MEMORY, &["--disk", &least_disk()]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    for round in 0..2_u8 {
        let stored = fill(&mut client, table, round);
        delete_many(&mut client, table, 0..stored, 20);
        delete_rest(&mut client, table, stored);
        put_when_possible(&mut client, table, b"again").expect("deletes make room");
        crash(&mut server);
        client = server.client(&tenant);
        client.delete(table, b"again").unwrap();
        server.await_replay();
        let found = client.table_stat("data").unwrap().objects;
        assert_eq!(found, u64::from(stored - stored.div_ceil(20)));
        let left: Vec<_> = client.enumerate(table).map(|object| object.expect("a page").key).collect();
        let left: Vec<&[u8]> = left.iter().map(|key| &key[..]).collect();
        assert!(client.multi_delete(table, &left).expect("the session lives").iter().all(Result::is_ok));
    }
}

#[test]
fn many_times_the_disk_can_be_overwritten() {
    let mut server = start(MEMORY, &["--disk", &least_disk()]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    let rounds = rounds(24, 300);
    for round in 0..rounds {
        for first in (0..400).step_by(TOGETHER) {
            assert_eq!(put_many(&mut client, table, first, round as u8), None, "round {round}");
        }
    }
    crash(&mut server);
    assert_all(&mut server.client(&tenant), table, 0..400, (rounds - 1) as u8);
}

#[test]
fn a_server_that_stops_on_a_full_file_system_says_so_if_the_last_writes_found_no_room() {
    let mut settings = settings(MEMORY, &["--flush-interval", "10000"]);
    // Files of at most 24 MiB, beyond which a write fails and no signal comes.
    settings.wrapper =
        ["sh", "-c", "trap '' XFSZ; ulimit -f 49152; exec \"$@\"", "sh"].map(str::to_owned).to_vec();
    let mut server = Server::start_with(settings);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Written, false);
    let mut answered = 0;
    while answered < 8_000 && put_many(&mut client, table, answered, 1).is_none() {
        answered += TOGETHER as u32;
    }
    let code = server.stop().code();
    println!("{answered} objects were answered");
    assert_eq!(code, Some(1), "{}", server.log());
    let log = server.log();
    assert!(log.contains("no space on the disk for the last writes of durable tables"), "{log}");
    assert!(log.contains("those of `written` tables are lost"), "{log}");
    // With more room it starts again, with what there was room for.
    server.settings.wrapper.clear();
    server.restart();
    let mut client = server.client(&tenant);
    client.put(table, b"again", b"value").expect("there is room");
    assert!(server.stop().success());
}
