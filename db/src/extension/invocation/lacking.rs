//! Invocations that wait for objects which have still to arrive from another server: not polled until those are here.
//!
//! They keep their pins and count as live, like those that have yielded. One that has waited for long is polled again in any
//! case, and wants anew what it lacks; its own limits end it.

use std::ptr::NonNull;

use super::Invocations;
use super::slot::Slot;
use crate::limits::PARKED_US_MAX;
use crate::metrics::Waits;

/// One that waits.
pub(super) struct Awaiting<O> {
    /// For a hash of a part of the store.
    lacked: (u32, u64),
    since_us: u64,
    slot: NonNull<Slot<O>>,
}

impl<O> Invocations<O> {
    /// Whether some can run at that time.
    #[inline]
    #[must_use]
    pub fn can_run(&self, now_us: u64) -> bool {
        self.runnable() > 0 || (!self.awaiting.is_empty() && self.is_overdue(now_us))
    }

    fn is_overdue(&self, now_us: u64) -> bool {
        self.awaiting.iter().any(|awaiting| awaiting.since_us + PARKED_US_MAX <= now_us)
    }

    pub(super) fn wait_for(&mut self, lacked: (u32, u64), slot: NonNull<Slot<O>>, now_us: u64) {
        self.awaiting.push(Awaiting { lacked, since_us: now_us, slot });
    }

    /// Those of a part go on that wait for one of these hashes, or for any where there are none; how long they waited is
    /// noted.
    pub fn wake(&mut self, part: u32, hashes: Option<&[u64]>, (waits, now_us): (&Waits, u64)) {
        self.go_on_where(|awaiting| {
            let (of, hash) = awaiting.lacked;
            let goes_on = of == part && hashes.is_none_or(|hashes| hashes.contains(&hash));
            if goes_on {
                waits.note(now_us.saturating_sub(awaiting.since_us));
            }
            goes_on
        });
    }

    /// All go on.
    pub fn go_on_all(&mut self) {
        self.go_on_where(|_| true);
    }

    /// Those go on that have waited for long.
    #[inline]
    pub(super) fn go_on_overdue(&mut self, now_us: u64) {
        if !self.awaiting.is_empty() {
            self.go_on_where(|awaiting| awaiting.since_us + PARKED_US_MAX <= now_us);
        }
    }

    fn go_on_where(&mut self, holds: impl Fn(&Awaiting<O>) -> bool) {
        for Awaiting { slot, .. } in self.awaiting.extract_if(.., |awaiting| holds(awaiting)) {
            // SAFETY: what waits here is ours alone.
            self.queue.push(unsafe { slot.as_ref() }.place(), slot);
        }
    }
}
