//! Tests of enumerations: each object that stays is met exactly once, whatever happens meanwhile; corrupted objects
//! are reported.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{budget, drain, put_patiently, seed, store};
use crate::index::bucket::SLOTS;
use crate::limits::WALK_BUCKETS_PER_STEP;
use crate::{Condition, Core, Cursor, Gone, Listed, PageLimits, Quota, Table, TableOptions, hash};

/// Returns an empty page.
fn room<'p>() -> [Option<Listed<'p>>; 512] {
    [None; 512]
}

/// The number of times that an enumeration has met each key.
type Met = BTreeMap<Vec<u8>, u32>;

fn limits(objects: usize) -> PageLimits {
    PageLimits { objects, bytes: usize::MAX, keys_only: true }
}

/// Makes one step, with the cursor encoded as bytes.
fn step(core: &Core, table: &Table, cursor: &mut Vec<u8>, limits: PageLimits, met: &mut Met) -> bool {
    let from = Cursor::decode(table, cursor).expect("it was made for this table");
    let (pinned, mut page) = (core.pin(), room());
    let answer = pinned.enumerate(table, from, limits, &mut page).expect("the table is there");
    for listed in page.iter().take(answer.count).flatten() {
        let object = listed.object.expect("nothing is corrupted");
        assert_eq!(listed.hash, hash(object.key()));
        *met.entry(object.key().to_vec()).or_default() += 1;
    }
    match answer.next {
        Some(next) => *cursor = next.encode(table).to_vec(),
        None => cursor.clear(),
    }
    answer.next.is_some()
}

fn all(core: &Core, table: &Table, limits: PageLimits) -> Met {
    let (mut met, mut cursor) = (Met::new(), Vec::new());
    while step(core, table, &mut cursor, limits, &mut met) {}
    met
}

fn fill(core: &Core, table: &Table, keys: std::ops::Range<u32>) {
    for number in keys {
        put_patiently(core, table, &number.to_le_bytes(), &[7; 20]).expect("there is memory");
    }
}

