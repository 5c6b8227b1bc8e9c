//! The invocations of one worker: start, turns of polls, commit or discard, reply.
//!
//! ```text
//!   start ─▶ queue ─▶ poll on a stack ─┬─ pending: keep the pin, go to the end of the tenant's queue
//!                                      ├─ pending for a missing object: keep the pin until the object arrives
//!                                      ├─ slice over: keep pin and stack, join the parked ones
//!                                      ├─ success: commit ─▶ reply        (conflict: start again)
//!                                      └─ error, panic, out of memory or stack, over a limit: reply
//! ```
//!
//! An invocation owns an [`InvocationState`]: its memory, its call, its access. States are
//! reused, so the path allocates nothing after a worker has seen its load. At every end the whole arena is dropped and
//! no code of the extension runs any more; without a commit nothing was written.
//!
//! [`fair`] chooses the next invocation; tenants share a worker by weight. An invocation that uses up its slice is
//! parked with its stack and resumed in its tenant's time. A turn ends with the first used-up slice or after a fixed
//! time, so that the worker looks at its port. An invocation that exceeds its tenant's limits is ended with a text that
//! names the limit.

mod ending;
mod fair;
mod pushback;
mod state;
mod table;
mod turns;
mod waiting;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use fair::{Fair, PlaceId};
use guest::cycles;
use guest::fault::Guarded;
use guest::preempt::Preemption;
use guest::stack::StackPool;
use state::{InvocationState, Pools};
use store::{NumberHash, RequestId};
use table::InvocationTable;
use turns::ClockPace;
use waiting::{Awaiting, Holding};
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX};
use wire::{Status, TenantId};

use super::Extension;
use super::allowance::Limit;
use super::instances::Instances;
use super::pushback::PushbackLimit;
use super::trace::Recorder;
use super::version_metrics::Gauge;
use crate::limits::{
    INVOCATIONS_PER_WORKER_MAX, OFFER_INPUT_BYTES, UNCOUNTED_INPUT_BYTES, WARM_BYTES_PER_WORKER,
};
use crate::ops::WorkerEnvironment;
use crate::tenant::limit::TenantLimit;

pub use super::allowance::LimitOverrides;

/// An invocation that was not started, with its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedInvocation<O> {
    /// The reason for the refusal.
    pub status: Status,
    /// The limit that was reached, if the status is `Throttled`.
    pub limit: Option<Limit>,
    /// The origin, returned to the caller.
    pub origin: O,
}

/// The invocations of one worker. `O` identifies the destination of a reply.
pub struct Invocations<O> {
    queue: Fair<NonNull<InvocationState<O>>>,
    /// Invocations that wait for objects.
    awaiting: Vec<Awaiting<O>>,
    /// Invocations that asked other servers, by the numbers in the replies.
    asking: HashMap<u64, NonNull<InvocationState<O>>, NumberHash>,
    slots: InvocationTable<O>,
    holding: Holding,
    pools: Pools,
    gauge: Gauge,
    /// The queue of a worker without isolation, which uses no other queue.
    plain: Option<VecDeque<NonNull<InvocationState<O>>>>,
    /// Limits that replace those of the accounts.
    budget: Option<LimitOverrides>,
    /// The request of an origin: see [`Invocations::identifying`].
    request_of: fn(&O) -> Option<RequestId>,
    /// Whether the request of an origin asks for the disk.
    asks_synced: fn(&O) -> bool,
    /// Whether the client of an origin can run the function itself.
    may_push_back: fn(&O) -> bool,
    pushback: PushbackLimit,
    parked_max: usize,
    preemption: Preemption,
    /// The next check of parked invocations' deadlines, in microseconds.
    parked_look_us: u64,
    pace: ClockPace,
    /// The last turn was long for the few polls that it made.
    long_polls: bool,
    ended_last: bool,
    /// The clock for the age of invocations at the last turn, in microseconds; it stops while something else has the
    /// core.
    worked_us: u64,
    /// The last turn left something that can run.
    left_over: bool,
    /// The recorder, lent to the traced invocation.
    recorder: Option<Box<Recorder>>,
    /// Also keeps this value on its thread.
    _guarded: Guarded,
}

/// An invocation that has not begun, offered by its worker to others.
///
/// It owns all that it needs: the extension, copies of key and arguments, the origin for its reply. It holds no slot,
/// no stack and no pin, and uses those of the worker that takes it. An invocation that has begun stays on its worker,
/// because its stack belongs to a thread. Arguments larger than [`OFFER_INPUT_BYTES`] are not offered: an offer moves by
/// copying, without an allocation.
pub struct Offer<O> {
    extension: Arc<Extension>,
    function: usize,
    table: u32,
    started_us: u64,
    origin: O,
    key_bytes: usize,
    input_bytes: usize,
    /// The key, followed by the arguments.
    input: [u8; OFFER_INPUT_BYTES],
}

