//! Tests of the tree alone, compared with a sorted set.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::epoch::{Epochs, LocalEpoch};
use crate::ordered::{KeyRange, NodeGarbage, OrderedKeys};
use crate::reclaim::Reclaimer;
use crate::sync::Busy;
use crate::tests::{budget, each_seed, seed, steps};

fn new_keys() -> OrderedKeys {
    OrderedKeys::new(Arc::default())
}

struct World {
    keys: OrderedKeys,
    epochs: Arc<Epochs>,
    reclaimer: Reclaimer,
}

impl World {
    fn new(cores: usize) -> World {
        let epochs = Arc::new(Epochs::new(cores));
        World { keys: new_keys(), reclaimer: Reclaimer::new(Arc::clone(&epochs)), epochs }
    }

    fn local(&self, core: usize) -> LocalEpoch {
        LocalEpoch::new(Arc::clone(&self.epochs), core)
    }

    fn insert(&self, local: &LocalEpoch, key: &[u8], garbage: &mut NodeGarbage) {
        while self.keys.insert(&local.pin(), key, garbage).is_err() {}
        garbage.hand_over_when_due(&self.reclaimer);
    }

    fn remove(&self, local: &LocalEpoch, key: &[u8], garbage: &mut NodeGarbage) {
        let pin = local.pin();
        loop {
            match self.keys.removal(&pin, key) {
                Ok(None) => break,
                Ok(Some(removal)) => {
                    let Ok(removed) = self.keys.remove(removal) else { continue };
                    self.keys.finish(&pin, key, removed, garbage);
                    break;
                }
                Err(Busy) => {}
            }
        }
        drop(pin);
        garbage.hand_over_when_due(&self.reclaimer);
    }

    /// Returns the number of branches above the first leaf.
    fn depth(&self, local: &LocalEpoch) -> usize {
        let pin = local.pin();
        let (mut node, mut depth) = (self.keys.root.load(&pin).0, 0);
        while !node.is_leaf() {
            (node, depth) = (node.children[0].load(&pin).0, depth + 1);
        }
        depth
    }

    /// Walks in pages of random sizes, each under its own pin and starting after the last key of the previous page.
    fn pages(&self, local: &LocalEpoch, range: KeyRange<'_>, random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
        let mut met: Vec<Vec<u8>> = Vec::new();
        loop {
            let (pin, size, before) = (local.pin(), random.usize(1..60), met.len());
            let after = met.last().cloned();
            let mut walk = self.keys.walk(&pin, KeyRange { after: after.as_deref(), ..range });
            met.extend(std::iter::from_fn(|| walk.next().map(<[u8]>::to_vec)).take(size));
            if met.len() - before < size {
                return met;
            }
        }
    }

    fn range(&self, local: &LocalEpoch, range: KeyRange<'_>) -> Vec<Vec<u8>> {
        let pin = local.pin();
        let mut walk = self.keys.walk(&pin, range);
        std::iter::from_fn(|| walk.next().map(<[u8]>::to_vec)).collect()
    }
}

fn random_key(random: &mut fastrand::Rng, wide: bool) -> Vec<u8> {
    let bytes = if random.u8(0..20) == 0 { random.usize(0..3000) } else { random.usize(0..4) };
    let letters = if wide { 16 } else { 3 };
    (0..bytes).map(|_| random.u8(0..letters) * 17).collect()
}

fn random_range<'k>(random: &mut fastrand::Rng, keys: &'k [Vec<u8>; 4]) -> KeyRange<'k> {
    let mut some = |key: &'k Vec<u8>| random.bool().then_some(&key[..]);
    KeyRange {
        from: some(&keys[0]).unwrap_or_default(),
        to: some(&keys[1]),
        prefix: some(&keys[2]).unwrap_or_default(),
        after: some(&keys[3]),
        reverse: some(&keys[0]).is_some(),
    }
}

fn expected(model: &BTreeSet<Vec<u8>>, range: &KeyRange<'_>) -> Vec<Vec<u8>> {
    let is_in = |key: &[u8]| {
        let passed = |after: &[u8]| if range.reverse { key >= after } else { key <= after };
        key >= range.from
            && range.to.is_none_or(|to| key < to)
            && key.starts_with(range.prefix)
            && !range.after.is_some_and(passed)
    };
    let mut keys: Vec<_> = model.iter().filter(|key| is_in(key)).cloned().collect();
    if range.reverse {
        keys.reverse();
    }
    keys
}

