//! The durability of tables: what a server with and without a disk admits, and what a restart keeps.

use std::path::Path;
use std::thread;

use control::Durability::{self, Memory, Synced, Written};
use control::{AdminRequest, TableEntry, TableId, TableOptions, TableStatistics};
use db::config::{Config, DiskSpace};
use wire::{Condition, Request, Status};

use super::client::Client;
use super::{Site, config, file, no_toolchain};

fn create(
    client: &mut Client,
    name: &str,
    durability: Option<Durability>,
    cache_bytes: Option<u64>,
) -> Result<(), (Status, String)> {
    let options = TableOptions { durability, cache_bytes, ..TableOptions::default() };
    answer(client, &AdminRequest::TableCreate { name, options })
}

fn alter(client: &mut Client, name: &str, durability: Durability) -> Result<(), (Status, String)> {
    answer(client, &AdminRequest::TableAlter { name, durability })
}

/// Returns the status and the text of a refusal.
fn answer(client: &mut Client, request: &AdminRequest<'_>) -> Result<(), (Status, String)> {
    let refused = client.control.ask(request).map(drop);
    refused.map_err(|(status, text)| (status, String::from_utf8(text).expect("text")))
}

/// Returns the durability that the list and the statistics of a table show.
fn shown(client: &mut Client, name: &str) -> Option<Durability> {
    let list = client.control.ask(&AdminRequest::TableList).expect("a list");
    let list = control::decode::<Vec<TableEntry>>(&list).expect("entries");
    let listed = list.iter().find(|entry| entry.name == name).expect("it is there").durability;
    let statistics = client.control.ask(&AdminRequest::TableStat { name }).expect("it is there");
    assert_eq!(control::decode::<TableStatistics>(&statistics).expect("statistics").durability, listed);
    listed
}

fn id_of(client: &mut Client, name: &str) -> u32 {
    let answer = client.control.ask(&AdminRequest::TableOpen { name }).expect("it is there");
    control::decode::<TableId>(&answer).expect("an id").id
}

fn start_without_disk(directory: &Path) -> Site {
    let config = Config { disk: DiskSpace::Off, ..config(directory, 2) };
    Site::start_config(&config, 1, file(directory), no_toolchain())
}

#[test]
fn a_server_without_a_disk_has_tables_in_memory_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = start_without_disk(directory.path());
    let secret = site.create_tenant("ann");
    let mut ann = site.client("ann", &secret);
    create(&mut ann, "default", None, None).expect("a fresh name");
    create(&mut ann, "memory", Some(Memory), None).expect("a fresh name");
    create(&mut ann, "cache", Some(Memory), Some(1 << 20)).expect("a fresh name");
    for durability in [Written, Synced] {
        let (status, text) = create(&mut ann, "disk", Some(durability), None).expect_err("no disk");
        assert!(status == Status::Unavailable && text.contains("`--disk off`"), "{status:?} {text}");
        let (status, text) = create(&mut ann, "disk", Some(durability), Some(1 << 20)).expect_err("a cache");
        assert!(status == Status::OutOfRange && text.contains("its durability is memory"), "{text}");
        for (name, expected) in [("memory", Status::Unavailable), ("cache", Status::OutOfRange)] {
            let (status, text) = alter(&mut ann, name, durability).expect_err("no disk");
            assert!(status == expected && text.contains("durability"), "{name}: {status:?} {text}");
        }
    }
    let (status, _) = alter(&mut ann, "disk", Memory).expect_err("it was refused");
    assert_eq!(status, Status::UnknownTable);
    for name in ["default", "memory", "cache"] {
        alter(&mut ann, name, Memory).expect("it is in memory");
        assert_eq!(shown(&mut ann, name), Some(Memory));
    }
    drop(ann);
    site.server.stop();
    let site = start_without_disk(directory.path());
    let mut ann = site.client("ann", &secret);
    assert_eq!(shown(&mut ann, "default"), Some(Memory), "the choice is stored");
}

