//! A writer that is much faster than a nearly full disk: cuts always find frames, so that the disk goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use disk::SimulatedDisk;
use fastrand::Rng;
use store::{Condition, Config, Core, Quota, Store, Table, TableOptions, WriteError};

use super::super::LogLayout;
use super::super::log_writer::{Step, frames_reserved};
use super::running::{WHOLE, recover};
use super::{SMALL, seeds};
use crate::limits::REMOVAL_FRAMES;

const CORES: usize = 1;
/// How long each write of the disk takes: meanwhile the memory could be written once.
const SLOW: Duration = Duration::from_millis(5);
const STEPS: u32 = 120;
/// Keys that are overwritten.
const KEYS: u64 = 1_000;

const CONFIG: Config = Config { cores: CORES, ..SMALL };

/// Overwrites keys until it is over; returns how many writes were admitted.
fn overwrite(core: &Core, table: &Table, mut random: Rng, is_over: &AtomicBool, written: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let key = random.u64(0..KEYS).to_le_bytes();
        match core.pin().put(table, store::hash(&key), &key, &[7; 100], Condition::Always) {
            Ok(_) => drop(written.fetch_add(1, Ordering::Relaxed)),
            Err(WriteError::Retry { .. } | WriteError::StorageFull | WriteError::OutOfMemory) => {}
            Err(error) => panic!("{error:?}"),
        }
        core.step();
    }
}

#[test]
fn a_writer_that_is_faster_than_a_nearly_full_disk_leaves_frames_for_each_cut() {
    for seed in seeds("nearly full", 3, 20) {
        let mut random = Rng::with_seed(seed);
        let frame_bytes = LogLayout::frame_bytes_of(CONFIG.segment_bytes);
        let (reserve, _) = frames_reserved(CORES, 0);
        // Little more than the server insists on.
        let digests = 2 * LogLayout::of(frame_bytes, 1_000).digest_frames;
        let frames_max = (2 * reserve + REMOVAL_FRAMES) as u32 + digests + random.u32(20..100);
        let disk = SimulatedDisk::new(seed, frame_bytes, frames_max);
        let store = Store::new(CONFIG).expect("a small store");
        let options = TableOptions { durable: true, ..TableOptions::default() };
        let table = store.table_with(1, options, &Arc::new(Quota::new(CORES, u64::MAX)));
        let tables = Arc::new([(1, Arc::clone(&table))].into());
        let opened = recover(&store, (Box::new(disk.clone()), frames_max), WHOLE, tables, &|_| {}, |_, _| {});
        let (mut writer, _) = opened.expect("a new log");
        let (is_over, written, core) = (AtomicBool::new(false), AtomicU64::new(0), store.core(0));
        let (mut full, mut at_half) = (0, 0);
        thread::scope(|scope| {
            let (table, is_over, written) = (&*table, &is_over, &written);
            scope.spawn(move || overwrite(&core, table, random, is_over, written));
            disk.slow_down(SLOW);
            let mut cuts = 0;
            while cuts < STEPS {
                let step = writer.step().expect("a disk that works");
                if step == Step::Idle {
                    thread::yield_now();
                    continue;
                }
                cuts += 1;
                full += u32::from(step == Step::Full);
                if cuts == STEPS / 2 {
                    at_half = written.load(Ordering::Relaxed);
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let written = written.into_inner();
        println!("seed {seed}: {at_half} writes, then {written}; {frames_max} frames");
        assert_eq!(full, 0, "seed {seed}: a cut found no frames");
        assert!(written > at_half && at_half > KEYS, "seed {seed}: writes go on, {at_half}, then {written}");
    }
}
