//! What a figure needs beside it to mean anything: the commit, the processor, the kernel.
//!
//! Everything is read from the system at the start of a run; what cannot be read is `unknown`, never an
//! error. Also pins the calling thread to a core, since all figures are taken with server and load apart.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde::Serialize;

/// The machine and the commit of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Commit of the work tree that the command runs in, `+` behind it where files were changed.
    pub commit: String,
    /// Model of the processor.
    pub processor: String,
    /// Number of cores that are online.
    pub cores: usize,
    /// Version of the kernel.
    pub kernel: String,
}

impl Machine {
    /// Reads the machine and the commit.
    pub fn read() -> Self {
        Self {
            commit: commit(),
            processor: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .map_or_else(|_| "unknown".into(), |text| text.trim().to_string()),
        }
    }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".into() };
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
    if changed { commit + "+" } else { commit }
}

fn processor(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, model)| model.trim()).to_string()
}

/// Resident memory of a process, in bytes.
pub fn resident_bytes(process: u32) -> Option<u64> {
    bytes_in(&fs::read_to_string(format!("/proc/{process}/status")).ok()?, "VmRSS:")
}

/// The bytes of the line that begins with `name`, where kilobytes stand.
fn bytes_in(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// What this process has in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// All of it, in bytes.
    pub bytes: u64,
    /// What of it is in huge pages.
    pub huge_bytes: u64,
}

/// What this process has in memory now; zeros where the kernel does not say.
pub fn resident() -> Resident {
    resident_of(&fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default())
}

fn resident_of(rollup: &str) -> Resident {
    let bytes = |name| bytes_in(rollup, name).unwrap_or(0);
    Resident { bytes: bytes("Rss:"), huge_bytes: bytes("AnonHugePages:") }
}

/// What the kernel says of a thread's time on the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// It ran, in nanoseconds.
    pub ran_ns: u64,
    /// It was ready to run and had no core, in nanoseconds: what else ran there.
    pub delayed_ns: u64,
}

impl ThreadTime {
    fn add(self, other: Self) -> Self {
        Self { ran_ns: self.ran_ns + other.ran_ns, delayed_ns: self.delayed_ns + other.delayed_ns }
    }
}

/// The threads of a server, by what they are for.
#[derive(Debug)]
pub struct ServerThreads {
    workers: Vec<File>,
    others: Vec<File>,
}

impl ServerThreads {
    /// Those that a process has now; `None` when there is no such process.
    pub fn of(process: u32) -> Option<Self> {
        let (mut workers, mut others) = (Vec::new(), Vec::new());
        for thread in fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
            let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            let Ok(file) = File::open(thread.path().join("schedstat")) else { continue };
            if name.starts_with("worker") { workers.push(file) } else { others.push(file) }
        }
        Some(Self { workers, others })
    }

    /// The time of its workers together.
    pub fn workers(&self) -> ThreadTime {
        time_of(&self.workers)
    }

    /// The time of all its other threads together.
    pub fn others(&self) -> ThreadTime {
        time_of(&self.others)
    }
}

/// Of threads that have not ended.
fn time_of(threads: &[File]) -> ThreadTime {
    let time = |file: &File| {
        let mut text = [0; 128];
        let bytes = file.read_at(&mut text, 0).ok()?;
        thread_time(std::str::from_utf8(&text[..bytes]).ok()?)
    };
    threads.iter().filter_map(time).fold(ThreadTime::default(), ThreadTime::add)
}

fn thread_time(schedstat: &str) -> Option<ThreadTime> {
    let mut words = schedstat.split_whitespace().map(str::parse);
    Some(ThreadTime { ran_ns: words.next()?.ok()?, delayed_ns: words.next()?.ok()? })
}

/// How long a process has run until now, with the threads of it that have ended, in nanoseconds; `None` when there is none.
pub fn process_cpu_ns(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, which may have anything in it, ends with the last parenthesis; ticks are hundredths of a second.
    let words = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    words.map(|ticks| ticks.parse::<u64>().ok().map(|ticks| ticks * 10_000_000)).sum()
}

