//! Backups: what a server of a cluster acknowledges is at others too, whoever of them dies, stands still or loses its disk; and
//! they serve it when it does not return.

mod lost_etcd;
mod promises;
mod recovery;
mod written;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ClientConfig, Durability, TableOptions};
use tests::cluster::Cluster;
use tests::effort::rounds;
use tests::etcd::Etcd;
use tests::patience::{answered, comes};
use tests::server::{Server, Settings, Tenant};

use crate::cluster_durability::Tireless;

/// Servers, each on a machine with this name.
pub fn cluster(hosts: &[&str]) -> Cluster {
    cluster_with(hosts, |_| {})
}

/// The same, the last one with other settings.
fn cluster_with(hosts: &[&str], change: impl FnOnce(&mut Settings)) -> Cluster {
    let etcd = Etcd::start();
    let mut all: Vec<Settings> = hosts.iter().map(|host| settings(host, &etcd)).collect();
    change(all.last_mut().expect("a server"));
    let cluster = Cluster { servers: all.into_iter().map(Server::start_with).collect(), etcd };
    cluster.numbers();
    cluster
}

/// The settings of a server on a machine with this name.
fn settings(host: &str, etcd: &Etcd) -> Settings {
    let arguments = ["--host-label", host].map(str::to_owned).to_vec();
    let (memory, segment, metadata) = ("64MiB".into(), "1MiB".into(), etcd.metadata());
    Settings { memory, segment, metadata, arguments, ..Settings::default() }
}

/// A tenant, and its table with a tablet at each server.
fn table(cluster: &Cluster, durability: Durability) -> (Tenant, u32) {
    let tenant = cluster.servers[0].tenant("acme");
    let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
    let mut client = cluster.servers[0].client(&tenant);
    let tablets = cluster.servers.len();
    (tenant, answered("the table", || client.table_create_spread("data", options, tablets as u16)))
}

fn figure(server: &Server, name: &str) -> Option<u64> {
    let statistics = server.admin().statistics().ok()?;
    statistics.iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value)
}

/// Waits until so many other servers have the log of each of these.
pub fn await_replicas<'s>(servers: impl IntoIterator<Item = &'s Server>, replicas: u64) {
    for server in servers {
        comes("replicas of a log", || (figure(server, "log_replicas")? == replicas).then_some(()));
    }
}

#[test]
fn a_server_that_dies_is_left_out_and_taken_in_again() {
    let mut cluster = cluster(&["one", "two", "three"]);
    await_replicas(&cluster.servers, 2);
    let (tenant, table) = table(&cluster, Durability::Synced);
    for round in 0..rounds(2, 8) as u64 {
        let victim = 1 + round as usize % 2;
        cluster.servers[victim].kill();
        // Of those that are left everybody answers.
        let mut client = cluster.servers[0].client(&tenant);
        let answers =
            (0..100_u64).filter(|key| client.put(table, &key.to_le_bytes(), b"value").is_ok()).count();
        assert!(answers > 10, "{answers} of 100 keys are at servers that run");
        let left = cluster.servers.iter().enumerate().filter(|(index, _)| *index != victim);
        await_replicas(left.map(|(_, server)| server), 1);
        cluster.servers[victim].restart();
        await_replicas(&cluster.servers, 2);
    }
}

#[test]
fn all_killed_at_once_come_back_with_everything() {
    let mut cluster = cluster(&["one", "two", "three"]);
    await_replicas(&cluster.servers, 2);
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut counts = 0;
    for _ in 0..rounds(2, 8) {
        let mut user = Tireless::new(&cluster, &tenant, table);
        for key in 0..200_u64 {
            user.ask(|client, table| client.put(table, &key.to_le_bytes(), &i64::to_le_bytes(counts)));
        }
        counts += 1;
        cluster.servers.iter_mut().for_each(Server::kill);
        // Each waits for the others before it serves.
        thread::scope(|scope| {
            cluster.servers.iter_mut().for_each(|server| _ = scope.spawn(|| server.restart()));
        });
        let mut user = Tireless::new(&cluster, &tenant, table);
        for key in 0..200_u64 {
            let found = user.ask(|client, table| client.get(table, &key.to_le_bytes()));
            assert_eq!(
                found.map(|object| object.value),
                Some(i64::to_le_bytes(counts - 1).to_vec()),
                "key {key}"
            );
        }
        await_replicas(&cluster.servers, 2);
    }
}

