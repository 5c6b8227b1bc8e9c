//! The free slots of a worker, and the memory that they keep warm.
//!
//! The slot returned last is taken first, so few slots are in rotation and the others rest. A slot is created when none
//! is free, kept up to a limit, and unmapped beyond it. The table sums the warm bytes of all slots. When the sum
//! exceeds the worker's limit, slots release their memory, starting at the bottom with those that have rested longest.
//! Taking and returning a slot costs a few instructions as long as no slot gets warmer than it was.

use std::io;
use std::ptr::NonNull;

use super::state::InvocationState;
use crate::extension::retirements;
use crate::limits::{SLOTS_COOLED_AT_ONCE, SLOTS_KEPT_PER_WORKER};

/// The slots of one worker, free or in use.
pub(super) struct InvocationTable<O> {
    free: Vec<NonNull<InvocationState<O>>>,
    made: usize,
    retirements_seen: u64,
    /// The warm bytes of all slots, including those in use, and their limit.
    warm_bytes: usize,
    warm_bytes_max: usize,
    /// The next free slot to be cooled.
    hand: usize,
}

impl<O> InvocationTable<O> {
    /// Creates an empty table whose slots together may keep `warm_bytes_max` bytes.
    pub(super) fn new(warm_bytes_max: usize) -> Self {
        Self {
            free: Vec::with_capacity(SLOTS_KEPT_PER_WORKER),
            made: 0,
            retirements_seen: retirements(),
            warm_bytes: 0,
            warm_bytes_max,
            hand: 0,
        }
    }

    /// Returns a slot that only the caller uses and that does not move.
    ///
    /// # Errors
    /// The kernel's error if it has no memory for another one.
    #[inline]
    pub(super) fn take(&mut self) -> io::Result<NonNull<InvocationState<O>>> {
        self.free.pop().map_or_else(|| self.make(), Ok)
    }

    #[cold]
    fn make(&mut self) -> io::Result<NonNull<InvocationState<O>>> {
        let slot = Box::new(InvocationState::new(self.made)?);
        self.made += 1;
        Ok(NonNull::from(Box::leak(slot)))
    }

    /// Returns the slot of an ended invocation, which left it `warmer` bytes warmer.
    #[inline]
    pub(super) fn give(&mut self, slot: NonNull<InvocationState<O>>, warmer: usize) {
        if warmer > 0 {
            self.give_warmer(slot, warmer);
        } else {
            self.keep(slot);
        }
    }

    #[cold]
    fn give_warmer(&mut self, slot: NonNull<InvocationState<O>>, warmer: usize) {
        self.warm_bytes += warmer;
        self.keep(slot);
        for _ in 0..SLOTS_COOLED_AT_ONCE.min(self.free.len()) {
            if self.warm_bytes <= self.warm_bytes_max {
                return;
            }
            self.hand = if self.hand < self.free.len() { self.hand } else { 0 };
            self.cool(self.hand);
            self.hand += 1;
        }
        if self.warm_bytes > self.warm_bytes_max && !self.free.is_empty() {
            // Others that are warm are in use, or far: then it is this one.
            self.cool(self.free.len() - 1);
        }
    }

    fn cool(&mut self, index: usize) {
        // SAFETY: free slots are ours alone.
        let slot = unsafe { self.free[index].as_mut() };
        if slot.warm_bytes() > 0 {
            self.warm_bytes -= slot.cool();
        }
    }

    #[inline]
    fn keep(&mut self, slot: NonNull<InvocationState<O>>) {
        debug_assert!(self.free.len() < self.made, "only slots in use are given back");
        debug_assert_ne!(self.free.last(), Some(&slot), "a slot is given back once");
        if self.free.len() < SLOTS_KEPT_PER_WORKER {
            self.free.push(slot);
        } else {
            // SAFETY: a slot in hand is ours alone, and in no list.
            unsafe { self.unmap(slot) };
        }
    }

    /// # Safety
    /// The slot was [taken](InvocationTable::take) here, and nothing uses it any more.
    #[cold]
    unsafe fn unmap(&mut self, slot: NonNull<InvocationState<O>>) {
        // SAFETY: leaked from a box by `make`, and nobody else's, as the caller promises.
        let slot = unsafe { Box::from_raw(slot.as_ptr()) };
        self.warm_bytes -= slot.warm_bytes();
    }

    /// Drops retired extensions from free slots. They keep the extension of their last invocation, because the next one
    /// is often of the same extension and reference counts are expensive between cores. Returns whether any extension was
    /// retired since the last call.
    #[inline]
    pub(super) fn let_go_of_retired(&mut self) -> bool {
        let now = retirements();
        if now == self.retirements_seen {
            return false;
        }
        self.retirements_seen = now;
        for slot in &mut self.free {
            // SAFETY: free slots are ours alone.
            unsafe { slot.as_mut() }.let_go_if_retired();
        }
        true
    }

    /// Returns the backed bytes of free slots' memory, and the bytes of their lists.
    #[cfg(test)]
    pub(super) fn memory_bytes(&mut self) -> (usize, usize) {
        // SAFETY: free slots are ours alone.
        let each = self.free.iter_mut().map(|slot| unsafe { slot.as_mut() }.memory_bytes());
        each.fold((0, 0), |sum, slot| (sum.0 + slot.0, sum.1 + slot.1))
    }
}

impl<O> Drop for InvocationTable<O> {
    fn drop(&mut self) {
        for slot in self.free.drain(..) {
            // SAFETY: leaked from a box by `make`, and free.
            drop(unsafe { Box::from_raw(slot.as_ptr()) });
        }
    }
}
