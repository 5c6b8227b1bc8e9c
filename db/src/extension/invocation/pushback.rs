//! Pushing an invocation back to its client: instead of its first poll, or between two polls with what it has read.
//!
//! Nothing was written then, and nothing of the invocation stays. Its exactly-once record keeps the answer, so a late copy of the
//! request does not run it here while the client runs it.

use std::ptr::NonNull;

use wire::limits::PUSHED_BACK_BYTES_MAX;
use wire::reply::{Object, PushedBack, ReadRecord};

use super::Invocations;
use super::ending::Ending;
use super::state::InvocationState;
use crate::extension::Extension;
use crate::extension::pushback::RunAt;
use crate::limits::PUSHED_BACK_READS_MAX;
use crate::ops::WorkerEnvironment;

impl<O> Invocations<O> {
    /// Notes a round of the worker, and whether it had work: see [`PushbackLimit`](crate::extension::pushback::PushbackLimit).
    #[inline]
    pub fn note_round(&mut self, now_us: u64, round_us: u64, had_work: bool) {
        self.pushback.note_round(now_us, round_us, had_work);
    }

    /// Returns whether the client that asks for this invocation is to run it, if it can.
    pub fn goes_to_client(&mut self, extension: &Extension, function: usize) -> bool {
        // A client cannot read the module of a granted extension.
        if extension.is_granted() {
            return false;
        }
        match (self.push_back_after(), RunAt::of(&extension.account)) {
            (Some(yields), _) => yields == 0,
            (None, RunAt::Server) => false,
            (None, RunAt::Client) => true,
            (None, RunAt::Adaptive) => {
                extension.cost(function).is_cheaper_at_clients() == Some(true)
                    && self.is_limit_reached(extension)
            }
        }
    }

    /// Pushes back an invocation that has used up a slice, unless its function is known to be cheaper here, or its commit has met a
    /// conflict: then it goes before others here. Returns its ending.
    pub(super) fn push_back_preempted(
        &mut self,
        mut slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
    ) -> Option<Ending> {
        // SAFETY: a slot in hand is ours alone.
        let polled = unsafe { slot.as_mut() };
        let extension = polled.extension_if_client_can_run(self.may_push_back)?;
        let may_be_costly = polled.cost().is_none_or(|cost| cost.is_cheaper_at_clients() != Some(false));
        let is_due = RunAt::of(&extension.account) == RunAt::Adaptive
            && polled.tries() == 0
            && may_be_costly
            && self.push_back_after().is_none()
            && self.is_limit_reached(&extension);
        is_due.then(|| Ending::pushed_back(polled.write_pushed_back(environment)))
    }

    /// Pushes back an invocation that has yielded as often as tests want; returns its ending.
    pub(super) fn push_back_yielded(
        &self,
        mut slot: NonNull<InvocationState<O>>,
        environment: &WorkerEnvironment<'_>,
    ) -> Option<Ending> {
        let yields = self.push_back_after()?;
        // SAFETY: a slot in hand is ours alone.
        let polled = unsafe { slot.as_mut() };
        polled.extension_if_client_can_run(self.may_push_back)?;
        (polled.yields() >= yields).then(|| Ending::pushed_back(polled.write_pushed_back(environment)))
    }

    fn push_back_after(&self) -> Option<u32> {
        self.budget.and_then(|budget| budget.push_back_after)
    }

    /// Returns whether the limit is reached, and the tenant has at least an equal share of the waiting invocations.
    fn is_limit_reached(&mut self, extension: &Extension) -> bool {
        let waiting = self.queue.ready() + self.queue.parked();
        if !self.pushback.is_reached(waiting) {
            return false;
        }
        // Only to find the place.
        let place = self.queue.enter(&extension.account);
        let live = self.queue.live(place);
        self.queue.leave(place);
        live * self.queue.waiting_tenants() >= waiting
    }
}

impl<O> InvocationState<O> {
    /// Writes the body of the reply that pushes it back: its version and the first objects that it has read, as far as they are
    /// noted, unchanged, and find room. Returns its length.
    fn write_pushed_back(&mut self, environment: &WorkerEnvironment<'_>) -> u16 {
        let place = self.native_reply(PUSHED_BACK_BYTES_MAX);
        // SAFETY: the reply has this much room, and the extension does not run any more.
        let body = unsafe { std::slice::from_raw_parts_mut(place, PUSHED_BACK_BYTES_MAX) };
        let (Some(extension), transaction) = self.extension_and_transaction() else { return 0 };
        let head = PushedBack::head(extension.version);
        body[..head.len()].copy_from_slice(&head);
        let (pin, now_ms) = (environment.pin, environment.core.store().now_ms());
        let mut bytes = head.len();
        let reads = || transaction.noted_reads().take(PUSHED_BACK_READS_MAX);
        for (index, (table, hash, key, version)) in reads().enumerate() {
            if reads().take(index).any(|(of, earlier, ..)| (of, earlier) == (table, hash)) {
                continue;
            }
            // SAFETY: the key lies in the log under the held pin, or in the memory of the set.
            let key = unsafe { key.as_slice() };
            let entry = environment.tables.get(extension.tenant, table);
            let Some(part) = entry.and_then(|entry| entry.parts.find(key, hash)) else { continue };
            let object = pin.get(part, hash, key);
            if object.as_ref().map_or(0, store::Object::version) != version || part.is_arrival() {
                continue;
            }
            let expires_ms = object.as_ref().map_or(store::NEVER_MS, store::Object::expires_ms);
            let ttl_ms = (expires_ms != store::NEVER_MS).then(|| expires_ms.saturating_sub(now_ms));
            let object = object.as_ref().map(|object| Object { version, ttl_ms, value: object.value() });
            let Some(written) = (ReadRecord { table, key, object }).encode(&mut body[bytes..]) else { break };
            bytes += written;
        }
        bytes as u16
    }
}
