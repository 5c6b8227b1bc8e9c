//! Invocations of one worker: started, polled in turns, committed or forgotten, answered.
//!
//! ```text
//!   start ─▶ queue ─▶ poll on a stack ─┬─ pending: keep the pin, to the end of the queue
//!                                      ├─ well: commit ─▶ answer          (conflict: from the start again)
//!                                      └─ error, panic, out of memory or stack, over a limit: answer
//! ```
//!
//! An invocation owns a slot: its memory, its call, its access. Slots are reused, so that nothing is
//! allocated on the way once a worker has seen its load. Whatever the end, the arena is dropped as a whole
//! and no code of the extension runs any more; without a commit nothing was written.
//!
//! A function that never yields and never ends keeps the worker: preemption is what will end it, and finds
//! its place between [`Invocations::run`] and `sched::running`. One that yields for ever meets a limit.

mod ending;
mod slot;

use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use wire::Status;
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX};

use super::measures::Gauge;
use super::{Extension, retirements};
use crate::limits::{INVOCATIONS_PER_WORKER_MAX, SLOTS_KEPT_PER_WORKER};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::sched::fault::Guarded;
use crate::sched::stack::StackPool;
use ending::Ending;
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
    free: Vec<NonNull<Slot<O>>>,
    stacks: StackPool,
    slots_made: usize,
    retirements_seen: u64,
    gauge: Gauge,
    /// Also keeps this on its thread.
    _guarded: Guarded,
}

impl<O> Invocations<O> {
    /// Sets this thread up to run extensions, for good: it stays on this thread.
    ///
    /// # Errors
    /// What the kernel says when there is no memory for stacks.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            queue: VecDeque::with_capacity(INVOCATIONS_PER_WORKER_MAX),
            free: Vec::with_capacity(SLOTS_KEPT_PER_WORKER),
            stacks: StackPool::new()?,
            slots_made: 0,
            retirements_seen: retirements(),
            gauge: Gauge::new(),
            _guarded: Guarded::new()?,
        })
    }

    /// How many have not ended.
    #[inline]
    #[must_use]
    pub fn live(&self) -> usize {
        self.queue.len()
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
        if self.queue.len() >= INVOCATIONS_PER_WORKER_MAX {
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

    /// Polls every invocation that is in the queue now once; tells `on_done` origin, status and body of each
    /// that ended. The body is good for that call.
    pub fn run(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        self.let_go_of_retired();
        for _ in 0..self.queue.len() {
            let Some(slot) = self.queue.pop_front() else { return };
            self.gauge.begin();
            // SAFETY: a slot from the queue is begun, and ours alone until it is put back.
            match unsafe { Slot::poll(slot, environment, &mut self.stacks) } {
                Progress::Pending => self.queue.push_back(slot),
                Progress::Ended(ending) => self.finish(slot, environment, ending, on_done),
            }
        }
    }

    /// Ends all that have not ended, with `Unavailable`: the worker stops.
    pub fn end_all(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        while let Some(slot) = self.queue.pop_front() {
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
        for slot in self.queue.drain(..).chain(self.free.drain(..)) {
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
