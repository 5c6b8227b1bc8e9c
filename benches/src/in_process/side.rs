//! What is measured: the store, or a map in its place, behind one small face.
//!
//! Objects are known by numbers. A side makes the key of a number itself, hashes it and looks it up, so that all of
//! that is in every figure. *Objects* have keys of 30 bytes and values of 100, as in the benches over the network; a
//! read copies the value out, as a server copies it into a frame. *Counters* are FASTER's setting: keys and values
//! of 8 bytes, a write adds one.

use std::hint::black_box;
use std::sync::Arc;

use store::{Condition, Config, Core, Pinned, Store, Table, WriteError};

/// Bytes of an object's key.
pub const KEY_BYTES: usize = 30;

/// Bytes of an object's value.
pub const VALUE_BYTES: usize = 100;

/// Most numbers of one call.
pub const BATCH_MAX: usize = 256;

/// Bytes that an object takes in the store's log.
pub const OBJECT_LOG_BYTES: usize =
    (store::OBJECT_HEADER_BYTES + KEY_BYTES + VALUE_BYTES).next_multiple_of(8);

/// An object's key.
pub type Key = [u8; KEY_BYTES];

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// 30 and 100 bytes; a write replaces the value.
    Objects,
    /// 8 and 8 bytes; a write adds one.
    Counters,
}

/// The store, or a map.
pub trait Side: Sync {
    /// What a thread works with; a core is one thread's at a time.
    fn worker(&self, core: usize) -> Box<dyn Worker + '_>;

    /// Backs all memory that it may use with pages, as a server does while it starts.
    fn touch_all(&self) -> Result<(), String> {
        Ok(())
    }
}

/// One thread's access to a side.
pub trait Worker {
    /// Reads what these numbers stand for; returns how many were there, and as they were written.
    fn read(&mut self, numbers: &[u64]) -> usize;
    /// Writes them: makes what is not there.
    fn write(&mut self, numbers: &[u64]);
    /// Does what is left to do in the background.
    fn settle(&mut self) {}
}

/// Names of the sides, ours first.
pub const SIDES: [&str; 4] = [SPLINTER, "dashmap", "papaya", "scc"];

/// The name of ours.
pub const SPLINTER: &str = "splinter";

/// The key of an object.
#[inline]
pub fn key_of(number: u64) -> Key {
    let mut key = *b"user-0000000000000000-abcdefgh";
    key[5..13].copy_from_slice(&number.to_le_bytes());
    key
}

