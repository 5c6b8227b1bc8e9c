//! Tests that no thread waits for locks of a thread that has lost its core; here they are held forever.

use std::sync::Arc;

use crate::epoch::EpochPin;
use crate::index::NotLocked;
use crate::tests::{get, put_patiently, store};
use crate::{
    CommitError, Condition, Contended, Core, Cursor, Eviction, KeyRange, NEVER_MS, PageLimits, Quota, Store,
    Table, TableKind, TableOptions, Write, WriteError, hash,
};

const KEYS: u64 = 200;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Creates a store of two cores, and a table with these options in which each key has a value of `bytes` bytes.
fn filled(options: TableOptions, bytes: usize) -> (Arc<Store>, [Core; 2], Arc<Table>) {
    let store = store(1 << 20, 16 << 10, 2);
    let cores = [store.core(0), store.core(1)];
    let table = store.table_with(1, options, &Arc::new(Quota::new(2, u64::MAX)));
    for number in 0..KEYS {
        put_patiently(&cores[0], &table, &key(number), &vec![1; bytes]).expect("there is memory");
    }
    step(&cores[0]);
    (store, cores, table)
}

/// Does background work, some of which may never be finished.
fn step(core: &Core) {
    for _ in 0..2_000 {
        core.step();
    }
}

fn is_retry<T: std::fmt::Debug>(result: &Result<T, WriteError>) -> bool {
    matches!(result, Err(WriteError::Retry { .. }))
}

/// Writes all keys; returns the number of writes that were told to retry.
fn write_all(core: &Core, table: &Table) -> usize {
    let put = |number| {
        let (pin, key) = (core.pin(), key(number));
        pin.put(table, hash(&key), &key, &[2; 40], Condition::Always)
    };
    let retries = (0..KEYS).map(put).filter(is_retry).count();
    assert!(retries < KEYS as usize / 2, "the others are written");
    retries
}

fn in_same_bucket(table: &Table, pin: &EpochPin<'_>, number: u64) -> usize {
    let address = |number| table.index.bucket_address(pin, hash(&key(number)));
    (0..KEYS).filter(|&other| address(other) == address(number)).count()
}

#[test]
fn of_a_bucket_that_is_held_writes_come_again_and_reads_and_walks_go_on() {
    for kind in [TableKind::Hash, TableKind::Ordered] {
        let (_store, [core, other], table) = filled(TableOptions { kind, ..TableOptions::default() }, 20);
        let (pin, held) = (other.pin(), key(7));
        let bucket = table.index.lock(&pin.pin, hash(&held)).expect("nobody has it");
        assert_eq!(write_all(&core, &table), in_same_bucket(&table, &pin.pin, 7));
        let worker = core.pin();
        assert!(is_retry(&worker.delete(&table, hash(&held), &held, Condition::Always)));
        assert!(is_retry(&worker.increment(&table, hash(&held), &held, 1)));
        let write = Write { table: &table, hash: hash(&held), key: &held, value: None, expires_ms: NEVER_MS };
        let committed = worker.commit(&[], &[write]);
        assert!(matches!(committed, Err(CommitError::Write(WriteError::Retry { .. }))));
        assert!(worker.get(&table, hash(&held), &held).is_some());
        assert_eq!(worker.get_many(&table, &[(hash(&held), &held)], &mut [None]), Err(Contended));
        let (mut page, limits) =
            ([const { None }; 1_024], PageLimits { objects: 512, bytes: 1 << 20, keys_only: true });
        let listed = worker.enumerate(&table, Cursor::START, limits, &mut page).expect("it is there");
        assert_eq!((listed.count, listed.next), (KEYS as usize, None));
        drop(worker);
        step(&core);
        drop(bucket);
        drop(pin);
        assert_eq!(write_all(&core, &table), 0);
        assert!(core.pin().delete(&table, hash(&held), &held, Condition::Always).is_ok());
    }
}

#[test]
fn a_cleaner_that_meets_a_bucket_that_is_held_comes_back_and_frees_what_it_left() {
    let (store, [core, other], table) = filled(TableOptions::default(), 400);
    let pin = other.pin();
    let bucket = table.index.lock(&pin.pin, hash(&key(7))).expect("nobody has it");
    for _ in 0..40 {
        write_all(&core, &table);
        step(&core);
    }
    assert_eq!(store.damaged(), (0, 0), "what was left is not taken for damaged");
    drop(bucket);
    drop(pin);
    for _ in 0..40 {
        assert_eq!(write_all(&core, &table), 0);
        step(&core);
    }
    assert!((0..KEYS).all(|number| get(&core, &table, &key(number)).is_some()));
    assert_eq!(store.damaged(), (0, 0));
}

#[test]
fn what_expires_in_a_bucket_that_is_held_goes_when_it_is_free() {
    let (store, [core, other], table) = filled(TableOptions::default(), 20);
    store.advance_clock(1_000);
    for number in 0..KEYS {
        let (pin, key) = (core.pin(), key(number));
        pin.put_until(&table, hash(&key), &key, b"", 2_000, Condition::Always).expect("there is memory");
    }
    let pin = other.pin();
    let bucket = table.index.lock(&pin.pin, hash(&key(7))).expect("nobody has it");
    store.advance_clock(5_000);
    step(&core);
    assert_eq!(table.objects(), in_same_bucket(&table, &pin.pin, 7) as u64);
    drop(bucket);
    drop(pin);
    store.advance_clock(60_000);
    step(&core);
    assert_eq!(table.objects(), 0);
}

