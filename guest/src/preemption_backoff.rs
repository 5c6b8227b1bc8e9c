//! Detects extensions whose polls are short, so that the preemption timer can be set less often.
//!
//! An extension is steady after a number of polls that ended within their slice, and is watched closely again after the
//! first poll that did not. That poll may be detected late. So an extension must not gain by being steady for the
//! required number of polls, holding the core once, and starting over: each time a steady one overruns by several
//! slices, the required number doubles; after some time without such an overrun it halves.
//!
//! A thread also overruns when it loses its core for a moment, to the kernel or to another machine on the same host,
//! about a hundred times a second. Such an overrun is short. An overrun below two slices, which is as long as a closely
//! watched extension may run, costs a steady extension nothing; one below four slices costs half of the counted polls.
//! Otherwise, with hundreds of extensions on a core, each would be watched closely most of the time because of an event
//! that hit it once.
//!
//! The workers share this without a lock. They may lose each other's counts, which is harmless: the required number
//! changes with an overrun or once in a thousand polls.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::limits::{
    LONG_OVERRUN_SLICES, SHORT_OVERRUN_SLICES, STEADY_HALVED_US, STEADY_POLLS, STEADY_POLLS_MAX,
};

/// Counts short polls to decide how closely an extension is watched.
#[derive(Debug)]
pub struct PreemptionBackoff {
    /// Short polls since the last overrun; not counted beyond the required number.
    short_polls: AtomicU32,
    /// The required number of short polls, a power of two.
    asked: AtomicU32,
    /// The time of the last change of that number, in microseconds.
    changed_us: AtomicU64,
}

impl PreemptionBackoff {
    /// Creates the state of an extension that is watched closely.
    #[must_use]
    pub fn new() -> Self {
        Self {
            short_polls: AtomicU32::new(0),
            asked: AtomicU32::new(STEADY_POLLS),
            changed_us: AtomicU64::new(0),
        }
    }

    /// Returns whether the required number of polls was short.
    #[inline]
    #[must_use]
    pub fn is_steady(&self) -> bool {
        debug_assert!(
            (STEADY_POLLS..=STEADY_POLLS_MAX).contains(&self.asked.load(Relaxed)),
            "the required number stays within its bounds"
        );
        self.short_polls.load(Relaxed) >= self.asked.load(Relaxed)
    }

    /// Records a poll that ended within its slice. Writes nothing once the extension is steady, so that workers do not
    /// contend for the count.
    #[inline]
    pub fn note_short_poll(&self, now_us: u64) {
        let polls = self.short_polls.load(Relaxed);
        if polls < self.asked.load(Relaxed) {
            self.short_polls.store(polls + 1, Relaxed);
            if polls.is_multiple_of(STEADY_POLLS) {
                self.forgive(now_us);
            }
        }
    }

    /// Records a poll that used up its slice and ran `slices` slices before detection.
    #[cold]
    pub fn note_overrun(&self, now_us: u64, slices: u64) {
        let (was_steady, is_long) = (self.is_steady(), slices >= LONG_OVERRUN_SLICES);
        if was_steady && slices < SHORT_OVERRUN_SLICES {
            return;
        }
        let kept = if is_long { 0 } else { self.short_polls.load(Relaxed) / 2 };
        self.short_polls.store(kept, Relaxed);
        self.forgive(now_us);
        if was_steady && is_long {
            self.asked.store((self.asked.load(Relaxed) * 2).min(STEADY_POLLS_MAX), Relaxed);
            self.changed_us.store(now_us, Relaxed);
        }
    }

    /// Halves the required number once for each elapsed period.
    #[cold]
    fn forgive(&self, now_us: u64) {
        let asked = self.asked.load(Relaxed);
        let halvings = now_us.saturating_sub(self.changed_us.load(Relaxed)) / STEADY_HALVED_US;
        if asked > STEADY_POLLS && halvings > 0 {
            self.asked.store((asked >> halvings.min(31)).max(STEADY_POLLS), Relaxed);
            self.changed_us.store(now_us, Relaxed);
        }
    }
}

