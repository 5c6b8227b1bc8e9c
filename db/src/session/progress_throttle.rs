//! The throttle of migration progress per session: suppresses repeated values and frequent messages.
//!
//! Two workers that report at once may send the progress twice, which is harmless.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::limits::PROGRESS_EVERY_US;

/// Suppresses repeated and frequent progress messages.
#[derive(Debug, Default)]
pub struct ProgressThrottle {
    not_before_us: AtomicU64,
    /// A sum of the progress sent last.
    sum: AtomicU64,
}

impl ProgressThrottle {
    /// Returns whether progress may be sent at `now_us`.
    #[must_use]
    pub fn is_due(&self, now_us: u64) -> bool {
        self.not_before_us.load(Relaxed) <= now_us
    }

    /// Records that progress is sent; returns whether `sum` differs from the last one.
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
