//! Tests of bytes that change in memory: a damaged object is detected when it would be copied, and never returned.

use std::sync::Arc;

use crate::tests::{budget, drain, get, put_patiently, seed, store};
use crate::{Condition, Config, Core, Opened, Quota, Store, Table, TableOptions, hash};

const OBJECTS: u64 = 2000;

/// A store with some objects, one of which has a changed byte at a given offset.
struct Damaged {
    store: Arc<Store>,
    core: Core,
    table: Arc<Table>,
    victim: [u8; 8],
    victim_bytes: u64,
}

fn value_of(number: u64) -> Vec<u8> {
    vec![number as u8; 60 + (number % 50) as usize]
}

fn damaged(at: usize) -> Damaged {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    for number in 0..OBJECTS {
        put_patiently(&core, &table, &number.to_le_bytes(), &value_of(number)).expect("there is memory");
    }
    let victim = 700_u64.to_le_bytes();
    let victim_bytes = {
        let pinned = core.pin();
        let location = table.index.find(&pinned.pin, hash(&victim), |location| {
            pinned.object_of(location, &victim).map(|_| location)
        });
        let bytes = pinned.get(&table, hash(&victim), &victim).expect("it was put").log_bytes();
        store.log.damage(location.expect("it was put"), at, 0x40);
        bytes as u64
    };
    Damaged { store, core, table, victim, victim_bytes }
}

