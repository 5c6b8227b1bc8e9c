//! How long a stable write takes, and how fast frames are read: `cargo bench -p splinter-disk -- FOLDER`, in a folder of the
//! disk in question (the current one without).
//!
//! Each way writes and reads in turn, over frames that were written before; medians and 99th percentiles of each row in
//! microseconds, then megabytes a second. The last rows have a neighbour that computes on every core: a thread that sleeps
//! in the kernel waits for its turn then.

use std::env;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use disk::{BLOCK_BYTES, Buffer, Disk, FileDisk, FrameId, Options, Read, Way, Write};

const FRAME_BYTES: usize = 8 << 20;
const FRAMES: u32 = 16;
const ROUNDS: usize = 1_000;

/// A row: so many transfers at once, of so many bytes each.
#[derive(Clone, Copy)]
struct Row {
    count: usize,
    bytes: usize,
    rounds: usize,
}

/// The place of a transfer: each of a call in another frame, one after another in it.
fn place(row: Row, round: usize, index: usize) -> (FrameId, usize) {
    let in_frame = FRAME_BYTES / row.bytes;
    let frame = (index + round / in_frame * row.count) % FRAMES as usize;
    (FrameId(frame as u32), round % in_frame * row.bytes)
}

fn print(what: &str, way: Way, row: Row, mut micros: Vec<f64>) {
    micros.sort_by(f64::total_cmp);
    let [median, p99] = [micros.len() / 2, micros.len() * 99 / 100].map(|index| micros[index]);
    let rate = (row.count * row.bytes) as f64 / median;
    let (count, kib) = (row.count, row.bytes >> 10);
    println!(
        "{what:18} {way:12} {count:3} x {kib:5} KiB  {median:8.0} {p99:8.0} us  {rate:6.0} MB/s",
        way = format!("{way:?}")
    );
}

fn measure(row: Row, mut work: impl FnMut(usize)) -> Vec<f64> {
    (0..row.rounds)
        .map(|round| {
            let begun = Instant::now();
            work(round);
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect()
}

fn writes(what: &str, disk: &mut FileDisk, row: Row) {
    let buffer = Buffer::new(row.bytes);
    let micros = measure(row, |round| {
        let writes = (0..row.count).map(|index| {
            let (frame, offset) = place(row, round, index);
            Write::of(frame, offset, &buffer)
        });
        disk.write(&writes.collect::<Vec<_>>()).expect("written");
    });
    print(what, disk.way(), row, micros);
}

fn reads(what: &str, disk: &mut FileDisk, row: Row) {
    let mut buffers: Vec<Buffer> = (0..row.count).map(|_| Buffer::new(row.bytes)).collect();
    let micros = measure(row, |round| {
        let reads = buffers.iter_mut().enumerate().map(|(index, buffer)| {
            let (frame, offset) = place(row, round, index);
            Read::of(frame, offset, buffer)
        });
        disk.read(&mut reads.collect::<Vec<_>>()).expect("readable");
    });
    print(what, disk.way(), row, micros);
}

fn main() {
    let folder =
        env::args().skip(1).find(|word| word != "--bench").map_or_else(|| PathBuf::from("."), PathBuf::from);
    let folder = tempfile::tempdir_in(folder).expect("a folder");
    let bytes_max = u64::MAX;
    let mut disks: Vec<FileDisk> = Vec::new();
    for way in [Way::SystemCalls, Way::IoUring] {
        let options = Options {
            frame_bytes: FRAME_BYTES,
            bytes_max,
            identity: [0; 16],
            reserved_frames: 0,
            way: Some(way),
        };
        match FileDisk::open(&folder.path().join(format!("{way:?}")), &options) {
            Ok(mut disk) => {
                let begun = Instant::now();
                (0..FRAMES).for_each(|_| assert!(disk.grow().is_ok(), "space"));
                println!(
                    "{disk}: {:.1} ms for a new frame",
                    begun.elapsed().as_secs_f64() * 1e3 / f64::from(FRAMES)
                );
                disks.push(disk);
            }
            Err(error) => println!("{error}"),
        }
    }
    let row = |count, bytes| Row { count, bytes, rounds: ROUNDS };
    for row in [1, 2, 4, 8].map(|count| [BLOCK_BYTES, 64 << 10].map(|bytes| row(count, bytes))).as_flattened()
    {
        disks.iter_mut().for_each(|disk| writes("write", disk, *row));
    }
    disks.iter_mut().for_each(|disk| writes("write", disk, Row { rounds: 100, ..row(1, 1 << 20) }));
    for count in [1, 2, 4] {
        disks.iter_mut().for_each(|disk| reads("read", disk, Row { rounds: 100, ..row(count, 1 << 20) }));
    }
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    black_box(0);
                }
            });
        }
        disks
            .iter_mut()
            .for_each(|disk| writes("write, neighbours", disk, Row { rounds: 200, ..row(1, 64 << 10) }));
        ends.store(true, Ordering::Relaxed);
    });
}
