//! A worker's load as other workers see it: whether it works, when it last looked at its port, and whether it sleeps.
//!
//! ```text
//!   word = 0                                      the last look at the port found nothing
//!   word = begin of the round in us << 2 | 2 if the batch was cut | 1
//! ```
//! Only the worker writes it, once per round while there is work and once when the work ends; workers without work read
//! it. Every access is relaxed, because the words are hints. A stale one costs a look at an empty port or delays a
//! frame by one round; no memory is reached through them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::limits::{ABSENT_AFTER_US, STEAL_AFTER_US};

const WORKING: u64 = 1;
const CUT: u64 = 2;

/// The load of one worker, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Load {
    word: AtomicU64,
    asleep: AtomicBool,
}

impl Load {
    /// Notes that a round with work begins. `cut` says that more frames wait than the round has taken.
    #[inline]
    pub fn work(&self, now_us: u64, cut: bool) {
        let cut = if cut { CUT } else { 0 };
        self.word.store(now_us << 2 | cut | WORKING, Ordering::Relaxed);
    }

    /// Notes that there is nothing to do.
    #[inline]
    pub fn rest(&self) {
        // A line that others read is written only when it changes.
        if self.word.load(Ordering::Relaxed) != 0 {
            self.word.store(0, Ordering::Relaxed);
        }
    }

    /// Returns whether frames wait at the worker's port: it left some, or has not looked for a while.
    #[inline]
    #[must_use]
    pub fn is_loaded(&self, now_us: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & CUT != 0 || (word & WORKING != 0 && now_us.saturating_sub(word >> 2) >= STEAL_AFTER_US)
    }

    /// Returns whether the worker has nothing to do.
    #[inline]
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.word.load(Ordering::Relaxed) == 0
    }

    /// Returns whether the worker has been away from its port for longer than any round takes.
    #[must_use]
    pub fn is_absent(&self, now_us: u64) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & WORKING != 0 && now_us.saturating_sub(word >> 2) >= ABSENT_AFTER_US
    }

    /// Notes that the worker goes to sleep or has woken up.
    #[inline]
    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    /// Returns whether the worker sleeps.
    #[inline]
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Load;
    use crate::limits::{ABSENT_AFTER_US, STEAL_AFTER_US};

    #[test]
    fn a_worker_is_loaded_when_it_left_frames_behind_or_stays_away() {
        let load = Load::default();
        assert!(!load.is_loaded(1_000_000));
        load.work(1_000_000, false);
        assert!(!load.is_loaded(1_000_000 + STEAL_AFTER_US - 1));
        assert!(load.is_loaded(1_000_000 + STEAL_AFTER_US));
        load.work(2_000_000, true);
        assert!(load.is_loaded(2_000_000));
        assert!(!load.is_absent(2_000_000 + ABSENT_AFTER_US - 1));
        assert!(load.is_absent(2_000_000 + ABSENT_AFTER_US));
        load.rest();
        assert!(!load.is_loaded(9_000_000) && !load.is_absent(9_000_000));
    }
}
