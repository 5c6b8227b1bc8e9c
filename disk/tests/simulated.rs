//! What a simulated disk leaves behind, for many seeds.

use disk::{BLOCK_BYTES, Buffer, Disk, DiskError, Fault, FrameId, Read, SECTOR_BYTES, SimulatedDisk, Write};
use fastrand::Rng;

const FRAME_BYTES: usize = 4 * BLOCK_BYTES;

fn block(with: u8) -> Buffer {
    let mut buffer = Buffer::new(BLOCK_BYTES);
    buffer.fill(with);
    buffer
}

fn sectors(disk: &mut SimulatedDisk) -> Vec<u8> {
    let mut all = Vec::new();
    for frame in 0..disk.frames() {
        let mut buffer = Buffer::new(FRAME_BYTES);
        disk.read(&mut [Read::of(FrameId(frame), 0, &mut buffer)]).expect("readable");
        for sector in buffer.chunks_exact(SECTOR_BYTES) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is whole");
            all.push(sector[0]);
        }
    }
    all
}

/// Writes until a fault comes; returns each sector's content before and after the last call.
fn run_until_fault(disk: &mut SimulatedDisk, random: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let mut stable = vec![0; 2 * FRAME_BYTES / SECTOR_BYTES];
    for round in 1..=255 {
        let count = random.usize(1..4);
        let blocks = random.choose_multiple(0..2 * FRAME_BYTES / BLOCK_BYTES, count);
        let buffer = block(round);
        let writes = blocks.iter().map(|number| {
            let at = number * BLOCK_BYTES;
            Write::of(FrameId((at / FRAME_BYTES) as u32), at % FRAME_BYTES, &buffer)
        });
        let written = disk.write(&writes.collect::<Vec<_>>());
        let mut after = stable.clone();
        for number in &blocks {
            let each = BLOCK_BYTES / SECTOR_BYTES;
            after[number * each..(number + 1) * each].fill(round);
        }
        if written.is_err() {
            return (stable, after);
        }
        stable = after;
    }
    panic!("the fault was planned for one of these calls");
}

#[test]
fn what_was_told_stable_stays_and_the_rest_is_torn_by_sectors() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..300 {
        let mut random = Rng::with_seed(seed);
        let mut disk = SimulatedDisk::new(seed, FRAME_BYTES, 2);
        (0..2).for_each(|_| assert!(disk.grow().is_ok(), "below the limit"));
        let fault = [Fault::Crash, Fault::CrashUntold, Fault::Error][seed as usize % 3];
        disk.plan(random.u64(..200), fault);
        let (before, after) = run_until_fault(&mut disk, &mut random);
        let refused = disk.write(&[Write::of(FrameId(0), 0, &block(1))]);
        assert_eq!(
            matches!(refused, Err(DiskError::Stopped)),
            fault == Fault::Error,
            "seed {seed}: {refused:?}"
        );
        assert_eq!(disk.has_crashed(), fault != Fault::Error);
        let found = sectors(&mut disk.restart());
        for ((found, before), after) in found.iter().zip(&before).zip(&after) {
            assert!(found == before || found == after, "seed {seed}");
            if fault == Fault::CrashUntold {
                assert_eq!(found, after, "seed {seed}");
            } else if before != after {
                old += usize::from(found == before);
                new += usize::from(found == after);
            }
        }
    }
    assert!(old > 1_000 && new > 1_000, "{old} sectors stayed old, {new} became new");
}

#[test]
fn the_same_seed_leaves_the_same() {
    let [first, second, other] = [5, 5, 6].map(|seed| {
        let mut disk = SimulatedDisk::new(seed, FRAME_BYTES, 2);
        (0..2).for_each(|_| assert!(disk.grow().is_ok(), "below the limit"));
        disk.plan(40, Fault::Crash);
        run_until_fault(&mut disk, &mut Rng::with_seed(1));
        sectors(&mut disk.restart())
    });
    assert_eq!(first, second);
    assert_ne!(first, other);
}

#[test]
fn without_space_a_disk_does_not_grow_and_later_does() {
    let mut disk = SimulatedDisk::new(1, FRAME_BYTES, 3);
    disk.plan(1, Fault::NoSpace);
    assert_eq!(disk.grow().expect("space"), FrameId(0));
    assert!(matches!(disk.grow(), Err(DiskError::Full)));
    assert_eq!(disk.grow().expect("space again"), FrameId(1));
    assert_eq!((disk.frames(), disk.calls()), (2, 3));
}

#[test]
fn rot_inverts_one_bit() {
    let mut disk = SimulatedDisk::new(1, FRAME_BYTES, 1);
    disk.grow().expect("space");
    disk.flip(FrameId(0), 8 * 100 + 3);
    let mut buffer = Buffer::new(FRAME_BYTES);
    disk.read(&mut [Read::of(FrameId(0), 0, &mut buffer)]).expect("readable");
    assert_eq!(buffer.iter().enumerate().filter(|(_, byte)| **byte != 0).collect::<Vec<_>>(), [(100, &8)]);
}
