//! Durable tables of a cluster: a server that returns owns what it owned with its objects, and moves lose nothing though
//! either side is killed in the middle.

mod failed_disk;
mod starting;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use client::{
    Client, ClientConfig, Durability, KeyRange, MigrationMode, Owners, RequestDurability, Status,
    TableOptions,
};
use fastrand::Rng;
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::package::install_source;
use tests::patience::{answered, comes};
use tests::server::{Server, Settings, Tenant, patient};

const HALF: u64 = 1 << 63;
const READS: &str = include_str!("cluster_reads/reads.rs");

/// A client that comes back to the cluster whatever happens to its servers.
pub struct Tireless {
    servers: String,
    tenant: Tenant,
    client: Option<Client>,
    table: u32,
}

impl Tireless {
    pub fn new(cluster: &Cluster, tenant: &Tenant, table: u32) -> Self {
        let addresses: Vec<_> = cluster.servers.iter().map(|server| server.address().to_string()).collect();
        Self { servers: addresses.join(","), tenant: tenant.clone(), client: None, table }
    }

    /// Repeats what may be done twice until it is answered.
    pub fn ask<T>(&mut self, mut ask: impl FnMut(&mut Client, u32) -> Result<T, client::Error>) -> T {
        comes("an answer of the cluster", || {
            if self.client.is_none() {
                let Tenant { name, secret } = &self.tenant;
                self.client = Client::connect_with(&self.servers, name, secret, ClientConfig::default()).ok();
            }
            let answer = ask(self.client.as_mut()?, self.table);
            if answer.is_err() {
                self.client = None;
            }
            answer.ok()
        })
    }

    fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        self.ask(|client, table| client.get(table, &key.to_le_bytes())).map(|object| object.value)
    }

    fn put(&mut self, key: u64, value: &[u8]) {
        self.ask(|client, table| client.put(table, &key.to_le_bytes(), value));
    }

    fn delete(&mut self, key: u64) {
        self.ask(|client, table| client.delete(table, &key.to_le_bytes()));
    }
}

/// Two servers, a tenant, and its synced table of two tablets, one at each.
fn cluster(ordered: bool) -> (Cluster, Tenant, u32) {
    let (cluster, tenant) = servers(&[]);
    let mut client = cluster.servers[0].client(&tenant);
    let options = TableOptions { ordered, durability: Some(Durability::Synced), ..TableOptions::default() };
    let table = answered("the table", || client.table_create_spread("data", options, 2));
    (cluster, tenant, table)
}

/// Two servers with these arguments, and a tenant.
fn servers(arguments: &[&str]) -> (Cluster, Tenant) {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let (memory, segment) = ("64MiB".into(), "1MiB".into());
    let cluster = Cluster::start(2, &Settings { memory, segment, arguments, ..Settings::default() });
    cluster.numbers();
    let tenant = cluster.servers[0].tenant("acme");
    (cluster, tenant)
}

/// The number of the server that owns a hash.
fn owner(server: &Server, hash: u64) -> u32 {
    let tablets = answered("the tablets", || server.admin().tablet_list());
    tablets.iter().find(|tablet| (tablet.first..=tablet.last).contains(&hash)).expect("an owner").server
}

/// Moves the upper half to a server, if it is elsewhere, and waits for the end.
fn move_upper_half(cluster: &Cluster, to: u32) {
    begin(cluster, HALF, to);
    wait_for_moves(cluster);
    assert_eq!(owner(&cluster.servers[0], u64::MAX), to);
}

/// Begins to move the hashes from one on to a server.
fn begin(cluster: &Cluster, first: u64, to: u32) {
    let begun = comes("a migration", || {
        let mut admin = cluster.servers[0].admin();
        admin.migration_begin("acme/data", first..=u64::MAX, to, MigrationMode::Rocksteady).ok()
    });
    assert_eq!(begun.mode, MigrationMode::PreCopy, "what is on the disk is copied");
}

