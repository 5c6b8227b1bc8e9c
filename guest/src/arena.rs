//! The memory of one invocation: a bump pointer through a fixed range of bytes.
//!
//! An allocation is an addition and a comparison. Only the latest allocation can be freed or grown in place; all memory
//! is released together when the invocation ends. The record of the arena belongs to the server and lies outside of its
//! bytes.
//!
//! An arena may be left in the middle of an allocation (by an overflow of the stack that this code runs on): afterwards
//! it is only ever cleared.

use std::ptr;

/// A bump allocator. It does not own its bytes.
#[derive(Debug)]
pub struct Arena {
    start: usize,
    next: usize,
    end: usize,
    highest: usize,
    /// Bytes from the start that the latest failed allocation needed; 0 for none.
    asked_bytes: usize,
}

impl Arena {
    /// Creates an arena without memory: every allocation fails.
    #[must_use]
    pub const fn empty() -> Self {
        Self { start: 1, next: 1, end: 1, highest: 1, asked_bytes: 0 }
    }

    /// Creates an arena over `bytes` from `start`.
    ///
    /// # Safety
    /// Those bytes may be written, belong to nothing else, and stay so as long as allocations are used.
    #[must_use]
    pub unsafe fn over(start: *mut u8, bytes: usize) -> Self {
        let start = start as usize;
        Self { start, next: start, end: start + bytes, highest: start, asked_bytes: 0 }
    }

    /// Returns `bytes` at a multiple of `align`, or null when the arena is full or `align` is not a power of two. Never
    /// touches the memory.
    #[inline]
    pub fn allocate(&mut self, bytes: usize, align: usize) -> *mut u8 {
        if !align.is_power_of_two() {
            return ptr::null_mut();
        }
        let Some(from) = self.next.checked_add(align - 1).map(|next| next & !(align - 1)) else {
            return ptr::null_mut();
        };
        match from.checked_add(bytes) {
            Some(next) if next <= self.end => {
                debug_assert!(
                    self.start <= self.next && self.next <= from,
                    "what was lent is not lent again"
                );
                self.next = next;
                from as *mut u8
            }
            _ => self.refuse(from, bytes),
        }
    }

    /// Records the size of an allocation that found no room.
    #[cold]
    fn refuse(&mut self, from: usize, bytes: usize) -> *mut u8 {
        self.asked_bytes = (from - self.start).saturating_add(bytes);
        ptr::null_mut()
    }

    /// Frees the latest allocation; any other stays until the arena is cleared.
    #[inline]
    pub fn free(&mut self, address: *mut u8, bytes: usize) {
        let address = address as usize;
        if address >= self.start && address.checked_add(bytes) == Some(self.next) {
            self.highest = self.highest.max(self.next);
            self.next = address;
        }
    }

    /// Changes the size of an allocation: in place for the latest one, otherwise by copying its bytes. Null when there
    /// is no room; then the allocation is unchanged.
    ///
    /// # Safety
    /// `address` is an allocation of `bytes` at `align` from this arena, in use.
    #[inline]
    pub unsafe fn reallocate(
        &mut self,
        address: *mut u8,
        bytes: usize,
        align: usize,
        new_bytes: usize,
    ) -> *mut u8 {
        let from = address as usize;
        if from.checked_add(bytes) == Some(self.next) {
            return match from.checked_add(new_bytes) {
                Some(next) if next <= self.end => {
                    self.highest = self.highest.max(self.next);
                    self.next = next;
                    address
                }
                _ => self.refuse(from, new_bytes),
            };
        }
        if new_bytes <= bytes {
            return address;
        }
        let moved = self.allocate(new_bytes, align);
        if !moved.is_null() {
            // SAFETY: the old allocation holds `bytes`, the new one more, and they do not overlap.
            unsafe { ptr::copy_nonoverlapping(address, moved, bytes) };
        }
        moved
    }

    /// Returns the bytes in use, or those needed by the latest failed allocation.
    #[must_use]
    pub fn asked_bytes(&self) -> usize {
        if self.asked_bytes > 0 { self.asked_bytes } else { self.highest_bytes() }
    }