#[test]
fn an_enumeration_meets_each_object_once_in_pages_of_any_size() {
    let store = store(4 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    assert!(all(&core, &table, limits(10)).is_empty());
    let count = if cfg!(miri) { 40 } else { 3_000 };
    fill(&core, &table, 0..count);
    put_patiently(&core, &table, b"", b"").expect("an empty key is a key");
    for objects in [1, 3, 100, 512] {
        let met = all(&core, &table, limits(objects));
        assert_eq!(met.len(), count as usize + 1);
        assert!(met.values().all(|&times| times == 1));
    }
}

#[test]
fn a_page_ends_at_its_bytes_but_has_an_object() {
    let store = store(4 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    fill(&core, &table, 0..200);
    put_patiently(&core, &table, b"large", &[1; 10_000]).expect("there is memory");
    for bytes in [1, 24, 100, 5_000] {
        let limits = PageLimits { objects: 512, bytes, keys_only: false };
        let (mut from, mut count, pinned) = (Cursor::START, 0, core.pin());
        loop {
            let mut page = room();
            let answer = pinned.enumerate(&table, from, limits, &mut page).expect("the table is there");
            assert!(answer.bytes <= bytes || answer.count == 1, "{answer:?}");
            count += answer.count;
            let Some(next) = answer.next else { break };
            from = next;
        }
        assert_eq!(count, 201);
    }
}

#[test]
fn what_has_expired_is_not_enumerated() {
    let store = store(1 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    fill(&core, &table, 0..50);
    for number in 100..150_u32 {
        let key = number.to_le_bytes();
        let put = core.pin().put_until(&table, hash(&key), &key, b"", 1_000, Condition::Always);
        put.expect("there is memory");
    }
    assert_eq!(all(&core, &table, limits(9)).len(), 100);
    store.advance_clock(1_000);
    assert_eq!(all(&core, &table, limits(9)).len(), 50);
}

#[test]
fn a_cursor_of_another_table_or_made_up_is_refused() {
    let store = store(1 << 20, 1 << 16, 1);
    let (core, table, other) = (store.core(0), store.table(1), store.table(2));
    fill(&core, &table, 0..100);
    let mut cursor = Vec::new();
    assert!(step(&core, &table, &mut cursor, limits(10), &mut Met::new()));
    assert!(Cursor::decode(&table, &cursor).is_ok());
    assert!(Cursor::decode(&other, &cursor).is_err());
    for at in 0..cursor.len() {
        let mut damaged = cursor.clone();
        damaged[at] ^= 1;
        assert!(Cursor::decode(&table, &damaged).is_err());
    }
    for bytes in [&cursor[..23], &[0; 24], &[255; 24], &[1], &[cursor.as_slice(), &[0]].concat()] {
        assert!(Cursor::decode(&table, bytes).is_err());
    }
    table.retire();
    drain(&core);
    assert!(Cursor::decode(&store.table(1), &cursor).is_err(), "the table of that number is another one");
}

#[test]
fn an_enumeration_of_a_table_that_goes_ends_with_an_error() {
    let store = store(1 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    fill(&core, &table, 0..2_000);
    let mut cursor = Vec::new();
    assert!(step(&core, &table, &mut cursor, limits(10), &mut Met::new()));
    let from = Cursor::decode(&table, &cursor).expect("it was made for this table");
    table.retire();
    core.step();
    drain(&core);
    assert_eq!(core.pin().enumerate(&table, from, limits(10), &mut room()).err(), Some(Gone));
    assert_eq!(core.pin().verify(&table, from, |_| ()).err(), Some(Gone));
}

#[test]
fn what_stays_is_met_once_while_the_table_grows_and_shrinks_and_the_cleaner_works() {
    let store = store(2 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let mut random = fastrand::Rng::with_seed(seed("what_stays_is_met_once"));
    fill(&core, &table, 0..500);
    for _ in 0..budget(4) {
        let (mut met, mut cursor) = (Met::new(), Vec::new());
        let mut others = 1_000..;
        while step(&core, &table, &mut cursor, limits(random.usize(1..40)), &mut met) {
            let new = if others.start < 5_000 { random.usize(0..150) } else { 0 };
            for key in others.by_ref().take(new) {
                put_patiently(&core, &table, &u32::to_le_bytes(key), &[3; 30]).expect("there is memory");
            }
            for _ in 0..random.usize(0..60) {
                let key = random.u32(1_000..others.start + 1).to_le_bytes();
                let _ = core.pin().delete(&table, hash(&key), &key, Condition::Always);
                let stays = random.u32(0..500).to_le_bytes();
                put_patiently(&core, &table, &stays, &[9; 40]).expect("there is memory");
                core.step();
            }
        }
        assert!((0..500_u32).all(|key| met.get(key.to_le_bytes().as_slice()) == Some(&1)));
        assert!(met.values().all(|&times| times == 1), "nothing is met twice");
        for key in 1_000..others.start {
            let key = key.to_le_bytes();
            let _ = core.pin().delete(&table, hash(&key), &key, Condition::Always);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn what_stays_is_met_once_while_another_core_writes() {
    let store = store(16 << 20, 1 << 16, 2);
    let seed = seed("what_stays_is_met_once_while_another_core_writes");
    let table = store.table(1);
    let (core, done) = (store.core(0), AtomicBool::new(false));
    fill(&core, &table, 0..1_000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (core, mut random) = (store.core(1), fastrand::Rng::with_seed(seed));
            let mut most = 2_000;
            while !done.load(Ordering::Relaxed) {
                let key = random.u32(2_000..most + 1).to_le_bytes();
                if random.u8(0..3) == 0 {
                    let _ = core.pin().delete(&table, hash(&key), &key, Condition::Always);
                } else {
                    let _ = core.pin().put(&table, hash(&key), &key, &[3; 30], Condition::Always);
                }
                let stays = random.u32(0..1_000).to_le_bytes();
                let _ = core.pin().put(&table, hash(&stays), &stays, &[4; 30], Condition::Always);
                most = (most + 1).min(20_000);
                core.step();
            }
        });
        for _ in 0..budget(8) {
            let met = all(&core, &table, limits(30));
            assert!((0..1_000_u32).all(|key| met.get(key.to_le_bytes().as_slice()) == Some(&1)));
            assert!(met.values().all(|&times| times == 1), "nothing is met twice");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_corrupted_object_is_reported_and_not_returned() {
    let store = store(1 << 20, 1 << 16, 1);
    let (core, table) = (store.core(0), store.table(1));
    fill(&core, &table, 0..300);
    let put =
        core.pin().put_until(&table, hash(b"expires"), b"expires", b"later", 1 << 40, Condition::Always);
    put.expect("there is memory");
    let check = || {
        let (mut from, mut objects, mut bytes, mut corrupted) = (Cursor::START, 0, 0, Vec::new());
        loop {
            let checked = core.pin().verify(&table, from, |hash| corrupted.push(hash)).expect("it is there");
            (objects, bytes) = (objects + checked.objects, bytes + checked.bytes);
            let Some(next) = checked.next else { return (objects, bytes, corrupted) };
            from = next;
        }
    };
    assert_eq!(check(), (301, table.bytes(), vec![]));
    // Damages each part of an object in turn: checksum, table, version, lengths, key, value, expiry.
    for at in [0, 5, 9, 16, 18, 22, 30] {
        let key: &[u8] = if at == 30 { b"expires" } else { &[4, 0, 0, 0] };
        let location = {
            let pinned = core.pin();
            let is_it = |location| pinned.object_of(location, key).map(|_| location);
            table.index.find(&pinned.pin, hash(key), is_it).expect("it is there")
        };
        store.log.damage(location, at, 0x10);
        let (objects, _, corrupted) = check();
        assert_eq!((objects, corrupted.len()), (301, 1), "byte {at}");
        if !(16..=22).contains(&at) {
            assert_eq!(corrupted, [hash(key)], "byte {at}");
        }
        assert_eq!(corrupted[0] as u16, hash(key) as u16, "byte {at}");
        let mut met = 0;
        let (mut from, pinned) = (Cursor::START, core.pin());
        loop {
            let mut page = room();
            let answer = pinned.enumerate(&table, from, limits(50), &mut page).expect("the table is there");
            met += page.iter().take(answer.count).flatten().filter(|listed| listed.object.is_some()).count();
            let Some(next) = answer.next else { break };
            from = next;
        }
        assert_eq!(met, 300, "byte {at}");
        drop(pinned);
        store.log.damage(location, at, 0x10);
    }
    assert_eq!(check(), (301, table.bytes(), vec![]));
}

#[test]
fn a_walk_that_ends_with_a_step_gives_no_further_cursor() {
    let store = store(16 << 20, 1 << 20, 1);
    let core = store.core(0);
    for objects_expected in 1..2_000 {
        let options = TableOptions { objects_expected, ..TableOptions::default() };
        let quota = Arc::new(Quota::new(1, u64::MAX));
        let table = store.table_with(objects_expected as u32, options, &quota);
        let buckets = table.index.slots() as usize / SLOTS;
        let checked = core.pin().verify(&table, Cursor::START, |_| ()).expect("the table is there");
        assert_eq!(checked.next.is_some(), buckets > WALK_BUCKETS_PER_STEP, "{buckets} buckets");
        if buckets > WALK_BUCKETS_PER_STEP {
            break;
        }
        table.retire();
        drain(&core);
    }
}
