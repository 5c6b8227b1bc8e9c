//! Without etcd: servers serve on while all of them are there, and none that others may have replaced.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ClientConfig, Durability, TableOptions};
use tests::cluster::Cluster;
use tests::etcd::Etcd;
use tests::patience::{Stopping, answered, comes};
use tests::relay::Relay;
use tests::server::{Server, Tenant};

use super::recovery::await_recovery;
use super::{await_replicas, cluster, settings, table};
use crate::cluster_durability::Tireless;

const KEYS: u64 = 60;

/// A table in memory beside that of [`table`], with a tablet at each server too.
fn memory_table(cluster: &Cluster, tenant: &Tenant) -> u32 {
    let mut client = cluster.servers[0].client(tenant);
    let options = TableOptions { durability: Some(Durability::Memory), ..TableOptions::default() };
    let tablets = cluster.servers.len() as u16;
    answered("the table", || client.table_create_spread("volatile", options, tablets))
}

fn connect(servers: &[Server], tenant: &Tenant, call_timeout: Duration) -> Client {
    let addresses: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    let config = ClientConfig { call_timeout, ..ClientConfig::default() };
    Client::connect_with(&addresses.join(","), &tenant.name, &tenant.secret, config).expect("it is let in")
}

#[test]
fn without_etcd_all_is_served_as_long_as_every_server_is_there() {
    let mut cluster = cluster(&["one", "two", "three"]);
    await_replicas(&cluster.servers, 2);
    let (tenant, durable) = table(&cluster, Durability::Synced);
    let tables = [durable, memory_table(&cluster, &tenant)];
    // Less than nothing was served for, if it were so.
    let mut client = connect(&cluster.servers, &tenant, Duration::from_secs(4));
    let pass = |client: &mut Client, round: u64| {
        for (table, key) in tables.iter().flat_map(|table| (0..KEYS).map(move |key| (*table, key))) {
            let (key, value) = (key.to_le_bytes(), round.to_le_bytes());
            client.put(table, &key, &value).expect("it is served");
            let found = client.get(table, &key).expect("it is served");
            assert_eq!(found.map(|object| object.value), Some(value.to_vec()));
        }
    };
    pass(&mut client, 0);
    let mut round = 1;
    // The second time it is back for hardly longer than it takes all to register anew: who could not would be missed.
    for (seconds, is_away) in [(9.0, true), (7.0, false), (6.0, true), (0.8, false), (6.0, true)] {
        cluster.etcd.pause(is_away);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs_f32(seconds) {
            pass(&mut client, round);
            round += 1;
        }
    }
    pass(&mut connect(&cluster.servers, &tenant, Duration::from_secs(4)), round);
    // It might have etcd when it starts again, and take over what the others own.
    cluster.servers[2].kill();
    let mut hurried = connect(&cluster.servers[..1], &tenant, Duration::from_millis(700));
    for table in tables {
        let read_all =
            |client: &mut Client| (0..KEYS).all(|key| client.get(table, &key.to_le_bytes()).is_ok());
        comes("that nothing is served", || {
            (0..KEYS).all(|_| hurried.get(table, b"any").is_err()).then_some(())
        });
        assert!(!read_all(&mut hurried));
    }
    cluster.etcd.pause(false);
    let mut user = Tireless::new(&cluster, &tenant, durable);
    for key in 0..KEYS {
        let found = user.ask(|client, table| client.get(table, &key.to_le_bytes()));
        assert_eq!(found.map(|object| object.value), Some(round.to_le_bytes().to_vec()), "key {key}");
    }
    await_replicas(&cluster.servers[..2], 1);
}

/// It reaches the others, and clients reach it: it has to know by itself when to stop.
#[test]
fn who_alone_is_cut_off_from_etcd_shows_nothing_that_is_older_than_what_others_serve() {
    let etcd = Etcd::start();
    let relay = Relay::to(etcd.port());
    let mut all = ["one", "two", "three"].map(|host| settings(host, &etcd));
    all[2].metadata = etcd.metadata().replace(&etcd.port().to_string(), &relay.port().to_string());
    let mut cluster = Cluster { servers: all.into_iter().map(Server::start_with).collect(), etcd };
    let numbers = cluster.numbers();
    await_replicas(&cluster.servers, 2);
    let (tenant, durable) = table(&cluster, Durability::Synced);
    let tables = [durable, memory_table(&cluster, &tenant)];
    let (over, acknowledged) = (AtomicBool::new(false), [(); 2].map(|()| AtomicU64::new(0)));
    thread::scope(|scope| {
        let _stopping = Stopping(&over);
        for (table, acknowledged) in tables.into_iter().zip(&acknowledged) {
            let tablets = answered("the tablets", || cluster.servers[0].admin().tablet_list());
            let is_there = |key: &u64| {
                let hash = store::hash(&key.to_le_bytes());
                let holds =
                    |it: &&client::TabletEntry| it.id == table && (it.first..=it.last).contains(&hash);
                tablets.iter().find(holds).is_some_and(|tablet| tablet.server == numbers[2])
            };
            let key = (0..1_000_u64).find(is_there).expect("it owns a third").to_le_bytes();
            let (over, cluster, tenant) = (&over, &cluster, &tenant);
            let mut writer = Tireless::new(cluster, tenant, table);
            scope.spawn(move || {
                for value in 1_u64.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    writer.ask(|client, table| client.put(table, &key, &value.to_le_bytes()));
                    acknowledged.store(value, Ordering::SeqCst);
                }
            });
            let mut reader = connect(&cluster.servers[2..], tenant, Duration::from_millis(300));
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let least = acknowledged.load(Ordering::SeqCst);
                    // A table in memory is empty when others take it over.
                    let Ok(Some(found)) = reader.get(table, &key) else { continue };
                    let value = u64::from_le_bytes(found.value.try_into().expect("eight bytes"));
                    assert!(value >= least, "{value} after {least}");
                }
            });
        }
        thread::sleep(Duration::from_millis(500));
        relay.cut(true);
        await_recovery(&cluster.servers[0], numbers[2]);
        thread::sleep(Duration::from_secs(2));
        relay.cut(false);
        thread::sleep(Duration::from_secs(1));
    });
    comes("its end", || (!cluster.servers[2].is_running()).then_some(()));
}
