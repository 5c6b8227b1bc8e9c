//! Tests of retired tables: their memory is freed, their readers find nothing, their ids can be reused.

use crate::tests::{drain, get, put_patiently, store};
use crate::{Condition, WriteError, hash};

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_retired_table_gives_all_its_memory_back() {
    let store = store(2 << 20, 16 << 10, 1);
    let core = store.core(0);
    let kept = store.table(1);
    put_patiently(&core, &kept, b"kept", b"value").expect("there is memory");
    for round in 0..20 {
        let table = store.table(7);
        for number in 0..6000_u64 {
            let stored = put_patiently(&core, &table, &number.to_le_bytes(), &[round; 100]);
            stored.expect("the last round's memory has come back");
        }
        assert_eq!(table.objects(), 6000);
        table.retire();
        let refused = core.pin().put(&table, hash(b"k"), b"k", b"v", Condition::Always);
        assert_eq!(refused, Err(WriteError::TableRetired));
        drain(&core);
        assert_eq!((table.objects(), table.bytes(), table.index_bytes()), (0, 0, 0));
        assert_eq!(get(&core, &table, &1_u64.to_le_bytes()), None);
    }
    assert_eq!(get(&core, &kept, b"kept"), Some((1, b"value".to_vec())));
    assert_eq!(store.statistics().tables, 1);
}

#[test]
fn a_table_can_be_made_again_while_the_old_one_goes() {
    let store = store(2 << 20, 16 << 10, 1);
    let core = store.core(0);
    let old = store.table(7);
    let count = if cfg!(miri) { 60 } else { 3000_u64 };
    for number in 0..count {
        put_patiently(&core, &old, &number.to_le_bytes(), b"old").expect("there is memory");
    }
    old.retire();
    core.step();
    let new = store.table(7);
    for number in 0..count {
        put_patiently(&core, &new, &number.to_le_bytes(), b"new").expect("there is memory");
    }
    drain(&core);
    assert!((0..count).all(|number| get(&core, &old, &number.to_le_bytes()).is_none()));
    assert!((0..count).all(|number| get(&core, &new, &number.to_le_bytes()) == Some((1, b"new".to_vec()))));
    assert_eq!((store.statistics().tables, new.objects()), (1, count));
}

#[test]
#[should_panic(expected = "its own store")]
fn a_table_of_another_store_is_refused() {
    let (one, other) = (store(256 << 10, 4096, 1), store(256 << 10, 4096, 1));
    let (core, table) = (one.core(0), other.table(1));
    let _ = core.pin().get(&table, hash(b"k"), b"k").is_some();
}

#[test]
#[should_panic(expected = "core 0 is taken")]
fn a_core_is_had_once() {
    let store = store(256 << 10, 4096, 1);
    let _first = store.core(0);
    let _second = store.core(0);
}
