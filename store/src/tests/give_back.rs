//! Tests of a move that is reversed half-way: the source then has everything written meanwhile, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{drain, each_seed, put_patiently, steps, store};
use crate::{
    CommitError, Condition, Core, Cursor, Eviction, HashRange, NEVER_MS, Quota, ReplayError, Replayed, Table,
    TableOptions, Write, WriteError, hash,
};

const KEYS: u32 = 600;
const PARTITIONS: usize = 4;

/// The expected value and expiry of each key.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// One returned piece: objects, and removed keys by their two hashes.
type Piece = (Vec<u8>, Vec<(u64, u64)>);

struct World {
    source: (Core, Arc<Table>),
    target: (Core, Arc<Table>),
    cursors: Vec<Option<Cursor>>,
    model: Model,
    /// Whether the target may evict keys.
    evicts: bool,
    now_ms: u64,
    random: fastrand::Rng,
}

/// Repeats `store` until all of a pull is stored.
fn patiently(core: &Core, mut store: impl FnMut(&mut Replayed) -> Result<(), ReplayError>) {
    while let Err(error) = store(&mut Replayed::default()) {
        assert!(matches!(error, ReplayError::Refused(WriteError::Retry { .. })), "{error}");
        core.step();
    }
}

fn replay(core: &Core, table: &Table, mut pull: &[u8]) {
    patiently(core, |replayed| core.pin().replay(table, HashRange::ALL, &mut pull, replayed));
}

fn take_back(core: &Core, table: &Table, mut pull: &[u8]) {
    patiently(core, |replayed| core.pin().take_back(table, HashRange::ALL, &mut pull, replayed));
}

impl World {
    fn new(seed: u64, eviction: Eviction) -> World {
        let random = fastrand::Rng::with_seed(seed);
        let quota = Arc::new(Quota::new(1, u64::MAX));
        let (from, to) = (store(4 << 20, 32 << 10, 1), store(4 << 20, 32 << 10, 1));
        let (source, table) = (from.core(0), from.table(1));
        let mut model = Model::new();
        for number in 0..KEYS / 2 {
            let (key, value) = (number.to_le_bytes(), u64::from(number).to_le_bytes());
            for _ in 0..=number % 5 {
                put_patiently(&source, &table, &key, &value).expect("there is memory");
            }
            model.insert(key.to_vec(), (value.to_vec(), NEVER_MS));
        }
        let other = to.table_with(7, TableOptions { eviction, ..TableOptions::default() }, &quota);
        other.expect_arrivals(PARTITIONS, table.version_ceiling());
        let cursors = other.partitions().iter().map(|part| Some(Cursor::before(part.first()))).collect();
        World {
            source: (source, table),
            target: (to.core(0), other),
            cursors,
            model,
            evicts: eviction != Eviction::Never,
            now_ms: 1,
            random,
        }
    }

    fn advance(&mut self) {
        self.now_ms += self.random.u64(..40);
        for (core, _) in [&self.source, &self.target] {
            core.store().advance_clock(self.now_ms);
        }
        let now_ms = self.now_ms;
        self.model.retain(|_, (_, expires_ms)| *expires_ms > now_ms);
    }

    fn key(&mut self) -> (Vec<u8>, u64) {
        let key = self.random.u32(..KEYS).to_le_bytes().to_vec();
        let at = hash(&key);
        (key, at)
    }

    /// Makes one write or read at the target.
    fn work(&mut self) {
        let (key, at) = self.key();
        let (value, in_commit) = (self.random.u64(..).to_le_bytes(), self.random.bool());
        let expires_ms =
            if self.random.u8(..4) == 0 { self.now_ms + self.random.u64(1..500) } else { NEVER_MS };
        let (core, table) = &self.target;
        let pin = core.pin();
        match self.random.u8(..5) {
            0 => match pin.delete(table, at, &key, Condition::Always) {
                Ok(version) => {
                    let before = self.model.remove(&key);
                    assert!(self.evicts || version.is_some() == before.is_some(), "what is known is right");
                }
                Err(error) => assert_eq!(error, WriteError::NotArrived),
            },
            1 => {
                let delete = Write { table, hash: at, key: &key, value: None, expires_ms: 0 };
                match pin.commit(&[], &[delete]) {
                    Ok(_) => drop(self.model.remove(&key)),
                    Err(error) => {
                        assert_eq!(error, CommitError::Write(WriteError::NotArrived));
                        assert!(!pin.knows(table, at, &key), "what is known can be removed");
                    }
                }
            }
            2 => {
                let known = pin.knows(table, at, &key);
                let found = pin.get(table, at, &key).map(|object| object.value().to_vec());
                let expected = self.model.get(&key).map(|(value, _)| value.clone());
                assert!(!known || found == expected || (self.evicts && found.is_none()));
            }
            _ => {
                let write = Write { table, hash: at, key: &key, value: Some(&value), expires_ms };
                let written = if in_commit {
                    pin.commit(&[], &[write])
                } else {
                    let put = pin.put_until(table, at, &key, &value, expires_ms, Condition::Always);
                    put.map_err(CommitError::Write)
                };
                match written {
                    Ok(_) => drop(self.model.insert(key, (value.to_vec(), expires_ms))),
                    Err(error) => assert!(matches!(error, CommitError::Write(WriteError::Retry { .. }))),
                }
            }
        }
        drop(pin);
        core.step();
    }

