//! An etcd that is lost for good: the metadata is restored from the copies that the servers keep.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use client::{Durability, MigrationMode, TableOptions, TabletEntry};
use cluster::metadata::restoration;
use cluster::records::{CopiedRecords, Revision};
use db::config::{MetadataPlace, parse_metadata_place};
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::etcd::Etcd;
use tests::package::install_source;
use tests::patience::{answered, comes};
use tests::raw::PATIENCE;
use tests::server::{Server, binary};

use super::recovery::{HOSTS, Known, await_recovery, balance, check, write};
use super::{await_replicas, cluster, figure, table};
use crate::cluster_durability::Tireless;

const SHIFT: &str = include_str!("../cluster_tagged/shift.rs");

/// What copies are to have of an etcd: as of which commit, and the last commit of a record of these.
fn contents(etcd: &Etcd) -> Option<(CopiedRecords, Revision)> {
    let Ok(MetadataPlace::Etcd(address)) = parse_metadata_place(&etcd.metadata()) else {
        panic!("it is an etcd")
    };
    let (mut records, mut last) = (Vec::new(), Revision(0));
    let revision = restoration::read_all(&db::etcd::Etcd::open(&address).ok()?, |some| {
        last = some.iter().map(|record| record.revision).fold(last, Revision::max);
        records.extend(some.into_iter().map(|record| (record.key, record.value)));
        Ok(())
    });
    Some((CopiedRecords { revision: revision.ok()?, made_ms: 0, records }, last))
}

/// Waits until each server's copy has the last commit that etcd has; returns what etcd has.
fn await_copies(cluster: &Cluster) -> CopiedRecords {
    comes("copies of the metadata", || {
        let (contents, last) = contents(&cluster.etcd)?;
        let mut copied = cluster.servers.iter().map(|server| figure(server, "metadata_copied"));
        copied.all(|copied| copied.is_some_and(|copied| copied >= last.0)).then_some(contents)
    })
}

/// Checks that the copy of a server that has ended is what etcd had, unless it has later changes.
fn check_copy(server: &Server, expected: &CopiedRecords) {
    let copied = CopiedRecords::read(&server.directory().join("metadata.copy")).expect("it is complete");
    let is_later = copied.revision > expected.revision;
    println!("a copy as of {:?}, etcd as of {:?}", copied.revision, expected.revision);
    assert!(is_later || copied.records == expected.records, "{copied:?}, and not {expected:?}");
}

