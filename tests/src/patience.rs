//! Waiting for what comes in its own time: what a cluster agrees on, what a server hears of.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::{Error, Status};

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

/// Asks for something that may be asked for again, until etcd answers: on a loaded machine that takes longer than a server
/// waits for it.
///
/// # Panics
/// If the answer is any other refusal, or there is none within [`PATIENCE`]; says of what.
pub fn answered<T>(what: &str, mut ask: impl FnMut() -> Result<T, Error>) -> T {
    comes(what, || match ask() {
        Err(error) if error.status() == Some(Status::Unavailable) => None,
        answer => Some(answer.unwrap_or_else(|error| panic!("{what}: {error}"))),
    })
}

/// Tells other threads to stop when it goes, also at the end of a test that fails.
pub struct Stopping<'s>(pub &'s AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
