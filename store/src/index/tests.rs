//! Tests of the index alone: hash order, growth, churn.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::growth::Growth;
use super::{Index, Location, NotLocked};
use crate::epoch::{EpochPin, Epochs, LocalEpoch};
use crate::hash_range::HashRange;
use crate::limits::{HASH_RANGE_WIDTH_MIN, SHRINK_BUCKETS_MIN};
use crate::reclaim::Reclaimer;
use crate::sync::{AtomicU64, Ordering};
use crate::tests::{budget, seed};

/// An index whose locations are positions in a list of hashes.
struct Bed {
    index: Index,
    epochs: Arc<Epochs>,
    reclaimer: Reclaimer,
    charge: Arc<AtomicU64>,
    hashes: Vec<u64>,
}

fn location(number: usize) -> Location {
    Location::from_offset((number + 1) * 8)
}

fn number(location: Location) -> usize {
    location.offset() / 8 - 1
}

impl Bed {
    fn new(buckets: u64, hashes: Vec<u64>) -> Bed {
        Bed::of(HashRange::ALL, buckets, hashes)
    }

    fn of(range: HashRange, buckets: u64, hashes: Vec<u64>) -> Bed {
        let epochs = Arc::new(Epochs::new(1));
        let charge = Arc::new(AtomicU64::new(0));
        let index = Index::new(range, buckets, Arc::clone(&charge), false).expect("memory for a small index");
        Bed { index, reclaimer: Reclaimer::new(Arc::clone(&epochs)), epochs, charge, hashes }
    }

    fn find(&self, pin: &EpochPin<'_>, wanted: usize) -> bool {
        let found = self.index.find(pin, self.hashes[wanted], |at| (at == location(wanted)).then_some(()));
        found.is_some()
    }

    fn insert(&self, pin: &EpochPin<'_>, wanted: usize) -> bool {
        let mut bucket = self.index.lock(pin, self.hashes[wanted]).expect("the index is there");
        bucket.insert(self.hashes[wanted], location(wanted)).is_ok()
    }

    fn remove(&self, pin: &EpochPin<'_>, wanted: usize) {
        let mut bucket = self.index.lock(pin, self.hashes[wanted]).expect("the index is there");
        let found = bucket.find(self.hashes[wanted], |at| (at == location(wanted)).then_some(()));
        let _ = bucket.remove(found.expect("it is there").0);
    }

    fn grow(&self, pin: &EpochPin<'_>, buckets: u64) -> Growth {
        self.index.grow(pin, buckets, &self.reclaimer, |at| self.hashes[number(at)], |_| {})
    }

    fn grow_whole(&self, pin: &EpochPin<'_>) {
        assert_eq!(self.index.start_growth(pin, 0, false), Ok(true));
        while self.grow(pin, 3) != Growth::Idle {}
        assert!(!self.index.is_growing(pin));
    }
}

/// All hashes, ranges whose bounds are not powers of two, and the narrowest range.
fn ranges() -> [HashRange; 5] {
    let range = |first, last| HashRange::new(first, last).expect("wide enough");
    let last = u64::MAX;
    [
        HashRange::ALL,
        range(1, last - 1),
        range(last / 7, last / 3 * 2),
        range(last - (1 << 33), last),
        range(3 << 50, (3 << 50) + (HASH_RANGE_WIDTH_MIN - 1)),
    ]
}

#[test]
fn every_entry_is_found_at_each_step_of_growth() {
    let seed = seed("every_entry_is_found_at_each_step_of_growth");
    ranges().into_iter().for_each(|range| find_at_each_step_of_growth(range, seed));
}

fn find_at_each_step_of_growth(range: HashRange, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut hashes = vec![range.first(), range.last()];
    hashes.resize_with(if cfg!(miri) { 40 } else { 600 }, || random.u64(range.first()..=range.last()));
    let bed = Bed::of(range, 1, hashes);
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    let mut inserted = 0;
    while inserted < bed.hashes.len() {
        while inserted < bed.hashes.len() && !bed.index.is_overloaded(&pin, inserted as u64) {
            assert!(bed.insert(&pin, inserted));
            inserted += 1;
        }
        assert_eq!(bed.index.start_growth(&pin, 0, false), Ok(true));
        assert_eq!(bed.index.start_growth(&pin, 0, false), Ok(false), "one growth at a time");
        while bed.grow(&pin, 1) == Growth::Unfinished {
            assert!((0..inserted).all(|wanted| bed.find(&pin, wanted)));
            assert!((inserted..bed.hashes.len()).all(|wanted| !bed.find(&pin, wanted)));
        }
    }
}

