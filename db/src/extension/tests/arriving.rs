//! Functions over a table whose objects are on their way here: what they need they wait for, and nobody else does.

use std::sync::Arc;

use sandstorm::abi::{Call, Code};
use store::{Config, Core, Cursor, Quota, Replayed, Store, Table, TableOptions};
use wire::{Status, TenantId};

use super::world::{Answer, TABLE, World, function};
use crate::extension::CallMode;
use crate::limits::PENDING_US_MAX;
use crate::metrics::Waits;
use crate::tablet::{Parts, TableEntry};
use crate::tenant::account::Account;

const PART: u32 = 200;
const PARTITIONS: usize = 4;

/// A world whose first table is in another store.
struct Arriving {
    world: World,
    part: Arc<Table>,
    source: (Core, Arc<Table>),
}

fn key(number: u32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

impl Arriving {
    /// Creates a source with this many keys, each with its number as value.
    fn with(keys: u32) -> Self {
        let mut world = World::new();
        let config = Config {
            memory_bytes: 16 << 20,
            segment_bytes: 1 << 20,
            cores: 1,
            huge_pages: false,
            durable: false,
            recovery_cores: 0,
        };
        let source = Store::new(config).expect("a small store");
        let (core, table) = (source.core(0), source.table(1));
        for number in 0..keys {
            let (key, value) = (key(number), i64::from(number).to_le_bytes());
            let put =
                core.pin().put(&table, store::hash(&key), &key, &value, store::Condition::Always).is_ok();
            assert!(put);
        }
        let quota = Arc::new(Quota::new(1, u64::MAX));
        let part = world.lent.core.store().table_with(PART, TableOptions::default(), &quota);
        part.expect_arrivals(PARTITIONS, table.version_ceiling());
        let arriving = Self { world: World::new(), part: Arc::clone(&part), source: (core, table) };
        world.lent.tables.insert(Arc::new(entry(Parts::whole(part))));
        Self { world, ..arriving }
    }

    /// Pulls the wanted hashes; returns their number.
    fn pull_wanted(&mut self) -> usize {
        let (mut hashes, mut pull) = (Vec::new(), Vec::new());
        self.part.take_wanted(usize::MAX, &mut hashes);
        let pin = self.source.0.pin();
        hashes.iter().for_each(|&hash| pin.gather_hash(&self.source.1, hash, &mut pull));
        drop(pin);
        self.replay(&pull);
        self.part.pulled(&hashes);
        self.world.invocations.wake(PART, Some(&hashes), (&waits(), 0));
        hashes.len()
    }

    /// Pulls all of a partition.
    fn pull(&mut self, partition: usize) {
        let hashes = self.part.partitions()[partition];
        let (mut pull, mut next) = (Vec::new(), Some(Cursor::before(hashes.first())));
        let pin = self.source.0.pin();
        while let Some(from) = next {
            next = pin.gather(&self.source.1, from, hashes.last(), 1 << 20, &mut pull).expect("it is there");
        }
        drop(pin);
        self.replay(&pull);
        self.part.arrived(partition, hashes.last());
        self.world.invocations.wake(PART, None, (&waits(), 0));
    }

    fn replay(&self, mut pull: &[u8]) {
        let (pin, mut replayed) = (self.world.lent.core.pin(), Replayed::default());
        while pin.replay(&self.part, self.part.hashes(), &mut pull, &mut replayed).is_err() {
            self.world.lent.core.step();
        }
    }

    /// Runs turns, and pulls the wanted hashes between them, until this many invocations have ended.
    fn run(&mut self, count: usize) -> Vec<(u64, Answer)> {
        let mut ended = Vec::new();
        while ended.len() < count {
            ended.extend(self.world.turn());
            self.pull_wanted();
        }
        ended
    }

    fn value(&self, number: u32) -> Option<i64> {
        let (pin, key) = (self.world.lent.core.pin(), key(number));
        let object = pin.get(&self.part, store::hash(&key), &key)?;
        Some(i64::from_le_bytes(object.value().try_into().expect("eight bytes")))
    }
}

/// Returns a histogram of waits, which these tests ignore.
fn waits() -> Waits {
    Waits::new()
}

fn entry(parts: Parts) -> TableEntry {
    let tenant = TenantId(1);
    let owner = Account::native(tenant);
    TableEntry {
        id: TABLE,
        tenant,
        name: "first".into(),
        writable: true,
        durability: control::Durability::Memory,
        owner,
        parts,
        map: None,
    }
}

function!(reads_one, |db, args, reply| {
    match db.get(args.table(), args.key()).await? {
        Some(value) => reply.write(value),
        None => Ok(()),
    }
});

#[test]
fn a_read_of_what_has_not_arrived_waits_and_others_run() {
    let mut arriving = Arriving::with(10);
    let reads = World::extension(reads_one, CallMode::Read);
    assert!(arriving.world.start(&reads, &key(3), b"", 3) && arriving.world.start(&reads, &key(3), b"", 4));
    assert!(arriving.world.start(&reads, &key(99), b"", 99));
    assert!(arriving.world.turn().is_empty());
    assert!(!arriving.world.invocations.can_run(0) && arriving.world.invocations.live() == 3);
    let beside = arriving.world.call(&World::extension(puts_blindly, CallMode::Write), &key(5), b"");
    assert_eq!((beside.0, arriving.value(5)), (Status::Ok, Some(-1)));
    assert_eq!(arriving.pull_wanted(), 2, "two wait for the same");
    let mut ended = arriving.world.turn();
    ended.sort_unstable_by_key(|(origin, _)| *origin);
    let three = (Status::Ok, 3_i64.to_le_bytes().to_vec());
    assert_eq!(ended, [(3, three.clone()), (4, three), (99, (Status::Ok, Vec::new()))]);
    assert_eq!(arriving.world.call(&reads, &key(99), b"").0, Status::Ok, "that it is absent is known by now");
}

function!(puts_blindly, |db, args, reply| {
    db.put(args.table(), args.key(), &(-1_i64).to_le_bytes()).await
});

function!(deletes_blindly, |db, args, reply| { db.delete(args.table(), args.key()).await });

#[test]
fn a_deletion_waits_for_the_old_object_which_stays_deleted() {
    let mut arriving = Arriving::with(100);
    let deletes = World::extension(deletes_blindly, CallMode::Write);
    // Half of the keys were invented by the caller.
    for number in (0..50).chain(1_000..1_050) {
        assert!(arriving.world.start(&deletes, &key(number), b"", number.into()));
        assert!(arriving.world.turn().is_empty(), "nothing is known of the key");
    }
    assert!(arriving.run(100).into_iter().all(|(_, (status, _))| status == Status::Ok));
    (0..PARTITIONS).for_each(|partition| arriving.pull(partition));
    assert!((0..50).all(|number| arriving.value(number).is_none()));
    assert!((50..100).all(|number| arriving.value(number) == Some(number.into())));
}

function!(moves, |db, args, reply| {
    let (table, from, to) = (args.table(), args.key(), args.bytes());
    let mut records = [None; 2];
    db.get_many(table, &[from, to], &mut records).await?;
    if from == to {
        return Ok(());
    }
    db.yield_now().await;
    db.increment(table, from, -1).await?;
    db.increment(table, to, 1).await?;
    Ok(())
});

#[test]
fn commits_of_what_arrives_meanwhile_are_exact() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (count, mut arriving) = (300_u32, Arriving::with(300));
    let moves = World::extension(moves, CallMode::Write);
    let mut expected: Vec<i64> = (0..count).map(i64::from).collect();
    let (mut started, mut ended, mut asked) = (0, 0, Vec::new());
    while ended < 2_000 {
        if started < 2_000 && random.bool() {
            let pair = (random.u32(..count), random.u32(..count));
            assert!(arriving.world.start(&moves, &key(pair.0), &key(pair.1), started));
            asked.push(pair);
            started += 1;
        }
        if random.u8(..8) == 0 {
            arriving.pull_wanted();
        }
        if started > 500 && random.u8(..200) == 0 {
            arriving.pull(random.usize(..PARTITIONS));
        }
        for (origin, (status, _)) in arriving.world.turn() {
            let (from, to) = asked[origin as usize];
            match status {
                Status::Ok if from != to => {
                    expected[from as usize] -= 1;
                    expected[to as usize] += 1;
                }
                Status::Ok | Status::Conflict => {}
                other => panic!("it ended with {other:?}"),
            }
            ended += 1;
        }
    }
    (0..PARTITIONS).for_each(|partition| arriving.pull(partition));
    assert!(arriving.part.is_complete());
    for number in 0..count {
        assert_eq!(arriving.value(number), Some(expected[number as usize]), "key {number}");
    }
}