/// Lets the calling thread, and what it starts, go before servers on the same cores, as if on a machine of its own, until this is
/// dropped; where the kernel refuses, it takes turns with them, and measures that.
pub struct GoingFirst(i32);

impl GoingFirst {
    /// Begins.
    pub fn begin() -> Self {
        // SAFETY: plain numbers; 0 is the calling thread, which is there.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: as above.
        let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -15) };
        Self(before)
    }
}

impl Drop for GoingFirst {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, self.0) };
    }
}

/// How long other machines of the same host have kept this one's cores from it until now, in nanoseconds for all cores together; 0
/// where the kernel does not say.
pub fn stolen_ns() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // The first line is of all cores: user, nice, system, idle, iowait, irq, softirq, steal; in hundredths of a second.
    let ticks = stat.lines().next().and_then(|all| all.split_whitespace().nth(8));
    ticks.and_then(|ticks| ticks.parse::<u64>().ok()).map_or(0, |ticks| ticks * 10_000_000)
}

/// How long the calling thread was ready to run and had no core, in nanoseconds; 0 where the kernel does not say.
pub fn own_delay_ns() -> u64 {
    let schedstat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    thread_time(&schedstat).map_or(0, |time| time.delayed_ns)
}

/// How long the calling thread has run, in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is live and ours to be written.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    if result == 0 { time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 } else { 0 }
}

/// Keeps the calling thread on one core.
pub fn pin(core: usize) -> Result<(), String> {
    // SAFETY: a cpu_set_t is a plain bit mask, for which all bits zero is a valid value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if core >= 8 * size_of::<libc::cpu_set_t>() {
        return Err(format!("there is no core {core}"));
    }
    // SAFETY: `core` was checked to lie within the mask.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the mask is valid and its size is given; thread 0 means the caller.
    let code = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    if code == 0 {
        return Ok(());
    }
    Err(format!("pinning to core {core}: {}", std::io::Error::last_os_error()))
}

#[cfg(test)]
mod tests {
    use super::{
        Machine, Resident, ServerThreads, ThreadTime, own_cpu_ns, pin, processor, resident, resident_bytes,
        resident_of, thread_time,
    };

    #[test]
    fn a_run_knows_its_machine() {
        let machine = Machine::read();
        assert!(machine.cores > 0);
        assert_ne!(machine.kernel, "unknown");
        assert_eq!(processor("x : y\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(processor(""), "unknown");
    }

    #[test]
    fn resident_memory_of_this_process_is_more_than_a_page() {
        assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 4096));
    }

    #[test]
    fn a_process_knows_how_much_of_it_is_in_huge_pages() {
        assert!(resident().bytes > 4096);
        let rollup = "Rss:\t  12 kB\nPss: 9 kB\nAnonHugePages:   2048 kB\n";
        assert_eq!(resident_of(rollup), Resident { bytes: 12 << 10, huge_bytes: 2 << 20 });
        assert_eq!(resident_of(""), Resident::default());
    }

    #[test]
    fn threads_tell_how_long_they_ran_and_waited() {
        assert_eq!(thread_time("12 34 5\n"), Some(ThreadTime { ran_ns: 12, delayed_ns: 34 }));
        assert_eq!(thread_time("12"), None);
        let threads = ServerThreads::of(std::process::id()).expect("this process");
        // Threads of other tests end meanwhile and are no longer counted.
        let grows = || {
            let (before, cpu) = (threads.others().ran_ns, own_cpu_ns());
            while own_cpu_ns() < cpu + 20_000_000 {}
            threads.others().ran_ns > before
        };
        assert!((0..50).any(|_| grows()), "no thread of this process is a worker");
        assert_eq!(threads.workers(), ThreadTime::default());
        assert!(ServerThreads::of(u32::MAX).is_none());
    }

    #[test]
    fn pinning_to_a_core_that_is_not_there_is_refused() {
        std::thread::spawn(|| {
            assert!(pin(0).is_ok());
            assert!(pin(1000).is_err());
            assert!(pin(1 << 20).is_err());
        })
        .join()
        .unwrap();
    }
}
