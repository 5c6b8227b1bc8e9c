//! An invocation's usage against its limits: charges for its time, the limit that ended it, and how closely it is
//! watched so that it ends in time.

use guest::cycles;
use guest::limits::EXTENSION_STACK_BYTES;
use wire::Status;

use super::{InvocationState, PollOutcome};
use crate::extension::allowance::{Allowance, Exceeded, Limit};
use crate::extension::invocation::budget::{Overdrawn, Usage, verdict};
use crate::extension::invocation::ending::Ending;
use crate::limits::{SLICE_US, SLICES_CHARGED_MAX, STEADY_SLICES};
use crate::ops::WorkerEnvironment;
use crate::tenant::limit::TenantLimit;

impl<O> InvocationState<O> {
    /// Returns the end caused by its function or its arena, with the reached limit if any.
    #[cold]
    pub(super) fn end_badly(&mut self, ending: Ending) -> PollOutcome {
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
                of(TenantLimit::InvocationArenaBytes, arena_bytes, self.arena.asked_bytes())
            }
            Status::ExtensionStackOverflow => {
                let value = EXTENSION_STACK_BYTES as u64;
                Some(Exceeded { limit: Limit::StackBytes, value, used: value })
            }
            _ => None,
        };
        PollOutcome::Ended(match exceeded {
            Some(exceeded) => ending.naming(Overdrawn { exceeded, usage: None }),
            None => ending,
        })
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
}
