//! Invocations of one worker: started, polled in turns, committed or forgotten, answered.
//!
//! ```text
//!   start ─▶ queue ─▶ poll on a stack ─┬─ pending: keep the pin, to the end of its tenant's queue
//!                                      ├─ slice over: keep pin and stack, to the parked ones
//!                                      ├─ well: commit ─▶ answer          (conflict: from the start again)
//!                                      └─ error, panic, out of memory or stack, over a limit: answer
//! ```
//!
//! An invocation owns a slot: its memory, its call, its access. Slots are reused, so that nothing is
//! allocated on the way once a worker has seen its load. Whatever the end, the arena is dropped as a whole
//! and no code of the extension runs any more; without a commit nothing was written.
//!
//! Whose turn it is, [`fair`] says: tenants share a worker by weight. One that uses up its slice is parked, stack
//! and all, and runs on in its tenant's time. A turn ends with the first slice that is used up, or when so much
//! time has passed, so that the worker looks at its port. Whoever uses up what its tenant's account
//! allowed is ended with a text that says which limit it was.

mod budget;
mod ending;
mod fair;
mod holding;
mod offer;
mod overrun;
mod plain;
mod slot;
mod slots;
mod tracing;

pub use budget::Budget;
pub use offer::Offer;

use std::collections::VecDeque;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use wire::Status;
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX};

use super::Extension;
use super::allowance::Limit;
use super::measures::Gauge;
use super::trace::Recorder;
use crate::limits::{
    INVOCATIONS_PER_TURN, INVOCATIONS_PER_WORKER_MAX, POLLS_PER_READING, SLICES_CHARGED_MAX, TURN_SLICES,
    UNCOUNTED_INPUT_BYTES,
};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::sched::cycles;
use crate::sched::fault::Guarded;
use crate::sched::preempt::Preemption;
use crate::sched::stack::StackPool;
use crate::tenant::ledger::Entry;
use crate::tenant::limit::TenantLimit;
use ending::{Body, Ending};
use fair::{Fair, PlaceId};
use holding::Holding;
use slot::{Progress, Slot};
use slots::Slots;

/// An invocation that was not started, with what was to find its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<O> {
    /// Why.
    pub status: Status,
    /// The limit that holds it off, if the status is `Throttled`.
    pub limit: Option<Limit>,
    /// Given back.
    pub origin: O,
}

/// The invocations of one worker. `O` says where the answer of one goes.
pub struct Invocations<O> {
    queue: Fair<NonNull<Slot<O>>>,
    slots: Slots<O>,
    holding: Holding,
    stacks: StackPool,
    gauge: Gauge,
    /// Those of a worker without isolation, which uses no other queue.
    plain: Option<VecDeque<NonNull<Slot<O>>>>,
    /// In place of what accounts allow.
    budget: Option<Budget>,
    parked_max: usize,
    preemption: Preemption,
    /// When the deadlines of the parked ones are looked at next, in microseconds.
    parked_look_us: u64,
    pace: Pace,
    /// The last turn was long for the few polls that it had.
    long_polls: bool,
    ended_last: bool,
    /// Lent to the invocation that is traced.
    recorder: Option<Box<Recorder>>,
    /// Also keeps this on its thread.
    _guarded: Guarded,
}

impl<O> Invocations<O> {
    /// Sets this thread up to run extensions, for good: it stays on this thread.
    ///
    /// # Errors
    /// What the kernel says when there is no memory for stacks.
    pub fn new() -> io::Result<Self> {
        Self::paced(None, Budget::default())
    }

    /// As [`Invocations::new`], with limits that hold for each invocation whatever its tenant's account says.
    ///
    /// # Errors
    /// As [`Invocations::new`].
    pub fn with_budget(budget: Budget) -> io::Result<Self> {
        Self::paced(Some(budget), budget)
    }

    fn paced(budget: Option<Budget>, pace: Budget) -> io::Result<Self> {
        Ok(Self {
            queue: Fair::new(cycles::of_us(pace.slice_us)),
            slots: Slots::new(pace.warm_bytes),
            holding: Holding::new(pace.held_bytes),
            stacks: StackPool::new()?,
            gauge: Gauge::new(),
            plain: None,
            budget,
            parked_max: pace.parked,
            preemption: Preemption::new(cycles::of_us(pace.slice_us))?,
            parked_look_us: 0,
            pace: Pace { extension: std::ptr::null(), polls: 1 },
            long_polls: false,
            ended_last: false,
            recorder: Some(Box::default()),
            _guarded: Guarded::new()?,
        })
    }

    /// How many have not ended.
    #[inline]
    #[must_use]
    pub fn live(&self) -> usize {
        self.queue.ready() + self.queue.parked() + self.plain.as_ref().map_or(0, VecDeque::len)
    }

