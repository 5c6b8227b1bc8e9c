//! Counts messages per round of one worker, with a stamp instead of a reset.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The stamp in the upper half, the count below. Any serving worker writes it without a lock: two at once may lose each
/// other's counts.
#[derive(Debug, Default)]
pub struct Arrivals(AtomicU64);

impl Arrivals {
    /// Creates a count of zero.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts `messages` under a stamp; returns the earlier count of that stamp.
    #[inline]
    pub fn add(&self, stamp: u32, messages: u64) -> u64 {
        let known = self.0.load(Relaxed);
        let before = if (known >> 32) as u32 == stamp { known & u64::from(u32::MAX) } else { 0 };
        let after = (before + messages).min(u64::from(u32::MAX));
        self.0.store(u64::from(stamp) << 32 | after, Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::Arrivals;

    #[test]
    fn a_count_begins_anew_with_each_stamp_and_stays_in_its_half() {
        let arrivals = Arrivals::new();
        assert_eq!((arrivals.add(7, 3), arrivals.add(7, 4), arrivals.add(7, 0)), (0, 3, 7));
        assert_eq!((arrivals.add(8, u64::from(u32::MAX)), arrivals.add(8, 5)), (0, u64::from(u32::MAX)));
        assert_eq!(arrivals.add(8, 1), u64::from(u32::MAX));
        assert_eq!(arrivals.add(9, 1), 0);
    }
}
