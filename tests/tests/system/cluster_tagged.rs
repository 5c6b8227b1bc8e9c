//! Tagged tables of a cluster: functions find all keys of a tag on their server, whatever moves and whoever dies, and what
//! would part them is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use client::{
    Client, Cursor, Durability, KeyRange, MigrationMode, PageSize, Status, TableOptions, TabletEntry,
};
use fastrand::Rng;
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::package::install_source;
use tests::patience::{answered, comes};
use tests::server::{Server, Settings, Tenant, patient};

use crate::cluster_durability::Tireless;

const SHIFT: &str = include_str!("cluster_tagged/shift.rs");
const TAGS: u64 = 40;
/// Keys of each tag.
const KEYS: u64 = 10;

fn key(tag: u64, number: u64) -> Vec<u8> {
    format!("user:{{{tag}}}:{number}").into_bytes()
}

/// What `sum` takes: the beginning of all keys of a tag.
fn beginning(tag: u64) -> Vec<u8> {
    format!("user:{{{tag}}}:").into_bytes()
}

/// Two servers, a tenant, its tagged table, and the extension.
fn cluster(ordered: bool, durability: Durability, tablets: Option<u16>) -> (Cluster, Tenant, u32) {
    let (memory, segment) = ("64MiB".into(), "1MiB".into());
    let cluster = Cluster::start(2, &Settings { memory, segment, ..Settings::default() });
    cluster.numbers();
    let tenant = cluster.servers[0].tenant("acme");
    let mut client = cluster.servers[0].client(&tenant);
    let options =
        TableOptions { ordered, tagged: true, durability: Some(durability), ..TableOptions::default() };
    let table = answered("the table", || match tablets {
        None => client.table_create_with("data", options),
        Some(tablets) => client.table_create_spread("data", options, tablets),
    });
    install_source(&mut client, "shift", SHIFT).expect("an extension");
    for (tag, number) in numbers() {
        client.put(table, &key(tag, number), &100_i64.to_le_bytes()).expect("there is room");
    }
    comes("the servers have heard of the extension", || {
        let mut sum = |tag| client.invoke("shift.sum", table, &beginning(tag), &[]).is_ok();
        (0..TAGS).all(&mut sum).then_some(())
    });
    (cluster, tenant, table)
}

fn numbers() -> impl Iterator<Item = (u64, u64)> {
    (0..TAGS).flat_map(|tag| (0..KEYS).map(move |number| (tag, number)))
}

fn tablets(server: &Server) -> Vec<TabletEntry> {
    answered("the tablets", || server.admin().tablet_list())
}

/// Begins to move a tablet to the other server.
fn begin(cluster: &Cluster, tablet: &TabletEntry, mode: MigrationMode) {
    let numbers = cluster.numbers();
    let to = *numbers.iter().find(|number| **number != tablet.server).expect("two servers");
    comes("a migration", || {
        let begun =
            cluster.servers[0].admin().migration_begin("acme/data", tablet.first..=tablet.last, to, mode);
        begun.inspect_err(|error| println!("{error}")).ok()
    });
}

fn wait_for_moves(cluster: &Cluster) {
    comes("the end of all migrations", || {
        cluster.servers[0].admin().migration_list().ok()?.is_empty().then_some(())
    });
}

/// Moves tablets back and forth until `rounds` are over; some moves are under way at the same time.
fn move_tablets(cluster: &mut Cluster, random: &mut Rng, rounds: usize, may_die: bool) {
    for _ in 0..rounds {
        let mut all = tablets(&cluster.servers[0]);
        random.shuffle(&mut all);
        let mode =
            random.choice([MigrationMode::Rocksteady, MigrationMode::StopAndCopy, MigrationMode::PreCopy]);
        all.truncate(random.usize(1..4));
        all.iter().for_each(|tablet| begin(cluster, tablet, mode.expect("one of three")));
        if may_die && random.bool() {
            let victim = random.usize(0..2);
            cluster.servers[victim].kill();
            cluster.servers[victim].restart();
        }
        wait_for_moves(cluster);
    }
}

/// What one client has added to each key, and its random numbers.
struct Work {
    client: Client,
    table: u32,
    is_ordered: bool,
    net: BTreeMap<(u64, u64), i64>,
    random: Rng,
}

