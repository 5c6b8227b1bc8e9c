//! Invocations of one worker: started, polled in turns, committed or forgotten, answered.
//!
//! ```text
//!   start ─▶ queue ─▶ poll on a stack ─┬─ pending: keep the pin, to the end of the queue
//!                                      ├─ slice over: keep pin and stack, to the parked ones
//!                                      ├─ well: commit ─▶ answer          (conflict: from the start again)
//!                                      └─ error, panic, out of memory or stack, over a limit: answer
//! ```
//!
//! An invocation owns a slot: its memory, its call, its access. Slots are reused, so that nothing is
//! allocated on the way once a worker has seen its load. Whatever the end, the arena is dropped as a whole
//! and no code of the extension runs any more; without a commit nothing was written.
//!
//! One that uses up its slice is parked, stack and all. The parked ones run on when nothing else is to do,
//! or when enough time has passed since the last such slice, so that neither they nor the others starve.
//! A turn ends with the first slice that is used up, so that the worker looks at its port between two of
//! them. Whoever uses up its [`Budget`] is ended with a text that says which limit it was.

mod budget;
mod ending;
mod overrun;
mod slot;

pub use budget::Budget;

use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use wire::Status;
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX};

use super::measures::Gauge;
use super::{Extension, retirements};
use crate::limits::{
    INVOCATIONS_PER_WORKER_MAX, PARKED_PER_WORKER_MAX, PARKED_REST_SLICES, PARKED_REST_SLICES_OVERRUN,
    POLLS_PER_READING, SLOTS_KEPT_PER_WORKER,
};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::sched::cycles;
use crate::sched::fault::Guarded;
use crate::sched::preempt::Preemption;
use crate::sched::stack::StackPool;
use ending::{Body, Ending};
use slot::{Progress, Slot};

/// An invocation that was not started, with what was to find its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<O> {
    /// Why.
    pub status: Status,
    /// Given back.
    pub origin: O,
}

/// The invocations of one worker. `O` says where the answer of one goes.
pub struct Invocations<O> {
    queue: VecDeque<NonNull<Slot<O>>>,
    /// Used up a slice and wait for the next.
    parked: VecDeque<NonNull<Slot<O>>>,
    free: Vec<NonNull<Slot<O>>>,
    stacks: StackPool,
    slots_made: usize,
    retirements_seen: u64,
    gauge: Gauge,
    budget: Budget,
    preemption: Preemption,
    /// Whether the worker has nothing else to do.
    alone: bool,
    /// When a parked one last gave the thread back, in cycles.
    parked_ran: u64,
    /// When the deadlines of the parked ones are looked at next, in microseconds.
    parked_look_us: u64,
    /// Also keeps this on its thread.
    _guarded: Guarded,
}

impl<O> Invocations<O> {
    /// Sets this thread up to run extensions, for good: it stays on this thread.
    ///
    /// # Errors
    /// What the kernel says when there is no memory for stacks.
    pub fn new() -> io::Result<Self> {
        Self::with_budget(Budget::default())
    }

    /// As [`Invocations::new`], with limits of one's own for each invocation.
    ///
    /// # Errors
    /// As [`Invocations::new`].
    pub fn with_budget(budget: Budget) -> io::Result<Self> {
        Ok(Self {
            queue: VecDeque::with_capacity(INVOCATIONS_PER_WORKER_MAX),
            parked: VecDeque::with_capacity(budget.parked.min(PARKED_PER_WORKER_MAX)),
            free: Vec::with_capacity(SLOTS_KEPT_PER_WORKER),
            stacks: StackPool::new()?,
            slots_made: 0,
            retirements_seen: retirements(),
            gauge: Gauge::new(),
            budget,
            preemption: Preemption::new(cycles::of_us(budget.slice_us))?,
            alone: true,
            parked_ran: 0,
            parked_look_us: 0,
            _guarded: Guarded::new()?,
        })
    }

    /// How many have not ended.
    #[inline]
    #[must_use]
    pub fn live(&self) -> usize {
        self.queue.len() + self.parked.len()
    }

    /// Says whether the worker has anything else to do than invocations, now. Until then it has not.
    #[inline]
    pub fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// Takes an invocation of `extension.functions()[function]` into the queue. Copies key and arguments.
    ///
    /// # Errors
    /// `Retry` when the worker has as many as it may, `KeyTooLarge`, `ArgumentsTooLarge`,
    /// `UnknownFunction`, `Unavailable` when the system has no memory for it.
    #[expect(clippy::too_many_arguments, reason = "the parts of an invoke request, borrowed from the frame")]
    pub fn start(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        extension: &Arc<Extension>,
        function: usize,
        table: u32,
        key: &[u8],
        arguments: &[u8],
        origin: O,
    ) -> Result<(), Refused<O>> {
        let refuse = |status, origin| Err(Refused { status, origin });
        if self.live() >= INVOCATIONS_PER_WORKER_MAX {
            return refuse(Status::Retry, origin);
        }
        if key.len() > KEY_BYTES_MAX {
            return refuse(Status::KeyTooLarge, origin);
        }
        if arguments.len() > ARGUMENTS_BYTES_MAX {
            return refuse(Status::ArgumentsTooLarge, origin);
        }
        if function >= extension.functions().len() {
            return refuse(Status::UnknownFunction, origin);
        }
        let Ok(mut slot) = self.take_slot() else { return refuse(Status::Unavailable, origin) };
        // SAFETY: slots in hand are ours alone and stay where they are.
        let fresh = unsafe { slot.as_mut() };
        fresh.begin(extension, function, origin, environment.now_us);
        fresh.bring_in(table, key, arguments);
        self.queue.push_back(slot);
        Ok(())
    }

