//! What a slot holds in memory: while its invocation waits, and for the next one when that has ended.

use super::InvocationState;
use crate::extension::invocation_memory::TouchedPages;
use crate::ops::WorkerEnvironment;
use crate::sched::running::ParkedStack;

impl<O> InvocationState<O> {
    /// Frees what the invocation held; by how many bytes the slot is warmer than before it. The extension is kept for
    /// the next invocation where two in a row were of the same; among many tenants it is let go of while it is in the cache.
    #[inline]
    pub(in crate::extension::invocation) fn end(&mut self, environment: &WorkerEnvironment<'_>) -> usize {
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

    /// What the invocation has touched of its room, with all its tries.
    #[inline]
    pub(super) fn touched(&mut self) -> TouchedPages {
        let touched = TouchedPages {
            input: self.input_bytes,
            reply: self.call.reply.touched_bytes(),
            arena: self.arena.highest_bytes(),
            writes: self.access.transaction().memory_bytes(),
        };
        if self.tries > 0 { touched.or_more(self.touched_before) } else { touched }
    }

    /// Bytes that the invocation holds while it does not run: of its room, its lists, and the stack it is parked on.
    pub(in crate::extension::invocation) fn footprint_bytes(&mut self) -> usize {
        let touched = self.touched();
        let stack_bytes = self.parked.as_ref().map_or(0, ParkedStack::stack_bytes);
        let list_bytes = self.access.transaction().list_bytes() + self.access.asking_bytes();
        self.room.backed_bytes(touched) + list_bytes + stack_bytes
    }

    /// What of that key and arguments take.
    pub(in crate::extension::invocation) fn input_bytes_backed(&self) -> usize {
        self.room.backed_bytes(TouchedPages { input: self.input_bytes, ..TouchedPages::default() })
    }

    /// What is counted of that.
    #[inline]
    pub(in crate::extension::invocation) fn counted_bytes(&mut self) -> &mut usize {
        &mut self.counted_bytes
    }

    /// Bytes that the slot keeps for the next invocation.
    pub(in crate::extension::invocation) fn warm_bytes(&self) -> usize {
        self.room.warm_bytes()
    }

    /// Gives the memory of its room back, between two invocations; how many bytes were warm.
    #[cold]
    pub(in crate::extension::invocation) fn cool(&mut self) -> usize {
        // SAFETY: no invocation is in the slot, so nothing is lent.
        unsafe { self.room.cool() }
    }

    /// Bytes of its room that are backed now, and of its lists.
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
