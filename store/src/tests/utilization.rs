//! Prints figures of writing at a given utilization of memory: the speed, and the bytes that the cleaner copies.
//! `cargo test --release -p splinter-store utilization -- --ignored --nocapture --test-threads 1`, on one core
//! (`taskset`).
//!
//! A run fills the store to the utilization (objects and indexes over the limit), overwrites until the log has been
//! written three times over, and measures the next round. `SPLINTER_MEMORY_MIB` is the store's size, 512 by default.

use std::time::{Duration, Instant};

use crate::tests::Zipf;
use crate::{Condition, Config, Core, Statistics, Store, Table, WriteError, hash};

/// Puts between two background steps, like a server's between two frames.
const BATCH: usize = 32;
const KEY_BYTES: usize = 30;
const VALUE: [u8; 70] = [7; 70];
/// Bytes of an object in the log.
const OBJECT_BYTES: u64 = 120;

fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"user-0000000000000000-abcdefgh";
    key[5..13].copy_from_slice(&number.to_le_bytes());
    key
}

/// Draws the keys to write.
pub(super) enum Draw {
    Uniform(u64),
    Zipf(Zipf),
}

impl Draw {
    fn next(&self, random: &mut fastrand::Rng) -> u64 {
        match self {
            Draw::Uniform(keys) => random.u64(0..*keys),
            Draw::Zipf(zipf) => zipf.next(random),
        }
    }
}

fn memory_bytes() -> usize {
    let mib = std::env::var("SPLINTER_MEMORY_MIB").ok().and_then(|mib| mib.parse().ok());
    mib.unwrap_or(512_usize) << 20
}

/// Makes the puts of one batch; returns the number that were told to retry.
fn put_batch(core: &Core, table: &Table, keys: &[(u64, [u8; KEY_BYTES])]) -> u64 {
    let pinned = core.pin();
    keys.iter().for_each(|(hash, _)| pinned.prefetch_bucket(table, *hash));
    keys.iter().for_each(|(hash, _)| pinned.prefetch_object(table, *hash));
    let put =
        |(hash, key): &(u64, [u8; KEY_BYTES])| match pinned.put(table, *hash, key, &VALUE, Condition::Always)
        {
            Ok(_) => 0,
            Err(WriteError::Retry { .. }) => 1,
            Err(error) => panic!("{error}, {:?}", core.store().statistics()),
        };
    keys.iter().map(put).sum()
}

/// The cost of some overwrites.
#[derive(Default)]
struct Spent {
    done: u64,
    retries: u64,
    /// Excludes drawing and hashing the keys.
    time: Duration,
}

fn overwrite(core: &Core, table: &Table, draw: &Draw, count: u64, random: &mut fastrand::Rng) -> Spent {
    let mut spent = Spent::default();
    let mut keys = Vec::with_capacity(1 << 14);
    while spent.done < count {
        keys.clear();
        keys.extend((0..1 << 14).map(|_| {
            let key = key_of(draw.next(random));
            (hash(&key), key)
        }));
        let start = Instant::now();
        for batch in keys.chunks(BATCH) {
            spent.retries += put_batch(core, table, batch);
            core.step();
        }
        spent.time += start.elapsed();
        spent.done += keys.len() as u64;
    }
    spent
}

fn fill(core: &Core, table: &Table, percent: u64) -> u64 {
    let mut keys = 0;
    loop {
        let Statistics { memory_bytes, object_bytes, index_bytes, .. } = core.store().statistics();
        if (object_bytes + index_bytes) * 100 >= memory_bytes * percent {
            return keys;
        }
        for _ in 0..64 {
            let batch: Vec<_> = (0..BATCH)
                .map(|_| {
                    keys += 1;
                    let key = key_of(keys - 1);
                    (hash(&key), key)
                })
                .collect();
            while put_batch(core, table, &batch) > 0 {
                core.step();
            }
            core.step();
        }
    }
}

/// Returns the million puts per second at a utilization of memory.
fn speed_at(percent: u64, skewed: bool) -> f64 {
    let config = Config { memory_bytes: memory_bytes(), ..Config::default() };
    let store = Store::new(config).expect("memory can be reserved");
    let (core, table) = (store.core(0), store.table(1));
    let mut random = fastrand::Rng::with_seed(1);
    let keys = fill(&core, &table, percent);
    let draw = if skewed { Draw::Zipf(Zipf::new(keys, 0.99)) } else { Draw::Uniform(keys) };
    let round = config.memory_bytes as u64 / OBJECT_BYTES;
    overwrite(&core, &table, &draw, 3 * round, &mut random);
    let before = store.statistics();
    let spent = overwrite(&core, &table, &draw, round, &mut random);
    let (retries, after) = (spent.retries, store.statistics());
    let done = spent.done - retries;
    let copied = (after.bytes_relocated - before.bytes_relocated) as f64 / (done * OBJECT_BYTES) as f64;
    let million = done as f64 / spent.time.as_secs_f64() / 1e6;
    println!(
        "  {percent} %: {million:.2} M/s, {copied:.2} bytes copied per byte written, {retries} told to retry"
    );
    println!("    {:?}", after.cleaner);
    million
}

#[test]
#[ignore = "prints figures"]
fn utilization_and_the_speed_of_writes() {
    for (name, skewed) in [("uniform", false), ("Zipf 0.99", true)] {
        println!("{name}:");
        let half = speed_at(50, skewed);
        for percent in [80, 90] {
            let speed = speed_at(percent, skewed);
            println!("    {:.0} % of the speed at 50 %", 100.0 * speed / half);
        }
    }
}
