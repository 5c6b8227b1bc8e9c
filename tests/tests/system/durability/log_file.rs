//! The file of the log: who may have it, how it is written, what a stop leaves, and damage in it.

use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Durability};
use fastrand::Rng;
use tests::patience::comes;
use tests::raw::PATIENCE;
use tests::server::{Server, binary, fetch};

use super::{BLOCK_BYTES, LOG_FILE, TRAILER, crash, create, settings, start};

/// Puts objects in the order of their keys.
fn put_all(client: &mut Client, table: u32, keys: Range<u32>) {
    for key in keys {
        client.put(table, &key.to_le_bytes(), &value_of(key)).expect("there is room");
    }
}

/// A value that stands nowhere else.
fn value_of(key: u32) -> Vec<u8> {
    let mut random = Rng::with_seed(u64::from(key) + 1);
    std::iter::repeat_with(|| random.u8(..)).take(1_000).collect()
}

/// The keys that are there; their values are those that were put.
fn found(client: &mut Client, table: u32, keys: Range<u32>) -> Vec<u32> {
    let names: Vec<[u8; 4]> = keys.clone().map(u32::to_le_bytes).collect();
    let names: Vec<&[u8]> = names.iter().map(|name| &name[..]).collect();
    let objects = client.multi_get(table, &names).expect("the server answers");
    let there = keys.zip(objects).filter_map(|(key, object)| {
        assert!(object.as_ref().is_none_or(|object| object.value == value_of(key)), "the value of {key}");
        object.map(|_| key)
    });
    there.collect()
}

#[test]
fn a_server_without_a_disk_refuses_a_directory_with_a_log_and_says_what_to_do() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("data").unwrap();
    put_all(&mut client, table, 0..10);
    server.kill();
    server.settings.arguments = ["--disk", "off"].map(str::to_owned).to_vec();
    let said = server.try_restart().expect_err("it has objects").to_string();
    assert!(said.contains("start without `--disk off`") && said.contains("move the file away"), "{said}");
    server.settings.arguments.clear();
    server.restart();
    assert_eq!(found(&mut server.client(&tenant), table, 0..10).len(), 10, "nothing was touched");
    // As it says.
    server.stop();
    fs::rename(server.directory().join(LOG_FILE), server.directory().join("away")).unwrap();
    server.settings.arguments = ["--disk", "off"].map(str::to_owned).to_vec();
    server.restart();
    assert!(found(&mut server.client(&tenant), table, 0..10).is_empty());
}

/// Runs a server that is expected to end by itself.
/// The numbers of tables in it mean others there.
#[test]
fn the_log_of_another_data_directory_is_refused_and_nothing_is_touched() {
    let [mut own, mut other] = [(); 2].map(|()| Server::start());
    let tenants = [&own, &other].map(|server| server.tenant("acme"));
    let tables = [(&own, 0), (&other, 1)].map(|(server, at)| {
        let mut client = server.client(&tenants[at]);
        let table = client.table_create("data").unwrap();
        put_all(&mut client, table, 0..10);
        table
    });
    assert_eq!(tables[0], tables[1], "the same number");
    own.kill();
    other.kill();
    let [log, others] = [&own, &other].map(|server| server.directory().join(LOG_FILE));
    let aside = own.directory().join("aside");
    fs::rename(&log, &aside).unwrap();
    fs::copy(&others, &log).unwrap();
    let before = fs::read(&log).unwrap();
    let said = own.try_restart().expect_err("it is another one's").to_string();
    assert!(said.contains("was written with other metadata"), "{said}");
    assert!(fs::read(&log).unwrap() == before);
    fs::rename(&aside, &log).unwrap();
    own.restart();
    assert_eq!(found(&mut own.client(&tenants[0]), tables[0], 0..10).len(), 10);
}

