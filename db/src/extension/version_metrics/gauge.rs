//! Chooses and times a sample of a worker's invocations.
//!
//! One of [`INVOCATIONS_PER_TIMING`] on average, at random distances, by two readings of the cycle counter around the
//! poll that ends it.

use guest::cycles;

use crate::limits::INVOCATIONS_PER_TIMING;

/// Times a sample of a worker's invocations.
#[derive(Debug)]
pub struct Gauge {
    /// Invocations until the next timed one.
    left: u32,
    /// Randomizes the distances, so that no pattern of calls stays unsampled.
    random: u32,
    /// The begin of the timed poll; 0 if none is timed.
    began: u64,
}

impl Gauge {
    /// Creates a gauge that times the first invocation.
    #[must_use]
    pub const fn new() -> Self {
        Self { left: 1, random: 1, began: 0 }
    }

    /// Notes that a poll begins.
    #[inline]
    pub fn begin(&mut self) {
        self.left -= 1;
        self.began = 0;
        if self.left == 0 {
            // Numerical Recipes' generator; its high bits give 1 to twice the mean less one.
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.left = 1 + (self.random >> 8) % (2 * INVOCATIONS_PER_TIMING - 1);
            self.began = cycles::now();
        }
    }

    /// Ends the poll of a finished invocation; returns its duration if it was timed.
    #[inline]
    pub fn end(&mut self) -> Option<u64> {
        match std::mem::take(&mut self.began) {
            0 => None,
            began => Some(cycles::now().wrapping_sub(began)),
        }
    }
}

impl Default for Gauge {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Gauge;
    use crate::limits::INVOCATIONS_PER_TIMING;

    #[test]
    fn one_of_some_invocations_is_timed() {
        let mut gauge = Gauge::new();
        let mut timed = 0;
        let count = 100_000;
        for _ in 0..count {
            gauge.begin();
            timed += u32::from(gauge.end().is_some());
        }
        assert!(
            timed.abs_diff(count / INVOCATIONS_PER_TIMING) < count / INVOCATIONS_PER_TIMING / 10,
            "{timed}"
        );
        assert_eq!(gauge.end(), None, "a poll that did not begin has no time");
    }
}
