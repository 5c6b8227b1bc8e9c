//! Tests of tables that evict: the budget always holds, an evicted object is gone like a deleted one, and all counts
//! stay exact.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use super::{budget, delete_patiently, drain, get, put_patiently, seed, store};
use crate::{
    CommitError, Condition, Core, Cursor, Eviction, KeyRange, NEVER_MS, Object, PageLimits, Quota, ReadCheck,
    Store, Table, TableKind, TableOptions, Write, WriteError, hash,
};

fn table_of(store: &Store, id: u32, budget_bytes: u64, kind: TableKind, quota: &Arc<Quota>) -> Arc<Table> {
    store.table_with(
        id,
        TableOptions { kind, eviction: Eviction::S3Fifo { budget_bytes }, ..TableOptions::default() },
        quota,
    )
}

fn table(store: &Store, cores: usize, budget_bytes: u64) -> Arc<Table> {
    table_of(store, 1, budget_bytes, TableKind::Hash, &Arc::new(Quota::new(cores, u64::MAX)))
}

/// Returns the numbers of objects and bytes that an enumeration finds.
fn enumerated(core: &Core, table: &Table) -> (u64, u64) {
    let limits = PageLimits { objects: 512, bytes: 1 << 20, keys_only: false };
    let (mut cursor, mut objects, mut bytes) = (Some(Cursor::START), 0, 0);
    while let Some(from) = cursor {
        let pinned = core.pin();
        let mut page = [None; 1024];
        let stepped = pinned.enumerate(table, from, limits, &mut page).expect("the table is there");
        for listed in page.iter().take(stepped.count).flatten() {
            objects += 1;
            bytes += listed.object.expect("nothing is damaged").log_bytes() as u64;
        }
        cursor = stepped.next;
    }
    (objects, bytes)
}

/// Writes by a put or a commit, retrying like a client; returns the new version.
fn written_until(
    core: &Core,
    table: &Table,
    key: &[u8],
    value: &[u8],
    expires_ms: u64,
    in_commit: bool,
) -> u64 {
    let hash = hash(key);
    loop {
        let written = if in_commit {
            let write = Write { table, hash, key, value: Some(value), expires_ms };
            core.pin().commit(&[], &[write])
        } else {
            let put = core.pin().put_until(table, hash, key, value, expires_ms, Condition::Always);
            put.map_err(CommitError::Write)
        };
        match written {
            Err(CommitError::Write(WriteError::Retry { .. })) => core.step(),
            written => return written.expect("it makes room"),
        };
    }
}

#[test]
fn a_table_keeps_its_budget_and_its_counts_whatever_is_written() {
    let mut random = fastrand::Rng::with_seed(seed("a_table_keeps_its_budget"));
    let store = store(1 << 20, 1 << 14, 1);
    let core = store.core(0);
    let budget_bytes = 100 << 10;
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let mut now_ms = 1;
    for kind in [TableKind::Hash, TableKind::Ordered] {
        let table = table_of(&store, 1 + kind as u32, budget_bytes, kind, &quota);
        // The highest version and the last written value of each key.
        let mut written = HashMap::<Vec<u8>, (u64, Option<Vec<u8>>)>::new();
        for round in 0..budget(30_000) {
            let key = random.u64(..2_000).to_le_bytes().to_vec();
            let value_bytes_max = if random.u8(..) == 0 { 9_000 } else { 400 };
            let value = vec![random.u8(..); random.usize(..value_bytes_max)];
            let (key_hash, expires_ms) = (hash(&key), if random.bool() { NEVER_MS } else { now_ms + 50 });
            let known = written.entry(key.clone()).or_default();
            match random.u8(..10) {
                0 => {
                    core.pin().delete(&table, key_hash, &key, Condition::Always).expect("deletes pass");
                    known.1 = None;
                }
                1..5 => {
                    if let Some((version, found)) = get(&core, &table, &key) {
                        assert_eq!((version, Some(&found)), (known.0, known.1.as_ref()), "round {round}");
                    }
                }
                choice => {
                    let version = written_until(&core, &table, &key, &value, expires_ms, choice == 9);
                    assert!(version > known.0, "versions grow, also over an eviction");
                    *known = (version, Some(value));
                }
            }
            assert!(table.bytes() <= budget_bytes, "round {round}: {} bytes", table.bytes());
            if random.u8(..) < 100 {
                core.step();
                now_ms += 1;
                store.advance_clock(now_ms);
            }
        }
        // A walk that began earlier removes objects that expired behind it only on its next pass.
        for _ in 0..3 {
            now_ms += 100_000;
            store.advance_clock(now_ms);
            drain(&core);
        }
        assert!(table.evicted() > 0);
        assert_eq!(table.expiring(), 0);
        assert_eq!(enumerated(&core, &table), (table.objects(), table.bytes()));
        if kind == TableKind::Hash {
            assert_eq!(quota.bytes(), table.bytes());
        }
    }
    assert!(store.statistics().objects_evicted > 0);
}

