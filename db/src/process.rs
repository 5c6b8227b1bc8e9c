//! Operating-system services for a server process: signals, CPUs, descriptors, the end of threads.
//!
//! Signals are blocked before any thread starts and the main thread waits for them, so that no handler runs anywhere.
//! Pinning is optional: if it is refused the server runs unpinned and logs that.

mod priority;

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use self::priority::{BulkWork, RealTime, take_short_turns};

/// Path of the control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// The signals that end a server.
#[derive(Clone, Copy)]
pub struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Blocks SIGTERM and SIGINT for this thread and all that it starts.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn block() -> io::Result<Self> {
        // SAFETY: a zeroed set is a valid argument of sigemptyset, which initialises it.
        let mut set: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: `set` is ours, the numbers are signals; none of these calls keeps the pointer.
        let result = unsafe {
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            libc::sigaddset(&raw mut set, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        };
        if result == 0 { Ok(Self { set }) } else { Err(io::Error::from_raw_os_error(result)) }
    }

    /// Waits at most `timeout` for one of them and returns its name.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, timeout: Duration) -> io::Result<Option<&'static str>> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        };
        // SAFETY: the pointers are to live values of the right types, and null asks for no details.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const timeout) };
        match signal {
            libc::SIGINT => Ok(Some("SIGINT")),
            0.. => Ok(Some("SIGTERM")),
            _ => match io::Error::last_os_error() {
                error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(None),
                error => Err(error),
            },
        }
    }
}

/// Returns the memory of the machine in bytes; `None` if the kernel does not report it.
#[must_use]
pub fn machine_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes: u64 = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?
        .trim()
        .split(' ')
        .next()?
        .parse()
        .ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns how many more threads the process may have, as far as the kernel reports it: by its control groups, and by
/// the limits of the system and of its user, whose use it does not report. A user's limit does not apply to the
/// superuser.
#[must_use]
pub fn threads_left() -> usize {
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let in_group = |path: PathBuf| {
        let (most, now) = (number(&path.join("pids.max"))?, number(&path.join("pids.current"))?);
        Some(most.saturating_sub(now))
    };
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups = control_groups(&text).into_iter().filter_map(in_group);
    let of_system = number(Path::new("/proc/sys/kernel/threads-max"));
    of_groups.chain(of_system).chain(threads_of_user()).min().unwrap_or(usize::MAX)
}

/// Returns the folders of the control groups, of either version, that may limit threads: those of the process and the
/// enclosing ones.
fn control_groups(text: &str) -> Vec<PathBuf> {
    let folder = |line: &str| match line.splitn(3, ':').collect::<Vec<_>>()[..] {
        ["0", "", path] => Some((Path::new(GROUPS).to_owned(), path.to_owned())),
        [_, kinds, path] if kinds.split(',').any(|kind| kind == "pids") => {
            Some((Path::new(GROUPS).join("pids"), path.to_owned()))
        }
        _ => None,
    };
    let mut folders = Vec::new();
    for (root, path) in text.lines().filter_map(folder) {
        let inmost = root.join(path.trim_start_matches('/'));
        folders.extend(inmost.ancestors().take_while(|outer| outer.starts_with(&root)).map(Path::to_owned));
    }
    folders
}

/// Returns the thread limit of the process's user; `None` if there is none.
fn threads_of_user() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is live and ours to be written.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) };
    // SAFETY: reads the process's own number.
    let is_superuser = unsafe { libc::geteuid() } == 0;
    (result == 0 && !is_superuser).then(|| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

/// Lets the process open `wanted` files, or as many as the hard limit allows; returns how many it may open now.
///
/// # Errors
/// If the kernel refuses.
pub fn raise_descriptors(wanted: usize) -> io::Result<usize> {
    let mut limit = descriptor_limit()?;
    let raised = (wanted as libc::rlim_t).min(limit.rlim_max);
    if raised > limit.rlim_cur {
        limit.rlim_cur = raised;
        // SAFETY: the limit is live, and read alone.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    descriptors()
}

/// Returns how many files the process may open.
///
/// # Errors
/// If the kernel does not report it.
pub fn descriptors() -> io::Result<usize> {
    descriptor_limit().map(|limit| usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX))
}

fn descriptor_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is live and ours to be written.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result == 0 { Ok(limit) } else { Err(io::Error::last_os_error()) }
}