/// Tables and clients that come later would get numbers that the log has for others.
#[test]
fn a_log_that_is_newer_than_the_metadata_is_refused_however_often_it_is_tried() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("data").unwrap();
    put_all(&mut client, table, 0..10);
    server.stop();
    let [metadata, copy, newest] =
        ["metadata.redb", "copy", "newest"].map(|name| server.directory().join(name));
    fs::copy(&metadata, &copy).unwrap();
    server.restart();
    put_all(&mut server.client(&tenant), table, 10..20);
    server.stop();
    fs::rename(&metadata, &newest).unwrap();
    fs::copy(&copy, &metadata).unwrap();
    let log = fs::read(server.directory().join(LOG_FILE)).unwrap();
    for _ in 0..3 {
        let said = server.try_restart().expect_err("it is older").to_string();
        assert!(said.contains("is newer than the metadata"), "{said}");
    }
    assert!(fs::read(server.directory().join(LOG_FILE)).unwrap() == log);
    fs::rename(&newest, &metadata).unwrap();
    server.restart();
    assert_eq!(found(&mut server.client(&tenant), table, 0..20).len(), 20);
}

fn run_server(arguments: &[&str], data: &std::path::Path) -> Output {
    let mut command = Command::new(binary("splinter-server"));
    command.args(["--listen", "127.0.0.1:0", "--memory", "64MiB", "--data"]).arg(data).args(arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("it is our child").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

#[test]
fn a_second_server_on_a_directory_is_refused_and_touches_nothing() {
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = client.table_create("data").unwrap();
    put_all(&mut client, table, 0..100);
    let ended = run_server(&[], server.directory());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code().is_some_and(|code| code != 0), "{said}");
    assert!(said.contains("another"), "{said}");
    put_all(&mut client, table, 100..200);
    crash(&mut server);
    assert_eq!(found(&mut server.client(&tenant), table, 0..200).len(), 200);
}

#[test]
fn both_ways_to_the_disk_read_and_write_the_same_log() {
    let mut server = start("64MiB", &["--disk-io", "system-calls"]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    for (round, way) in ["io-uring", "system-calls", "io-uring"].into_iter().enumerate() {
        let all = 300 * round as u32;
        put_all(&mut client, table, all..all + 300);
        server.kill();
        server.settings.arguments = ["--disk-io", way].map(str::to_owned).to_vec();
        server.restart();
        client = server.client(&tenant);
        assert_eq!(found(&mut client, table, 0..all + 300).len(), all as usize + 300);
    }
    let log = server.log();
    let count = |text: &str| log.matches(text).count();
    assert_eq!((count("by system calls alone"), count("by io_uring")), (2, 2), "{log}");
}

#[test]
fn a_stop_loses_nothing_of_a_durable_table() {
    let mut server = start("64MiB", &["--flush-interval", "10000"]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let tables = [Durability::Written, Durability::Synced]
        .map(|durability| create(&mut client, durability.name(), durability, false));
    for round in 0..3 {
        tables.iter().for_each(|&table| put_all(&mut client, table, round * 200..(round + 1) * 200));
        assert!(server.stop().success());
        server.restart();
        client = server.client(&tenant);
        for table in tables {
            assert_eq!(found(&mut client, table, 0..(round + 1) * 200).len() as u32, (round + 1) * 200);
        }
    }
}

#[test]
fn a_crash_loses_of_a_written_table_only_the_newest_that_the_server_says_are_not_on_the_disk() {
    let mut server = start("64MiB", &["--flush-interval", "20", "--metrics", "127.0.0.1:0"]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Written, false);
    for round in 0..3_u32 {
        let first = round * 1_000;
        put_all(&mut client, table, first..first + 200);
        // Nobody asks for it: the interval does it.
        comes("all is on the disk", || {
            let metrics = fetch(server.metrics(), "/metrics")?;
            metrics.contains("\nsplinter_log_behind_bytes 0\n").then_some(())
        });
        put_all(&mut client, table, first + 200..first + 1_000);
        crash(&mut server);
        client = server.client(&tenant);
        let there = found(&mut client, table, first..first + 1_000);
        println!("{} of 1000 are there", there.len());
        assert!(there.len() >= 200, "{} objects", there.len());
        assert!(there.iter().copied().eq(first..first + there.len() as u32), "the newest are lost first");
    }
}

#[test]
fn what_was_written_before_a_table_became_synced_is_there_with_the_next_answered_write() {
    let mut server = start("64MiB", &["--flush-interval", "10000"]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Written, false);
    put_all(&mut client, table, 0..200);
    client.table_alter("data", Durability::Synced).unwrap();
    put_all(&mut client, table, 200..201);
    crash(&mut server);
    assert_eq!(found(&mut server.client(&tenant), table, 0..201).len(), 201);
}

/// Another `--disk` needs a digest of another size, from 748 MiB on with these segments.
#[test]
fn a_log_is_read_with_any_limit_of_the_disk() {
    let arguments = |disk: &str| ["--disk", disk].map(str::to_owned).to_vec();
    let mut server = Server::start_with(settings("64MiB", &["--disk", "700MiB"]));
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    let mut count = 0;
    for disk in ["4GiB", "300GiB", "200MiB", "1GiB"] {
        put_all(&mut client, table, count..count + 3_000);
        count += 3_000;
        server.kill();
        server.settings.arguments = arguments(disk);
        server.restart();
        client = server.client(&tenant);
        assert_eq!(found(&mut client, table, 0..count).len() as u32, count, "with {disk}");
        let is_limited = server.log().contains("the log was begun with a smaller --disk");
        assert_eq!(is_limited, disk != "4GiB", "from the second start on");
    }
}

/// Where a value lies in the log in one piece, which begins at a multiple of four bytes.
fn place_of(log: &[u8], value: &[u8]) -> Option<usize> {
    log.chunks_exact(4).enumerate().find_map(|(chunk, bytes)| {
        (bytes == &value[..4] && log[4 * chunk..].starts_with(value)).then_some(4 * chunk)
    })
}

fn flip(server: &Server, place: usize) {
    let file = fs::File::options().read(true).write(true).open(server.directory().join(LOG_FILE)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, place as u64).unwrap();
    file.write_all_at(&[!byte[0]], place as u64).unwrap();
    file.sync_all().unwrap();
}

/// A server that has crashed with so many objects in several segments.
fn crashed(count: u32) -> (Server, tests::server::Tenant, u32) {
    let mut server = Server::start_with(settings("64MiB", &[]));
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Written, false);
    put_all(&mut client, table, 0..count);
    client.table_alter("data", Durability::Synced).unwrap();
    client.put(table, b"last", b"").unwrap();
    server.kill();
    (server, tenant, table)
}

#[test]
fn damage_in_the_log_costs_at_most_the_objects_behind_it_in_its_block_and_is_reported() {
    let (mut server, tenant, table) = crashed(4_000);
    let log = fs::read(server.directory().join(LOG_FILE)).unwrap();
    let victims = (300..400).filter_map(|key| Some((key, place_of(&log, &value_of(key))?)));
    let (victim, place) = victims.into_iter().next().expect("values that lie in one block");
    flip(&server, place + 500);
    server.restart();
    server.await_replay();
    let said = server.log();
    assert!(said.contains("ERROR") && said.contains("damaged entries in the log"), "{said}");
    let mut client = server.client(&tenant);
    let there = found(&mut client, table, 0..4_000);
    let lost: Vec<u32> = (0..4_000).filter(|key| there.binary_search(key).is_err()).collect();
    assert!(lost.len() <= BLOCK_BYTES / 1_000 && lost[0] == victim, "{lost:?}");
    assert!(lost.iter().copied().eq(victim..victim + lost.len() as u32), "{lost:?}");
    assert!(client.verify(table).unwrap().corrupted.is_empty());
    put_all(&mut client, table, victim..victim + lost.len() as u32);
    crash(&mut server);
    assert_eq!(found(&mut server.client(&tenant), table, 0..4_000).len(), 4_000);
}

#[test]
fn a_damaged_trailer_costs_no_object() {
    let (mut server, tenant, table) = crashed(4_000);
    let log = fs::read(server.directory().join(LOG_FILE)).unwrap();
    for key in [300, 900] {
        let place = (key..key + 50).find_map(|key| place_of(&log, &value_of(key))).expect("one in one block");
        flip(&server, place / BLOCK_BYTES * BLOCK_BYTES + TRAILER + 20);
    }
    server.restart();
    server.await_replay();
    assert!(server.log().contains("damaged blocks"), "{}", server.log());
    assert_eq!(found(&mut server.client(&tenant), table, 0..4_000).len(), 4_000);
}

#[test]
fn after_a_stop_damage_in_what_was_written_last_is_reported_and_a_log_that_is_gone_too() {
    let mut server = Server::start_with(settings("64MiB", &[]));
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    put_all(&mut client, table, 0..200);
    assert!(server.stop().success());
    let path = server.directory().join(LOG_FILE);
    let log = fs::read(&path).unwrap();
    let place = (190..200).rev().find_map(|key| place_of(&log, &value_of(key))).expect("one in one block");
    flip(&server, place + 500);
    server.restart();
    server.await_replay();
    assert!(server.log().contains("damaged entries in the log"), "{}", server.log());
    assert!(found(&mut server.client(&tenant), table, 0..200).len() >= 190);

    assert!(server.stop().success());
    fs::remove_file(&path).unwrap();
    server.restart();
    assert!(server.log().contains("the log of durable tables is gone or empty"), "{}", server.log());
    let mut client = server.client(&tenant);
    assert!(found(&mut client, table, 0..200).is_empty());
    assert!(client.table_list().unwrap()[0].emptied_ms.is_some(), "the tenant sees it");
    put_all(&mut client, table, 0..10);
    crash(&mut server);
    assert_eq!(found(&mut server.client(&tenant), table, 0..200).len(), 10);
}

#[test]
fn what_the_disk_lacks_of_a_running_server_is_named_by_table_and_key() {
    let mut server = start("64MiB", &[]);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let [table, other] = ["data", "other"].map(|name| create(&mut client, name, Durability::Synced, false));
    create(&mut client, "memory", Durability::Memory, false);
    put_all(&mut client, table, 0..2_000);
    put_all(&mut client, other, 2_000..2_100);
    client.delete(table, &7_u32.to_le_bytes()).expect("the server answers");
    let verify = |name: &str| {
        let arguments = ["table", "verify", name, "--disk", "--output", "json"];
        let ended = server.command(&tenant).args(arguments).output().expect("it runs");
        (
            ended.status.code().expect("it ends by itself"),
            serde_json::from_slice::<serde_json::Value>(&ended.stdout).unwrap_or_default(),
        )
    };
    let (code, found_all) = verify("data");
    assert!(code == 0 && found_all["objects"] == 1_999 && found_all["damaged_blocks"] == 0, "{found_all}");

    let log = fs::read(server.directory().join(LOG_FILE)).unwrap();
    let victims = (300..400).filter_map(|key| Some((key, place_of(&log, &value_of(key))?)));
    let (victim, place) = victims.into_iter().next().expect("values that lie in one block");
    flip(&server, place + 500);
    let (code, damaged) = verify("data");
    let lacking = damaged["lacking"].as_array().expect("a list").clone();
    let named = lacking.iter().map(|key| key["hex"].as_str().expect("hex").to_owned());
    let hex = |key: u32| key.to_le_bytes().map(|byte| format!("{byte:02x}")).concat();
    assert!(code == 8 && damaged["damaged_blocks"] == 1, "{damaged}");
    assert!(!lacking.is_empty() && lacking.len() <= BLOCK_BYTES / 1_000, "{damaged}");
    let behind: Vec<String> = (victim..victim + lacking.len() as u32).map(hex).collect();
    let mut named: Vec<String> = named.collect();
    named.sort_by_key(|hex| u32::from_str_radix(hex, 16).map(u32::swap_bytes).ok());
    assert_eq!(named, behind);
    let said = server.command(&tenant).args(["table", "verify", "data", "--disk"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("lacks") && said.contains("of table data"), "{said}");
    let (code, other) = verify("other");
    let is_whole = other["lacking"].as_array().is_some_and(Vec::is_empty);
    assert!(is_whole && other["damaged_blocks"] == 1, "another table has no part in it: {other}");
    assert_eq!(code, 8, "but an end of one of its keys might be in what is damaged");
    assert_eq!(verify("memory").0, 5, "it has no disk");

    // As it says: what is written again is there, and stays.
    put_all(&mut client, table, victim..victim + lacking.len() as u32);
    let (code, again) = verify("data");
    assert!(
        again["lacking"].as_array().is_some_and(Vec::is_empty) && again["damaged_blocks"] == 1,
        "{again}"
    );
    assert_eq!(code, 8, "the damaged block is still there");
    crash(&mut server);
    assert_eq!(found(&mut server.client(&tenant), table, 0..2_000).len(), 1_999);
}
