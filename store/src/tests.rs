//! Tests of the store as a whole, through its public interface.
//!
//! Random tests print their seed and take it from `SPLINTER_SEED`; `SPLINTER_FULL=1` makes them longer, or runs them
//! with many seeds.

mod asking;
mod concurrency;
mod copied;
mod damage;
mod enumerate;
mod eviction;
mod expiry;
mod full_store;
mod give_back;
mod hash_ranges;
mod held;
mod hit_ratio;
mod model;
mod ordered;
mod pulls;
mod quota;
mod recovery;
mod retirement;
mod shrinking;
mod soak;
mod speed;
mod transfer;
mod utilization;
mod versions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Config, Core, Store, Table, WriteError};

/// Returns the seed of a random test, and prints it with the test's name.
pub(crate) fn seed(test: &str) -> u64 {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("{test}: SPLINTER_SEED={seed}");
    seed
}

/// Runs a test with one seed, or for twenty seconds with one after the other if `SPLINTER_FULL` is set and no seed is given.
pub(crate) fn each_seed(test: &str, run: impl Fn(u64)) {
    let many = std::env::var_os("SPLINTER_FULL").is_some() && std::env::var_os("SPLINTER_SEED").is_none();
    let (begun, long) = (Instant::now(), Duration::from_secs(20));
    loop {
        run(seed(test));
        if !many || begun.elapsed() > long {
            return;
        }
    }
}

/// Returns `normal`, or few under Miri.
pub(crate) fn steps(normal: usize) -> usize {
    if cfg!(miri) { normal.min(600) } else { normal }
}

/// Returns `normal`, forty times as many with `SPLINTER_FULL`, or few under Miri.
pub(crate) fn budget(normal: usize) -> usize {
    let longer = !cfg!(miri) && std::env::var_os("SPLINTER_FULL").is_some();
    steps(if longer { normal * 40 } else { normal })
}

/// Creates a small store, with segments small enough that the cleaner has work.
pub(crate) fn store(memory_bytes: usize, segment_bytes: usize, cores: usize) -> Arc<Store> {
    let config =
        Config { memory_bytes, segment_bytes, cores, huge_pages: false, durable: false, recovery_cores: 0 };
    Store::new(config).expect("a small store can be had")
}

/// Does background work until none is left.
pub(crate) fn drain(core: &Core) {
    while core.step() {}
}

/// Puts an object, and waits for the cleaner as a client would.
pub(crate) fn put_patiently(core: &Core, table: &Table, key: &[u8], value: &[u8]) -> Result<u64, WriteError> {
    for _ in 0..1_000_000 {
        let put = core.pin().put(table, crate::hash(key), key, value, crate::Condition::Always);
        match put {
            Err(WriteError::Retry { .. }) => {
                if !core.step() {
                    // A pinned reader may be waiting for a core.
                    std::thread::yield_now();
                }
            }
            other => return other,
        }
    }
    panic!("the cleaner brings no memory");
}

/// Deletes a key, and retries as a client would while the thread that holds the bucket has no core.
pub(crate) fn delete_patiently(core: &Core, table: &Table, key: &[u8]) -> Result<Option<u64>, WriteError> {
    loop {
        match core.pin().delete(table, crate::hash(key), key, crate::Condition::Always) {
            Err(WriteError::Retry { .. }) => std::thread::yield_now(),
            other => return other,
        }
    }
}

/// Returns the version and value of a key.
pub(crate) fn get(core: &Core, table: &Table, key: &[u8]) -> Option<(u64, Vec<u8>)> {
    let pinned = core.pin();
    pinned.get(table, crate::hash(key), key).map(|object| {
        assert!(object.verify(), "an object is as it was written");
        assert_eq!(object.key(), key);
        (object.version(), object.value().to_vec())
    })
}

/// Numbers drawn by Zipf's law, for skewed requests: rank r with a probability of about r^-theta.
///
/// Uses the approximation of Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD '94), as in
/// YCSB. Ranks are scattered over the numbers, so that hot objects do not lie together in the log.
pub(crate) struct Zipf {
    count: u64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    /// Creates a generator of numbers below `count`. Costs a pass over all of them.
    pub(crate) fn new(count: u64, theta: f64) -> Zipf {
        let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let (zeta_two, zeta) = (zeta(2), zeta(count));
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta);
        Zipf { count, theta, zeta, eta }
    }

    pub(crate) fn next(&self, random: &mut fastrand::Rng) -> u64 {
        let uniform = random.f64();
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            let power = (self.eta * uniform - self.eta + 1.0).powf(1.0 / (1.0 - self.theta));
            ((self.count as f64 * power) as u64).min(self.count - 1)
        };
        // Multiplying by a prime above every count permutes the numbers.
        (u128::from(rank) * 0xffff_fffb % u128::from(self.count)) as u64
    }
}
