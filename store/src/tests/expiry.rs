//! Tests of expiry: expired objects are not found, their memory is freed, and their keys' versions continue.

use std::sync::Arc;

use super::{drain, get, put_patiently, store};
use crate::{Condition, Core, NEVER_MS, Quota, ReadCheck, Table, Write, WriteError, hash};

fn put_until(core: &Core, table: &Table, key: &[u8], expires_ms: u64) -> Result<u64, WriteError> {
    core.pin().put_until(table, hash(key), key, b"value", expires_ms, Condition::Always)
}

#[test]
fn an_object_is_there_until_its_time_and_not_from_then_on() {
    let store = store(1 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    store.advance_clock(1_000);
    let version = put_until(&core, &table, b"key", 2_000).expect("there is memory");
    store.advance_clock(1_999);
    assert_eq!(get(&core, &table, b"key"), Some((version, b"value".to_vec())));
    assert_eq!(core.pin().get(&table, hash(b"key"), b"key").map(|object| object.expires_ms()), Some(2_000));
    store.advance_clock(2_000);
    assert_eq!(get(&core, &table, b"key"), None);
    let mut many = [None];
    let pinned = core.pin();
    pinned.get_many(&table, &[(hash(b"key"), b"key")], &mut many).expect("nobody writes");
    assert!(many[0].is_none());
    drop(pinned);
    store.advance_clock(1_500);
    assert_eq!(get(&core, &table, b"key"), None, "time does not go back");
}

#[test]
fn an_expired_object_is_absent_to_every_write_and_versions_go_on() {
    let store = store(1 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    let expire = |now_ms: u64| {
        let version = put_until(&core, &table, b"key", now_ms).expect("there is memory");
        store.advance_clock(now_ms);
        version
    };
    let (key, hash) = (b"key", hash(b"key"));
    let version = expire(10);
    let refused = core.pin().put(&table, hash, key, b"", Condition::Version(version));
    assert_eq!(refused, Err(WriteError::ConditionFailed { current: 0 }));
    let created = core.pin().put(&table, hash, key, b"", Condition::Absent).expect("it is absent");
    assert!(created > version);
    let version = expire(20);
    assert_eq!(core.pin().delete(&table, hash, key, Condition::Always), Ok(None));
    assert_eq!((table.objects(), table.bytes(), table.expiring()), (0, 0, 0), "deleting it removes it");
    assert!(core.pin().put(&table, hash, key, b"", Condition::Always).expect("there is memory") > version);
    let version = expire(30);
    assert_eq!(core.pin().increment(&table, hash, key, 5), Ok((version + 1, 5)));
    let version = expire(40);
    let write = Write { table: &table, hash, key, value: Some(b"committed"), expires_ms: NEVER_MS };
    let stale = ReadCheck { table: &table, hash, key, version };
    assert!(core.pin().commit(&[stale], &[write]).is_err(), "what was read has expired");
    let absent = ReadCheck { version: 0, ..stale };
    assert!(core.pin().commit(&[absent], &[write]).expect("it is absent") > version);
}

#[test]
fn a_number_keeps_its_expiry_and_a_put_decides_anew() {
    let store = store(1 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    let (key, hash) = (b"key", hash(b"key"));
    let zero = [0; 8];
    core.pin().put_until(&table, hash, key, &zero, 100, Condition::Always).expect("there is memory");
    assert_eq!(core.pin().increment(&table, hash, key, 3), Ok((2, 3)));
    let expires_ms = || core.pin().get(&table, hash, key).map(|object| object.expires_ms());
    assert_eq!(expires_ms(), Some(100));
    assert_eq!(table.expiring(), 1);
    core.pin().put(&table, hash, key, &zero, Condition::Always).expect("there is memory");
    assert_eq!((expires_ms(), table.expiring()), (Some(NEVER_MS), 0));
    store.advance_clock(100);
    assert_eq!(core.pin().increment(&table, hash, key, 3), Ok((4, 3)));
}

#[test]
fn background_steps_remove_what_has_expired_and_nothing_else() {
    let store = store(4 << 20, 1 << 16, 1);
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let (core, table) = (store.core(0), store.table_within(1, &quota));
    let count = if cfg!(miri) { 60 } else { 6_000_u64 };
    for number in 0..count {
        let expires_ms = if number % 3 == 0 { NEVER_MS } else { 1_000 + number % 3 * 1_000 };
        put_until(&core, &table, &number.to_le_bytes(), expires_ms).expect("there is memory");
    }
    let all = table.bytes();
    drain(&core);
    assert_eq!(table.objects(), count);
    for (now_ms, left) in [(2_000, count / 3 * 2), (20_000, count / 3)] {
        store.advance_clock(now_ms);
        drain(&core);
        assert_eq!(table.objects(), left, "at {now_ms} ms");
    }
    assert_eq!((table.expiring(), store.statistics().objects_expired), (0, count / 3 * 2));
    assert!(table.bytes() < all / 3 && quota.bytes() == table.bytes());
    assert!((0..count).step_by(3).all(|number| get(&core, &table, &number.to_le_bytes()).is_some()));
    // An object that is written after the table had no expiring object left is removed too.
    put_until(&core, &table, b"later", 30_000).expect("there is memory");
    store.advance_clock(40_000);
    drain(&core);
    assert_eq!(table.objects(), count / 3);
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn the_cleaner_drops_what_has_expired_instead_of_copying_it() {
    let store = store(1 << 20, 16 << 10, 1);
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let (core, table) = (store.core(0), store.table_within(1, &quota));
    let count = 2_000_u64;
    for number in 0..count {
        let expires_ms = if number % 2 == 0 { NEVER_MS } else { 1_000 };
        for _ in 0..3 {
            put_until(&core, &table, &number.to_le_bytes(), expires_ms).expect("there is memory");
        }
    }
    store.advance_clock(1_000);
    // Only cleaning, without expiry walks.
    for number in (0..count).step_by(2).cycle().take(100 * count as usize) {
        while put_until(&core, &table, &number.to_le_bytes(), NEVER_MS).is_err() {
            store.clean_step(&core.pin());
        }
        store.clean_step(&core.pin());
    }
    let left = table.expiring();
    assert!(left < count / 4, "{left} of {} are left where nothing else has died", count / 2);
    let statistics = store.statistics();
    assert_eq!((table.objects(), statistics.objects_expired), (count / 2 + left, count / 2 - left));
    let bytes = count / 2 * 40 + left * 48;
    assert_eq!((table.bytes(), quota.bytes(), statistics.object_bytes), (bytes, bytes, bytes));
    assert!((0..count).step_by(2).all(|number| get(&core, &table, &number.to_le_bytes()).is_some()));
    for number in (1..count).step_by(2) {
        assert_eq!(get(&core, &table, &number.to_le_bytes()), None);
        let version = put_until(&core, &table, &number.to_le_bytes(), NEVER_MS).expect("there is memory");
        assert!(version > 3, "version {version} after three");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_store_full_of_what_expires_has_room_again() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let mut written = 0_u64;
    while put_until(&core, &table, &written.to_le_bytes(), 1_000) != Err(WriteError::OutOfMemory) {
        core.step();
        written += 1;
    }
    assert!(written > 1_000);
    store.advance_clock(1_000);
    for number in 0..1_000_u64 {
        put_patiently(&core, &table, &number.to_be_bytes(), b"value").expect("what has expired makes room");
    }
}

#[test]
fn a_retired_table_with_objects_that_expire_goes_like_any_other() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    for number in 0..100_u64 {
        put_until(&core, &table, &number.to_le_bytes(), 1_000).expect("there is memory");
    }
    table.retire();
    store.advance_clock(5_000);
    drain(&core);
    assert_eq!((table.objects(), table.bytes(), table.expiring()), (0, 0, 0));
    assert_eq!(store.statistics().tables, 0);
}
