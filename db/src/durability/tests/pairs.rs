//! Writers on threads of their own while the log's thread cuts and the disk crashes: what depends on something is never
//! found without it.
//!
//! One core adds to a number, and sometimes writes one of many other keys, which live on while segments around them die:
//! the cleaner moves them all the time. Another core copies the number and commits the copy as a pair of keys. After a
//! crash, both keys of the pair are equal, the copy is no newer than the number, and nothing is older than what its writer
//! was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use disk::{Fault, SimulatedDisk};
use fastrand::Rng;
use store::{Condition, Config, Core, NEVER_MS, Pinned, Quota, Store, Table, TableOptions, Write};

use super::super::LogLayout;
use super::super::log_writer::{LogWriter, Step};
use super::running::{WHOLE, recover};
use super::{SMALL, seeds};

const FRAMES_MAX: u32 = 2_000;
const NUMBER: &[u8] = b"number";
/// Keys that are written now and then.
const OTHERS: usize = 256;
/// How long a slow write takes: meanwhile the memory becomes full. The next ones bring it to the disk, and give the cleaner
/// time to free what is there.
const SLOW: Duration = Duration::from_millis(30);
const SLOW_WRITES: u32 = 3;
const PAIR: [&[u8]; 2] = [b"first", b"second"];

const CONFIG: Config = Config { memory_bytes: 1 << 20, segment_bytes: 16384, cores: 2, ..SMALL };

/// What the writers were told: the number, and the copy.
struct Told {
    number: AtomicU64,
    copy: AtomicU64,
    others: [AtomicU64; OTHERS],
}

impl Told {
    fn new() -> Told {
        let (number, copy) = Default::default();
        Told { number, copy, others: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

fn open(disk: &SimulatedDisk) -> (Arc<Store>, Arc<Table>, LogWriter) {
    let store = Store::new(CONFIG).expect("a small store");
    let options = TableOptions { durable: true, ..TableOptions::default() };
    let table = store.table_with(1, options, &Arc::new(Quota::new(2, u64::MAX)));
    table.set_synced(true);
    let tables = Arc::new([(1, Arc::clone(&table))].into());
    let opened = recover(&store, (Box::new(disk.clone()), FRAMES_MAX), WHOLE, tables, &|_| {}, |_, _| {});
    let (writer, _) = opened.expect("a sound log");
    (store, table, writer)
}

fn get(pin: &Pinned<'_>, table: &Table, key: &[u8]) -> u64 {
    let object = pin.get(table, store::hash(key), key);
    object.map_or(0, |object| u64::from_le_bytes(object.value().try_into().expect("a number")))
}

/// Publishes what becomes stable of the values that a core wrote.
fn tell(core: &Core, written: &mut Vec<(u64, u64)>, value: u64, told: &AtomicU64) {
    written.push((core.take_seen().stable, value));
    let stable = core.store().stable_cut();
    written.retain(|&(cut, value)| {
        if cut <= stable {
            told.fetch_max(value, Ordering::SeqCst);
        }
        cut > stable
    });
}

fn add(core: &Core, table: &Table, told: &Told, stop: &AtomicBool) {
    let mut written = Vec::new();
    let mut others: [Vec<(u64, u64)>; OTHERS] = std::array::from_fn(|_| Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let added = core.pin().increment(table, store::hash(NUMBER), NUMBER, 1);
        if let Ok((_, sum)) = added {
            tell(core, &mut written, sum as u64, &told.number);
            let (number, key) = (sum as usize % OTHERS, (sum as usize % OTHERS).to_le_bytes());
            let value = sum.to_le_bytes();
            if sum % 9 == 0
                && core.pin().put(table, store::hash(&key), &key, &value, Condition::Always).is_ok()
            {
                tell(core, &mut others[number], sum as u64, &told.others[number]);
            }
        }
        core.step();
    }
}

fn copy(core: &Core, table: &Table, told: &Told, stop: &AtomicBool) {
    let mut written = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let pin = core.pin();
        let value = get(&pin, table, NUMBER);
        let bytes = value.to_le_bytes();
        let write =
            |key| Write { table, hash: store::hash(key), key, value: Some(&bytes), expires_ms: NEVER_MS };
        let committed = pin.commit(&[], &PAIR.map(write));
        drop(pin);
        if committed.is_ok() {
            tell(core, &mut written, value, &told.copy);
        }
        core.step();
    }
}

#[test]
fn a_copy_is_never_found_without_what_it_copies_nor_half_of_a_pair() {
    for seed in seeds("pairs", 60, 500) {
        let mut random = Rng::with_seed(seed);
        let disk = SimulatedDisk::new(seed, LogLayout::frame_bytes_of(CONFIG.segment_bytes), FRAMES_MAX);
        let (store, table, mut writer) = open(&disk);
        let fault = if random.bool() { Fault::Crash } else { Fault::CrashUntold };
        // In half of the runs the disk fails soon after a slow write, while the cleaner freed what was there before.
        let fails_after_slow = random.bool();
        if !fails_after_slow {
            disk.plan(random.u64(0..300), fault);
        }
        let (stop, told) = (AtomicBool::new(false), Told::new());
        let [first, second] = [store.core(0), store.core(1)];
        thread::scope(|scope| {
            let (table, told, stop) = (&*table, &told, &stop);
            scope.spawn(move || add(&first, table, told, stop));
            scope.spawn(move || copy(&second, table, told, stop));
            let mut cuts = random.u32(2..20);
            while let Ok(step) = writer.step() {
                cuts -= u32::from(fails_after_slow && step == Step::Written && cuts > 0);
                match (fails_after_slow, cuts) {
                    (true, 1..=SLOW_WRITES) => disk.slow_down(SLOW),
                    (true, 0) => {
                        disk.slow_down(Duration::ZERO);
                        disk.plan(random.u64(0..4), fault);
                    }
                    _ => {}
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop((writer, store, table));
        let (store, table, _writer) = open(&disk.restart());
        let core = store.core(0);
        let pin = core.pin();
        let number = get(&pin, &table, NUMBER);
        let pair = PAIR.map(|key| get(&pin, &table, key));
        assert_eq!(pair[0], pair[1], "seed {seed}: half of a commit");
        assert!(pair[0] <= number, "seed {seed}: {} was copied from {number}", pair[0]);
        let [told_number, told_copy] = [&told.number, &told.copy].map(|told| told.load(Ordering::SeqCst));
        assert!(number >= told_number && pair[0] >= told_copy, "seed {seed}: {told_number} {told_copy}");
        for (number, told) in told.others.iter().enumerate() {
            let (found, told) = (get(&pin, &table, &number.to_le_bytes()), told.load(Ordering::SeqCst));
            assert!(found >= told, "seed {seed}: key {number} was {told} and is {found}");
        }
        let put = pin.put(&table, store::hash(b"k"), b"k", b"v", Condition::Always);
        assert!(put.is_ok(), "seed {seed}: {put:?}");
    }
}
