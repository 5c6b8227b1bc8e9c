//! Tests of tables that share a quota: the writes that its limit refuses and admits.

use std::sync::{Arc, Barrier};

use super::{budget, drain, seed, store};
use crate::{Condition, Core, NEVER_MS, Quota, Table, Write, WriteError, hash};

fn put(core: &Core, table: &Table, key: &[u8], value: &[u8]) -> Result<u64, WriteError> {
    core.pin().put(table, hash(key), key, value, Condition::Always)
}

fn delete(core: &Core, table: &Table, key: &[u8]) {
    core.pin().delete(table, hash(key), key, Condition::Always).expect("deletes pass").expect("it is there");
}

/// Table, key, value.
type Change<'a> = (&'a Table, &'a [u8], Option<&'a [u8]>);

fn commit(core: &Core, writes: &[Change<'_>]) -> Result<u64, crate::CommitError> {
    let writes = writes.iter().map(|&(table, key, value)| Write {
        table,
        hash: hash(key),
        key,
        value,
        expires_ms: NEVER_MS,
    });
    core.pin().commit(&[], &writes.collect::<Vec<_>>())
}

#[test]
fn what_grows_is_refused_at_the_limit_and_what_does_not_grow_passes() {
    let store = store(1 << 20, 1 << 16, 1);
    let core = store.core(0);
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let (first, second) = (store.table_within(1, &quota), store.table_within(2, &quota));
    let other = store.table(3);
    put(&core, &first, b"a", &[1; 100]).expect("no limit");
    put(&core, &second, b"b", &[1; 100]).expect("no limit");
    let bytes = quota.bytes();
    assert_eq!(bytes, first.bytes() + second.bytes());
    quota.set_limit(bytes);
    for table in [&first, &second] {
        assert_eq!(put(&core, table, b"c", b""), Err(WriteError::OverQuota));
        let counted = core.pin().increment(table, hash(b"n"), b"n", 1);
        assert_eq!(counted, Err(WriteError::OverQuota));
        assert!(commit(&core, &[(table, b"c", Some(b""))]) == Err(WriteError::OverQuota.into()));
    }
    assert_eq!(put(&core, &first, b"a", &[2; 200]), Err(WriteError::OverQuota));
    assert_eq!(
        core.pin().get(&first, hash(b"a"), b"a").map(|object| object.value().to_vec()),
        Some(vec![1; 100])
    );
    put(&core, &first, b"a", &[3; 100]).expect("it does not grow");
    put(&core, &other, b"c", &[1; 100]).expect("another quota");
    assert_eq!(quota.bytes(), bytes);
    quota.set_limit(0);
    put(&core, &first, b"a", &[4; 50]).expect("it shrinks");
    delete(&core, &first, b"a");
    delete(&core, &second, b"b");
    assert_eq!(quota.bytes(), 0);
    assert_eq!(put(&core, &first, b"a", b""), Err(WriteError::OverQuota));
}

#[test]
fn a_number_is_added_to_at_the_limit() {
    let store = store(1 << 20, 1 << 16, 1);
    let core = store.core(0);
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let table = store.table_within(1, &quota);
    core.pin().increment(&table, hash(b"n"), b"n", 1).expect("no limit");
    quota.set_limit(0);
    assert_eq!(core.pin().increment(&table, hash(b"n"), b"n", 1).map(|(_, number)| number), Ok(2));
}

#[test]
fn a_commit_is_held_against_each_quota_by_what_it_grows_as_a_whole() {
    let store = store(1 << 20, 1 << 16, 1);
    let core = store.core(0);
    let quotas = [Arc::new(Quota::new(1, u64::MAX)), Arc::new(Quota::new(1, u64::MAX))];
    let (first, second) = (store.table_within(1, &quotas[0]), store.table_within(2, &quotas[1]));
    put(&core, &first, b"a", &[1; 100]).expect("no limit");
    put(&core, &second, b"a", &[1; 100]).expect("no limit");
    let bytes = first.bytes();
    quotas[0].set_limit(bytes);
    let moved: [Change<'_>; 2] = [(&first, b"b", Some(&[2; 100])), (&first, b"a", None)];
    commit(&core, &moved).expect("as much goes as comes");
    assert_eq!(first.bytes(), bytes);
    let over: [Change<'_>; 2] = [(&second, b"a", None), (&first, b"c", Some(b"x"))];
    assert!(
        commit(&core, &over) == Err(WriteError::OverQuota.into()),
        "one quota does not make room for another"
    );
    assert!(core.pin().get(&second, hash(b"a"), b"a").is_some(), "nothing of it was done");
    quotas[1].set_limit(0);
    let both: [Change<'_>; 2] = [(&second, b"b", Some(b"")), (&second, b"a", None)];
    commit(&core, &both).expect("it shrinks");
}

#[test]
fn a_retired_table_counts_until_it_is_taken_apart() {
    let store = store(1 << 20, 1 << 16, 1);
    let core = store.core(0);
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let table = store.table_within(1, &quota);
    for key in 0..100_u8 {
        put(&core, &table, &[key], &[1; 100]).expect("no limit");
    }
    quota.set_limit(quota.bytes());
    table.retire();
    let next = store.table_within(2, &quota);
    assert_eq!(put(&core, &next, b"a", &[1; 100]), Err(WriteError::OverQuota));
    drain(&core);
    assert_eq!(quota.bytes(), 0);
    put(&core, &next, b"a", &[1; 100]).expect("there is room again");
}

#[test]
fn cores_together_pass_the_limit_by_one_write_of_each_but_one_at_most() {
    const CORES: usize = 3;
    let store = store(16 << 20, 1 << 18, CORES);
    let seed = seed("cores_together_pass_the_limit_by_one_write_of_each_but_one_at_most");
    let quota = Arc::new(Quota::new(CORES, u64::MAX));
    let table = store.table_within(1, &quota);
    let limit = 200_000;
    quota.set_limit(limit);
    // The sum over the cores is exact only while there are no writes.
    let (rounds, meeting) = (budget(60), Barrier::new(CORES));
    let largest = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..CORES)
            .map(|index| {
                let (store, table, quota, meeting) = (&store, &table, &quota, &meeting);
                scope.spawn(move || {
                    let core = store.core(index);
                    let mut rng = fastrand::Rng::with_seed(seed + index as u64);
                    let mut most = 0;
                    for _ in 0..rounds {
                        for _ in 0..50 {
                            let key = rng.u16(..400).to_le_bytes();
                            if rng.u8(..4) == 0 {
                                let _ = core.pin().delete(table, hash(&key), &key, Condition::Always);
                            } else {
                                let _ = put(&core, table, &key, &vec![7; rng.usize(..2_000)]);
                            }
                            core.step();
                        }
                        meeting.wait();
                        most = most.max(quota.bytes());
                        meeting.wait();
                    }
                    most
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("no panic")).max().expect("cores")
    });
    assert!(largest <= limit + CORES as u64 * 2_100, "{largest}");
    assert!(largest > limit / 2, "{largest}: the limit was not met");
    assert_eq!(quota.bytes(), table.bytes());
}