/// The value of an object.
#[inline]
pub fn value_of(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [b'v'; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Copies a value out, and says whether it is the number's.
#[inline]
pub fn copy_out(value: &[u8], number: u64) -> bool {
    let mut frame = [0; VALUE_BYTES];
    frame.copy_from_slice(value);
    black_box(&frame)[..8] == number.to_le_bytes()
}

/// A store with one table.
pub struct Splinter {
    kind: Kind,
    store: Arc<Store>,
    table: Arc<Table>,
}

impl Splinter {
    /// A store in which the log's bytes are live by `utilization` when `numbers` are written, and the index has room.
    pub fn new(kind: Kind, numbers: u64, cores: usize, utilization: f64) -> Result<Self, String> {
        let object_bytes = match kind {
            Kind::Objects => OBJECT_LOG_BYTES,
            Kind::Counters => (store::OBJECT_HEADER_BYTES + 16).next_multiple_of(8),
        };
        let log_bytes = (numbers as f64 * object_bytes as f64 / utilization) as usize;
        let index_bytes = numbers as usize * INDEX_BYTES_PER_OBJECT;
        let memory_bytes = log_bytes + index_bytes + (8 + 2 * cores) * store::SEGMENT_BYTES_DEFAULT;
        Self::over(kind, Config { memory_bytes, cores, ..Config::default() })
    }

    fn over(kind: Kind, config: Config) -> Result<Self, String> {
        let store = Store::new(config).map_err(|error| error.to_string())?;
        Ok(Self { kind, table: store.table(1), store })
    }

    /// A store of objects whose log is live by so many percent when all are written: so much memory and no more, in small
    /// segments, so that there are as many as a large server has.
    pub fn full(objects: u64, live_percent: u64) -> Result<Self, String> {
        let log_bytes = objects as usize * OBJECT_LOG_BYTES * 100 / live_percent as usize;
        let memory_bytes = log_bytes + objects as usize * INDEX_BYTES_SETTLED;
        let config = Config { memory_bytes, segment_bytes: FULL_SEGMENT_BYTES, ..Config::default() };
        Self::over(Kind::Objects, config)
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Its table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }
}

/// What the index takes of the limit while it grows, at most.
const INDEX_BYTES_PER_OBJECT: usize = 20;

/// What the index may take for an object at its emptiest, in bytes.
const INDEX_BYTES_SETTLED: usize = 17;

/// Bytes of a segment of a store that is full.
const FULL_SEGMENT_BYTES: usize = 1 << 20;

impl Side for Splinter {
    fn worker(&self, core: usize) -> Box<dyn Worker + '_> {
        let core = self.store.core(core);
        match self.kind {
            Kind::Objects => Box::new(ObjectWorker::new(core, &self.table)),
            Kind::Counters => Box::new(CounterWorker { core, table: &self.table, hashes: Vec::new() }),
        }
    }

    fn touch_all(&self) -> Result<(), String> {
        touch_all(&self.store)
    }
}

/// Backs the log with pages.
pub fn touch_all(store: &Store) -> Result<(), String> {
    let mut number = 0;
    while store.populate_segment(number).map_err(|error| format!("no pages: {error}"))? {
        number += 1;
    }
    Ok(())
}

/// As a server's worker: a pin for the batch, buckets ahead, objects ahead, then the requests, then a step of
/// background work.
pub struct ObjectWorker<'a> {
    core: Core,
    table: &'a Table,
    batch: Vec<(u64, Key)>,
}

impl<'a> ObjectWorker<'a> {
    /// A worker of that core.
    pub fn new(core: Core, table: &'a Table) -> Self {
        Self { core, table, batch: Vec::new() }
    }

    /// Its core.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// As [`Worker::write`], where there may not be memory for all.
    pub fn try_write(&mut self, numbers: &[u64]) -> Result<(), WriteError> {
        let refused = self.put_all(numbers)?;
        self.core.step();
        self.put_later(&refused)
    }

    /// Puts a batch without a step of background work; returns the numbers that were told to come again.
    pub fn put_all(&mut self, numbers: &[u64]) -> Result<Vec<u64>, WriteError> {
        let (core, table) = (&self.core, self.table);
        let pinned = core.pin();
        Self::begin(&mut self.batch, &pinned, table, numbers);
        self.batch.iter().for_each(|(hash, _)| pinned.prefetch_replaced(table, *hash, KEY_BYTES));
        let mut refused = Vec::new();
        for (&number, (hash, key)) in numbers.iter().zip(&self.batch) {
            match pinned.put(table, *hash, key, &value_of(number), Condition::Always) {
                Err(WriteError::Retry { .. }) => refused.push(number),
                put => drop(put?),
            }
        }
        Ok(refused)
    }

    /// Puts what was told to come again.
    pub fn put_later(&self, refused: &[u64]) -> Result<(), WriteError> {
        refused.iter().try_for_each(|&number| put(&self.core, self.table, number))
    }

    /// Reads a batch without a step of background work; returns how many were there, and as they were written.
    pub fn get_all(&mut self, numbers: &[u64]) -> usize {
        let pinned = self.core.pin();
        Self::begin(&mut self.batch, &pinned, self.table, numbers);
        self.batch.iter().for_each(|(hash, _)| pinned.prefetch_object(self.table, *hash));
        let found = |(number, (hash, key)): &(&u64, &(u64, Key))| {
            pinned.get(self.table, *hash, key).is_some_and(|object| copy_out(object.value(), **number))
        };
        numbers.iter().zip(&self.batch).filter(found).count()
    }