impl Work {
    /// Shifts between keys of a tag, and reads them in all ways: no function ever lacks a key.
    fn shift(&mut self, tag: u64) {
        let Self { client, table, random, net, .. } = self;
        let table = *table;
        let (from, to) = (random.u64(0..KEYS), random.u64(0..KEYS));
        client.invoke("shift.shift", table, &key(tag, from), &key(tag, to)).expect("both keys are here");
        *net.entry((tag, from)).or_default() -= 1;
        *net.entry((tag, to)).or_default() += 1;
        let sum = client.invoke("shift.sum", table, &beginning(tag), &[]).expect("all keys are here");
        assert_eq!(sum, (100 * KEYS).to_le_bytes());
        if self.is_ordered {
            let found = client.invoke("shift.sum_in_order", table, &beginning(tag), &key(tag, from));
            let found = found.expect("all keys are here");
            assert_eq!(found, [(100 * KEYS).to_le_bytes(), KEYS.to_le_bytes()].concat());
        }
        let number = random.u64(0..KEYS);
        let found = client.get(table, &key(tag, number)).expect("an answer").expect("it is never deleted");
        let expected = 100 + net.get(&(tag, number)).copied().unwrap_or(0);
        assert_eq!(found.value, expected.to_le_bytes(), "{tag}, {number}");
    }
}

fn all_keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = numbers().map(|(tag, number)| key(tag, number)).collect();
    keys.sort_unstable();
    keys
}

/// Lists the table as a whole, with steps of a few objects: each object once.
fn list(client: &mut Client, table: u32, is_ordered: bool) {
    let size = PageSize { objects: 7, ..PageSize::default() };
    let listed = client.enumerate_from(table, Cursor::start(), size);
    let mut found: Vec<_> = listed.map(|object| object.expect("a page").key).collect();
    found.sort_unstable();
    assert_eq!(found, all_keys());
    if is_ordered {
        let found = client.scan(table, KeyRange::default(), usize::MAX).expect("all servers answer");
        assert!(found.iter().map(|object| &object.key).eq(&all_keys()));
        let of_tag = KeyRange { prefix: b"user:{7}:", ..KeyRange::default() };
        let found = client.scan(table, of_tag, usize::MAX).expect("its server answers");
        assert!(found.iter().map(|object| object.key.clone()).eq((0..KEYS).map(|number| key(7, number))));
    }
}

#[test]
fn functions_find_all_keys_of_a_tag_while_tablets_move() {
    let kinds = [(false, Durability::Memory), (true, Durability::Memory), (true, Durability::Synced)];
    for (is_ordered, durability) in kinds {
        let (mut cluster, tenant, table) = cluster(is_ordered, durability, None);
        let owned = tablets(&cluster.servers[0]);
        assert_eq!(owned.len(), 64, "enough to balance");
        assert_eq!(owned.iter().map(|tablet| tablet.server).collect::<BTreeSet<_>>().len(), 2);
        let (is_over, mut random) = (AtomicBool::new(false), rng());
        thread::scope(|scope| {
            let workers: Vec<_> = (0..2)
                .map(|own| {
                    let (is_over, random, tenant) = (&is_over, random.fork(), &tenant);
                    let address = cluster.servers[own as usize].address().to_string();
                    scope.spawn(move || {
                        let client = Client::connect_with(&address, &tenant.name, &tenant.secret, patient());
                        let (client, net) = (client.expect("it is let in"), BTreeMap::new());
                        let (mut work, mut shifts) = (Work { client, table, is_ordered, net, random }, 0);
                        while !is_over.load(Ordering::Relaxed) {
                            let tag = 2 * work.random.u64(0..TAGS / 2) + own;
                            work.shift(tag);
                            shifts += 1;
                            if shifts % 64 == own {
                                list(&mut work.client, table, is_ordered);
                            }
                        }
                        (shifts, work.net)
                    })
                })
                .collect();
            let moves = rounds(5, 60);
            move_tablets(&mut cluster, &mut random, moves, false);
            is_over.store(true, Ordering::Relaxed);
            let mut client = cluster.servers[0].client(&tenant);
            for worker in workers {
                let (shifts, net) = worker.join().expect("every answer is right");
                println!("{shifts} shifts");
                for ((tag, number), change) in net {
                    let found =
                        client.get(table, &key(tag, number)).expect("an answer").expect("it is there");
                    assert_eq!(found.value, (100 + change).to_le_bytes());
                }
            }
            list(&mut client, table, is_ordered);
            assert_eq!(client.verify(table).expect("all is checked").objects, TAGS * KEYS);
        });
    }
}

