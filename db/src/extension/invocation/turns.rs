//! A turn of a worker: polls in the order of tenants' shares, each watched and charged; what follows each poll.
//!
//! The clock is read as rarely as accuracy allows: extensions with short polls are polled several times between two
//! readings ([`ClockPace`]), and the elapsed time is charged to the tenant that was polled. A turn ends with the first
//! used-up slice or when its own time is over.
//!
//! An invocation that yielded returns to its tenant's queue or waits for missing objects ([`super::waiting`]); one that
//! used up its slice waits among its tenant's parked ones. One that has met conflicts goes first there. When a worker has too many parked ones, it ends the newest
//! one of the tenant that has most. Every end leads through [`Invocations::finish`]: it passes on the reply while the
//! memory still holds it, counts the outcome, and returns the stack and the slot for the next invocation.

use std::collections::VecDeque;
use std::ptr::NonNull;

use guest::cycles;
use wire::Status;

use super::Invocations;
use super::ending::{Body, Ending};
use super::fair::{PlaceId, Runnable};
use super::state::{InvocationState, PollOutcome};
use crate::extension::allowance::{Exceeded, Limit, Overdrawn};
use crate::limits::{
    INVOCATIONS_PER_TURN, PARKED_LOOK_US, POLLS_PER_READING, SLICES_CHARGED_MAX, TURN_SLICES,
};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::tenant::ledger::Entry;

impl<O> Invocations<O> {
    /// Runs a turn: polls ready invocations in the order of tenants' shares, up to the first used-up slice and no
    /// longer than [`TURN_SLICES`]. Calls `on_done` with origin, status and body of each one that ended; the body is
    /// valid during that call.
    pub fn run(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        if self.slots.let_go_of_retired() {
            self.pools.instances.let_go_of_retired(environment.metrics);
        }
        self.ended_last = false;
        if self.live() == 0 {
            return;
        }
        if !self.awaiting.is_empty() {
            self.go_on_overdue(environment.now_us);
        }
        if self.plain.is_some() {
            return self.run_plain(environment, on_done);
        }
        let began = cycles::now();
        self.preemption.begin(began, std::mem::take(&mut self.left_over));
        // Both readings are as old as the turn. What was lost between them counts from the next turn on.
        let worked_us = environment.now_us.saturating_sub(cycles::to_us(self.preemption.lost_in_all()));
        self.worked_us = self.worked_us.max(worked_us);
        self.end_overdue(environment, on_done);
        let ready = self.queue.ready();
        let now = self.take_turns(environment, began, on_done);
        let polled = ready.saturating_sub(self.queue.ready());
        self.long_polls = polled < INVOCATIONS_PER_TURN && now - began > self.preemption.slice() / 2;
        environment.metrics.add(Counter::InvocationCycles, now.wrapping_sub(began));
        self.preemption.rest(now);
        self.left_over = self.queue.ready() + self.queue.parked() > 0;
    }

