//! The memory of one invocation: its input, its reply, its allocations and its writes.
//!
//! One mapping of fixed parts, reserved once and used by one invocation after another. Only touched pages cost memory.
//! After an invocation that touched much, the pages beyond the first 64 KiB of a part return to the kernel. The others
//! stay *warm* for the next invocation until the memory is cooled; it tracks their bytes at any time. No part ever
//! moves, so an extension can hold slices of it until it ends.
//!
//! ```text
//!   key and arguments │ head · reply │ arena │ write set
//! ```
//! Each part begins at a different offset in its first page in each mapping. Otherwise the first lines of many mappings
//! would compete for the same few sets of the caches.

use std::io;
use std::ptr;

use guest::arena::Arena;
use guest::region::{PAGE_BYTES, Region};
use sandstorm::abi::RawSlice;
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, REPLY_BYTES_MAX};

use crate::limits::{ARENA_BYTES, MEMORY_PART_BYTES_KEPT, TRANSACTION_BYTES};

pub use guest::limits::REPLY_HEAD_BYTES;

const SKEWS: usize = PAGE_BYTES / SKEW_BYTES;
const SKEW_BYTES: usize = 64;

const INPUT_AT: usize = 0;
const REPLY_AT: usize = INPUT_AT + part(KEY_BYTES_MAX + ARGUMENTS_BYTES_MAX + ALIGN);
const ARENA_AT: usize = REPLY_AT + part(REPLY_HEAD_BYTES + REPLY_BYTES_MAX);
const WRITES_AT: usize = ARENA_AT + part(ARENA_BYTES);

/// Bytes of one mapping: the most that an invocation can touch.
pub const ROOM_BYTES: usize = WRITES_AT + part(TRANSACTION_BYTES);

/// The alignment of the arguments.
const ALIGN: usize = 16;

/// Returns whole pages for `bytes`, plus one page for the skew.
const fn part(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
}

/// The bytes of each part that an invocation touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TouchedPages {
    /// Key and arguments.
    pub input: usize,
    /// The reply.
    pub reply: usize,
    /// The arena.
    pub arena: usize,
    /// The write set.
    pub writes: usize,
}

impl TouchedPages {
    /// Returns the larger value of each part.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            reply: self.reply.max(other.reply),
            arena: self.arena.max(other.arena),
            writes: self.writes.max(other.writes),
        }
    }

    /// Returns whether no part exceeds that of `other`. All four comparisons nearly always hold, so they share one
    /// branch.
    #[inline]
    fn lies_within(&self, other: &Self) -> bool {
        (self.input <= other.input)
            & (self.reply <= other.reply)
            & (self.arena <= other.arena)
            & (self.writes <= other.writes)
    }

    /// Returns the parts in their order.
    fn parts(self) -> [usize; PARTS.len()] {
        [self.input, self.reply, self.arena, self.writes]
    }
}

/// The begin of each part, and the bytes before the counted ones.
const PARTS: [(usize, usize); 4] =
    [(INPUT_AT, ALIGN), (REPLY_AT, REPLY_HEAD_BYTES), (ARENA_AT, 0), (WRITES_AT, 0)];

/// The mapping of one invocation's memory.
#[derive(Debug)]
pub struct InvocationMemory {
    region: Region,
    skew: usize,
    /// The bytes of each part that can be touched without a newly backed page.
    warm: TouchedPages,
}

