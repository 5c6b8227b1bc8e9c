//! Tests of ordered tables through the store's public interface: scans, commits that rely on them, memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{budget, drain, each_seed, seed, steps, store};
use crate::{
    CommitError, Condition, Core, KeyRange, NotOrdered, Quota, RangeCheck, ReadCheck, Store, Table,
    TableKind, Write, WriteError, hash,
};

fn ordered_table(store: &Store, cores: usize) -> (Arc<Table>, Arc<Quota>) {
    let quota = Arc::new(Quota::new(cores, u64::MAX));
    (store.table_of_kind(9, TableKind::Ordered, &quota), quota)
}

/// Returns keys, versions and values of a range, at most `limit`.
fn scan(core: &Core, table: &Table, range: KeyRange<'_>, limit: usize) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let (pinned, mut met) = (core.pin(), Vec::new());
    let scanned = pinned.scan(table, range, limit, |key, hash_of_key, object| {
        assert_eq!(hash_of_key, hash(key));
        if let Some(object) = object.filter(|_| met.len() < limit) {
            assert!(object.verify() && object.key() == key);
            met.push((key.to_vec(), object.version(), object.value().to_vec()));
        }
        if met.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    scanned.expect("the table is ordered");
    met
}

fn put(core: &Core, table: &Table, key: &[u8], value: &[u8]) -> u64 {
    super::put_patiently(core, table, key, value).expect("there is memory")
}

#[test]
fn scans_of_a_table_that_is_not_ordered_are_refused() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    assert_eq!(table.kind(), TableKind::Hash);
    let refused = core.pin().scan(&table, KeyRange::default(), 1, |_, _, _| ControlFlow::Continue(()));
    assert_eq!(refused, Err(NotOrdered));
}

type Model = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    (0..random.usize(0..5)).map(|_| random.u8(b'a'..b'g')).collect()
}

fn compare(core: &Core, table: &Table, model: &Model, random: &mut fastrand::Rng) {
    let keys: [Vec<u8>; 3] = std::array::from_fn(|_| random_key(random));
    let range = KeyRange {
        from: &keys[0][..random.usize(0..=keys[0].len())],
        to: random.bool().then_some(&keys[1][..]),
        prefix: &keys[0][..random.usize(0..=keys[0].len().min(1))],
        after: random.bool().then_some(&keys[2][..]),
        reverse: random.bool(),
    };
    let limit = random.usize(1..60);
    let is_in = model.iter().filter(|(key, _)| range.contains(key));
    let mut expected: Vec<_> =
        is_in.map(|(key, (version, value))| (key.clone(), *version, value.clone())).collect();
    if range.reverse {
        expected.reverse();
    }
    expected.truncate(limit);
    assert_eq!(scan(core, table, range, limit), expected, "{range:?} limit {limit}");
}

fn commit(core: &Core, table: &Table, model: &mut Model, random: &mut fastrand::Rng) {
    let keys: Vec<_> = (0..random.usize(1..8)).map(|_| random_key(random)).collect();
    let values: Vec<_> = keys.iter().map(|_| random.bool().then(|| vec![1; random.usize(0..60)])).collect();
    let write = |(key, value): (&'_ Vec<u8>, &'_ Option<Vec<u8>>)| (hash(key), key.clone(), value.clone());
    let owned: Vec<_> = keys.iter().zip(&values).map(write).collect();
    let writes: Vec<_> = owned
        .iter()
        .map(|(hash, key, value)| Write {
            table,
            hash: *hash,
            key,
            value: value.as_deref(),
            expires_ms: crate::NEVER_MS,
        })
        .collect();
    let prefix = random_key(random);
    let range = KeyRange { prefix: &prefix, reverse: random.bool(), ..KeyRange::default() };
    let met = scan(core, table, range, usize::MAX);
    let reads: Vec<_> = met
        .iter()
        .map(|(key, version, _)| ReadCheck { table, hash: hash(key), key, version: *version })
        .collect();
    // A key that is omitted from the reads counts as one that has appeared since the scan.
    let left_out = random.usize(0..4).min(reads.len());
    let reads = &reads[left_out..];
    let check = RangeCheck { table, range, until: None, reads: 0..reads.len() };
    match core.pin().commit_ranges(reads, &[check], &writes) {
        Ok(version) => {
            assert_eq!(left_out, 0);
            for (_, key, value) in owned {
                match value {
                    Some(value) => drop(model.insert(key, (version, value))),
                    None => drop(model.remove(&key)),
                }
            }
        }
        Err(CommitError::Conflict { read }) => assert!(left_out > 0 && read == reads.len()),
        Err(error) => assert!(matches!(error, CommitError::Write(WriteError::Retry { .. })), "{error}"),
    }
}