#[test]
fn an_evicted_object_is_absent_to_everybody() {
    let store = store(1 << 20, 1 << 14, 1);
    let core = store.core(0);
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let table = table_of(&store, 1, 20 << 10, TableKind::Ordered, &quota);
    let key = b"first";
    let version = put_patiently(&core, &table, key, &7_u64.to_le_bytes()).expect("there is room");
    let read = ReadCheck { table: &table, hash: hash(key), key, version };
    for number in 0_u64..1_000 {
        put_patiently(&core, &table, &number.to_be_bytes(), &[1; 100]).expect("it makes room");
        core.step();
    }
    assert_eq!(get(&core, &table, key), None);
    let mut scanned = 0;
    let count = |_: &[u8], _, object: Option<Object<'_>>| {
        scanned += u64::from(object.is_some());
        ControlFlow::Continue(())
    };
    core.pin().scan(&table, KeyRange::default(), 100, count).expect("it is ordered");
    assert_eq!(scanned, table.objects());
    let write =
        Write { table: &table, hash: hash(b"other"), key: b"other", value: Some(b"1"), expires_ms: NEVER_MS };
    assert_eq!(core.pin().commit(&[read], &[write]), Err(CommitError::Conflict { read: 0 }));
    let refused = core.pin().put(&table, hash(key), key, b"", Condition::Version(version));
    assert_eq!(refused, Err(WriteError::ConditionFailed { current: 0 }));
    assert_eq!(core.pin().delete(&table, hash(key), key, Condition::Always), Ok(None));
    let (again, number) = core.pin().increment(&table, hash(key), key, 5).expect("there is room");
    assert!(again > version && number == 5, "an absent number counts as 0");
}

#[test]
fn what_is_larger_than_the_budget_is_refused_and_what_is_as_large_makes_room() {
    let store = store(4 << 20, 1 << 16, 1);
    let core = store.core(0);
    let table = table(&store, 1, 32 << 10);
    for number in 0_u64..2_000 {
        put_patiently(&core, &table, &number.to_be_bytes(), b"").expect("it makes room");
    }
    let objects = table.objects();
    assert!(objects > 1_000);
    let (key, value) = (b"large", vec![3; (32 << 10) - 20 - 5]);
    let too_large = vec![3; value.len() + 8];
    assert_eq!(put_patiently(&core, &table, key, &too_large), Err(WriteError::OverBudget));
    let half = &too_large[..too_large.len() / 2 + 20];
    let writes = [b"one", b"two"].map(|key| Write {
        table: &table,
        hash: hash(key),
        key,
        value: Some(half),
        expires_ms: NEVER_MS,
    });
    assert_eq!(core.pin().commit(&[], &writes), Err(CommitError::Write(WriteError::OverBudget)));
    assert_eq!(table.objects(), objects, "a refused write evicts nothing");
    let first = core.pin().put(&table, hash(key), key, &value, Condition::Always);
    assert!(matches!(first, Err(WriteError::Retry { .. })), "it takes more than one write may do: {first:?}");
    put_patiently(&core, &table, key, &value).expect("it makes room");
    assert_eq!((table.objects(), table.bytes()), (1, 32 << 10));
    put_patiently(&core, &table, b"small", b"").expect("it makes room");
    assert_eq!(get(&core, &table, key), None);
}

