//! Tests of pulls: the gathered objects, and the handling of untrusted bytes at the other side.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{drain, each_seed, put_patiently, steps, store};
use crate::object::Carried;
use crate::{
    Condition, Core, Cursor, HashRange, Quota, ReplayError, Replayed, Table, TableOptions, WriteError, hash,
};

const PULL_BYTES: usize = 2_000;

/// Creates a small store with a table; returns its core and the table.
fn side(memory_bytes: usize) -> (Core, Arc<Table>) {
    let store = store(memory_bytes, 64 << 10, 1);
    (store.core(0), store.table(1))
}

/// Returns all pulls of a range of hashes.
fn pulls(core: &Core, table: &Table, hashes: HashRange, bytes_max: usize) -> Vec<Vec<u8>> {
    let (mut pulls, mut from) = (Vec::new(), Some(Cursor::before(hashes.first())));
    while let Some(cursor) = from {
        let mut pull = Vec::new();
        from = core
            .pin()
            .gather(table, cursor, hashes.last(), bytes_max, &mut pull)
            .expect("the table is there");
        assert!(from.is_none_or(|from| from != cursor), "it goes on");
        pulls.push(pull);
    }
    pulls
}

/// Replays a pull, retrying while the store says so: hashes that arrive in order fill one bucket after the other, so
/// an index that expects no objects must grow quickly.
fn replay(core: &Core, table: &Table, mut pull: &[u8]) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed::default();
    loop {
        match core.pin().replay(table, HashRange::ALL, &mut pull, &mut replayed) {
            Err(ReplayError::Refused(WriteError::Retry { .. })) => core.step(),
            done => return done.map(|()| replayed),
        };
    }
}

/// Creates a table that expects this many objects.
pub(super) fn expecting(core: &Core, id: u32, objects_expected: u64) -> Arc<Table> {
    let options = TableOptions { objects_expected, ..TableOptions::default() };
    core.store().table_with(id, options, &Arc::new(Quota::new(1, u64::MAX)))
}

/// Returns the keys of a pull's objects.
fn keys(mut pull: &[u8]) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while !pull.is_empty() {
        let (carried, rest) = Carried::split(pull).expect("it comes out even");
        assert!(carried.check().is_some(), "as it was written");
        keys.push(carried.key().to_vec());
        pull = rest;
    }
    keys
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn pulls_have_each_object_once_whatever_the_sizes_and_while_the_index_grows() {
    each_seed("pulls_have_each_object_once", |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (source, table) = side(16 << 20);
        let (largest, objects) = *random.choice([(40, 9_000), (3_000, 2_000), (30_000, 150)].iter()).unwrap();
        let mut model = BTreeMap::new();
        for number in 0..steps(objects) as u64 {
            let value = vec![number as u8; random.usize(0..largest)];
            put_patiently(&source, &table, &number.to_le_bytes(), &value).expect("there is memory");
            model.insert(number.to_le_bytes().to_vec(), value);
        }
        if random.bool() {
            drain(&source);
        }
        let third = u64::MAX / 3;
        let bounds = [(0, third - 1), (third, 2 * third), (2 * third + 1, u64::MAX)];
        let (target, other) = side(16 << 20);
        other.expect_arrivals(1, table.version_ceiling());
        let mut stored = 0;
        for hashes in bounds.map(|(first, last)| HashRange::new(first, last).expect("wide enough")) {
            for pull in pulls(&source, &table, hashes, PULL_BYTES) {
                let keys = keys(&pull);
                assert!(keys.len() <= 1 || pull.len() <= PULL_BYTES, "{} B, {} keys", pull.len(), keys.len());
                assert!(keys.iter().all(|key| hashes.contains(hash(key))), "of its range");
                let replayed = replay(&target, &other, &pull).expect("there is memory");
                assert_eq!(replayed, Replayed { stored: keys.len() as u64, ..Replayed::default() });
                stored += replayed.stored;
            }
        }
        assert_eq!((stored, other.objects()), (model.len() as u64, model.len() as u64));
        assert_eq!(other.bytes(), table.bytes());
        for (key, value) in &model {
            let pinned = target.pin();
            let object = pinned.get(&other, hash(key), key).expect("it has come");
            assert_eq!((object.value(), object.version()), (&value[..], 1));
            assert!(object.verify(), "sealed anew");
        }
    });
}