#[test]
fn tables_are_synced_by_default_and_their_objects_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
    let secret = site.create_tenant("ann");
    let mut ann = site.client("ann", &secret);
    for (name, given, shows) in
        [("a", None, Synced), ("b", Some(Written), Written), ("c", Some(Memory), Memory)]
    {
        create(&mut ann, name, given, None).expect("a fresh name");
        assert_eq!(shown(&mut ann, name), Some(shows));
    }
    create(&mut ann, "cache", None, Some(1 << 20)).expect("a fresh name");
    assert_eq!(shown(&mut ann, "cache"), Some(Memory));
    alter(&mut ann, "b", Synced).expect("both are on the disk");
    alter(&mut ann, "a", Written).expect("both are on the disk");
    let put = |ann: &mut Client, name: &str, key: &[u8], value: &[u8]| {
        let table = id_of(ann, name);
        let (status, version) = ann.call(&Request::Put { table, key, value, condition: Condition::Always });
        assert_eq!(status, Ok(Status::Ok));
        u64::from_le_bytes(version.try_into().expect("a version"))
    };
    let versions = ["a", "b", "c"].map(|name| {
        put(&mut ann, name, b"gone", b"");
        let table = id_of(&mut ann, name);
        let delete = Request::Delete { table, key: b"gone", condition: Condition::Always };
        assert_eq!(ann.status(&delete), Status::Ok);
        put(&mut ann, name, b"k", name.as_bytes())
    });
    drop(ann);
    site.server.stop();
    let site = Site::start(directory.path(), 2, 1);
    let mut ann = site.client("ann", &secret);
    assert_eq!(
        ["a", "b", "c"].map(|name| shown(&mut ann, name)),
        [Some(Written), Some(Synced), Some(Memory)]
    );
    for (name, version) in ["a", "b"].into_iter().zip(versions) {
        let table = id_of(&mut ann, name);
        let (status, found) = ann.call(&Request::Get { table, key: b"k" });
        assert_eq!((status, &found[8..]), (Ok(Status::Ok), name.as_bytes()));
        assert_eq!(found[..8], version.to_le_bytes());
        assert_eq!(ann.status(&Request::Get { table, key: b"gone" }), Status::NotFound);
        assert!(put(&mut ann, name, b"gone", b"again") > version, "versions only grow");
    }
    let table = id_of(&mut ann, "c");
    assert_eq!(ann.status(&Request::Get { table, key: b"k" }), Status::NotFound);
}

fn put(client: &mut Client, table: u32, key: u32, value: &[u8]) {
    let put = Request::Put { table, key: &key.to_le_bytes(), value, condition: Condition::Always };
    while client.status(&put) != Status::Ok {}
}

fn has(client: &mut Client, table: u32, key: u32) -> bool {
    client.status(&Request::Get { table, key: &key.to_le_bytes() }) == Status::Ok
}

#[test]
fn a_table_goes_to_the_disk_and_back_and_what_was_deleted_stays_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut site = Site::start(directory.path(), 1, 2);
    let secret = site.create_tenant("ann");
    let mut ann = site.client("ann", &secret);
    create(&mut ann, "t", Some(Memory), None).expect("a fresh name");
    create(&mut ann, "cache", Some(Memory), Some(1 << 20)).expect("a fresh name");
    let (status, text) = alter(&mut ann, "cache", Synced).expect_err("a cache");
    assert!(status == Status::OutOfRange && text.contains("its durability is memory"), "{text}");
    let table = id_of(&mut ann, "t");
    (0..3_000).for_each(|key| put(&mut ann, table, key, &[7; 300]));
    alter(&mut ann, "t", Synced).expect("there is room");
    assert_eq!(shown(&mut ann, "t"), Some(Synced));
    (0..10).for_each(|key| {
        let delete = Request::Delete { table, key: &u32::to_le_bytes(key), condition: Condition::Always };
        assert_eq!(ann.status(&delete), Status::Ok);
    });
    let objects = |client: &mut Client| {
        let statistics = client.control.ask(&AdminRequest::TableStat { name: "t" }).expect("it is there");
        let statistics = control::decode::<TableStatistics>(&statistics).expect("statistics");
        assert_eq!(statistics.rewritten_bytes, None);
        statistics.objects
    };
    for round in 2..5_u32 {
        drop(ann);
        site.server.stop();
        site = Site::start(directory.path(), round.into(), 2);
        ann = site.client("ann", &secret);
        assert_eq!((shown(&mut ann, "t"), id_of(&mut ann, "t")), (Some(Synced), table));
        while !site.server.has_replayed() {
            thread::yield_now();
        }
        assert_eq!(objects(&mut ann), 3_000 - 10 * (u64::from(round) - 1));
        assert!((0..3_000).step_by(7).all(|key| has(&mut ann, table, key) == (key >= 10 * (round - 1))));
        // Of this time on the disk the next start must find nothing.
        alter(&mut ann, "t", Memory).expect("nothing is promised");
        assert_eq!(shown(&mut ann, "t"), Some(Memory));
        for key in 10 * (round - 1)..10 * round {
            let delete = Request::Delete { table, key: &key.to_le_bytes(), condition: Condition::Always };
            assert_eq!(ann.status(&delete), Status::Ok);
        }
        alter(&mut ann, "t", Written).expect("there is room");
        alter(&mut ann, "t", Synced).expect("both are on the disk");
    }
    alter(&mut ann, "t", Memory).expect("nothing is promised");
    drop(ann);
    site.server.stop();
    let site = Site::start(directory.path(), 5, 1);
    let mut ann = site.client("ann", &secret);
    assert_eq!((shown(&mut ann, "t"), objects(&mut ann)), (Some(Memory), 0));
}
