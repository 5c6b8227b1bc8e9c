//! A disk in one file of a file system, opened by one process.
//!
//! ```text
//!   one write          pwrite through a descriptor with O_DIRECT and O_DSYNC: one system call, stable
//!   several writes     all at once by io_uring, or by one pwrite after another, then one fdatasync
//!   several reads      all at once by io_uring, or by one pread after another
//! ```
//! A single synced write is the common case of a log, and io_uring does not make it faster.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::superblock::{Identity, Superblock};
use crate::transfer::assert_within;
use crate::uring::Ring;
use crate::{BLOCK_BYTES, Disk, DiskError, FrameId, Read, Write};

/// Most zeros that a growing file is written with at once: a frame of the usual size.
const ZEROS_BYTES: usize = 2 << 20;

/// Longest wait for the lock, and time between two looks at it.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// How blocks move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Several at once, by io_uring.
    IoUring,
    /// One after another, by `pwrite` and `pread`.
    SystemCalls,
}

/// What a disk is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a frame; whole blocks. A file keeps those that it was created with.
    pub frame_bytes: usize,
    /// Most bytes of the file.
    pub bytes_max: u64,
    /// Written into a file that is created.
    pub identity: Identity,
    /// Frames at the beginning that its maker uses in a way of its own. A file keeps those that it was created with.
    pub reserved_frames: u32,
    /// The way to use; `None` for io_uring where the kernel allows it.
    pub way: Option<Way>,
}

/// What all handles of a disk share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// For single writes, which it makes stable.
    synced: File,
    /// For everything else. It holds the lock.
    plain: File,
    frame_bytes: usize,
    frames_max: u32,
    frames: AtomicU32,
    /// For growth, which holds it. The kernel tells each open file once of what it could not write: so growth takes no error
    /// from those who write.
    growing: Mutex<File>,
    stopped: AtomicBool,
    identity: Identity,
    reserved_frames: u32,
    /// Why io_uring is not used.
    without_ring: Option<String>,
    /// Why blocks pass through the page cache.
    without_direct: Option<String>,
}

/// A handle of a disk in a file.
pub struct FileDisk {
    shared: Arc<Shared>,
    ring: Option<Ring>,
    /// What this handle adds frames with, once it has added one: fresh memory for each costs more than the write.
    zeros: Option<Buffer>,
}

impl FileDisk {
    /// Opens the file at `path`, and creates it if there is none. The directory exists. What is in the file is stable then,
    /// also if whoever wrote it ended before it was.
    ///
    /// # Errors
    /// [`DiskError::InUse`] after 3 s, [`DiskError::Unsuitable`], or the kernel's reason.
    ///
    /// # Panics
    /// If a frame of the options is not of whole blocks.
    pub fn open(path: &Path, options: &Options) -> Result<Self, DiskError> {
        let frame_bytes = options.frame_bytes;
        assert!(frame_bytes > 0 && frame_bytes.is_multiple_of(BLOCK_BYTES), "{frame_bytes}: whole blocks");
        let (plain, without_direct) = open(path, 0).map_err(DiskError::failed("open", path))?;
        lock(path, &plain)?;
        settle(path, &plain, without_direct.is_some())?;
        let superblock = superblock_of(path, &plain, options)?;
        if superblock.frame_bytes != frame_bytes as u64 {
            let (found, asked) = (superblock.frame_bytes, frame_bytes);
            let reason =
                format!("its frames have {found} bytes, not {asked}; start with segments of that size");
            return Err(DiskError::Unsuitable { path: path.to_owned(), reason });
        }
        let (synced, _) = open(path, libc::O_DSYNC).map_err(DiskError::failed("open", path))?;
        let (growing, _) = open(path, 0).map_err(DiskError::failed("open", path))?;
        let bytes = plain.metadata().map_err(DiskError::failed("stat", path))?.len();
        let frames = bytes.saturating_sub(BLOCK_BYTES as u64) / frame_bytes as u64;
        let frames_max = options.bytes_max.saturating_sub(BLOCK_BYTES as u64) / frame_bytes as u64;
        let [frames, frames_max] = [frames, frames_max].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let ring = match options.way {
            Some(Way::SystemCalls) => Err("it was not asked for".to_owned()),
            Some(Way::IoUring) | None => Ring::new(),
        };
        if let (Err(reason), Some(Way::IoUring)) = (&ring, options.way) {
            let error = io::Error::other(reason.clone());
            return Err(DiskError::failed("io_uring", path)(error));
        }
        let shared = Shared {
            path: path.to_owned(),
            synced,
            plain,
            frame_bytes,
            frames_max,
            frames: AtomicU32::new(frames),
            growing: Mutex::new(growing),
            stopped: AtomicBool::new(false),
            identity: superblock.identity,
            reserved_frames: superblock.reserved_frames,
            without_ring: ring.as_ref().err().cloned(),
            without_direct,
        };
        Ok(Self { shared: Arc::new(shared), ring: ring.ok(), zeros: None })
    }