    /// Whether in the last turn one ended whose tenant has no other that can run: nothing more comes soon that its
    /// answer could go with.
    #[inline]
    #[must_use]
    pub fn answered_a_last_one(&self) -> bool {
        self.ended_last
    }

    /// Whether the next turn may well be long for what gets done in it: then answers that are ready are better
    /// sent before it.
    #[inline]
    #[must_use]
    pub fn expects_long_polls(&self) -> bool {
        self.long_polls && self.live() > 0
    }

    /// Takes an invocation of `extension.functions()[function]` into the queue. Copies key and arguments.
    ///
    /// # Errors
    /// `Retry` when the worker has as many as it may, `Throttled` when the tenant has on this worker, or holds as
    /// much memory as it may, `KeyTooLarge`, `ArgumentsTooLarge`, `UnknownFunction`, `Unavailable` when the system has no memory for it.
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
        let refuse = |status, origin| Err(Refused { status, limit: None, origin });
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
        if self.plain.is_some() {
            return self.start_plain(environment, extension, (function, table), (key, arguments), origin);
        }
        let place = self.queue.enter(&extension.account);
        let input_bytes = key.len() + arguments.len();
        if let Some(limit) = self.limit_met(place, extension, input_bytes) {
            self.queue.leave(place);
            return Err(Refused { status: Status::Throttled, limit: Some(limit), origin });
        }
        let Ok(mut slot) = self.slots.take() else {
            self.queue.leave(place);
            return refuse(Status::Unavailable, origin);
        };
        // SAFETY: slots in hand are ours alone and stay where they are.
        let fresh = unsafe { slot.as_mut() };
        fresh.begin(extension, function, origin, environment.now_us, place, self.budget.as_ref());
        fresh.bring_in(table, key, arguments);
        if input_bytes > UNCOUNTED_INPUT_BYTES {
            self.hold_input(slot);
        }
        if extension.account.is_traced() {
            self.trace(slot, extension, function, environment);
        }
        self.queue.push(place, slot);
        Ok(())
    }

    /// The limit for which a tenant cannot have the invocation that has just entered.
    #[inline]
    fn limit_met(&mut self, place: PlaceId, extension: &Extension, input_bytes: usize) -> Option<Limit> {
        // However many tenants crowd a worker, there is room for the next one: none has more than is free.
        let most = (INVOCATIONS_PER_WORKER_MAX - self.live()) as u64;
        if self.queue.live(place) as u64 > extension.account.limit(TenantLimit::Invocations).min(most) {
            return Some(Limit::Tenant(TenantLimit::Invocations));
        }
        (input_bytes > UNCOUNTED_INPUT_BYTES && !self.has_room_for(place, input_bytes))
            .then_some(Limit::HeldBytes)
    }

    /// A turn: polls invocations as tenants' shares have it, as often as some are ready now, up to the first
    /// slice that is used up and no longer than [`TURN_SLICES`]; tells `on_done` origin, status and body of each
    /// that ended. The body is good for that call.
    pub fn run(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        self.slots.let_go_of_retired();
        self.ended_last = false;
        if self.live() == 0 {
            return;
        }
        if self.plain.is_some() {
            return self.run_plain(environment, on_done);
        }
        let began = cycles::now();
        self.preemption.begin(began);
        self.end_overdue(environment, on_done);
        let ready = self.queue.ready();
        let now = self.take_turns(environment, began, on_done);
        let polled = ready.saturating_sub(self.queue.ready());
        self.long_polls = polled < INVOCATIONS_PER_TURN && now - began > self.preemption.slice() / 2;
        environment.metrics.add(Counter::InvocationCycles, now.wrapping_sub(began));
        self.preemption.rest(now);
    }

    /// The polls of a turn. The cycle counter is read when the tenant or the extension changes, when one yields, and
    /// now and then; each reading may end the turn. When it ended, by that counter.
    fn take_turns(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        began: u64,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) -> u64 {
        let slice = self.preemption.slice();
        let (ends, mut left) = (began.saturating_add(TURN_SLICES * slice), self.queue.ready());
        let (mut reading, mut polls, mut extension, mut place) = (began, 0, std::ptr::null(), None);
        let mut may_unpark = true;
        while reading <= ends && (left > 0 || (may_unpark && self.queue.parked() > 0)) {
            let Some(turn) = self.queue.next(may_unpark) else { break };
            if turn.was_parked {
                may_unpark = false;
            } else if left == 0 {
                // What is ready now came back in this turn.
                self.queue.put_back(turn);
                break;
            } else {
                left -= 1;
            }
            let slot = turn.item;
            // SAFETY: a slot in hand is ours alone.
            let of = unsafe { slot.as_ref() }.extension_address();
            if polls == self.pace.polls || ((of != extension || turn.was_parked) && polls > 0) {
                let now = cycles::now();
                self.charge(environment, &mut place, now - reading);
                self.pace.measured(now - reading, polls, slice);
                (reading, polls) = (now, 0);
                if now >= ends {
                    self.queue.put_back(turn);
                    return now;
                }
            }
            polls += 1;
            self.pace.of(of.cast());
            (extension, place) = (of, Some(turn.place));
            if turn.was_parked {
                self.preemption.watch_closely(reading);
            } else {
                // SAFETY: as above.
                self.preemption.watch(reading, unsafe { slot.as_ref() }.slices_ahead());
            }
            self.gauge.begin();
            // SAFETY: a slot from the queue is begun, and ours alone until it is put back.
            match unsafe { Slot::poll(slot, environment, &mut self.stacks, reading + slice) } {
                Progress::Ended(ending) => {
                    // SAFETY: as above.
                    unsafe { slot.as_ref() }.note_short_poll(environment.now_us);
                    self.finish(slot, environment, ending, on_done);
                }
                Progress::Pending => {
                    // SAFETY: as above.
                    unsafe { slot.as_ref() }.note_short_poll(environment.now_us);
                    let now = cycles::now();
                    self.charge(environment, &mut place, now - reading);
                    self.yielded(slot, environment, (now - reading) / u64::from(polls), on_done);
                    (reading, polls) = (now, 0);
                }
                Progress::Parked => {
                    let now = cycles::now();
                    self.overran(slot, environment, now - reading, on_done);
                    return now;
                }
            }
        }
        let now = cycles::now();
        self.charge(environment, &mut place, now - reading);
        now
    }

    /// The polls since the last reading were of this place.
    #[inline]
    fn charge(&mut self, environment: &WorkerEnvironment<'_>, place: &mut Option<PlaceId>, cycles: u64) {
        if let Some(place) = place.take() {
            let cycles = cycles.min(SLICES_CHARGED_MAX * self.preemption.slice());
            self.charge_tenant(environment, place, cycles);
        }
    }

    /// A tenant has used the thread: its share gets smaller, and its ledger says so.
    #[inline]
    fn charge_tenant(&mut self, environment: &WorkerEnvironment<'_>, place: PlaceId, cycles: u64) {
        let account = self.queue.charge(place, cycles);
        account.ledger.page(environment.core.index()).add(Entry::InvocationCycles, cycles);
    }

    /// Ends all that have not ended, with `Unavailable`: the worker stops.
    pub fn end_all(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        while let Some(slot) = self.queue.take_any().or_else(|| self.take_plain()) {
            self.finish(slot, environment, Ending::of(Status::Unavailable), on_done);
        }
    }

    /// Ends those whose origin `ends` picks, with `BadToken`: their session is over. Looks at each once.
    pub fn end_of_sessions(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        ends: impl Fn(&O) -> bool,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        // SAFETY: what waits in a queue is ours alone.
        let ends = |slot: &NonNull<Slot<O>>| unsafe { slot.as_ref() }.origin().is_some_and(&ends);
        let mut over = self.queue.take_all(ends);
        if let Some(plain) = &mut self.plain {
            over.extend(plain.iter().copied().filter(ends));
            plain.retain(|slot| !ends(slot));
        }
        for slot in over {
            self.finish(slot, environment, Ending::of(Status::BadToken), on_done);
        }
    }

    /// Bytes of the memory of slots that no invocation is in: of their rooms, and of their lists.
    #[cfg(test)]
    pub(super) fn kept_bytes(&mut self) -> (usize, usize) {
        self.slots.memory_bytes()
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
            self.settle(slot, environment, ending.status());
        }
        // SAFETY: as above.
        let ended = unsafe { slot.as_mut() };
        if self.plain.is_none() {
            self.ended_last |= self.queue.leave(ended.place());
        }
        let warmer = ended.end(environment);
        self.slots.give(slot, warmer);
    }

    /// What few invocations need when they have ended: their trace is shown, what they held is free.
    #[cold]
    fn settle(&mut self, mut slot: NonNull<Slot<O>>, environment: &WorkerEnvironment<'_>, status: Status) {
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

impl<O> Drop for Invocations<O> {
    fn drop(&mut self) {
        let waiting = std::iter::from_fn(|| {
            self.queue.take_any().or_else(|| self.plain.as_mut().and_then(VecDeque::pop_front))
        });
        for slot in waiting {
            self.slots.give(slot, 0);
        }
    }
}

/// How many polls of an extension in a row go without a look at the clock: one until they proved short.
struct Pace {
    extension: *const (),
    polls: u32,
}

impl Pace {
    /// A poll of this extension follows.
    #[inline]
    fn of(&mut self, extension: *const ()) {
        if self.extension != extension {
            *self = Self { extension, polls: 1 };
        }
    }

    /// So many polls took so many cycles.
    #[inline]
    fn measured(&mut self, cycles: u64, polls: u32, slice: u64) {
        let short = cycles * u64::from(POLLS_PER_READING) < u64::from(polls) * slice / 2;
        self.polls = if short { POLLS_PER_READING } else { 1 };
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