fn wait_for_moves(cluster: &Cluster) {
    comes("the end of all migrations", || {
        cluster.servers[0].admin().migration_list().ok()?.is_empty().then_some(())
    });
}

fn check(user: &mut Tireless, model: &BTreeMap<u64, Vec<u8>>, keys: u64) {
    for key in 0..keys {
        assert_eq!(user.get(key), model.get(&key).cloned(), "key {key}");
    }
}

fn assert_nothing_was_lost(server: &Server) {
    let log = server.log();
    assert!(!log.contains("objects of this server's tablets are lost"), "{log}");
    let tablets = answered("the tablets", || server.admin().tablet_list());
    assert!(tablets.iter().all(|tablet| tablet.emptied_ms == 0), "{tablets:?}");
}

/// Puts, overwrites and deletes some keys.
fn change(user: &mut Tireless, model: &mut BTreeMap<u64, Vec<u8>>, random: &mut Rng, keys: u64) {
    for _ in 0..keys {
        let key = random.u64(0..keys);
        if random.u8(0..4) == 0 {
            user.delete(key);
            model.remove(&key);
        } else {
            let value = vec![random.u8(..); random.usize(1..400)];
            user.put(key, &value);
            model.insert(key, value);
        }
    }
}

#[test]
fn a_server_that_returns_owns_what_it_owned_with_its_objects() {
    for ordered in [false, true] {
        let (mut cluster, tenant, table) = cluster(ordered);
        let (mut user, mut model, mut random) =
            (Tireless::new(&cluster, &tenant, table), BTreeMap::new(), rng());
        change(&mut user, &mut model, &mut random, 800);
        let owners = [0, u64::MAX].map(|hash| owner(&cluster.servers[0], hash));
        assert_ne!(owners[0], owners[1]);
        for _ in 0..2 {
            for index in 0..2 {
                cluster.servers[index].kill();
                cluster.servers[index].restart();
            }
            check(&mut user, &model, 800);
            change(&mut user, &mut model, &mut random, 100);
        }
        assert_eq!([0, u64::MAX].map(|hash| owner(&cluster.servers[0], hash)), owners);
        cluster.servers.iter().for_each(assert_nothing_was_lost);
        if ordered {
            let found = user.ask(|client, table| client.scan(table, KeyRange::default(), usize::MAX));
            assert_eq!(found.len(), model.len(), "the trees have what the indexes have");
        }
    }
}

#[test]
fn hashes_that_left_and_returned_bring_back_nothing_of_what_was_there_before() {
    let (mut cluster, tenant, table) = cluster(false);
    let (mut user, mut model, mut random) = (Tireless::new(&cluster, &tenant, table), BTreeMap::new(), rng());
    change(&mut user, &mut model, &mut random, 600);
    let home = owner(&cluster.servers[0], u64::MAX);
    let away = owner(&cluster.servers[0], 0);
    for round in 0..rounds(2, 8) {
        for to in [away, home] {
            move_upper_half(&cluster, to);
            change(&mut user, &mut model, &mut random, 300);
            if round % 2 == 0 {
                // Both have parts that they gave away.
                for index in 0..2 {
                    cluster.servers[index].kill();
                    cluster.servers[index].restart();
                }
            }
            check(&mut user, &model, 600);
        }
    }
    cluster.servers.iter().for_each(assert_nothing_was_lost);
    user.ask(|client, _| client.table_drop("data"));
    for index in 0..2 {
        cluster.servers[index].kill();
        cluster.servers[index].restart();
    }
    let options = TableOptions { durability: Some(Durability::Synced), ..TableOptions::default() };
    user.table = user.ask(|client, _| client.table_create_spread("data", options, 2));
    check(&mut user, &BTreeMap::new(), 600);
}

