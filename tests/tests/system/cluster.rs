//! Three servers over one etcd: plans, whoever dies in the middle of them, and etcd away for a while. What was acknowledged by
//! servers that live is there.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{
    Admin, Client, ClusterStatus, Completion, Condition, Error, PlanEntry, PlanProgress, Request, Status,
    TableOptions, TabletEntry,
};
use serde_json::Value;
use tests::cluster::Cluster;
use tests::effort::{rng, rounds};
use tests::etcd::Etcd;
use tests::patience::{answered, comes};
use tests::raw::PATIENCE;
use tests::server::{Server, Settings, Tenant, binary, patient};

const SERVERS: u32 = 3;
const TABLE: &str = "acme/data";

/// Three servers over one etcd, and a tenant.
struct ThreeServers {
    /// By their numbers, from 1 on.
    servers: Vec<Server>,
    etcd: Etcd,
    acme: Tenant,
}

impl ThreeServers {
    /// Three servers that know of each other, one of which coordinates.
    fn start() -> Self {
        let settings = Settings { memory: "192MiB".into(), ..Settings::default() };
        let Cluster { servers, etcd } = Cluster::start(SERVERS as usize, &settings);
        let acme = servers[0].tenant("acme");
        let cluster = Self { servers, etcd, acme };
        comes("three servers", || {
            let status = cluster.status(1);
            (status.coordinator > 0 && status.members.iter().filter(|row| row.is_present).count() == 3)
                .then_some(())
        });
        cluster
    }

    fn admin(&self, server: u32) -> Admin {
        self.servers[server as usize - 1].admin()
    }

    fn status(&self, server: u32) -> ClusterStatus {
        answered("the cluster's status", || self.admin(server).cluster_status())
    }

    /// A client at each of these servers, and the number of the table `data`.
    fn clients(&self, servers: &[u32]) -> Everywhere {
        let clients = servers.iter().map(|&server| {
            let client = comes("a session", || {
                let server = &self.servers[server as usize - 1];
                let address = server.address().to_string();
                Client::connect(&address, &self.acme.name, &self.acme.secret).ok()
            });
            (server, client)
        });
        let mut clients: Vec<_> = clients.collect();
        let table = comes("the table", || clients[0].1.table_open("data").ok());
        for (_, client) in &mut clients {
            comes("the table at each", || client.table_open("data").ok());
        }
        Everywhere { clients, table }
    }

    fn create_table(&self, tablets: u16) {
        let mut client = self.servers[0].client(&self.acme);
        answered("the table is created", || {
            match client.table_create_spread("data", TableOptions::default(), tablets) {
                // What etcd did not answer in time may have been made.
                Err(error) if error.status() == Some(Status::AlreadyExists) => Ok(()),
                made => made.map(drop),
            }
        });
    }

    fn tablets(&self, server: u32) -> Vec<TabletEntry> {
        answered("the tablets", || self.admin(server).tablet_list())
    }

    /// How a plan ends, as a server sees it.
    fn end(&self, server: u32, plan: &PlanEntry) -> PlanEntry {
        comes("the end of a plan", || {
            let status = self.admin(server).cluster_status().ok()?;
            let now = status.plans.into_iter().find(|other| other.id == plan.id)?;
            (now.progress != PlanProgress::Running).then_some(now)
        })
    }
}

/// A client that asks one server after the other, until it is the one that owns a key.
struct Everywhere {
    clients: Vec<(u32, Client)>,
    table: u32,
}

impl Everywhere {
    fn ask<T>(&mut self, act: impl Fn(&mut Client, u32) -> Result<T, Error>) -> (u32, T) {
        let table = self.table;
        comes("an owner", || {
            self.clients.iter_mut().find_map(|(server, client)| Some((*server, act(client, table).ok()?)))
        })
    }

    fn put(&mut self, key: u64, value: u64) -> u32 {
        self.ask(|client, table| client.put(table, &key.to_le_bytes(), &value.to_le_bytes())).0
    }

    fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        self.ask(|client, table| client.get(table, &key.to_le_bytes())).1.map(|object| object.value)
    }
}

