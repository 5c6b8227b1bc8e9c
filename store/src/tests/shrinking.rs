//! Tests that an oversized index returns its memory while readers and writers continue.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::limits::SHRINK_BUCKETS_MIN;
use crate::tests::pulls::expecting;
use crate::tests::{budget, drain, get, put_patiently, seed, store};
use crate::{Condition, Core, Table, hash};

fn delete(core: &Core, table: &Table, key: &[u8]) {
    let deleted = core.pin().delete(table, hash(key), key, Condition::Always);
    assert!(deleted.expect("deletes need no memory").is_some());
}

#[test]
fn memory_of_the_index_comes_back_when_most_objects_are_deleted() {
    let objects = if cfg!(miri) { 700 } else { 20_000_u32 };
    let store = store(16 << 20, 64 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    for number in 0..objects {
        put_patiently(&core, &table, &number.to_le_bytes(), b"value").expect("there is memory");
    }
    drain(&core);
    let full = table.index_bytes();
    assert_eq!(store.statistics().index_bytes, full);
    for number in 0..objects - objects / 50 {
        delete(&core, &table, &number.to_le_bytes());
        if number.is_multiple_of(16) {
            core.step();
        }
    }
    drain(&core);
    let most = (full / 10).max(64 * SHRINK_BUCKETS_MIN);
    assert!(table.index_bytes() <= most, "{} of {full} bytes are left", table.index_bytes());
    assert_eq!(store.statistics().index_bytes, table.index_bytes());
    assert!(
        (objects - objects / 50..objects).all(|number| get(&core, &table, &number.to_le_bytes()).is_some())
    );
}

#[test]
fn an_index_that_is_filled_again_grows_again() {
    let mut random = fastrand::Rng::with_seed(seed("an_index_that_is_filled_again_grows_again"));
    let store = store(8 << 20, 64 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let mut model = BTreeMap::new();
    for round in 0..budget(4).min(400) {
        let most = random.u32(200..if cfg!(miri) { 400 } else { 8000 });
        for _ in 0..most {
            let key = random.u32(0..2 * most);
            let value = [round as u8; 5];
            model.insert(key, value);
            put_patiently(&core, &table, &key.to_le_bytes(), &value).expect("there is memory");
        }
        let keep = random.u32(0..most / 4);
        let keys: Vec<u32> = model.keys().copied().collect();
        for key in keys.into_iter().filter(|key| key % 97 > keep % 97) {
            delete(&core, &table, &key.to_le_bytes());
            model.remove(&key);
            if random.u8(..) < 16 {
                core.step();
            }
        }
        assert_eq!(table.objects(), model.len() as u64);
        for (key, value) in &model {
            assert_eq!(get(&core, &table, &key.to_le_bytes()).expect("it was put").1, value);
        }
    }
}

#[test]
fn an_index_that_was_made_for_what_is_expected_keeps_its_size_while_it_is_filled() {
    let objects = if cfg!(miri) { 700 } else { 20_000_u64 };
    let store = store(16 << 20, 64 << 10, 1);
    let core = store.core(0);
    let table = expecting(&core, 1, objects);
    let before = table.index_bytes();
    for number in 0..objects {
        put_patiently(&core, &table, &number.to_le_bytes(), b"value").expect("there is memory");
        assert_eq!(table.index_bytes(), before);
    }
}

#[test]
fn an_index_shrinks_and_grows_whatever_the_order_of_inserts_and_removals() {
    let objects = if cfg!(miri) { 704 } else { 20_000_u64 };
    let store = store(16 << 20, 64 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let mut next = 0;
    let mut put = || {
        put_patiently(&core, &table, &u64::to_le_bytes(next), b"value").expect("there is memory");
        next += 1;
    };
    (0..objects).for_each(|_| put());
    drain(&core);
    let full = table.index_bytes();
    // Every sixteenth change is an insert.
    for batch in 0..objects / 16 {
        (15 * batch..15 * batch + 15).for_each(|number| delete(&core, &table, &number.to_le_bytes()));
        put();
        core.step();
    }
    drain(&core);
    assert!(table.index_bytes() < full / 2, "{} of {full} bytes are left", table.index_bytes());
    // Every sixteenth change is a removal.
    let oldest = 15 * (objects / 16);
    for number in oldest..oldest + objects / 12 {
        (0..15).for_each(|_| put());
        delete(&core, &table, &number.to_le_bytes());
    }
    drain(&core);
    assert!(table.index_bytes() > full / 2, "it has grown to {} bytes", table.index_bytes());
}

#[test]
fn an_index_keeps_its_size_while_about_as_many_come_as_go() {
    let store = store(8 << 20, 64 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let count = if cfg!(miri) { 400 } else { 5000_u64 };
    let put = |number: u64| {
        put_patiently(&core, &table, &number.to_le_bytes(), b"value").expect("there is memory");
    };
    (0..count).for_each(put);
    drain(&core);
    let before = table.index_bytes();
    // A window that slides over the keys: deletes 50, inserts 50.
    for start in (0..count).step_by(50) {
        (start..start + 50).for_each(|number| delete(&core, &table, &number.to_le_bytes()));
        (start + count..start + count + 50).for_each(put);
        drain(&core);
        assert!(table.index_bytes() <= before + before / 3 && table.index_bytes() >= before);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn readers_find_everything_while_the_index_shrinks() {
    let store = store(16 << 20, 64 << 10, 2);
    let (writer, table) = (store.core(0), store.table(1));
    let stays = |number: u32| number.is_multiple_of(40);
    for number in 0..30_000_u32 {
        put_patiently(&writer, &table, &number.to_le_bytes(), &number.to_le_bytes()).expect("memory");
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = store.core(1);
            while !done.load(Ordering::Acquire) {
                for number in (0..30_000_u32).filter(|&number| stays(number)) {
                    let found = get(&reader, &table, &number.to_le_bytes());
                    assert_eq!(found.expect("it was never deleted").1, number.to_le_bytes());
                }
            }
        });
        for number in (0..30_000_u32).filter(|&number| !stays(number)) {
            delete(&writer, &table, &number.to_le_bytes());
            writer.step();
        }
        drain(&writer);
        done.store(true, Ordering::Release);
    });
    assert!(table.index_bytes() < 30_000);
}