impl Default for PreemptionBackoff {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::PreemptionBackoff;
    use crate::limits::{
        LONG_OVERRUN_SLICES, SHORT_OVERRUN_SLICES, STEADY_HALVED_US, STEADY_POLLS, STEADY_POLLS_MAX,
    };

    /// Returns the number of short polls at `now_us` until it is steady.
    fn polls_until_steady(backoff: &PreemptionBackoff, now_us: u64) -> u32 {
        let mut polls = 0;
        while !backoff.is_steady() {
            backoff.note_short_poll(now_us);
            polls += 1;
        }
        polls
    }

    #[test]
    fn each_overrun_of_a_steady_one_asks_for_twice_as_many_short_polls() {
        let backoff = PreemptionBackoff::new();
        let mut asked = STEADY_POLLS;
        for now_us in 1..=6 {
            assert_eq!(polls_until_steady(&backoff, now_us), asked);
            backoff.note_overrun(now_us, LONG_OVERRUN_SLICES);
            asked *= 2;
        }
        assert!(!backoff.is_steady());
    }

    #[test]
    fn a_steady_one_that_overruns_by_less_than_two_slices_stays_steady_and_another_one_does_not_become_so() {
        let backoff = PreemptionBackoff::new();
        for _ in 0..3 * STEADY_POLLS {
            backoff.note_short_poll(1);
            backoff.note_overrun(1, SHORT_OVERRUN_SLICES - 1);
        }
        assert!(!backoff.is_steady(), "it overruns each time");
        polls_until_steady(&backoff, 1);
        (0..100).for_each(|_| backoff.note_overrun(1, SHORT_OVERRUN_SLICES - 1));
        assert!(backoff.is_steady());
        backoff.note_overrun(1, SHORT_OVERRUN_SLICES);
        assert!(!backoff.is_steady());
    }

    #[test]
    fn a_steady_one_whose_core_is_lost_for_a_moment_is_soon_steady_again() {
        let backoff = PreemptionBackoff::new();
        polls_until_steady(&backoff, 1);
        for now_us in 1..1_000 {
            backoff.note_overrun(now_us, LONG_OVERRUN_SLICES - 1);
            assert!(!backoff.is_steady());
            assert_eq!(polls_until_steady(&backoff, now_us), STEADY_POLLS / 2);
        }
        let loops = (0..20).map(|_| backoff.note_overrun(1_000, SHORT_OVERRUN_SLICES)).count();
        assert_eq!((loops, polls_until_steady(&backoff, 1_000)), (20, STEADY_POLLS));
    }

    #[test]
    fn overruns_of_one_that_is_not_steady_begin_the_count_again_and_ask_for_no_more() {
        let backoff = PreemptionBackoff::new();
        for _ in 0..100 {
            backoff.note_short_poll(1);
            backoff.note_overrun(1, LONG_OVERRUN_SLICES);
        }
        assert_eq!(polls_until_steady(&backoff, 1), STEADY_POLLS);
    }

    #[test]
    fn what_is_asked_for_has_a_bound_and_is_halved_with_time() {
        let backoff = PreemptionBackoff::new();
        backoff.asked.store(STEADY_POLLS_MAX, super::Relaxed);
        backoff.short_polls.store(STEADY_POLLS_MAX, super::Relaxed);
        backoff.note_overrun(5, LONG_OVERRUN_SLICES);
        assert_eq!(backoff.asked.load(super::Relaxed), STEADY_POLLS_MAX);
        backoff.note_short_poll(5 + STEADY_HALVED_US);
        assert_eq!(backoff.asked.load(super::Relaxed), STEADY_POLLS_MAX / 2);
        backoff.note_overrun(5 + 3 * STEADY_HALVED_US, LONG_OVERRUN_SLICES);
        assert_eq!(backoff.asked.load(super::Relaxed), STEADY_POLLS_MAX / 8);
        backoff.note_overrun(5 + 300 * STEADY_HALVED_US, LONG_OVERRUN_SLICES);
        assert_eq!(polls_until_steady(&backoff, 5 + 300 * STEADY_HALVED_US), STEADY_POLLS);
    }
}