    /// Returns the identity that the file was created with.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.shared.identity
    }

    /// Returns the reserved frames that the file was created with; 0 if it does not say.
    #[must_use]
    pub fn reserved_frames(&self) -> u32 {
        self.shared.reserved_frames
    }

    /// Returns how blocks move.
    #[must_use]
    pub fn way(&self) -> Way {
        if self.ring.is_some() { Way::IoUring } else { Way::SystemCalls }
    }

    /// Returns most frames that the disk may have.
    #[must_use]
    pub fn frames_max(&self) -> u32 {
        self.shared.frames_max
    }

    /// Returns the reason why io_uring is not used, if it is not.
    #[must_use]
    pub fn without_ring(&self) -> Option<&str> {
        self.shared.without_ring.as_deref()
    }

    /// Returns the reason why blocks pass through the page cache, if they do.
    #[must_use]
    pub fn without_direct(&self) -> Option<&str> {
        self.shared.without_direct.as_deref()
    }

    fn check_running(&self) -> Result<(), DiskError> {
        if self.shared.stopped.load(Ordering::Acquire) { Err(DiskError::Stopped) } else { Ok(()) }
    }

    /// Notes that a write or a sync failed.
    fn stop(&self, operation: &'static str) -> impl FnOnce(io::Error) -> DiskError {
        self.shared.stopped.store(true, Ordering::Release);
        DiskError::failed(operation, &self.shared.path)
    }

    /// Returns the place of a transfer in the file.
    fn place(&self, frame: FrameId, offset: usize, bytes: usize) -> u64 {
        let frame_bytes = self.shared.frame_bytes;
        assert_within(frame, offset, bytes, self.frames(), frame_bytes);
        self.start_of(frame.0) + offset as u64
    }

    fn start_of(&self, frame: u32) -> u64 {
        BLOCK_BYTES as u64 + u64::from(frame) * self.shared.frame_bytes as u64
    }

    fn write_several(&mut self, writes: &[Write<'_>], places: &[u64]) -> io::Result<()> {
        let plain = &self.shared.plain;
        let Some(ring) = &mut self.ring else {
            return writes.iter().zip(places).try_for_each(|(write, place)| write_at(plain, write, *place));
        };
        let (written, file) = (ring.write(plain, writes, places)?, plain);
        for ((write, place), bytes) in writes.iter().zip(places).zip(written) {
            write_rest(file, write, *place, bytes)?;
        }
        Ok(())
    }

    fn read_all(&mut self, reads: &mut [Read<'_>], places: &[u64]) -> io::Result<()> {
        let plain = &self.shared.plain;
        let read = match &mut self.ring {
            Some(ring) if reads.len() > 1 => ring.read(plain, reads, places)?,
            _ => vec![0; reads.len()],
        };
        for ((read, place), bytes) in reads.iter_mut().zip(places).zip(read) {
            // The kernel may read less than asked; what is left begins at a block, or is read anew.
            let bytes = bytes / BLOCK_BYTES * BLOCK_BYTES;
            if bytes < read.memory.len() {
                plain.read_exact_at(&mut read.memory[bytes..], place + bytes as u64)?;
            }
        }
        Ok(())
    }
}

impl Disk for FileDisk {
    fn frame_bytes(&self) -> usize {
        self.shared.frame_bytes
    }

    fn frames(&self) -> u32 {
        self.shared.frames.load(Ordering::Acquire)
    }

    fn grow(&mut self) -> Result<FrameId, DiskError> {
        self.check_running()?;
        let shared = Arc::clone(&self.shared);
        let file = shared.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = self.frames();
        if frame >= shared.frames_max {
            return Err(DiskError::Full);
        }
        let (start, end) = (self.start_of(frame), self.start_of(frame + 1));
        let zeros = self.zeros.get_or_insert_with(|| Buffer::new(shared.frame_bytes.min(ZEROS_BYTES)));
        match write_zeros(&file, zeros, start, end) {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => {
                // What was written is given back; if that fails, the next attempt writes over it.
                let _ = file.set_len(start);
                return Err(DiskError::Full);
            }
            Err(error) => return Err(self.stop("growth")(error)),
        }
        // A want of space that shows only now may be that of others, too.
        file.sync_all().map_err(|error| self.stop("growth")(error))?;
        shared.frames.store(frame + 1, Ordering::Release);
        Ok(FrameId(frame))
    }

    fn write(&mut self, writes: &[Write<'_>]) -> Result<(), DiskError> {
        self.check_running()?;
        let places: Vec<u64> =
            writes.iter().map(|write| self.place(write.frame, write.offset, write.bytes)).collect();
        if let ([write], [place]) = (writes, places.as_slice()) {
            write_at(&self.shared.synced, write, *place).map_err(|error| self.stop("write")(error))?;
        } else {
            self.write_several(writes, &places).map_err(|error| self.stop("write")(error))?;
            self.shared.plain.sync_data().map_err(|error| self.stop("sync")(error))?;
        }
        // Growth may have failed meanwhile: then a device may have dropped what it had not written.
        self.check_running()
    }

    fn room_frames(&self) -> u32 {
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the descriptor is open, and the place has room for the answer.
        if unsafe { libc::fstatvfs(self.shared.plain.as_raw_fd(), found.as_mut_ptr()) } != 0 {
            return u32::MAX;
        }
        // SAFETY: the call has filled it.
        let found = unsafe { found.assume_init() };
        // Some file systems tell nothing, and root may use all that is free.
        // SAFETY: it only reads.
        let free = if unsafe { libc::geteuid() } == 0 { found.f_bfree } else { found.f_bavail };
        if found.f_blocks == 0 {
            return u32::MAX;
        }
        let bytes = free.saturating_mul(found.f_frsize);
        u32::try_from(bytes / self.shared.frame_bytes as u64).unwrap_or(u32::MAX)
    }

    fn read(&mut self, reads: &mut [Read<'_>]) -> Result<(), DiskError> {
        let places: Vec<u64> =
            reads.iter().map(|read| self.place(read.frame, read.offset, read.memory.len())).collect();
        self.read_all(reads, &places).map_err(DiskError::failed("read", &self.shared.path))
    }

    fn another(&self) -> Result<Box<dyn Disk>, DiskError> {
        let ring = match &self.ring {
            Some(_) => {
                let made = Ring::new().map_err(io::Error::other);
                Some(made.map_err(DiskError::failed("io_uring", &self.shared.path))?)
            }
            None => None,
        };
        Ok(Box::new(Self { shared: Arc::clone(&self.shared), ring, zeros: None }))
    }
}

/// How the file is written, and why not better, for people.
impl fmt::Display for FileDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shared.without_ring {
            None => write!(formatter, "io_uring")?,
            Some(reason) => write!(formatter, "system calls, without io_uring: {reason}")?,
        }
        match &self.shared.without_direct {
            None => write!(formatter, "; O_DIRECT"),
            Some(reason) => write!(formatter, "; through the page cache, without O_DIRECT: {reason}"),
        }
    }
}

impl fmt::Debug for FileDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(formatter)
    }
}