/// Starts a thread of this name that calls `step` until the server stops, with so long a pause between two calls, which an unpark
/// ends.
///
/// # Errors
/// If the thread cannot be started.
pub fn repeat(
    name: &str,
    stopping: &Arc<AtomicBool>,
    pause: Duration,
    mut step: impl FnMut() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let stopping = Arc::clone(stopping);
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        while !stopping.load(Ordering::Relaxed) {
            step();
            thread::park_timeout(pause);
        }
    })
}

/// Pins the calling thread to one CPU.
///
/// # Errors
/// If there is no such CPU or the process may not use it.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies within the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set is live and its size is passed along; 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Keeps the calling thread off these CPUs, if the process may use others.
///
/// # Errors
/// If the kernel refuses.
pub fn stay_off(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set is live and its size is passed along; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: `cpu` is below CPU_SETSIZE, so the bit lies within the set.
        unsafe { libc::CPU_CLR(cpu, &mut set) };
    }
    // SAFETY: the set is live.
    if unsafe { libc::CPU_COUNT(&set) } == 0 {
        return Ok(());
    }
    // SAFETY: as above.
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Pause between two looks at a thread.
const LOOK: Duration = Duration::from_micros(200);

/// A deadline for joining threads; logs the names of those that have not ended by then and leaves them behind.
///
/// Every thread of the server ends soon after the stop request; the deadline covers one that does not, so that no
/// defect and no extension keeps the process from ending.
#[derive(Clone, Copy, Debug)]
pub struct Joining {
    deadline: Instant,
}

impl Joining {
    /// Sets the deadline for all threads together.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        Self { deadline: Instant::now() + patience }
    }

    /// Waits for a thread. Returns false if it has not ended by the deadline.
    pub fn join<T>(&self, thread: JoinHandle<T>) -> bool {
        while !thread.is_finished() {
            if Instant::now() >= self.deadline {
                let name = thread.thread().name().unwrap_or("unnamed");
                tracing::error!(thread = name, "a thread did not end in time; the server stops without it");
                return false;
            }
            thread::sleep(LOOK);
        }
        // A thread that panicked has logged it.
        let _ = thread.join();
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::{
        GROUPS, Joining, control_groups, descriptors, machine_memory_bytes, pin_thread, raise_descriptors,
        threads_left,
    };

    #[test]
    fn descriptors_are_raised_as_far_as_they_may_and_never_lowered() {
        let before = descriptors().expect("a limit");
        assert_eq!(raise_descriptors(1).expect("nothing to do"), before);
        let raised = raise_descriptors(before + 1).expect("the kernel allows what it said it would");
        assert!(raised == before || raised == before + 1);
        assert_eq!(descriptors().expect("a limit"), raised);
    }

    #[test]
    fn threads_are_limited_by_the_control_groups_of_either_version_and_those_around_them() {
        let found = control_groups("8:pids:/a/b\n7:cpu,memory:/c\n0::/d\nnonsense\n1:name=x:/\n");
        let expected = ["pids/a/b", "pids/a", "pids", "d", ""].map(|path| Path::new(GROUPS).join(path));
        assert_eq!(found, expected);
        assert!(threads_left() > 0);
    }

    #[test]
    fn the_memory_of_the_machine_is_known() {
        assert!(machine_memory_bytes().is_some_and(|bytes| bytes > 64 << 20));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        assert!(pin_thread(usize::MAX).is_err());
        assert!(pin_thread(1023).is_err());
    }

    #[test]
    fn a_thread_that_waits_for_ever_is_left_behind_and_others_are_joined() {
        let (sender, receiver) = channel::<()>();
        let waits = thread::spawn(move || receiver.recv().is_err());
        assert!(!Joining::within(Duration::from_millis(5)).join(waits));
        let ends = thread::spawn(|| ());
        assert!(Joining::within(Duration::from_secs(300)).join(ends));
        let panics = thread::spawn(|| panic!("on purpose"));
        assert!(Joining::within(Duration::from_secs(300)).join(panics));
        drop(sender);
    }
}
