//! The stop of a log: the server learns whether all that was answered got to the disk.

use std::time::Duration;

use disk::SimulatedDisk;
use fastrand::Rng;
use store::{Condition, Config};

use super::super::LogLayout;
use super::super::log_thread::LogThread;
use super::SMALL;
use super::running::{CORES, Running};

const CONFIG: Config = Config { cores: CORES, ..SMALL };
/// The frames that the log may take.
const FRAMES_MAX: u32 = 1_000;

/// Stops a log after writes to a disk whose file system has room for this many frames of segments; returns whether it
/// is complete, and whether it has failed.
fn stop(room: u32) -> (bool, bool) {
    let frame_bytes = LogLayout::frame_bytes_of(CONFIG.segment_bytes);
    let digests = 2 * LogLayout::of(frame_bytes, FRAMES_MAX).digest_frames;
    let disk = SimulatedDisk::new(1, frame_bytes, digests + room);
    let started =
        Running::open(&CONFIG, &disk, FRAMES_MAX, 0, &mut Rng::with_seed(1)).expect("an empty disk");
    let Running { tables, cores, writer, .. } = started.running;
    for key in 0..100_u32 {
        let key = key.to_le_bytes();
        let put = cores[0].pin().put(&tables[1], store::hash(&key), &key, &[7; 1_000], Condition::Always);
        put.expect("the memory has room");
    }
    let log = LogThread::start(writer, (Duration::from_secs(10), Vec::new()), || {}).expect("a thread");
    let waker = log.handle(true).waker;
    assert!(!waker.is_complete(), "it was not stopped");
    log.stop().join().expect("it ends");
    (waker.is_complete(), waker.has_failed())
}

#[test]
fn a_log_that_is_stopped_on_a_full_disk_is_not_complete() {
    assert_eq!(stop(FRAMES_MAX / 2), (true, false));
    assert_eq!(stop(2), (false, false), "the disk has not failed, it has no room");
}