fn run(seed: u64, steps: usize) {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, (table, quota)) = (store.core(0), ordered_table(&store, 1));
    let (mut model, mut random) = (Model::new(), fastrand::Rng::with_seed(seed));
    for _ in 0..steps {
        let key = random_key(&mut random);
        match random.u8(0..12) {
            0..4 => {
                let value = vec![random.u8(..); random.usize(0..100)];
                let version = put(&core, &table, &key, &value);
                model.insert(key, (version, value));
            }
            4..7 => {
                let deleted = core.pin().delete(&table, hash(&key), &key, Condition::Always);
                assert_eq!(deleted, Ok(model.remove(&key).map(|(version, _)| version)));
            }
            7 => commit(&core, &table, &mut model, &mut random),
            8 => drop(core.step()),
            9 => {
                let refused =
                    core.pin().put(&table, hash(&key), &key, b"", Condition::Version(u64::MAX >> 10));
                assert!(refused.is_err());
            }
            _ => compare(&core, &table, &model, &mut random),
        }
    }
    assert_eq!(scan(&core, &table, KeyRange::default(), usize::MAX).len(), model.len());
    assert_eq!(table.objects(), model.len() as u64);
    let tree_bytes = quota.bytes() - table.bytes();
    assert!(tree_bytes + 4 * 64 <= table.index_bytes() + 1024, "the quota counts what the tree takes");
    table.retire();
    drain(&core);
    assert_eq!(store.statistics().tables, 0);
    assert_eq!(quota.bytes(), 0, "a table that is gone takes nothing");
}

#[test]
fn scans_answer_like_a_sorted_map() {
    each_seed("scans_answer_like_a_sorted_map", |seed| run(seed, steps(60_000)));
}