#[test]
fn room_that_nobody_comes_back_for_is_used_by_others() {
    let store = store(4 << 20, 1 << 16, 1);
    let core = store.core(0);
    let table = table(&store, 1, 64 << 10);
    let fill = |from: u64| {
        for number in from..from + 4_000 {
            put_patiently(&core, &table, &number.to_be_bytes(), &[1; 4]).expect("it makes room");
        }
    };
    fill(0);
    let large = vec![3; 60 << 10];
    let refused = core.pin().put(&table, hash(b"large"), b"large", &large, Condition::Always);
    assert!(matches!(refused, Err(WriteError::Retry { .. })), "{refused:?}");
    drain(&core);
    assert!(table.bytes() < 8 << 10, "background steps make room: {}", table.bytes());
    fill(4_000);
    assert!(table.bytes() > 63 << 10, "{} bytes are used", table.bytes());
}

#[test]
fn what_has_expired_leaves_first() {
    let store = store(1 << 20, 1 << 14, 1);
    let core = store.core(0);
    let table = table(&store, 1, 64 << 10);
    store.advance_clock(1_000);
    for number in 0_u64..400 {
        let key = number.to_be_bytes();
        let expires_ms = if number % 2 == 0 { NEVER_MS } else { 2_000 };
        let put = core.pin().put_until(&table, hash(&key), &key, &[1; 100], expires_ms, Condition::Always);
        put.expect("there is room");
        // The objects leave however often they were used.
        (0..4).for_each(|_| assert!(get(&core, &table, &key).is_some()));
    }
    store.advance_clock(2_000);
    drain(&core);
    for number in 400_u64..600 {
        put_patiently(&core, &table, &number.to_be_bytes(), &[1; 100]).expect("there is room");
    }
    assert_eq!((table.objects(), table.evicted()), (400, 0));
}

#[test]
fn queues_do_not_grow_with_what_is_deleted_and_go_with_the_table() {
    let store = store(1 << 20, 1 << 14, 1);
    let core = store.core(0);
    let table = table(&store, 1, 256 << 10);
    let before = store.statistics().index_bytes;
    for number in 0..budget(100_000) as u64 {
        let key = (number % 300).to_be_bytes();
        put_patiently(&core, &table, &key, &[1; 50]).expect("there is room");
        if number >= 200 {
            let old = ((number - 200) % 300).to_be_bytes();
            core.pin().delete(&table, hash(&old), &old, Condition::Always).expect("deletes pass");
        }
        core.step();
    }
    let bytes = store.statistics().index_bytes;
    assert!(bytes < before + (64 << 10), "{bytes} bytes of index and queues");
    table.retire();
    drain(&core);
    assert_eq!(store.statistics().tables, 0);
    drop(table);
    drain(&core);
    assert_eq!(store.statistics().index_bytes, 0);
}

#[test]
fn a_table_that_evicts_gives_way_in_a_full_store_and_within_a_used_up_quota() {
    let store = store(1 << 20, 1 << 14, 1);
    let core = store.core(0);
    let quota = Arc::new(Quota::new(1, 100 << 10));
    let table = table_of(&store, 1, 64 << 10, TableKind::Hash, &quota);
    let other = store.table_within(2, &quota);
    let fill = |table: &Table, from: u64| {
        let put = |number: &u64| put_patiently(&core, table, &number.to_be_bytes(), &[1; 100]);
        (from..from + 5_000).map(|number| put(&number)).find_map(Result::err)
    };
    assert_eq!(fill(&table, 0), None);
    assert_eq!(fill(&other, 0), Some(WriteError::OverQuota));
    assert!(quota.bytes() > 99 << 10);
    assert_eq!(fill(&table, 5_000), None, "it evicts rather than be refused");
    quota.set_limit(u64::MAX);
    assert_eq!(fill(&other, 5_000), None);
    let mut from = 10_000;
    while fill(&other, from).is_none() {
        from += 5_000;
    }
    let evicted = table.evicted();
    let refused = (0..200).map(|number: u64| put_patiently(&core, &table, &number.to_le_bytes(), &[2; 100]));
    assert_eq!(refused.filter_map(Result::err).count(), 0, "it evicts where the store is full");
    assert!(table.evicted() > evicted);
}

