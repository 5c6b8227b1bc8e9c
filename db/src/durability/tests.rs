//! The log over a disk that crashes, fails and is full, with a model.
//!
//! Writers, the cleaner and the log's thread take turns at random; the disk crashes at a planned call. What a start finds
//! must be the model as of the last cut that was reported as stable, or as of the cut under way: all of it, every key,
//! every version, and nothing else. And whatever a client was told by then must hold.

mod model;
mod nearly_full;
mod pairs;
mod running;
mod stopping;
mod world;

use disk::{Buffer, Digest, Disk, Fault, FrameId, SimulatedDisk};
use fastrand::Rng;
use store::{Condition, Config, WriteError};

use self::running::{CORES, Running};
use self::world::World;
use super::LogLayout;
use crate::limits::SEGMENT_NUMBERS_MAX;

/// A small store with one core.
const SMALL: Config = Config {
    memory_bytes: 2 << 20,
    segment_bytes: 32768,
    cores: 1,
    huge_pages: false,
    durable: true,
    recovery_cores: 0,
};

/// Returns the seeds of a run: as many as `few`, or `many` with `SPLINTER_FULL`; one if `SPLINTER_SEED` names it.
fn seeds(test: &str, few: u64, many: u64) -> impl Iterator<Item = u64> {
    let given = std::env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = match given {
        Some(_) => 1,
        None if std::env::var_os("SPLINTER_FULL").is_some() => many,
        None => few,
    };
    let first = given.unwrap_or_else(|| fastrand::u64(..u64::MAX / 2));
    println!("{test}: {count} seeds from SPLINTER_SEED={first}");
    (0..count).map(move |index| first + index)
}

#[test]
fn a_crash_at_any_call_leaves_a_cut_and_nothing_that_was_told_is_lost() {
    let (mut seen, mut directories) = (0, 0);
    for seed in seeds("a_crash_at_any_call", 200, 10_000) {
        let mut random = Rng::with_seed(seed);
        let mut world = World::new(&mut random);
        for _ in 0..random.u32(1..5) {
            let most = [8, 8, 200, 200, 1_000][random.usize(..5)];
            let calls = random.u64(0..most);
            let fault = match random.u32(0..8) {
                0 => Fault::CrashUntold,
                1 => Fault::Error,
                _ => Fault::Crash,
            };
            world.disk.plan(calls, fault);
            let turns = [0, 300, 3_000, 40_000][random.usize(..4)];
            world.run_until_crash(&mut random, turns);
            world.restart(&mut random, seed);
        }
        (seen, directories) = (seen + world.seen_often, directories + world.directories);
    }
    println!("{directories} directories; clients saw {seen} keys while a log was replayed");
}

#[test]
fn a_full_disk_refuses_writes_and_recovers_by_itself() {
    for seed in seeds("a_full_disk", 20, 500) {
        let mut random = Rng::with_seed(seed);
        let mut world = World::with_small_disk(&mut random);
        world.fill(&mut random);
        assert!(world.refused > 0, "seed {seed}: the disk was never full");
        world.check(&format!("seed {seed}"));
        world.delete_most(&mut random);
        world.write_again(&mut random, seed);
        world.disk.crash();
        world.restart(&mut random, seed);
    }
}

#[test]
fn rot_is_reported_and_what_it_left_is_found() {
    for seed in seeds("rot", 60, 2_000) {
        let mut random = Rng::with_seed(seed);
        let mut world = World::new(&mut random);
        (0..random.u32(500..3_000)).for_each(|_| world.turn(&mut random));
        world.sync();
        let frames = world.frames_of_fixed_segments();
        world.disk.crash();
        if frames.is_empty() {
            continue;
        }
        for _ in 0..random.u32(1..4) {
            let FrameId(frame) = frames[random.usize(..frames.len())];
            world.disk.flip(FrameId(frame), random.usize(..world.frame_bytes() * 8));
        }
        world.restart_with_rot(&mut random, seed);
    }
}

#[test]
fn a_start_over_frames_that_rot_has_taken_goes_on_or_says_why_not() {
    for seed in seeds("frames_of_rot", 100, 3_000) {
        let mut random = Rng::with_seed(seed);
        let mut world = World::new(&mut random);
        (0..random.u32(100..3_000)).for_each(|_| world.turn(&mut random));
        world.disk.crash();
        for _ in 0..random.u32(1..4) {
            world.take_by_rot(&mut random);
        }
        world.restart_over_rot(&mut random, seed);
    }
}

#[test]
fn a_log_without_numbers_for_segments_admits_no_writes() {
    let mut random = Rng::with_seed(seeds("numbers", 1, 1).next().expect("one of them"));
    let frame_bytes = LogLayout::frame_bytes_of(SMALL.segment_bytes);
    let mut disk = SimulatedDisk::new(random.u64(..), frame_bytes, 1_000);
    let layout = LogLayout::of(frame_bytes, 1_000);
    (0..2 * layout.digest_frames).for_each(|_| _ = disk.grow().expect("there is room"));
    let digest = Digest { number: u32::MAX, last: SEGMENT_NUMBERS_MAX - 10, ..Digest::default() }.encode();
    let mut buffer = Buffer::new(frame_bytes);
    buffer[..digest.len()].copy_from_slice(&digest);
    disk.write(&[disk::Write::of(layout.digest(1).next().expect("it has one"), 0, &buffer)])
        .expect("it works");
    let config = Config { cores: CORES, ..SMALL };
    let open = |disk: &SimulatedDisk, random: &mut Rng| {
        Running::open(&config, disk, 1_000, 0, random).expect("a sound log").running
    };
    let mut running = open(&disk, &mut random);
    let put = |running: &Running, key: u64| {
        let (bytes, pin) = (key.to_be_bytes(), running.cores[0].pin());
        pin.put(&running.tables[0], store::hash(&bytes), &bytes, &[1; 1_000], Condition::Always)
    };
    let mut written = 0;
    while put(&running, written).is_ok() {
        written += 1;
        running.writer.step().expect("it works");
        running.cores[0].step();
    }
    assert!(written > 100, "{written}");
    assert_eq!(put(&running, 0), Err(WriteError::StorageFull));
    drop(running);
    let disk = disk.restart();
    let running = open(&disk, &mut random);
    assert_eq!(running.contents(written, std::iter::empty()).len() as u64, written);
    assert_eq!(put(&running, 0), Err(WriteError::StorageFull));
}