#[test]
fn a_backup_that_has_lost_its_file_gets_everything_again() {
    let mut cluster = cluster(&["one", "two", "three"]);
    await_replicas(&cluster.servers, 2);
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut user = Tireless::new(&cluster, &tenant, table);
    for key in 0..2_000_u64 {
        user.ask(|client, table| client.put(table, &key.to_le_bytes(), &[7; 1_000]));
    }
    let file = cluster.servers[2].directory().join("replicas");
    cluster.servers[2].kill();
    let before = fs::metadata(&file).expect("it is a backup").len();
    fs::remove_file(&file).expect("it is there");
    cluster.servers[2].restart();
    await_replicas(&cluster.servers, 2);
    assert!(fs::metadata(&file).expect("it is one again").len() * 2 > before, "of both others");
}

#[test]
fn no_two_replicas_are_on_one_machine() {
    let cluster = cluster(&["one", "two", "two"]);
    await_replicas(&cluster.servers, 1);
    thread::sleep(Duration::from_millis(1_000));
    await_replicas(&cluster.servers, 1);
    assert_eq!(figure(&cluster.servers[1], "log_backups"), Some(1), "the other one shares its machine");
}

/// Nobody knows yet that this backup no longer counts, so that a recovery might begin from it alone.
#[test]
fn nothing_is_acknowledged_while_the_metadata_cannot_be_told_of_a_loss() {
    let mut cluster = cluster(&["one", "two"]);
    await_replicas(&cluster.servers, 1);
    let (tenant, table) = table(&cluster, Durability::Synced);
    let impatient = ClientConfig { call_timeout: Duration::from_secs(2), ..ClientConfig::default() };
    let address = cluster.servers[0].address().to_string();
    let mut client =
        Client::connect_with(&address, &tenant.name, &tenant.secret, impatient).expect("it is let in");
    cluster.servers[1].kill();
    let key = (0..100_u64).find(|key| client.put(table, &key.to_le_bytes(), b"before").is_ok());
    let key = key.expect("the server owns half of them").to_le_bytes();
    cluster.servers[1].restart();
    await_replicas(&cluster.servers, 1);
    cluster.etcd.pause(true);
    cluster.servers[1].kill();
    let begun = Instant::now();
    let put = client.put(table, &key, b"after");
    cluster.etcd.pause(false);
    assert!(put.is_err() && begun.elapsed() >= Duration::from_secs(1), "{put:?}");
    let mut user = Tireless::new(&cluster, &tenant, table);
    user.ask(|client, table| client.put(table, &key, b"later"));
    await_replicas(&cluster.servers[..1], 0);
}

/// All leases end with it, and all register again within a moment: whoever is the first does not take the others for gone.
#[test]
fn an_outage_of_the_metadata_that_is_longer_than_leases_costs_no_replicas() {
    let cluster = cluster(&["one", "two", "three"]);
    await_replicas(&cluster.servers, 2);
    cluster.etcd.pause(true);
    thread::sleep(Duration::from_secs(12));
    cluster.etcd.pause(false);
    let (begun, mut answers) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(8) {
        for replicas in cluster.servers.iter().filter_map(|server| figure(server, "log_replicas")) {
            assert_eq!(replicas, 2, "{} ms behind it", begun.elapsed().as_millis());
            answers += 1;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(answers > 30, "{answers} answers");
}

/// Its machine accepts connections and requests, so nobody can tell that it is gone until others have taken its place.
#[test]
fn who_stands_still_is_replaced_and_clients_go_on_at_the_others() {
    let mut cluster = cluster(&["one", "two", "three"]);
    await_replicas(&cluster.servers, 2);
    let (tenant, table) = table(&cluster, Durability::Synced);
    let mut before = cluster.servers[0].client(&tenant);
    // A call waits until the others have recovered the server; one that is older than 50 s then is told nothing of its outcome.
    let put_all = |client: &mut Client, first: u64, value: &[u8]| {
        (first..first + 50).for_each(|key| {
            comes("a put", || client.put(table, &key.to_le_bytes(), value).ok());
        });
    };
    put_all(&mut before, 0, b"first");
    // What does not fit a datagram goes over the stream.
    let large = vec![7; 100_000];
    cluster.servers[2].pause(true);
    thread::scope(|scope| {
        // One has a session with it, the other cannot open one.
        scope.spawn(|| put_all(&mut before, 0, &large));
        let mut after = cluster.servers[1].client(&tenant);
        scope.spawn(move || put_all(&mut after, 50, b"second"));
    });
    for key in 0..100_u64 {
        let object = before.get(table, &key.to_le_bytes()).expect("there is an answer");
        let value: &[u8] = if key < 50 { &large } else { b"second" };
        assert!(object.is_some_and(|object| object.value == value), "key {key}");
    }
    await_replicas(&cluster.servers[..2], 1);
    cluster.servers[2].pause(false);
    comes("its end", || (!cluster.servers[2].is_running()).then_some(()));
    cluster.servers[2].restart();
    await_replicas(&cluster.servers, 2);
}