/// Restores the metadata from the copies of all servers; what the command said, and whether it worked.
fn restore(cluster: &Cluster) -> (bool, String) {
    let copies = cluster.servers.iter().map(|server| server.directory().join("metadata.copy"));
    let mut command = Command::new(binary("splinter-server"));
    command.args(["--metadata", &cluster.etcd.metadata(), "--restore-metadata"]).args(copies);
    let output = command.output().expect("the command runs");
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Starts all servers, with the etcd that the cluster has now.
fn restart_all(cluster: &mut Cluster) {
    let metadata = cluster.etcd.metadata();
    thread::scope(|scope| {
        for server in &mut cluster.servers {
            server.settings.metadata.clone_from(&metadata);
            scope.spawn(|| server.restart());
        }
    });
}

#[test]
fn a_cluster_goes_on_over_a_new_etcd_with_everything_that_it_had() {
    let mut random = rng();
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let (tenant, table) = table(&cluster, Durability::Synced);
    let (mut user, mut known) = (Tireless::new(&cluster, &tenant, table), Known::new());
    write(&mut user, &mut random, &mut known, 1_000);
    install_source(&mut cluster.servers[0].client(&tenant), "shift", SHIFT).expect("an extension");
    let other = cluster.servers[1].tenant("other");
    let expected = await_copies(&cluster);

    cluster.etcd = Etcd::start();
    // What is written while etcd is away counts as well, as long as the leases last.
    write(&mut user, &mut random, &mut known, 20);
    let (is_restored, said) = restore(&cluster);
    assert!(!is_restored && said.contains("another server has"), "servers have their copies: {said}");
    cluster.servers.iter_mut().for_each(Server::kill);
    cluster.servers.iter().for_each(|server| check_copy(server, &expected));
    let mut early = Command::new(binary("splinter-server"));
    early.args(["--listen", "127.0.0.1:0", "--memory", "64MiB", "--segment", "1MiB"]);
    early.args(["--metadata", &cluster.etcd.metadata(), "--data"]);
    let output = early.arg(cluster.servers[0].directory()).output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--restore-metadata"), "{said}");
    let (is_restored, said) = restore(&cluster);
    assert!(is_restored && said.contains("restored"), "nothing was written to the new etcd: {said}");
    let (is_restored, said) = restore(&cluster);
    assert!(!is_restored && said.contains("already"), "{said}");
    restart_all(&mut cluster);

    let mut user = Tireless::new(&cluster, &tenant, table);
    check(&mut user, &known);
    await_replicas(&cluster.servers, 2);
    // Names are taken, and numbers used once.
    let mut owner = cluster.servers[0].client(&tenant);
    let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    owner.table_create_with("data", options).expect_err("its name is taken");
    let fresh = answered("a table", || owner.table_create_with("fresh", options));
    assert!(fresh > table + 100, "{fresh} after {table}");
    assert_eq!(cluster.servers[2].client(&other).table_list().expect("an answer").len(), 0);
    for key in [b"0", b"1"] {
        owner.put(fresh, key, &5_i64.to_le_bytes()).expect("a put");
    }
    comes("the extension", || owner.invoke("shift.shift", fresh, b"0", b"1").ok());
    let found = owner.get(fresh, b"1").expect("an answer").expect("it is there");
    assert_eq!(found.value, 6_i64.to_le_bytes());
    // Deaths are noticed, and cost nothing.
    write(&mut user, &mut random, &mut known, 500);
    let numbers = cluster.numbers();
    cluster.servers[2].kill();
    await_recovery(&cluster.servers[0], numbers[2]);
    check(&mut user, &known);
}

#[test]
fn a_tablet_whose_move_ends_just_before_the_loss_has_its_objects_at_the_source_or_at_the_target() {
    let mut random = rng();
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut known = Known::new();
    for _ in 0..rounds(2, 6) {
        let mut user = Tireless::new(&cluster, &tenant, table);
        write(&mut user, &mut random, &mut known, 500);
        let tablet = comes("a tablet of the first server", || {
            let tablets = cluster.servers[0].admin().tablet_list().ok()?;
            tablets.into_iter().find(|tablet| tablet.server == numbers[0])
        });
        let hashes = tablet.first..=tablet.last;
        let mut admin = cluster.servers[0].admin();
        comes("a move", || {
            let mode = MigrationMode::PreCopy;
            admin.migration_begin("acme/data", hashes.clone(), numbers[1], mode).ok()
        });
        let deadline = Instant::now() + PATIENCE;
        let is_target = |entry: &TabletEntry| entry.first == tablet.first && entry.server == numbers[1];
        while !admin.tablet_list().expect("an answer").iter().any(is_target) {
            assert!(Instant::now() < deadline, "the move does not end");
        }
        // The source hears of the end, and most copies are not written yet.
        thread::sleep(Duration::from_millis(random.u64(10..60)));
        // To start another one takes longer than the copies are behind.
        cluster.etcd.pause(true);
        cluster.etcd = Etcd::start();
        cluster.servers.iter_mut().for_each(Server::kill);
        let (is_restored, said) = restore(&cluster);
        assert!(is_restored, "{said}");
        restart_all(&mut cluster);
        await_replicas(&cluster.servers, 2);
        let tablets = answered("the tablets", || cluster.servers[0].admin().tablet_list());
        println!("the copies have the move's end: {}", tablets.iter().any(is_target));
        check(&mut Tireless::new(&cluster, &tenant, table), &known);
        balance(&cluster.servers[0]);
    }
}
