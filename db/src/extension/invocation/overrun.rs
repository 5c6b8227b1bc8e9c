//! What becomes of an invocation that was polled and has not ended: its charge, its kill, its next slice.
//!
//! Whoever yielded goes back to its tenant's queue, whoever used up its slice waits among the parked ones of its
//! tenant. When a worker has more parked ones than it may, the newest of the tenant that has most is ended.

use std::ptr::NonNull;

use wire::Status;

use super::Invocations;
use super::budget::{Kill, Limit};
use super::ending::Ending;
use super::slot::Slot;
use crate::limits::{PARKED_LOOK_US, SLICES_CHARGED_MAX};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;

impl<O> Invocations<O> {
    /// Ends parked ones that are too old: their pins keep memory from being freed.
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
        let budget = self.budget;
        // SAFETY: what waits in the queue is ours alone.
        let overdue =
            |slot: &NonNull<Slot<O>>| unsafe { slot.as_ref() }.overdue(environment, &budget).is_some();
        while let Some(slot) = self.queue.take_parked(overdue) {
            // SAFETY: as above.
            if let Some(kill) = unsafe { slot.as_ref() }.overdue(environment, &budget) {
                self.finish(slot, environment, Ending::killed(kill), on_done);
            }
        }
    }

    #[cold]
    pub(super) fn yielded(
        &mut self,
        mut slot: NonNull<Slot<O>>,
        environment: &WorkerEnvironment<'_>,
        used: u64,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        let charged = used.min(SLICES_CHARGED_MAX * self.preemption.slice());
        // SAFETY: a slot in hand is ours alone.
        match unsafe { slot.as_mut() }.charge(environment, charged, &self.budget) {
            Some(kill) => self.finish(slot, environment, Ending::killed(kill), on_done),
            // SAFETY: as above.
            None => self.queue.push(unsafe { slot.as_ref() }.place(), slot),
        }
    }

    #[cold]
    pub(super) fn overran(
        &mut self,
        mut slot: NonNull<Slot<O>>,
        environment: &WorkerEnvironment<'_>,
        used: u64,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        environment.metrics.count(Counter::Preemptions);
        let charged = used.min(SLICES_CHARGED_MAX * self.preemption.slice());
        // SAFETY: a slot in hand is ours alone.
        let overrunner = unsafe { slot.as_mut() };
        if let Some(kill) = overrunner.charge(environment, charged, &self.budget) {
            return self.finish(slot, environment, Ending::killed(kill), on_done);
        }
        self.queue.park(overrunner.place(), slot);
        if self.queue.parked() > self.budget.parked
            && let Some(newest) = self.queue.take_newest_of_most_parked()
        {
            // SAFETY: as above.
            let used = unsafe { newest.as_ref() }.usage(environment.now_us);
            let kill = Kill { limit: Limit::Parked, budget: self.budget, used };
            self.finish(newest, environment, Ending::killed(kill), on_done);
        }
    }
}
