//! A disk in memory that fails as disks do, from a seed.
//!
//! Each call of a handle has a number. A [`Fault`] is planned for a number: when that call comes, the fault happens at
//! it, and what remains of the content is drawn from the seed. After a crash every call fails; [`SimulatedDisk::restart`]
//! returns the disk as the next process finds it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::transfer::assert_within;
use crate::{BLOCK_BYTES, Disk, DiskError, FrameId, Read, SECTOR_BYTES, Write};

/// What happens at a call that writes or grows the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The power fails during the call: each of its sectors has its old or its new content.
    Crash,
    /// The power fails after the call's blocks are stable, before anybody is told.
    CrashUntold,
    /// The device reports an error; sectors as after a crash.
    Error,
    /// The file system has no space: a growing disk stays as it is. Does nothing to a write.
    NoSpace,
}

struct State {
    frame_bytes: usize,
    frames_max: u32,
    frames: Vec<Box<[u8]>>,
    random: Rng,
    calls: u64,
    /// What is planned, by the number of the call.
    planned: Vec<(u64, Fault)>,
    has_crashed: bool,
    is_stopped: bool,
    blocks_written: u64,
    write_takes: Duration,
}

/// A handle of a simulated disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

impl SimulatedDisk {
    /// Creates a disk without frames.
    ///
    /// # Panics
    /// If a frame is not of whole blocks.
    #[must_use]
    pub fn new(seed: u64, frame_bytes: usize, frames_max: u32) -> Self {
        assert!(frame_bytes > 0 && frame_bytes.is_multiple_of(BLOCK_BYTES), "{frame_bytes}: whole blocks");
        let state = State {
            frame_bytes,
            frames_max,
            frames: Vec::new(),
            random: Rng::with_seed(seed),
            calls: 0,
            planned: Vec::new(),
            has_crashed: false,
            is_stopped: false,
            blocks_written: 0,
            write_takes: Duration::ZERO,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a fault for the call that comes after `calls` others from now on.
    pub fn plan(&self, calls: u64, fault: Fault) {
        let mut state = self.state();
        let at = state.calls + calls;
        state.planned.push((at, fault));
    }

    /// Makes each write take this long at least. Not after [`SimulatedDisk::restart`].
    pub fn slow_down(&self, write_takes: Duration) {
        self.state().write_takes = write_takes;
    }

    /// Returns the number of calls that wrote or grew the disk, failed ones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Returns the blocks written.
    #[must_use]
    pub fn blocks_written(&self) -> u64 {
        self.state().blocks_written
    }

    /// Returns whether the power has failed.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.state().has_crashed
    }

    /// Fails the power between two calls.
    pub fn crash(&self) {
        self.state().has_crashed = true;
    }

    /// Returns the disk as the next process finds it. Nothing is planned for it.
    #[must_use]
    pub fn restart(&self) -> Self {
        let mut before = self.state();
        before.has_crashed = true;
        let random = Rng::with_seed(before.random.u64(..));
        let state = State {
            frames: before.frames.clone(),
            random,
            planned: Vec::new(),
            has_crashed: false,
            is_stopped: false,
            write_takes: Duration::ZERO,
            ..*before
        };
        drop(before);
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Inverts a bit of a frame: rot.
    ///
    /// # Panics
    /// If there is no such frame or bit.
    pub fn flip(&self, frame: FrameId, bit: usize) {
        self.state().frames[frame.0 as usize][bit / 8] ^= 1 << (bit % 8);
    }
}

impl State {
    /// Begins a call; returns the fault that is planned for it.
    fn begin(&mut self) -> Result<Option<Fault>, DiskError> {
        if self.has_crashed {
            return Err(failed("call after the power failed"));
        }
        if self.is_stopped {
            return Err(DiskError::Stopped);
        }
        let number = self.calls;
        self.calls += 1;
        let planned = self.planned.iter().position(|(at, _)| *at == number);
        Ok(planned.map(|index| self.planned.swap_remove(index).1))
    }

    /// Ends a call at which `fault` happened.
    fn end(&mut self, fault: Option<Fault>) -> Result<(), DiskError> {
        match fault {
            None | Some(Fault::NoSpace) => Ok(()),
            Some(Fault::Crash | Fault::CrashUntold) => {
                self.has_crashed = true;
                Err(failed("call during which the power failed"))
            }
            Some(Fault::Error) => {
                self.is_stopped = true;
                Err(failed("write"))
            }
        }
    }

    fn write(&mut self, write: &Write<'_>, is_torn: bool) {
        let Write { frame, offset, bytes, .. } = *write;
        assert_within(frame, offset, bytes, self.frames.len() as u32, self.frame_bytes);
        let target = &mut self.frames[frame.0 as usize][offset..offset + bytes];
        for (index, sector) in target.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            if is_torn && self.random.bool() {
                continue;
            }
            let from = write.memory.wrapping_add(index * SECTOR_BYTES);
            for (at, byte) in sector.iter_mut().enumerate() {
                // SAFETY: the write's memory stays readable as long as the write exists; others may write it, so each
                // byte is read as a whole.
                *byte =
                    unsafe { AtomicU8::from_ptr(from.wrapping_add(at).cast_mut()) }.load(Ordering::Relaxed);
            }
        }
        self.blocks_written += (bytes / BLOCK_BYTES) as u64;
    }
}

impl Disk for SimulatedDisk {
    fn frame_bytes(&self) -> usize {
        self.state().frame_bytes
    }

    fn frames(&self) -> u32 {
        self.state().frames.len() as u32
    }

    fn grow(&mut self) -> Result<FrameId, DiskError> {
        let mut state = self.state();
        let fault = state.begin()?;
        let count = state.frames.len() as u32;
        if fault == Some(Fault::NoSpace) || count >= state.frames_max {
            return Err(DiskError::Full);
        }
        // A file that was growing when the power failed may have its new length or its old one.
        if !matches!(fault, Some(Fault::Crash | Fault::Error)) || state.random.bool() {
            let frame = vec![0; state.frame_bytes].into_boxed_slice();
            state.frames.push(frame);
        }
        state.end(fault).map(|()| FrameId(count))
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DiskError> {
        let takes = self.state().write_takes;
        if !takes.is_zero() {
            thread::sleep(takes);
        }
        let mut state = self.state();
        let fault = state.begin()?;
        let is_torn = matches!(fault, Some(Fault::Crash | Fault::Error));
        writes.iter().for_each(|write| state.write(write, is_torn));
        state.end(fault)
    }

    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DiskError> {
        let state = self.state();
        if state.has_crashed {
            return Err(failed("read after the power failed"));
        }
        for Read { frame, offset, memory } in reads {
            assert_within(*frame, *offset, memory.len(), state.frames.len() as u32, state.frame_bytes);
            memory.copy_from_slice(&state.frames[frame.0 as usize][*offset..*offset + memory.len()]);
        }
        Ok(())
    }

    fn another(&self) -> Result<Box<dyn Disk>, DiskError> {
        Ok(Box::new(self.clone()))
    }
}

fn failed(operation: &'static str) -> DiskError {
    let error = io::Error::from_raw_os_error(libc::EIO);
    DiskError::Failed { operation, path: PathBuf::from("simulated"), error }
}