impl InvocationMemory {
    /// Reserves the memory; `number` gives each mapping a different skew. One or two system calls.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(number: usize) -> io::Result<Self> {
        let (region, skew) = (Region::new(ROOM_BYTES, 0)?, number % SKEWS * SKEW_BYTES);
        Ok(Self { region, skew, warm: TouchedPages::default() })
    }

    /// Copies key and arguments into the memory and returns their locations. This is the only copy of an invocation's
    /// arguments; it outlives the received frame.
    ///
    /// # Panics
    /// If they exceed the limits of the protocol.
    #[inline]
    pub fn bring_in(&mut self, key: &[u8], arguments: &[u8]) -> (RawSlice, RawSlice) {
        assert!(key.len() <= KEY_BYTES_MAX && arguments.len() <= ARGUMENTS_BYTES_MAX);
        let start = self.at(INPUT_AT);
        // SAFETY: the part has room for the longest key and the longest arguments.
        let second = unsafe { start.add(key.len().next_multiple_of(ALIGN)) };
        // SAFETY: the part is ours alone, and holds both one after the other.
        unsafe { ptr::copy_nonoverlapping(key.as_ptr(), start, key.len()) };
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(arguments.as_ptr(), second, arguments.len()) };
        let key = RawSlice { address: start, bytes: key.len() };
        (key, RawSlice { address: second, bytes: arguments.len() })
    }

    /// Returns the begin of the reply: [`REPLY_BYTES_MAX`] bytes, preceded by [`REPLY_HEAD_BYTES`].
    #[inline]
    #[must_use]
    pub fn reply(&self) -> *mut u8 {
        // SAFETY: the part begins with the head.
        unsafe { self.at(REPLY_AT).add(REPLY_HEAD_BYTES) }
    }

    /// Returns an arena over the first `bytes` of the allocation part, or over all of it if `bytes` is larger.
    ///
    /// # Safety
    /// No earlier arena of this memory is in use.
    #[inline]
    #[must_use]
    pub unsafe fn arena(&self, bytes: usize) -> Arena {
        // SAFETY: the part is this long, and the room's; the caller promises that it is free.
        unsafe { Arena::over(self.at(ARENA_AT), bytes.min(ARENA_BYTES)) }
    }

    /// Returns an arena over the write-set part.
    ///
    /// # Safety
    /// As for [`InvocationMemory::arena`].
    #[inline]
    #[must_use]
    pub unsafe fn writes(&self) -> Arena {
        // SAFETY: as for `arena`.
        unsafe { Arena::over(self.at(WRITES_AT), TRANSACTION_BYTES) }
    }

    /// Returns pages beyond each part's kept size to the kernel; returns the increase of warm bytes. Usually 0 and
    /// without a system call.
    ///
    /// # Safety
    /// Nothing is lent from this memory.
    #[inline]
    pub unsafe fn tidy(&mut self, touched: TouchedPages) -> usize {
        if touched.lies_within(&self.warm) {
            return 0;
        }
        // SAFETY: as the caller promises.
        unsafe { self.tidy_up(touched) }
    }

    /// # Safety
    /// As for [`InvocationMemory::tidy`].
    #[cold]
    unsafe fn tidy_up(&mut self, touched: TouchedPages) -> usize {
        let before = self.warm_bytes();
        let mut warm = self.warm.or_more(touched).parts();
        for ((at, head), bytes) in PARTS.into_iter().zip(&mut warm) {
            let backed = self.backed(head, *bytes);
            if backed > MEMORY_PART_BYTES_KEPT {
                // SAFETY: whole pages of one part; nothing is lent, as the caller promises.
                unsafe { self.region.discard(at + MEMORY_PART_BYTES_KEPT, backed - MEMORY_PART_BYTES_KEPT) };
            }
            // Up to the end of the last page, so that a byte more of the next one is nothing new.
            let kept = backed.min(MEMORY_PART_BYTES_KEPT);
            *bytes = kept.saturating_sub(self.skew + head);
        }
        let [input, reply, arena, writes] = warm;
        self.warm = TouchedPages { input, reply, arena, writes };
        self.warm_bytes() - before
    }

    /// Returns all pages to the kernel; returns the number of bytes that were warm.
    ///
    /// # Safety
    /// Nothing is lent from this memory.
    #[cold]
    pub unsafe fn cool(&mut self) -> usize {
        let warm = self.warm_bytes();
        self.warm = TouchedPages::default();
        // SAFETY: as the caller promises.
        unsafe { self.region.discard(0, ROOM_BYTES) };
        warm
    }

    /// Returns the bytes kept for the next invocation, in whole pages.
    #[must_use]
    pub fn warm_bytes(&self) -> usize {
        self.backed_bytes(self.warm)
    }

    /// Returns the bytes of the pages that an invocation has touched.
    #[must_use]
    pub fn backed_bytes(&self, touched: TouchedPages) -> usize {
        PARTS.into_iter().zip(touched.parts()).map(|((_, head), bytes)| self.backed(head, bytes)).sum()
    }

    /// Returns the bytes backed now, as reported by the kernel.
    #[cfg(test)]
    pub fn resident_bytes(&self) -> usize {
        self.region.resident_bytes()
    }

    /// Returns the bytes of the pages under `bytes` bytes of a part; 0 for 0 bytes.
    fn backed(&self, head: usize, bytes: usize) -> usize {
        if bytes == 0 { 0 } else { (self.skew + head + bytes).next_multiple_of(PAGE_BYTES) }
    }

    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the offsets of the parts and the skew lie within the region.
        unsafe { self.region.start().as_ptr().add(offset + self.skew) }
    }
}

