//! Tablets that move between real servers over a real etcd: under load, with every answer checked, and with servers and etcd
//! that end in the middle.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use client::{
    Client, Condition, Durability, Error, MigrationEntry, MigrationMode, MigrationPhase, Request, Status,
    TableOptions,
};
use fastrand::Rng;
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::patience::{answered, comes};
use tests::raw::{PATIENCE, RawSession};
use tests::server::{Server, Settings, Tenant};

const HALF: u64 = 1 << 63;

/// A session at each server; a key is asked for where it is owned.
struct OwnerSeeker {
    clients: Vec<Client>,
    table: u32,
    likely: usize,
}

impl OwnerSeeker {
    fn new(servers: &[Server], tenant: &Tenant, table: u32) -> Self {
        let clients = servers.iter().map(|server| comes("a session", || knows(server, tenant))).collect();
        Self { clients, table, likely: 0 }
    }

    /// Asks one server after the other until one owns the key: `NotOwned` leaves no trace.
    fn ask<T>(&mut self, mut ask: impl FnMut(&mut Client, u32) -> Result<T, Error>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = ask(&mut self.clients[self.likely], self.table);
            match answer {
                Err(error) if error.status() == Some(Status::NotOwned) => {
                    self.likely = (self.likely + 1) % self.clients.len();
                }
                // Of the dead one, until the client has heard who owns it now.
                Err(Error::ServerAway { .. }) => self.likely = (self.likely + 1) % self.clients.len(),
                Err(error) if error.status() == Some(Status::Retry) => {}
                answer => return answer.expect("an answer"),
            }
            assert!(Instant::now() < deadline, "nobody owns it");
        }
    }

    fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        self.ask(|client, table| client.get(table, &key.to_le_bytes())).map(|object| object.value)
    }

    fn put(&mut self, key: u64, value: &[u8]) -> u64 {
        self.ask(|client, table| client.put(table, &key.to_le_bytes(), value))
    }
}

/// A client at a server that has heard of the table.
fn knows(server: &Server, tenant: &Tenant) -> Option<Client> {
    let mut client = server.client(tenant);
    client.table_open("data").ok().map(|_| client)
}

/// Two servers, a tenant, its table in memory.
fn cluster() -> (Cluster, Tenant, u32) {
    cluster_with(Durability::Memory)
}

fn cluster_with(durability: Durability) -> (Cluster, Tenant, u32) {
    let cluster = Cluster::start(2, &Settings::default());
    let tenant = cluster.servers[0].tenant("acme");
    let mut client = cluster.servers[0].client(&tenant);
    let options = TableOptions { durability: Some(durability), ..TableOptions::default() };
    let table = answered("the table", || match client.table_create_with("data", options) {
        Err(error) if error.status() == Some(Status::AlreadyExists) => client.table_open("data"),
        made => made,
    });
    (cluster, tenant, table)
}

/// The index of the server that owns a hash.
fn owner(cluster: &Cluster, asked: usize, hash: u64) -> usize {
    let tablets = answered("the tablets", || cluster.servers[asked].admin().tablet_list());
    let tablet = tablets.iter().find(|tablet| (tablet.first..=tablet.last).contains(&hash)).unwrap();
    cluster.numbers().iter().position(|number| *number == tablet.server).unwrap()
}

fn migrations(server: &Server) -> Vec<MigrationEntry> {
    answered("the migrations", || server.admin().migration_list())
}

/// Begins to move the upper half to the server of this index.
fn begin(cluster: &Cluster, to: usize, mode: MigrationMode) -> MigrationEntry {
    let target = cluster.numbers()[to];
    let begun = comes("a migration", || {
        cluster.servers[to].admin().migration_begin("acme/data", HALF..=u64::MAX, target, mode).ok()
    });
    assert_eq!(begun.target, target);
    begun
}

/// Reads that a server has answered of what it had given away.
fn second_reads(server: &Server) -> u64 {
    let statistics = server.admin().statistics().unwrap();
    statistics.iter().find(|it| it.name == "migration_second_reads").unwrap().value
}

