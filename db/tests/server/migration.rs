//! Tablets that move between two servers of one cluster over a real etcd.

mod at_once;
mod both;

use std::collections::BTreeMap;
use std::time::Instant;

use cluster::metadata::{Metadata, MigrationRow, Side};
use cluster::migration::{MigrationMode, MigrationPhase};
use control::{AdminRequest, Durability, TableId, TableOptions};
use db::control_plane::migrations::Figure;
use fastrand::Rng;
use store::HashRange;
use tempfile::TempDir;
use wire::{Condition, Request, Status, TenantId, reply};

use super::Site;
use super::client::{Client, Ended};
use super::cluster::{Cluster, metadata};
use super::etcd_process::EtcdProcess;
use super::patience::{PATIENCE, comes};

pub(super) struct Pair {
    /// Stop before their etcd does.
    pub(super) sites: [Site; 2],
    pub(super) _directories: [TempDir; 2],
    pub(super) metadata: Metadata,
    pub(super) _etcd: EtcdProcess,
}

/// A table of a tenant, a client at each server, and what should be in it.
pub(super) struct Table {
    pub(super) clients: [Client; 2],
    tenant: TenantId,
    pub(super) number: u32,
    model: BTreeMap<u64, Vec<u8>>,
    /// Whether reads ask both servers, and how many of them were put together of what both said.
    asks_both: bool,
    seen_frozen: u64,
}

impl Pair {
    fn start() -> Self {
        let Cluster { sites, directories, etcd } = Cluster::start();
        Self { sites, _directories: directories, metadata: metadata(&etcd), _etcd: etcd }
    }

    pub(super) fn numbers(&self) -> [u32; 2] {
        [0, 1].map(|site: usize| {
            self.sites[site].server.control().lease_cache.run().expect("a server of a cluster").server
        })
    }

    pub(super) fn table(&self) -> Table {
        let secret = self.sites[0].create_tenant("ann");
        let mut clients = [0, 1].map(|site: usize| self.sites[site].client("ann", &secret));
        // What is on the disk moves in one way only.
        let options = TableOptions { durability: Some(Durability::Memory), ..TableOptions::default() };
        let number = clients[0].create_table_with("t", options);
        comes(|| {
            let answer = clients[1].control.ask(&AdminRequest::TableOpen { name: "t" }).ok()?;
            Some(control::decode::<TableId>(&answer).expect("an id").id)
        });
        let tenant = self.metadata.tenant_find("ann").expect("etcd answers").expect("a tenant").id;
        Table { clients, tenant, number, model: BTreeMap::new(), asks_both: false, seen_frozen: 0 }
    }

    /// Begins to move some hashes to a server.
    pub(super) fn begin(&self, table: &Table, hashes: HashRange, to: usize) -> MigrationRow {
        self.begin_by(table, hashes, to, MigrationMode::Rocksteady)
    }

    fn begin_by(&self, table: &Table, hashes: HashRange, to: usize, mode: MigrationMode) -> MigrationRow {
        let target = self.numbers()[to];
        let whose = (table.tenant, table.number);
        let begun = self.metadata.migration_begin(whose, hashes, target, mode, 1);
        begun.expect("nothing else moves")
    }

    /// Whether a migration is over and both servers are done with it.
    pub(super) fn is_done(&self, row: &MigrationRow) -> bool {
        self.metadata.migration_find(row.id).expect("etcd answers").is_none()
    }

    pub(super) fn owner(&self, table: &Table, hash: u64) -> u32 {
        let tablets = self.metadata.tablets().expect("etcd answers");
        let row = tablets.iter().find(|row| row.table == table.number).expect("it is placed");
        row.tablets.iter().find(|tablet| tablet.hashes.contains(hash)).expect("all hashes").server
    }
}

pub(super) fn key(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

impl Table {
    /// Asks whoever owns the key.
    fn call(&mut self, request: &Request<'_>) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for client in &mut self.clients {
                let ended = client.call(request);
                if ended.0 != Ok(Status::NotOwned) {
                    return ended;
                }
            }
            assert!(Instant::now() < deadline, "nobody owns it");
        }
    }

    pub(super) fn put(&mut self, number: u64, value: &[u8]) {
        let (table, key) = (self.number, key(number));
        let put = Request::Put { table, key: &key, value, condition: Condition::Always };
        assert_eq!(self.call(&put).0, Ok(Status::Ok));
        self.model.insert(number, value.to_vec());
    }

    pub(super) fn get(&mut self, number: u64) -> Option<Vec<u8>> {
        if self.asks_both
            && let Some(known) = self.get_of_both(number, number as usize % 2)
        {
            return known;
        }
        match self.call(&Request::Get { table: self.number, key: &key(number) }) {
            (Ok(Status::Ok), body) => Some(reply::Object::decode(&body).expect("an object").value.to_vec()),
            (Ok(Status::NotFound), _) => None,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn check(&mut self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            assert_eq!(self.get(number), self.model.get(&number).cloned(), "key {number}");
        }
    }
}

