//! Roles of tests over DPDK, which can start only once per process: each role is this program, started again for one
//! test that is otherwise ignored. The tests of the whole server use this file too.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that ends with the test.
pub struct Process(Child);

impl Process {
    /// Starts this program in a role, with the `needs` of the role in its environment.
    pub fn start<const N: usize>(role: &str, needs: [(&str, String); N]) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["--exact", role, "--ignored", "--nocapture"]).envs(needs).stdin(Stdio::null());
        Self(command.spawn().expect("this program starts again"))
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_none())
    }

    pub fn succeeds(&mut self) {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait().expect("it is a child of ours") {
                assert!(status.success(), "it ended with {status}");
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a value that the role was given.
pub fn given(name: &str) -> String {
    env::var(name).expect("the role is given what it needs")
}

pub fn wait_for(path: &Path) {
    let begun = Instant::now();
    while !path.exists() {
        assert!(begun.elapsed() < PATIENCE, "{} does not appear", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}
