//! Several transfers at once by io_uring. All have ended when a call returns, so nothing outlives its memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::{IoUring, Probe, opcode, squeue, types::Fd};

use crate::{Read, Write};

/// Transfers under way at once.
const ENTRIES: usize = 64;

/// A ring of the kernel, used by one thread.
pub(crate) struct Ring {
    ring: IoUring,
}

impl Ring {
    /// Makes a ring.
    ///
    /// # Errors
    /// Why the kernel gives none, and which setting may allow it.
    pub(crate) fn new() -> Result<Self, String> {
        let ring = IoUring::new(ENTRIES as u32).map_err(|error| reason(&error))?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(|error| reason(&error))?;
        if !probe.is_supported(opcode::Write::CODE) || !probe.is_supported(opcode::Read::CODE) {
            return Err("the kernel's io_uring neither reads nor writes".to_owned());
        }
        Ok(Self { ring })
    }

    /// Writes at these places of a file; returns the bytes written of each.
    pub(crate) fn write(
        &mut self,
        file: &File,
        writes: &[Write<'_>],
        places: &[u64],
    ) -> io::Result<Vec<usize>> {
        let file = Fd(file.as_raw_fd());
        self.run(writes.len(), |index| {
            let write = &writes[index];
            opcode::Write::new(file, write.memory, write.bytes as u32).offset(places[index]).build()
        })
    }

    /// Reads from these places of a file; returns the bytes read of each.
    pub(crate) fn read(
        &mut self,
        file: &File,
        reads: &mut [Read<'_>],
        places: &[u64],
    ) -> io::Result<Vec<usize>> {
        let file = Fd(file.as_raw_fd());
        self.run(reads.len(), |index| {
            let memory = &mut reads[index].memory;
            opcode::Read::new(file, memory.as_mut_ptr(), memory.len() as u32).offset(places[index]).build()
        })
    }

    /// Runs `count` operations; returns their results, or the first error of one.
    fn run(
        &mut self,
        count: usize,
        mut operation: impl FnMut(usize) -> squeue::Entry,
    ) -> io::Result<Vec<usize>> {
        let mut results = vec![0; count];
        let mut failed = None;
        for first in (0..count).step_by(ENTRIES) {
            let end = count.min(first + ENTRIES);
            for index in first..end {
                let entry = operation(index).user_data(index as u64);
                // SAFETY: `finish` waits for the operation, while the callers' slices borrow its memory.
                let pushed = unsafe { self.ring.submission().push(&entry) };
                pushed.expect("the queue has as many entries as are pushed");
            }
            self.finish(end - first, |index, result| match usize::try_from(result) {
                Ok(bytes) => results[index] = bytes,
                // Done anew by a system call.
                Err(_) if -result == libc::EINTR || -result == libc::EAGAIN => {}
                Err(_) => failed = failed.take().or(Some(io::Error::from_raw_os_error(-result))),
            });
        }
        failed.map_or(Ok(results), Err)
    }

    /// Submits what was pushed, and waits until all of it has ended.
    fn finish(&mut self, count: usize, mut ended: impl FnMut(usize, i32)) {
        let mut left = count;
        while left > 0 {
            if let Err(error) = self.ring.submit_and_wait(1) {
                let code = error.raw_os_error();
                if !matches!(code, Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) {
                    // Operations may be under way, and their memory is about to be given back.
                    eprintln!("io_uring does not work any more: {error}");
                    std::process::abort();
                }
            }
            for completion in self.ring.completion() {
                ended(completion.user_data() as usize, completion.result());
                left -= 1;
            }
        }
    }
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            format!("{error}; a container's seccomp profile or sysctl kernel.io_uring_disabled forbids it")
        }
        Some(libc::ENOSYS) => format!("{error}; the kernel has none"),
        Some(libc::ENOMEM) => format!("{error}; ulimit -l may be too small"),
        _ => error.to_string(),
    }
}
