//! The memory that a slot holds: while its invocation waits, and for the next one afterwards.

use guest::running::ParkedStack;

use super::InvocationState;
use crate::extension::invocation_memory::TouchedPages;
use crate::ops::WorkerEnvironment;

impl<O> InvocationState<O> {
    /// Frees the invocation's memory; returns the increase of warm bytes. Keeps the extension for the next invocation
    /// if two in a row used the same one; among many tenants it is dropped while it is in the cache.
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

    /// Returns the memory that all tries of the invocation have touched.
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

    /// Returns the bytes that a waiting invocation holds: memory, lists, and the stack that it is parked on.
    pub(in crate::extension::invocation) fn footprint_bytes(&mut self) -> usize {
        let touched = self.touched();
        let stack_bytes = self.parked.as_ref().map_or(0, ParkedStack::stack_bytes);
        let list_bytes = self.access.transaction().list_bytes() + self.access.asking_bytes();
        self.room.backed_bytes(touched) + list_bytes + stack_bytes
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
