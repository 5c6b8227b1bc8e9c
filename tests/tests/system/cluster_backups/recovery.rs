//! Recoveries: what a server had that is gone is served by others, from the replicas of its log.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use client::{Client, Durability, PlanProgress, TableOptions};
use fastrand::Rng;
use tests::effort::{rng, rounds};
use tests::failing_disk::FailingDisk;
use tests::patience::{Stopping, answered, comes};
use tests::server::{Server, patient};

use super::{await_replicas, cluster, cluster_with, figure, table};
use crate::cluster_durability::Tireless;

pub const HOSTS: [&str; 3] = ["one", "two", "three"];
const KEYS: u64 = 3_000;

/// What a client knows of the objects; `None` of those that it deleted.
pub type Known = BTreeMap<u64, Option<u64>>;

pub fn write(user: &mut Tireless, random: &mut Rng, known: &mut Known, count: usize) {
    for _ in 0..count {
        let (key, value) = (random.u64(0..KEYS), random.u64(..));
        if random.u32(0..5) == 0 {
            user.ask(|client, table| client.delete(table, &key.to_le_bytes()));
            known.insert(key, None);
        } else {
            let bytes = [&value.to_le_bytes()[..], &[7; 100]].concat();
            user.ask(|client, table| client.put(table, &key.to_le_bytes(), &bytes));
            known.insert(key, Some(value));
        }
    }
}

pub fn check(user: &mut Tireless, known: &Known) {
    for (key, value) in known {
        let found = user.ask(|client, table| client.get(table, &key.to_le_bytes()));
        let found =
            found.map(|object| u64::from_le_bytes(object.value[..8].try_into().expect("eight bytes")));
        assert_eq!(found, *value, "key {key}");
    }
}

/// Returns whether a server owns anything; `None` without an answer.
fn owns(asked: &Server, server: u32) -> Option<bool> {
    Some(asked.admin().tablet_list().ok()?.iter().any(|tablet| tablet.server == server))
}

/// Waits until a server owns nothing any more, and nothing moves.
pub fn await_recovery(asked: &Server, lost: u32) {
    comes("the recovery of a server", || {
        let is_over = !owns(asked, lost)? && asked.admin().migration_list().ok()?.is_empty();
        is_over.then_some(())
    });
}

#[test]
fn what_a_server_had_that_dies_is_served_by_the_others() {
    let mut random = rng();
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut known = Known::new();
    for round in 0..rounds(3, 8) {
        let mut user = Tireless::new(&cluster, &tenant, table);
        write(&mut user, &mut random, &mut known, 2_000);
        let victim = 1 + round % 2;
        cluster.servers[victim].kill();
        await_recovery(&cluster.servers[0], numbers[victim]);
        check(&mut user, &known);
        write(&mut user, &mut random, &mut known, 500);
        // It returns, and has nothing of before.
        cluster.servers[victim].restart();
        await_replicas(&cluster.servers, 2);
        check(&mut Tireless::new(&cluster, &tenant, table), &known);
        balance(&cluster.servers[0]);
        check(&mut user, &known);
    }
}

/// Lets the servers own about the same again.
pub fn balance(asked: &Server) {
    let plan = comes("a plan", || asked.admin().cluster_balance().ok());
    comes("its end", || {
        let plans = asked.admin().cluster_status().ok()?.plans;
        let progress = plans.iter().find(|entry| entry.id == plan.id)?.progress;
        (progress != PlanProgress::Running).then_some(())
    });
}

