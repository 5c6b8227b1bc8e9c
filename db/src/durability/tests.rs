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

use std::collections::BTreeMap;

use disk::{BLOCK_BYTES, Buffer, Digest, Disk, Fault, FrameId, Read, SimulatedDisk};
use fastrand::Rng;
use store::{Condition, Config, WriteError};

use self::running::{CORES, KEYS_MAX, Running};
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
pub(crate) fn seeds(test: &str, few: u64, many: u64) -> impl Iterator<Item = u64> {
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
    for seed in seeds("a_crash_at_any_call", 200, 2_000) {
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
fn the_log_is_found_among_its_replicas_whatever_crashes() {
    let (mut logs, mut segments, mut kept, mut received) = (0, 0, (0, 0), 0);
    for seed in seeds("replicas", 60, 1_000) {
        let mut random = Rng::with_seed(seed);
        let mut world = World::with_backups(&mut random);
        for _ in 0..random.u32(1..4) {
            let most = [20, 400, 2_000][random.usize(..3)];
            let calls = random.u64(0..most);
            world.disk.plan(calls, if random.bool() { Fault::Crash } else { Fault::CrashUntold });
            let turns = [0, 300, 3_000, 10_000][random.usize(..4)];
            world.run_until_crash(&mut random, turns);
            world.check_backups(seed);
            world.restart(&mut random, seed);
        }
        received += world.received_often;
        let found = world.found_at_backups();
        (logs, segments) = (logs + found.0, segments + found.1);
        kept = (kept.0 + world.kept_to_decided.0, kept.1 + world.kept_to_decided.1);
    }
    println!(
        "{logs} logs with {segments} segments were found, {received} of them with more than was stable; own logs that kept to \
         that, and that had less: {kept:?}"
    );
}

#[test]
fn a_full_disk_refuses_writes_and_recovers_by_itself() {
    for seed in seeds("a_full_disk", 20, 200) {
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
    for seed in seeds("rot", 60, 500) {
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
    for seed in seeds("frames_of_rot", 100, 1_000) {
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

/// Returns all blocks of a disk by frame and offset.
fn blocks_of(disk: &mut SimulatedDisk) -> BTreeMap<(u32, usize), Vec<u8>> {
    let mut blocks = BTreeMap::new();
    for frame in 0..disk.frames() {
        let mut content = Buffer::new(disk.frame_bytes());
        disk.read(&mut [Read::of(FrameId(frame), 0, &mut content)]).expect("it reads");
        let parts = content.chunks(BLOCK_BYTES).enumerate();
        blocks.extend(parts.map(|(block, bytes)| ((frame, block * BLOCK_BYTES), bytes.to_vec())));
    }
    blocks
}

/// Of a cut that a crash ended any blocks may be on the disk. If the first of a segment are not, no start finds it, and its
/// number is used again: the blocks are none of the later segment's.
#[test]
fn blocks_of_a_cut_that_no_start_has_found_are_never_read() {
    let config = Config { cores: CORES, ..SMALL };
    let frame_bytes = LogLayout::frame_bytes_of(config.segment_bytes);
    let digests = 2 * LogLayout::of(frame_bytes, 1_000).digest_frames;
    for seed in seeds("blocks_of_a_cut", 50, 500) {
        let mut random = Rng::with_seed(seed);
        let open = |disk: &SimulatedDisk, random: &mut Rng| {
            Running::open(&config, disk, 1_000, 0, random).expect("a sound log").running
        };
        let put = |running: &Running, keys: std::ops::Range<u64>, byte: u8| {
            for key in keys {
                let (bytes, pin) = (key.to_be_bytes(), running.cores[0].pin());
                let (hash, table) = (store::hash(&bytes), &running.tables[0]);
                pin.put(table, hash, &bytes, &[byte; 1_000], Condition::Always).expect("there is room");
            }
        };
        let mut disk = SimulatedDisk::new(random.u64(..), frame_bytes, 1_000);
        let (mut expected, mut key) = (BTreeMap::new(), 0);
        for _ in 0..random.u32(1..5) {
            // A cut that ends with a crash.
            let mut blocks = blocks_of(&mut disk);
            let mut ended = disk.restart();
            let mut running = open(&ended, &mut random);
            put(&running, 300..300 + random.u64(1..60), 9);
            running.writer.step().expect("it works");
            drop(running);
            for ((frame, offset), bytes) in blocks_of(&mut ended) {
                let is_new = blocks.get(&(frame, offset)) != Some(&bytes);
                let is_first = disk::Trailer::read(&bytes).is_none_or(|trailer| trailer.block == 0);
                if is_new && (frame < digests || !is_first && random.bool()) {
                    blocks.insert((frame, offset), bytes);
                }
            }
            disk = SimulatedDisk::new(random.u64(..), frame_bytes, 1_000);
            (0..ended.frames()).for_each(|_| _ = disk.grow().expect("there is room"));
            for ((frame, offset), bytes) in blocks {
                let mut buffer = Buffer::new(BLOCK_BYTES);
                buffer.copy_from_slice(&bytes);
                disk.write(&[disk::Write::of(FrameId(frame), offset, &buffer)]).expect("it works");
            }
            // And some that are acknowledged.
            let mut running = open(&disk, &mut random);
            for _ in 0..random.u32(1..3) {
                let (byte, keys) = (random.u8(1..9), key..key + random.u64(1..30));
                put(&running, keys.clone(), byte);
                running.writer.step().expect("it works");
                key = keys.end;
                expected.extend(keys.map(|key| (key, byte)));
            }
            drop(running);
            disk = disk.restart();
        }
        let found = open(&disk, &mut random).contents(KEYS_MAX, std::iter::empty());
        let found: BTreeMap<u64, u8> =
            found.into_iter().map(|((_, key), (_, value, _))| (key, value[0])).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn zeros_in_place_of_both_digests_are_no_new_log_if_frames_lie_behind_them() {
    let config = Config { cores: CORES, ..SMALL };
    let frame_bytes = LogLayout::frame_bytes_of(config.segment_bytes);
    let digests = 2 * LogLayout::of(frame_bytes, 1_000).digest_frames;
    let mut disk = SimulatedDisk::new(1, frame_bytes, 1_000);
    let mut random = Rng::with_seed(1);
    let mut running = Running::open(&config, &disk, 1_000, 0, &mut random).expect("it is empty").running;
    let bytes = 0_u64.to_be_bytes();
    let put = running.cores[0].pin().put(
        &running.tables[0],
        store::hash(&bytes),
        &bytes,
        &[1; 100],
        Condition::Always,
    );
    put.expect("there is room");
    running.writer.step().expect("it works");
    drop(running);
    let zeros = Buffer::new(frame_bytes);
    for frame in 0..digests {
        disk.write(&[disk::Write::of(FrameId(frame), 0, &zeros)]).expect("it works");
    }
    let refused = Running::open(&config, &disk, 1_000, 0, &mut random).err().expect("it has a frame");
    assert!(refused.to_string().contains("both copies of the log's digest are damaged"), "{refused}");
}