/// Opens or creates a file, past the page cache where the file system can; else returns the reason why not.
fn open(path: &Path, flags: i32) -> io::Result<(File, Option<String>)> {
    let open = |flags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags).mode(0o600).open(path)
    };
    match open(flags | libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((open(flags)?, Some("the file system refuses it".to_owned())))
        }
        opened => opened.map(|file| (file, None)),
    }
}

/// Locks the file for this process. Waits a while for one that was killed: the kernel may end its ring, which holds the
/// file, only after the process has ended.
fn lock(path: &Path, file: &File) -> Result<(), DiskError> {
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if since.elapsed() < LOCK_PATIENCE => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => return Err(DiskError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(DiskError::failed("lock", path)(error)),
        }
    }
}

/// Reads the superblock, or writes that of a file which has none.
fn superblock_of(path: &Path, file: &File, options: &Options) -> Result<Superblock, DiskError> {
    let failed = |operation| DiskError::failed(operation, path);
    let bytes = file.metadata().map_err(failed("stat"))?.len();
    let mut block = Buffer::new(BLOCK_BYTES);
    if bytes >= BLOCK_BYTES as u64 {
        file.read_exact_at(&mut block, 0).map_err(failed("read"))?;
    }
    // A file whose creation was interrupted has no frame and no superblock yet.
    if bytes > BLOCK_BYTES as u64 || block.iter().any(|byte| *byte != 0) {
        return Superblock::decode(&block)
            .map_err(|reason| DiskError::Unsuitable { path: path.to_owned(), reason });
    }
    let superblock = Superblock {
        reserved_frames: options.reserved_frames,
        frame_bytes: options.frame_bytes as u64,
        identity: options.identity,
    };
    file.write_all_at(&superblock.encode(), 0).map_err(failed("write"))?;
    file.sync_all().map_err(failed("sync"))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(DiskError::failed("sync", directory))?;
    Ok(superblock)
}

