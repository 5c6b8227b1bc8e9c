//! A slot while its extension does not run: its charge, its memory, its remote reads, its traces; at the end its
//! measurement and the body of the reply.
//!
//! The body lies in the memory of the invocation, and the extension's output is not copied. Heads go into the bytes
//! before it, texts of the server over it: the extension has stopped when a body is requested.
//!
//! An invocation that has not begun may leave its slot for another worker. The slot is then as after an ended
//! invocation: it keeps its memory and, for the next one, its extension.

use std::ptr;
use std::slice;
use std::sync::Arc;

use guest::cycles;
use guest::running::ParkedStack;
use guest::stack::Stack;
use sandstorm::abi::Code;
use store::Core;
use wire::Status;
use wire::limits::REPLY_BYTES_MAX;

use super::InvocationState;
use crate::extension::Extension;
use crate::extension::allowance::{Overdrawn, Usage, verdict};
use crate::extension::host::{HOST, TRACED_HOST};
use crate::extension::invocation::Offer;
use crate::extension::invocation::ending::{Body, Ending};
use crate::extension::invocation::fair::PlaceId;
use crate::extension::invocation_memory::{REPLY_HEAD_BYTES, TouchedPages};
use crate::extension::module_call::ModuleCall;
use crate::extension::pushback::FunctionCost;
use crate::extension::trace::Recorder;
use crate::extension::version_metrics::Spent;
use crate::limits::{
    COMMIT_TRIES_AMONG_OTHERS, COMPLETION_REPLY_BYTES_MAX, LAST_WORDS_BYTES_MAX, OFFER_INPUT_BYTES, SLICE_US,
    SLICES_CHARGED_MAX, STEADY_SLICES,
};
use crate::ops::WorkerEnvironment;
use crate::ops::remote::RemoteAnswer;
use crate::ops::transaction::Transaction;

impl<O> InvocationState<O> {
    /// Returns the tenant's place in the queue.
    #[inline]
    pub(in crate::extension::invocation) fn place(&self) -> PlaceId {
        self.place
    }

    /// Returns whether it has met so many conflicts that it goes before the others of its tenant.
    #[inline]
    pub(in crate::extension::invocation) fn goes_first(&self) -> bool {
        self.tries >= COMMIT_TRIES_AMONG_OTHERS
    }

    /// Returns the extension's address, to tell extensions apart.
    #[inline]
    pub(in crate::extension::invocation) fn extension_address(&self) -> *const Extension {
        self.extension.as_ref().map_or(ptr::null(), Arc::as_ptr)
    }

    /// Returns the number of yields.
    pub(in crate::extension::invocation) fn yields(&self) -> u32 {
        self.yields
    }

    /// Returns the number of commits that met a conflict.
    pub(in crate::extension::invocation) fn tries(&self) -> u32 {
        self.tries
    }

    /// Returns the extension, if its client can run the function: `may_push_back` says so of its origin.
    pub(in crate::extension::invocation) fn extension_if_client_can_run(
        &self,
        may_push_back: fn(&O) -> bool,
    ) -> Option<Arc<Extension>> {
        let extension = self.extension.as_ref().filter(|extension| !extension.is_granted())?;
        self.origin.as_ref().is_some_and(may_push_back).then(|| Arc::clone(extension))
    }

    /// Returns what its function costs.
    pub(in crate::extension::invocation) fn cost(&self) -> Option<&FunctionCost> {
        self.extension.as_ref().map(|extension| extension.cost(self.function))
    }

    /// Returns the extension, and the reads and writes.
    pub(in crate::extension::invocation) fn extension_and_transaction(
        &mut self,
    ) -> (Option<&Extension>, &mut Transaction) {
        (self.extension.as_deref(), self.access.transaction())
    }

    /// Returns the place of the reply in native memory, for `bytes` bytes that the server writes over it.
    pub(in crate::extension::invocation) fn native_reply(&mut self, bytes: usize) -> *mut u8 {
        self.note_written(bytes);
        self.room.reply()
    }

    /// Returns the origin for the reply of an unfinished invocation.
    pub(in crate::extension::invocation) fn origin(&self) -> Option<&O> {
        self.origin.as_ref()
    }

