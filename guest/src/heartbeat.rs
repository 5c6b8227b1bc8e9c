//! The heartbeat of a worker: a number that is odd during a poll and changes with every poll.
//!
//! The worker writes it around each poll, the watchdog reads it. Two relaxed stores per poll.

use std::sync::atomic::{AtomicU64, Ordering};

/// The heartbeat of one worker, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Heartbeat {
    sequence: AtomicU64,
}

/// Dummy heartbeat for threads that are not watched.
pub static DUMMY: Heartbeat = Heartbeat { sequence: AtomicU64::new(0) };

impl Heartbeat {
    /// Notes that a poll begins.
    #[inline]
    pub fn begin(&self) {
        self.sequence.store(self.sequence.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
    }

    /// Notes that a poll has returned.
    #[inline]
    pub fn end(&self) {
        self.sequence.store((self.sequence.load(Ordering::Relaxed) | 1) + 1, Ordering::Relaxed);
    }

    /// Returns the number of the poll in progress; `None` between polls.
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
