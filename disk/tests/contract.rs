//! What every implementation does: files by io_uring, files by system calls, files through the page cache, and the
//! simulated disk. A file by io_uring is left out where the kernel has none, and says so.

use std::path::{Path, PathBuf};

use disk::{
    BLOCK_BYTES, Buffer, Disk, DiskError, FileDisk, FrameId, Options, Read, SimulatedDisk, Way, Write,
};
use fastrand::Rng;

const FRAME_BYTES: usize = 16 * BLOCK_BYTES;
const FRAMES_MAX: u32 = 4;

fn options(way: Option<Way>) -> Options {
    let bytes_max = (BLOCK_BYTES + FRAMES_MAX as usize * FRAME_BYTES) as u64;
    Options { frame_bytes: FRAME_BYTES, bytes_max, identity: [7; 16], reserved_frames: 0, way }
}

/// A disk, with the folder that it lies in.
struct Made {
    name: &'static str,
    disk: Box<dyn Disk>,
    _folder: Option<tempfile::TempDir>,
}

fn file(name: &'static str, folder: &Path, way: Way) -> Option<Made> {
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    match FileDisk::open(&folder.path().join("log"), &options(Some(way))) {
        Ok(disk) => {
            println!("{name}: {disk}");
            assert_eq!(disk.way(), way);
            Some(Made { name, disk: Box::new(disk), _folder: Some(folder) })
        }
        Err(error) if way == Way::IoUring => {
            println!("{name}: left out: {error}");
            None
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

fn every_disk() -> Vec<Made> {
    let (folder, memory) = (std::env::temp_dir(), PathBuf::from("/dev/shm"));
    let simulated = Made {
        name: "simulated",
        disk: Box::new(SimulatedDisk::new(1, FRAME_BYTES, FRAMES_MAX)),
        _folder: None,
    };
    let files = [
        file("io_uring", &folder, Way::IoUring),
        file("system calls", &folder, Way::SystemCalls),
        file("in memory", if memory.is_dir() { &memory } else { &folder }, Way::SystemCalls),
    ];
    files.into_iter().flatten().chain([simulated]).collect()
}

fn filled(bytes: usize, with: u8) -> Buffer {
    let mut buffer = Buffer::new(bytes);
    buffer.fill(with);
    buffer
}

fn content(disk: &mut dyn Disk, frame: FrameId) -> Vec<u8> {
    let mut buffer = Buffer::new(FRAME_BYTES);
    disk.read(&mut [Read::of(frame, 0, &mut buffer)]).expect("readable");
    buffer.to_vec()
}

#[test]
fn a_new_frame_is_zeros_and_the_limit_is_kept() {
    for Made { name, mut disk, .. } in every_disk() {
        for number in 0..FRAMES_MAX {
            assert_eq!(disk.grow().expect("below the limit"), FrameId(number), "{name}");
            assert!(content(&mut *disk, FrameId(number)).iter().all(|byte| *byte == 0), "{name}");
        }
        assert!(matches!(disk.grow(), Err(DiskError::Full)), "{name}");
        assert_eq!((disk.frames(), disk.frame_bytes()), (FRAMES_MAX, FRAME_BYTES), "{name}");
        let block = filled(BLOCK_BYTES, 1);
        disk.write(&[Write::of(FrameId(0), 0, &block)]).expect("a full disk is written all the same");
    }
}

#[test]
fn every_handle_reads_what_was_written_one_by_one_and_many_at_once() {
    for Made { name, mut disk, .. } in every_disk() {
        let mut random = Rng::with_seed(3);
        let mut model = vec![vec![0; FRAME_BYTES]; FRAMES_MAX as usize];
        (0..FRAMES_MAX).for_each(|_| assert!(disk.grow().is_ok(), "below the limit"));
        let mut other = disk.another().expect("another handle");
        for round in 0..60_u8 {
            // Distinct blocks, so that the writes of a call do not overlap; more than a ring takes at once.
            let count = if round.is_multiple_of(3) { 1 } else { random.usize(2..60) };
            let blocks = random.choose_multiple(0..FRAMES_MAX as usize * FRAME_BYTES / BLOCK_BYTES, count);
            let buffers: Vec<Buffer> = blocks.iter().map(|_| filled(BLOCK_BYTES, random.u8(..))).collect();
            let places = || {
                blocks
                    .iter()
                    .map(|block| (block * BLOCK_BYTES / FRAME_BYTES, block * BLOCK_BYTES % FRAME_BYTES))
            };
            let writes = places()
                .zip(&buffers)
                .map(|((frame, offset), buffer)| Write::of(FrameId(frame as u32), offset, buffer));
            let writer = if round % 2 == 0 { &mut disk } else { &mut other };
            writer.write(&writes.collect::<Vec<_>>()).expect("written");
            for ((frame, offset), buffer) in places().zip(&buffers) {
                model[frame][offset..offset + BLOCK_BYTES].copy_from_slice(buffer);
            }
        }
        let mut read: Vec<Buffer> = model.iter().map(|_| Buffer::new(FRAME_BYTES)).collect();
        let mut reads: Vec<Read<'_>> =
            read.iter_mut().zip(0..).map(|(buffer, frame)| Read::of(FrameId(frame), 0, buffer)).collect();
        other.read(&mut reads).expect("readable");
        assert!(read.iter().zip(&model).all(|(read, model)| **read == **model), "{name}");
    }
}

#[test]
fn more_transfers_than_a_ring_has_entries_all_happen() {
    for Made { name, mut disk, .. } in every_disk() {
        (0..FRAMES_MAX).for_each(|_| assert!(disk.grow().is_ok(), "below the limit"));
        let blocks = FRAME_BYTES / BLOCK_BYTES;
        let buffers: Vec<Buffer> =
            (0..blocks * FRAMES_MAX as usize).map(|number| filled(BLOCK_BYTES, number as u8)).collect();
        let place = |number: usize| (FrameId((number / blocks) as u32), number % blocks * BLOCK_BYTES);
        let twice = [0, 1].map(|_| {
            let writes = buffers.iter().enumerate().map(|(number, buffer)| {
                let (frame, offset) = place(number);
                Write::of(frame, offset, buffer)
            });
            disk.write(&writes.collect::<Vec<_>>()).expect("written");
            let mut read: Vec<Buffer> = buffers.iter().map(|_| Buffer::new(BLOCK_BYTES)).collect();
            let reads = read.iter_mut().enumerate().map(|(number, buffer)| {
                let (frame, offset) = place(number);
                Read::of(frame, offset, buffer)
            });
            disk.read(&mut reads.collect::<Vec<_>>()).expect("readable");
            read.iter().zip(&buffers).all(|(read, written)| **read == **written)
        });
        assert_eq!(twice, [true, true], "{name}");
    }
}

#[test]
fn transfers_beyond_a_frame_or_the_last_one_are_refused_as_mistakes() {
    for Made { name, mut disk, .. } in every_disk() {
        disk.grow().expect("below the limit");
        let block = filled(2 * BLOCK_BYTES, 1);
        for (frame, offset) in [(1, 0), (0, FRAME_BYTES - BLOCK_BYTES), (u32::MAX, 0)] {
            let beyond =
                std::panic::AssertUnwindSafe(|| disk.write(&[Write::of(FrameId(frame), offset, &block)]));
            assert!(std::panic::catch_unwind(beyond).is_err(), "{name}: {frame}, {offset}");
        }
    }
}

#[test]
#[should_panic(expected = "whole blocks")]
fn a_part_of_a_block_is_a_mistake() {
    let _ = Write::of(FrameId(0), 0, &filled(BLOCK_BYTES, 1)[..100]);
}
