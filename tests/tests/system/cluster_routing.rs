//! One client over three real servers of a cluster, whose table is cut into tablets, moves and loses a server.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{
    Client, ClientConfig, Completion, Error, KeyRange, MigrationMode, MigrationPhase, Request, Status,
    TableOptions,
};
use tests::etcd::Etcd;
use tests::patience::{answered, comes};
use tests::raw::PATIENCE;
use tests::server::{Server, Settings, Tenant, patient};

/// The first hashes of the second and the last third; tablets begin at multiples of 2^32.
const SECOND: u64 = 0x5555_5555 << 32;
const THIRD: u64 = 0xaaaa_aaaa << 32;

/// Servers over one etcd, and the number of each.
struct NumberedCluster {
    servers: Vec<Server>,
    numbers: Vec<u32>,
    etcd: Etcd,
}

impl NumberedCluster {
    fn start(count: usize) -> NumberedCluster {
        let etcd = Etcd::start();
        let mut cluster = NumberedCluster { servers: Vec::new(), numbers: Vec::new(), etcd };
        for _ in 0..count {
            let metadata = cluster.etcd.metadata();
            let server = Server::start_with(Settings { metadata, ..Settings::default() });
            let number = comes("the server's registration", || {
                let servers = server.admin().server_list().ok()?;
                servers.iter().find(|server| server.is_asked).map(|server| server.id)
            });
            cluster.servers.push(server);
            cluster.numbers.push(number);
        }
        cluster
    }

    /// A tenant that each server knows.
    fn tenant(&self, name: &str) -> Tenant {
        let tenant = self.servers[0].tenant(name);
        for server in &self.servers {
            comes("the tenant at each server", || {
                let address = server.address().to_string();
                Client::connect(&address, &tenant.name, &tenant.secret).ok()
            });
        }
        tenant
    }

