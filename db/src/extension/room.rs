//! The memory of one invocation: what it was given, what it answers, what it allocates, what it writes.
//!
//! One mapping of fixed parts, reserved once and used by one invocation after the other. Only touched pages
//! cost memory; after an invocation that touched much, the pages beyond the first 64 KiB of a part go back
//! to the kernel. No part ever moves, so an extension may be lent slices of it until it ends.
//!
//! ```text
//!   key and arguments │ head · reply │ arena │ write set
//! ```
//! Each part begins a little further into its first page in one room than in the next: the first lines of
//! many rooms would otherwise compete for the same few sets of the caches.

use std::io;
use std::ptr;

use sandstorm::abi::RawSlice;
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, REPLY_BYTES_MAX};

use crate::limits::{ARENA_BYTES, ROOM_PART_BYTES_KEPT, TRANSACTION_BYTES};
use crate::sched::arena::Arena;
use crate::sched::region::{PAGE_BYTES, Region};

/// Bytes before the reply, so that a head can be put before a message without moving it.
pub const REPLY_HEAD_BYTES: usize = 16;

const SKEWS: usize = PAGE_BYTES / SKEW_BYTES;
const SKEW_BYTES: usize = 64;

const INPUT_AT: usize = 0;
const REPLY_AT: usize = INPUT_AT + part(KEY_BYTES_MAX + ARGUMENTS_BYTES_MAX + ALIGN);
const ARENA_AT: usize = REPLY_AT + part(REPLY_HEAD_BYTES + REPLY_BYTES_MAX);
const WRITES_AT: usize = ARENA_AT + part(ARENA_BYTES);
const ROOM_BYTES: usize = WRITES_AT + part(TRANSACTION_BYTES);

/// Arguments begin at a multiple of this.
const ALIGN: usize = 16;

/// Whole pages for `bytes`, and one page more to be skewed in.
const fn part(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
}

/// How much of each part an invocation touched, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touched {
    /// Key and arguments.
    pub input: usize,
    /// The reply.
    pub reply: usize,
    /// The arena.
    pub arena: usize,
    /// The write set.
    pub writes: usize,
}

/// The mapping.
#[derive(Debug)]
pub struct Room {
    region: Region,
    skew: usize,
}

impl Room {
    /// Reserves a room; `number` tells rooms apart for the caches. One or two system calls.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(number: usize) -> io::Result<Self> {
        Ok(Self { region: Region::new(ROOM_BYTES, 0)?, skew: number % SKEWS * SKEW_BYTES })
    }

    /// Copies key and arguments in, and says where they are. This is the one copy of an invocation's
    /// arguments: it outlives the frame that brought them.
    ///
    /// # Panics
    /// If they are beyond the limits of the protocol.
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

    /// Where the reply begins: [`REPLY_BYTES_MAX`] bytes, with [`REPLY_HEAD_BYTES`] before them.
    #[inline]
    #[must_use]
    pub fn reply(&self) -> *mut u8 {
        // SAFETY: the part begins with the head.
        unsafe { self.at(REPLY_AT).add(REPLY_HEAD_BYTES) }
    }

    /// An arena over the first `bytes` of the part for allocations, over all of it at the most.
    ///
    /// # Safety
    /// Nobody uses an arena of this room from before.
    #[inline]
    #[must_use]
    pub unsafe fn arena(&self, bytes: usize) -> Arena {
        // SAFETY: the part is this long, and the room's; the caller promises that it is free.
        unsafe { Arena::over(self.at(ARENA_AT), bytes.min(ARENA_BYTES)) }
    }

    /// An arena over the part for the write set.
    ///
    /// # Safety
    /// As for [`Room::arena`].
    #[inline]
    #[must_use]
    pub unsafe fn writes(&self) -> Arena {
        // SAFETY: as for `arena`.
        unsafe { Arena::over(self.at(WRITES_AT), TRANSACTION_BYTES) }
    }

    /// Gives back what was touched beyond the part of each that is kept. No system call as a rule.
    ///
    /// # Safety
    /// Nothing is lent from the room.
    #[inline]
    pub unsafe fn tidy(&mut self, touched: Touched) {
        let parts = [
            (INPUT_AT, touched.input),
            (REPLY_AT, touched.reply),
            (ARENA_AT, touched.arena),
            (WRITES_AT, touched.writes),
        ];
        for (at, bytes) in parts {
            if bytes > ROOM_PART_BYTES_KEPT {
                let beyond = bytes - ROOM_PART_BYTES_KEPT + PAGE_BYTES * 2;
                // SAFETY: within the region; nothing is lent, as the caller promises. The skew and the head
                // are less than the two pages added, and those are still in the same part or unused.
                unsafe { self.region.discard(at + ROOM_PART_BYTES_KEPT, beyond) };
            }
        }
    }

    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the offsets of the parts and the skew lie within the region.
        unsafe { self.region.start().as_ptr().add(offset + self.skew) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Room, Touched};
    use crate::limits::{ARENA_BYTES, ROOM_PART_BYTES_KEPT, TRANSACTION_BYTES};
    use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, REPLY_BYTES_MAX};

    #[test]
    fn parts_take_the_largest_of_everything_and_do_not_overlap() {
        for number in [0, 1, 63, 64] {
            let mut room = Room::new(number).expect("a room");
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
        let mut room = Room::new(5).expect("a room");
        // SAFETY: the reply has this much room.
        unsafe { room.reply().write_bytes(9, REPLY_BYTES_MAX) };
        // SAFETY: nothing is lent.
        unsafe { room.tidy(Touched { reply: REPLY_BYTES_MAX, ..Touched::default() }) };
        // SAFETY: within the reply.
        let (first, last) = unsafe { (*room.reply(), *room.reply().add(REPLY_BYTES_MAX - 1)) };
        assert_eq!((first, last), (9, 0));
        // SAFETY: within the reply.
        assert_eq!(unsafe { *room.reply().add(ROOM_PART_BYTES_KEPT - 8192) }, 9);
    }
}
