//! A turn of a worker: polls in the order of tenants' shares, each watched, all charged.
//!
//! The clock is read as seldom as measurement allows: extensions whose polls proved short are polled some times between
//! two readings ([`ClockPace`]), and what passed is charged to the tenant that was polled. A turn ends with the first slice
//! that is used up, or when its own time has passed.

use crate::extension::invocation::Invocations;
use crate::extension::invocation::fair::PlaceId;
use crate::extension::invocation::state::{InvocationState, PollOutcome};
use crate::limits::{INVOCATIONS_PER_TURN, POLLS_PER_READING, SLICES_CHARGED_MAX, TURN_SLICES};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::sched::cycles;
use crate::tenant::ledger::Entry;
use wire::Status;

impl<O> Invocations<O> {
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
        self.go_on_overdue(environment.now_us);
        if self.plain.is_some() {
            return self.run_plain(environment, on_done);
        }
        let began = cycles::now();
        self.preemption.begin(began, self.queue.parked() > 0);
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
            } else if left > 0 {
                left -= 1;
            } else {
                // What is ready now came back in this turn.
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
            match unsafe { InvocationState::poll(slot, environment, &mut self.stacks, reading + slice) } {
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
    pub(super) fn charge_tenant(&mut self, environment: &WorkerEnvironment<'_>, place: PlaceId, cycles: u64) {
        let account = self.queue.charge(place, cycles);
        account.ledger.page(environment.core.index()).add(Entry::InvocationCycles, cycles);
    }
}

/// How many polls of an extension in a row go without a look at the clock: one until they proved short.
pub(super) struct ClockPace {
    extension: *const (),
    polls: u32,
}

impl ClockPace {
    /// Nothing is known yet.
    pub(super) fn new() -> Self {
        Self { extension: std::ptr::null(), polls: 1 }
    }

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