/// What had no answer when its server died gets that of its execution from those who have recovered its log, or is executed by the
/// new owner.
#[test]
fn each_increment_is_done_once_though_others_recover_its_server() {
    const KEYS: u64 = 24;
    let mut random = rng();
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Synced);
    let is_over = AtomicBool::new(false);
    let cluster = &mut cluster;
    thread::scope(|scope| {
        let stopping = Stopping(&is_over);
        let workers: Vec<_> = (0..3)
            .map(|own: u64| {
                let (is_over, tenant, mut random) = (&is_over, &tenant, random.fork());
                let address = cluster.servers[0].address().to_string();
                scope.spawn(move || {
                    let client = Client::connect_with(&address, &tenant.name, &tenant.secret, patient());
                    let (mut client, mut counts) = (client.expect("it is let in"), BTreeMap::new());
                    while !is_over.load(Ordering::Relaxed) {
                        let key = own * KEYS + random.u64(0..KEYS);
                        let count = counts.entry(key).or_insert(0);
                        match client.increment(table, &key.to_le_bytes(), 1) {
                            Ok((found, _)) => {
                                *count += 1;
                                assert_eq!(found, *count, "key {key}");
                            }
                            // Nobody owns the key yet that is there.
                            Err(error) => assert!(!error.outcome_is_unknown(), "key {key}: {error}"),
                        }
                    }
                    counts
                })
            })
            .collect();
        for round in 0..rounds(3, 10) {
            thread::sleep(Duration::from_millis(random.u64(200..1_000)));
            let victim = 1 + round % 2;
            cluster.servers[victim].kill();
            await_recovery(&cluster.servers[0], numbers[victim]);
            // Once it writes its log again the others answer for it no more.
            thread::sleep(Duration::from_millis(500));
            cluster.servers[victim].restart();
            await_replicas(&cluster.servers, 2);
            balance(&cluster.servers[0]);
        }
        drop(stopping);
        let mut user = Tireless::new(cluster, &tenant, table);
        for worker in workers {
            for (key, count) in worker.join().expect("each increment has a known outcome") {
                let found = user.ask(|client, table| client.get(table, &key.to_le_bytes()));
                let value = found.map(|object| object.value);
                assert_eq!(value, (count > 0).then(|| i64::to_le_bytes(count).to_vec()), "key {key}");
            }
        }
    });
}

#[test]
fn a_disk_that_is_lost_with_its_server_loses_nothing() {
    let mut random = rng();
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let (tenant, table) = table(&cluster, Durability::Synced);
    let (mut user, mut known) = (Tireless::new(&cluster, &tenant, table), Known::new());
    write(&mut user, &mut random, &mut known, 3_000);
    cluster.servers[2].kill();
    let directory = cluster.servers[2].directory().to_owned();
    for name in ["log", "replicas", "parts.redb"] {
        fs::remove_file(directory.join(name)).expect("it was there");
    }
    // It waits until others have what it had.
    cluster.servers[2].restart();
    check(&mut Tireless::new(&cluster, &tenant, table), &known);
    await_replicas(&cluster.servers, 2);
}

#[test]
fn who_was_taken_for_dead_acknowledges_nothing_and_ends() {
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut old = cluster.servers[2].client(&tenant);
    let key = (0..1_000_u64).find(|key| old.put(table, &key.to_le_bytes(), b"before").is_ok());
    let key = key.expect("somebody owns it").to_le_bytes();
    cluster.servers[2].pause(true);
    await_recovery(&cluster.servers[0], numbers[2]);
    let mut user = Tireless::new(&cluster, &tenant, table);
    user.ask(|client, table| client.put(table, &key, b"after"));
    cluster.servers[2].pause(false);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stopping = Stopping(&over);
        scope.spawn(|| {
            let mut client = cluster.servers[0].client(&tenant);
            while !over.load(Ordering::Relaxed) {
                if let Ok(Some(found)) = client.get(table, &key) {
                    assert_eq!(found.value, b"after");
                }
            }
        });
        if let Ok(Some(found)) = old.get(table, &key) {
            assert_eq!(found.value, b"after", "from who owns it now");
        }
    });
    comes("the end of the zombie", || (!cluster.servers[2].is_running()).then_some(()));
    cluster.servers[2].restart();
    await_replicas(&cluster.servers, 2);
    assert_eq!(figure(&cluster.servers[2], "log_replicas"), Some(2));
}

#[test]
fn a_server_that_is_stopped_for_a_while_owns_afterwards_what_it_owned() {
    let mut random = rng();
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut known = Known::new();
    write(&mut Tireless::new(&cluster, &tenant, table), &mut random, &mut known, 1_000);
    assert!(cluster.servers[2].stop().success());
    // Longer than it takes until one that dies is recovered.
    thread::sleep(Duration::from_secs(12));
    assert_eq!(owns(&cluster.servers[0], numbers[2]), Some(true));
    cluster.servers[2].restart();
    check(&mut Tireless::new(&cluster, &tenant, table), &known);
    assert_eq!(owns(&cluster.servers[0], numbers[2]), Some(true));
    await_replicas(&cluster.servers, 2);
}

