//! The mapped memory of one channel: numbers at fixed places and frames that are copied in and out.
//!
//! The other process may write anything at any time. So nothing here returns a reference to its bytes: numbers are
//! atomics, and a reader copies a frame once, in one piece. Its size cannot change ([`super::descriptor`] has sealed
//! or checked it), so no access is beyond its end; pages that a peer gives back become zero, not absent.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::layout::{
    CLOSED_AT, Direction, MAGIC, MAGIC_AT, REGION_BYTES, SLOT_FRAME_BYTES, SLOTS, VERSION, VERSION_AT,
    WORD_BYTES,
};
use super::ring::RingMemory;

/// The mapped memory of one channel.
#[derive(Debug)]
pub(super) struct Region {
    first: NonNull<u8>,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access is by atomics, or by copies of bytes that
// any thread of either process may write meanwhile.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the memory behind `memory`, which has [`REGION_BYTES`] and cannot shrink.
    pub(super) fn map(memory: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping of an open descriptor, at an address chosen by the kernel.
        let first = unsafe {
            libc::mmap(
                ptr::null_mut(),
                REGION_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                memory.as_raw_fd(),
                0,
            )
        };
        if first == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(first.cast())
            .map(|first| Self { first })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Writes the magic number and version that the other end checks.
    pub(super) fn sign(&self) {
        self.number(VERSION_AT).store(VERSION, Ordering::Relaxed);
        self.number(MAGIC_AT).store(MAGIC, Ordering::Release);
    }

    /// Returns whether its magic number and version match this end's.
    pub(super) fn is_signed(&self) -> bool {
        self.number(MAGIC_AT).load(Ordering::Acquire) == MAGIC
            && self.number(VERSION_AT).load(Ordering::Relaxed) == VERSION
    }

    /// Tells the client that the server has stopped polling.
    pub(super) fn close(&self) {
        self.number(CLOSED_AT).store(1, Ordering::Release);
    }

    /// Returns whether the server has closed the channel.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.number(CLOSED_AT).load(Ordering::Relaxed) != 0
    }

    /// Returns one of the rings.
    #[inline]
    pub(super) fn ring(&self, way: Direction) -> Ring<'_> {
        Ring { region: self, way }
    }

    #[inline]
    fn number(&self, at: usize) -> &AtomicU32 {
        assert!(at < REGION_BYTES && at.is_multiple_of(4), "a number at {at}");
        // SAFETY: within the mapping, aligned, alive as long as `self`; every bit pattern is a number. Other writers
        // write atomically, or are faulty: then the result is merely another number.
        unsafe { AtomicU32::from_ptr(self.first.as_ptr().add(at).cast()) }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < REGION_BYTES && at.is_multiple_of(8), "a word at {at}");
        // SAFETY: as in `number`; the mapping is of whole pages, so an aligned word that begins in it ends in it.
        unsafe { AtomicU64::from_ptr(self.first.as_ptr().add(at).cast()) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and all borrows of it have ended.
        let _ = unsafe { libc::munmap(self.first.as_ptr().cast(), REGION_BYTES) };
    }
}

/// One of the two rings of a region.
#[derive(Clone, Copy)]
pub(super) struct Ring<'r> {
    region: &'r Region,
    way: Direction,
}

impl RingMemory for Ring<'_> {
    #[inline]
    fn slots(&self) -> u32 {
        SLOTS
    }

    #[inline]
    fn word(&self, position: u32) -> u64 {
        self.region.word(self.way.slot_at(position)).load(Ordering::Acquire)
    }

    #[inline]
    fn publish(&self, position: u32, word: u64) {
        self.region.word(self.way.slot_at(position)).store(word, Ordering::Release);
    }

    #[inline]
    fn write(&self, position: u32, frame: &[u8]) {
        assert!(frame.len() <= SLOT_FRAME_BYTES, "a frame of {} bytes in a slot", frame.len());
        let at = self.way.slot_at(position) + WORD_BYTES;
        // SAFETY: the slot lies within the mapping and the frame within the slot; nothing in this process has a
        // reference to it. The other process may read it meanwhile, at its own risk.
        unsafe { ptr::copy_nonoverlapping(frame.as_ptr(), self.region.first.as_ptr().add(at), frame.len()) };
    }

    #[inline]
    fn read(&self, position: u32, to: &mut [u8]) {
        assert!(to.len() <= SLOT_FRAME_BYTES, "a frame of {} bytes in a slot", to.len());
        let at = self.way.slot_at(position) + WORD_BYTES;
        // SAFETY: as in `write`. The other process may write meanwhile: then the copy has arbitrary bytes, and its
        // decoder accepts any bytes as a frame.
        unsafe { ptr::copy_nonoverlapping(self.region.first.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
    }

    #[inline]
    fn taken(&self) -> u32 {
        self.region.number(self.way.taken_at()).load(Ordering::Acquire)
    }

    #[inline]
    fn set_taken(&self, position: u32) {
        self.region.number(self.way.taken_at()).store(position, Ordering::Release);
    }

    #[inline]
    fn is_asleep(&self) -> bool {
        self.region.number(self.way.asleep_at()).load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn set_asleep(&self, is_asleep: bool) {
        self.region.number(self.way.asleep_at()).store(u32::from(is_asleep), Ordering::Relaxed);
    }

    #[inline]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}