    /// Takes the origin for the reply.
    #[inline]
    pub(in crate::extension::invocation) fn take_origin(&mut self) -> Option<O> {
        self.origin.take()
    }

    /// Charges a poll of `cycles` that did not end the invocation; keeps lent memory alive until the next poll, unless
    /// the invocation has used up its limits.
    #[cold]
    pub(in crate::extension::invocation) fn charge(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        cycles: u64,
        worked_us: u64,
    ) -> Option<Overdrawn> {
        if self.cycles == 0 {
            // It ages from here on: what it waited for its first poll was its tenant's queue, and it held nothing.
            self.started_us = worked_us;
        }
        self.cycles += cycles.max(1);
        let usage = self.usage(worked_us);
        let kill = verdict(self.access.spending().allowance(), usage);
        if kill.is_none() {
            self.keep_lent(environment);
        }
        kill
    }

    /// Keeps lent memory alive until the invocation ends, because it outlives its poll.
    pub(in crate::extension::invocation) fn keep_lent(&mut self, environment: &WorkerEnvironment<'_>) {
        if self.held.is_none() {
            self.held = Some(environment.pin.hold());
        }
    }

    /// Returns the limit that the invocation exceeded while it waited.
    pub(in crate::extension::invocation) fn overdue(&self, worked_us: u64) -> Option<Overdrawn> {
        verdict(self.access.spending().allowance(), self.usage(worked_us))
    }

    /// Returns the usage so far; `worked_us` is the worker's clock, which stops while the worker has no core.
    pub(in crate::extension::invocation) fn usage(&self, worked_us: u64) -> Usage {
        Usage {
            cpu_us: cycles::to_us(self.cycles),
            wall_us: worked_us.saturating_sub(self.started_us),
            yields: self.yields,
            slices: self.slices,
        }
    }

    /// Returns [`slices_ahead`](crate::extension::Extension::slices_ahead) of its extension, capped so that the worker
    /// detects an endless poll while half of its time is left.
    #[inline]
    pub(in crate::extension::invocation) fn slices_ahead(&self) -> u64 {
        let ahead = self.extension.as_ref().map_or(1, |extension| extension.slices_ahead());
        let cpu_us = self.access.spending().allowance().cpu_us;
        // The timer is kept ahead by twice as many slices at the most.
        if cpu_us >= 4 * STEADY_SLICES * SLICE_US { ahead } else { ahead.min(cpu_us / (4 * SLICE_US)).max(1) }
    }

    /// Returns the maximum charge of a poll, in cycles: the longest run before its timer fires, and a little more.
    /// Beyond that, something else had the core.
    pub(in crate::extension::invocation) fn cycles_charged_max(&self, slice: u64) -> u64 {
        (2 * (self.slices_ahead() - 1) + SLICES_CHARGED_MAX) * slice
    }

    /// Records a poll that ended within its slice.
    #[inline]
    pub(in crate::extension::invocation) fn note_short_poll(&self, now_us: u64) {
        if let Some(extension) = &self.extension {
            extension.note_short_poll(now_us);
        }
    }

    /// Records a poll that used up its slice and ran `slices` slices before detection. Its earlier slices count too: an
    /// invocation that keeps running is long, however short each slice is.
    pub(in crate::extension::invocation) fn note_overrun(&self, now_us: u64, slices: u64) {
        if let Some(extension) = &self.extension
            && slices > 0
        {
            extension.note_overrun(now_us, slices + u64::from(self.slices.saturating_sub(1)));
        }
    }

    /// Returns the memory that all tries of the invocation have touched.
    #[inline]
    pub(super) fn touched(&mut self) -> TouchedPages {
        let touched = TouchedPages {
            input: self.input_bytes,
            reply: self.written_bytes.max(if self.module.is_none() {
                self.call.reply.touched_bytes()
            } else {
                0
            }),
            arena: self.arena.highest_bytes(),
            writes: self.access.transaction().memory_bytes(),
        };
        if self.tries > 0 { touched.or_more(self.touched_before) } else { touched }
    }