#[test]
fn every_entry_is_found_at_each_step_of_shrinking() {
    let mut random = fastrand::Rng::with_seed(seed("every_entry_is_found_at_each_step_of_shrinking"));
    let objects = if cfg!(miri) { 60 } else { 800 };
    let bed = Bed::new(objects as u64 * 2, (0..objects).map(|_| random.u64(..)).collect());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    assert!((0..objects).all(|wanted| bed.insert(&pin, wanted)));
    let mut present: Vec<usize> = (0..objects).collect();
    while bed.index.start_shrinking(&pin, present.len() as u64, false) {
        let before = bed.index.current(&pin).expect("it is there").buckets();
        loop {
            // Removes and inserts while it shrinks.
            let removed = present.swap_remove(random.usize(0..present.len()));
            bed.remove(&pin, removed);
            let moved = bed.grow(&pin, 1);
            assert!(present.iter().all(|&wanted| bed.find(&pin, wanted)));
            assert!(!bed.find(&pin, removed));
            if random.bool() && bed.insert(&pin, removed) {
                present.push(removed);
            }
            if moved == Growth::Idle || present.len() < 20 {
                break;
            }
        }
        while bed.grow(&pin, 8) != Growth::Idle {}
        assert!(bed.index.current(&pin).expect("it is there").buckets() < before);
    }
    assert!(present.iter().all(|&wanted| bed.find(&pin, wanted)));
    assert!(bed.index.bytes() < objects as u64 * 64, "the memory of the larger ones does not count any more");
}

#[test]
fn an_index_that_has_grown_is_not_due_to_shrink_nor_the_other_way_round() {
    let bed = Bed::new(1, Vec::new());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    let drain = || while bed.grow(&pin, 64) != Growth::Idle {};
    let step_objects = if cfg!(miri) { 25 } else { 500 };
    for objects in (0..80).chain((0..80).rev()).map(|step| step_objects * step) {
        if bed.index.is_overloaded(&pin, objects) {
            assert_eq!(bed.index.start_growth(&pin, objects, false), Ok(true));
            drain();
            assert!(!bed.index.is_due_to_shrink(&pin, objects, u64::from(u32::MAX)), "{objects} objects");
        }
        if bed.index.is_due_to_shrink(&pin, objects, 500) && bed.index.start_shrinking(&pin, objects, false) {
            drain();
            assert!(!bed.index.is_overloaded(&pin, objects + objects / 3), "{objects} objects");
        }
    }
    assert!(bed.index.current(&pin).expect("it is there").buckets() < 8 * SHRINK_BUCKETS_MIN);
}

#[test]
fn an_index_that_has_grown_for_what_is_to_come_waits_for_it() {
    let bed = Bed::new(1, Vec::new());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    for _ in 0..4 {
        let _ = bed.index.start_growth(&pin, 4096, false);
        while bed.grow(&pin, 64) != Growth::Idle {}
    }
    let buckets = bed.index.current(&pin).expect("it is there").buckets();
    assert!(buckets >= 787 && !bed.index.is_due_to_shrink(&pin, 3, 0));
    assert!(!bed.index.is_due_to_shrink(&pin, 3, buckets / 2 - 16));
    assert!(bed.index.is_due_to_shrink(&pin, 3, 16));
}

#[test]
fn a_bucket_is_a_range_of_hashes_at_any_size() {
    ranges().into_iter().for_each(go_through_sizes);
}

fn go_through_sizes(range: HashRange) {
    let bounds = (range.first(), range.last());
    let bed = Bed::of(range, 1, vec![range.first(), range.last()]);
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    for _ in 0..if cfg!(miri) { 6 } else { 24 } {
        let current = bed.index.current(&pin).expect("it is there");
        let step_hashes = (range.last() - range.first()) / 1000;
        let positions = (0..1000).map(|step| current.position(range.first() + step * step_hashes));
        assert!(positions.is_sorted());
        assert_eq!(current.position(range.first()), 0);
        assert_eq!(current.position(range.last()), current.buckets() - 1);
        assert_eq!((*current.hashes_of(0).start(), *current.hashes_of(current.buckets() - 1).end()), bounds);
        for position in (0..current.buckets()).take(100) {
            let hashes = current.hashes_of(position);
            let at = |hash| current.position(hash);
            assert_eq!((at(*hashes.start()), at(*hashes.end())), (position, position));
            assert!(*hashes.end() == range.last() || at(hashes.end() + 1) == position + 1);
        }
        bed.grow_whole(&pin);
        let next = bed.index.current(&pin).expect("it is there");
        let mut covered = 0;
        for position in 0..current.buckets() {
            let overlap = next.overlap(current, position);
            assert!(overlap.start <= covered && overlap.end > covered && overlap.end - overlap.start <= 3);
            covered = overlap.end;
        }
        assert_eq!(covered, next.buckets());
    }
}