    /// Moves hashes to a server and waits until they are there.
    fn migrate(&self, table: &str, hashes: RangeInclusive<u64>, to: usize) {
        let mut admin = self.servers[0].admin();
        let begun = comes("a migration", || {
            match admin.migration_begin(table, hashes.clone(), self.numbers[to], MigrationMode::Rocksteady) {
                // The one before is not cleared away yet.
                Err(Error::Refused { status: Status::WrongTablets, text }) if text.contains("migration") => {
                    None
                }
                begun => Some(begun.expect("a migration")),
            }
        });
        comes("the end of the migration", || {
            let list = admin.migration_list().ok()?;
            match list.iter().find(|entry| entry.id == begun.id).map(|entry| entry.phase) {
                None | Some(MigrationPhase::Finished) => Some(()),
                Some(phase) => {
                    assert!(phase != MigrationPhase::Ended, "the migration was undone");
                    None
                }
            }
        });
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// Holds the client against what is in the table: `count` keys, their values themselves.
fn assert_holds(client: &mut Client, table: u32, count: u32) {
    let keys: Vec<_> = (0..count).map(key).collect();
    for key in keys.iter().step_by(7) {
        assert_eq!(client.get(table, key).expect("an answer").expect("an object").value, *key);
    }
    let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let objects = client.multi_get(table, &asked).expect("objects");
    assert!(keys.iter().zip(objects).all(|(key, object)| object.is_some_and(|object| object.value == *key)));
    for reverse in [false, true] {
        let range = KeyRange { reverse, ..KeyRange::default() };
        let mut scanned: Vec<_> = client
            .scan(table, range, usize::MAX)
            .expect("objects in order")
            .into_iter()
            .map(|listed| listed.key)
            .collect();
        if reverse {
            scanned.reverse();
        }
        assert!(scanned == keys, "a scan meets each key once, in order: {} of {count}", scanned.len());
    }
    let range = KeyRange { from: &keys[100], to: Some(&keys[200]), ..KeyRange::default() };
    let found = client.scan(table, range, 30).expect("objects in order");
    assert!(found.iter().map(|listed| &listed.key).eq(&keys[100..130]));
    let mut listed: Vec<_> = client.enumerate(table).map(|listed| listed.expect("a page").key).collect();
    listed.sort();
    assert!(listed == keys, "an enumeration meets each key once: {} of {count}", listed.len());
    assert_eq!(client.verify(table).expect("a verification").objects, u64::from(count));
}

#[test]
fn a_table_serves_at_all_its_servers_as_soon_as_it_has_been_created() {
    let cluster = NumberedCluster::start(3);
    let tenant = cluster.tenant("acme");
    let mut client = cluster.servers[0].client(&tenant);
    for number in 0..12 {
        let name = format!("data-{number}");
        let table = client.table_create_spread(&name, TableOptions::default(), 3).expect("a table");
        for number in 0..24 {
            client
                .put(table, &key(number), &key(number))
                .expect("who has it may have to hear of the table first");
        }
    }
}

#[test]
fn a_table_over_three_servers_is_one_to_its_clients_also_without_one_of_them() {
    const COUNT: u32 = 1_500;
    let mut cluster = NumberedCluster::start(3);
    let tenant = cluster.tenant("ann");
    let mut client = cluster.servers[0].client(&tenant);
    let table = client.table_create_ordered("data").expect("a table");
    let keys: Vec<_> = (0..COUNT).map(key).collect();
    let objects: Vec<_> = keys.iter().map(|key| (&key[..], &key[..])).collect();
    let written = client.multi_put(table, &objects).expect("a session");
    assert!(written.iter().all(Result::is_ok));
    assert_holds(&mut client, table, COUNT);
    // To the others, while the client knows of one server alone; then to and fro, so that there are several parts.
    cluster.migrate("ann/data", SECOND..=THIRD - 1, 1);
    assert_holds(&mut client, table, COUNT);
    cluster.migrate("ann/data", THIRD..=u64::MAX, 2);
    assert_holds(&mut client, table, COUNT);
    assert_holds(&mut cluster.servers[2].client(&tenant), table, COUNT);
    // What each server has is counted; sources may have something that they have not discarded yet.
    let counted = client.table_stat_counted("data").expect("all servers answer");
    assert!(counted.entry.objects >= COUNT.into() && counted.uncounted.is_empty(), "{counted:?}");
    let middle = 0x8000_0000 << 32;
    cluster.migrate("ann/data", middle..=THIRD - 1, 0);
    assert_holds(&mut client, table, COUNT);
    // One server goes: its objects with it, those of the others stay.
    cluster.servers[2].kill();
    let is_gone = |key: &[u8]| store::hash(key) >= THIRD;
    let (gone, here): (Vec<_>, Vec<_>) = keys.iter().partition(|key| is_gone(key));
    let mut client = cluster.servers[1].client(&tenant);
    for key in here.iter().take(50) {
        assert!(client.get(table, key).expect("an answer").is_some());
    }
    match client.get(table, gone[0]) {
        Err(Error::ServerAway { server }) => assert_eq!(server, cluster.numbers[2]),
        other => panic!("{other:?}"),
    }
    assert!(client.get(table, here[51]).expect("an answer").is_some());
    let counted = client.table_list_counted().expect("the server that was named answers");
    assert_eq!((counted.len(), &counted[0].uncounted[..]), (1, &cluster.numbers[2..]));
    assert!((1..u64::from(COUNT)).contains(&counted[0].entry.objects));
}

#[test]
fn increments_are_executed_once_while_their_hashes_move_between_servers() {
    const KEYS: u32 = 50;
    let cluster = NumberedCluster::start(2);
    let tenant = cluster.tenant("bob");
    let mut client = cluster.servers[0].client(&tenant);
    let table = answered("the table", || client.table_open_or_create("data"));
    let is_over = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut session = cluster.servers[1].client(&tenant).into_session();
            let (mut next, mut counts) = (0, vec![0; KEYS as usize]);
            while !is_over.load(Ordering::Relaxed) || session.outstanding() > 0 {
                while session.can_submit() && !is_over.load(Ordering::Relaxed) {
                    let number = next % KEYS;
                    let increment = Request::Increment { table, key: &key(number), delta: 1 };
                    session.submit(&increment, number.into()).expect("a place");
                    next += 1;
                }
                let take = &mut |completion: Completion<'_>| {
                    assert_eq!(completion.status, Ok(Status::Ok));
                    counts[completion.tag as usize] += 1;
                };
                session.poll_waiting(take).expect("a session");
            }
            counts
        });
        for to in [1, 0, 1] {
            cluster.migrate("bob/data", SECOND..=THIRD - 1, to);
        }
        is_over.store(true, Ordering::Relaxed);
        load.join().expect("answers that are right")
    });
    assert!(counts.iter().all(|&count| count > 0));
    for (number, count) in (0..).zip(counts) {
        assert_eq!(client.increment(table, &key(number), 0).expect("a number").0, count);
    }
}