    /// Returns the bytes that a waiting invocation holds: memory, lists, and the stack that it is parked on.
    pub(in crate::extension::invocation) fn footprint_bytes(&mut self) -> usize {
        let touched = self.touched();
        let stack_bytes = self.parked.as_ref().map_or(0, ParkedStack::stack_bytes);
        let list_bytes = self.access.transaction().list_bytes() + self.access.asking_bytes();
        let module_bytes =
            self.module.as_ref().map_or(0, |module| module.held_bytes(&self.call, &self.access));
        self.room.backed_bytes(touched) + list_bytes + stack_bytes + module_bytes
    }

    /// Returns the backed bytes of key and arguments.
    pub(in crate::extension::invocation) fn input_bytes_backed(&self) -> usize {
        self.room.backed_bytes(TouchedPages { input: self.input_bytes, ..TouchedPages::default() })
    }

    /// Returns the bytes that are counted as held.
    #[inline]
    pub(in crate::extension::invocation) fn counted_bytes(&mut self) -> &mut usize {
        &mut self.counted_bytes
    }

    /// Returns the number by which replies find it, if it has remote reads.
    #[inline]
    pub(in crate::extension::invocation) fn asks_as(&self) -> Option<u64> {
        self.access.asks_as()
    }

    /// Takes a reply, between two polls. Returns true when every read is answered.
    pub(in crate::extension::invocation) fn answered(&mut self, answer: &RemoteAnswer) -> bool {
        self.access.answered(answer)
    }

    /// Fails the unanswered reads.
    pub(in crate::extension::invocation) fn not_answered(&mut self) {
        self.access.not_answered();
    }

    /// Ends the remote reads of an ended invocation; returns its number if it had any.
    #[inline]
    pub(in crate::extension::invocation) fn ask_no_more(&mut self) -> Option<u64> {
        self.access.ask_no_more()
    }

    /// Starts to trace the new invocation in the slot.
    #[cold]
    pub(in crate::extension::invocation) fn trace(&mut self, recorder: Box<Recorder>, at_ms: u64) {
        let recorder = self.recorder.insert(recorder);
        if let Some(extension) = &self.extension {
            recorder.begin(&extension.functions()[self.function].name, extension.version, at_ms);
        }
        self.call.host = &raw const TRACED_HOST;
    }

    /// Returns whether it is traced.
    #[inline]
    pub(in crate::extension::invocation) fn is_traced(&self) -> bool {
        self.recorder.is_some()
    }

    /// Returns the recorder, with the extension of the ended invocation.
    #[cold]
    pub(in crate::extension::invocation) fn untrace(
        &mut self,
    ) -> (Option<Box<Recorder>>, Option<&Extension>) {
        self.access.record(ptr::null_mut());
        self.call.host = &raw const HOST;
        (self.recorder.take(), self.extension.as_deref())
    }

    /// Returns whether the invocation has not been polled yet and is small enough to move.
    #[inline]
    pub(in crate::extension::invocation) fn may_be_offered(&self) -> bool {
        let begun = self.parked.is_some()
            || self.held.is_some()
            || (self.cycles, self.slices, self.yields, self.tries) != (0, 0, 0, 0);
        !begun
            && !self.is_traced()
            && self.input_bytes <= OFFER_INPUT_BYTES
            && self.origin.is_some()
            && self.extension.is_some()
    }

    /// Takes the invocation out of the slot, which must then be ended. `None` unless
    /// [`InvocationState::may_be_offered`].
    pub(in crate::extension::invocation) fn offer(&mut self) -> Option<Offer<O>> {
        if !self.may_be_offered() {
            return None;
        }
        let (extension, origin) = (Arc::clone(self.extension.as_ref()?), self.origin.take()?);
        let (key, arguments) = (&self.call.key, &self.call.arguments);
        // SAFETY: both were set by `bring_in` when the invocation was started, and lie in the slot's own room,
        // which nobody has written to since: the extension has not run.
        let input = unsafe { (key.as_slice(), arguments.as_slice()) };
        let called = (self.function, self.call.table);
        Some(Offer::new(extension, called, self.started_us, input, origin))
    }

    /// Returns the stack of a parked invocation that is not resumed any more.
    pub(in crate::extension::invocation) fn abandon(&mut self) -> Option<Stack> {
        let parked = self.parked.take()?;
        if let Some(module) = &mut self.module {
            module.abandon();
        }
        Some(parked.into_stack())
    }