    /// Makes one pull of a partition, or of one hash ahead of it.
    fn pull(&mut self) {
        let (mut pull, at) = (Vec::new(), self.random.usize(..PARTITIONS));
        let ((source, table), (target, other)) = (&self.source, &self.target);
        if self.random.bool() {
            let hash = hash(&self.random.u32(..KEYS).to_le_bytes());
            source.pin().gather_hash(table, hash, &mut pull);
            replay(target, other, &pull);
            other.pulled(&[hash]);
            return;
        }
        let Some(from) = self.cursors[at] else { return };
        let hashes = other.partitions()[at];
        let bytes_max = self.random.usize(1..800);
        let next =
            source.pin().gather(table, from, hashes.last(), bytes_max, &mut pull).expect("it is there");
        replay(target, other, &pull);
        match next.map(|next| next.done_to()) {
            None => other.arrived(at, hashes.last()),
            Some(Some(done)) if hashes.contains(done) => other.arrived(at, done),
            Some(_) => {}
        }
        self.cursors[at] = next;
    }

    /// Returns the objects and removed keys to return, in pieces.
    fn gather_back(&mut self, ceiling: u64) -> Vec<Piece> {
        let (core, table) = &self.target;
        let mut pieces = Vec::new();
        let mut next = Some(Cursor::START);
        while let Some(from) = next {
            let (mut pull, bytes_max) = (Vec::new(), self.random.usize(1..2_000));
            let gathered = core.pin().gather_since(table, from, ceiling, bytes_max, &mut pull);
            next = gathered.expect("it is there");
            pieces.push((pull, Vec::new()));
        }
        assert!(table.can_return());
        let removed = core.pin().removals(table);
        pieces.extend(removed.chunks(7).map(|removed| (Vec::new(), removed.to_vec())));
        pieces
    }
}

fn run(seed: u64, eviction: Eviction) {
    let mut world = World::new(seed, eviction);
    let ceiling = world.source.1.version_ceiling();
    let pulls = world.random.usize(..120);
    for _ in 0..steps(2_000) {
        if world.random.usize(..2_000) < 10 + pulls * 10 {
            world.pull();
        }
        if world.random.u8(..40) == 0 {
            world.advance();
        }
        world.work();
    }
    let mut pieces = world.gather_back(ceiling);
    // In random order, some of them twice.
    let copies: Vec<_> = pieces.iter().filter(|_| world.random.bool()).cloned().collect();
    pieces.extend(copies);
    world.random.shuffle(&mut pieces);
    let (core, table) = &world.source;
    for (pull, removed) in &pieces {
        removed.iter().for_each(|&place| core.pin().remove_placed(table, place).expect("it is there"));
        take_back(core, table, pull);
    }
    let version = world.target.1.version_ceiling();
    table.begin_above(version);
    drain(core);
    for number in 0..KEYS {
        let key = number.to_le_bytes().to_vec();
        let found = core.pin().get(table, hash(&key), &key).map(|object| object.value().to_vec());
        let expected = world.model.get(&key).map(|(value, _)| value.clone());
        let is_gone = world.evicts && found.is_none();
        assert!(found == expected || is_gone, "{key:?} holds {found:?} in place of {expected:?}");
        let written = put_patiently(core, table, &key, b"after").expect("there is memory");
        assert!(written > version, "versions grow over the move");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn what_was_written_since_goes_back_as_it_is_and_what_was_removed_stays_so() {
    let name = "what_was_written_since_goes_back_as_it_is_and_what_was_removed_stays_so";
    each_seed(name, |seed| (0..8).for_each(|round| run(seed ^ round, Eviction::Never)));
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn what_a_table_with_a_budget_has_evicted_does_not_come_back_with_an_older_value() {
    let name = "what_a_table_with_a_budget_has_evicted_does_not_come_back_with_an_older_value";
    each_seed(name, |seed| {
        (0..8).for_each(|round| run(seed ^ round, Eviction::S3Fifo { budget_bytes: 8 << 10 }));
    });
}
