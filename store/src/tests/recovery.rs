//! Durable tables over crashes, with a recorder in place of a disk: it keeps what a log thread would have written, and
//! after each crash a new store recovers from it.
//!
//! The recorder is as good as its cuts: a crash loses all that was written since the last one, in memory and of the
//! record, so the model is the state of that moment. Every check is against the model: keys, values, versions, counts.

mod full;
mod in_use;
mod recorder;
mod turning;

use std::collections::HashMap;
use std::sync::Arc;

use super::{each_seed, steps};
use crate::commit::Write;
use crate::hash_range::Position;
use crate::{
    Condition, Config, Core, LogOnDisk, NEVER_MS, Quota, RecoveryError, Store, Table, TableKind,
    TableOptions, WriteError,
};
use recorder::{Record, Recorder};

const TABLES: u32 = 2;
/// Cores that write, and one for what recovers meanwhile.
const CORES: usize = 2;
const STORE_CORES: usize = CORES + 1;
/// Segments with which memory is not short.
const MEMORY_FOR_CLIENTS: usize = 80;

/// The number by which the log names a table of this place at first.
fn first_number(place: usize) -> u32 {
    place as u32 + 1
}

/// Opens a store with tables that the log names so, or that are in memory.
fn open_store(
    memory_bytes: usize,
    segment_bytes: usize,
    numbers: &[Option<u32>],
) -> (Arc<Store>, Vec<Arc<Table>>) {
    let config = Config {
        memory_bytes,
        segment_bytes,
        cores: STORE_CORES,
        huge_pages: false,
        durable: true,
        recovery_cores: 0,
    };
    let store = Store::new(config).expect("a small store");
    let table = |(place, number): (usize, &Option<u32>)| {
        let kind = if place == 0 { TableKind::Hash } else { TableKind::Ordered };
        let options = TableOptions { kind, durable: number.is_some(), ..TableOptions::default() };
        let id = number.unwrap_or(turning::IN_MEMORY + place as u32);
        store.table_with(id, options, &Arc::new(Quota::new(STORE_CORES, u64::MAX)))
    };
    let tables = numbers.iter().enumerate().map(table).collect();
    (store, tables)
}

type Key = (u32, u64);

/// What clients know: version, value, expiry.
#[derive(Clone, Default)]
struct Model {
    objects: HashMap<Key, (u64, Vec<u8>, u64)>,
    newest: HashMap<Key, u64>,
    now_ms: u64,
}

impl Model {
    fn put(&mut self, key: Key, version: u64, value: Vec<u8>, expires_ms: u64) {
        let newest = self.newest.entry(key).or_default();
        assert!(version > *newest, "versions of a key only grow");
        *newest = version;
        self.objects.insert(key, (version, value, expires_ms));
    }
}

