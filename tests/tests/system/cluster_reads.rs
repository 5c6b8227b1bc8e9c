//! Invocations that read what other servers of a real cluster have: while it moves, by a tenant that is `local_only`, and when
//! the other server is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Error, LimitChange, MigrationMode, MigrationPhase, Status};
use fastrand::Rng;
use tao::bulk::list_records;
use tao::entry::Entry;
use tao::key::{AssocType, ListId, ObjectId};
use tao::message::{Call, FriendsOfFriends, decode_count};
use tests::cluster::Cluster;
use tests::package::install_source;
use tests::patience::{answered, comes};
use tests::server::{Server, Settings, Tenant};

const HALF: u64 = 1 << 63;
const FRIEND: AssocType = AssocType(1);
const READS: &str = include_str!("cluster_reads/reads.rs");

/// Servers, a tenant, and its table, of which the first server has the lower half and the second the upper one.
struct Halves {
    cluster: Cluster,
    tenant: Tenant,
    client: Client,
    table: u32,
}

impl Halves {
    fn start(servers: usize) -> Self {
        let cluster = Cluster::start(servers, &Settings::default());
        let tenant = cluster.servers[0].tenant("acme");
        let mut client = cluster.servers[0].client(&tenant);
        let table = answered("the table", || client.table_open_or_create("data"));
        let halves = Self { cluster, tenant, client, table };
        halves.migrate(0..=HALF - 1, 0);
        halves.migrate(HALF..=u64::MAX, 1);
        halves
    }

    /// Moves hashes to a server, if they are not there, and waits until they are.
    fn migrate(&self, hashes: std::ops::RangeInclusive<u64>, to: usize) {
        let number = self.cluster.numbers()[to];
        let mut admin = self.cluster.servers[0].admin();
        let begun = comes("a migration", || {
            let owned = admin.tablet_list().ok()?;
            let is_in = |first: u64, last: u64| first <= *hashes.end() && *hashes.start() <= last;
            if owned.iter().filter(|one| is_in(one.first, one.last)).all(|one| one.server == number) {
                return Some(None);
            }
            match admin.migration_begin("acme/data", hashes.clone(), number, MigrationMode::Rocksteady) {
                // The one before is not cleared away yet.
                Err(Error::Refused { status: Status::WrongTablets, .. }) => None,
                begun => Some(Some(begun.expect("a migration").id)),
            }
        });
        let Some(id) = begun else { return };
        comes("the end of the migration", || {
            let list = admin.migration_list().ok()?;
            match list.iter().find(|entry| entry.id == id).map(|entry| entry.phase) {
                None | Some(MigrationPhase::Finished) => Some(()),
                Some(phase) => {
                    assert!(phase != MigrationPhase::Ended, "the migration was undone");
                    None
                }
            }
        });
    }

    fn install(&mut self) {
        install_source(&mut self.client, "reads", READS).expect("an extension");
    }

    /// Invokes a function until the server that has the key has heard of it.
    fn invoke(&mut self, function: &str, key: u64, arguments: &[u8]) -> Result<Vec<u8>, Error> {
        invoke(&mut self.client, self.table, function, key, arguments)
    }

    fn statistic(&self, server: usize, name: &str) -> u64 {
        let statistics = self.cluster.servers[server].admin().tenant_statistics("acme").expect("counters");
        statistics.iter().find(|statistic| statistic.name == name).expect("a counter").value
    }
}

fn invoke(
    client: &mut Client,
    table: u32,
    function: &str,
    key: u64,
    arguments: &[u8],
) -> Result<Vec<u8>, Error> {
    comes("a server that has heard of the extension", || {
        match client.invoke(function, table, &key.to_le_bytes(), arguments) {
            Err(error) if error.status() == Some(Status::UnknownExtension) => None,
            answer => Some(answer),
        }
    })
}

/// Keys of a half.
fn keys(is_upper: bool) -> impl Iterator<Item = u64> {
    (0..).filter(move |key: &u64| (store::hash(&key.to_le_bytes()) >= HALF) == is_upper)
}

/// What `one` says of an object.
fn found(version: u64, value: &[u8]) -> Vec<u8> {
    [&[1], &version.to_le_bytes()[..], value].concat()
}