function!(goes_through_all, |db, args, reply| {
    let mut page = sandstorm::EntryPage::new().limit(4);
    db.enumerate(args.table(), sandstorm::Cursor::start(), &mut page).await.map(drop)
});

#[test]
fn what_goes_through_a_table_comes_again_when_all_of_it_has_arrived() {
    let mut arriving = Arriving::with(10);
    let through: unsafe extern "C" fn(*mut Call) -> Code = goes_through_all;
    let (status, body) = arriving.world.call_once(through, CallMode::Read, b"");
    assert_eq!((status, wire::reply::decode_retry(&body).is_ok()), (Status::Retry, true));
    (0..PARTITIONS).for_each(|partition| arriving.pull(partition));
    assert_eq!(arriving.world.call_once(through, CallMode::Read, b"").0, Status::Ok);
}

function!(adds_one, |db, args, reply| {
    let sum = db.increment(args.table(), args.key(), 1).await?;
    reply.write(&sum.to_le_bytes())
});

#[test]
fn a_range_that_is_taken_away_or_a_session_that_ends_ends_the_waiting() {
    let mut arriving = Arriving::with(10);
    let adds = World::extension(adds_one, CallMode::Write);
    assert!((1..=3).all(|number| arriving.world.start(&adds, &key(number), b"", number.into())));
    assert!(arriving.world.turn().is_empty());
    assert_eq!(arriving.world.end_of_sessions(|origin| origin == 2), [(2, Status::BadToken)]);
    assert!(arriving.world.turn().is_empty(), "the others wait again");
    let held = vec![Arc::clone(&arriving.part)];
    let parts = Parts::new(TableOptions::default(), held, &[]).expect("nothing is owned");
    arriving.world.lent.tables.insert(Arc::new(entry(parts)));
    arriving.world.invocations.go_on_all();
    let ended = arriving.world.turn();
    let statuses = ended.iter().map(|(_, (status, _))| *status);
    assert_eq!(statuses.collect::<Vec<_>>(), [Status::Retry; 2], "they come again, and learn where to go");
    assert_eq!(arriving.part.objects(), 0);
}

#[test]
fn one_that_waits_for_long_asks_again_and_a_worker_that_stops_ends_it() {
    let mut arriving = Arriving::with(10);
    let adds = World::extension(adds_one, CallMode::Write);
    assert!(arriving.world.start(&adds, &key(1), b"", 1) && arriving.world.start(&adds, &key(2), b"", 2));
    assert!(arriving.world.turn().is_empty());
    // Simulates a puller that loses the wanted hashes.
    let mut lost = Vec::new();
    arriving.part.take_wanted(16, &mut lost);
    arriving.part.not_pulled(&lost[..1]);
    arriving.world.lent.now_us = PENDING_US_MAX;
    assert!(arriving.world.invocations.can_run(PENDING_US_MAX));
    assert!(arriving.world.turn().is_empty());
    assert_eq!(arriving.pull_wanted(), 1);
    let sum = (Status::Ok, 2_i64.to_le_bytes().to_vec());
    assert_eq!(arriving.run(1), [(1, sum)]);
    assert_eq!(arriving.world.end_all(), [Status::Unavailable]);
}