#[test]
fn an_object_that_was_there_all_the_time_is_met_once_under_writes_growth_and_cleaning() {
    const KEYS: u32 = 3000;
    let seed = seed("an_object_that_was_there_all_the_time_is_met_once_under_writes_growth_and_cleaning");
    let store = store(2 << 20, 16 << 10, 3);
    let (table, _) = ordered_table(&store, 3);
    let stop = AtomicBool::new(false);
    let stays = |number: u32| number.is_multiple_of(7);
    let core = store.core(0);
    for number in (0..KEYS).filter(|&number| stays(number)) {
        put(&core, &table, &number.to_be_bytes(), &number.to_le_bytes());
    }
    std::thread::scope(|scope| {
        for index in 1..3 {
            let (store, table, stop) = (&store, &table, &stop);
            scope.spawn(move || {
                let (core, mut random) = (store.core(index), fastrand::Rng::with_seed(seed ^ index as u64));
                while !stop.load(Ordering::Relaxed) {
                    let number = random.u32(0..KEYS);
                    let key = number.to_be_bytes();
                    if stays(number) || random.bool() {
                        put(&core, table, &key, &vec![number as u8; 4 + random.usize(0..80)]);
                    } else {
                        assert!(super::delete_patiently(&core, table, &key).is_ok());
                    }
                    core.step();
                }
            });
        }
        for round in 0..budget(400) {
            let reverse = round % 2 == 1;
            let met = scan(&core, &table, KeyRange { reverse, ..KeyRange::default() }, usize::MAX);
            assert!(met.windows(2).all(|pair| (pair[0].0 < pair[1].0) != reverse && pair[0].0 != pair[1].0));
            let number = |key: &[u8]| u32::from_be_bytes(key.try_into().expect("four bytes"));
            let stayed = met.iter().filter(|(key, ..)| stays(number(key))).count() as u32;
            assert_eq!(stayed, KEYS.div_ceil(7));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Each of two threads scans one range and inserts into the other only if the scanned range is empty: two commits
/// that each saw an empty range must never both succeed.
#[test]
fn of_two_commits_that_insert_into_what_the_other_scanned_one_is_refused() {
    let store = store(2 << 20, 64 << 10, 2);
    let (table, _) = ordered_table(&store, 2);
    let turns = std::sync::Barrier::new(2);
    let rounds = budget(3000) as u32;
    let prefixes = |round: u32, side: usize| {
        let mut key = round.to_be_bytes().to_vec();
        key.push(side as u8);
        key
    };
    let filled = std::thread::scope(|scope| {
        let sides = [0, 1].map(|side| {
            let (store, table, turns) = (&store, &table, &turns);
            scope.spawn(move || {
                let (core, mut filled) = (store.core(side), Vec::new());
                for round in 0..rounds {
                    let (mine, others) = (prefixes(round, side), prefixes(round, 1 - side));
                    turns.wait();
                    let pinned = core.pin();
                    let range = KeyRange { prefix: &others, ..KeyRange::default() };
                    let mut met = 0;
                    let count = |_: &[u8], _, _: Option<_>| {
                        met += 1;
                        ControlFlow::Continue(())
                    };
                    pinned.scan(table, range, 8, count).expect("the table is ordered");
                    let check = RangeCheck { table, range, until: None, reads: 0..0 };
                    let write = Write {
                        table,
                        hash: hash(&mine),
                        key: &mine,
                        value: Some(b"1"),
                        expires_ms: crate::NEVER_MS,
                    };
                    filled.push(met == 0 && pinned.commit_ranges(&[], &[check], &[write]).is_ok());
                    drop(pinned);
                    core.step();
                }
                filled
            })
        });
        sides.map(|side| side.join().expect("no side panics"))
    });
    let both = filled[0].iter().zip(&filled[1]).filter(|&(one, other)| *one && *other).count();
    assert_eq!(both, 0, "two commits did not see each other");
    let scanned = scan(&store.core(0), &table, KeyRange::default(), usize::MAX).len();
    let filled = filled.iter().flatten().filter(|&&filled| filled).count();
    assert_eq!(scanned, filled, "a refused commit leaves no key behind");
}

#[test]
fn a_key_that_appears_in_a_scanned_range_is_a_conflict_and_one_behind_its_end_is_not() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, (table, _)) = (store.core(0), ordered_table(&store, 1));
    let version = put(&core, &table, b"b", b"1");
    let key = |key: &'static [u8]| Write {
        table: &table,
        hash: hash(key),
        key,
        value: Some(b"2"),
        expires_ms: crate::NEVER_MS,
    };
    let reads = [ReadCheck { table: &table, hash: hash(b"b"), key: b"b", version }];
    let check = |until: Option<&'static [u8]>, reverse| RangeCheck {
        table: &table,
        range: KeyRange { reverse, ..KeyRange::default() },
        until,
        reads: 0..1,
    };
    let pinned = core.pin();
    let own_key = pinned.commit_ranges(&reads, &[check(None, false)], &[key(b"a")]);
    assert!(own_key.is_ok(), "what the commit itself inserts is no surprise");
    let refused = Err(CommitError::Conflict { read: 1 });
    assert_eq!(pinned.commit_ranges(&reads, &[check(None, false)], &[key(b"x")]), refused);
    assert_eq!(
        pinned.commit_ranges(&reads, &[check(None, false)], &[key(b"a")]),
        refused,
        "it is there already"
    );
    assert_eq!(pinned.commit_ranges(&reads, &[check(Some(b"b"), false)], &[key(b"x")]), refused);
    let behind = pinned.commit_ranges(&reads, &[check(Some(b"b"), true)], &[key(b"x")]);
    assert!(behind.is_ok(), "the scan did not come by the first key");
    assert_eq!(scan(&core, &table, KeyRange::default(), 9).len(), 3);
}

#[test]
fn the_tree_counts_against_the_quota() {
    let store = store(1 << 20, 16 << 10, 1);
    let core = store.core(0);
    let quota = Arc::new(Quota::new(1, 20_000));
    let table = store.table_of_kind(9, TableKind::Ordered, &quota);
    let mut keys = 0_u32;
    let key_of = |number: u32| [number.to_be_bytes(); 16].concat();
    let refused = loop {
        let key = key_of(keys);
        match core.pin().put(&table, hash(&key), &key, b"", Condition::Always) {
            Ok(_) => keys += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, WriteError::OverQuota);
    assert!(quota.bytes() < 21_000 && table.bytes() < 13_000, "{} of {}", table.bytes(), quota.bytes());
    for number in 0..keys {
        let key = key_of(number);
        assert!(
            core.pin().delete(&table, hash(&key), &key, Condition::Always).expect("deletes work").is_some()
        );
    }
    assert!(quota.bytes() < 300, "{} bytes for an empty tree", quota.bytes());
}
