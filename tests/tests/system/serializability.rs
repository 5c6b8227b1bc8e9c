//! Transactions of clients are strictly serializable over several keys, whatever happens to their frames and to the server. What
//! happens to the servers of a cluster meanwhile: `cluster_linearizability`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ClientConfig, Durability, Error, TableOptions};
use fastrand::Rng;
use tests::effort::{rng, rounds};
use tests::patience::{Stopping, answered, comes};
use tests::raw::PATIENCE;
use tests::serializability::{Fate, Number, Observed, check};
use tests::server::Server;

use crate::transfer::network::{Faults, Network};

/// Lists are of one tag each, so that a transaction finds its lists at one server.
const TAGS: u64 = 6;
/// Lists of a tag.
const LISTS: u64 = 5;
/// From time to time clients go on to new lists, since these grow.
const GENERATION_S: u64 = 5;

/// Lists that clients append to in transactions.
pub struct Lists {
    table: u32,
    began: Instant,
    next: AtomicU64,
    /// Clients read and write outside of transactions, which is to be noticed.
    is_hasty: bool,
}

fn list_number(generation: u64, tag: u64, list: u64) -> Number {
    (generation * TAGS + tag) * LISTS + list
}

fn name(number: Number) -> Vec<u8> {
    format!("{{{}}}:{}", number / LISTS, number % LISTS).into_bytes()
}

fn decode(value: Option<Vec<u8>>) -> Vec<Number> {
    let value = value.unwrap_or_default();
    value.chunks_exact(8).map(|bytes| Number::from_le_bytes(bytes.try_into().expect("eight bytes"))).collect()
}

