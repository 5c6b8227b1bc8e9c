//! The slot of one invocation: its memory, its call over the ABI, its access. Reused by later invocations.
//!
//! A slot does not move while it exists, because the ABI holds its address. The extension writes to the call's reply
//! length and future while it runs; the worker reads them between polls only.
//!
//! This file begins an invocation, polls it, and commits it or names the reason why it ended; [`between_polls`] has
//! what the worker does with a slot while the extension does not run.

mod between_polls;

use std::io;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use guest::arena::Arena;
use guest::limits::EXTENSION_STACK_BYTES;
use guest::running::{self, ModuleEntry, ParkedStack};
use guest::stack::{Stack, StackEntry, StackOutcome, StackPool};
use guest::wasm::settings::MODULE_STACK_BYTES;
use sandstorm::Error;
use sandstorm::abi::wasm32::STACK_BYTES;
use sandstorm::abi::{Call, Code, OK, PENDING, RawReply, RawSlice};
use store::{AwaitedCuts, CommitError, HeldPin, RequestId};
use wire::Status;

use super::ending::Ending;
use super::fair::PlaceId;
use crate::extension::access::{Access, Awaited};
use crate::extension::allowance::{Allowance, Exceeded, Limit, LimitOverrides, Overdrawn, Sandbox};
use crate::extension::host::{HOST, STALLING_HOST};
use crate::extension::instances::Instances;
use crate::extension::invocation_memory::{InvocationMemory, TouchedPages};
use crate::extension::module_call::ModuleCall;
use crate::extension::native::Run;
use crate::extension::trace::{PollEnd, Recorder};
use crate::extension::{CallMode, Extension};
use crate::limits::{COMMIT_TRIES_MAX, RETRY_ARRIVING_US, RETRY_BUSY_US};
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::WorkerEnvironment;
use crate::ops::transaction::Uncommitted;
use crate::tenant::limit::TenantLimit;

/// What invocations run on and in; each takes one of these for a while.
pub(super) struct Pools {
    pub(super) stacks: StackPool,
    pub(super) instances: Instances,
}

/// The outcome of one poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollOutcome {
    /// To be polled again.
    Pending,
    /// To be polled again after this arrives.
    Lacks(Awaited),
    /// Its slice is over; to be polled again in its tenant's time.
    Parked,
    /// The invocation ended.
    Ended(Ending),
}

/// The reusable state of one invocation.
pub(super) struct InvocationState<O> {
    call: Call,
    arena: Arena,
    access: Access,
    room: InvocationMemory,
    run: Option<Run>,
    /// The number of the function in the module.
    export: usize,
    sandbox: Sandbox,
    /// The instance that runs it, from its first poll on, if it runs in a module.
    module: Option<Box<ModuleCall>>,
    mode: CallMode,
    extension: Option<Arc<Extension>>,
    /// The extension of the previous invocation, for comparison only.
    previous: *const Extension,
    /// The previous invocation was of the same extension, so the next one may be too.
    keeps_extension: bool,
    /// [`crate::tenant::account::Account::changes`] when its limits were read.
    changes_seen: u64,
    origin: Option<O>,
    /// Keeps lent memory alive; set at the first yield.
    held: Option<HeldPin>,
    /// The stack on which it was preempted.
    parked: Option<ParkedStack>,
    /// The request that it serves.
    pub(super) request: Option<RequestId>,
    /// Whether the request asks that what it writes and shows be on the disk.
    pub(super) asks_synced: bool,
    /// The cuts that include whatever it has seen so far: see [`store::Core::take_seen`].
    pub(super) seen: AwaitedCuts,
    /// The index of the function.
    function: usize,
    /// The tenant's place in the queue.
    place: PlaceId,
    /// The arrival time; from the first charge on, the time of that charge.
    started_us: u64,
    /// The cycles charged for polls that did not end it.
    cycles: u64,
    slices: u32,
    yields: u32,
    tries: u32,
    input_bytes: usize,
    /// Bytes of its reply in native memory that the server wrote.
    written_bytes: usize,
    /// Bytes of its memory counted as held; 0 between invocations.
    counted_bytes: usize,
    /// Memory touched by earlier tries; meaningless at the first try.
    touched_before: TouchedPages,
    /// The worker's recorder while this invocation is traced.
    recorder: Option<Box<Recorder>>,
}