fn owner_of(tablets: &[TabletEntry], key: u64) -> u32 {
    let hash = store::hash(&key.to_le_bytes());
    let tablet = tablets.iter().find(|tablet| (tablet.first..=tablet.last).contains(&hash));
    tablet.expect("every hash has an owner").server
}

#[test]
fn a_server_is_drained_though_the_coordinator_is_killed_in_the_middle() {
    let mut cluster = ThreeServers::start();
    cluster.create_table(9);
    let mut clients = cluster.clients(&[1, 2, 3]);
    for key in 0..600 {
        clients.put(key, key);
    }
    let coordinator = cluster.status(1).coordinator;
    let [drained, other] = *(1..=SERVERS).filter(|server| *server != coordinator).collect::<Vec<_>>() else {
        panic!("two others");
    };
    let before = cluster.tablets(other);
    assert_eq!(before.iter().filter(|tablet| tablet.server == drained).count(), 3, "new tablets are spread");
    let plan = cluster.admin(drained).cluster_drain(drained).expect("nothing else runs");
    assert!(cluster.admin(other).cluster_balance().is_err(), "one plan at a time");
    comes("a move", || {
        let plan = cluster.status(other).plans.pop()?;
        (plan.in_flight + plan.done > 0).then_some(())
    });
    cluster.servers[coordinator as usize - 1].kill();
    let mut end = cluster.end(other, &plan);
    // A move to the one that died came to nothing, which ends the plan: the others own it all.
    while end.progress == PlanProgress::Stopped {
        let again = cluster.admin(other).cluster_drain(drained).expect("nothing else runs");
        end = cluster.end(other, &again);
    }
    let after = cluster.tablets(other);
    assert!(after.iter().all(|tablet| tablet.server != drained), "{after:?}");
    let status = cluster.status(other);
    assert!([drained, other].contains(&status.coordinator), "another one coordinates");
    let gone: Vec<u32> = status.members.iter().filter(|row| !row.is_present).map(|row| row.id).collect();
    assert_eq!(gone, [coordinator]);
    let mut clients = cluster.clients(&[drained, other]);
    for key in (0..600).filter(|key| owner_of(&after, *key) != coordinator) {
        assert_eq!(clients.get(key), Some(key.to_le_bytes().to_vec()), "key {key}");
    }

    let adopted = comes("it is gone", || cluster.admin(other).cluster_adopt(coordinator).ok());
    let lost = after.iter().filter(|tablet| tablet.server == coordinator).count();
    assert_eq!((adopted.tablets as usize, adopted.remaining), (lost, false));
    let now = cluster.tablets(other);
    assert!(now.iter().all(|tablet| tablet.server == other), "the drained one gets nothing: {now:?}");
    assert_eq!(now.iter().filter(|tablet| tablet.emptied_ms > 0).count(), lost, "what is lost is said to be");
    for key in (0..600).filter(|key| owner_of(&after, *key) == coordinator) {
        assert_eq!(clients.get(key), None, "others serve it, empty");
    }
    let text = drawn(&cluster, other, &["cluster", "status"]);
    assert!(
        text.contains("missing") && text.contains("drained") && text.contains("lost its objects at"),
        "{text}"
    );
    cluster.servers[coordinator as usize - 1].restart();
    comes("it is back", || cluster.status(other).members.iter().all(|row| row.is_present).then_some(()));
}

