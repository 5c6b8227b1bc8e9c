//! Invocations that wait for objects which are not here: which have still to arrive from another server, or which are read
//! there. They are not polled until those have come.
//!
//! They keep their pins and count as live, like those that have yielded. One that has waited for long is polled again in any
//! case: what has still to arrive it wants anew, what nobody answered it hears of; its own limits end it.

use std::ptr::NonNull;

use super::Invocations;
use super::state::InvocationState;
use crate::extension::access::Awaited;
use crate::limits::{PARKED_US_MAX, REMOTE_READ_SLACK_US, REMOTE_READ_US_MAX};
use crate::metrics::{Counter, Waits};
use crate::ops::WorkerEnvironment;
use crate::ops::remote::RemoteAnswer;

/// One that waits.
pub(super) struct Awaiting<O> {
    awaited: Awaited,
    since_us: u64,
    slot: NonNull<InvocationState<O>>,
}

impl<O> Awaiting<O> {
    /// Whether it has waited for long at that time.
    fn is_overdue(&self, now_us: u64) -> bool {
        let patience_us = match self.awaited {
            Awaited::Arrival(..) => PARKED_US_MAX,
            Awaited::Answers(_) => REMOTE_READ_US_MAX + REMOTE_READ_SLACK_US,
        };
        self.since_us + patience_us <= now_us
    }
}

impl<O> Invocations<O> {
    /// Whether some can run at that time.
    #[inline]
    #[must_use]
    pub fn can_run(&self, now_us: u64) -> bool {
        self.runnable() > 0 || (!self.awaiting.is_empty() && self.is_overdue(now_us))
    }

    fn is_overdue(&self, now_us: u64) -> bool {
        self.awaiting.iter().any(|awaiting| awaiting.is_overdue(now_us))
    }

    pub(super) fn wait_for(
        &mut self,
        awaited: Awaited,
        slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
    ) {
        environment.metrics.count(match awaited {
            Awaited::Arrival(..) => Counter::InvocationsLacking,
            Awaited::Answers(_) => Counter::InvocationsAsking,
        });
        self.awaiting.push(Awaiting { awaited, since_us: environment.now_us, slot });
    }

    /// Lets answers find an invocation, if it has asked for any. Called whenever it was polled and has not ended.
    #[cold]
    pub(super) fn note_asking(&mut self, slot: NonNull<InvocationState<O>>) {
        // SAFETY: a slot in hand is ours alone.
        if let Some(number) = unsafe { slot.as_ref() }.asks_as() {
            self.asking.insert(number, slot);
        }
    }

    /// Those of a part go on that wait for one of these hashes, or for any where there are none; how long they waited is
    /// noted.
    pub fn wake(&mut self, part: u32, hashes: Option<&[u64]>, (waits, now_us): (&Waits, u64)) {
        self.go_on_where(|awaiting| {
            let Awaited::Arrival(of, hash) = awaiting.awaited else { return false };
            let goes_on = of == part && hashes.is_none_or(|hashes| hashes.contains(&hash));
            if goes_on {
                waits.note(now_us.saturating_sub(awaiting.since_us));
            }
            goes_on
        });
    }

    /// Hands answers to who asked; those go on to whom nothing is open any more. What has ended meanwhile hears nothing.
    pub fn answer(&mut self, answers: &[RemoteAnswer]) {
        let mut served: Vec<u64> = Vec::with_capacity(answers.len());
        for answer in answers {
            let number = answer.asker.invocation;
            let Some(slot) = self.asking.get_mut(&number) else { continue };
            // SAFETY: those that ask are in the queue, or wait here: ours alone, and not in a poll.
            if unsafe { slot.as_mut() }.answered(answer) {
                served.push(number);
            }
        }
        served.sort_unstable();
        self.go_on_where(|awaiting| match awaiting.awaited {
            Awaited::Answers(number) => served.binary_search(&number).is_ok(),
            Awaited::Arrival(..) => false,
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
            self.go_on_where(|awaiting| {
                let is_overdue = awaiting.is_overdue(now_us);
                if is_overdue && matches!(awaiting.awaited, Awaited::Answers(_)) {
                    let mut slot = awaiting.slot;
                    // SAFETY: what waits here is ours alone.
                    unsafe { slot.as_mut() }.not_answered();
                }
                is_overdue
            });
        }
    }

    fn go_on_where(&mut self, holds: impl Fn(&Awaiting<O>) -> bool) {
        for Awaiting { slot, .. } in self.awaiting.extract_if(.., |awaiting| holds(awaiting)) {
            // SAFETY: what waits here is ours alone.
            self.queue.push(unsafe { slot.as_ref() }.place(), slot);
        }
    }
}
