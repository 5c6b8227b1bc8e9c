//! Tables of a server without a disk: their durability, and what is refused.

use control::Durability::{self, Memory, Synced, Written};
use control::{AdminRequest, TableEntry, TableOptions, TableStatistics};
use wire::Status;

use super::Site;
use super::client::Client;

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

#[test]
fn a_server_without_a_disk_has_tables_in_memory_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let site = Site::start(directory.path(), 1, 2);
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
    let site = Site::start(directory.path(), 1, 1);
    let mut ann = site.client("ann", &secret);
    assert_eq!(shown(&mut ann, "default"), Some(Memory), "the choice is stored");
}