/// A client of a server, each call of which may take this long.
fn client_within(server: &Server, tenant: &Tenant, call_timeout: Duration) -> Result<Client, Error> {
    let config = ClientConfig { connect_timeout: call_timeout, call_timeout, ..patient() };
    Client::connect_with(&server.address().to_string(), &tenant.name, &tenant.secret, config)
}

#[test]
fn a_server_that_stands_still_keeps_nobody_from_keys_that_others_have() {
    const COUNT: u32 = 600;
    const STEP: u64 = 0x1555_5555 << 32;
    let cluster = NumberedCluster::start(3);
    let tenant = cluster.tenant("ann");
    let mut client = cluster.servers[0].client(&tenant);
    let table = client.table_create_spread("data", TableOptions::default(), 3).expect("a table");
    for number in 0..COUNT {
        client.put(table, &key(number), &key(number)).expect("a put");
    }
    // It takes connections, and answers nothing. The client has a session with it, the late one has to open one.
    cluster.servers[1].pause(true);
    for first in [0, STEP, 2 * STEP] {
        let mut late = cluster.servers[0].client(&tenant);
        let moved = first..=first + STEP - 1;
        let keys: Vec<_> = (0..COUNT).map(key).filter(|key| moved.contains(&store::hash(key))).collect();
        assert!(late.get(table, &keys[0]).expect("an answer").is_some());
        cluster.migrate("ann/data", moved, 2);
        for key in &keys {
            for client in [&mut client, &mut late] {
                let began = Instant::now();
                assert!(client.get(table, key).expect("its server answers").is_some());
                assert!(began.elapsed() < PATIENCE / 2, "it waited until the second server was given up");
            }
        }
    }
    cluster.servers[1].pause(false);
    for number in 0..COUNT {
        assert!(client.get(table, &key(number)).expect("an answer").is_some());
    }
}

#[test]
fn a_session_is_opened_where_the_tenant_is_known_while_etcd_stands_still() {
    // Less than it takes a server to find out that etcd does not answer.
    const SOON: Duration = Duration::from_secs(2);
    let cluster = NumberedCluster::start(1);
    let (server, tenant) = (&cluster.servers[0], cluster.tenant("ann"));
    let mut client = server.client(&tenant);
    let table = client.table_create("data").expect("a table");
    client.put(table, b"key", b"value").expect("a put");
    // On a slow machine the lease may be over, without which nobody is let in so.
    let mut late = comes("a session without etcd", || {
        client_within(server, &tenant, SOON).ok()?;
        cluster.etcd.pause(true);
        let opened = client_within(server, &tenant, SOON);
        let guessed = Client::connect_with(&server.address().to_string(), &tenant.name, "a guess", patient());
        cluster.etcd.pause(false);
        let refused = guessed.err().expect("it is wrong");
        assert_eq!(refused.status(), Some(Status::Unavailable), "it may be right by now");
        opened.ok()
    });
    assert!(late.get(table, b"key").expect("an answer").is_some());
}