#[test]
fn what_has_expired_does_not_travel() {
    let (source, table) = side(1 << 20);
    for (key, expires_ms) in [(b"gone", 10), (b"here", 30)] {
        let put = source.pin().put_until(&table, hash(key), key, b"value", expires_ms, Condition::Always);
        put.expect("there is memory");
    }
    source.store().advance_clock(20);
    let gathered = pulls(&source, &table, HashRange::ALL, PULL_BYTES).concat();
    assert_eq!(keys(&gathered), [b"here".to_vec()]);
    let mut one = Vec::new();
    source.pin().gather_hash(&table, hash(b"gone"), &mut one);
    assert_eq!(one, [0; 0]);
    source.pin().gather_hash(&table, hash(b"here"), &mut one);
    assert_eq!(one, gathered);
}

#[test]
fn a_damaged_object_is_counted_at_the_target_and_takes_nobody_with_it() {
    for at in [0, 5, 9, 14, 21, 40] {
        let (source, table) = side(1 << 20);
        for number in 0..20_u64 {
            put_patiently(&source, &table, &number.to_le_bytes(), &[7; 30]).expect("there is memory");
        }
        let key = 7_u64.to_le_bytes();
        let location = {
            let pinned = source.pin();
            let at = |at| pinned.object_of(at, &key).map(|_| at);
            table.index.find(&pinned.pin, hash(&key), at).expect("it was put")
        };
        source.store().log.damage(location, at, 0x10);
        let gathered = pulls(&source, &table, HashRange::ALL, 20_000).concat();
        let (target, other) = side(1 << 20);
        let replayed = replay(&target, &other, &gathered).expect("there is memory");
        assert_eq!(replayed, Replayed { stored: 19, corrupted: 1, late: 0 }, "byte {at}");
        assert!(target.pin().get(&other, hash(&key), &key).is_none());
    }
}

#[test]
fn a_pull_that_does_not_come_out_even_or_that_nobody_asked_for_changes_nothing() {
    let (source, table) = side(1 << 20);
    for number in 0..30_u64 {
        put_patiently(&source, &table, &number.to_le_bytes(), b"value").expect("there is memory");
    }
    let gathered = pulls(&source, &table, HashRange::ALL, 20_000).concat();
    let (target, other) = side(1 << 20);
    for end in (1..gathered.len()).filter(|end| !end.is_multiple_of(gathered.len() / 30)) {
        assert_eq!(replay(&target, &other, &gathered[..end]), Err(ReplayError::Cut));
    }
    let half = HashRange::new(0, u64::MAX / 2).expect("wide enough");
    let (mut rest, mut replayed) = (&gathered[..], Replayed::default());
    let foreign = target.pin().replay(&other, half, &mut rest, &mut replayed);
    assert_eq!((foreign, rest.len()), (Err(ReplayError::Foreign), gathered.len()));
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let options = TableOptions { hashes: half, ..TableOptions::default() };
    let narrow = target.store().table_with(2, options, &quota);
    assert_eq!(replay(&target, &narrow, &gathered), Err(ReplayError::Foreign), "a table has its hashes only");
    assert_eq!((replayed, other.objects(), narrow.objects()), (Replayed::default(), 0, 0));
}

