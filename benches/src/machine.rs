//! What a figure needs beside it to mean anything: the commit, the processor, the kernel.
//!
//! Everything is read from the system at the start of a run; what cannot be read is `unknown`, never an
//! error. Also pins the calling thread to a core, since all figures are taken with server and load apart.

use std::fs;
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
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

/// How long the worker threads of a server were ready to run and had no core, in nanoseconds since they began:
/// what else ran there.
pub fn worker_delay_ns(process: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let workers = threads.filter(|thread| {
        fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with("worker"))
    });
    let delay = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Some(workers.filter_map(|thread| delay(thread.path())).sum())
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
    use super::{Machine, pin, processor, resident_bytes};

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