impl<O> InvocationState<O> {
    /// Creates a slot with its memory; `number` gives each slot a different cache skew.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn new(number: usize) -> io::Result<Self> {
        let nothing = RawSlice { address: NonNull::dangling().as_ptr(), bytes: 0 };
        Ok(Self {
            call: Call {
                host: &raw const HOST,
                context: ptr::null_mut(),
                key: nothing,
                arguments: nothing,
                reply: RawReply { address: ptr::null_mut(), bytes: 0, capacity: 0, highest: 0, asked: 0 },
                future: ptr::null_mut(),
                table: 0,
                reserved: 0,
            },
            arena: Arena::empty(),
            access: Access::new(),
            room: InvocationMemory::new(number)?,
            run: None,
            export: 0,
            sandbox: Sandbox::Native,
            module: None,
            mode: CallMode::Read,
            extension: None,
            previous: ptr::null(),
            keeps_extension: false,
            changes_seen: 0,
            origin: None,
            held: None,
            parked: None,
            request: None,
            asks_synced: false,
            seen: AwaitedCuts::default(),
            function: 0,
            place: PlaceId::NONE,
            started_us: 0,
            cycles: 0,
            slices: 0,
            yields: 0,
            tries: 0,
            input_bytes: 0,
            written_bytes: 0,
            counted_bytes: 0,
            touched_before: TouchedPages::default(),
            recorder: None,
        })
    }

    /// Starts a new invocation in the slot. [`InvocationState::bring_in`] then adds its input.
    #[inline]
    pub(super) fn begin(
        &mut self,
        extension: &Arc<Extension>,
        function: usize,
        origin: O,
        now_us: u64,
        place: PlaceId,
        budget: Option<&LimitOverrides>,
    ) {
        debug_assert!(self.origin.is_none(), "the invocation before has its reply");
        debug_assert!(self.held.is_none() && self.parked.is_none(), "nothing of the one before is left");
        debug_assert_eq!(self.counted_bytes, 0, "what the one before held is given back");
        let changes = extension.account.changes();
        let is_kept = self.extension.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, extension));
        if !is_kept || self.changes_seen != changes {
            self.take_on(extension, changes, budget);
        }
        self.function = function;
        let function = &extension.functions()[function];
        (self.run, self.export) = (function.run, function.export);
        self.mode = function.mode;
        self.origin = Some(origin);
        self.started_us = now_us;
        self.place = place;
        self.cycles = 0;
        self.slices = 0;
        self.yields = 0;
        self.tries = 0;
        self.rewind();
    }

    /// Assigns the slot to `extension` with its account's limits at change number `changes`.
    #[cold]
    fn take_on(&mut self, extension: &Arc<Extension>, changes: u64, budget: Option<&LimitOverrides>) {
        let allowance = Allowance::of(&extension.account);
        // A module without a shared object runs as what it is, whatever the tenant's limit says: the stronger form.
        self.sandbox = match extension.is_native() {
            true => budget.and_then(|budget| budget.sandbox).unwrap_or(allowance.sandbox),
            false => Sandbox::Wasm,
        };
        self.access.allow(budget.map_or(allowance, |budget| budget.instead_of(allowance)));
        let stalls = budget.is_some_and(|budget| budget.stalls);
        self.access.stall(stalls);
        self.call.host = if stalls { &raw const STALLING_HOST } else { &raw const HOST };
        self.changes_seen = changes;
        let address = Arc::as_ptr(extension);
        self.keeps_extension = mem::replace(&mut self.previous, address) == address;
        self.extension = Some(Arc::clone(extension));
    }

    /// Copies the caller's input into the memory.
    #[inline]
    pub(super) fn bring_in(&mut self, table: u32, key: &[u8], arguments: &[u8]) {
        self.call.table = table;
        (self.call.key, self.call.arguments) = self.room.bring_in(key, arguments);
        self.input_bytes = key.len() + arguments.len();
    }

    /// Restores the state before the first poll.
    #[inline]
    fn rewind(&mut self) {
        debug_assert!(self.parked.is_none(), "no frame of the function is left");
        let Allowance { arena_bytes, reply_bytes, .. } = *self.access.spending().allowance();
        // SAFETY: the extension does not run, and what it had of the two parts is forgotten with this.
        let (arena, writes) = unsafe { (self.room.arena(arena_bytes), self.room.writes()) };
        let reply = self.room.reply();
        self.arena = arena;
        self.call.reply = RawReply { address: reply, bytes: 0, capacity: reply_bytes, highest: 0, asked: 0 };
        self.call.future = ptr::null_mut();
        self.written_bytes = 0;
        if let Some(extension) = &self.extension {
            self.access.begin(extension, self.mode, writes, reply);
        }
        self.call.context = (&raw mut self.access).cast();
    }

    /// Gives the invocation an instance of its module for its first poll, and returns what to run.
    ///
    /// # Errors
    /// The ending of an invocation that gets none.
    #[inline]
    fn enter_module(
        &mut self,
        instances: &mut Instances,
        metrics: &WorkerMetrics,
    ) -> Result<ModuleEntry, Ending> {
        let module = match &mut self.module {
            Some(module) => module,
            none => {
                let extension = self.extension.as_ref().ok_or(Ending::of(Status::Internal))?;
                let taken = instances.take(extension, metrics).map_err(Ending::without_instance)?;
                metrics.count(Counter::InvocationsWasm);
                none.insert(taken)
            }
        };
        if !module.is_begun() {
            let arena_bytes = self.access.spending().allowance().arena_bytes;
            // SAFETY: `bring_in` set key and arguments, which lie in the slot's own memory.
            unsafe { module.begin(&mut self.call, arena_bytes, &mut self.access) };
        }
        Ok(module.entry(self.export))
    }

    /// Polls the invocation once on a stack of its own, or resumes it where it was parked, until its slice ends (in
    /// cycles).
    ///
    /// # Safety
    /// `slot` is begun, valid, and used by nothing else meanwhile.
    #[inline]
    pub(super) unsafe fn poll(
        slot: NonNull<Self>,
        environment: &WorkerEnvironment<'_>,
        pools: &mut Pools,
        slice_ends: u64,
    ) -> PollOutcome {
        let slot = slot.as_ptr();
        // SAFETY: the slot is ours, and the extension does not run.
        let entry = match unsafe { &mut *slot } {
            Self { parked: Some(_), .. } | Self { sandbox: Sandbox::Native, .. } => None,
            this => match this.enter_module(&mut pools.instances, environment.metrics) {
                Ok(entry) => Some(entry),
                Err(ending) => return PollOutcome::Ended(ending),
            },
        };
        // SAFETY: the slot is ours; no reference to these parts is held while the extension runs.
        let (run, arena, access, call) =
            unsafe { ((*slot).run, &raw mut (*slot).arena, &raw mut (*slot).access, &raw mut (*slot).call) };
        // SAFETY: the slot is ours.
        environment.core.ask_for_disk(unsafe { (*slot).asks_synced });
        // SAFETY: `leave` follows below, and the pin of the environment is held on at each yield.
        unsafe { (*access).enter(environment) };
        // SAFETY: the slot is ours, and the extension does not run yet.
        if let Some(recorder) = unsafe { &mut (*slot).recorder } {
            recorder.begin_poll();
            // SAFETY: as above; the worker looks at the recorder again when the poll is over.
            unsafe { (*access).record(&raw mut **recorder) };
        }
        // SAFETY: the slot is ours.
        let parked = unsafe { &mut (*slot).parked };
        let (stack, outcome) = if let Some(parked) = take_parked(parked) {
            // SAFETY: parked by this invocation, with the same arena and access, and taken out just now.
            let outcome = unsafe { running::resume(&parked, arena, access.cast(), slice_ends) };
            (parked.into_stack(), outcome)
        } else {
            let unavailable = PollOutcome::Ended(Ending::of(Status::Unavailable));
            let Ok(stack) = pools.stacks.take() else { return unavailable };
            let outcome = if let Some(entry) = entry {
                // SAFETY: the entry belongs to this invocation's instance; arena and access are its own.
                unsafe { running::run_module(&stack, arena, access.cast(), slice_ends, entry) }
            } else if let Some(run) = run {
                // SAFETY: both are C functions of one pointer.
                let entry = unsafe { mem::transmute::<Run, StackEntry>(run) };
                // SAFETY: the call is as the border wants it, arena and access are this invocation's, and the code
                // of an extension may be left anywhere: what it owns is in the arena.
                unsafe { running::run(&stack, arena, access.cast(), slice_ends, entry, call.cast()) }
            } else {
                pools.stacks.give(stack);
                return unavailable;
            };
            (stack, outcome)
        };
        // SAFETY: the extension does not run any more.
        let polled = unsafe { &mut *slot };
        let outcome = polled.end_poll(environment, stack, outcome, &mut pools.stacks);
        polled.seen = polled.seen.and(environment.core.take_seen());
        outcome
    }

    /// Takes the worker's environment back after a poll and acts on its outcome.
    #[inline(always)]
    fn end_poll(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        stack: Stack,
        outcome: StackOutcome,
        stacks: &mut StackPool,
    ) -> PollOutcome {
        self.access.leave();
        let result = match &mut self.module {
            Some(module) if !outcome.is_parked() => module.polled(outcome, &mut self.call),
            _ => outcome.cause().map_or(Ok(outcome.value), Err),
        };
        if self.recorder.is_some() {
            self.record_poll(outcome.is_parked(), result == Ok(PENDING));
        }
        if outcome.is_parked() {
            debug_assert!(self.parked.is_none(), "a stack is parked once");
            self.slices += 1;
            self.parked = Some(ParkedStack::new(stack, outcome));
            return PollOutcome::Parked;
        }
        stacks.give(stack);
        match result {
            Ok(OK) => {
                let progress = self.commit(environment);
                if let Some(recorder) = &mut self.recorder {
                    recorder.committed(progress == PollOutcome::Pending);
                }
                progress
            }
            Ok(PENDING) => {
                self.yields += 1;
                self.access.take_awaited().map_or(PollOutcome::Pending, PollOutcome::Lacks)
            }
            Ok(code) => self.fail(code, environment),
            Err(cause) => self.end_badly(Ending::left(cause)),
        }
    }

    #[inline]
    fn commit(&mut self, environment: &WorkerEnvironment<'_>) -> PollOutcome {
        if self.access.transaction().needs_no_commit() {
            return PollOutcome::Ended(Ending::WELL);
        }
        let (extension, tables) = (self.extension.as_ref(), environment.tables);
        let Some(tenant) = extension.map(|extension| extension.tenant) else {
            return PollOutcome::Ended(Ending::of(Status::Internal));
        };
        let parts_of = |id| tables.get(tenant, id).map(|entry| &entry.parts);
        self.name_request(environment.core);
        // SAFETY: the first read was made under the held pin, or under this one if it never yielded.
        let committed =
            unsafe { self.access.transaction().commit(environment.pin, parts_of, self.asks_synced) };
        environment.core.end_request();
        match committed {
            Ok(()) => PollOutcome::Ended(Ending::WELL),
            Err(Uncommitted::Refused(CommitError::Conflict { .. })) if self.tries + 1 < COMMIT_TRIES_MAX => {
                environment.metrics.count(Counter::CommitConflicts);
                self.touched_before = self.touched();
                self.tries += 1;
                if let Some(module) = &mut self.module {
                    module.reset(&self.call, &mut self.access);
                }
                debug_assert!(self.tries < COMMIT_TRIES_MAX, "tries are bounded");
                self.rewind();
                self.release(environment);
                PollOutcome::Pending
            }
            Err(error) => PollOutcome::Ended(Ending::refused(error)),
        }
    }

    /// Ends the poll of a function that returned an error.
    ///
    /// A function did not cause the error if its object is in transit, or has just moved to another server. It has
    /// written nothing then, so the same request may be repeated: at the server that now owns the key of the call, or
    /// here after objects have arrived. For other keys on another server, the extension's author is responsible.
    #[cold]
    fn fail(&mut self, code: Code, environment: &WorkerEnvironment<'_>) -> PollOutcome {
        let is_of = |error: Error| code == error.code();
        let ending = if is_of(Error::Unavailable) && self.access.may_come_again() {
            Ending::come_again(RETRY_ARRIVING_US)
        } else if is_of(Error::NotLocal) && self.has_lost_its_key(environment) {
            Ending::come_again(RETRY_BUSY_US)
        } else {
            Ending::failed(code, self.access.version_found())
        };
        self.end_badly(ending)
    }

    /// Returns whether the key of the call, which was here at the start, now belongs to another server.
    fn has_lost_its_key(&self, environment: &WorkerEnvironment<'_>) -> bool {
        let tenant = self.extension.as_ref().map(|extension| extension.tenant);
        let entry = tenant.and_then(|tenant| environment.tables.get(tenant, self.call.table));
        // SAFETY: the key lies in the room from the beginning of the invocation to its end.
        let key = unsafe { self.call.key.as_slice() };
        entry.is_some_and(|entry| entry.parts.find(key, store::hash(key)).is_none())
    }

    /// Returns the end caused by its function or its arena, with the reached limit if any.
    #[cold]
    fn end_badly(&mut self, ending: Ending) -> PollOutcome {
        let Allowance { arena_bytes, reply_bytes, .. } = *self.access.spending().allowance();
        let of = |limit, value: usize, used: usize| {
            Some(Exceeded { limit: Limit::Tenant(limit), value: value as u64, used: used as u64 })
        };
        let exceeded = match ending.status() {
            Status::LimitExceeded => self.access.spending().exceeded(),
            Status::ReplyTooLarge => {
                let reply = &self.call.reply;
                of(TenantLimit::InvocationReplyBytes, reply_bytes, reply.bytes.max(reply.asked))
            }
            Status::ExtensionOutOfMemory => {
                let asked_bytes = match &self.module {
                    Some(module) => module.arena_asked_bytes(),
                    None => self.arena.asked_bytes(),
                };
                of(TenantLimit::InvocationArenaBytes, arena_bytes, asked_bytes)
            }
            Status::ExtensionStackOverflow => {
                let stack_bytes = match &self.module {
                    // The smaller one of its two stacks.
                    Some(_) => MODULE_STACK_BYTES.min(STACK_BYTES),
                    None => EXTENSION_STACK_BYTES,
                };
                let value = stack_bytes as u64;
                Some(Exceeded { limit: Limit::StackBytes, value, used: value })
            }
            _ => None,
        };
        PollOutcome::Ended(match exceeded {
            Some(exceeded) => ending.naming(Overdrawn { exceeded, usage: None }),
            None => ending,
        })
    }

    #[cold]
    fn record_poll(&mut self, parked: bool, yielded: bool) {
        let end = match (parked, yielded) {
            (true, _) => PollEnd::Parked,
            (_, true) => PollEnd::Yielded,
            _ => PollEnd::Ended,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.end_poll(end);
        }
    }

    fn release(&mut self, environment: &WorkerEnvironment<'_>) {
        if let Some(held) = self.held.take() {
            environment.core.release(held);
        }
    }
}

/// Takes the parked stack; writes nothing in the usual case that there is none.
#[inline(always)]
fn take_parked(parked: &mut Option<ParkedStack>) -> Option<ParkedStack> {
    if parked.is_some() { parked.take() } else { None }
}