#[test]
fn bytes_of_a_stranger_are_refused_or_left_out() {
    each_seed("bytes_of_a_stranger_are_refused_or_left_out", |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let (source, table) = side(1 << 20);
        let (target, other) = side(4 << 20);
        for number in 0..40_u64 {
            let value = vec![3; random.usize(0..200)];
            put_patiently(&source, &table, &number.to_le_bytes(), &value).expect("there is memory");
        }
        let gathered = pulls(&source, &table, HashRange::ALL, 20_000).concat();
        for _ in 0..steps(2_000) {
            let mut bytes = gathered.clone();
            for _ in 0..random.usize(1..20) {
                let at = random.usize(0..bytes.len());
                match random.u8(0..3) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] ^= 1 << random.u8(0..8),
                    _ => bytes.truncate(at.max(1)),
                }
            }
            if random.u8(0..4) == 0 {
                bytes.iter_mut().for_each(|byte| *byte = random.u8(..));
            }
            let _ = replay(&target, &other, &bytes);
            target.step();
        }
        // Whatever the result, every present object was really written.
        assert!(other.objects() <= 40);
        for number in 0..40_u64 {
            let (pinned, key) = (target.pin(), number.to_le_bytes());
            if let Some(object) = pinned.get(&other, hash(&key), &key) {
                assert!(object.verify() && object.value().iter().all(|&byte| byte == 3));
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_replay_that_finds_no_memory_goes_on_where_it_was_refused() {
    let (source, table) = side(4 << 20);
    for number in 0..2_000_u64 {
        put_patiently(&source, &table, &number.to_le_bytes(), &[1; 700]).expect("there is memory");
    }
    let gathered = pulls(&source, &table, HashRange::ALL, 20_000).concat();
    let target = store(1 << 20, 64 << 10, 1).core(0);
    let other = expecting(&target, 1, table.objects());
    let (mut rest, mut replayed) = (&gathered[..], Replayed::default());
    let full = target.pin().replay(&other, HashRange::ALL, &mut rest, &mut replayed);
    assert!(matches!(full, Err(ReplayError::Refused(WriteError::OutOfMemory | WriteError::Retry { .. }))));
    assert!(replayed.stored > 100 && rest.len() < gathered.len(), "{full:?}, {replayed:?}");
    let keys = keys(&gathered[..gathered.len() - rest.len()]);
    assert_eq!((keys.len() as u64, other.objects()), (replayed.stored, replayed.stored));
    for key in &keys[..keys.len() / 2] {
        target.pin().delete(&other, hash(key), key, Condition::Always).expect("deletes pass");
    }
    drain(&target);
    let before = replayed.stored;
    let _ = target.pin().replay(&other, HashRange::ALL, &mut rest, &mut replayed);
    assert!(replayed.stored > before, "there is room again");
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn an_index_that_was_made_for_what_comes_neither_grows_nor_shrinks_while_it_comes() {
    let (source, table) = side(16 << 20);
    for number in 0..20_000_u64 {
        put_patiently(&source, &table, &number.to_le_bytes(), b"value").expect("there is memory");
    }
    let target = store(16 << 20, 64 << 10, 1).core(0);
    // An estimate by the width of the hashes, slightly too low.
    let other = expecting(&target, 1, table.objects() / 20 * 19);
    other.expect_arrivals(1, table.version_ceiling());
    let before = other.index_bytes();
    for pull in pulls(&source, &table, HashRange::ALL, 20_000) {
        replay(&target, &other, &pull).expect("there is memory");
        drain(&target);
        assert_eq!(other.index.bytes(), before);
    }
    other.arrived(0, u64::MAX);
    for number in 0..19_000_u64 {
        let key = number.to_le_bytes();
        target.pin().delete(&other, hash(&key), &key, Condition::Always).expect("deletes pass");
        target.step();
    }
    drain(&target);
    assert!(other.index_bytes() < before / 4, "then it has the size that it needs");
    let greedy = expecting(&target, 2, u64::MAX);
    assert!(greedy.index_bytes() <= 2 << 20, "an eighth of the memory at most");
}