#[test]
fn growth_waits_for_a_locked_bucket_and_goes_on() {
    let bed = Bed::new(4, (0..20_u64).map(|number| number << 59 | number).collect());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    assert!((0..20).all(|wanted| bed.insert(&pin, wanted)));
    assert_eq!(bed.index.start_growth(&pin, 0, false), Ok(true));
    assert_eq!(bed.grow(&pin, 1), Growth::Unfinished);
    // Locks the bucket of the new generation that the second bucket must move to.
    let locked = bed.index.lock(&pin, (1 << 62) - 1).expect("the index is there");
    assert_eq!(bed.grow(&pin, 1), Growth::Busy);
    assert!((0..20).all(|wanted| bed.find(&pin, wanted)));
    drop(locked);
    assert_eq!(bed.grow(&pin, 1), Growth::Unfinished);
    while bed.grow(&pin, 1) != Growth::Idle {}
    assert!((0..20).all(|wanted| bed.find(&pin, wanted)));
}

#[test]
fn crafted_hashes_survive_growth() {
    // Sixty-three hashes on either side of a border between buckets, which growth moves into one bucket.
    let border = 1_u64 << 62;
    let left = (0..63).map(|number| border - 1 - number);
    let bed = Bed::new(4, left.chain((0..63).map(|number| border + number)).collect());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    assert!((0..126).all(|wanted| bed.insert(&pin, wanted)));
    for _ in 0..if cfg!(miri) { 3 } else { 20 } {
        bed.grow_whole(&pin);
        assert!((0..126).all(|wanted| bed.find(&pin, wanted)));
    }
    // Chains that growth has made longer than inserts may make are not merged with others.
    let shrinks = || bed.index.start_shrinking(&pin, 126, false);
    assert!(!bed.index.current(&pin).expect("it is there").has_long_chain() || !shrinks());
    (0..126).for_each(|wanted| bed.remove(&pin, wanted));
    assert!((0..126).all(|wanted| !bed.find(&pin, wanted)));
}

#[test]
fn full_chains_of_crafted_hashes_survive_shrinking() {
    // As many hashes as inserts can chain in each of four neighbouring buckets, which are merged into one.
    let width = 1_u64 << 58;
    let hashes = (4..8_u64).flat_map(|bucket| (0..63).map(move |number| bucket * width + number));
    let bed = Bed::new(64, hashes.collect());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    let all = || 0..bed.hashes.len();
    assert!(all().all(|wanted| bed.insert(&pin, wanted)));
    assert!(bed.index.start_shrinking(&pin, 0, false));
    let moved = if cfg!(miri) { 16 } else { 1 };
    while bed.grow(&pin, moved) == Growth::Unfinished {
        assert!(all().all(|wanted| bed.find(&pin, wanted)));
    }
    assert!(!bed.index.is_growing(&pin) && all().all(|wanted| bed.find(&pin, wanted)));
    assert!(!bed.index.start_shrinking(&pin, 0, false), "chains as long as these are not merged again");
    bed.grow_whole(&pin);
    assert!(all().all(|wanted| bed.find(&pin, wanted)));
}

#[test]
fn churn_leaves_no_overflow_buckets_behind() {
    let mut random = fastrand::Rng::with_seed(seed("churn_leaves_no_overflow_buckets_behind"));
    let bed = Bed::new(64, (0..4096).map(|_| random.u64(..)).collect());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let pin = local.pin();
    let mut present = BTreeMap::new();
    for _ in 0..budget(60_000) {
        let wanted = random.usize(0..bed.hashes.len());
        if present.remove(&wanted).is_some() {
            bed.remove(&pin, wanted);
            assert!(!bed.find(&pin, wanted));
        } else if present.len() < 300 && bed.insert(&pin, wanted) {
            present.insert(wanted, ());
            assert!(bed.find(&pin, wanted));
        }
    }
    assert!(present.keys().all(|&wanted| bed.find(&pin, wanted)));
    let current = bed.index.current(&pin).expect("it is there");
    assert!(current.overflow_bytes() <= 64 * 64, "used at one time, not over time");
}

#[test]
fn a_dismantled_index_finds_nothing_and_frees_its_memory() {
    let bed = Bed::new(4, (0..40_u64).map(|number| number << 58).collect());
    let local = LocalEpoch::new(Arc::clone(&bed.epochs), 0);
    let mut dropped = Vec::new();
    {
        let pin = local.pin();
        assert!((0..20).all(|wanted| bed.insert(&pin, wanted)));
        assert_eq!(bed.index.start_growth(&pin, 0, false), Ok(true));
        assert_eq!(bed.grow(&pin, 2), Growth::Unfinished);
        while !bed.index.dismantle(&pin, 1, &bed.reclaimer, |_| (), |at| dropped.push(number(at))) {}
        assert!((0..20).all(|wanted| !bed.find(&pin, wanted)));
        assert!(matches!(bed.index.lock(&pin, 0), Err(NotLocked::Gone)));
        assert!(!bed.reclaimer.step(), "the pin may still see it");
    }
    dropped.sort_unstable();
    assert_eq!(dropped, (0..20).collect::<Vec<_>>());
    assert_eq!(bed.charge.load(Ordering::Relaxed), 0);
    while bed.reclaimer.step() {}
}