#[test]
fn an_invocation_reads_at_other_servers_and_writes_at_its_own() {
    let mut halves = Halves::start(2);
    halves.install();
    let (table, here) = (halves.table, keys(false).next().expect("a key"));
    let there: Vec<u64> = keys(true).take(40).collect();
    let mut sum = 0;
    for &key in &there {
        let version = halves.client.put(table, &key.to_le_bytes(), &key.to_le_bytes()).expect("a put");
        let answer = halves.invoke("reads.one", here, &key.to_le_bytes()).expect("an answer");
        assert_eq!(answer, found(version, &key.to_le_bytes()));
        sum += key;
    }
    let absent = keys(true).nth(40).expect("a key").to_le_bytes();
    assert_eq!(halves.invoke("reads.one", here, &absent).expect("an answer"), [0]);
    // Some here, some there, in one call.
    let own: Vec<u64> = keys(false).skip(1).take(10).collect();
    for &key in &own {
        halves.client.put(table, &key.to_le_bytes(), &key.to_le_bytes()).expect("a put");
        sum += key;
    }
    let asked: Vec<u8> = own.iter().chain(&there).flat_map(|key| key.to_le_bytes()).collect();
    assert_eq!(halves.invoke("reads.all", here, &asked).expect("an answer"), sum.to_le_bytes());
    let large = vec![7; 700_000];
    let version = halves.client.put(table, &absent, &large).expect("a put");
    assert_eq!(halves.invoke("reads.one", here, &absent).expect("an answer"), found(version, &large));
    // A copy of a request that only reads is executed too, on a loaded machine.
    assert!(halves.statistic(0, "remote_reads") >= 82);
    assert!(halves.statistic(0, "remote_read_bytes") > 700_000);
    // Writes.
    let refused = halves.invoke("reads.both", here, &absent).expect_err("the other half is elsewhere");
    assert_eq!(refused.status(), Some(Status::NotLocal));
    assert_eq!(halves.client.get(table, &here.to_le_bytes()).expect("an answer"), None);
    // A tenant that has nothing of it.
    let change = LimitChange { limit: "local_only", value: Some(1) };
    halves.cluster.servers[0].admin().tenant_limits_set("acme", &[change]).expect("a limit");
    assert_eq!(halves.invoke("reads.one", here, &there[0].to_le_bytes()).expect("an answer"), [2]);
    assert!(halves.statistic(0, "remote_reads_refused") >= 1);
}

#[test]
fn what_an_invocation_reads_is_right_while_it_moves_between_servers() {
    const KEYS: usize = 300;
    let mut halves = Halves::start(3);
    halves.install();
    let (table, here) = (halves.table, keys(false).next().expect("a key"));
    let there: Vec<u64> = keys(true).take(KEYS).collect();
    for &key in &there {
        halves.client.put(table, &key.to_le_bytes(), &0_u64.to_le_bytes()).expect("a put");
    }
    halves.invoke("reads.one", here, &there[0].to_le_bytes()).expect("the extension is there");
    let is_over = AtomicBool::new(false);
    let (server, tenant) = (&halves.cluster.servers[0], &halves.tenant);
    let (rounds, unanswered) = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut client, mut random) = (server.client(tenant), Rng::with_seed(11));
            let (mut rounds, mut unanswered) = (0_u64, 0);
            while !is_over.load(Ordering::Relaxed) || rounds < 100 {
                let key = there[random.usize(0..KEYS)];
                rounds += 1;
                let value = rounds.to_le_bytes();
                let version = client.put(table, &key.to_le_bytes(), &value).expect("a put");
                let answer = invoke(&mut client, table, "reads.one", here, &key.to_le_bytes());
                match answer.expect("an answer") {
                    // Nobody could say in half a second: a loaded machine.
                    answer if answer == [3] => unanswered += 1,
                    answer => assert_eq!(answer, found(version, &value), "key {key} in round {rounds}"),
                }
            }
            (rounds, unanswered)
        });
        for to in [2, 1, 0, 1] {
            halves.migrate(HALF..=u64::MAX, to);
        }
        is_over.store(true, Ordering::Relaxed);
        reader.join().expect("the reader")
    });
    assert!(rounds > 4 * unanswered, "{unanswered} of {rounds} unanswered");
    assert!(halves.statistic(0, "remote_reads") > 0);
}

