//! Tests of tables with a part of all hashes: each answers like a whole table for its own keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{drain, each_seed, steps, store};
use crate::{
    Condition, Core, Cursor, HashRange, NEVER_MS, PageLimits, Quota, Store, Table, TableOptions, hash,
};

/// Returns tables that together have all hashes; the bounds are not powers of two.
fn parts(store: &Store) -> Vec<Arc<Table>> {
    let bounds = [0, u64::MAX / 97, u64::MAX / 3, u64::MAX / 10 * 9];
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let part = |(at, &first): (usize, &u64)| {
        let last = bounds.get(at + 1).map_or(u64::MAX, |next| next - 1);
        let hashes = HashRange::new(first, last).expect("wide enough");
        store.table_with(at as u32 + 1, TableOptions { hashes, ..TableOptions::default() }, &quota)
    };
    bounds.iter().enumerate().map(part).collect()
}

fn part_of<'t>(parts: &'t [Arc<Table>], key: &[u8]) -> &'t Table {
    parts.iter().find(|table| table.hashes().contains(hash(key))).expect("they share all hashes")
}

fn listed(core: &Core, table: &Table) -> Vec<Vec<u8>> {
    let (mut keys, mut from) = (Vec::new(), Cursor::START);
    let limits = PageLimits { objects: 100, bytes: usize::MAX, keys_only: true };
    loop {
        let (pinned, mut page) = (core.pin(), [None; 512]);
        let answer = pinned.enumerate(table, from, limits, &mut page).expect("the table is there");
        let objects = page.iter().take(answer.count).flatten();
        keys.extend(objects.map(|listed| listed.object.expect("it is whole").key().to_vec()));
        let Some(next) = answer.next else { return keys };
        from = Cursor::decode(table, &next.encode(table)).expect("it was made for this table");
    }
}

fn run(seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let store = store(2 << 20, 32 << 10, 1);
    let (core, parts) = (store.core(0), parts(&store));
    // The version and expiry of each key.
    let mut model: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
    let mut now_ms = 1;
    store.advance_clock(now_ms);
    for step in 0..steps {
        // In waves, so that indexes grow and shrink.
        let growing = (step / (steps / 6).max(1)).is_multiple_of(2);
        let key = random.u32(0..4_000).to_le_bytes().to_vec();
        let (table, at) = (part_of(&parts, &key), hash(&key));
        if random.u8(0..10) < if growing { 8 } else { 2 } {
            let expires_ms = if random.u8(0..8) == 0 { now_ms + random.u64(1..50) } else { NEVER_MS };
            let put = core.pin().put_until(table, at, &key, &[1; 60], expires_ms, Condition::Always);
            model.insert(key, (put.expect("there is memory"), expires_ms));
        } else {
            let deleted = core.pin().delete(table, at, &key, Condition::Always);
            assert_eq!(deleted, Ok(model.remove(&key).map(|(version, _)| version)));
        }
        core.step();
        if step % 97 == 0 {
            now_ms += 5;
            store.advance_clock(now_ms);
            model.retain(|_, (_, expires_ms)| *expires_ms > now_ms);
        }
        if step % (steps / 8).max(1) == 0 {
            compare(&core, &parts, &model);
        }
    }
    // Twice: a walk that is under way ends, and the next one rests before it begins.
    for later_ms in [10_000_000, 20_000_000] {
        store.advance_clock(now_ms + later_ms);
        drain(&core);
    }
    model.retain(|_, (_, expires_ms)| *expires_ms == NEVER_MS);
    compare(&core, &parts, &model);
    assert_eq!(
        parts.iter().map(|table| table.objects()).sum::<u64>(),
        model.len() as u64,
        "what expired is gone"
    );
}

fn compare(core: &Core, parts: &[Arc<Table>], model: &BTreeMap<Vec<u8>, (u64, u64)>) {
    for (key, (version, _)) in model {
        let pinned = core.pin();
        let found = pinned.get(part_of(parts, key), hash(key), key);
        assert_eq!(found.map(|object| object.version()), Some(*version));
    }
    let mut keys: Vec<_> = parts.iter().flat_map(|table| listed(core, table)).collect();
    assert!(
        keys.is_sorted_by_key(|key| hash(key)),
        "parts and what is in them come in the order of the hashes"
    );
    keys.sort();
    assert_eq!(keys, model.keys().cloned().collect::<Vec<_>>());
}

#[test]
fn tables_that_share_all_hashes_answer_like_one() {
    each_seed("tables_that_share_all_hashes_answer_like_one", |seed| run(seed, steps(20_000)));
}

#[test]
fn a_narrow_table_takes_no_more_index_than_its_objects_need() {
    const OBJECTS: u64 = if cfg!(miri) { 300 } else { 20_000 };
    let store = store(32 << 20, 1 << 20, 1);
    let hashes = HashRange::new(5 << 60, (5 << 60) + (u64::MAX >> 6)).expect("wide enough");
    let quota = Arc::new(Quota::new(1, u64::MAX));
    let narrow = store.table_with(1, TableOptions { hashes, ..TableOptions::default() }, &quota);
    let (core, whole) = (store.core(0), store.table(2));
    let keys = (0_u64..).map(u64::to_le_bytes).filter(|key| hashes.contains(hash(key)));
    for (number, key) in keys.take(OBJECTS as usize).enumerate() {
        let other = number.to_le_bytes();
        core.pin().put(&narrow, hash(&key), &key, b"", Condition::Always).expect("there is memory");
        core.pin().put(&whole, hash(&other), &other, b"", Condition::Always).expect("there is memory");
        core.step();
    }
    drain(&core);
    let (narrow, whole) = (narrow.index_bytes(), whole.index_bytes());
    assert!(narrow <= whole + whole / 16, "{narrow} bytes, {whole} for as many of all hashes");
}