#[cfg(test)]
mod tests {
    use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, REPLY_BYTES_MAX};

    use super::{InvocationMemory, TouchedPages};
    use crate::limits::{ARENA_BYTES, MEMORY_PART_BYTES_KEPT, TRANSACTION_BYTES};

    #[test]
    fn parts_take_the_largest_of_everything_and_do_not_overlap() {
        for number in [0, 1, 63, 64] {
            let mut room = InvocationMemory::new(number).expect("a room");
            let (key, arguments) = (vec![1; KEY_BYTES_MAX], vec![2; ARGUMENTS_BYTES_MAX]);
            let (raw_key, raw_arguments) = room.bring_in(&key, &arguments);
            // SAFETY: the reply has this much room.
            unsafe { room.reply().write_bytes(3, REPLY_BYTES_MAX) };
            // SAFETY: fresh arenas of a fresh room.
            let (mut arena, mut writes) = unsafe { (room.arena(usize::MAX), room.writes()) };
            let allocated = arena.allocate(ARENA_BYTES, 1);
            let written = writes.allocate(TRANSACTION_BYTES, 1);
            // SAFETY: just allocated with these lengths.
            unsafe { allocated.write_bytes(4, ARENA_BYTES) };
            // SAFETY: as above.
            unsafe { written.write_bytes(5, TRANSACTION_BYTES) };
            // SAFETY: written above, and the room stands.
            let (seen_key, seen_arguments) = unsafe { (raw_key.as_slice(), raw_arguments.as_slice()) };
            assert!(seen_key == key && seen_arguments == arguments);
            for (from, bytes, mark) in [
                (room.reply(), REPLY_BYTES_MAX, 3),
                (allocated, ARENA_BYTES, 4),
                (written, TRANSACTION_BYTES, 5),
            ] {
                // SAFETY: written above.
                assert!((0..bytes).all(|index| unsafe { *from.add(index) } == mark));
            }
        }
    }

    #[test]
    fn tidying_keeps_the_first_bytes_and_clears_what_a_big_one_left() {
        let mut room = InvocationMemory::new(5).expect("a room");
        // SAFETY: the reply has this much room.
        unsafe { room.reply().write_bytes(9, REPLY_BYTES_MAX) };
        // SAFETY: nothing is lent.
        let warmer = unsafe { room.tidy(TouchedPages { reply: REPLY_BYTES_MAX, ..TouchedPages::default() }) };
        assert_eq!((warmer, room.region.resident_bytes()), (MEMORY_PART_BYTES_KEPT, MEMORY_PART_BYTES_KEPT));
        // SAFETY: within the reply.
        let (first, last) = unsafe { (*room.reply(), *room.reply().add(REPLY_BYTES_MAX - 1)) };
        assert_eq!((first, last), (9, 0));
        // SAFETY: within the reply.
        assert_eq!(unsafe { *room.reply().add(MEMORY_PART_BYTES_KEPT - 8192) }, 9);
    }

    #[test]
    fn a_room_knows_how_many_bytes_are_backed_whatever_was_touched_of_which_part() {
        let mut random = fastrand::Rng::with_seed(7);
        for number in 0..200 {
            let mut room = InvocationMemory::new(number).expect("a room");
            let mut warm = 0;
            for _ in 0..4 {
                let most = [ARENA_BYTES, 200_000, 70_000, 5_000, 0][random.usize(0..5)];
                let mut bytes = || random.usize(0..=most);
                let touched = TouchedPages {
                    reply: bytes(),
                    arena: bytes(),
                    writes: bytes(),
                    ..TouchedPages::default()
                };
                // SAFETY: each part has this much room; fresh arenas begin where their part does.
                unsafe {
                    room.reply().write_bytes(1, touched.reply);
                    room.arena(ARENA_BYTES).allocate(touched.arena, 1).write_bytes(1, touched.arena);
                    room.writes().allocate(touched.writes, 1).write_bytes(1, touched.writes);
                }
                assert!(room.region.resident_bytes() <= warm + room.backed_bytes(touched), "room {number}");
                // SAFETY: nothing is lent.
                warm += unsafe { room.tidy(touched) };
                assert_eq!((room.region.resident_bytes(), room.warm_bytes()), (warm, warm), "room {number}");
            }
            // SAFETY: nothing is lent.
            assert_eq!(unsafe { room.cool() }, warm);
            assert_eq!((room.region.resident_bytes(), room.warm_bytes()), (0, 0));
        }
    }
}
