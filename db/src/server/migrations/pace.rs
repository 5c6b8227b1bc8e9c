//! The pull rate of a target: lower while workers are loaded, higher while they are not.
//!
//! The rate falls by a tenth at each look that finds a worker loaded, and grows by a step at each other look, so that
//! it stays where workers are seldom loaded. A minimum lets every migration finish.

use crate::limits::{PULL_LOOK_US, PULL_RATE_MAX, PULL_RATE_MIN, PULL_RATE_STEP};

/// The adaptive rate of pulls.
#[derive(Debug)]
pub(super) struct PullPace {
    rate: u64,
    looked_us: u64,
    allowed_us: u64,
}

impl PullPace {
    /// Creates a pace at the minimum rate.
    pub(super) fn from(now_us: u64) -> Self {
        Self { rate: PULL_RATE_MIN, looked_us: now_us, allowed_us: now_us }
    }

    /// Returns the bytes that may be pulled for the elapsed time. Looks at the workers periodically.
    pub(super) fn allowance(&mut self, now_us: u64, is_loaded: impl FnOnce() -> bool) -> u64 {
        if now_us.saturating_sub(self.looked_us) >= PULL_LOOK_US {
            self.looked_us = now_us;
            self.rate = match is_loaded() {
                true => (self.rate - self.rate / 10).max(PULL_RATE_MIN),
                false => (self.rate + PULL_RATE_STEP).min(PULL_RATE_MAX),
            };
        }
        let passed_us = now_us.saturating_sub(self.allowed_us);
        self.allowed_us = now_us;
        // A thread that slept long may catch up only for a limited time.
        self.rate * passed_us.min(10 * PULL_LOOK_US) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::PullPace;
    use crate::limits::{PULL_LOOK_US, PULL_RATE_MAX, PULL_RATE_MIN};

    #[test]
    fn it_goes_faster_as_long_as_no_worker_is_loaded_and_never_stands_still() {
        let mut pace = PullPace::from(0);
        let mut now_us = 0;
        let mut look = |is_loaded| {
            now_us += PULL_LOOK_US;
            pace.allowance(now_us, || is_loaded) * 1_000_000 / PULL_LOOK_US
        };
        let first = look(false);
        assert!(first > PULL_RATE_MIN);
        let fastest = (0..1_000).map(|_| look(false)).last();
        assert!(fastest.is_some_and(|rate| rate.abs_diff(PULL_RATE_MAX) < 1 << 20), "{fastest:?}");
        let slowest = (0..1_000).map(|_| look(true)).last();
        assert!(slowest.is_some_and(|rate| rate.abs_diff(PULL_RATE_MIN) < 1 << 20), "{slowest:?}");
    }
}
