//! Tests of conditions, versions, limits and commits, case by case.

use std::collections::BTreeMap;

use crate::tests::{budget, drain, get, put_patiently, seed, store};
use crate::{
    CommitError, Condition, KEY_BYTES_MAX, NEVER_MS, ReadCheck, Table, VALUE_BYTES_MAX, Write, WriteError,
    hash,
};

#[test]
fn versions_grow_over_delete_and_re_create() {
    let store = store(256 << 10, 4096, 1);
    let (core, table) = (store.core(0), store.table(1));
    let pinned = core.pin();
    let put =
        |key: &[u8]| pinned.put(&table, hash(key), key, b"v", Condition::Always).expect("there is memory");
    let versions: Vec<_> = (0..5).map(|_| put(b"a")).collect();
    assert_eq!(versions, [1, 2, 3, 4, 5]);
    assert_eq!(pinned.delete(&table, hash(b"a"), b"a", Condition::Always), Ok(Some(5)));
    assert_eq!(pinned.delete(&table, hash(b"a"), b"a", Condition::Always), Ok(None));
    assert_eq!(put(b"a"), 6);
    assert_eq!(put(b"b"), 6, "another new key starts above every deleted one too");
}

#[test]
fn conditions_are_kept_and_report_the_current_version() {
    let store = store(256 << 10, 4096, 1);
    let (core, table) = (store.core(0), store.table(1));
    let pinned = core.pin();
    let put = |condition| pinned.put(&table, hash(b"k"), b"k", b"v", condition);
    assert_eq!(put(Condition::Present), Err(WriteError::ConditionFailed { current: 0 }));
    assert_eq!(put(Condition::Version(3)), Err(WriteError::ConditionFailed { current: 0 }));
    assert_eq!(put(Condition::Version(0)), Ok(1));
    assert_eq!(put(Condition::Absent), Err(WriteError::ConditionFailed { current: 1 }));
    assert_eq!(put(Condition::Version(1)), Ok(2));
    assert_eq!(put(Condition::Present), Ok(3));
    let delete = |condition| pinned.delete(&table, hash(b"k"), b"k", condition);
    assert_eq!(delete(Condition::Version(2)), Err(WriteError::ConditionFailed { current: 3 }));
    assert_eq!(delete(Condition::Version(3)), Ok(Some(3)));
    assert_eq!((table.objects(), table.bytes()), (0, 0));
}

#[test]
fn increment_counts_from_zero_and_refuses_what_is_no_number() {
    let store = store(256 << 10, 4096, 1);
    let (core, table) = (store.core(0), store.table(1));
    let pinned = core.pin();
    let add = |key: &[u8], delta| pinned.increment(&table, hash(key), key, delta);
    assert_eq!(add(b"n", -3), Ok((1, -3)));
    assert_eq!(add(b"n", i64::MAX), Ok((2, i64::MAX - 3)));
    assert_eq!(add(b"n", 4), Err(WriteError::Overflow));
    assert_eq!(get(&core, &table, b"n"), Some((2, (i64::MAX - 3).to_le_bytes().to_vec())));
    pinned.put(&table, hash(b"t"), b"t", b"seven b", Condition::Always).expect("there is memory");
    assert_eq!(add(b"t", 1), Err(WriteError::NotANumber));
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn sizes_up_to_the_limits_are_stored_and_beyond_refused() {
    let store = store(32 << 20, 2 << 20, 1);
    let (core, table) = (store.core(0), store.table(1));
    let (key, value) = (vec![1; KEY_BYTES_MAX], vec![2; VALUE_BYTES_MAX]);
    let put = |key: &[u8], value: &[u8]| core.pin().put(&table, hash(key), key, value, Condition::Always);
    assert_eq!(put(&key, &value), Ok(1));
    assert_eq!(put(b"", b""), Ok(1));
    assert_eq!(get(&core, &table, &key), Some((1, value)));
    assert_eq!(get(&core, &table, b""), Some((1, Vec::new())));
    assert_eq!(put(&vec![1; KEY_BYTES_MAX + 1], b""), Err(WriteError::KeyTooLarge));
    assert_eq!(put(b"k", &vec![2; VALUE_BYTES_MAX + 1]), Err(WriteError::ValueTooLarge));
}

#[test]
fn what_is_written_counts_at_the_next_step_and_what_is_refused_does_not() {
    let store = store(256 << 10, 4096, 1);
    let (core, table) = (store.core(0), store.table(1));
    let put = |condition| core.pin().put(&table, hash(b"k"), b"k", &[7; 79], condition);
    let written = || store.statistics().cleaner.written_bytes;
    let mut expected = 0;
    // More than one segment holds, and a bit of the next.
    for _ in 0..50 {
        assert!(put(Condition::Always).is_ok());
        assert!(matches!(put(Condition::Absent), Err(WriteError::ConditionFailed { .. })));
        expected += 104;
        core.step();
        assert_eq!(written(), expected);
    }
    assert!(put(Condition::Always).is_ok());
    drop(core);
    assert_eq!(written(), expected + 104, "a core that goes leaves nothing uncounted");
}

#[test]
fn an_object_larger_than_a_segment_is_refused() {
    let store = store(256 << 10, 4096, 1);
    let (core, table) = (store.core(0), store.table(1));
    let put = |bytes| core.pin().put(&table, hash(b"k"), b"k", &vec![0; bytes], Condition::Always);
    assert_eq!(put(4096), Err(WriteError::ValueTooLarge));
    assert_eq!(put(4096 - 32 - 20 - 1), Ok(1));
}

/// Returns keys whose hashes lie in the first 256th of the range, hence in the first bucket of a small table.
fn crowded_keys(count: usize) -> Vec<[u8; 4]> {
    (0_u32..).map(u32::to_le_bytes).filter(|key| hash(key) < 1 << 56).take(count).collect()
}

#[test]
fn writes_among_objects_that_arrive_in_the_order_of_hashes_are_not_refused() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    table.expect_arrivals(1, 0);
    let keys = crowded_keys(160);
    let (put, committed) = keys.split_at(100);
    put.iter().for_each(|key| {
        put_patiently(&core, &table, key, b"v").expect("the index grows");
    });
    let write = |key| Write { table: &table, hash: hash(key), key, value: Some(b"v"), expires_ms: NEVER_MS };
    for keys in committed.chunks(20) {
        let writes: Vec<Write<'_>> = keys.iter().map(|key| write(key.as_slice())).collect();
        while let Err(error) = core.pin().commit(&[], &writes) {
            let comes_again = matches!(error, CommitError::Write(WriteError::Retry { .. }));
            assert!(comes_again, "the index grows: {error:?}");
            core.step();
        }
    }
    assert!(keys.iter().all(|key| get(&core, &table, key).is_some()));
}

