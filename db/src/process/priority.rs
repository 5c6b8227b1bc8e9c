//! Priorities of a server's threads: slices that are short, and real-time priority for those that mostly sleep.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::KERNEL_SLICE_US;

/// The highest nice value.
const NICE_MAX: i32 = 19;

/// The pieces of [`BulkWork`] in this process.
static BULK_WORK: AtomicUsize = AtomicUsize::new(0);

/// Work that keeps threads of real-time priority busy for long: while there is any, they take turns with all others.
#[derive(Debug)]
pub struct BulkWork(());

impl BulkWork {
    /// Begins it, until this is dropped.
    #[must_use]
    pub fn begin() -> Self {
        BULK_WORK.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for BulkWork {
    fn drop(&mut self) {
        BULK_WORK.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Real-time priority (`SCHED_FIFO`, the lowest) of a thread that mostly sleeps, except while there is [`BulkWork`].
#[derive(Debug)]
pub struct RealTime {
    is_taken: bool,
    /// Whether a change has failed, which is said once.
    has_failed: bool,
}

impl RealTime {
    /// Gives it to the calling thread.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn take() -> io::Result<Self> {
        take_real_time().map(|()| Self { is_taken: true, has_failed: false })
    }

    /// Gives it up or takes it again, if that is due. Called by the thread itself, often. Costs a load, or a system call.
    pub fn look(&mut self) {
        let is_due = BULK_WORK.load(Ordering::Relaxed) == 0;
        if is_due == self.is_taken {
            return;
        }
        match if is_due { take_real_time() } else { take_short_turns(0) } {
            Ok(()) => self.is_taken = is_due,
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(%error, is_due, "cannot change the priority of a thread");
            }
            Err(_) => {}
        }
    }

    /// Returns whether the thread has it.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }
}

/// The kernel's scheduling attributes of a thread: its `struct sched_attr`, first version.
#[repr(C)]
struct Scheduling {
    bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Shortens the calling thread's slices, so that threads which share its CPU wait for one slice at most, if the kernel
/// supports slices (Linux 6.12), and adds `nicer` to its nice value. A process without privileges cannot undo this.
///
/// # Errors
/// If the kernel refuses.
pub fn take_short_turns(nicer: i32) -> io::Result<()> {
    // SAFETY: plain numbers; 0 is the calling thread, which is there.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let scheduling = Scheduling {
        bytes: size_of::<Scheduling>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: (nice + nicer).min(NICE_MAX),
        priority: 0,
        runtime_ns: KERNEL_SLICE_US * 1_000,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the structure lives across the call and says its own length; 0 is the calling thread, and no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const scheduling, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn take_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure lives across the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::{BulkWork, RealTime};

    #[test]
    fn real_time_priority_is_given_up_while_there_is_bulk_work() {
        // SAFETY: 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        // Where the kernel grants it.
        let Ok(mut real_time) = RealTime::take() else { return };
        real_time.look();
        assert_eq!((policy(), real_time.is_taken()), (libc::SCHED_FIFO, true));
        let [one, other] = [(); 2].map(|()| BulkWork::begin());
        drop(one);
        real_time.look();
        assert_eq!((policy(), real_time.is_taken()), (libc::SCHED_OTHER, false));
        drop(other);
        real_time.look();
        assert_eq!((policy(), real_time.is_taken()), (libc::SCHED_FIFO, true));
    }
}
