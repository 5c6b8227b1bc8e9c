//! What becomes of an invocation that was polled and has not ended: its charge, its kill, its next slice.
//!
//! Whoever yielded goes back to the queue, whoever used up its slice waits among the parked ones. Those run
//! on one slice at a time: whenever the worker has nothing else to do, and else when some slices have passed
//! since the last one, more if this turn was cut short, since then others wait in the queue.

use std::ptr::NonNull;

use wire::Status;

use super::Invocations;
use super::budget::{Kill, Limit};
use super::ending::Ending;
use super::slot::{Progress, Slot};
use crate::limits::{PARKED_LOOK_US, SLICES_CHARGED_MAX};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::sched::cycles;

impl<O> Invocations<O> {
    /// Gives the parked invocation that waits longest a slice, if so many slices have passed since the last.
    #[cold]
    pub(super) fn run_parked(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        rest_slices: u64,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        // The poll that was timed, if any, has not ended its invocation.
        let _ = self.gauge.end();
        self.end_overdue(environment, on_done);
        let (now, slice) = (cycles::now(), self.preemption.slice());
        if now.wrapping_sub(self.parked_ran) < rest_slices * slice {
            return;
        }
        let Some(slot) = self.parked.pop_front() else { return };
        self.preemption.watch_closely(now);
        self.gauge.begin();
        // SAFETY: a parked slot is begun, and ours alone until it is put back.
        let progress = unsafe { Slot::poll(slot, environment, &mut self.stacks, now + slice) };
        self.parked_ran = cycles::now();
        let used = self.parked_ran - now;
        match progress {
            Progress::Ended(ending) => self.finish(slot, environment, ending, on_done),
            Progress::Pending => self.yielded(slot, environment, used, on_done),
            Progress::Parked => self.overran(slot, environment, used, on_done),
        }
    }

    /// Ends parked ones that are too old: their pins keep memory from being freed.
    fn end_overdue(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        if environment.now_us < self.parked_look_us {
            return;
        }
        self.parked_look_us = environment.now_us + PARKED_LOOK_US;
        for _ in 0..self.parked.len() {
            let Some(mut slot) = self.parked.pop_front() else { return };
            // SAFETY: a slot in hand is ours alone.
            match unsafe { slot.as_mut() }.charge(environment, 0, &self.budget) {
                Some(kill) => self.finish(slot, environment, Ending::killed(kill), on_done),
                None => self.parked.push_back(slot),
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
            None => self.queue.push_back(slot),
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
        let kill = overrunner.charge(environment, charged, &self.budget).or_else(|| {
            (self.parked.len() >= self.budget.parked).then(|| Kill {
                limit: Limit::Parked,
                budget: self.budget,
                used: overrunner.usage(environment.now_us),
            })
        });
        match kill {
            Some(kill) => self.finish(slot, environment, Ending::killed(kill), on_done),
            None => self.parked.push_back(slot),
        }
    }
}