#[test]
fn too_many_keys_of_one_hash_are_refused_and_the_others_stay() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let keys = crowded_keys(100);
    let put = |key: &[u8]| put_patiently(&core, &table, key, b"v");
    let there = |key: &[u8]| get(&core, &table, key).is_some();
    let stored = keys.iter().take_while(|key| put(*key).is_ok()).count();
    assert_eq!(stored, 7 * 9, "a bucket and eight behind it");
    assert_eq!(put(&keys[stored]), Err(WriteError::Collisions));
    assert!(keys[..stored].iter().all(|key| there(key)));
    for (at, key) in keys[..stored].iter().enumerate() {
        assert_eq!(core.pin().delete(&table, hash(key), key, Condition::Always), Ok(Some(1)));
        assert!(keys[at + 1..stored].iter().all(|key| there(key)));
    }
    assert_eq!(put(&keys[0]), Ok(2));
}

#[test]
fn a_commit_takes_place_whole_or_not_at_all() {
    let store = store(256 << 10, 4096, 1);
    let (core, first, second) = (store.core(0), store.table(1), store.table(2));
    let write = |table, key, value| Write { table, hash: hash(key), key, value, expires_ms: NEVER_MS };
    let read = |table, key, version| ReadCheck { table, hash: hash(key), key, version };
    let pinned = core.pin();
    let writes = [write(&*first, b"a", Some(b"1")), write(&second, b"b", Some(b"2"))];
    assert_eq!(pinned.commit(&[read(&*first, b"a", 0)], &writes), Ok(1));
    assert_eq!(
        pinned.commit(&[read(&*second, b"b", 1), read(&first, b"a", 0)], &writes),
        Err(CommitError::Conflict { read: 1 })
    );
    assert_eq!(get(&core, &first, b"a"), Some((1, b"1".to_vec())));
    first_then(&pinned.commit(&[], &[write(&*first, b"a", None), write(&second, b"b", Some(b"3"))]), 2);
    assert_eq!(get(&core, &first, b"a"), None);
    assert_eq!(get(&core, &second, b"b"), Some((2, b"3".to_vec())));
    assert_eq!((first.objects(), second.objects()), (0, 1));
    // A key that is created after a commit has removed it gets a higher version.
    first_then(&pinned.commit(&[], &[write(&*first, b"a", Some(b"4"))]), 3);
}

fn first_then(committed: &Result<u64, CommitError>, version: u64) {
    assert_eq!(*committed, Ok(version));
}