fn encode(list: &[Number]) -> Vec<u8> {
    list.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl Lists {
    /// The table's name.
    pub const TABLE: &str = "lists";

    /// Creates their table.
    pub fn begin(client: &mut Client, durability: Durability, tablets: u16) -> Lists {
        let options = TableOptions { tagged: true, durability: Some(durability), ..TableOptions::default() };
        let table = answered("a table", || match tablets {
            1 => client.table_create_with(Self::TABLE, options),
            _ => client.table_create_spread(Self::TABLE, options, tablets),
        });
        Lists { table, began: Instant::now(), next: AtomicU64::new(1), is_hasty: false }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Reads lists and appends to them until it is over.
    pub fn work(&self, mut client: Client, mut random: Rng, is_over: &AtomicBool) -> Vec<Observed> {
        let mut observed = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let (generation, tag) = (self.began.elapsed().as_secs() / GENERATION_S, random.u64(0..TAGS));
            let lists = 1 + random.usize(0..3);
            let lists: BTreeSet<Number> =
                (0..lists).map(|_| list_number(generation, tag, random.u64(0..LISTS))).collect();
            let appends: BTreeSet<Number> = lists.iter().copied().filter(|_| random.u8(0..3) > 0).collect();
            observed.push(self.append(&mut client, &lists, appends));
        }
        observed
    }

    fn append(&self, client: &mut Client, lists: &BTreeSet<Number>, appends: BTreeSet<Number>) -> Observed {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (begun, mut reads) = (self.now(), BTreeMap::new());
        if self.is_hasty {
            for list in lists {
                let object = client.get(self.table, &name(*list)).expect("an answer");
                let mut read = decode(object.map(|object| object.value));
                reads.insert(*list, read.clone());
                if appends.contains(list) {
                    read.push(number);
                    client.put(self.table, &name(*list), &encode(&read)).expect("room");
                }
            }
            return Observed { number, begun, ended: self.now(), fate: Fate::Committed, reads, appends };
        }
        let ended = client.transaction(|tx| {
            reads.clear();
            for list in lists {
                let mut read = decode(tx.get(self.table, &name(*list))?);
                reads.insert(*list, read.clone());
                if appends.contains(list) {
                    read.push(number);
                    tx.put(self.table, &name(*list), &encode(&read));
                }
            }
            Ok(())
        });
        let fate = match &ended {
            Ok(()) => Fate::Committed,
            Err(error) if error.outcome_is_unknown() => Fate::Unknown,
            Err(Error::Full | Error::Unintelligible { .. }) => panic!("{ended:?}"),
            Err(_) => Fate::Aborted,
        };
        Observed { number, begun, ended: self.now(), fate, reads, appends }
    }

    /// Compares what was observed with the lists as they are; returns what is wrong.
    pub fn check(&self, client: &mut Client, observed: &[Observed]) -> Result<(), String> {
        let used: BTreeSet<Number> = observed.iter().flat_map(|one| &one.appends).copied().collect();
        let list = |number: Number| {
            let object = comes("a list", || client.get(self.table, &name(number)).ok());
            (number, decode(object.map(|object| object.value)))
        };
        let lists: BTreeMap<Number, Vec<Number>> = used.into_iter().map(list).collect();
        let count = |fate| observed.iter().filter(|one| one.fate == fate).count();
        let [committed, unknown, aborted] = [Fate::Committed, Fate::Unknown, Fate::Aborted].map(count);
        println!(
            "{committed} committed, {unknown} of unknown outcome, {aborted} aborted, {} lists",
            lists.len()
        );
        assert!(committed > 50, "transactions were committed");
        check(observed, &lists).map(drop)
    }
}

#[test]
fn transactions_are_serializable_over_a_path_that_loses_and_doubles_and_over_crashes() {
    const CLIENTS: usize = 4;
    let mut server = Server::start();
    let tenant = server.tenant("acme");
    let lists = Lists::begin(&mut server.client(&tenant), Durability::Synced, 1);
    let (mut random, is_over) = (rng(), AtomicBool::new(false));
    let faults = Faults { lost: 30, doubled: 60, held: 60 };
    let network = Network::to(&[server.address(); CLIENTS], faults, random.fork());
    let observed = thread::scope(|scope| {
        let _stopping = Stopping(&is_over);
        let workers: Vec<_> = (0..CLIENTS)
            .map(|link| {
                let core_addresses = vec![network.address(link)];
                // Some calls have no answer, so that their outcome is unknown.
                let call_timeout = if link == 0 { Duration::from_millis(50) } else { PATIENCE };
                let config = ClientConfig { call_timeout, core_addresses, ..ClientConfig::default() };
                let address = server.address().to_string();
                let client = Client::connect_with(&address, &tenant.name, &tenant.secret, config);
                let (lists, is_over, random) = (&lists, &is_over, random.fork());
                let client = client.expect("the right secret");
                scope.spawn(move || lists.work(client, random, is_over))
            })
            .collect();
        for _ in 0..rounds(3, 60) {
            thread::sleep(Duration::from_millis(random.u64(300..1_500)));
            server.kill();
            server.restart();
        }
        thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        let all = workers.into_iter().flat_map(|worker| worker.join().expect("no panic"));
        all.collect::<Vec<_>>()
    });
    println!("{:?}", network.end());
    assert_eq!(lists.check(&mut server.client(&tenant), &observed), Ok(()));
}

#[test]
fn clients_that_write_outside_of_transactions_are_caught() {
    let server = Server::start();
    let tenant = server.tenant("acme");
    let lists = Lists::begin(&mut server.client(&tenant), Durability::Memory, 1);
    let lists = Lists { is_hasty: true, ..lists };
    let (mut random, is_over) = (rng(), AtomicBool::new(false));
    let observed: Vec<Observed> = thread::scope(|scope| {
        let _stopping = Stopping(&is_over);
        let workers = [(); 4].map(|()| {
            let (client, random) = (server.client(&tenant), random.fork());
            scope.spawn(|| lists.work(client, random, &is_over))
        });
        thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
    });
    let why = lists.check(&mut server.client(&tenant), &observed).expect_err("they overwrite each other");
    println!("{why}");
}