/// One thread's keys, and what they should be.
fn use_own_keys(
    seeker: &mut OwnerSeeker,
    random: &mut Rng,
    own: std::ops::Range<u64>,
    over: &AtomicBool,
) -> u64 {
    let mut model: BTreeMap<u64, (Vec<u8>, u64)> = BTreeMap::new();
    let mut calls = 0;
    while !over.load(Ordering::Relaxed) {
        let key = random.u64(own.clone());
        let before = model.get(&key).cloned();
        match random.u8(0..8) {
            0..4 => {
                let expected = before.map_or_else(|| key.to_le_bytes().to_vec(), |(value, _)| value);
                let found = seeker.get(key).unwrap_or_default();
                assert_eq!(found, expected, "key {key}");
            }
            4..6 => {
                let value = vec![random.u8(..); random.usize(1..300)];
                let version = seeker.put(key, &value);
                assert!(before.is_none_or(|(_, before)| version > before), "versions of {key} grow");
                model.insert(key, (value, version));
            }
            6 => {
                // Gone and there again: whoever moves it may not bring the old one back.
                let gone = seeker.ask(|client, table| client.delete(table, &key.to_le_bytes()));
                assert!(gone.is_some() == before.is_none_or(|(value, _)| !value.is_empty()), "key {key}");
                model.insert(key, (Vec::new(), gone.unwrap_or(0)));
            }
            _ => {
                let counter = key | 1 << 40;
                let expected = model
                    .get(&counter)
                    .map_or(0, |(value, _)| i64::from_le_bytes(value[..].try_into().unwrap()))
                    + 1;
                let sum = seeker.ask(|client, table| client.increment(table, &counter.to_le_bytes(), 1)).0;
                assert_eq!(sum, expected, "counter {counter}");
                model.insert(counter, (expected.to_le_bytes().to_vec(), 0));
            }
        }
        calls += 1;
    }
    for (key, (value, _)) in model {
        assert_eq!(seeker.get(key).unwrap_or_default(), value, "key {key}");
    }
    calls
}

#[test]
fn a_table_moves_to_and_fro_under_load_and_every_answer_is_right() {
    moves_to_and_fro(Durability::Memory, 50_000);
}

#[test]
fn a_durable_table_moves_to_and_fro_under_load_and_every_answer_is_right() {
    moves_to_and_fro(Durability::Written, 20_000);
}

fn moves_to_and_fro(durability: Durability, keys: u64) {
    const THREADS: u64 = 2;
    let (cluster, tenant, table) = cluster_with(durability);
    let (over, loaded) = (AtomicBool::new(false), Barrier::new(THREADS as usize + 1));
    thread::scope(|scope| {
        let users: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mut seeker = OwnerSeeker::new(&cluster.servers, &tenant, table);
                let (over, loaded) = (&over, &loaded);
                scope.spawn(move || {
                    let own = thread * keys..(thread + 1) * keys;
                    for key in own.clone() {
                        seeker.put(key, &key.to_le_bytes());
                    }
                    loaded.wait();
                    use_own_keys(&mut seeker, &mut rng(), own, over)
                })
            })
            .collect();
        loaded.wait();
        for round in 0..rounds(4, 30) {
            let to = 1 - owner(&cluster, 0, u64::MAX);
            let modes = [MigrationMode::Rocksteady, MigrationMode::Cooperative];
            begin(&cluster, to, modes[round / 2 % 2]);
            comes("the end of all migrations", || migrations(&cluster.servers[0]).is_empty().then_some(()));
            assert_eq!(owner(&cluster, 0, u64::MAX), to);
        }
        over.store(true, Ordering::Relaxed);
        let second_reads: u64 = cluster.servers.iter().map(second_reads).sum();
        assert!(
            second_reads > 0 || durability.is_on_disk(),
            "some reads were answered by the server that their keys had left"
        );
        let calls: u64 = users.into_iter().map(|user| user.join().unwrap()).sum();
        assert!(calls > 0);
    });
}

/// Fills the table, begins to move its upper half, and comes back when its phase has passed `Preparing`.
fn in_the_middle(cluster: &Cluster, seeker: &mut OwnerSeeker, keys: u64) -> (usize, usize) {
    for key in 0..keys {
        seeker.put(key, &[1; 5_000]);
    }
    let from = owner(cluster, 0, u64::MAX);
    begin(cluster, 1 - from, MigrationMode::Cooperative);
    comes("a migration that moves", || {
        let listed = migrations(&cluster.servers[1 - from]);
        listed.iter().all(|one| one.phase != MigrationPhase::Preparing).then_some(())
    });
    (from, 1 - from)
}

#[test]
fn a_target_goes_on_with_what_it_has_when_the_source_dies() {
    let (mut cluster, tenant, table) = cluster();
    let mut seeker = OwnerSeeker::new(&cluster.servers, &tenant, table);
    let (source, target) = in_the_middle(&cluster, &mut seeker, 4_000);
    cluster.servers[source].kill();
    let is_moved = |key: &u64| store::hash(&key.to_le_bytes()) >= HALF;
    let moved: Vec<u64> = (0..4_000).filter(is_moved).collect();
    let written: Vec<u64> = moved.iter().copied().step_by(10).collect();
    let client = &mut seeker.clients[target];
    type Found = Result<Option<Vec<u8>>, Error>;
    let mut insist = |ask: &mut dyn FnMut(&mut Client) -> Found| {
        comes("an answer", || match ask(client) {
            Ok(value) => Some(value),
            // The target has still to hear that it owns them, or waits for the source. What is done twice is the same.
            Err(Error::ServerAway { .. } | Error::NotSent) => None,
            Err(error) if error.outcome_is_unknown() => None,
            Err(error) if matches!(error.status(), Some(Status::NotOwned | Status::Retry)) => None,
            Err(error) => panic!("{error}"),
        })
    };
    for key in &written {
        insist(&mut |client| client.put(table, &key.to_le_bytes(), b"since").map(|_| None));
    }
    assert_eq!(owner_of_number(&cluster, target), cluster_number(&cluster, target));
    for key in moved {
        // What waits for the source waits until others say that it is gone.
        let value = insist(&mut |client| {
            client.get(table, &key.to_le_bytes()).map(|found| found.map(|object| object.value))
        });
        if written.contains(&key) {
            assert_eq!(value.as_deref(), Some(&b"since"[..]), "key {key}");
        } else {
            assert!(value.is_none_or(|value| value == [1; 5_000]), "key {key}");
        }
    }
}