#[test]
fn of_several_writes_of_one_key_the_last_counts() {
    let store = store(256 << 10, 4096, 1);
    let (core, table) = (store.core(0), store.table(1));
    let write = |key, value| Write { table: &table, hash: hash(key), key, value, expires_ms: NEVER_MS };
    let writes = [
        write(b"a", Some(b"1")),
        write(b"b", Some(b"1")),
        write(b"a", None),
        write(b"b", None),
        write(b"a", Some(b"2")),
    ];
    assert_eq!(core.pin().commit(&[], &writes), Ok(1));
    assert_eq!(get(&core, &table, b"a"), Some((1, b"2".to_vec())));
    assert_eq!(get(&core, &table, b"b"), None);
    assert_eq!(table.objects(), 1);
}

#[test]
fn a_commit_of_many_objects_of_few_buckets_makes_room_for_all() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let keys = crowded_keys(100);
    fn write<'a>(table: &'a Table, key: &'a [u8; 4], value: Option<&'a [u8]>) -> Write<'a> {
        Write { table, hash: hash(key), key, value, expires_ms: NEVER_MS }
    }
    let value = Some(b"v".as_slice());
    let commit = |writes: Vec<Write<'_>>| core.pin().commit(&[], &writes);
    let write = |key, value| write(&table, key, value);
    assert_eq!(commit(keys[..40].iter().map(|key| write(key, value)).collect()), Ok(1));
    // One commit removes half of them and inserts as many others.
    let removed = keys[..20].iter().map(|key| write(key, None));
    assert_eq!(commit(removed.chain(keys[40..60].iter().map(|key| write(key, value))).collect()), Ok(2));
    let there = |key: &[u8; 4]| core.pin().get(&table, hash(key), key).is_some();
    assert!(!keys[..20].iter().any(there) && keys[20..60].iter().all(there));
    drain(&core);
    let too_many = || keys[60..].iter().map(|key| write(key, value)).collect();
    let mut refused = commit(too_many());
    // First the index grows for as many objects, which does not help these keys.
    while matches!(refused, Err(CommitError::Write(WriteError::Retry { .. }))) {
        while core.step() {}
        refused = commit(too_many());
    }
    assert_eq!(refused, Err(CommitError::Write(WriteError::Collisions)));
    assert_eq!(table.objects(), 40);
    assert!(!keys[60..].iter().any(there));
}

#[test]
fn what_was_found_stays_while_a_pin_is_held() {
    let store = store(128 << 10, 4096, 1);
    let (core, table) = (store.core(0), store.table(1));
    let put = |value: &[u8]| core.pin().put(&table, hash(b"k"), b"k", value, Condition::Always);
    put(&[1; 100]).expect("there is memory");
    let (held, address) = {
        let pinned = core.pin();
        let object = pinned.get(&table, hash(b"k"), b"k").expect("it was put");
        (pinned.hold(), object.value().as_ptr())
    };
    let refused = (0..10_000).find_map(|_| {
        drain(&core);
        put(&[2; 100]).err()
    });
    assert!(matches!(refused, Some(WriteError::Retry { .. })), "nothing is freed while the pin is held");
    // SAFETY: the held pin keeps the object found under it valid.
    assert_eq!(unsafe { std::slice::from_raw_parts(address, 100) }, [1; 100]);
    core.release(held);
    drain(&core);
    put(&[3; 100]).expect("the memory is free again");
}

/// Keys of one hash are easily made.
#[test]
fn the_last_write_of_each_object_in_a_commit_counts_whatever_shares_its_hash() {
    const HASH: u64 = 0x1234_5678_9abc_def0;
    let store = store(1 << 20, 16 << 10, 1);
    let (core, tables) = (store.core(0), [store.table(1), store.table(2)]);
    let mut random = fastrand::Rng::with_seed(seed("the_last_write_of_each_object"));
    let mut expected = BTreeMap::new();
    for _ in 0..budget(200) {
        let drawn: Vec<(usize, [u8; 1], Option<[u8; 1]>)> = (0..random.usize(1..60))
            .map(|_| (random.usize(0..2), [random.u8(0..10)], random.bool().then_some([random.u8(..)])))
            .collect();
        expected.extend(drawn.iter().map(|(table, key, value)| ((*table, *key), *value)));
        let writes = drawn.iter().map(|(table, key, value)| Write {
            table: &tables[*table],
            hash: HASH,
            key,
            value: value.as_ref().map(|value| &value[..]),
            expires_ms: NEVER_MS,
        });
        core.pin().commit(&[], &writes.collect::<Vec<_>>()).expect("there is room");
        let pinned = core.pin();
        for ((table, key), value) in &expected {
            let found = pinned.get(&tables[*table], HASH, key).map(|object| object.value().to_vec());
            assert_eq!(
                found.as_deref(),
                value.as_ref().map(|value| &value[..]),
                "table {table}, key {key:?}"
            );
        }
        drop(pinned);
        core.step();
    }
}