fn run(seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (world, mut model, mut garbage) = (World::new(1), BTreeSet::new(), NodeGarbage::default());
    let local = world.local(0);
    for step in 0..steps {
        // In waves, so that the tree grows deep and empties again.
        let growing = (step / (steps / 6).max(1)).is_multiple_of(2);
        let key = random_key(&mut random, true);
        if random.u8(0..10) < if growing { 8 } else { 2 } {
            world.insert(&local, &key, &mut garbage);
            model.insert(key);
        } else {
            let key = model.range(key..).next().cloned().unwrap_or_default();
            world.remove(&local, &key, &mut garbage);
            model.remove(&key);
        }
        if step % 61 == 0 {
            let keys = std::array::from_fn(|_| random_key(&mut random, false));
            let range = random_range(&mut random, &keys);
            assert_eq!(world.range(&local, range), expected(&model, &range), "{range:?}");
        }
    }
    assert_eq!(world.range(&local, KeyRange::default()), model.iter().cloned().collect::<Vec<_>>());
    for key in &model {
        world.remove(&local, key, &mut garbage);
    }
    assert_eq!(world.range(&local, KeyRange::default()), Vec::<Vec<u8>>::new());
    assert_eq!(world.keys.bytes(), new_keys().bytes(), "an empty tree is as small as a new one");
}

#[test]
fn ranges_are_those_of_a_sorted_set() {
    each_seed("ranges_are_those_of_a_sorted_set", |seed| run(seed, steps(40_000)));
}

#[test]
fn bytes_are_those_of_the_nodes_and_all_are_freed_when_taken_apart() {
    let (world, mut garbage) = (World::new(1), NodeGarbage::default());
    let local = world.local(0);
    for number in 0..if cfg!(miri) { 300_u32 } else { 20_000 } {
        world.insert(&local, &number.to_be_bytes(), &mut garbage);
    }
    let per_key = world.keys.bytes() / if cfg!(miri) { 300 } else { 20_000 };
    assert!((8..24).contains(&per_key), "{per_key} bytes for a key of four");
    while world.keys.dismantle(&local.pin(), &mut garbage).is_some() {}
    assert_eq!(world.keys.bytes(), new_keys().bytes());
    assert_eq!(world.range(&local, KeyRange::default()), Vec::<Vec<u8>>::new());
}

/// The remaining keys are so sparse that leaves and branches must be joined.
#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn memory_goes_back_while_keys_disappear_at_random() {
    const KEYS: u32 = 60_000;
    const LEFT: usize = 40;
    let seed = seed("memory_goes_back_while_keys_disappear_at_random");
    let (world, mut garbage) = (World::new(1), NodeGarbage::default());
    let (local, mut random) = (world.local(0), fastrand::Rng::with_seed(seed));
    let mut keys: Vec<_> = (0..KEYS).map(|number| format!("user{number:08}").into_bytes()).collect();
    random.shuffle(&mut keys);
    keys.iter().for_each(|key| world.insert(&local, key, &mut garbage));
    for key in keys.drain(LEFT..) {
        world.remove(&local, &key, &mut garbage);
    }
    let fresh = World::new(1);
    keys.iter().for_each(|key| fresh.insert(&fresh.local(0), key, &mut NodeGarbage::default()));
    let (left, fresh_bytes) = (world.keys.bytes(), fresh.keys.bytes());
    assert!(left < 2 * fresh_bytes, "{left} bytes in place of {fresh_bytes}");
    keys.sort_unstable();
    assert_eq!(world.range(&local, KeyRange::default()), keys);
    assert_eq!(world.depth(&local), 1, "as high as with many keys");
}

#[test]
fn bounds_that_leave_nothing_find_nothing() {
    let (world, mut garbage) = (World::new(1), NodeGarbage::default());
    let local = world.local(0);
    for key in [&b""[..], b"\0", b"a", b"ab", b"b", b"\xff", b"\xff\xff", &[0xff; 65_535]] {
        world.insert(&local, key, &mut garbage);
    }
    for reverse in [false, true] {
        let count = |range: KeyRange<'_>| world.range(&local, KeyRange { reverse, ..range }).len();
        assert_eq!(count(KeyRange::default()), 8);
        assert_eq!(count(KeyRange { to: Some(b""), ..KeyRange::default() }), 0);
        assert_eq!(count(KeyRange { from: b"b", to: Some(b"a"), ..KeyRange::default() }), 0);
        assert_eq!(count(KeyRange { from: b"a", to: Some(b"a"), ..KeyRange::default() }), 0);
        assert_eq!(count(KeyRange { prefix: b"\xff", ..KeyRange::default() }), 3);
        assert_eq!(count(KeyRange { prefix: &[0xff; 65_535], ..KeyRange::default() }), 1);
        assert_eq!(count(KeyRange { prefix: b"a", from: b"b", ..KeyRange::default() }), 0);
    }
}