    /// Keys and hashes of a batch; then asks for the buckets.
    fn begin(batch: &mut Vec<(u64, Key)>, pinned: &Pinned<'_>, table: &Table, numbers: &[u64]) {
        batch.clear();
        batch.extend(numbers.iter().map(|&number| {
            let key = key_of(number);
            (store::hash(&key), key)
        }));
        batch.iter().for_each(|(hash, _)| pinned.prefetch_bucket(table, *hash));
    }
}

impl Worker for ObjectWorker<'_> {
    fn read(&mut self, numbers: &[u64]) -> usize {
        let found = self.get_all(numbers);
        self.core.step();
        found
    }

    fn write(&mut self, numbers: &[u64]) {
        self.try_write(numbers).expect("there is memory for all");
    }

    fn settle(&mut self) {
        while self.core.step() {}
    }
}

/// Writes again, with a step of background work before each time, until it is not told to come later.
pub fn until_there_is_memory<T>(
    core: &Core,
    mut write: impl FnMut() -> Result<T, WriteError>,
) -> Result<T, WriteError> {
    loop {
        core.step();
        match write() {
            Err(WriteError::Retry { .. }) => {}
            written => return written,
        }
    }
}

/// Puts an object; see [`until_there_is_memory`].
pub fn put(core: &Core, table: &Table, number: u64) -> Result<(), WriteError> {
    let (key, value) = (key_of(number), value_of(number));
    let hash = store::hash(&key);
    until_there_is_memory(core, || core.pin().put(table, hash, &key, &value, Condition::Always)).map(drop)
}

/// The same for counters.
struct CounterWorker<'a> {
    core: Core,
    table: &'a Table,
    hashes: Vec<u64>,
}

impl CounterWorker<'_> {
    /// Hashes of a batch; then asks for the buckets.
    fn begin(hashes: &mut Vec<u64>, pinned: &Pinned<'_>, table: &Table, numbers: &[u64]) {
        hashes.clear();
        hashes.extend(numbers.iter().map(|number| store::hash(&number.to_le_bytes())));
        hashes.iter().for_each(|&hash| pinned.prefetch_bucket(table, hash));
    }
}

impl Worker for CounterWorker<'_> {
    fn read(&mut self, numbers: &[u64]) -> usize {
        let pinned = self.core.pin();
        Self::begin(&mut self.hashes, &pinned, self.table, numbers);
        self.hashes.iter().for_each(|&hash| pinned.prefetch_key(self.table, hash, size_of::<u64>()));
        let found = |(number, hash): &(&u64, &u64)| {
            let object = pinned.get(self.table, **hash, &number.to_le_bytes());
            object.is_some_and(|object| black_box(object.value()).len() == size_of::<u64>())
        };
        let found = numbers.iter().zip(&self.hashes).filter(found).count();
        drop(pinned);
        self.core.step();
        found
    }

    fn write(&mut self, numbers: &[u64]) {
        let (core, table) = (&self.core, self.table);
        let pinned = core.pin();
        Self::begin(&mut self.hashes, &pinned, table, numbers);
        self.hashes.iter().for_each(|&hash| pinned.prefetch_replaced(table, hash, size_of::<u64>()));
        let mut refused = Vec::new();
        for (number, &hash) in numbers.iter().zip(&self.hashes) {
            match pinned.increment(table, hash, &number.to_le_bytes(), 1) {
                Err(WriteError::Retry { .. }) => refused.push((*number, hash)),
                incremented => drop(incremented.expect("there is memory for every counter")),
            }
        }
        drop(pinned);
        core.step();
        for (number, hash) in refused {
            until_there_is_memory(core, || core.pin().increment(table, hash, &number.to_le_bytes(), 1))
                .expect("there is memory for every counter");
        }
    }

    fn settle(&mut self) {
        while self.core.step() {}
    }
}
