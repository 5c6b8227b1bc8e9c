//! Written tables: what is acknowledged is in the memory of as many other servers as the log has replicas, and outlives its own.

use std::thread;

use client::Durability;
use fastrand::Rng;
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::etcd::Etcd;
use tests::server::Server;

use super::recovery::{HOSTS, Known, await_recovery, check, write};
use super::{await_replicas, settings, table};
use crate::cluster_durability::Tireless;

/// Servers that leave their disks alone for so long that these have nothing of what a test writes.
fn cluster_without_flushes(hosts: &[&str]) -> Cluster {
    let etcd = Etcd::start();
    let of = |host: &&str| {
        let mut settings = settings(host, &etcd);
        settings.arguments.extend(["--flush-interval", "1000"].map(str::to_owned));
        Server::start_with(settings)
    };
    let servers = hosts.iter().map(of).collect();
    let cluster = Cluster { servers, etcd };
    cluster.numbers();
    await_replicas(&cluster.servers, 2);
    cluster
}

/// Writes, and kills one of the later servers as soon as the last answer is there.
fn write_and_kill(
    cluster: &mut Cluster,
    (user, random, known): (&mut Tireless, &mut Rng, &mut Known),
) -> usize {
    write(user, random, known, 400);
    let victim = random.usize(1..cluster.servers.len());
    cluster.servers[victim].kill();
    victim
}

#[test]
fn what_others_have_received_outlives_a_server_that_is_killed() {
    let (mut random, mut known) = (rng(), Known::new());
    let mut cluster = cluster_without_flushes(&HOSTS);
    let numbers = cluster.numbers();
    let (tenant, table) = table(&cluster, Durability::Written);
    for _ in 0..rounds(3, 8) {
        let mut user = Tireless::new(&cluster, &tenant, table);
        let victim = write_and_kill(&mut cluster, (&mut user, &mut random, &mut known));
        await_recovery(&cluster.servers[0], numbers[victim]);
        check(&mut user, &known);
        cluster.servers[victim].restart();
        await_replicas(&cluster.servers, 2);
        super::recovery::balance(&cluster.servers[0]);
    }
}

#[test]
fn a_killed_server_that_returns_at_once_does_not_forget_what_others_have_received() {
    let (mut random, mut known) = (rng(), Known::new());
    let mut cluster = cluster_without_flushes(&HOSTS);
    let (tenant, table) = table(&cluster, Durability::Written);
    for _ in 0..rounds(2, 6) {
        let mut user = Tireless::new(&cluster, &tenant, table);
        let victim = write_and_kill(&mut cluster, (&mut user, &mut random, &mut known));
        cluster.servers[victim].restart();
        check(&mut Tireless::new(&cluster, &tenant, table), &known);
        await_replicas(&cluster.servers, 2);
        super::recovery::balance(&cluster.servers[0]);
    }
}

/// Each of them may find that the last one has received more than its disk has, and waits for a recovery, which needs the replicas of
/// others that wait as well.
#[test]
fn all_but_one_that_are_killed_together_return() {
    let (mut random, mut known) = (rng(), Known::new());
    let mut cluster = cluster_without_flushes(&["one", "two", "three", "four"]);
    let (tenant, table) = table(&cluster, Durability::Written);
    for _ in 0..rounds(1, 4) {
        write(&mut Tireless::new(&cluster, &tenant, table), &mut random, &mut known, 400);
        let killed = &mut cluster.servers[1..];
        killed.iter_mut().for_each(Server::kill);
        thread::scope(|scope| killed.iter_mut().for_each(|server| _ = scope.spawn(|| server.restart())));
        await_replicas(&cluster.servers, 2);
        // More have died than had it: what was written just before may be gone.
        known = Known::new();
        let mut user = Tireless::new(&cluster, &tenant, table);
        write(&mut user, &mut random, &mut known, 400);
        check(&mut user, &known);
        super::recovery::balance(&cluster.servers[0]);
    }
}