#[test]
fn leaves_that_change_after_a_walk_are_not_repeated() {
    let (world, mut garbage) = (World::new(1), NodeGarbage::default());
    let local = world.local(0);
    (0..1000_u64).for_each(|number| world.insert(&local, &number.to_be_bytes(), &mut garbage));
    let (first, last) = (100_u64.to_be_bytes(), 900_u64.to_be_bytes());
    for reverse in [false, true] {
        let range = KeyRange { from: &first, to: Some(&last), reverse, ..KeyRange::default() };
        let pin = local.pin();
        let leaves = || {
            let mut walk = world.keys.walk(&pin, range);
            while walk.next().is_some() {}
            walk.leaves()
        };
        let repeats = |leaves| world.keys.walk(&pin, range).repeats(leaves);
        let before = leaves();
        assert!(before.count > 2 && repeats(before));
        for (number, is_outside) in [(5_u64, true), (995, true), (500, false)] {
            let mut key = number.to_be_bytes().to_vec();
            key.push(0);
            let before = leaves();
            world.insert(&local, &key, &mut garbage);
            assert_eq!(repeats(before), is_outside, "{number} {reverse}");
            let between = leaves();
            world.remove(&local, &key, &mut garbage);
            assert_eq!(repeats(between), is_outside, "{number} {reverse}");
            assert_eq!(repeats(before), is_outside, "the same keys, but not all the time");
        }
    }
}

/// One of two keys, far from each other, is always there. A walk alone may meet neither.
#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn what_two_walks_meet_in_the_same_leaves_was_there_at_one_moment() {
    const KEYS: u64 = 2000;
    let (world, stop) = (World::new(2), AtomicBool::new(false));
    let ends = [0_u64, KEYS - 1].map(u64::to_be_bytes);
    for number in 0..KEYS - 1 {
        world.insert(&world.local(0), &number.to_be_bytes(), &mut NodeGarbage::default());
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (local, mut garbage) = (world.local(1), NodeGarbage::default());
            for turn in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                world.insert(&local, &ends[(turn + 1) % 2], &mut garbage);
                world.remove(&local, &ends[turn % 2], &mut garbage);
            }
        });
        let (local, range) = (world.local(0), KeyRange::default());
        let (mut confirmed, mut torn) = (0, 0);
        for _ in 0..budget(20_000) {
            let pin = local.pin();
            let (mut walk, mut has_end) = (world.keys.walk(&pin, range), false);
            while let Some(key) = walk.next() {
                has_end |= ends.iter().any(|end| end == key);
            }
            if world.keys.walk(&pin, range).repeats(walk.leaves()) {
                confirmed += 1;
                torn += usize::from(!has_end);
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(confirmed > 0 && torn == 0, "{torn} of {confirmed}: one of the two is always there");
    });
}

/// Writers fill and empty ranges of a key space in which some keys always stay.
#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn who_stays_is_met_exactly_once_whatever_comes_and_goes() {
    const KEYS: u64 = 4000;
    const STABLE: u64 = 10;
    let seed = seed("who_stays_is_met_exactly_once_whatever_comes_and_goes");
    let (world, stop) = (World::new(4), AtomicBool::new(false));
    for number in (0..KEYS).step_by(STABLE as usize) {
        world.insert(&world.local(0), &number.to_be_bytes(), &mut NodeGarbage::default());
    }
    std::thread::scope(|scope| {
        for core in 0..2 {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                let (local, mut garbage) = (world.local(core), NodeGarbage::default());
                let mut random = fastrand::Rng::with_seed(seed ^ core as u64);
                while !stop.load(Ordering::Relaxed) {
                    let first = random.u64(0..KEYS);
                    let mine = |number: &u64| !number.is_multiple_of(STABLE) && number % 2 == core as u64;
                    let numbers = first..first + random.u64(1..400);
                    for number in numbers.clone().filter(mine) {
                        world.insert(&local, &number.to_be_bytes(), &mut garbage);
                    }
                    for number in numbers.filter(mine) {
                        world.remove(&local, &number.to_be_bytes(), &mut garbage);
                    }
                }
            });
        }
        let (local, mut random) = (world.local(3), fastrand::Rng::with_seed(seed));
        for round in 0..budget(3000).min(100_000) {
            let one = random.u64(0..KEYS).to_be_bytes();
            // All keys, or the 256 keys around one.
            let prefix = &one[..if random.bool() { 0 } else { 7 }];
            let range = KeyRange { reverse: round % 2 == 1, prefix, ..KeyRange::default() };
            let keys = match random.bool() {
                true => world.range(&local, range),
                false => world.pages(&local, range, &mut random),
            };
            let in_order = |pair: &[Vec<u8>]| (pair[0] < pair[1]) == (round % 2 == 0) && pair[0] != pair[1];
            assert!(keys.windows(2).all(in_order), "a key twice or out of order");
            assert!(keys.iter().all(|key| key.starts_with(prefix)), "a key of another prefix");
            let number = |key: &Vec<u8>| u64::from_be_bytes(key[..].try_into().expect("eight bytes"));
            let stable =
                keys.iter().map(number).filter(|number| number % STABLE == 0 && *number < KEYS).count();
            let staying = (0..KEYS).step_by(STABLE as usize).map(u64::to_be_bytes);
            let expected = staying.filter(|key| key.starts_with(prefix)).count();
            assert_eq!(stable, expected, "one that stayed was not met");
        }
        stop.store(true, Ordering::Relaxed);
    });
}
