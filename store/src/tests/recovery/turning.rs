//! Tables that go from memory to the disk and back, between any writes, with crashes at any time.
//!
//! The model has for each table what the metadata would say: the number of its present time on the disk, or none. A table
//! is promised once all its objects are rewritten and a later cut is stable.

use std::sync::Arc;

use super::{World, filled, first_number};
use crate::tests::{each_seed, steps};
use crate::{Condition, RequestId, WriteError};

/// Numbers of tables that are in memory begin here.
pub(super) const IN_MEMORY: u32 = 1 << 31;

impl World {
    /// Turns a table, as a server does between two rounds of its workers.
    fn turn(&mut self, place: usize, number: Option<u32>) {
        let table = &self.tables[place];
        table.hold_writes();
        let refused = self.cores[0].pin().put(table, crate::hash(b"held"), b"held", b"", Condition::Always);
        assert!(matches!(refused, Err(WriteError::Retry { .. })), "{refused:?}");
        self.store.turn(table, number);
        table.release_writes();
        self.coming[place] = number;
    }

    fn new_number(&mut self) -> Option<u32> {
        self.last_number += 1;
        Some(self.last_number)
    }

    /// Lets a table go a step on its way, or turn back.
    fn go_on(&mut self) {
        let place = self.random.usize(0..self.tables.len());
        match (self.numbers[place], self.coming[place]) {
            (Some(_), _) => {
                self.numbers[place] = None;
                self.turn(place, None);
            }
            (None, None) => {
                let number = self.new_number();
                self.turn(place, number);
            }
            (None, Some(_)) if self.random.u32(0..4) == 0 => self.turn(place, None),
            (None, Some(number)) if self.tables[place].rewriting().is_none() => {
                self.sync();
                (self.numbers[place], self.coming[place]) = (Some(number), None);
            }
            (None, Some(_)) => {}
        }
    }

    /// Takes steps until a table's objects are where they belong.
    fn rewrite(&mut self, place: usize) {
        for round in 0..100_000 {
            let Some(progress) = self.tables[place].rewriting() else { return };
            if !self.cores[0].step() {
                self.recorder.sync(&self.store);
            }
            assert!(round < 99_999, "{progress:?}");
        }
    }

    /// Checks that the bytes that are counted are those of the objects.
    fn check_bytes(&self) {
        let pinned = self.cores[0].pin();
        for (place, table) in self.tables.iter().enumerate() {
            let mut bytes = 0;
            for number in 0..self.keys {
                let key = number.to_be_bytes();
                let found = pinned.get(table, crate::hash(&key), &key);
                bytes += found.map_or(0, |object| object.log_bytes() as u64);
            }
            assert!(table.bytes() >= bytes, "table {place}");
            assert!(table.bytes() == bytes || table.expiring() > 0, "{} of {bytes} bytes", table.bytes());
        }
    }
}

#[test]
fn a_table_is_on_the_disk_once_it_was_rewritten_and_no_earlier_time_returns() {
    each_seed("turning_tables", |seed| {
        for seed in seed..seed + steps(8) as u64 {
            println!("seed {seed}");
            let mut world = World::new(seed);
            for _ in 0..world.random.u32(3..12) {
                // Some stay for long enough to be cleaned.
                let each = 16 << world.random.u32(0..9);
                for _ in 0..world.random.u32(100..4_000) {
                    world.step();
                    if world.random.u32(0..each) == 0 {
                        world.go_on();
                    }
                }
                world.check();
                world.check_bytes();
                world.crash();
                world.check_bytes();
            }
        }
    });
}

#[test]
fn a_table_that_leaves_the_disk_frees_it_and_its_deleted_keys_stay_away() {
    let mut world = filled(20);
    let on_disk = world.recorder.record.segments.len();
    world.numbers[0] = None;
    world.turn(0, None);
    world.rewrite(0);
    world.store.set_disk_short(true);
    for _ in 0..40 {
        world.clean();
        world.sync();
    }
    let left = world.recorder.record.segments.len();
    assert!(left * 4 < on_disk, "{left} of {on_disk} segments are left");
    for number in (1..world.keys).step_by(2) {
        let key = number.to_be_bytes();
        let deleted =
            world.cores[0].pin().delete(&world.tables[0], crate::hash(&key), &key, Condition::Always);
        assert_eq!(deleted.map(|version| version.is_some()), Ok(number % 20 != 0));
        world.model.objects.remove(&(1, number));
    }
    let number = world.new_number();
    world.turn(0, number);
    world.rewrite(0);
    world.sync();
    world.numbers[0] = number;
    world.check();
    world.crash();
    assert!(world.tables[0].objects() > 1_000);
}

#[test]
fn replies_from_before_a_table_was_on_the_disk_are_found_there() {
    let mut world = World::new(1);
    world.numbers[0] = None;
    (world.store, world.tables) = super::open_store(world.memory.0, world.memory.1, &world.numbers);
    world.cores = (0..super::CORES).map(|core| world.store.core(core)).collect();
    let request = RequestId { client: 7, sequence: 3 };
    world.cores[0].begin_request(request, &[]);
    world.cores[0].pin().put(&world.tables[0], crate::hash(b"k"), b"k", b"v", Condition::Always).unwrap();
    world.cores[0].end_request();
    let number = world.new_number();
    world.turn(0, number);
    world.cores[0].pin().record_reply(&world.tables[0], request, &[9, 1]).unwrap();
    world.rewrite(0);
    world.sync();
    let (mut record, _) = world.stable.clone();
    let log = record.crash(super::CORES);
    world.numbers[0] = number;
    let (store, tables) = super::open_store(world.memory.0, world.memory.1, &world.numbers);
    let core = store.core(0);
    let mut recovery = core.recover(&log);
    for sequence in &log.sequences {
        let find = |id| (Some(id) == number).then(|| Arc::clone(&tables[0]));
        recovery.segment(*sequence, &record.segments[sequence].1, &[], find).unwrap();
    }
    let found = recovery.completions();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].request, &found[0].reply), (request, &crate::CompletionReply::Bytes([9, 1].into())));
    assert_eq!(recovery.finish().objects, 1);
    assert_ne!(number, Some(first_number(0)));
}

/// Each client wrote once, and its session ended long ago.
#[test]
fn replies_that_nobody_asks_for_any_more_take_little_memory() {
    let mut world = World::new(1);
    for client in 0..3_000_u64 {
        let key = client.to_le_bytes();
        world.cores[0].begin_request(RequestId { client, sequence: 1 }, &[3; 100]);
        let put =
            world.cores[0].pin().put(&world.tables[0], crate::hash(&key), &key, b"v", Condition::Always);
        put.expect("there is room");
        world.cores[0].end_request();
    }
    world.sync();
    let (mut record, _) = world.stable.clone();
    let log = record.crash(super::CORES);
    let found = [false, true].map(|are_old| {
        let (store, tables) = super::open_store(world.memory.0, world.memory.1, &world.numbers);
        let core = store.core(0);
        let mut recovery = core.recover(&log);
        recovery.expect_old_replies(are_old);
        for sequence in &log.sequences {
            let find = |id| (Some(id) == world.numbers[0]).then(|| Arc::clone(&tables[0]));
            recovery.segment(*sequence, &record.segments[sequence].1, &[], find).unwrap();
        }
        let found = recovery.completions().len();
        assert_eq!(recovery.finish().objects, 3_000);
        found
    });
    assert_eq!(found[0], 3_000);
    assert!((300..2_700).contains(&found[1]), "{} of 3000", found[1]);
}