    /// Polls every invocation that is in the queue now once, up to the first that uses up its slice, and then
    /// a parked one if it is its time; tells `on_done` origin, status and body of each that ended. The body
    /// is good for that call.
    pub fn run(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        self.let_go_of_retired();
        if self.live() == 0 {
            return;
        }
        self.preemption.begin();
        let began = cycles::now();
        let idle = self.alone && self.queue.is_empty();
        let overrun = self.run_queue(environment, began, on_done);
        if !self.parked.is_empty() {
            let rest_slices = match (idle, overrun) {
                (true, _) => 0,
                (false, false) => PARKED_REST_SLICES,
                (false, true) => PARKED_REST_SLICES_OVERRUN,
            };
            self.run_parked(environment, rest_slices, on_done);
        }
        let now = cycles::now();
        environment.metrics.add(Counter::InvocationCycles, now.wrapping_sub(began));
        self.preemption.rest(now);
    }

    /// True when a slice was used up, which ended the turn.
    fn run_queue(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        began: u64,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) -> bool {
        let (mut reading, mut polls, mut extension) = (began, 0, std::ptr::null());
        for _ in 0..self.queue.len() {
            let Some(slot) = self.queue.pop_front() else { return false };
            // SAFETY: a slot in hand is ours alone.
            let of = unsafe { slot.as_ref() }.extension_address();
            if polls == POLLS_PER_READING || (of != extension && polls > 0) {
                (reading, polls) = (cycles::now(), 0);
            }
            polls += 1;
            extension = of;
            // SAFETY: as above.
            let steadiness = unsafe { slot.as_ref() }.slices_ahead();
            self.preemption.watch(reading, steadiness);
            let slice_ends = reading + self.preemption.slice();
            self.gauge.begin();
            // SAFETY: a slot from the queue is begun, and ours alone until it is put back.
            match unsafe { Slot::poll(slot, environment, &mut self.stacks, slice_ends) } {
                Progress::Ended(ending) => {
                    // SAFETY: as above.
                    unsafe { slot.as_ref() }.note_short_poll();
                    self.finish(slot, environment, ending, on_done);
                }
                Progress::Pending => {
                    // SAFETY: as above.
                    unsafe { slot.as_ref() }.note_short_poll();
                    let now = cycles::now();
                    self.yielded(slot, environment, (now - reading) / u64::from(polls), on_done);
                    (reading, polls) = (now, 0);
                }
                Progress::Parked => {
                    self.overran(slot, environment, cycles::now() - reading, on_done);
                    return true;
                }
            }
        }
        false
    }

    /// Ends all that have not ended, with `Unavailable`: the worker stops.
    pub fn end_all(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        while let Some(slot) = self.queue.pop_front().or_else(|| self.parked.pop_front()) {
            self.finish(slot, environment, Ending::of(Status::Unavailable), on_done);
        }
    }

    fn finish(
        &mut self,
        mut slot: NonNull<Slot<O>>,
        environment: &WorkerEnvironment<'_>,
        ending: Ending,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        // SAFETY: a slot in hand is ours alone.
        let ended = unsafe { slot.as_mut() };
        if let Some(counter) = counter_of(ending.status()) {
            environment.metrics.count(counter);
        }
        ended.measure(environment.core.index(), ending.status(), self.gauge.end());
        if let Body::Killed(kill) = ending.body() {
            environment.metrics.count(kill.limit.counter());
        }
        if let Some(stack) = ended.abandon() {
            self.stacks.give(stack);
        }
        if let Some(origin) = ended.take_origin() {
            on_done(origin, ending.status(), ended.body(&ending));
        }
        ended.end(environment);
        self.give_slot(slot);
    }

    fn take_slot(&mut self) -> io::Result<NonNull<Slot<O>>> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let slot = Box::new(Slot::new(self.slots_made)?);
        self.slots_made += 1;
        Ok(NonNull::from(Box::leak(slot)))
    }

    fn give_slot(&mut self, slot: NonNull<Slot<O>>) {
        if self.free.len() < SLOTS_KEPT_PER_WORKER {
            self.free.push(slot);
        } else {
            // SAFETY: leaked from a box by `take_slot`, and in no list.
            drop(unsafe { Box::from_raw(slot.as_ptr()) });
        }
    }

    /// Free slots keep the extension of their last invocation, since the next one often is of the same and
    /// counting references is dear between cores. What was removed or replaced is let go of here.
    #[inline]
    fn let_go_of_retired(&mut self) {
        let now = retirements();
        if now != self.retirements_seen {
            self.retirements_seen = now;
            for slot in &mut self.free {
                // SAFETY: free slots are ours alone.
                unsafe { slot.as_mut() }.let_go_if_retired();
            }
        }
    }
}

impl<O> Drop for Invocations<O> {
    fn drop(&mut self) {
        for slot in self.queue.drain(..).chain(self.parked.drain(..)).chain(self.free.drain(..)) {
            // SAFETY: leaked from a box by `take_slot`; each is in one list.
            drop(unsafe { Box::from_raw(slot.as_ptr()) });
        }
    }
}

/// What an ending counts as.
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
