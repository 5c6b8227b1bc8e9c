//! Moves to a server whose disk hangs or fails before it has what arrived.

use std::collections::BTreeMap;

use client::{Durability, MigrationPhase, MigrationWait, TableOptions};
use tests::cluster::Cluster;
use tests::effort::rng;
use tests::failing_disk::FailingDisk;
use tests::patience::{answered, comes};
use tests::server::{Server, Settings};

use super::{HALF, Tireless, begin, change, check, owner, wait_for_moves};

const KEYS: u64 = 300;

/// Moves half of a durable table to a server whose disk hangs, and waits until it has everything but on the disk. Then
/// `end` ends the move; the table must be served where it was, as it was.
fn move_ends(end: impl FnOnce(&Cluster, &FailingDisk, u32)) {
    let disk = FailingDisk::new();
    let (memory, segment) = ("64MiB".into(), "1MiB".into());
    let settings = Settings { memory, segment, ..Settings::default() };
    let mut cluster = Cluster::start(1, &settings);
    let tenant = cluster.servers[0].tenant("acme");
    let mut client = cluster.servers[0].client(&tenant);
    let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    let table = answered("the table", || client.table_create_with("data", options));
    let arguments = vec!["--disk-io".to_owned(), "system-calls".to_owned()];
    let (metadata, wrapper) = (cluster.etcd.metadata(), disk.wrapper());
    cluster.servers.push(Server::start_with(Settings { metadata, wrapper, arguments, ..settings }));
    let numbers = cluster.numbers();
    let mut user = Tireless::new(&cluster, &tenant, table);
    let (mut model, mut random) = (BTreeMap::new(), rng());
    change(&mut user, &mut model, &mut random, KEYS);

    disk.hang();
    begin(&cluster, HALF, numbers[1]);
    let id = comes("a move that waits for the disk", || {
        let all = cluster.servers[1].admin().migration_progress().ok()?;
        all.iter()
            .find(|progress| progress.awaited == MigrationWait::Disk)
            .map(|progress| progress.migration.id)
    });
    end(&cluster, &disk, id);
    let ended = comes("the end of the move", || {
        let all = cluster.servers[0].admin().migration_progress().ok()?;
        all.iter().find(|progress| progress.is_over).map(|progress| progress.migration.phase)
    });
    assert_eq!(ended, MigrationPhase::Ended);
    assert_eq!(owner(&cluster.servers[0], u64::MAX), numbers[0]);
    change(&mut user, &mut model, &mut random, KEYS);
    check(&mut user, &model, KEYS);
    disk.work();
    wait_for_moves(&cluster);
}

#[test]
fn a_move_to_a_disk_that_fails_goes_back() {
    move_ends(|cluster, disk, _| {
        disk.fail();
        comes("a note of why", || {
            let log = cluster.servers[1].log();
            log.contains("the disk has failed: the hashes return to the source").then_some(())
        });
    });
}

#[test]
fn a_move_that_waits_for_a_disk_can_be_aborted() {
    move_ends(|cluster, _, id| {
        answered("the abort", || cluster.servers[1].admin().migration_abort(id));
    });
}
