//! A disk that fails under a real server: its writes and syncs report errors from some moment on.

use std::net::SocketAddr;

use client::{Durability, KeyRange, RequestDurability, Status};
use tests::failing_disk::FailingDisk;
use tests::package::install_source;
use tests::patience::comes;
use tests::server::{Server, fetch};

use super::super::replies::refusal;
use super::{create, settings};

const READ: &str = r#"
#![no_std]
use sandstorm::{Args, Db, Error, Reply};

sandstorm::extension! { read show }

async fn show(db: &Db<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.write(db.get(args.table(), args.key()).await?.ok_or(Error::NotFound)?)
}
"#;

fn start_failing(disk: &FailingDisk) -> Server {
    let mut settings = settings("64MiB", &["--disk-io", "system-calls", "--metrics", "127.0.0.1:0"]);
    settings.wrapper = disk.wrapper();
    Server::start_with(settings)
}

fn health(metrics: SocketAddr) -> String {
    fetch(metrics, "/health").expect("the metrics port")
}

#[test]
fn after_a_failed_write_nothing_is_acknowledged_until_a_restart_which_finds_what_was() {
    let disk = FailingDisk::new();
    let mut server = start_failing(&disk);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let [synced, memory] = [Durability::Synced, Durability::Memory]
        .map(|durability| create(&mut client, durability.name(), durability, false));
    client.put(synced, b"before", b"1").expect("the disk works");
    let metrics = server.metrics();
    assert!(health(metrics).starts_with("HTTP/1.1 200"));

    disk.fail();
    assert_eq!(refusal(client.put(synced, b"during", b"1")), Status::StorageFailed);
    assert_eq!(refusal(client.put(synced, b"later", b"1")), Status::StorageFailed);
    assert_eq!(refusal(client.delete(synced, b"before")), Status::StorageFailed);
    assert!(client.get(synced, b"before").expect("what is on the disk is shown").is_some());
    assert_eq!(refusal(client.get(synced, b"during")), Status::StorageFailed, "perhaps it is not");
    client.put(memory, b"key", b"1").expect("it has no disk");
    let said = health(metrics);
    assert!(said.starts_with("HTTP/1.1 503") && said.contains("the disk"), "{said}");
    // The error is not tried away, though the disk works again.
    disk.work();
    assert_eq!(refusal(client.put(synced, b"later", b"1")), Status::StorageFailed);
    assert_eq!(server.stop().code(), Some(1), "something may be lost");

    server.restart();
    client = server.client(&tenant);
    assert!(client.get(synced, b"before").expect("it works again").is_some());
    assert!(client.get(synced, b"later").expect("it works again").is_none());
    client.put(synced, b"during", b"2").expect("it works again");
    assert!(server.stop().success());
}

/// Whether the table is in memory from now on shows at the next start: until then nothing may be promised for it.
#[test]
fn a_server_that_does_not_know_what_its_metadata_says_acknowledges_nothing_and_ends() {
    let disk = FailingDisk::new();
    let mut server = start_failing(&disk);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    client.put(table, b"before", b"1").expect("the disk works");
    disk.fail_metadata();
    client.table_alter("data", Durability::Memory).expect_err("nobody knows");
    client.put(table, b"after", b"1").expect_err("nothing is promised any more");
    comes("its end", || (!server.is_running()).then_some(()));
    let said = server.try_restart().expect_err("nothing is stable").to_string();
    assert!(said.contains("metadata"), "{said}");
    disk.work();
    server.restart();
    let mut client = server.client(&tenant);
    let table = client.table_open("data").expect("it is there");
    client.put(table, b"after", b"2").expect("it works again");
    assert_eq!(
        client.get(table, b"after").expect("it works").map(|object| object.value),
        Some(b"2".to_vec())
    );
}

/// What a killed process has written may lie in the page cache alone.
#[test]
fn a_start_tells_nobody_what_it_read_before_it_is_stable() {
    let disk = FailingDisk::new();
    let mut server = start_failing(&disk);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let table = create(&mut client, "data", Durability::Synced, false);
    client.put(table, b"key", b"1").expect("the disk works");
    server.kill();
    disk.fail();
    let said = server.try_restart().expect_err("nothing is stable").to_string();
    assert!(said.contains("sync of") && said.contains("/log failed"), "{said}");
    disk.work();
    server.restart();
    assert!(server.client(&tenant).get(table, b"key").expect("it works again").is_some());
}

#[test]
fn a_request_that_asked_for_the_disk_is_told_after_its_failure_what_was_there_and_no_more() {
    let disk = FailingDisk::new();
    let mut server = start_failing(&disk);
    let tenant = server.tenant("acme");
    let mut client = server.client(&tenant);
    let [written, ordered, memory] = [
        ("written", Durability::Written, false),
        ("ordered", Durability::Written, true),
        ("memory", Durability::Memory, false),
    ]
    .map(|(name, durability, ordered)| create(&mut client, name, durability, ordered));
    install_source(&mut client, "sample", READ).expect("it is built");
    client.session().set_durability(RequestDurability::Synced);
    client.put(written, b"before", b"1").expect("the disk works");

    disk.fail();
    client.session().set_durability(RequestDurability::OfTable);
    client.put(written, b"during", b"1").expect("it waits for nothing");
    comes("the disk has failed", || client.put(written, b"later", b"1").err());
    client.session().set_durability(RequestDurability::Synced);
    assert!(client.get(written, b"before").expect("it was on the disk").is_some());
    assert!(client.get(written, b"never").expect("and this never was").is_none());
    let found = client.invoke("sample.show", written, b"before", b"").expect("it shows what is there");
    assert_eq!(found, b"1");
    assert_eq!(refusal(client.get(written, b"during")), Status::StorageFailed);
    assert_eq!(refusal(client.invoke("sample.show", written, b"during", b"")), Status::StorageFailed);
    assert_eq!(refusal(client.multi_get(written, &[b"before", b"during"])), Status::StorageFailed);
    // What shows nothing of a durable table needs no disk.
    assert!(client.get(memory, b"key").expect("it has no disk").is_none());
    assert_eq!(refusal(client.put(memory, b"key", b"1")), Status::NotDurable);
    assert_eq!(refusal(client.get(99_999, b"key")), Status::UnknownTable);
    // A scan does not know what it has missed.
    assert_eq!(refusal(client.scan(ordered, KeyRange::default(), 1)), Status::StorageFailed);
    client.session().set_durability(RequestDurability::OfTable);
    assert!(client.get(written, b"during").expect("it promises nothing").is_some());
    assert_eq!(server.stop().code(), Some(1));
}