    /// Returns the maximum of bytes ever in use, which tells the owner of the memory how much was touched.
    #[inline]
    #[must_use]
    pub fn highest_bytes(&self) -> usize {
        debug_assert!(self.highest.max(self.next) <= self.end, "an arena ends where its memory does");
        self.highest.max(self.next) - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;

    fn with_arena(bytes: usize, test: impl FnOnce(&mut Arena)) {
        let mut memory = vec![0_u64; bytes.div_ceil(8)];
        // SAFETY: `memory` lives until the end of the test and is used only through the arena.
        let mut arena = unsafe { Arena::over(memory.as_mut_ptr().cast(), bytes) };
        test(&mut arena);
    }

    #[test]
    fn allocations_are_aligned_and_apart() {
        with_arena(1024, |arena| {
            let mut last = 0;
            for (bytes, align) in [(1, 1), (3, 2), (8, 8), (5, 16), (0, 64), (7, 1)] {
                let at = arena.allocate(bytes, align) as usize;
                assert!(at != 0 && at.is_multiple_of(align) && at >= last);
                last = at + bytes;
            }
        });
    }

    #[test]
    fn an_arena_that_is_used_up_answers_null_and_stays_usable() {
        with_arena(256, |arena| {
            assert!(arena.allocate(257, 1).is_null());
            assert!(arena.allocate(usize::MAX, 1).is_null());
            assert!(arena.allocate(usize::MAX - 64, 64).is_null());
            assert!(arena.allocate(8, 3).is_null());
            assert!(!arena.allocate(256, 1).is_null());
            assert!(arena.allocate(1, 1).is_null());
        });
    }

    #[test]
    fn an_arena_that_is_used_up_tells_what_was_asked_for_in_all() {
        with_arena(256, |arena| {
            let first = arena.allocate(100, 4);
            assert_eq!(arena.asked_bytes(), 100);
            assert!(arena.allocate(1000, 4).is_null());
            assert_eq!(arena.asked_bytes(), 1100);
            // SAFETY: an allocation in use.
            assert!(unsafe { arena.reallocate(first, 100, 4, 400) }.is_null());
            assert_eq!((arena.asked_bytes(), arena.highest_bytes()), (400, 100));
            assert!(arena.allocate(usize::MAX - 99, 1).is_null());
            assert_eq!(arena.asked_bytes(), usize::MAX);
        });
        assert!(Arena::empty().allocate(1, 1).is_null());
    }

    #[test]
    fn the_latest_allocation_is_freed_and_others_wait() {
        with_arena(256, |arena| {
            let first = arena.allocate(64, 8);
            let second = arena.allocate(64, 8);
            arena.free(first, 64);
            assert_ne!(arena.allocate(8, 8), first);
            let third = arena.allocate(8, 8);
            arena.free(third, 8);
            assert_eq!(arena.allocate(16, 8), third);
            assert!(second > first);
            assert_eq!(arena.highest_bytes(), 64 + 64 + 8 + 16);
        });
    }

    #[test]
    fn growing_keeps_the_bytes_and_moves_only_when_it_must() {
        with_arena(512, |arena| {
            let at = arena.allocate(16, 8);
            // SAFETY: 16 bytes just allocated.
            unsafe { at.write_bytes(7, 16) };
            // SAFETY: an allocation in use; so are those of the next two calls.
            let same = unsafe { arena.reallocate(at, 16, 8, 32) };
            assert_eq!(same, at);
            let _blocks = arena.allocate(8, 8);
            // SAFETY: as above.
            let moved = unsafe { arena.reallocate(at, 32, 8, 64) };
            assert_ne!(moved, at);
            // SAFETY: 64 bytes, of which the first 16 were written before they moved.
            assert!((0..16).all(|index| unsafe { *moved.add(index) } == 7));
            // SAFETY: as above.
            assert!(unsafe { arena.reallocate(moved, 64, 8, 4096) }.is_null());
            assert!(arena.highest_bytes() <= 512);
        });
    }

    #[test]
    fn highest_bytes_remembers_what_was_freed() {
        with_arena(512, |arena| {
            let at = arena.allocate(400, 8);
            arena.free(at, 400);
            let _small = arena.allocate(8, 8);
            assert_eq!(arena.highest_bytes(), 400);
        });
    }
}
