//! What a request waits for: of tables that promise less only if it asks, and only what it has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::{
    Condition, Config, Core, Cursor, NEVER_MS, Quota, Replayed, Store, Table, TableKind, TableOptions,
    WriteError, hash,
};

/// Creates a store with an ordered durable table that promises nothing to who does not ask.
fn written() -> (Core, Arc<Table>) {
    let config = Config {
        memory_bytes: 4 << 20,
        segment_bytes: 256 << 10,
        cores: 1,
        huge_pages: false,
        durable: true,
        recovery_cores: 0,
    };
    let store = Store::new(config).expect("a small store");
    let options = TableOptions { kind: TableKind::Ordered, durable: true, ..TableOptions::default() };
    let table = store.table_with(1, options, &Arc::new(Quota::new(1, u64::MAX)));
    (store.core(0), table)
}

/// Tells the store that all is on the disk.
fn sync(core: &Core) {
    let mut positions = Vec::new();
    let (number, _) = core.store().cut(&mut positions);
    core.store().note_stable(number, &positions);
}

fn put(core: &Core, table: &Table, key: &[u8], expires_ms: u64) {
    let put = core.pin().put_until(table, hash(key), key, b"value", expires_ms, Condition::Always);
    put.expect("there is room");
}

/// Returns whether a request that asks, or not, waits for what a verification has counted.
fn waits_for_counts(core: &Core, table: &Table, asks: bool) -> bool {
    core.ask_for_disk(asks);
    core.pin().verify(table, Cursor::START, |_| ()).expect("the table is there");
    !core.take_seen().are_reached(core.store().reached_cuts())
}

/// Returns whether a request that asks, or not, waits for what it sees of a key.
fn waits(core: &Core, table: &Table, key: &[u8], asks: bool) -> bool {
    core.ask_for_disk(asks);
    core.pin().get(table, hash(key), key);
    !core.take_seen().are_reached(core.store().reached_cuts())
}

#[test]
fn who_asks_waits_for_what_it_has_seen_and_for_nothing_else() {
    let (core, table) = written();
    put(&core, &table, b"old", NEVER_MS);
    put(&core, &table, b"gone", NEVER_MS);
    assert_eq!(core.take_seen().stable, 0, "it did not ask");
    assert!(waits(&core, &table, b"old", true) && !waits(&core, &table, b"old", false));
    sync(&core);
    put(&core, &table, b"new", NEVER_MS);
    core.pin().delete(&table, hash(b"gone"), b"gone", Condition::Always).expect("there is room");
    for (key, is_told) in [(&b"old"[..], false), (b"never", false), (b"new", true), (b"gone", true)] {
        assert_eq!(waits(&core, &table, key, true), is_told, "{key:?}");
        assert!(!waits(&core, &table, key, false), "{key:?}");
    }
    core.ask_for_disk(true);
    let refused = core.pin().put(&table, hash(b"new"), b"new", b"", Condition::Absent);
    assert!(refused.is_err() && core.take_seen().stable > 0, "the refusal tells of it");
    assert!(!waits_for_counts(&core, &table, false) && waits_for_counts(&core, &table, true));
    put(&core, &table, b"mine", NEVER_MS);
    assert!(core.take_seen().stable > 0);
    sync(&core);
    for key in [&b"new"[..], b"gone", b"mine"] {
        assert!(!waits(&core, &table, key, true), "{key:?}");
    }
    assert!(!waits_for_counts(&core, &table, true));
}

#[test]
fn who_asks_waits_for_an_object_that_has_expired_before_the_disk_had_it() {
    let (core, table) = written();
    put(&core, &table, b"key", NEVER_MS);
    sync(&core);
    put(&core, &table, b"key", 10);
    core.store().advance_clock(20);
    (0..10_000).for_each(|_| _ = core.step());
    assert_eq!(table.objects(), 0, "it is gone from memory");
    assert!(waits(&core, &table, b"key", true) && !waits(&core, &table, b"key", false));
    sync(&core);
    assert!(!waits(&core, &table, b"key", true));
}

#[test]
fn an_object_that_is_restored_again_is_waited_for_until_the_disk_has_it() {
    let (core, table) = written();
    put(&core, &table, b"key", NEVER_MS);
    let mut archived = Vec::new();
    core.pin().gather(&table, Cursor::START, u64::MAX, 1_000, &mut archived).expect("it is there");
    let (core, table) = written();
    let restore = || {
        core.ask_for_disk(true);
        let (mut objects, mut restored) = (&archived[..], Replayed::default());
        core.pin().restore(&table, &mut objects, &mut restored).expect("there is room");
        (restored.stored, restored.late, !core.take_seen().are_reached(core.store().reached_cuts()))
    };
    assert_eq!(restore(), (1, 0, true));
    assert_eq!(restore(), (0, 1, true), "nobody was told that it is there");
    sync(&core);
    assert_eq!(restore(), (0, 1, false));
}

/// A recovery that is in use forgets hashes that it brought long ago, at any moment.
#[test]
fn what_a_recovery_forgets_while_a_request_looks_is_not_taken_for_absent() {
    const LOOKS: u32 = 500_000;
    // Where the other thread has no turn for long, more.
    const LOOKS_MAX: u32 = 100 * LOOKS;
    const PULLS: u64 = 500_000_000;
    let (core, table) = written();
    table.expect_replay();
    let place = hash(b"key");
    table.pulled(&[place]);
    put(&core, &table, b"key", NEVER_MS);
    let version = core.pin().get(&table, place, b"key").expect("it is known").version();
    let (is_lacking, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = 1;
            while other < 4 * PULLS && !is_over.load(Ordering::Relaxed) {
                if is_lacking.swap(false, Ordering::Relaxed) {
                    table.pulled(&[place]);
                }
                table.pulled(&[other, other + 1, other + 2, other + 3]);
                other += 4;
            }
        });
        let (mut known, mut lacking) = (0, 0);
        while known + lacking < LOOKS || (known == 0 || lacking == 0) && known + lacking < LOOKS_MAX {
            let pin = core.pin();
            match pin.put(&table, place, b"key", b"value", Condition::Version(version + 1)) {
                Err(WriteError::ConditionFailed { current }) => {
                    assert_eq!(current, version);
                    known += 1;
                }
                Err(WriteError::NotArrived) => lacking += 1,
                other => panic!("{other:?}"),
            }
            match pin.get_if_known(&table, place, b"key") {
                Some(found) => assert!(found.is_some(), "it is there"),
                None => {
                    is_lacking.store(true, Ordering::Relaxed);
                    thread::yield_now();
                }
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(known > 0 && lacking > 0, "{known} were known, {lacking} were not");
    });
}