#[test]
fn a_table_that_has_moved_is_served_by_its_target_alone_and_comes_back_whole() {
    let pair = Pair::start();
    let mut table = pair.table();
    let half = HashRange::new(1 << 63, u64::MAX).expect("half of them");
    for number in 0..3_000 {
        table.put(number, &[number as u8; 100]);
    }
    for (to, hashes) in
        [(1, half), (0, half), (1, HashRange::ALL), (0, half), (1, half), (0, HashRange::ALL), (1, half)]
    {
        let row = pair.begin(&table, hashes, to);
        comes(|| pair.is_done(&row).then_some(()));
        let target = pair.numbers()[to];
        assert_eq!([hashes.first(), hashes.last()].map(|hash| pair.owner(&table, hash)), [target; 2]);
        for number in (0..3_000).filter(|number| hashes.contains(store::hash(&key(*number)))).take(100) {
            let get = Request::Get { table: table.number, key: &key(number) };
            assert_eq!(table.clients[1 - to].status(&get), Status::NotOwned);
            assert_eq!(table.clients[to].status(&get), Status::Ok);
        }
        table.check(0..3_010);
        table.put(to as u64, b"another value");
    }
    assert_eq!(pair.metadata.migrations().expect("etcd answers"), []);
}

impl Table {
    /// One request of some kind for some key, and whether its answer is what it has to be.
    fn use_it(&mut self, random: &mut Rng, keys: u64) {
        let (number, table) = (random.u64(0..keys), self.number);
        let own = key(number);
        let before = self.model.get(&number).cloned();
        match random.u8(0..8) {
            0..3 => assert_eq!(self.get(number), before, "key {number}"),
            3 => {
                let value = vec![random.u8(..); random.usize(8..200)];
                self.put(number, &value);
            }
            4 => {
                let delete = Request::Delete { table, key: &own, condition: Condition::Always };
                let expected = if before.is_some() { Status::Ok } else { Status::NotFound };
                assert_eq!(self.call(&delete).0, Ok(expected), "key {number}");
                self.model.remove(&number);
            }
            5 => {
                let value = [7; 30];
                let put = Request::Put { table, key: &own, value: &value, condition: Condition::Absent };
                let expected = if before.is_none() { Status::Ok } else { Status::ConditionFailed };
                assert_eq!(self.call(&put).0, Ok(expected), "key {number}");
                self.model.entry(number).or_insert(value.to_vec());
            }
            _ => {
                // Counters have numbers of their own.
                let counter = key(number | 1 << 40);
                let increment = Request::Increment { table, key: &counter, delta: 3 };
                let (status, body) = self.call(&increment);
                let value = self.model.entry(number | 1 << 40).or_insert_with(|| vec![0; 8]);
                let sum = i64::from_le_bytes(value.as_slice().try_into().expect("a counter")) + 3;
                *value = sum.to_le_bytes().to_vec();
                assert_eq!(status, Ok(Status::Ok));
                assert_eq!(body[8..16], sum.to_le_bytes(), "counter {number}");
            }
        }
    }
}

#[test]
fn every_answer_is_right_while_a_table_moves_to_and_fro() {
    let seed = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut random = Rng::with_seed(seed);
    let pair = Pair::start();
    let mut table = pair.table();
    const KEYS: u64 = 4_000;
    for number in 0..KEYS {
        table.put(number, &vec![number as u8; 300]);
    }
    let moves = if std::env::var_os("SPLINTER_FULL").is_some() { 60 } else { 6 };
    for round in 0..moves {
        let hashes = match round % 3 {
            0 => HashRange::new(1 << 62, (3 << 62) - 1),
            1 => HashRange::new(1 << 63, u64::MAX),
            _ => Some(HashRange::ALL),
        };
        let hashes = hashes.expect("wide enough");
        let numbers = pair.numbers();
        // Of several owners only what one of them has can move: all of it is brought together first.
        let tablets = pair.metadata.tablets().expect("etcd answers");
        let tablets =
            tablets.into_iter().find(|row| row.table == table.number).expect("it is placed").tablets;
        for tablet in tablets {
            let common = HashRange::new(
                tablet.hashes.first().max(hashes.first()),
                tablet.hashes.last().min(hashes.last()).max(tablet.hashes.first().max(hashes.first())),
            );
            let overlaps = tablet.hashes.first() <= hashes.last() && hashes.first() <= tablet.hashes.last();
            let Some(hashes) = common.filter(|_| overlaps) else { continue };
            let to = usize::from(tablet.server == numbers[0]);
            let row = pair.begin(&table, hashes, to);
            while !pair.is_done(&row) {
                (0..200).for_each(|_| table.use_it(&mut random, KEYS));
            }
        }
        table.check(0..KEYS);
    }
}

