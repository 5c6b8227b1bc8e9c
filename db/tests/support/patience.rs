//! Waits of tests: for what comes when it comes, and no longer than anything takes on a machine that others use.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Tries until it is so.
#[track_caller]
pub fn comes<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(Instant::now() < deadline, "it does not come");
        thread::sleep(Duration::from_millis(5));
    }
}