#[test]
fn a_table_that_evicts_keeps_its_objects_where_all_of_them_would_not_make_room() {
    let store = store(1 << 20, 1 << 14, 1);
    let core = store.core(0);
    let (small, other) = (table(&store, 1, 32 << 10), store.table(2));
    for number in 0..40_u64 {
        put_patiently(&core, &small, &number.to_be_bytes(), &[1; 100]).expect("there is room");
    }
    let fill = |number: u64| put_patiently(&core, &other, &number.to_be_bytes(), &[1; 100]);
    assert_eq!((0..20_000).map(fill).find_map(Result::err), Some(WriteError::OutOfMemory));
    drain(&core);
    let refused = (0..200_u64).map(|number| put_patiently(&core, &small, &number.to_le_bytes(), &[2; 100]));
    let refused = refused.filter_map(Result::err).collect::<Vec<_>>();
    assert_eq!(refused.len(), 200, "{refused:?}");
    assert_eq!((small.evicted(), small.objects()), (0, 40), "nothing left in vain");
}

#[test]
fn writers_of_several_cores_keep_the_budget_beside_readers_and_counts_are_exact() {
    let seed = seed("writers_of_several_cores_keep_the_budget");
    let store = store(4 << 20, 1 << 14, 4);
    let (budget_bytes, rounds) = (200 << 10, budget(30_000));
    let table = table(&store, 4, budget_bytes);
    // The budget, its slack, and one write of each core.
    let bytes_max = budget_bytes + budget_bytes / 16 + 4 * 160;
    thread::scope(|scope| {
        for index in 0..4 {
            let (core, table) = (store.core(index), &table);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed + index as u64);
                for _ in 0..rounds {
                    let key = random.u64(..5_000).to_le_bytes();
                    match random.u8(..4) {
                        0 if index > 0 => {
                            delete_patiently(&core, table, &key).expect("deletes pass");
                        }
                        1 | 2 => {
                            let value = vec![key[0]; random.usize(..120)];
                            put_patiently(&core, table, &key, &value).expect("it makes room");
                        }
                        _ => {
                            if let Some((_, value)) = get(&core, table, &key) {
                                assert!(value.iter().all(|&byte| byte == key[0]));
                            }
                        }
                    }
                    // The sum of per-core counts may mix several moments if its reader loses its core in between.
                    let is_kept = |bytes| bytes > i64::MAX as u64 || bytes <= bytes_max;
                    let sums: [u64; 5] = std::array::from_fn(|_| table.bytes());
                    assert!(sums.into_iter().any(is_kept), "{sums:?} bytes");
                    core.step();
                }
            });
        }
    });
    let core = store.core(0);
    drain(&core);
    assert!(table.evicted() > 0);
    assert_eq!(enumerated(&core, &table), (table.objects(), table.bytes()));
    // Remaining objects can still be evicted, whichever core wrote them.
    for number in (0..10).flat_map(|_| 10_000..12_000_u64) {
        let key = number.to_le_bytes();
        if (0..3).all(|_| get(&core, &table, &key).is_none()) {
            put_patiently(&core, &table, &key, &[0; 100]).expect("it makes room");
            core.step();
        }
    }
    let old = (0..5_000_u64).filter(|number| get(&core, &table, &number.to_le_bytes()).is_some()).count();
    assert!(table.bytes() <= budget_bytes && old < 200, "{old} old ones are left");
}