    /// Makes the polls of a turn. Reads the cycle counter when the tenant or the extension changes, when an invocation
    /// yields, and occasionally; each reading may end the turn. Returns the counter at its end.
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
            } else if left > 0 {
                left -= 1;
            } else {
                // Those that are ready now returned in this turn.
                self.queue.put_back(turn);
                break;
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
            match unsafe { InvocationState::poll(slot, environment, &mut self.pools, reading + slice) } {
                PollOutcome::Ended(ending) => {
                    // SAFETY: as above.
                    unsafe { slot.as_ref() }.note_short_poll(environment.now_us);
                    self.finish(slot, environment, ending, on_done);
                }
                progress @ (PollOutcome::Pending | PollOutcome::Lacks(_)) => {
                    // SAFETY: as above.
                    unsafe { slot.as_ref() }.note_short_poll(environment.now_us);
                    let now = cycles::now();
                    self.charge(environment, &mut place, now - reading);
                    self.yielded(&turn, environment, ((now - reading) / u64::from(polls), progress), on_done);
                    (reading, polls) = (now, 0);
                }
                PollOutcome::Parked => {
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

    /// Polls each waiting invocation once.
    fn run_plain(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        for _ in 0..self.live() {
            let Some(mut slot) = self.take_plain() else { return };
            // SAFETY: a slot from the queue is begun, and ours alone until it is put back.
            match unsafe { InvocationState::poll(slot, environment, &mut self.pools, u64::MAX) } {
                PollOutcome::Ended(ending) => self.finish(slot, environment, ending, on_done),
                PollOutcome::Pending | PollOutcome::Lacks(_) | PollOutcome::Parked => {
                    // SAFETY: as above.
                    unsafe { slot.as_mut() }.keep_lent(environment);
                    self.note_asking(slot);
                    if let Some(queue) = &mut self.plain {
                        queue.push_back(slot);
                    }
                }
            }
        }
    }

    /// Charges the polls since the last reading to this place.
    #[inline]
    fn charge(&mut self, environment: &WorkerEnvironment<'_>, place: &mut Option<PlaceId>, cycles: u64) {
        if let Some(place) = place.take() {
            let cycles = cycles.min(SLICES_CHARGED_MAX * self.preemption.slice());
            self.charge_tenant(environment, place, cycles);
        }
    }

    /// Charges a tenant for its use of the thread, in its share and its ledger.
    #[inline]
    fn charge_tenant(&mut self, environment: &WorkerEnvironment<'_>, place: PlaceId, cycles: u64) {
        let account = self.queue.charge(place, cycles);
        account.ledger.page(environment.core.index()).add(Entry::InvocationCycles, cycles);
    }

    /// Ends parked invocations that are too old, because their pins prevent memory from being freed.
    #[inline]
    fn end_overdue(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        if self.queue.parked() == 0 || environment.now_us < self.parked_look_us {
            return;
        }
        self.parked_look_us = environment.now_us + PARKED_LOOK_US;
        let worked_us = self.worked_us;
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

    #[cold]
    fn yielded(
        &mut self,
        &Runnable { item: mut slot, was_parked, .. }: &Runnable<NonNull<InvocationState<O>>>,
        environment: &WorkerEnvironment<'_>,
        (used, progress): (u64, PollOutcome),
        on_done: &mut (impl FnMut(O, Status, &[u8]) + ?Sized),
    ) {
        // SAFETY: a slot in hand is ours alone.
        let yielding = unsafe { slot.as_mut() };
        let charged = used.min(yielding.cycles_charged_max(self.preemption.slice()));
        let worked_us = self.worked_us;
        let kill = yielding.charge(environment, charged, worked_us);
        self.note_asking(slot);
        if let Some(kill) = kill.or_else(|| self.hold(slot, worked_us)) {
            return self.finish(slot, environment, Ending::killed(kill), on_done);
        }
        match self.push_back_yielded(slot, environment) {
            Some(pushed_back) => self.finish(slot, environment, pushed_back, on_done),
            None => match progress {
                // The missing object of a parked one may have arrived without a wake-up: it is polled once more.
                PollOutcome::Lacks(awaited) if !was_parked => self.wait_for(awaited, slot, environment),
                _ => self.queue_again(slot, false),
            },
        }
    }

    /// Returns an invocation to its tenant's queue: to its end, or to its front if it
    /// [goes first](InvocationState::goes_first).
    fn queue_again(&mut self, slot: NonNull<InvocationState<O>>, was_parked: bool) {
        // SAFETY: a slot in hand is ours alone.
        let (place, goes_first) = unsafe { (slot.as_ref().place(), slot.as_ref().goes_first()) };
        if goes_first {
            self.queue.put_back(Runnable { place, item: slot, was_parked });
        } else if was_parked {
            self.queue.park(place, slot);
        } else {
            self.queue.push(place, slot);
        }
    }

    #[cold]
    fn overran(
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
        let worked_us = self.worked_us;
        let kill = overrunner.charge(environment, charged, worked_us);
        self.note_asking(slot);
        if let Some(kill) = kill.or_else(|| self.hold(slot, worked_us)) {
            return self.finish(slot, environment, Ending::killed(kill), on_done);
        }
        if let Some(pushed_back) = self.push_back_preempted(slot, environment) {
            return self.finish(slot, environment, pushed_back, on_done);
        }
        self.queue_again(slot, true);
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

    fn finish(
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
            && let Some(counter) = overdrawn.exceeded.limit.counter()
        {
            environment.metrics.count(counter);
        }
        if let Some(stack) = ended.abandon() {
            self.pools.stacks.give(stack);
        }
        environment.core.see(std::mem::take(&mut ended.seen));
        if let Some(origin) = ended.take_origin() {
            on_done(origin, ending.status(), ended.body(&ending));
        }
        if ended.is_traced() | (*ended.counted_bytes() > 0) {
            self.finalize(slot, environment, ending.status());
        }
        // SAFETY: as above.
        let ended = unsafe { slot.as_mut() };
        if let Some(module) = ended.take_module() {
            self.pools.instances.give(module, environment.metrics);
        }
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

    /// Publishes the recording of a finished traced invocation to its readers.
    #[cold]
    fn publish(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
        status: Status,
    ) {
        // SAFETY: a slot in hand is ours alone.
        let (recorder, extension) = unsafe { slot.as_mut() }.untrace();
        if let (Some(mut recorder), Some(extension)) = (recorder, extension) {
            if !extension.log.traces.publish(recorder.end(status, environment.now_us)) {
                recorder.rest_no_more();
            }
            self.recorder = Some(recorder);
        }
    }

    /// Takes the oldest queued invocation.
    fn take_plain(&mut self) -> Option<NonNull<InvocationState<O>>> {
        self.plain.as_mut().and_then(VecDeque::pop_front)
    }
}

/// Decides how many polls of an extension run between two clock readings: one until they proved short.
pub(super) struct ClockPace {
    extension: *const (),
    polls: u32,
}

impl ClockPace {
    /// Creates a pace without measurements.
    pub(super) fn new() -> Self {
        Self { extension: std::ptr::null(), polls: 1 }
    }

    /// Notes that a poll of this extension follows.
    #[inline]
    fn of(&mut self, extension: *const ()) {
        if self.extension != extension {
            *self = Self { extension, polls: 1 };
        }
    }

    /// Notes that `polls` polls took `cycles` cycles.
    #[inline]
    fn measured(&mut self, cycles: u64, polls: u32, slice: u64) {
        let short = cycles * u64::from(POLLS_PER_READING) < u64::from(polls) * slice / 2;
        self.polls = if short { POLLS_PER_READING } else { 1 };
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
        Status::PushedBack => Some(Counter::InvocationsPushedBack),
        Status::Retry => None,
        _ => Some(Counter::InvocationsFailed),
    }
}