struct World {
    store: Arc<Store>,
    tables: Vec<Arc<Table>>,
    cores: Vec<Core>,
    recorder: Recorder,
    /// The recovery during which clients go on.
    arriving: Option<in_use::Arriving>,
    model: Model,
    /// Record and model of the last cut.
    stable: (Record, Model),
    random: fastrand::Rng,
    memory: (usize, usize),
    keys: u64,
    /// As the metadata has them: the numbers of the tables that are on the disk.
    numbers: Vec<Option<u32>>,
    /// Numbers of tables that are on their way there.
    coming: Vec<Option<u32>>,
    last_number: u32,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let segment_bytes = 16384 << random.u32(0..2);
        let memory = (segment_bytes * random.usize(12..40), segment_bytes);
        let numbers: Vec<_> = (0..TABLES as usize).map(|place| Some(first_number(place))).collect();
        let (store, tables) = open_store(memory.0, memory.1, &numbers);
        let cores = (0..CORES).map(|core| store.core(core)).collect();
        // In some of them all objects do not have room at once.
        let bytes_per_key = random.choice([400, 80]).expect("one of them");
        let keys = random.u64(20..(memory.0 / bytes_per_key) as u64);
        let (recorder, arriving, model, stable) = Default::default();
        let (coming, last_number) = (vec![None; TABLES as usize], TABLES);
        World {
            store,
            tables,
            cores,
            recorder,
            arriving,
            model,
            stable,
            random,
            memory,
            keys,
            numbers,
            coming,
            last_number,
        }
    }

    fn key(&mut self) -> (Key, [u8; 8]) {
        let number = self.random.u64(0..self.keys);
        // A part of the keys is hot.
        let number = if self.random.bool() { number } else { number % (self.keys / 8 + 1) };
        ((self.random.u32(1..=TABLES), number), number.to_be_bytes())
    }

    fn sync(&mut self) {
        self.recorder.sync(&self.store);
        self.stable = (self.recorder.record.clone(), self.model.clone());
    }

    fn step(&mut self) {
        match self.random.u32(0..100) {
            0..45 => self.put(),
            45..60 => self.delete(),
            60..65 => self.remove(),
            65..75 => self.commit(),
            75..85 => self.increment(),
            85..93 => {
                let core = self.random.usize(0..CORES);
                (0..self.random.u32(1..20)).for_each(|_| _ = self.cores[core].step());
            }
            93..99 => self.sync(),
            _ => {
                self.model.now_ms += self.random.u64(0..50);
                self.store.advance_clock(self.model.now_ms);
                let now = self.model.now_ms;
                self.model.objects.retain(|_, (_, _, expires_ms)| *expires_ms > now);
            }
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = if self.random.u8(..) == 0 { 1500 } else { self.random.usize(0..150) };
        vec![self.random.u8(..); length]
    }

    fn put(&mut self) {
        let (key, bytes) = self.key();
        let value = self.value();
        let expires_ms =
            if self.random.u32(0..8) == 0 { self.model.now_ms + self.random.u64(1..100) } else { NEVER_MS };
        let core = &self.cores[self.random.usize(0..CORES)];
        let table = &self.tables[key.0 as usize - 1];
        let put =
            core.pin().put_until(table, crate::hash(&bytes), &bytes, &value, expires_ms, Condition::Always);
        match put {
            Ok(version) => self.model.put(key, version, value, expires_ms),
            Err(WriteError::NotArrived) => self.bring(key.0, crate::hash(&bytes)),
            Err(WriteError::Retry { .. } | WriteError::OutOfMemory) => self.make_room(),
            Err(error) => panic!("{error}"),
        }
    }

    fn delete(&mut self) {
        let (key, bytes) = self.key();
        let core = &self.cores[self.random.usize(0..CORES)];
        let table = &self.tables[key.0 as usize - 1];
        let deleted = core.pin().delete(table, crate::hash(&bytes), &bytes, Condition::Always);
        match deleted {
            Ok(version) => {
                let known = self.model.objects.remove(&key);
                assert_eq!(version, known.map(|(version, ..)| version), "a delete of {key:?}");
            }
            Err(WriteError::NotArrived) => self.bring(key.0, crate::hash(&bytes)),
            Err(WriteError::Retry { .. } | WriteError::OutOfMemory) => self.make_room(),
            Err(error) => panic!("{error}"),
        }
    }

    /// Removes a key as the target of a migration does: one that it has heard of, or one that the source has no more.
    fn remove(&mut self) {
        if self.arriving.is_some() {
            // No migration comes to a table that is being recovered.
            return;
        }
        let (key, bytes) = self.key();
        let table = &self.tables[key.0 as usize - 1];
        let Position { hash, second } = Position::of(&bytes);
        let pinned = self.cores[self.random.usize(0..CORES)].pin();
        let removed = match self.random.bool() {
            true => pinned.remove_placed(table, (hash, second)),
            false => pinned.remove_absent(table, ((hash, second), (hash, second)), &[]).map(drop),
        };
        drop(pinned);
        match removed {
            Ok(()) => drop(self.model.objects.remove(&key)),
            Err(WriteError::Retry { .. } | WriteError::OutOfMemory) => self.make_room(),
            Err(error) => panic!("{error}"),
        }
    }

    fn increment(&mut self) {
        let (key, bytes) = self.key();
        let core = &self.cores[self.random.usize(0..CORES)];
        let table = &self.tables[key.0 as usize - 1];
        let added = core.pin().increment(table, crate::hash(&bytes), &bytes, 1);
        match added {
            Ok((version, sum)) => {
                let expires_ms =
                    self.model.objects.get(&key).map_or(NEVER_MS, |&(.., expires_ms)| expires_ms);
                self.model.put(key, version, sum.to_le_bytes().to_vec(), expires_ms);
            }
            Err(WriteError::Retry { .. } | WriteError::OutOfMemory) => self.make_room(),
            Err(WriteError::NotANumber | WriteError::Overflow) => {}
            Err(WriteError::NotArrived) => self.bring(key.0, crate::hash(&bytes)),
            Err(error) => panic!("{error}"),
        }
    }

    fn commit(&mut self) {
        let changes: Vec<_> = (0..self.random.usize(1..6))
            .map(|_| (self.key(), self.random.bool().then(|| self.value())))
            .collect();
        let keys: Vec<_> = changes.iter().map(|((key, bytes), _)| (key.0, crate::hash(bytes))).collect();
        let writes: Vec<_> = changes
            .iter()
            .map(|((key, bytes), value)| Write {
                table: &self.tables[key.0 as usize - 1],
                hash: crate::hash(bytes),
                key: bytes,
                value: value.as_deref(),
                expires_ms: NEVER_MS,
            })
            .collect();
        let committed = self.cores[self.random.usize(0..CORES)].pin().commit(&[], &writes);
        match committed {
            Ok(version) => {
                let last: HashMap<Key, _> =
                    changes.into_iter().map(|((key, _), value)| (key, value)).collect();
                for (key, value) in last {
                    match value {
                        Some(value) => self.model.put(key, version, value, NEVER_MS),
                        None => drop(self.model.objects.remove(&key)),
                    }
                }
            }
            Err(crate::CommitError::Write(WriteError::NotArrived)) => {
                keys.into_iter().for_each(|(table, hash)| self.bring(table, hash));
            }
            Err(crate::CommitError::Write(WriteError::Retry { .. } | WriteError::OutOfMemory)) => {
                self.make_room()
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn make_room(&mut self) {
        self.sync();
        (0..50).for_each(|_| _ = self.cores[0].step());
        // What a client would do in the end.
        if self.random.u32(0..4) == 0 {
            (0..4).for_each(|_| self.delete_quietly());
        }
    }

    fn delete_quietly(&mut self) {
        let (key, bytes) = self.key();
        let table = &self.tables[key.0 as usize - 1];
        if self.cores[0].pin().delete(table, crate::hash(&bytes), &bytes, Condition::Always).is_ok() {
            self.model.objects.remove(&key);
        }
    }

    /// Loses everything since the last cut, and recovers. A memory of a few segments that was full may be too small, as
    /// the rest of a seglet is lost for each segment of the disk; then it is given more, as an operator would.
    fn crash(&mut self) {
        self.crash_with(false);
    }

    /// As [`World::crash`], with clients that go on during the recovery, or without.
    fn crash_with(&mut self, clients: bool) {
        let (mut record, mut model) = self.stable.clone();
        let log = record.crash(STORE_CORES);
        // What is in memory is gone, also of a table on its way to the disk.
        model.objects.retain(|key, _| self.numbers[key.0 as usize - 1].is_some());
        self.coming.fill(None);
        if clients && self.random.u32(0..32) > 0 {
            // Where memory is short, each entry that comes ahead takes many steps.
            self.memory.0 = self.memory.0.max(MEMORY_FOR_CLIENTS * self.memory.1);
        }
        loop {
            self.recorder = Recorder { record: record.clone(), ..Recorder::default() };
            self.model = model.clone();
            self.stable = (record.clone(), model.clone());
            let is_recovered = match clients {
                true => self.recover_in_use(&log),
                false => self.recover(&log),
            };
            if is_recovered {
                break;
            }
            self.memory.0 += self.memory.0 / 4;
        }
        self.check();
        self.sync();
    }

    /// Opens an empty store that knows what the last one promised.
    fn open(&mut self) {
        (self.store, self.tables) = open_store(self.memory.0, self.memory.1, &self.numbers);
        self.cores = (0..CORES).map(|core| self.store.core(core)).collect();
        self.store.advance_clock(self.model.now_ms);
        let newest = self.model.newest.values().copied().max().unwrap_or(0);
        self.tables.iter().for_each(|table| table.begin_above(newest));
    }

    fn recover(&mut self, log: &LogOnDisk) -> bool {
        self.open();
        let record = &self.recorder.record;
        let mut recovery = self.cores[0].recover(log);
        let mut sequences = log.sequences.clone();
        match self.random.u32(0..3) {
            0 => self.random.shuffle(&mut sequences),
            1 => sequences.reverse(),
            _ => {}
        }
        for sequence in sequences {
            match recovery
                .segment(sequence, &record.segments[&sequence].1, &[], |number| self.table_of(number))
            {
                Ok(()) => {}
                Err(RecoveryError::OutOfMemory) => return false,
                Err(error) => panic!("{error}"),
            }
        }
        let found = recovery.finish();
        assert_eq!(found.damaged, Vec::new());
        let has_moved = (0..TABLES as usize).any(|place| self.numbers[place] != Some(first_number(place)));
        assert!(found.dropped == 0 || has_moved, "{} entries of no table", found.dropped);
        true
    }

    /// Returns the table that the log names so.
    fn table_of(&self, number: u32) -> Option<Arc<Table>> {
        let place = self.numbers.iter().position(|known| *known == Some(number));
        place.map(|place| Arc::clone(&self.tables[place]))
    }

    fn check(&self) {
        let pinned = self.cores[0].pin();
        for table in 1..=TABLES {
            let part = &self.tables[table as usize - 1];
            let mut objects = 0;
            for number in 0..self.keys {
                let bytes = number.to_be_bytes();
                let found = pinned.get(part, crate::hash(&bytes), &bytes);
                let found = found.map(|object| {
                    assert!(object.verify());
                    (object.version(), object.value().to_vec(), object.expires_ms())
                });
                let known = self.model.objects.get(&(table, number));
                if found.as_ref() != known {
                    println!("{:?}, coming {:?}", self.numbers, self.coming);
                    self.recorder.record.print(part.entry_number(), &bytes);
                }
                assert_eq!(found.as_ref(), known, "table {table}, key {number}");
                objects += u64::from(found.is_some());
            }
            let expired = part.objects() - objects;
            assert!(expired <= part.expiring(), "{expired} objects too many in table {table}");
        }
    }
}

#[test]
fn what_was_below_a_cut_is_found_after_a_crash_and_nothing_else() {
    each_seed("what_was_below_a_cut", |seed| {
        for seed in seed..seed + steps(8) as u64 {
            println!("seed {seed}");
            let mut world = World::new(seed);
            for _ in 0..world.random.u32(3..12) {
                (0..world.random.u32(100..4_000)).for_each(|_| world.step());
                world.check();
                let clients = world.random.u32(0..3) == 0;
                world.crash_with(clients);
            }
        }
    });
}

/// A store of durable objects, with every so manieth deleted again, of which a disk has all.
fn filled(deleted: usize) -> World {
    let mut world = World::new(1);
    world.memory = (128 << 20, 1 << 20);
    (world.store, world.tables) = open_store(world.memory.0, world.memory.1, &world.numbers);
    world.cores = (0..CORES).map(|core| world.store.core(core)).collect();
    world.keys = 2_400;
    for number in 0..world.keys {
        let (key, bytes) = ((1, number), number.to_be_bytes());
        let (pinned, hash, value) = (world.cores[0].pin(), crate::hash(&bytes), vec![7; 4_000]);
        let put = pinned.put(&world.tables[0], hash, &bytes, &value, Condition::Always);
        world.model.put(key, put.expect("there is room"), value, NEVER_MS);
    }
    for number in (0..world.keys).step_by(deleted) {
        let bytes = number.to_be_bytes();
        let deleted =
            world.cores[0].pin().delete(&world.tables[0], crate::hash(&bytes), &bytes, Condition::Always);
        assert!(deleted.expect("a delete is taken").is_some());
        world.model.objects.remove(&(1, number));
    }
    // The second one closes epochs, so that segments are settled.
    (0..2).for_each(|_| world.sync());
    world
}

impl World {
    /// Cleans as long as there is anything to do; returns how many segments have begun to be emptied.
    fn clean(&mut self) -> usize {
        (0..20_000).for_each(|_| _ = self.cores[0].step());
        let emptied: Vec<u32> = self.store.take_emptied().collect();
        self.recorder.record.emptied.extend(&emptied);
        emptied.len()
    }
}

#[test]
fn a_short_disk_is_given_no_more_survivors_than_it_has_room_for() {
    let mut world = filled(20);
    world.store.set_disk_short(true);
    world.store.set_disk_room(2);
    let mut all = 0;
    for _ in 0..10 {
        let emptied = world.clean();
        assert!(emptied <= 2, "{emptied} segments");
        all += emptied;
        world.sync();
    }
    assert!(all >= 6, "once some are gone, others follow: {all}");
    world.check();
    world.crash();
}

#[test]
fn what_a_recovery_brought_to_several_segments_is_not_taken_for_garbage() {
    let mut world = filled(2_400);
    world.crash();
    world.store.set_disk_short(true);
    assert_eq!(world.clean(), 0, "hardly anything is dead");
}
