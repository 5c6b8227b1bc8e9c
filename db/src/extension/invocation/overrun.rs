//! The handling of a polled invocation that has not ended: its charge, its limits, its next slice.
//!
//! An invocation that yielded returns to its tenant's queue or waits for missing objects ([`super::lacking`]); one that
//! used up its slice waits among its tenant's parked ones. When a worker has too many parked ones, it ends the newest
//! one of the tenant that has most; it also ends one that would hold more memory than its tenant may
//! ([`super::holding`]).

use std::ptr::NonNull;

use guest::cycles;
use wire::Status;

use super::Invocations;
use super::budget::Overdrawn;
use super::ending::Ending;
use super::fair::Runnable;
use super::state::{InvocationState, PollOutcome};
use crate::extension::allowance::{Exceeded, Limit};
use crate::limits::PARKED_LOOK_US;
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;

impl<O> Invocations<O> {
    /// Ends parked invocations that are too old, because their pins prevent memory from being freed.
    #[inline]
    pub(super) fn end_overdue(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        if self.queue.parked() == 0 || environment.now_us < self.parked_look_us {
            return;
        }
        self.parked_look_us = environment.now_us + PARKED_LOOK_US;
        let worked_us = self.worked_us(environment);
        // SAFETY: what waits in the queue is ours alone.
        let overdue =
            |slot: &NonNull<InvocationState<O>>| unsafe { slot.as_ref() }.overdue(worked_us).is_some();
        while let Some(slot) = self.queue.take_parked(overdue) {
            // SAFETY: as above.
            if let Some(kill) = unsafe { slot.as_ref() }.overdue(worked_us) {
                self.finish(slot, environment, Ending::killed(kill), on_done);
            }
        }
    }

    /// Returns the clock for the age of invocations, in microseconds; it stops while something else has the core.
    fn worked_us(&self, environment: &WorkerEnvironment<'_>) -> u64 {
        environment.now_us.saturating_sub(cycles::to_us(self.preemption.lost_in_all()))
    }

    #[cold]
    pub(super) fn yielded(
        &mut self,
        &Runnable { item: mut slot, was_parked, .. }: &Runnable<NonNull<InvocationState<O>>>,
        environment: &WorkerEnvironment<'_>,
        (used, progress): (u64, PollOutcome),
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        // SAFETY: a slot in hand is ours alone.
        let yielding = unsafe { slot.as_mut() };
        let charged = used.min(yielding.cycles_charged_max(self.preemption.slice()));
        let worked_us = self.worked_us(environment);
        let kill = yielding.charge(environment, charged, worked_us);
        self.note_asking(slot);
        match kill.or_else(|| self.hold(slot, worked_us)) {
            Some(kill) => self.finish(slot, environment, Ending::killed(kill), on_done),
            None => match progress {
                // The missing object of a parked one may have arrived without a wake-up: it is polled once more.
                PollOutcome::Lacks(awaited) if !was_parked => self.wait_for(awaited, slot, environment),
                // SAFETY: as above.
                _ => self.queue.push(unsafe { slot.as_ref() }.place(), slot),
            },
        }
    }

    #[cold]
    pub(super) fn overran(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
        used: u64,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        environment.metrics.count(Counter::Preemptions);
        // Neither the invocation nor its tenant pays for time in which something else had the core.
        let used = used.saturating_sub(self.preemption.lost(cycles::now()));
        // SAFETY: a slot in hand is ours alone.
        let overrunner = unsafe { slot.as_mut() };
        let charged = used.min(overrunner.cycles_charged_max(self.preemption.slice()));
        self.charge_tenant(environment, overrunner.place(), charged);
        overrunner.note_overrun(environment.now_us, used / self.preemption.slice());
        let worked_us = self.worked_us(environment);
        let (kill, place) = (overrunner.charge(environment, charged, worked_us), overrunner.place());
        self.note_asking(slot);
        if let Some(kill) = kill.or_else(|| self.hold(slot, worked_us)) {
            return self.finish(slot, environment, Ending::killed(kill), on_done);
        }
        self.queue.park(place, slot);
        if self.queue.parked() > self.parked_max
            && let Some(newest) = self.queue.take_newest_of_most_parked()
        {
            // SAFETY: as above.
            let usage = Some(unsafe { newest.as_ref() }.usage(worked_us));
            let (value, used) = (self.parked_max as u64, self.parked_max as u64 + 1);
            let exceeded = Exceeded { limit: Limit::Parked, value, used };
            self.finish(newest, environment, Ending::killed(Overdrawn { exceeded, usage }), on_done);
        }
    }
}
