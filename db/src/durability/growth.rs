//! Adds frames to the log's file ahead of their use, on a thread of its own: writing the zeros of one takes milliseconds.
//!
//! ```text
//!   log thread ── wanted ──► grower ── frame of zeros ──► log thread
//! ```
//! What is kept for heads and the cleaner is added as well, so that a file system that is full all at once leaves enough
//! to clean the log.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

use disk::{Disk, DiskError, FrameId};

use crate::limits::GROWTH_RETRY_MS;
use crate::sync::lock;

/// State of both threads.
#[derive(Debug, Default)]
struct GrowthState {
    /// Added frames that the log's thread should find.
    wanted: AtomicU32,
    /// Added frames that it has not taken.
    ready: AtomicU32,
    /// Whether the file system had no space at the last attempt.
    is_full: AtomicBool,
    /// Frames for which the file system has room.
    room: AtomicU32,
    /// Why the grower has ended.
    failure: Mutex<Option<DiskError>>,
    is_stopping: AtomicBool,
}

/// The log thread's side.
#[derive(Debug)]
pub(super) struct Growth {
    shared: Arc<GrowthState>,
    frames: Receiver<FrameId>,
    grower: Thread,
}

impl Growth {
    /// Starts the grower of a disk.
    ///
    /// # Errors
    /// If the kernel has no resources for it.
    pub(super) fn start(disk: &dyn Disk) -> Result<Growth, DiskError> {
        let mut disk = disk.another()?;
        let (shared, (sender, frames)) = (Arc::new(GrowthState::default()), channel());
        shared.room.store(disk.room_frames(), Ordering::Relaxed);
        let own = Arc::clone(&shared);
        let grower = thread::Builder::new().name("log-growth".to_owned());
        let grower = grower.spawn(move || grow_all(&mut *disk, &own, &sender)).map_err(|error| {
            DiskError::Failed { operation: "start of a thread", path: "log-growth".into(), error }
        })?;
        Ok(Growth { shared, frames, grower: grower.thread().clone() })
    }

    /// Takes an added frame.
    pub(super) fn take(&self) -> Option<FrameId> {
        let frame = self.frames.try_recv().ok()?;
        self.shared.ready.fetch_sub(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Returns the number of added frames.
    pub(super) fn ready(&self) -> u32 {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// Returns whether the file system had no space at the last attempt.
    pub(super) fn is_full(&self) -> bool {
        self.shared.is_full.load(Ordering::Relaxed)
    }

    /// Notes that the file system had no space for somebody else.
    pub(super) fn note_full(&self) {
        self.shared.is_full.store(true, Ordering::Relaxed);
    }

    /// Returns for how many more frames the file system has room, as of [`GROWTH_RETRY_MS`] ago at most.
    pub(super) fn room(&self) -> u32 {
        if self.is_full() { 0 } else { self.shared.room.load(Ordering::Relaxed) }
    }

    /// Returns the failure that ended growth, once.
    pub(super) fn failure(&self) -> Option<DiskError> {
        lock(&self.shared.failure).take()
    }

    /// Sets how many added frames should be ready.
    pub(super) fn want(&self, frames: u32) {
        self.shared.wanted.store(frames, Ordering::Relaxed);
        if self.ready() < frames && !self.is_full() {
            self.grower.unpark();
        }
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        self.grower.unpark();
    }
}

fn grow_all(disk: &mut dyn Disk, shared: &GrowthState, frames: &Sender<FrameId>) {
    while !shared.is_stopping.load(Ordering::Relaxed) {
        shared.room.store(disk.room_frames(), Ordering::Relaxed);
        if shared.ready.load(Ordering::Relaxed) >= shared.wanted.load(Ordering::Relaxed) {
            thread::park_timeout(Duration::from_millis(GROWTH_RETRY_MS));
            continue;
        }
        match disk.grow() {
            Ok(frame) => {
                shared.is_full.store(false, Ordering::Relaxed);
                shared.ready.fetch_add(1, Ordering::Relaxed);
                if frames.send(frame).is_err() {
                    return;
                }
            }
            Err(DiskError::Full) => {
                shared.is_full.store(true, Ordering::Relaxed);
                thread::park_timeout(Duration::from_millis(GROWTH_RETRY_MS));
            }
            Err(error) => {
                *lock(&shared.failure) = Some(error);
                return;
            }
        }
    }
}
