//! Invocations of one worker: started, polled in turns, committed or forgotten, answered.
//!
//! ```text
//!   start ─▶ queue ─▶ poll on a stack ─┬─ pending: keep the pin, to the end of its tenant's queue
//!                                      ├─ pending for an object that is not here: keep the pin, until it has come
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
mod ends;
mod fair;
mod holding;
mod lacking;
mod offer;
mod overrun;
mod plain;
mod state;
mod table;
mod tracing;
mod turns;

pub use budget::LimitOverrides;
pub use offer::Offer;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use wire::Status;
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX};

use super::Extension;
use super::allowance::Limit;
use super::trace::Recorder;
use super::version_metrics::Gauge;
use crate::limits::{INVOCATIONS_PER_WORKER_MAX, UNCOUNTED_INPUT_BYTES};
use crate::ops::WorkerEnvironment;
use crate::sched::cycles;
use crate::sched::fault::Guarded;
use crate::sched::preempt::Preemption;
use crate::sched::stack::StackPool;
use crate::tablet::NumberHash;
use crate::tenant::TenantId;
use crate::tenant::limit::TenantLimit;
use fair::{Fair, PlaceId};
use holding::Holding;
use lacking::Awaiting;
use state::InvocationState;
use table::InvocationTable;
use turns::ClockPace;

/// An invocation that was not started, with what was to find its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedInvocation<O> {
    /// Why.
    pub status: Status,
    /// The limit that holds it off, if the status is `Throttled`.
    pub limit: Option<Limit>,
    /// Given back.
    pub origin: O,
}

/// The invocations of one worker. `O` says where the answer of one goes.
pub struct Invocations<O> {
    queue: Fair<NonNull<InvocationState<O>>>,
    /// Those that wait for objects.
    awaiting: Vec<Awaiting<O>>,
    /// Those that have asked other servers, by the numbers that answers name.
    asking: HashMap<u64, NonNull<InvocationState<O>>, NumberHash>,
    slots: InvocationTable<O>,
    holding: Holding,
    stacks: StackPool,
    gauge: Gauge,
    /// Those of a worker without isolation, which uses no other queue.
    plain: Option<VecDeque<NonNull<InvocationState<O>>>>,
    /// In place of what accounts allow.
    budget: Option<LimitOverrides>,
    parked_max: usize,
    preemption: Preemption,
    /// When the deadlines of the parked ones are looked at next, in microseconds.
    parked_look_us: u64,
    pace: ClockPace,
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
        Self::paced(None, LimitOverrides::default())
    }

    /// As [`Invocations::new`], with limits that hold for each invocation whatever its tenant's account says.
    ///
    /// # Errors
    /// As [`Invocations::new`].
    pub fn with_budget(budget: LimitOverrides) -> io::Result<Self> {
        Self::paced(Some(budget), budget)
    }

    fn paced(budget: Option<LimitOverrides>, pace: LimitOverrides) -> io::Result<Self> {
        Ok(Self {
            queue: Fair::new(cycles::of_us(pace.slice_us)),
            awaiting: Vec::new(),
            asking: HashMap::default(),
            slots: InvocationTable::new(pace.warm_bytes),
            holding: Holding::new(pace.held_bytes),
            stacks: StackPool::new()?,
            gauge: Gauge::new(),
            plain: None,
            budget,
            parked_max: pace.parked,
            preemption: Preemption::new(cycles::of_us(pace.slice_us))?,
            parked_look_us: 0,
            pace: ClockPace::new(),
            long_polls: false,
            ended_last: false,
            recorder: Some(Box::default()),
            _guarded: Guarded::new()?,
        })
    }

    /// Asks for where a tenant waits.
    #[inline]
    pub fn prefetch(&self, tenant: TenantId) {
        self.queue.prefetch(tenant);
    }

    /// How many have not ended.
    #[inline]
    #[must_use]
    pub fn live(&self) -> usize {
        self.runnable() + self.awaiting.len()
    }

    /// How many of them can run.
    #[inline]
    fn runnable(&self) -> usize {
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
    #[inline(always)]
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
    ) -> Result<(), RefusedInvocation<O>> {
        let refuse = |status, origin| Err(RefusedInvocation { status, limit: None, origin });
        let live = self.live();
        if live >= INVOCATIONS_PER_WORKER_MAX {
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
        if let Some(limit) = self.limit_met(place, extension, input_bytes, live) {
            self.queue.leave(place);
            return Err(RefusedInvocation { status: Status::Throttled, limit: Some(limit), origin });
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

    /// The limit for which a tenant cannot have the invocation that has just entered, where `live` others had not ended.
    #[inline(always)]
    fn limit_met(
        &mut self,
        place: PlaceId,
        extension: &Extension,
        input_bytes: usize,
        live: usize,
    ) -> Option<Limit> {
        // However many tenants crowd a worker, there is room for the next one: none has more than is free.
        let most = (INVOCATIONS_PER_WORKER_MAX - live) as u64;
        if self.queue.live(place) as u64 > extension.account.limit(TenantLimit::Invocations).min(most) {
            return Some(Limit::Tenant(TenantLimit::Invocations));
        }
        (input_bytes > UNCOUNTED_INPUT_BYTES && !self.has_room_for(place, input_bytes))
            .then_some(Limit::HeldBytes)
    }

    /// Bytes of the memory of slots that no invocation is in: of their rooms, and of their lists.
    #[cfg(test)]
    pub(super) fn kept_bytes(&mut self) -> (usize, usize) {
        self.slots.memory_bytes()
    }
}

impl<O> Drop for Invocations<O> {
    fn drop(&mut self) {
        self.go_on_all();
        let waiting = std::iter::from_fn(|| {
            self.queue.take_any().or_else(|| self.plain.as_mut().and_then(VecDeque::pop_front))
        });
        for slot in waiting {
            self.slots.give(slot, 0);
        }
    }
}