/// What `splinter` prints, asked by the administrator of a server.
fn drawn(cluster: &ThreeServers, server: u32, arguments: &[&str]) -> String {
    let server = &cluster.servers[server as usize - 1];
    let ran = Command::new(binary("splinter"))
        .env("SPLINTER_ADDRESS", server.address().to_string())
        .env("SPLINTER_ADMIN_SECRET", server.admin_secret())
        .args(arguments)
        .output()
        .expect("the program runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

#[test]
fn data_goes_on_while_etcd_stands_still_and_a_plan_goes_on_after_it() {
    let cluster = ThreeServers::start();
    cluster.create_table(1);
    let mut clients = cluster.clients(&[1, 2, 3]);
    for key in 0..400 {
        clients.put(key, key);
    }
    let mut admin = cluster.admin(1);
    let plan = answered("a plan", || admin.cluster_balance());
    comes("a move", || {
        let plan = admin.cluster_status().ok()?.plans.pop()?;
        (plan.in_flight + plan.done > 0).then_some(())
    });
    let mut client = cluster.servers[0].client(&cluster.acme);
    let table = client.table_open("data").expect("it is there");
    let session = client.session();
    cluster.etcd.pause(true);
    let mut served = [0; 2];
    let since = Instant::now();
    // What moves is served for as long as a lease lasts, all else for as long as etcd is away.
    for (round, until) in [(0, Duration::from_secs(4)), (1, PATIENCE)] {
        for key in 0..60_u64 {
            let (key, value) = (key.to_le_bytes(), (key + key % 2).to_le_bytes());
            let condition = Condition::Always;
            session
                .submit(&Request::Put { table, key: &key, value: &value, condition }, round)
                .expect("a place");
        }
        // A third of the table stays where it is.
        while since.elapsed() < until && (round == 0 || served[1] < 10) {
            let take = &mut |completion: Completion<'_>| {
                assert_eq!(completion.status, Ok(Status::Ok));
                served[completion.tag as usize] += 1;
            };
            session.poll(take).expect("a session");
            session.wait(Duration::from_millis(10)).expect("a port");
        }
    }
    assert!(served[0] >= 10 && served[1] >= 10, "{served:?}");
    assert!(admin.tablet_split(TABLE, 1 << 62).is_err(), "nothing of the cluster changes");
    cluster.etcd.pause(false);
    while session.outstanding() > 0 {
        let take = &mut |completion: Completion<'_>| assert_eq!(completion.status, Ok(Status::Ok));
        session.poll_waiting(take).expect("all that waited is answered");
    }
    let mut end = cluster.end(1, &plan);
    // A lease that ran out meanwhile may have undone a move.
    while end.progress == PlanProgress::Stopped {
        let again = comes("a plan", || cluster.admin(1).cluster_balance().ok());
        end = cluster.end(1, &again);
    }
    let tablets = cluster.tablets(1);
    let owners: BTreeSet<u32> = tablets.iter().map(|tablet| tablet.server).collect();
    assert_eq!(owners.len(), 3, "each owns something: {tablets:?}");
    for key in 0..400 {
        let value = if key < 60 { key + key % 2 } else { key };
        assert_eq!(clients.get(key), Some(value.to_le_bytes().to_vec()), "key {key}");
    }
    let json = drawn(&cluster, 1, &["--output", "json", "cluster", "status"]);
    let status: Value = serde_json::from_str(&json).expect("one value");
    assert_eq!(status["servers"].as_array().map(Vec::len), Some(3));
    assert_eq!(status["tablets"].as_array().map(Vec::len), Some(tablets.len()));
    assert_eq!(status["plans"][0]["goal"], "balance");
}

#[test]
fn tablets_are_cut_and_joined_while_every_increment_counts() {
    let cluster = ThreeServers::start();
    cluster.create_table(3);
    let over = AtomicBool::new(false);
    let mut random = rng();
    let counted: BTreeMap<u64, i64> = thread::scope(|scope| {
        let load = |first: u64| {
            let (cluster, over) = (&cluster, &over);
            move || {
                let (mut clients, mut counted) = (cluster.clients(&[1, 2, 3]), BTreeMap::<u64, i64>::new());
                while !over.load(Ordering::Relaxed) {
                    let key = first + counted.values().sum::<i64>() as u64 % 50;
                    clients.ask(|client, table| match client.increment(table, &key.to_le_bytes(), 1) {
                        // What was refused was not executed.
                        Err(error @ Error::Refused { .. }) => Err(error),
                        executed => Ok(executed.expect("an answer")),
                    });
                    *counted.entry(key).or_default() += 1;
                }
                counted
            }
        };
        let threads = [scope.spawn(load(0)), scope.spawn(load(1_000))];
        let mut admin = cluster.admin(2);
        for _ in 0..rounds(60, 400) {
            let at = random.u64(1..1 << 32) << 32;
            match admin.tablet_split(TABLE, at) {
                // What etcd did not answer in time may have been done, or not.
                Err(error) if error.status() == Some(Status::Unavailable) => continue,
                split => split.expect("room"),
            }
            let tablets = answered("the tablets", || admin.tablet_list());
            let pairs = tablets.windows(2).filter(|pair| pair[0].server == pair[1].server);
            let edges: Vec<u64> = pairs.map(|pair| pair[1].first).collect();
            if edges.len() > 5 {
                let edge = edges[random.usize(..edges.len())];
                match admin.tablet_merge(TABLE, edge) {
                    Err(error) if error.status() == Some(Status::Unavailable) => {}
                    merged => merged.expect("both are of one server"),
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut clients = cluster.clients(&[1, 2, 3]);
    assert!(!counted.is_empty());
    for (key, count) in counted {
        let (_, total) = clients.ask(|client, table| client.increment(table, &key.to_le_bytes(), 0));
        assert_eq!(total.0, count, "key {key}");
    }
}

#[test]
fn the_readmes_commands_for_several_servers_do_what_they_say() {
    let cluster = ThreeServers::start();
    let first = &cluster.servers[0];
    let demo = first.tenant("demo");
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(readme).expect("the README");
    let section = readme.split("## Several servers").nth(1).expect("a section");
    let block = section.split("```").nth(1).expect("a block of commands");
    let commands = block.lines().filter_map(|line| line.split(" #").next()?.trim().strip_prefix("splinter "));
    let mut ran = Vec::new();
    for line in commands {
        let output = first
            .command(&demo)
            .env("SPLINTER_ADMIN_SECRET", first.admin_secret())
            .args(line.split_whitespace())
            .output()
            .expect("the program runs");
        assert!(output.status.success(), "splinter {line}: {}", String::from_utf8_lossy(&output.stderr));
        ran.extend(line.split(' ').nth(1).map(str::to_owned));
    }
    assert_eq!(ran, ["create", "t", "status", "migrate", "drain"]);
}

#[test]
fn a_server_that_is_gone_is_adopted_as_the_status_says() {
    let mut cluster = ThreeServers::start();
    cluster.create_table(3);
    let tablets = cluster.tablets(1);
    let of_third: Vec<u64> = (0..100).filter(|key| owner_of(&tablets, *key) == 3).collect();
    let mut clients = cluster.clients(&[1, 2, 3]);
    let before = |clients: &mut Everywhere, key: u64| {
        clients.ask(|client, table| client.put(table, &key.to_le_bytes(), b"before")).1
    };
    let newest = of_third.iter().map(|key| before(&mut clients, *key)).max().expect("some keys");
    drop(clients);
    cluster.servers[2].kill();
    let warning = "splinter cluster adopt 3";
    comes("a word on the server that is gone", || {
        drawn(&cluster, 1, &["cluster", "status"]).contains(warning).then_some(())
    });
    let adopted = comes("the adoption", || {
        let refused = match cluster.admin(1).cluster_adopt(3) {
            Ok(adopted) => return Some(adopted),
            Err(error) => error.to_string(),
        };
        assert!(refused.contains("gone") && !refused.contains("drain"), "{refused}");
        None
    });
    assert_eq!(adopted.tablets, 1);
    let mut clients = cluster.clients(&[1, 2]);
    for key in of_third {
        let version = clients.ask(|client, table| client.put(table, &key.to_le_bytes(), b"after")).1;
        assert!(version > newest, "{version} is not above {newest}");
    }
    let emptied =
        cluster.servers[0].client(&cluster.acme).table_stat("data").expect("it is there").emptied_ms;
    assert!(emptied.is_some(), "the tenant is told that it lost objects");
    let refusal = cluster.admin(1).cluster_adopt(2).expect_err("it runs").to_string();
    assert!(refusal.contains("splinter cluster drain 2"), "{refusal}");
}

#[test]
fn a_new_client_gets_in_though_a_server_that_is_named_first_is_dead_or_stands_still() {
    let mut cluster = ThreeServers::start();
    cluster.create_table(3);
    let mut everywhere = cluster.clients(&[1, 2, 3]);
    everywhere.put(7, 7);
    drop(everywhere);
    let address = |cluster: &ThreeServers, server: usize| cluster.servers[server - 1].address().to_string();
    let acme = cluster.acme.clone();
    // Server 2 takes connections and answers nothing.
    cluster.servers[1].pause(true);
    let listed = format!("{},{}", address(&cluster, 2), address(&cluster, 3));
    let began = Instant::now();
    let client = Client::connect_with(&listed, &acme.name, &acme.secret, patient());
    let (took, client) = (began.elapsed(), client.map(|client| client.address().to_owned()));
    cluster.servers[1].pause(false);
    assert_eq!(client.expect("server 3 lets it in"), address(&cluster, 3));
    assert!(took < PATIENCE / 2, "it did not wait until server 2 was given up: {took:?}");
    comes("the end of a session that nobody wanted", || {
        let sessions = cluster.admin(2).session_list().ok()?;
        sessions.iter().all(|session| session.tenant != "acme").then_some(())
    });

    let dead = address(&cluster, 1);
    let known = cluster.tablets(1);
    cluster.servers[0].kill();
    let listed = format!("{dead}, {}", address(&cluster, 2));
    let key = (0..1_000).find(|key| owner_of(&known, *key) == 2).expect("a key of server 2");
    let ran = |address: &str| {
        let mut command = cluster.servers[1].command(&acme);
        let key = format!("0x{}", key.to_le_bytes().map(|byte| format!("{byte:02x}")).concat());
        command.env("SPLINTER_ADDRESS", address).args(["put", "data", &key, "v"]);
        command.output().expect("the program runs")
    };
    let one = ran(&dead);
    assert_eq!(one.status.code(), Some(6), "{}", String::from_utf8_lossy(&one.stderr));
    let listed = ran(&listed);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let none = ran(&format!("{dead},127.0.0.1:1"));
    let said = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(6) && said.contains(&dead) && said.contains("127.0.0.1:1:"), "{said}");
    let wrong =
        Client::connect(&address(&cluster, 2), &acme.name, "wrong").map(drop).expect_err("a wrong secret");
    let listed = format!("{},{}", address(&cluster, 2), address(&cluster, 3));
    let refused = Client::connect(&listed, &acme.name, "wrong").map(drop).expect_err("a wrong secret");
    assert_eq!((refused.status(), wrong.status()), (Some(Status::BadSecret), Some(Status::BadSecret)));
}

#[test]
fn acts_that_etcd_did_not_answer_are_in_the_audit_log_once_it_does() {
    let cluster = ThreeServers::start();
    cluster.create_table(1);
    let mut admin = cluster.admin(1);
    cluster.etcd.pause(true);
    let splits: Vec<String> = (1..=3_u64)
        .map(|number| {
            let at = number << 61;
            assert!(admin.tablet_split(TABLE, at).is_err(), "nothing of the cluster changes");
            format!("cluster split {TABLE} {at:016x}")
        })
        .collect();
    cluster.etcd.pause(false);
    comes("the refused acts in the audit log, in order", || {
        let acts = admin.audit(0, 100).ok()?;
        let mut refused: Vec<_> =
            acts.iter().map(|act| &act.act).filter(|act| splits.contains(act)).collect();
        // One whose recording was cut off may be there twice.
        refused.dedup();
        refused.iter().copied().eq(&splits).then_some(())
    });
}

#[test]
fn a_server_that_is_started_again_at_once_after_a_crash_is_registered_and_moves_tablets() {
    let mut cluster = ThreeServers::start();
    cluster.create_table(1);
    let owner = cluster.tablets(1)[0].server;
    let other = owner % SERVERS + 1;
    let server = &mut cluster.servers[other as usize - 1];
    server.kill();
    server.restart();
    let mut admin = cluster.admin(owner);
    comes("a move to the server that was started again", || {
        admin.migration_begin(TABLE, 0..=u64::MAX, other, None).ok()
    });
    comes("the end of the move", || {
        let tablets = cluster.admin(owner).tablet_list().ok()?;
        tablets.iter().all(|tablet| tablet.server == other).then_some(())
    });
    let log = cluster.servers[other as usize - 1].log();
    assert!(!log.contains("a server with this number"), "it had to wait for its own lease: {log}");
}