fn owner_of_number(cluster: &Cluster, asked: usize) -> u32 {
    let tablets = answered("the tablets", || cluster.servers[asked].admin().tablet_list());
    tablets.iter().find(|tablet| tablet.last == u64::MAX).unwrap().server
}

fn cluster_number(cluster: &Cluster, index: usize) -> u32 {
    let address = cluster.servers[index].address().to_string();
    let listed = answered("the servers", || cluster.servers[index].admin().server_list());
    listed.iter().find(|entry| entry.tcp == address).unwrap().id
}

#[test]
fn a_source_serves_again_what_it_had_when_the_target_dies() {
    let (mut cluster, tenant, table) = cluster();
    let mut seeker = OwnerSeeker::new(&cluster.servers, &tenant, table);
    let (source, target) = in_the_middle(&cluster, &mut seeker, 4_000);
    cluster.servers[target].kill();
    if !migrations(&cluster.servers[source]).is_empty() {
        let number = cluster_number(&cluster, source);
        comes("an owner", || (owner_of_number(&cluster, source) == number).then_some(()));
        for key in 0..4_000_u64 {
            let found = comes("an answer", || seeker.clients[source].get(table, &key.to_le_bytes()).ok());
            assert_eq!(found.expect("it never left").value, [1; 5_000], "key {key}");
        }
    }
}

/// Lets a session send under the view of a server that has come to own a key, of which it says the next sequence; false
/// where the server does not own it.
fn is_under_its_view(session: &mut RawSession, sequence: &mut u64, get: &Request<'_>) -> bool {
    let first = session.opened.view;
    let owns = (first..first + 16).any(|view| {
        session.opened.view = view;
        *sequence += 1;
        session.call(*sequence, get).expect("an answer").status == Status::Ok
    });
    if !owns {
        session.opened.view = first;
    }
    owns
}

#[test]
fn a_server_that_stood_still_while_others_took_what_it_served_answers_nothing_of_it_afterwards() {
    let (cluster, tenant, table) = cluster();
    let mut seeker = OwnerSeeker::new(&cluster.servers, &tenant, table);
    (0..8_000).for_each(|key| {
        seeker.put(key, &[1; 5_000]);
    });
    let key = (0..8_000_u64).find(|key| store::hash(&key.to_le_bytes()) >= HALF).expect("half of them");
    seeker.put(key, b"old");
    let (get, condition) = (Request::Get { table, key: &key.to_le_bytes() }, Condition::Always);
    // Until it stands still while the move is under way.
    let (source, target, session, sequence) = comes("a target that stands still in the middle", || {
        let source = owner(&cluster, 0, u64::MAX);
        let target = 1 - source;
        let place = &cluster.servers[target];
        let mut session = RawSession::open(place.address(), &tenant.name, &tenant.secret).expect("a session");
        begin(&cluster, target, MigrationMode::Rocksteady);
        let mut admin = cluster.servers[source].admin();
        let mut is_moving = || {
            let moves = answered("the migrations", || admin.migration_list());
            moves.iter().all(|it| it.phase == MigrationPhase::Moving) && !moves.is_empty()
        };
        comes("a migration that moves", || is_moving().then_some(()));
        let mut sequence = 0;
        while !is_under_its_view(&mut session, &mut sequence, &get) && is_moving() {}
        place.pause(true);
        if is_moving() {
            return Some((source, target, session, sequence));
        }
        place.pause(false);
        comes("the end of the move", || migrations(&cluster.servers[source]).is_empty().then_some(()));
        None
    });
    let address = cluster.servers[source].address().to_string();
    comes("a source that has taken it back", || {
        // One that has asked nobody else: the other server takes connections and says nothing.
        let mut client = Client::connect(&address, &tenant.name, &tenant.secret).ok()?;
        client.table_open("data").ok()?;
        client.put(table, &key.to_le_bytes(), b"new").ok()
    });
    let put = Request::Put { table, key: &key.to_le_bytes(), value: b"lost", condition };
    session.send(&session.frame(sequence + 1, &get)).expect("a datagram");
    session.send(&session.frame(sequence + 2, &put)).expect("a datagram");
    cluster.servers[target].pause(false);
    let mut answered = 0;
    while answered < 2 {
        for answer in session.receive(PATIENCE).expect("every request is answered") {
            let is_executed = matches!(answer.status, Status::Ok | Status::NotFound);
            assert!(!is_executed, "request {} is executed: {:?}", answer.sequence_low, answer.status);
            answered += 1;
        }
    }
}