    /// Returns the instance of an ended invocation, cleared. The body of its reply is gone then.
    #[inline]
    pub(in crate::extension::invocation) fn take_module(&mut self) -> Option<Box<ModuleCall>> {
        let mut module = self.module.take()?;
        module.reset(&self.call, &mut self.access);
        Some(module)
    }

    /// Counts the end in the metrics of the extension's version; `cycles` is the run time of the last poll, if timed.
    /// Earlier polls are charged already.
    #[inline(always)]
    pub(in crate::extension::invocation) fn measure(
        &self,
        worker: usize,
        status: Status,
        cycles: Option<u64>,
    ) {
        if let Some(extension) = &self.extension {
            let (cycles, spent) = (cycles.map(|last| last + self.cycles), self.spent());
            if status == Status::PushedBack {
                extension.metrics.pushed_back(worker);
            }
            extension.metrics.ended(worker, status, cycles, &spent);
            if let Some(cycles) = cycles.filter(|_| status == Status::Ok) {
                extension.cost(self.function).note(cycles, spent.reads, spent.writes);
            }
        }
    }

    #[inline]
    fn spent(&self) -> Spent {
        Spent {
            yields: self.yields.into(),
            preemptions: self.slices.into(),
            conflicts: self.tries.into(),
            ..self.access.spent()
        }
    }

    /// Returns the body of an ending; valid until the slot is used again.
    #[inline]
    pub(in crate::extension::invocation) fn body(&mut self, ending: &Ending) -> &[u8] {
        let reply = self.room.reply();
        let bytes = self.call.reply.bytes.min(REPLY_BYTES_MAX);
        match ending.body() {
            // SAFETY: this many bytes of the reply were written by the SDK, or are any bytes of the module's memory.
            Body::Reply => unsafe { slice::from_raw_parts(self.call.reply.address, bytes) },
            Body::Failure(number) => self.with_head(number.to_le_bytes(), bytes.min(REPLY_BYTES_MAX - 4)),
            Body::LastWords => {
                self.note_written(LAST_WORDS_BYTES_MAX);
                // SAFETY: this many bytes were copied there when the stack was left.
                unsafe { slice::from_raw_parts(reply, self.access.last_words_bytes()) }
            }
            Body::Arguments => match &self.extension {
                Some(extension) => extension.arguments(self.function).as_bytes(),
                None => &[],
            },
            Body::Version(version) => self.with_head(version.to_le_bytes(), 0),
            Body::RetryAfter(after_us) => self.with_head(after_us.to_le_bytes(), 0),
            Body::Overdrawn(overdrawn) => self.describe(overdrawn),
            Body::Limit(limit) => limit.name().as_bytes(),
            Body::PushedBack(bytes) => {
                // SAFETY: this many bytes were written there when it was pushed back.
                unsafe { slice::from_raw_parts(reply, bytes.into()) }
            }
            Body::NoModule => self.describe_missing_module(),
            Body::UnknownCode(code) => self.describe_unknown_code(code),
            Body::Empty => &[],
        }
    }

    /// Names the request of the commit that follows, with its reply.
    pub(in crate::extension::invocation) fn name_request(&mut self, core: &Core) {
        let Some(request) = self.request.filter(|_| core.store().has_durable_heads()) else { return };
        let body = self.body(&Ending::WELL);
        if body.len() > COMPLETION_REPLY_BYTES_MAX {
            core.begin_request(request, &[Status::ReplyForgotten as u8]);
        } else {
            core.begin_request(request, &[Status::Ok as u8]);
            core.begin_request(request, body);
        }
    }

    /// Notes that the server wrote a text over the first bytes of the reply in native memory.
    fn note_written(&mut self, bytes: usize) {
        self.written_bytes = self.written_bytes.max(bytes);
    }

    #[cold]
    fn describe(&mut self, overdrawn: Overdrawn) -> &[u8] {
        self.note_written(LAST_WORDS_BYTES_MAX);
        // SAFETY: the reply has this much room and more, and the extension runs no more.
        let place = unsafe { slice::from_raw_parts_mut(self.room.reply(), LAST_WORDS_BYTES_MAX) };
        let Some(extension) = &self.extension else { return &[] };
        let function = &extension.functions()[self.function].name;
        let mut bytes = self.access.last_words_bytes().min(LAST_WORDS_BYTES_MAX / 2);
        for &byte in if bytes > 0 { &b": "[..] } else { b"" } {
            place[bytes] = byte;
            bytes += 1;
        }
        bytes += overdrawn.describe(function, &extension.name, extension.version, &mut place[bytes..]);
        &place[..bytes]
    }