#[test]
fn a_write_that_meets_a_bucket_that_is_held_evicts_something_else() {
    let eviction = Eviction::S3Fifo { budget_bytes: 12 << 10 };
    let (_store, [core, other], table) = filled(TableOptions { eviction, ..TableOptions::default() }, 20);
    let pin = other.pin();
    let bucket = table.index.lock(&pin.pin, hash(&key(7))).expect("nobody has it");
    // Not a read, which would count as a use.
    let exists = |number: u64| {
        let (pin, key) = (core.pin(), key(number));
        let found =
            table.index.find(&pin.pin, hash(&key), |location| pin.object_of(location, &key).map(drop));
        found.is_some()
    };
    let kept: Vec<u64> = (0..KEYS)
        .filter(|&number| {
            let address = |number| table.index.bucket_address(&pin.pin, hash(&key(number)));
            address(number) == address(7) && exists(number)
        })
        .collect();
    let mut written = 0;
    for number in KEYS..20 * KEYS {
        let (worker, key) = (core.pin(), key(number));
        written += u64::from(worker.put(&table, hash(&key), &key, &[3; 20], Condition::Always).is_ok());
    }
    assert!(written > 10 * KEYS && table.bytes() <= 12 << 10, "{written} written, {} bytes", table.bytes());
    assert!(kept.iter().all(|&number| exists(number)), "they could not leave");
    drop(bucket);
    drop(pin);
    for number in KEYS..20 * KEYS {
        put_patiently(&core, &table, &key(number), &[3; 20]).expect("there is memory");
    }
    assert!(!kept.iter().any(|&number| exists(number)), "they leave like others");
}

#[test]
fn new_keys_of_a_leaf_that_is_being_split_for_good_come_again_and_removed_ones_leave_later() {
    let ordered = TableOptions { kind: TableKind::Ordered, ..TableOptions::default() };
    let (store, [core, other], table) = filled(ordered, 20);
    let (pin, keys) = (other.pin(), table.ordered.as_ref().expect("an ordered table"));
    keys.freeze_leaf(&pin.pin, &key(7));
    assert_eq!(write_all(&core, &table), 0, "nothing enters the tree");
    assert!(core.pin().delete(&table, hash(&key(7)), &key(7), Condition::Always).is_ok());
    assert!(!store.backlog.leaving.is_empty() && get(&core, &table, &key(7)).is_none());
    let put = core.pin().put(&table, hash(&key(7)), &key(7), b"again", Condition::Always);
    assert!(put.is_ok(), "it has not left");
    assert!(core.pin().delete(&table, hash(&key(7)), &key(7), Condition::Always).is_ok());
    let between = [&key(7)[..], b"!"].concat();
    assert!(is_retry(&core.pin().put(&table, hash(&between), &between, b"", Condition::Always)));
    // The thread that splits the leaf continues.
    keys.thaw_leaf(&pin.pin, &key(7));
    assert!(core.pin().put(&table, hash(&between), &between, b"", Condition::Always).is_ok());
    step(&core);
    assert!(store.backlog.leaving.is_empty() && !keys.has(&pin.pin, &key(7)));
    let mut met = 0;
    let all = core.pin().scan(&table, KeyRange::default(), 1_000, |_, _, object| {
        met += u64::from(object.is_some());
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!((all, met), (Ok(()), KEYS));
}

#[test]
fn workers_go_on_while_somebody_has_the_lists_of_work_and_the_cleaner() {
    let (store, [core, _other], table) = filled(TableOptions::default(), 20);
    let cleaner = store.cleaner.try_lock().expect("nobody cleans");
    let retiring = store.backlog.retiring.try_lock().expect("nobody takes tables apart");
    let work = || {
        let retired = store.table(9);
        for number in 0..20 * KEYS {
            let (pin, key) = (core.pin(), key(number));
            let put = pin.put_until(&table, hash(&key), &key, &[3; 20], 1 << 40, Condition::Always);
            assert!(put.is_ok() || is_retry(&put));
        }
        retired.retire();
        step(&core);
    };
    let held = store.backlog.growing.try_with(|_| {
        store
            .backlog
            .expiring
            .try_with(|_| store.backlog.evicting.try_with(|_| store.backlog.leaving.try_with(|_| work())))
    });
    assert_eq!(held, Some(Some(Some(Some(())))));
    drop((cleaner, retiring));
    step(&core);
    assert!((0..KEYS).all(|number| get(&core, &table, &key(number)).is_some()));
}

#[test]
fn a_table_is_taken_off_the_listing_when_nobody_changes_that_any_more() {
    let (store, [core, _other], table) = filled(TableOptions::default(), 20);
    table.retire();
    let tables = store.directory.read(|_| {
        step(&core);
        store.retired_count.load(crate::sync::Ordering::Relaxed)
    });
    assert_eq!(tables, 1);
    step(&core);
    assert_eq!(store.statistics().tables, 0);
    let lock = table.index.lock(&core.pin().pin, 0).map(drop);
    assert_eq!(lock, Err(NotLocked::Gone));
}