#[test]
fn a_server_that_is_silent_or_gone_is_told_as_such_and_holds_nobody_up() {
    let mut halves = Halves::start(2);
    halves.install();
    let (table, here) = (halves.table, keys(false).next().expect("a key"));
    let there = keys(true).next().expect("a key").to_le_bytes();
    halves.client.put(table, &here.to_le_bytes(), b"here").expect("a put");
    assert_eq!(halves.invoke("reads.one", here, &there).expect("an answer"), [0]);
    // One that takes what it is asked and says nothing, for as long as a worker waits several times over.
    halves.cluster.servers[1].pause(true);
    let begun = Instant::now();
    let answer = halves.invoke("reads.one", here, &there).expect("an answer");
    assert_eq!(answer, [3]);
    assert!(begun.elapsed() > Duration::from_millis(450), "it was given its time");
    let answer = halves.invoke("reads.one", here, &here.to_le_bytes()).expect("an answer");
    assert_eq!(answer[0], 1);
    halves.cluster.servers[1].pause(false);
    comes("an answer of the one that stood still", || {
        let answer = halves.invoke("reads.one", here, &there).expect("an answer");
        (answer == [0]).then_some(())
    });
    halves.cluster.servers[1].kill();
    let mut client = halves.cluster.servers[0].client(&halves.tenant);
    for _ in 0..3 {
        let answer = invoke(&mut client, table, "reads.one", here, &there).expect("an answer");
        assert_eq!(answer, [3]);
        let answer = invoke(&mut client, table, "reads.one", here, &here.to_le_bytes()).expect("an answer");
        assert_eq!((answer[0], &answer[9..]), (1, &b"here"[..]));
    }
    let error = invoke(&mut client, table, "reads.all", here, &there).expect_err("nobody has it");
    assert_eq!(error.status(), Some(Status::Unavailable));
    assert!(halves.statistic(0, "remote_reads_unanswered") >= 4);
}

fn ask(client: &mut Client, table: u32, call: &Call<'_>) -> Vec<u8> {
    let (mut key, mut arguments) = (Vec::new(), Vec::new());
    call.encode(&mut key, &mut arguments);
    comes("a server that has heard of the extension", || {
        match client.invoke(&format!("tao.{}", call.function()), table, &key, &arguments) {
            Err(error) if error.status() == Some(Status::UnknownExtension) => None,
            answer => Some(answer.expect("an answer")),
        }
    })
}

#[test]
fn hops_over_a_graph_of_several_servers_are_those_of_the_edge_list() {
    const NODES: u64 = 200;
    let cluster = Cluster::start(3, &Settings::default());
    let tenant = cluster.servers[0].tenant("acme");
    let mut client = cluster.servers[0].client(&tenant);
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root");
    install(&cluster.servers[0], &tenant, &root.join("ext/tao"));
    let spread = client::TableOptions::default();
    let table = client.table_create_spread("graph", spread, 3).expect("a table of three tablets");
    for server in &cluster.servers {
        comes("the table at each server", || server.client(&tenant).table_open("graph").ok());
    }
    let mut random = Rng::with_seed(3);
    let mut edges: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (left, right) in (0..4_000).map(|_| (random.u64(0..NODES), random.u64(0..NODES))) {
        if left != right {
            edges.entry(left).or_default().insert(right);
            edges.entry(right).or_default().insert(left);
        }
    }
    for (id, ends) in &edges {
        let entries: Vec<Entry<'_>> =
            ends.iter().map(|end| Entry { id2: ObjectId(*end), time: *end, data: b"" }).collect();
        for put in list_records(ListId { id1: ObjectId(*id), atype: FRIEND }, &entries) {
            client.put(table, &put.key, &put.value).expect("a put");
        }
    }
    for (&id, ends) in edges.iter().step_by(10) {
        let list = ListId { id1: ObjectId(id), atype: FRIEND };
        let count = ask(&mut client, table, &Call::AssocCount(list));
        assert_eq!(decode_count(&count), Some(ends.len() as u64));
        let call = Call::FriendsOfFriends { list, limit: 10, visits: 0, objects: false };
        let reply = ask(&mut client, table, &call);
        let answer = FriendsOfFriends::decode(&reply).expect("an answer");
        let far = ends.iter().flat_map(|end| &edges[end]).filter(|far| **far != id && !ends.contains(far));
        let far: BTreeSet<_> = far.collect();
        assert_eq!(
            (answer.complete, answer.distinct as usize),
            (true, far.len()),
            "friends of friends of {id}"
        );
    }
    let read: u64 = cluster
        .servers
        .iter()
        .flat_map(|server| server.admin().tenant_statistics("acme").expect("counters"))
        .filter(|statistic| statistic.name == "remote_reads")
        .map(|statistic| statistic.value)
        .sum();
    assert!(read > 100, "{read} objects came from other servers");
}

/// Installs an extension from its source.
fn install(server: &Server, tenant: &Tenant, source: &std::path::Path) {
    let output = server.command(tenant).args(["ext", "install"]).arg(source).output();
    let output = output.expect("the command runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
