//! Waiting for what comes in its own time: what a cluster agrees on, what a server hears of.

use std::thread;
use std::time::{Duration, Instant};

use crate::raw::PATIENCE;

/// Between two looks, so that what is looked at has time for it.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until it is there.
///
/// # Panics
/// If it does not come within [`PATIENCE`]; says what.
pub fn comes<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it does not come: {what}");
        thread::sleep(LOOK_EVERY);
    }
}
