//! Full stores over crashes.

use super::{CORES, World, open_store};
use crate::{Condition, NEVER_MS, RequestId, WriteError};

/// Puts objects of such sizes until the memory is full, as one client does after another.
fn fill(world: &mut World, sizes: &[usize]) {
    world.keys = 0;
    for &size in sizes {
        let mut refused = 0;
        while refused < 50 {
            let (number, value) = (world.keys, vec![7; size]);
            let (key, core) = (number.to_be_bytes(), &world.cores[0]);
            core.begin_request(RequestId { client: 1, sequence: number + 1 }, &[]);
            let put = core.pin().put(&world.tables[0], crate::hash(&key), &key, &value, Condition::Always);
            core.end_request();
            match put {
                Ok(version) => {
                    world.model.put((1, number), version, value, NEVER_MS);
                    (world.keys, refused) = (number + 1, 0);
                }
                Err(WriteError::Retry { .. } | WriteError::OutOfMemory) => {
                    world.sync();
                    (0..10).for_each(|_| _ = world.cores[0].step());
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_full_store_takes_deletes_after_crashes() {
    for sizes in [&[10_000, 100, 1][..], &[1_000], &[5_000]] {
        let mut world = World::new(1);
        world.memory = (16 << 20, 1 << 20);
        (world.store, world.tables) = open_store(world.memory.0, world.memory.1, &world.numbers);
        world.cores = (0..CORES).map(|core| world.store.core(core)).collect();
        fill(&mut world, sizes);
        world.sync();
        for _ in 0..3 {
            world.crash();
        }
        for number in 0..world.keys {
            let key = number.to_be_bytes();
            let deleted = (0..1_000).find_map(|_| {
                let core = &world.cores[0];
                let deleted = core.pin().delete(&world.tables[0], crate::hash(&key), &key, Condition::Always);
                if deleted.is_err() {
                    world.recorder.sync(&world.store);
                    core.step();
                }
                assert_ne!(deleted, Err(WriteError::OutOfMemory), "a full store takes deletes");
                deleted.ok()
            });
            assert!(deleted.flatten().is_some(), "delete {number} of {} of {sizes:?} B", world.keys);
        }
    }
}
