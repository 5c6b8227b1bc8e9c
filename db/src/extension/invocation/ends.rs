//! The ends of invocations: the reply is sent, the outcome counted, the memory kept warm for the next one.
//!
//! Every path leads through [`Invocations::finish`]: it passes on the reply while the memory still holds it, returns
//! the stack to the pool, and returns the slot to the free ones.

use std::ptr::NonNull;

use crate::extension::invocation::Invocations;
use crate::extension::invocation::budget;
use crate::extension::invocation::ending::{Body, Ending};
use crate::extension::invocation::state::InvocationState;
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use wire::Status;

impl<O> Invocations<O> {
    /// Ends all unfinished invocations with `Unavailable`, because the worker stops.
    pub fn end_all(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        self.go_on_all();
        while let Some(slot) = self.queue.take_any().or_else(|| self.take_plain()) {
            self.finish(slot, environment, Ending::of(Status::Unavailable), on_done);
        }
    }

    /// Ends invocations whose origin `ends` selects with `BadToken`, because their session is over. Examines each once.
    pub fn end_of_sessions(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        ends: impl Fn(&O) -> bool,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        self.go_on_all();
        // SAFETY: what waits in a queue is ours alone.
        let ends = |slot: &NonNull<InvocationState<O>>| unsafe { slot.as_ref() }.origin().is_some_and(&ends);
        let mut over = self.queue.take_all(ends);
        if let Some(plain) = &mut self.plain {
            over.extend(plain.iter().copied().filter(ends));
            plain.retain(|slot| !ends(slot));
        }
        for slot in over {
            self.finish(slot, environment, Ending::of(Status::BadToken), on_done);
        }
    }

    pub(super) fn finish(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
        ending: Ending,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        // SAFETY: a slot in hand is ours alone.
        let ended = unsafe { slot.as_mut() };
        if let Some(counter) = counter_of(ending.status()) {
            environment.metrics.count(counter);
        }
        if self.plain.is_none() {
            ended.measure(environment.core.index(), ending.status(), self.gauge.end());
        }
        if let Body::Overdrawn(overdrawn) = ending.body()
            && let Some(counter) = budget::counter_of(overdrawn.exceeded.limit)
        {
            environment.metrics.count(counter);
        }
        if let Some(stack) = ended.abandon() {
            self.stacks.give(stack);
        }
        if let Some(origin) = ended.take_origin() {
            on_done(origin, ending.status(), ended.body(&ending));
        }
        if ended.is_traced() | (*ended.counted_bytes() > 0) {
            self.finalize(slot, environment, ending.status());
        }
        // SAFETY: as above.
        let ended = unsafe { slot.as_mut() };
        if let Some(number) = ended.ask_no_more() {
            self.asking.remove(&number);
        }
        if self.plain.is_none() {
            self.ended_last |= self.queue.leave(ended.place());
        }
        let warmer = ended.end(environment);
        self.slots.give(slot, warmer);
    }

    /// Does the rare work after an end: publishes the trace, releases held memory.
    #[cold]
    fn finalize(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
        status: Status,
    ) {
        // SAFETY: a slot in hand is ours alone.
        let ended = unsafe { slot.as_mut() };
        if *ended.counted_bytes() > 0 {
            self.release(slot);
        }
        // SAFETY: as above.
        if unsafe { slot.as_ref() }.is_traced() {
            self.publish(slot, environment, status);
        }
    }
}

/// Returns the counter of an ending.
fn counter_of(status: Status) -> Option<Counter> {
    match status {
        Status::Ok => Some(Counter::InvocationsSucceeded),
        Status::ExtensionPanicked => Some(Counter::InvocationsPanicked),
        Status::ExtensionOutOfMemory | Status::ExtensionStackOverflow => {
            Some(Counter::InvocationsOutOfMemory)
        }
        Status::ExtensionKilled | Status::Unavailable => Some(Counter::InvocationsKilled),
        Status::Retry => None,
        _ => Some(Counter::InvocationsFailed),
    }
}