#[test]
fn a_durable_tagged_table_loses_nothing_though_its_servers_are_killed_while_tablets_move() {
    let (mut cluster, tenant, table) = cluster(true, Durability::Synced, Some(8));
    let (is_over, mut random) = (AtomicBool::new(false), rng());
    let mut user = Tireless::new(&cluster, &tenant, table);
    thread::scope(|scope| {
        let (is_over, mut own) = (&is_over, random.fork());
        let worker = scope.spawn(move || {
            let mut shifts = 0;
            while !is_over.load(Ordering::Relaxed) {
                let tag = own.u64(0..TAGS);
                let (from, to) = (key(tag, own.u64(0..KEYS)), key(tag, own.u64(0..KEYS)));
                // It may be done twice when a server dies, but never by half.
                user.ask(|client, table| client.invoke("shift.shift", table, &from, &to));
                let sum = user.ask(|client, table| client.invoke("shift.sum", table, &beginning(tag), &[]));
                assert_eq!(sum, (100 * KEYS as i64).to_le_bytes());
                shifts += 1;
            }
            println!("{shifts} shifts");
        });
        move_tablets(&mut cluster, &mut random, rounds(4, 60), true);
        is_over.store(true, Ordering::Relaxed);
        worker.join().expect("every answer is right");
    });
    for index in 0..2 {
        cluster.servers[index].kill();
        cluster.servers[index].restart();
    }
    let mut client = comes("both serve", || {
        let mut client = cluster.servers[0].client(&tenant);
        client.verify(table).ok().map(|_| client)
    });
    list(&mut client, table, true);
    let found = client.scan(table, KeyRange::default(), usize::MAX).expect("all servers answer");
    let sum: i64 =
        found.iter().map(|object| i64::from_le_bytes(object.value[..].try_into().expect("8 bytes"))).sum();
    assert_eq!(sum, 100 * (TAGS * KEYS) as i64);
}

#[test]
fn what_would_part_the_keys_of_a_tag_is_refused_and_plans_move_whole_tablets() {
    let (cluster, tenant, table) = cluster(false, Durability::Memory, Some(8));
    let before = tablets(&cluster.servers[0]);
    let mut admin = cluster.servers[0].admin();
    let refusals = [
        admin.tablet_split("acme/data", before[0].first + (1 << 48)).map(drop),
        admin.tablet_merge("acme/data", before[1].first).map(drop),
        admin.migration_begin("acme/data", 0..=u64::MAX, 1, MigrationMode::Rocksteady).map(drop),
        admin.migration_begin("acme/data", 0..=(1 << 40) - 1, 1, MigrationMode::Rocksteady).map(drop),
    ];
    for refusal in refusals {
        let refusal = refusal.expect_err("it is tagged");
        assert_eq!(refusal.status(), Some(Status::WrongTablets));
        assert!(refusal.to_string().contains("move one at a time"), "{refusal}");
    }
    let numbers = cluster.numbers();
    answered("a plan", || cluster.servers[0].admin().cluster_drain(numbers[1]));
    comes("the end of the plan", || {
        let now = tablets(&cluster.servers[0]);
        (now.iter().all(|tablet| tablet.server == numbers[0]) && is_quiet(&cluster)).then_some(())
    });
    let bounds =
        |tablets: &[TabletEntry]| tablets.iter().map(|one| (one.first, one.last)).collect::<Vec<_>>();
    assert_eq!(bounds(&tablets(&cluster.servers[0])), bounds(&before));
    let mut client = cluster.servers[0].client(&tenant);
    list(&mut client, table, false);
    let shown =
        cluster.servers[0].command(&tenant).args(["table", "list"]).output().expect("the command runs");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("hash, tagged"), "{shown:?}");
}

fn is_quiet(cluster: &Cluster) -> bool {
    cluster.servers[0].admin().migration_list().is_ok_and(|all| all.is_empty())
}