    /// Writes which version has no module and why, in one line.
    #[cold]
    fn describe_missing_module(&mut self) -> &[u8] {
        let Some(extension) = &self.extension else { return &[] };
        let (name, version, why) = (&extension.name, extension.version, extension.no_module_line());
        let text = format!("{name}@{version} has no module to run with sandbox=wasm ({why})");
        self.written(&text)
    }

    /// Writes which function returned a code that is none of the SDK's.
    #[cold]
    fn describe_unknown_code(&mut self, code: Code) -> &[u8] {
        let Some(extension) = &self.extension else { return &[] };
        let (name, version) = (&extension.name, extension.version);
        let function = &extension.functions()[self.function].name;
        let text = format!("the code {code} is none of the SDK's: returned in {name}@{version} {function}");
        self.written(&text)
    }

    /// Writes a text over the first bytes of the reply in native memory, and returns it, cut if it is long.
    fn written(&mut self, text: &str) -> &[u8] {
        self.note_written(LAST_WORDS_BYTES_MAX);
        let bytes = text.floor_char_boundary(LAST_WORDS_BYTES_MAX);
        // SAFETY: the reply has this much room and more, and the extension does not run.
        let place = unsafe { slice::from_raw_parts_mut(self.room.reply(), bytes) };
        place.copy_from_slice(&text.as_bytes()[..bytes]);
        place
    }

    /// Returns `head` followed by the first `bytes` bytes of the reply, in one piece and without copying the reply.
    fn with_head<const HEAD: usize>(&mut self, head: [u8; HEAD], bytes: usize) -> &[u8] {
        const { assert!(HEAD <= REPLY_HEAD_BYTES) };
        self.call.reply.highest = self.call.reply.highest.max(1);
        // SAFETY: this many bytes are kept before every reply.
        let start = unsafe { self.call.reply.address.sub(HEAD) };
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(head.as_ptr(), start, HEAD) };
        // SAFETY: the head was written now, the reply by the SDK.
        unsafe { slice::from_raw_parts(start, HEAD + bytes) }
    }

    /// Frees the invocation's memory; returns the increase of warm bytes. Keeps the extension for the next invocation
    /// if two in a row used the same one; among many tenants it is dropped while it is in the cache.
    #[inline]
    pub(in crate::extension::invocation) fn end(&mut self, environment: &WorkerEnvironment<'_>) -> usize {
        debug_assert!(self.parked.is_none(), "its stack is abandoned before");
        debug_assert_eq!(self.counted_bytes, 0, "what it held is given back before");
        self.release(environment);
        self.origin = None;
        let touched = self.touched();
        self.access.transaction().trim();
        // SAFETY: the invocation has ended and its answer was taken.
        let warmer = unsafe { self.room.tidy(touched) };
        if !self.keeps_extension {
            self.extension = None;
        }
        self.let_go_if_retired();
        warmer
    }

    /// Returns the bytes that the slot keeps for the next invocation.
    pub(in crate::extension::invocation) fn warm_bytes(&self) -> usize {
        self.room.warm_bytes()
    }

    /// Releases the memory between two invocations; returns the bytes that were warm.
    #[cold]
    pub(in crate::extension::invocation) fn cool(&mut self) -> usize {
        // SAFETY: no invocation is in the slot, so nothing is lent.
        unsafe { self.room.cool() }
    }

    /// Returns the backed bytes of its memory, and the bytes of its lists.
    #[cfg(test)]
    pub(in crate::extension::invocation) fn memory_bytes(&mut self) -> (usize, usize) {
        (self.room.resident_bytes(), self.access.transaction().list_bytes())
    }

    /// Drops the extension if it was removed or replaced.
    #[inline]
    pub(in crate::extension::invocation) fn let_go_if_retired(&mut self) {
        if self.extension.as_ref().is_some_and(|extension| extension.is_retired()) {
            self.extension = None;
        }
    }
}