impl Damaged {
    /// Overwrites the other objects until the cleaner has been everywhere, and checks all of them.
    fn clean_all(&self) {
        let mut random = fastrand::Rng::with_seed(seed("clean_all"));
        for _ in 0..budget(60_000) {
            let number = random.u64(0..OBJECTS);
            if number.to_le_bytes() != self.victim {
                let stored = put_patiently(&self.core, &self.table, &number.to_le_bytes(), &value_of(number));
                stored.expect("there is memory");
            }
            self.core.step();
        }
        drain(&self.core);
        for number in (0..OBJECTS).filter(|number| number.to_le_bytes() != self.victim) {
            let found = get(&self.core, &self.table, &number.to_le_bytes()).expect("the others stay");
            assert_eq!(found.1, value_of(number));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn an_object_whose_value_was_damaged_is_counted_and_not_found_any_more() {
    let damaged = damaged(40);
    let bytes = damaged.table.bytes();
    damaged.clean_all();
    let pinned = damaged.core.pin();
    assert!(pinned.get(&damaged.table, hash(&damaged.victim), &damaged.victim).is_none());
    assert_eq!(damaged.store.statistics().cleaner.damaged_objects, 1);
    assert_eq!(damaged.store.statistics().cleaner.damaged_segments, 0);
    assert_eq!((damaged.table.objects(), damaged.table.bytes()), (OBJECTS - 1, bytes - damaged.victim_bytes));
    let again = put_patiently(&damaged.core, &damaged.table, &damaged.victim, b"new");
    assert_eq!(again, Ok(2), "versions grow over it");
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_damaged_key_keeps_its_segment_and_holds_up_nobody() {
    let damaged = damaged(22);
    damaged.clean_all();
    let pinned = damaged.core.pin();
    assert!(pinned.get(&damaged.table, hash(&damaged.victim), &damaged.victim).is_none());
    assert_eq!(damaged.store.statistics().cleaner.damaged_segments, 1);
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn damaged_lengths_keep_their_segment_and_hold_up_nobody() {
    let damaged = damaged(17);
    damaged.clean_all();
    assert_eq!(damaged.store.statistics().cleaner.damaged_segments, 1);
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn an_index_grows_and_shrinks_over_an_object_whose_key_or_lengths_were_damaged() {
    for at in [17, 19, 22] {
        let Damaged { core, table, victim, .. } = damaged(at);
        let others = || (0..OBJECTS + 3000).map(u64::to_le_bytes).filter(|key| *key != victim);
        for key in others() {
            put_patiently(&core, &table, &key, b"more").expect("there is memory");
        }
        drain(&core);
        for key in others() {
            assert_eq!(get(&core, &table, &key).expect("it is there").1, b"more", "byte {at}");
        }
        for key in others().skip(50) {
            core.pin().delete(&table, hash(&key), &key, Condition::Always).expect("it is there");
        }
        drain(&core);
        for key in others().take(50) {
            assert!(get(&core, &table, &key).is_some(), "byte {at}");
        }
    }
}

#[test]
fn lengths_that_were_damaged_lead_to_no_memory_but_the_logs() {
    let store = store(1 << 20, 16 << 10, 1);
    let (core, table) = (store.core(0), store.table(1));
    // Fills the store, so that some object is in the last window, whatever the order in which windows are taken.
    for number in 0..OBJECTS {
        put_patiently(&core, &table, &number.to_le_bytes(), &[7; 300]).expect("there is memory");
    }
    let pinned = core.pin();
    let location_of = |number: u64| {
        let key = number.to_le_bytes();
        table.index.find(&pinned.pin, hash(&key), |at| pinned.object_of(at, &key).map(|_| at))
    };
    let last = (0..OBJECTS).filter_map(|number| Some((location_of(number)?, number)));
    let (location, number) = last.max_by_key(|(location, _)| location.offset()).expect("some are there");
    store.log.damage(location, 15, 0xf8);
    let object =
        pinned.get(&table, hash(&number.to_le_bytes()), &number.to_le_bytes()).expect("its key is whole");
    assert!(object.value().len() > 1 << 20 && !object.verify(), "all of it can be read");
}

/// Lets a disk without faults have all that was written; returns the segments that it is to forget.
fn write_to_disk(store: &Store, open: &mut Vec<Opened>) -> Vec<u32> {
    let mut positions = Vec::new();
    let (number, released) = store.cut(&mut positions);
    open.extend(store.take_opened());
    store.note_stable(number, &positions);
    open.retain(|opened| {
        let is_whole = positions[opened.writer].sequence > opened.sequence;
        if is_whole {
            store.note_synced(*opened);
        }
        !is_whole
    });
    let gone: Vec<u32> = released.flat_map(|released| released.sequences).collect();
    gone.iter().for_each(|sequence| store.note_gone(*sequence));
    gone
}

#[test]
#[cfg_attr(miri, ignore = "too long for Miri")]
fn a_disk_forgets_nothing_once_a_segment_of_it_cannot_be_emptied() {
    let (memory_bytes, segment_bytes) = (2 << 20, 16 << 10);
    let config =
        Config { memory_bytes, segment_bytes, cores: 1, huge_pages: false, durable: true, recovery_cores: 0 };
    let store = Store::new(config).expect("a small store");
    let options = TableOptions { durable: true, ..TableOptions::default() };
    let table = store.table_with(1, options, &Arc::new(Quota::new(1, u64::MAX)));
    let (core, mut open) = (store.core(0), Vec::new());
    store.set_disk_short(true);
    let mut random = fastrand::Rng::with_seed(seed("a_disk_forgets_nothing"));
    let victim = 700_u64.to_le_bytes();
    let mut overwrite = |times: u32, open: &mut Vec<Opened>| -> usize {
        let mut forgotten = 0;
        for _ in 0..times {
            let key = random.u64(0..OBJECTS).to_le_bytes();
            if key != victim {
                // Refused while nothing becomes free.
                let _ = core.pin().put(&table, hash(&key), &key, &value_of(1), Condition::Always);
            }
            core.step();
            if random.u32(0..50) == 0 {
                forgotten += write_to_disk(&store, open).len();
            }
        }
        forgotten
    };
    core.pin().put(&table, hash(&victim), &victim, b"value", Condition::Always).expect("there is room");
    overwrite(400, &mut open);
    write_to_disk(&store, &mut open);
    let location = {
        let pinned = core.pin();
        let found =
            table.index.find(&pinned.pin, hash(&victim), |at| pinned.object_of(at, &victim).map(|_| at));
        found.expect("it was put")
    };
    assert!(store.log.is_stable(location), "the disk has it");
    store.log.damage(location, 22, 0x40);
    let damaged_segments = || store.statistics().cleaner.damaged_segments;
    while damaged_segments() == 0 {
        overwrite(100, &mut open);
    }
    write_to_disk(&store, &mut open);
    let after = overwrite(20_000, &mut open);
    assert_eq!(after, 0, "what has moved from it would come back without the ends of later entries");
    assert!(store.statistics().segments_cleaned > 100, "the cleaner goes on");
}
