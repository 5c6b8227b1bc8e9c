//! Tests of a table that is copied to another store while it is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{drain, each_seed, get, put_patiently, steps, store};
use crate::{Condition, Core, Cursor, HashRange, Replayed, Table, Write, hash};

const KEYS: u32 = 600;

/// Copies all present objects of these hashes.
fn copy_span(from: (&Core, &Table), to: (&Core, &Table), (first, last): (u64, u64), is_again: bool) {
    let (mut pull, mut next) = (Vec::new(), Some(Cursor::before(first)));
    while let Some(cursor) = next {
        next = from.0.pin().gather(from.1, cursor, last, 1 << 20, &mut pull).expect("it is there");
    }
    if is_again {
        to.0.pin().remove_absent(to.1, ((first, 0), (last, u64::MAX)), &pull).expect("it is there");
    }
    let copied = to.0.pin().copy(to.1, HashRange::ALL, &mut &pull[..], &mut Replayed::default());
    copied.expect("there is memory");
    to.0.step();
}

/// Copies the touched chunks; returns their number.
fn copy_touched(from: (&Core, &Table), to: (&Core, &Table)) -> usize {
    let (mut next, mut count) = (Some(0), 0);
    while let Some(touched) = next.and_then(|next| from.1.take_dirty(next, (0, u64::MAX))) {
        copy_span(from, to, touched, true);
        next = touched.1.checked_add(1);
        count += 1;
    }
    count
}

/// Puts, deletes, commits or lets expire.
fn change(core: &Core, table: &Table, random: &mut fastrand::Rng) {
    let key = random.u32(0..KEYS).to_le_bytes();
    let value = random.u64(..).to_le_bytes();
    match random.u8(0..5) {
        0 => drop(core.pin().delete(table, hash(&key), &key, Condition::Always).expect("deletes pass")),
        1 => {
            let expires_ms = core.store().now_ms() + 1 + random.u64(0..2_000);
            let put = core.pin().put_until(table, hash(&key), &key, &value, expires_ms, Condition::Always);
            put.expect("there is memory");
        }
        2 => {
            let value = random.bool().then_some(&value[..]);
            let write = Write { table, hash: hash(&key), key: &key, value, expires_ms: crate::NEVER_MS };
            core.pin().commit(&[], &[write]).expect("nothing was read");
        }
        _ => drop(put_patiently(core, table, &key, &value).expect("there is memory")),
    }
    core.step();
}

fn assert_same(from: (&Core, &Table), to: (&Core, &Table)) {
    for key in (0..KEYS).map(u32::to_le_bytes) {
        assert_eq!(get(from.0, from.1, &key), get(to.0, to.1, &key), "key {key:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_copy_has_what_was_written_removed_and_expired_meanwhile() {
    each_seed("a_copy_has_what_was_written_removed_and_expired_meanwhile", |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let stores = [(); 2].map(|()| store(4 << 20, 32 << 10, 1));
        let [source, target] = [&stores[0], &stores[1]].map(|store| (store.core(0), store.table(1)));
        let (from, to) = ((&source.0, &*source.1), (&target.0, &*target.1));
        let mut now_ms = 1;
        let mut tick = || {
            now_ms += 300;
            stores.iter().for_each(|store| store.advance_clock(now_ms));
        };
        (0..2 * KEYS).for_each(|_| change(from.0, from.1, &mut random));
        from.1.watch();
        assert_eq!(copy_touched(from, to), 0, "nothing was written since");
        let part = u64::MAX / 8 + 1;
        for at in 0..8 {
            (0..steps(60)).for_each(|_| change(from.0, from.1, &mut random));
            tick();
            copy_span(from, to, (at * part, at * part + (part - 1)), false);
        }
        for _ in 0..10 {
            (0..random.usize(0..100)).for_each(|_| change(from.0, from.1, &mut random));
            tick();
            copy_touched(from, to);
        }
        assert!(copy_touched(from, to) == 0 && from.1.dirty_bytes((0, u64::MAX)) == 0);
        assert_same(from, to);
        from.1.unwatch();
        (0..100).for_each(|_| change(from.0, from.1, &mut random));
        assert_eq!(from.1.dirty_bytes((0, u64::MAX)), 0, "nobody watches");
        drain(from.0);
    });
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn nothing_is_missed_that_another_thread_writes_while_its_hashes_are_copied() {
    each_seed("nothing_is_missed_that_another_thread_writes_while_its_hashes_are_copied", |seed| {
        let (store, other) = (store(4 << 20, 32 << 10, 2), store(4 << 20, 32 << 10, 1));
        let (table, copy) = (store.table(1), other.table(1));
        let (core, target) = (store.core(1), other.core(0));
        table.watch();
        let done = AtomicBool::new(false);
        let (from, to) = ((&core, &*table), (&target, &*copy));
        thread::scope(|scope| {
            let (table, done) = (Arc::clone(&table), &done);
            let writer = store.core(0);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                (0..steps(20_000)).for_each(|_| change(&writer, &table, &mut random));
                done.store(true, Ordering::Release);
            });
            copy_span(from, to, (0, u64::MAX), false);
            while !done.load(Ordering::Acquire) {
                copy_touched(from, to);
            }
        });
        copy_touched(from, to);
        assert_same(from, to);
    });
}

#[test]
fn who_watches_some_hashes_leaves_the_marks_that_others_look_for() {
    let store = store(1 << 20, 32 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    (0..2).for_each(|_| table.watch());
    put_patiently(&core, &table, b"key", b"value").expect("there is memory");
    let at = hash(b"key");
    let (low, high) = table.take_dirty(at, (at, u64::MAX)).expect("it was written");
    assert_eq!((low, table.take_dirty(0, (0, at))), (at, Some((at - (at & ((1 << 52) - 1)), at))));
    assert_eq!(table.take_dirty(high.wrapping_add(1), (0, u64::MAX)), None);
    assert!(table.take_dirty(0, (0, u64::MAX)).is_some_and(|(first, last)| first < at && at < last));
    assert_eq!(table.take_dirty(0, (0, u64::MAX)), None, "it was taken");
    (0..2).for_each(|_| table.unwatch());
}
