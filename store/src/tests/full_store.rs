//! Tests of a full store: the operations that still work, and long overwriting at high utilization.

use std::collections::BTreeMap;

use crate::limits::CLEAN_SEGLETS_PER_LOOK;
use crate::tests::{budget, drain, each_seed, get, put_patiently, seed, steps, store};
use crate::{CommitError, Condition, Core, NEVER_MS, Table, Write, WriteError, hash};

const VALUE: [u8; 100] = [9; 100];

fn fill(core: &Core, table: &Table) -> u64 {
    for number in 0_u64.. {
        match put_patiently(core, table, &number.to_le_bytes(), &VALUE) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, WriteError::OutOfMemory);
                return number;
            }
        }
    }
    unreachable!("memory is finite")
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_full_store_serves_reads_and_deletes_and_takes_writes_again() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let count = fill(&core, &table);
    assert!(count * 128 > 850 << 10, "{count} objects of 128 bytes are all that fits");
    for number in 0..count {
        assert_eq!(get(&core, &table, &number.to_le_bytes()), Some((1, VALUE.to_vec())));
    }
    let overwrite = put_patiently(&core, &table, &0_u64.to_le_bytes(), &VALUE);
    assert_eq!(overwrite, Err(WriteError::OutOfMemory));
    for number in (0..count).step_by(4) {
        let key = number.to_le_bytes();
        let deleted = core.pin().delete(&table, hash(&key), &key, Condition::Always);
        assert_eq!(deleted, Ok(Some(1)));
    }
    assert_eq!(table.objects(), count - count.div_ceil(4));
    for number in (0..count).step_by(8) {
        put_patiently(&core, &table, &number.to_le_bytes(), &VALUE).expect("deletes made room");
    }
    for number in 0..count {
        let there = get(&core, &table, &number.to_le_bytes()).is_some();
        assert_eq!(there, number % 4 != 0 || number % 8 == 0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_choice_looks_at_a_part_of_a_large_log_and_choices_find_what_is_anywhere_in_it() {
    let store = store(8 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let seglets = store.log.segments.seglets();
    let count = fill(&core, &table);
    let empty_and_refill = |keys: std::ops::Range<u64>| {
        for number in keys.clone() {
            let key = number.to_le_bytes();
            core.pin().delete(&table, hash(&key), &key, Condition::Always).expect("deletes need no memory");
        }
        // Garbage of 1/32 of a segment is not worth copying the rest.
        for number in keys.clone().take((keys.end - keys.start) as usize / 4) {
            for _ in 0..4 {
                let looked_to = store.cleaner.lock().looked_to;
                store.clean_step(&core.pin());
                let looked = (store.cleaner.lock().looked_to + seglets - looked_to) % seglets;
                assert!(looked < CLEAN_SEGLETS_PER_LOOK + 16, "{looked} of {seglets} in one step");
            }
            put_patiently(&core, &table, &number.to_le_bytes(), &VALUE).expect("deletes made room");
        }
    };
    for place in 0..8 {
        empty_and_refill(count * place / 8..count * (place + 1) / 8);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_commit_of_many_keys_has_room_in_a_small_table_once_its_index_has_grown() {
    const MANY: u64 = 1024;
    let store = store(8 << 20, 64 << 10, 1);
    let core = store.core(0);
    for length in [5, 8, 12] {
        let table = store.table(length);
        let keys: Vec<Vec<u8>> =
            (0..MANY).map(|number| format!("{number:0length$}", length = length as usize).into()).collect();
        let writes: Vec<Write<'_>> = keys
            .iter()
            .map(|key| Write {
                table: &table,
                hash: hash(key),
                key,
                value: Some(&VALUE),
                expires_ms: NEVER_MS,
            })
            .collect();
        loop {
            match core.pin().commit(&[], &writes) {
                Ok(_) => break,
                // Background steps, as a server does between a client's attempts.
                Err(CommitError::Write(WriteError::Retry { .. })) => while core.step() {},
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(table.objects(), MANY);
        for key in &keys {
            assert!(get(&core, &table, key).is_some());
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn deleting_all_makes_all_memory_free_again() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let first = fill(&core, &table);
    for number in 0..first {
        let key = number.to_le_bytes();
        core.pin().delete(&table, hash(&key), &key, Condition::Always).expect("deletes need no memory");
    }
    assert_eq!((table.objects(), table.bytes()), (0, 0));
    // The index keeps its size, which may cost a segment or two.
    assert!(fill(&core, &table) * 100 > first * 96);
}

/// Overwrites at 80 % of the memory, uniformly or skewed, with values of several sizes.
fn overwrite_at_80_percent(seed: u64, writes: usize, skewed: bool) {
    let memory_bytes = 8 << 20;
    let store = store(memory_bytes, 32 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = BTreeMap::new();
    let mut keys = 0_u32;
    while (table.bytes() + table.index_bytes()) * 10 < memory_bytes as u64 * 8 {
        put_patiently(&core, &table, &keys.to_le_bytes(), &VALUE).expect("80 % fits");
        model.insert(keys, VALUE.to_vec());
        keys += 1;
    }
    for _ in 0..writes {
        let key = if skewed {
            random.u32(0..keys).min(random.u32(0..keys)).min(random.u32(0..keys))
        } else {
            random.u32(0..keys)
        };
        let value = vec![random.u8(..); random.usize(95..=105)];
        put_patiently(&core, &table, &key.to_le_bytes(), &value).expect("overwriting needs no more");
        model.insert(key, value);
        core.step();
    }
    drain(&core);
    for (key, value) in &model {
        let found = get(&core, &table, &key.to_le_bytes()).expect("nothing is lost");
        assert_eq!(found.1, *value);
    }
    let statistics = store.statistics();
    let copied = statistics.bytes_relocated / (writes as u64 * 128).max(1);
    println!("{} segments cleaned, {copied} bytes copied per byte written", statistics.segments_cleaned);
    assert!(statistics.segments_cleaned > 0);
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn who_pays_after_each_batch_is_not_told_to_come_again() {
    let store = store(8 << 20, 32 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let mut random = fastrand::Rng::with_seed(seed("who_pays_after_each_batch"));
    let put = |key: u32| {
        core.pin().put(&table, hash(&key.to_le_bytes()), &key.to_le_bytes(), &VALUE, Condition::Always)
    };
    for key in 0..44_000 {
        put(key).expect("75 % fits");
        core.step();
    }
    for _ in 0..budget(6_000) {
        for _ in 0..16 {
            put(random.u32(0..44_000)).expect("cleaning keeps up with who pays for it");
        }
        core.step();
    }
    assert!(store.statistics().cleaner.copied_bytes > 0);
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_large_object_finds_room_where_small_ones_have_left_pieces() {
    let store = store(2 << 20, 64 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    let count = fill(&core, &table);
    // Deletes one in four, so that free memory is scattered everywhere in small pieces.
    for number in (0..count).step_by(4) {
        let key = number.to_le_bytes();
        core.pin().delete(&table, hash(&key), &key, Condition::Always).expect("deletes need no memory");
    }
    drain(&core);
    for number in 0..4_u64 {
        let (key, value) = ([number as u8; 9], vec![number as u8; 60_000]);
        put_patiently(&core, &table, &key, &value).expect("a quarter of the memory is free");
        assert_eq!(get(&core, &table, &key).map(|found| found.1), Some(value));
    }
    for number in (0..count).filter(|number| number % 4 != 0) {
        assert_eq!(get(&core, &table, &number.to_le_bytes()).expect("the others stay").1, VALUE);
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn overwriting_at_80_percent_goes_on() {
    each_seed("overwriting_at_80_percent_goes_on", |seed| {
        overwrite_at_80_percent(seed, steps(300_000), false)
    });
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn skewed_overwriting_at_80_percent_goes_on() {
    each_seed("skewed_overwriting_at_80_percent_goes_on", |seed| {
        overwrite_at_80_percent(seed, steps(300_000), true)
    });
}
