//! The pulse of a worker: a number that is odd while an extension has the thread, and never stands still.
//!
//! Written by the worker around each poll, read by the watchdog. Two relaxed stores per poll.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the file's head. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Heartbeat {
    sequence: AtomicU64,
}

/// Where threads beat whom nobody watches.
pub static NOBODYS: Heartbeat = Heartbeat { sequence: AtomicU64::new(0) };

impl Heartbeat {
    /// A poll begins.
    #[inline]
    pub fn begin(&self) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// A poll has come back.
    #[inline]
    pub fn end(&self) {
        self.sequence.store((self.sequence.load(Ordering::Relaxed) | 1) + 1, Ordering::Relaxed);
    }

    /// The number of the poll in progress; `None` between polls.
    #[must_use]
    pub fn busy(&self) -> Option<u64> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        (sequence & 1 == 1).then_some(sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::Heartbeat;

    #[test]
    fn each_poll_has_a_number_of_its_own() {
        let heartbeat = Heartbeat::default();
        assert_eq!(heartbeat.busy(), None);
        heartbeat.begin();
        let first = heartbeat.busy();
        heartbeat.end();
        assert_eq!(heartbeat.busy(), None);
        heartbeat.begin();
        assert!(first.is_some() && heartbeat.busy() > first);
    }
}