impl<O> Offer<O> {
    /// Creates an offer with copies of key and arguments, which fit together.
    fn new(
        extension: Arc<Extension>,
        (function, table): (usize, u32),
        started_us: u64,
        (key, arguments): (&[u8], &[u8]),
        origin: O,
    ) -> Self {
        let (key_bytes, input_bytes) = (key.len(), key.len() + arguments.len());
        let mut input = [0; OFFER_INPUT_BYTES];
        input[..key_bytes].copy_from_slice(key);
        input[key_bytes..input_bytes].copy_from_slice(arguments);
        Self { extension, function, table, started_us, origin, key_bytes, input_bytes, input }
    }

    /// Returns the origin for its reply.
    #[must_use]
    pub fn origin(&self) -> &O {
        &self.origin
    }

    /// Drops the invocation and returns its origin.
    #[must_use]
    pub fn into_origin(self) -> O {
        self.origin
    }
}

impl<O> fmt::Debug for Offer<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Offer")
            .field("extension", &self.extension.name)
            .field("function", &self.function)
            .finish_non_exhaustive()
    }
}

/// The limits of invocations without isolation: none on time.
const ENDLESS: LimitOverrides = LimitOverrides {
    slice_us: u64::MAX,
    cpu_us: u64::MAX,
    wall_us: u64::MAX,
    yields: u32::MAX,
    parked: 0,
    held_bytes: usize::MAX,
    warm_bytes: WARM_BYTES_PER_WORKER,
    sandbox: None,
    stalls: false,
    push_back_after: None,
};

impl<O> Invocations<O> {
    /// Prepares this thread permanently to run extensions; the value stays on this thread.
    ///
    /// # Errors
    /// The kernel's error if there is no memory for stacks.
    pub fn new() -> io::Result<Self> {
        Self::paced(None, LimitOverrides::default())
    }

    /// Like [`Invocations::new`], with limits for each invocation that override its tenant's account.
    ///
    /// # Errors
    /// As [`Invocations::new`].
    pub fn with_budget(budget: LimitOverrides) -> io::Result<Self> {
        Self::paced(Some(budget), budget)
    }

    /// Makes commits record their replies under the request of their origin, for durable tables, and refuse to write
    /// tables in memory for one that asks for the disk. Tells which origins' clients can run their functions themselves.
    #[must_use]
    pub fn identifying(
        mut self,
        request_of: fn(&O) -> Option<RequestId>,
        asks_synced: fn(&O) -> bool,
        may_push_back: fn(&O) -> bool,
    ) -> Self {
        (self.request_of, self.asks_synced, self.may_push_back) = (request_of, asks_synced, may_push_back);
        self
    }

    /// Like [`Invocations::new`], without preemption, shares and time accounting.
    ///
    /// Each invocation is polled in order of arrival until it ends or yields. `scripts/isolation` measures the cost of
    /// isolation against this on one commit. A function that loops occupies the worker for good, so this mode is not for
    /// serving tenants; the server warns when it is chosen. Stacks, arenas, commits and the memory limits of one
    /// invocation are the same; memory held by waiting invocations is not counted.
    ///
    /// # Errors
    /// As [`Invocations::new`].
    pub fn without_isolation() -> io::Result<Self> {
        let mut invocations = Self::new()?;
        invocations.plain = Some(VecDeque::with_capacity(INVOCATIONS_PER_WORKER_MAX));
        Ok(invocations)
    }

    fn paced(budget: Option<LimitOverrides>, pace: LimitOverrides) -> io::Result<Self> {
        Ok(Self {
            queue: Fair::new(cycles::of_us(pace.slice_us)),
            awaiting: Vec::new(),
            asking: HashMap::default(),
            slots: InvocationTable::new(pace.warm_bytes),
            holding: Holding::new(pace.held_bytes),
            pools: Pools { stacks: StackPool::new()?, instances: Instances::new() },
            gauge: Gauge::new(),
            plain: None,
            budget,
            request_of: |_| None,
            asks_synced: |_| false,
            may_push_back: |_| false,
            pushback: PushbackLimit::default(),
            parked_max: pace.parked,
            preemption: Preemption::new(cycles::of_us(pace.slice_us))?,
            parked_look_us: 0,
            pace: ClockPace::new(),
            long_polls: false,
            ended_last: false,
            worked_us: 0,
            left_over: false,
            recorder: Some(Box::default()),
            _guarded: Guarded::new()?,
        })
    }

    /// Prefetches a tenant's queue.
    #[inline]
    pub fn prefetch(&self, tenant: TenantId) {
        self.queue.prefetch(tenant);
    }

    /// Returns the number of invocations that have not ended.
    #[inline]
    #[must_use]
    pub fn live(&self) -> usize {
        self.runnable() + self.awaiting.len()
    }

    /// Returns the number of invocations that can run now.
    #[inline]
    #[must_use]
    pub fn ready(&self) -> usize {
        self.queue.ready()
    }

    /// Returns the number of invocations that can run.
    #[inline]
    fn runnable(&self) -> usize {
        self.queue.ready() + self.queue.parked() + self.plain.as_ref().map_or(0, VecDeque::len)
    }

    /// Returns whether any invocation can run at `now_us`.
    #[inline]
    #[must_use]
    pub fn can_run(&self, now_us: u64) -> bool {
        self.runnable() > 0 || (!self.awaiting.is_empty() && self.is_overdue(now_us))
    }

