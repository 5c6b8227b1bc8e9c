//! What a session was told last of how far a migration is: the same is not told again, and nothing too often.
//!
//! Two workers that tell it at once tell it twice, which is as good.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::limits::PROGRESS_EVERY_US;

/// See the file's head.
#[derive(Debug, Default)]
pub struct ProgressThrottle {
    not_before_us: AtomicU64,
    /// A sum of what was told.
    sum: AtomicU64,
}

impl ProgressThrottle {
    /// Whether something may be told at that time.
    #[must_use]
    pub fn is_due(&self, now_us: u64) -> bool {
        self.not_before_us.load(Relaxed) <= now_us
    }

    /// Notes that it is told; whether it is another sum than last time.
    pub fn tell(&self, now_us: u64, sum: u64) -> bool {
        self.not_before_us.store(now_us + PROGRESS_EVERY_US, Relaxed);
        self.sum.swap(sum, Relaxed) != sum
    }
}

#[cfg(test)]
mod tests {
    use super::ProgressThrottle;
    use crate::limits::PROGRESS_EVERY_US;

    #[test]
    fn only_news_are_told_and_not_too_often() {
        let told = ProgressThrottle::default();
        assert!(told.is_due(5) && told.tell(5, 77));
        assert!(!told.is_due(6) && told.is_due(5 + PROGRESS_EVERY_US));
        assert!(!told.tell(5 + PROGRESS_EVERY_US, 77) && told.tell(5 + 2 * PROGRESS_EVERY_US, 78));
    }
}
