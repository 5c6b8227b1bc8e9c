//! Invocations that wait for objects in transit or for reads at other servers. They are not polled until those arrive.
//!
//! They keep their pins and count as live, like those that have yielded. After a long wait an invocation is polled
//! again in any case: it requests objects in transit again, and an unanswered remote read fails; its own limits end it.

use std::ptr::NonNull;

use cluster::limits::REMOTE_READ_US_MAX;

use super::Invocations;
use super::state::InvocationState;
use crate::extension::access::Awaited;
use crate::limits::{PENDING_US_MAX, REMOTE_READ_SLACK_US};
use crate::metrics::{Counter, Waits};
use crate::ops::WorkerEnvironment;
use crate::ops::remote::RemoteAnswer;

/// A waiting invocation.
pub(super) struct Awaiting<O> {
    awaited: Awaited,
    since_us: u64,
    slot: NonNull<InvocationState<O>>,
}

impl<O> Awaiting<O> {
    /// Returns whether it has waited too long at `now_us`.
    fn is_overdue(&self, now_us: u64) -> bool {
        let patience_us = match self.awaited {
            Awaited::Arrival(..) => PENDING_US_MAX,
            Awaited::Answers(_) => REMOTE_READ_US_MAX + REMOTE_READ_SLACK_US,
        };
        self.since_us + patience_us <= now_us
    }
}

impl<O> Invocations<O> {
    /// Returns whether any invocation can run at `now_us`.
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

    /// Registers an invocation with remote reads for replies. Called after each poll that did not end it.
    #[cold]
    pub(super) fn note_asking(&mut self, slot: NonNull<InvocationState<O>>) {
        // SAFETY: a slot in hand is ours alone.
        if let Some(number) = unsafe { slot.as_ref() }.asks_as() {
            self.asking.insert(number, slot);
        }
    }

    /// Wakes invocations that wait for one of these hashes of a part, or for any hash of it if `hashes` is `None`;
    /// records how long they waited.
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

    /// Delivers replies to the invocations that asked, and wakes those without unanswered reads. Replies to ended
    /// invocations are dropped.
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

    /// Wakes all waiting invocations.
    pub fn go_on_all(&mut self) {
        self.go_on_where(|_| true);
    }

    /// Wakes invocations that have waited too long.
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