/// Makes stable what another kind of file has, if it is there, as each disk does with its own before it is read.
///
/// # Errors
/// If the file cannot be opened or synced.
pub fn settle_file(path: &Path) -> Result<(), DiskError> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => settle(path, &file.map_err(DiskError::failed("open", path))?, true),
    }
}

/// Makes stable what is in the file, before anything is read and told of it. Whoever wrote it may have ended before it was
/// stable, or because it could not be: a page cache then has what the device has not.
fn settle(path: &Path, file: &File, is_cached: bool) -> Result<(), DiskError> {
    file.sync_all().map_err(DiskError::failed("sync", path))?;
    if is_cached {
        // SAFETY: the descriptor is open.
        let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if code != 0 {
            return Err(DiskError::failed("fadvise", path)(io::Error::from_raw_os_error(code)));
        }
    }
    Ok(())
}

/// Writes zeros from `start` to `end`, the file's new end.
fn write_zeros(file: &File, zeros: &Buffer, start: u64, end: u64) -> io::Result<()> {
    let mut at = start;
    while at < end {
        let bytes = (end - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..bytes as usize], at)?;
        at += bytes;
    }
    Ok(())
}

fn is_no_space(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

fn write_at(file: &File, write: &Write<'_>, place: u64) -> io::Result<()> {
    write_rest(file, write, place, 0)
}

/// Writes what is left after the first `written` bytes.
fn write_rest(file: &File, write: &Write<'_>, place: u64, written: usize) -> io::Result<()> {
    // The kernel may write less than asked; what is left begins at a block, or is written anew.
    let mut done = written / BLOCK_BYTES * BLOCK_BYTES;
    while done < write.bytes {
        let (memory, at) = (write.memory.wrapping_add(done), place + done as u64);
        // SAFETY: the write's memory stays readable as long as the write exists.
        let result =
            unsafe { libc::pwrite(file.as_raw_fd(), memory.cast(), write.bytes - done, at.cast_signed()) };
        match usize::try_from(result) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => done = (done + bytes) / BLOCK_BYTES * BLOCK_BYTES,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}