#[test]
fn a_move_loses_nothing_though_either_side_is_killed_at_any_moment() {
    const KEYS: u64 = 400;
    let (mut cluster, tenant, table) = cluster(false);
    let mut random = rng();
    for key in 0..KEYS {
        Tireless::new(&cluster, &tenant, table).put(key, &0_u64.to_le_bytes());
    }
    let over = AtomicBool::new(false);
    let mut users = [0, 1].map(|_| Tireless::new(&cluster, &tenant, table));
    thread::scope(|scope| {
        let writers: Vec<_> = (0..)
            .zip(&mut users)
            .map(|(own, user)| {
                let (over, mut random) = (&over, random.fork());
                scope.spawn(move || {
                    let mut last = BTreeMap::new();
                    for number in 1_u64.. {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        let key = random.u64(0..KEYS / 2) * 2 + own;
                        let found = user.get(key).expect("it is never deleted");
                        let expected = last.get(&key).copied().unwrap_or(0_u64);
                        assert_eq!(found, expected.to_le_bytes(), "key {key}");
                        user.put(key, &number.to_le_bytes());
                        last.insert(key, number);
                    }
                    last
                })
            })
            .collect();
        let (mut moved, mut stayed) = (0, 0);
        for _ in 0..rounds(4, 30) {
            let numbers = cluster.numbers();
            let from = owner(&cluster.servers[0], u64::MAX);
            let to = *numbers.iter().find(|number| **number != from).expect("two servers");
            begin(&cluster, HALF, to);
            thread::sleep(Duration::from_micros(random.u64(0..400_000)));
            let who = random.u8(0..3);
            for (index, number) in numbers.iter().enumerate() {
                if who == 2 || (who == 0) == (*number == from) {
                    cluster.servers[index].kill();
                    cluster.servers[index].restart();
                }
            }
            wait_for_moves(&cluster);
            let now = owner(&cluster.servers[0], u64::MAX);
            (moved, stayed) = if now == to { (moved + 1, stayed) } else { (moved, stayed + 1) };
        }
        println!("{moved} moved, {stayed} stayed");
        over.store(true, Ordering::Relaxed);
        for writer in writers {
            let last = writer.join().expect("every answer is right");
            assert!(!last.is_empty());
            let mut user = Tireless::new(&cluster, &tenant, table);
            for (key, number) in last {
                assert_eq!(user.get(key), Some(number.to_le_bytes().to_vec()), "key {key}");
            }
        }
    });
    cluster.servers.iter().for_each(assert_nothing_was_lost);
}

#[test]
fn each_increment_of_a_client_that_lives_is_done_once_though_servers_are_killed() {
    const KEYS: u64 = 24;
    let (mut cluster, tenant, table) = cluster(false);
    let (is_over, mut random) = (AtomicBool::new(false), rng());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|own: u64| {
                let (is_over, tenant, mut random) = (&is_over, &tenant, random.fork());
                let address = cluster.servers[own as usize % 2].address().to_string();
                scope.spawn(move || {
                    let client = Client::connect_with(&address, &tenant.name, &tenant.secret, patient());
                    let (mut client, mut counts) = (client.expect("it is let in"), BTreeMap::new());
                    while !is_over.load(Ordering::Relaxed) {
                        let key = own * KEYS + random.u64(0..KEYS);
                        let count = counts.entry(key).or_insert(0);
                        *count += 1;
                        let (found, _) =
                            client.increment(table, &key.to_le_bytes(), 1).expect("it is resumed");
                        assert_eq!(found, *count, "key {key}");
                    }
                    let statistics = client.session().statistics();
                    (counts, statistics.resumed)
                })
            })
            .collect();
        for _ in 0..rounds(5, 40) {
            thread::sleep(Duration::from_micros(random.u64(100_000..700_000)));
            let victim = random.usize(0..2);
            cluster.servers[victim].kill();
            cluster.servers[victim].restart();
        }
        is_over.store(true, Ordering::Relaxed);
        let mut user = Tireless::new(&cluster, &tenant, table);
        let mut all_resumed = 0;
        for worker in workers {
            let (counts, resumed) = worker.join().expect("every increment is answered");
            println!("{} increments, resumed {resumed} times", counts.values().sum::<i64>());
            all_resumed += resumed;
            for (key, count) in counts {
                assert_eq!(user.get(key), Some(count.to_le_bytes().to_vec()), "key {key}");
            }
        }
        assert!(all_resumed > 0, "no session was under way when its server died");
    });
    cluster.servers.iter().for_each(assert_nothing_was_lost);
}