#[test]
fn a_server_whose_disk_fails_ends_and_is_recovered() {
    let mut random = rng();
    let disk = FailingDisk::new();
    let mut cluster = cluster_with(&HOSTS, |settings| {
        settings.arguments.extend(["--disk-io", "system-calls"].map(str::to_owned));
        settings.wrapper = disk.wrapper();
    });
    await_replicas(&cluster.servers, 2);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Synced);
    let (mut known, mut user) = (Known::new(), Tireless::new(&cluster, &tenant, table));
    write(&mut user, &mut random, &mut known, 1_000);
    disk.fail();
    // Those that it refuses wait for the others.
    write(&mut user, &mut random, &mut known, 100);
    comes("its end", || (!cluster.servers[2].is_running()).then_some(()));
    await_recovery(&cluster.servers[0], numbers[2]);
    check(&mut user, &known);
    // With a disk that works it is one of them again.
    disk.work();
    cluster.servers[2].restart();
    await_replicas(&cluster.servers, 2);
    check(&mut user, &known);
}

/// All that it uses is at the server with which it has its session.
#[test]
fn a_client_that_was_given_several_servers_goes_on_without_the_first_one() {
    let mut cluster = cluster(&HOSTS);
    await_replicas(&cluster.servers, 2);
    let tenant = cluster.servers[0].tenant("acme");
    let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    let mut creator = cluster.servers[2].client(&tenant);
    let table = answered("the table", || creator.table_create_with("data", options));
    let numbers = cluster.numbers();
    let owner = (0..3)
        .find(|index| owns(&cluster.servers[0], numbers[*index]) == Some(true))
        .expect("somebody owns it");
    let addresses = [owner, (owner + 1) % 3, (owner + 2) % 3].map(|index| cluster.servers[index].address());
    let addresses = addresses.map(|address| address.to_string()).join(",");
    let connect = || Client::connect_with(&addresses, &tenant.name, &tenant.secret, patient());
    let mut client = answered("the tenant is let in", connect);
    for round in 0..20_u8 {
        client.put(table, &[round], &[round]).expect("it is put");
        if round == 10 {
            cluster.servers[owner].kill();
        }
    }
    client.put(table, b"large", &vec![7; 100_000]).expect("it is put");
    for round in 0..20_u8 {
        let found = client.get(table, &[round]).expect("there is an answer").expect("it was put");
        assert_eq!(found.value, [round]);
    }
}

#[test]
fn what_too_many_replicas_are_lost_of_can_be_given_up() {
    let mut cluster = cluster(&HOSTS[..2]);
    await_replicas(&cluster.servers, 1);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut user = Tireless::new(&cluster, &tenant, table);
    (0..100_u64)
        .for_each(|key| _ = user.ask(|client, table| client.put(table, &key.to_le_bytes(), b"value")));
    // The other way round, the second one could record that the first one does not count any more.
    cluster.servers.iter_mut().rev().for_each(Server::kill);
    fs::remove_file(cluster.servers[0].directory().join("replicas")).expect("it is there");
    cluster.servers[0].restart();
    // What there is of it is nowhere but on the disk of who is off.
    let adopted = comes("it is gone", || cluster.servers[0].admin().cluster_adopt(numbers[1]).ok());
    assert_eq!((adopted.tablets, adopted.remaining), (0, true));
    assert_eq!(owns(&cluster.servers[0], numbers[1]), Some(true));
    comes("the last tablet", || {
        let adopted = cluster.servers[0].admin().cluster_give_up(numbers[1]).ok()?;
        (!adopted.remaining).then_some(())
    });
    assert_eq!(owns(&cluster.servers[0], numbers[1]), Some(false));
    let found =
        (0..100_u64).filter(|key| user.ask(|client, table| client.get(table, &key.to_le_bytes())).is_some());
    assert!((1..100).contains(&found.count()), "its own are there, the others empty");
    user.ask(|client, table| client.put(table, &0_u64.to_le_bytes(), b"later"));
}