    /// Returns whether, in the last turn, an invocation ended whose tenant has no other runnable one. Then no further
    /// reply is expected soon that could share its frame.
    #[inline]
    #[must_use]
    pub fn answered_a_last_one(&self) -> bool {
        self.ended_last
    }

    /// Returns whether the next turn may be long for few results. Then the worker sends finished replies first.
    #[inline]
    #[must_use]
    pub fn expects_long_polls(&self) -> bool {
        self.long_polls && self.live() > 0
    }

    /// Queues an invocation of `extension.functions()[function]`. Copies key and arguments.
    ///
    /// # Errors
    /// `Retry` when the worker has its maximum; `Throttled` when the tenant has its maximum on this worker or holds its
    /// maximum of memory; `KeyTooLarge`, `ArgumentsTooLarge`, `UnknownFunction`; `Unavailable` when the system has no
    /// memory for it.
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
        let (request, asks_synced) = ((self.request_of)(&origin), (self.asks_synced)(&origin));
        fresh.begin(extension, function, origin, environment.now_us, place, self.budget.as_ref());
        (fresh.request, fresh.asks_synced) = (request, asks_synced);
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

    /// Returns the limit that refuses the newly entered invocation, given that `live` others had not ended.
    #[inline(always)]
    fn limit_met(
        &mut self,
        place: PlaceId,
        extension: &Extension,
        input_bytes: usize,
        live: usize,
    ) -> Option<Limit> {
        // The next tenant finds room among any number of tenants, because none has more than is free.
        let most = (INVOCATIONS_PER_WORKER_MAX - live) as u64;
        if self.queue.live(place) as u64 > extension.account.limit(TenantLimit::Invocations).min(most) {
            return Some(Limit::Tenant(TenantLimit::Invocations));
        }
        (input_bytes > UNCOUNTED_INPUT_BYTES && !self.has_room_for(place, input_bytes))
            .then_some(Limit::HeldBytes)
    }

    /// Queues an invocation whose sizes have been checked.
    fn start_plain(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        extension: &Arc<Extension>,
        (function, table): (usize, u32),
        (key, arguments): (&[u8], &[u8]),
        origin: O,
    ) -> Result<(), RefusedInvocation<O>> {
        let Ok(mut slot) = self.slots.take() else {
            return Err(RefusedInvocation { status: Status::Unavailable, limit: None, origin });
        };
        // SAFETY: slots in hand are ours alone and stay where they are.
        let fresh = unsafe { slot.as_mut() };
        let (request, asks_synced) = ((self.request_of)(&origin), (self.asks_synced)(&origin));
        fresh.begin(extension, function, origin, environment.now_us, PlaceId::NONE, Some(&ENDLESS));
        (fresh.request, fresh.asks_synced) = (request, asks_synced);
        fresh.bring_in(table, key, arguments);
        if let Some(queue) = &mut self.plain {
            queue.push_back(slot);
        }
        Ok(())
    }

    /// Traces a new invocation if a reader wants it and no other one is traced.
    #[cold]
    fn trace(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        extension: &Arc<Extension>,
        function: usize,
        environment: &WorkerEnvironment<'_>,
    ) {
        let (account, hash) = (&extension.account, extension.functions()[function].hash);
        let is_free = self.recorder.as_ref().is_some_and(|recorder| !recorder.rests(environment.now_us));
        if !is_free || !extension.log.traces.wants(account, extension.id, hash, environment.now_us) {
            return;
        }
        if let Some(recorder) = self.recorder.take() {
            // SAFETY: a slot in hand is ours alone.
            unsafe { slot.as_mut() }.trace(recorder, environment.wall_ms);
        }
    }

    /// Removes an invocation that has not begun: the newest one of the tenant whose turn is farthest. `None` if that
    /// one has begun or cannot be offered.
    pub fn give(&mut self, environment: &WorkerEnvironment<'_>) -> Option<Offer<O>> {
        // SAFETY: slots in the queue are ours alone.
        let may_go = |slot: &NonNull<InvocationState<O>>| unsafe { slot.as_ref() }.may_be_offered();
        let mut slot = self.queue.take_farthest(may_go)?;
        // SAFETY: a slot in hand is ours alone.
        let given = unsafe { slot.as_mut() };
        let place = given.place();
        let offer = given.offer();
        self.queue.leave(place);
        let warmer = given.end(environment);
        self.slots.give(slot, warmer);
        offer
    }

    /// Takes an offered invocation, of another worker or of this one. Its age counts from its arrival at the server.
    ///
    /// # Errors
    /// As [`Invocations::start`].
    pub fn take(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        offer: Offer<O>,
    ) -> Result<(), RefusedInvocation<O>> {
        let Offer { extension, function, table, started_us, origin, key_bytes, input_bytes, input } = offer;
        let (key, arguments) = input[..input_bytes].split_at(key_bytes);
        let came = WorkerEnvironment { now_us: started_us, ..*environment };
        self.start(&came, &extension, function, table, key, arguments, origin)
    }

    /// Returns the bytes of the free states: of their memory, and of their lists.
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
