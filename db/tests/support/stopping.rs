//! Processes that stand still: what a paused machine looks like to others.

use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take to stand still: no claim about time, so that a loaded machine passes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Stops all threads of a process, or lets them continue. Returns once they stand still: a signal takes effect only
/// when each thread has noticed it, which takes milliseconds on a busy machine.
pub fn pause(child: &Child, pauses: bool) {
    let signal = if pauses { "-STOP" } else { "-CONT" };
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "the process is there");
    let deadline = Instant::now() + PATIENCE;
    while pauses && !stands_still(child.id()) {
        assert!(Instant::now() < deadline, "the process does not stop");
        thread::sleep(Duration::from_millis(1));
    }
}

fn stands_still(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the process is there");
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in brackets and may contain some.
        status.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't']))
    })
}
