//! A turn of a worker: polls in the order of tenants' shares, each watched and charged.
//!
//! The clock is read as rarely as accuracy allows: extensions with short polls are polled several times between two
//! readings ([`ClockPace`]), and the elapsed time is charged to the tenant that was polled. A turn ends with the first
//! used-up slice or when its own time is over.

use guest::cycles;
use wire::Status;

use crate::extension::invocation::Invocations;
use crate::extension::invocation::fair::PlaceId;
use crate::extension::invocation::state::{InvocationState, PollOutcome};
use crate::limits::{INVOCATIONS_PER_TURN, POLLS_PER_READING, SLICES_CHARGED_MAX, TURN_SLICES};
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
    pub(super) fn charge_tenant(&mut self, environment: &WorkerEnvironment<'_>, place: PlaceId, cycles: u64) {
        let account = self.queue.charge(place, cycles);
        account.ledger.page(environment.core.index()).add(Entry::InvocationCycles, cycles);
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