#[test]
fn an_abort_at_any_moment_leaves_every_object_at_one_owner_as_it_was_written_last() {
    let mut random = Rng::with_seed(11);
    let pair = Pair::start();
    let mut table = pair.table();
    const KEYS: u64 = 8_000;
    for number in 0..KEYS {
        table.put(number, &vec![number as u8; 1_000]);
    }
    let half = HashRange::new(1 << 63, u64::MAX).expect("half of them");
    let mut returned = 0;
    let rounds = if std::env::var_os("SPLINTER_FULL").is_some() { 60 } else { 8 };
    for round in 0..10 * rounds {
        // On a slow machine few are in time, on a very slow one none.
        if round >= rounds && returned > 0 {
            break;
        }
        let to = usize::from(pair.owner(&table, u64::MAX) == pair.numbers()[0]);
        let mode = [MigrationMode::Rocksteady, MigrationMode::Cooperative, MigrationMode::PreCopy]
            [round as usize % 3];
        table.asks_both = mode == MigrationMode::Cooperative;
        let row = pair.begin_by(&table, half, to, mode);
        let find = || pair.metadata.migration_find(row.id).expect("etcd answers");
        if mode == MigrationMode::PreCopy {
            (0..random.u32(0..400)).for_each(|_| table.use_it(&mut random, KEYS));
        } else if round % 4 > 0 {
            comes(|| find().is_none_or(|row| row.phase != MigrationPhase::Preparing).then_some(()));
            (0..random.u32(0..40)).for_each(|_| table.use_it(&mut random, KEYS));
        }
        // It may be over already.
        let _ = pair.metadata.migration_abort(row.id);
        while !pair.is_done(&row) {
            (0..50).for_each(|_| table.use_it(&mut random, KEYS));
        }
        returned += usize::from(pair.owner(&table, u64::MAX) == row.source.server);
        table.check((0..KEYS).filter(|number| number % 7 == round % 7));
    }
    assert!(returned > 0, "some were in time");
    table.check(0..KEYS);
}

#[test]
fn where_everybody_waits_until_all_or_the_last_of_it_is_there_every_answer_is_right_as_well() {
    let mut random = Rng::with_seed(3);
    let pair = Pair::start();
    let mut table = pair.table();
    const KEYS: u64 = 3_000;
    for number in 0..KEYS {
        table.put(number, &vec![number as u8; 300]);
    }
    let modes = [MigrationMode::StopAndCopy, MigrationMode::PreCopy];
    for (to, mode) in [(1, modes[0]), (0, modes[0]), (1, modes[1]), (0, modes[1]), (1, modes[1])] {
        let row = pair.begin_by(&table, HashRange::ALL, to, mode);
        while !pair.is_done(&row) {
            (0..50).for_each(|_| table.use_it(&mut random, KEYS));
        }
        assert_eq!(pair.owner(&table, 0), pair.numbers()[to]);
        table.check(0..KEYS);
    }
    // Both tell how they went; of what is over the records say nothing.
    for (site, moved) in pair.sites.iter().zip([2, 3]) {
        let migrations = site.server.control().migrations.as_ref().expect("a server of a cluster");
        let lately = comes(|| Some(migrations.lately()).filter(|lately| lately.len() == 5));
        assert!(lately.iter().all(|shown| shown.row.phase == MigrationPhase::Finished));
        let of_target = lately.iter().filter(|shown| shown.side == Side::Target);
        assert_eq!(of_target.clone().count(), moved);
        assert!(
            of_target.clone().all(|shown| shown.progress.get(Figure::Objects)
                >= shown.progress.get(Figure::ObjectsExpected) / 2)
        );
        assert!(lately.iter().all(|shown| shown.progress.get(Figure::Bytes) > 0));
    }
}

#[test]
fn who_asks_both_servers_is_answered_rightly_without_waiting() {
    let mut random = Rng::with_seed(5);
    let pair = Pair::start();
    let mut table = pair.table();
    const KEYS: u64 = 20_000;
    for number in 0..KEYS {
        table.put(number, &vec![number as u8; 1_000]);
    }
    table.asks_both = true;
    for to in [1, 0, 1, 0] {
        let row = pair.begin_by(&table, HashRange::ALL, to, MigrationMode::Cooperative);
        while !pair.is_done(&row) {
            (0..50).for_each(|_| table.use_it(&mut random, KEYS));
        }
        table.check((0..KEYS).filter(|number| number % 11 == to as u64));
    }
    assert!(table.seen_frozen > 0, "some reads were in time");
}
