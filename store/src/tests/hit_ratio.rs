//! Tests of the eviction policy's hit ratio, compared with simple models of FIFO and LRU for the same requests, and of
//! the effect of a scan.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Zipf, get, put_patiently, seed, store};
use crate::{Core, Eviction, Quota, Table, TableOptions};

/// Bytes of an object of these tests in the log.
const OBJECT_BYTES: u64 = 20 + 8 + 100;
/// Objects in a full cache.
const OBJECTS: usize = 2_000;

/// Creates a table that holds [`OBJECTS`], with its core.
fn cache() -> (Core, Arc<Table>) {
    let store = store(16 << 20, 1 << 16, 1);
    let eviction = Eviction::S3Fifo { budget_bytes: OBJECT_BYTES * OBJECTS as u64 };
    let options = TableOptions { eviction, ..TableOptions::default() };
    (store.core(0), store.table_with(1, options, &Arc::new(Quota::new(1, u64::MAX))))
}

/// Looks a number up, and puts it if absent. Returns whether it was present.
fn request(core: &Core, table: &Table, number: u64) -> bool {
    let key = number.to_le_bytes();
    let found = get(core, table, &key).is_some();
    if !found {
        put_patiently(core, table, &key, &[number as u8; 100]).expect("it makes room");
        core.step();
        core.step();
    }
    found
}

/// A model of a cache of [`OBJECTS`] that evicts the oldest or the least recently used object.
struct Model {
    moves_up: bool,
    clock: u64,
    entered: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
}

impl Model {
    fn new(moves_up: bool) -> Model {
        Model { moves_up, clock: 0, entered: HashMap::new(), order: VecDeque::new() }
    }

    fn request(&mut self, number: u64) -> bool {
        self.clock += 1;
        let found = self.entered.contains_key(&number);
        if !found || self.moves_up {
            self.entered.insert(number, self.clock);
            self.order.push_back((number, self.clock));
        }
        while self.entered.len() > OBJECTS {
            let (oldest, at) = self.order.pop_front().expect("what is in it has an order");
            if self.entered.get(&oldest) == Some(&at) {
                self.entered.remove(&oldest);
            }
        }
        found
    }
}

/// Returns the hits per thousand of S3-FIFO, FIFO and LRU.
fn hits(requests: impl Iterator<Item = u64>) -> [u64; 3] {
    let (core, table) = cache();
    let (mut fifo, mut lru) = (Model::new(false), Model::new(true));
    let (mut hits, mut count) = ([0; 3], 0);
    for number in requests {
        let found = [request(&core, &table, number), fifo.request(number), lru.request(number)];
        (0..3).for_each(|at| hits[at] += u64::from(found[at]));
        count += 1;
        assert!(table.bytes() <= OBJECT_BYTES * OBJECTS as u64);
    }
    hits.map(|hits| hits * 1_000 / count)
}

#[test]
#[cfg_attr(miri, ignore = "many requests")]
fn of_requests_by_zipfs_law_more_are_hits_than_in_fifo_and_lru() {
    let mut random = fastrand::Rng::with_seed(seed("of_requests_by_zipfs_law_more_are_hits"));
    for theta in [0.8, 0.99, 1.2] {
        let zipf = Zipf::new(20_000, theta);
        let [ours, fifo, lru] = hits((0..150_000).map(|_| zipf.next(&mut random)));
        println!("Zipf {theta}: {ours} of 1,000 are hits, in FIFO {fifo}, in LRU {lru}");
        assert!(ours >= fifo && ours + 5 >= lru, "Zipf {theta}: {ours}, FIFO {fifo}, LRU {lru}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "many requests")]
fn where_half_of_the_requests_never_come_again_more_are_hits_than_in_lru() {
    let mut random = fastrand::Rng::with_seed(seed("where_half_of_the_requests_never_come_again"));
    let zipf = Zipf::new(20_000, 0.99);
    let requests = (0..150_000).map(|at| if at % 2 == 0 { zipf.next(&mut random) } else { 1_000_000 + at });
    let [ours, fifo, lru] = hits(requests);
    println!("half one-time: {ours} of 1,000 are hits, in FIFO {fifo}, in LRU {lru}");
    assert!(ours > fifo && ours > lru, "{ours}, FIFO {fifo}, LRU {lru}");
}

#[test]
#[cfg_attr(miri, ignore = "many requests")]
fn a_scan_does_not_flush_what_is_used_often() {
    let (core, table) = cache();
    let hot = 0..OBJECTS as u64 / 2;
    for _ in 0..4 {
        hot.clone().for_each(|number| {
            request(&core, &table, number);
        });
    }
    // Ten times as many numbers as fit, each once.
    (1_000_000..1_000_000 + 10 * OBJECTS as u64).for_each(|number| {
        request(&core, &table, number);
    });
    let left = hot.clone().filter(|number| get(&core, &table, &number.to_le_bytes()).is_some()).count();
    println!("of {} that were used often {left} outlived the scan", hot.end);
    assert!(left * 100 >= OBJECTS / 2 * 95, "{left} of {}", hot.end);
}

#[test]
fn what_everybody_uses_does_not_keep_a_write_looking_for_ever() {
    let (core, table) = cache();
    let numbers = 0..if cfg!(miri) { 50 } else { OBJECTS as u64 };
    for _ in 0..5 {
        numbers.clone().for_each(|number| {
            request(&core, &table, number);
        });
    }
    // All objects have the maximum count of uses; still no write has to be retried.
    for number in 1_000_000..1_000_000 + numbers.end / 2 {
        let key = u64::to_le_bytes(number);
        let put = core.pin().put(&table, crate::hash(&key), &key, &[0; 100], crate::Condition::Always);
        assert!(put.is_ok(), "{put:?}");
        core.step();
        core.step();
        numbers.clone().step_by(7).for_each(|number| {
            let _ = get(&core, &table, &number.to_le_bytes());
        });
    }
}