/// What a function at the server of one half is told of the other half survives the other server's crash: of a synced
/// table always, of a written one if the call asked for that.
#[test]
fn what_a_function_has_read_at_another_server_is_as_durable_there_as_the_call_asked() {
    let (mut cluster, tenant) = servers(&["--flush-interval", "10000"]);
    let mut client = cluster.servers[0].client(&tenant);
    let tables = [Durability::Written, Durability::Synced].map(|durability| {
        let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
        answered("the table", || client.table_create_spread(durability.name(), options, 2))
    });
    install_source(&mut client, "reads", READS).expect("an extension");
    let lower = |key: &u64| store::hash(&key.to_le_bytes()) < HALF;
    let here = (0..).find(lower).expect("a key").to_le_bytes();
    let mut there = (0..).filter(|key| !lower(key)).map(u64::to_le_bytes);
    let mut next = || there.next().expect("a key");
    let [written, synced] = tables;
    let other = owner(&cluster.servers[0], u64::MAX);
    let index = cluster.numbers().iter().position(|&number| number == other).expect("a server");

    let [asked, not_asked, by_table] = [next(), next(), next()];
    for (table, key, durability) in [
        (written, asked, RequestDurability::Synced),
        // Its put waits for nothing, so that the read has to.
        (synced, by_table, RequestDurability::OfTable),
        (written, not_asked, RequestDurability::OfTable),
    ] {
        client.session().set_durability(RequestDurability::Written);
        client.put(table, &key, b"value").expect("a put");
        client.session().set_durability(durability);
        let read = comes("a server that has heard of the extension", || {
            match client.invoke("reads.one", table, &here, &key) {
                Err(error) if error.status() == Some(Status::UnknownExtension) => None,
                // Nobody could say in half a second: a loaded machine.
                Ok(answer) if answer == [3] => None,
                answer => Some(answer.expect("an answer")),
            }
        });
        assert!(read[0] == 1 && read.ends_with(b"value"), "{read:?}");
    }
    cluster.servers[index].kill();
    cluster.servers[index].restart();
    let found = |table: u32, key: [u8; 8]| {
        Tireless::new(&cluster, &tenant, table).ask(|client, table| client.get(table, &key)).is_some()
    };
    assert!(found(written, asked) && found(synced, by_table), "they were told");
    assert!(!found(written, not_asked), "nothing waited for it");
}

/// The connection's server is the owner of the lower half alone.
#[test]
fn what_another_server_answered_before_a_table_became_synced_is_there_after_a_crash() {
    let (mut cluster, tenant) = servers(&["--flush-interval", "10000"]);
    let mut client = cluster.servers[0].client(&tenant);
    let written = TableOptions { durability: Some(Durability::Written), ..TableOptions::default() };
    let table = answered("the table", || client.table_create_spread("data", written, 2));
    let mut user = Tireless::new(&cluster, &tenant, table);
    let model: BTreeMap<u64, Vec<u8>> = (0..200).map(|key| (key, vec![key as u8; 100])).collect();
    model.iter().for_each(|(key, value)| user.put(*key, value));
    Owners::of(client).table_alter("data", Durability::Synced).expect("both servers answer");
    cluster.servers.iter_mut().for_each(Server::kill);
    cluster.servers.iter_mut().for_each(Server::restart);
    check(&mut Tireless::new(&cluster, &tenant, table), &model, 200);
}
