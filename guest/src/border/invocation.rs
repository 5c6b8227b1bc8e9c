//! An invocation in a module: an instance, and the layout of its linear memory.
//!
//! ```text
//!   stack │ call block │ data ‖ input · arena │ head · reply │ lent
//! ```
//! What stands right of the double line is the host's; its offsets are the same for every invocation, so the pages that
//! one has touched serve the next. The call block and the input are written before the first poll; after each poll the
//! reply's length is read back, clamped: all that a module writes is only ever a claim.
//!
//! Between two invocations, and before a repetition, everything that the last one used is zeroed: of a module whose
//! source was checked, what its safe code was lent; of any other, all that the instance has, in memory and outside of
//! it. After a trap or an abandoned run the instance is made again over the same memory, whose pages go back to the
//! kernel.

use std::sync::Arc;

use sandstorm::abi::wasm32::{self, BLOCK_AT, BLOCK_BYTES, CALL_AT, MEMORY_BYTES, block, call};
use sandstorm::abi::{Call, Code};
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX, REPLY_BYTES_MAX};

use super::LentPart;
use super::linear::LinearMemory;
use crate::limits::{ARENA_BYTES, LENT_BYTES, MEMORY_PART_BYTES_KEPT, MODULE_MEMORY_BYTES, REPLY_HEAD_BYTES};
use crate::region::PAGE_BYTES;
use crate::running::ModuleEntry;
use crate::stack::{Cause, StackOutcome};
use crate::wasm::{Code as ModuleCode, DATA_START, Instance, InstanceError, STACK_TOP};
use crate::weakened;

const ALIGN: usize = 16;

/// Most bytes of input and arena.
const WORK_BYTES: usize =
    (KEY_BYTES_MAX + ARGUMENTS_BYTES_MAX + ARENA_BYTES + 4 * ALIGN).next_multiple_of(PAGE_BYTES);

/// Most bytes of the reply and what precedes it.
const REPLY_PART_BYTES: usize = (REPLY_HEAD_BYTES + REPLY_BYTES_MAX).next_multiple_of(PAGE_BYTES);

/// Largest value of a module's heap base: the host's parts come behind it.
pub const HEAP_BASE_MAX: usize = MEMORY_BYTES - WORK_BYTES - REPLY_PART_BYTES - LENT_BYTES - PAGE_BYTES;

// The memory is laid out as the builder checks it.
const _: () = assert!(MODULE_MEMORY_BYTES == MEMORY_BYTES);
const _: () = assert!(STACK_TOP == wasm32::STACK_BYTES && DATA_START == wasm32::DATA_AT);

/// The offsets of the host's parts.
#[derive(Clone, Copy, Debug)]
struct Layout {
    work: u32,
    reply: u32,
    lent: u32,
}

impl Layout {
    fn of(code: &ModuleCode) -> Self {
        let work = (code.heap_base() as usize).next_multiple_of(ALIGN);
        assert!(work <= HEAP_BASE_MAX, "the module was loaded");
        let reply = (work + WORK_BYTES).next_multiple_of(PAGE_BYTES);
        let lent = reply + REPLY_PART_BYTES;
        Self { work: work as u32, reply: (reply + REPLY_HEAD_BYTES) as u32, lent: lent as u32 }
    }
}

/// An instance of a module, for one invocation at a time.
#[derive(Debug)]
pub struct ModuleInvocation {
    instance: Instance,
    layout: Layout,
    /// The arena of the invocation, behind its input.
    arena: (u32, u32),
    /// Whether an invocation has begun in it.
    is_begun: bool,
    /// Whether another one may: the kernel had the memory to clear it.
    is_usable: bool,
    /// Whether an invocation may have left words anywhere, not only where it was lent memory.
    is_strict: bool,
}

impl ModuleInvocation {
    /// Makes an instance of a module whose heap begins at [`HEAP_BASE_MAX`] at most. `is_strict`: its source was not checked.
    /// Costs some 25 us.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(code: &Arc<ModuleCode>, is_strict: bool) -> Result<Self, InstanceError> {
        let (instance, layout) = (Instance::new(code)?, Layout::of(code));
        Ok(Self { instance, layout, arena: (0, 0), is_begun: false, is_usable: true, is_strict })
    }

    /// Returns whether an invocation has begun in it.
    #[inline]
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Returns whether its run did not return, so that it must be made anew.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.instance.is_spent()
    }

    /// Returns whether another invocation may run in it.
    #[inline]
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Writes call block and input of a new invocation, and returns where its host lends. `call` has the input in native
    /// memory; its reply is moved to linear memory.
    ///
    /// # Safety
    /// Key and arguments of `call` are readable.
    #[inline]
    pub unsafe fn begin(&mut self, call: &mut Call, arena_bytes: usize) -> LentPart {
        debug_assert!(!self.is_begun, "one invocation at a time");
        assert!(
            call.key.bytes <= KEY_BYTES_MAX && call.arguments.bytes <= ARGUMENTS_BYTES_MAX,
            "an input has its limits"
        );
        self.is_begun = true;
        let Layout { work, reply, lent } = self.layout;
        let memory = LinearMemory::of(&self.instance.memory());
        let (key, arguments) = (call.key, call.arguments);
        let arguments_at = (work as usize + key.bytes).next_multiple_of(ALIGN) as u32;
        for (slice, at) in [(key, work), (arguments, arguments_at)] {
            let place = memory.address(at, slice.bytes).expect("the part holds the longest input");
            // SAFETY: readable, as the caller promises, and not in linear memory.
            unsafe { std::ptr::copy_nonoverlapping(slice.address, place, slice.bytes) };
        }
        let arena = (arguments_at as usize + arguments.bytes).next_multiple_of(ALIGN);
        self.arena = (arena as u32, (arena + arena_bytes.min(ARENA_BYTES)) as u32);
        let mut words = [0u32; BLOCK_BYTES / 4];
        let mut set = |at: usize, value: u32| words[at / 4] = value;
        set(block::NEXT, self.arena.0);
        set(block::END, self.arena.1);
        for (at, value) in [
            (call::KEY, work),
            (call::KEY + 4, key.bytes as u32),
            (call::ARGUMENTS, arguments_at),
            (call::ARGUMENTS + 4, arguments.bytes as u32),
            (call::REPLY_ADDRESS, reply),
            (call::REPLY_CAPACITY, call.reply.capacity as u32),
            (call::TABLE, call.table),
        ] {
            set(block::CALL + at, value);
        }
        let place = memory.address(BLOCK_AT as u32, BLOCK_BYTES).expect("below the data");
        // SAFETY: the block lies within the memory.
        unsafe { place.cast::<[u32; BLOCK_BYTES / 4]>().write(words) };
        call.reply.address =
            memory.address(reply, REPLY_BYTES_MAX).expect("the part holds the longest reply");
        LentPart::new(lent)
    }

    /// Returns what to run on an extension's stack for a poll of the function `export`.
    #[inline]
    pub fn entry(&mut self, export: usize) -> ModuleEntry {
        self.instance.enter(export, CALL_AT as u32)
    }

    /// Takes the result of a poll that was not parked, and what it says of the reply.
    #[inline]
    pub fn polled(&mut self, outcome: StackOutcome, call: &mut Call) -> Result<Code, Cause> {
        let [bytes, _, highest, asked] = self.reply_words();
        let most = if weakened::by("reply") { usize::MAX } else { call.reply.capacity };
        debug_assert!(most <= REPLY_BYTES_MAX || weakened::by("reply"), "a reply has a limit");
        call.reply.bytes = (bytes as usize).min(most);
        call.reply.highest = (highest as usize).min(most);
        call.reply.asked = asked as usize;
        self.instance.outcome(outcome)
    }

    fn reply_words(&self) -> [u32; 4] {
        let memory = LinearMemory::of(&self.instance.memory());
        memory.words((CALL_AT + call::REPLY_LENGTH) as u32).expect("the call block is within the memory")
    }

    /// Returns the bytes of the arena that an allocation needed, or that are in use.
    #[must_use]
    pub fn arena_asked_bytes(&self) -> usize {
        let memory = LinearMemory::of(&self.instance.memory());
        let [asked] =
            memory.words((BLOCK_AT + block::ASKED) as u32).expect("the call block is within the memory");
        // The address at which the failed allocation would have ended.
        if asked > 0 { asked.saturating_sub(self.arena.0) as usize } else { self.arena_used() as usize }
    }

    /// Returns the bytes of the arena that were ever in use.
    fn arena_used(&self) -> u32 {
        let memory = LinearMemory::of(&self.instance.memory());
        let [next] = memory.words((BLOCK_AT + block::NEXT) as u32).expect("as above");
        let [highest] = memory.words((BLOCK_AT + block::HIGHEST) as u32).expect("as above");
        next.max(highest).clamp(self.arena.0, self.arena.1) - self.arena.0
    }

    /// Returns the offsets of the host's parts that the invocation has used.
    fn used(&self, call: &Call, lent: LentPart) -> [(u32, u32); 3] {
        let reply = call.reply.touched_bytes().min(REPLY_BYTES_MAX) as u32;
        let head = self.layout.reply - REPLY_HEAD_BYTES as u32;
        let (lent, next) = lent.used();
        [
            (self.layout.work, self.arena.0 + self.arena_used()),
            (head, if reply > 0 { self.layout.reply + reply } else { head }),
            (lent, next),
        ]
    }

    /// Returns the bytes of linear memory that the invocation holds, in whole pages, with those of stack and data. What
    /// a module of unknown origin has touched, only the kernel knows: one system call.
    #[must_use]
    pub fn held_bytes(&self, call: &Call, lent: LentPart) -> usize {
        if self.is_strict {
            return self.instance.resident_bytes();
        }
        let parts = self.used(call, lent).into_iter();
        let held = parts.map(|(from, to)| ((to - from) as usize).next_multiple_of(PAGE_BYTES)).sum::<usize>();
        held + (self.layout.work as usize).next_multiple_of(PAGE_BYTES) - wasm32::STACK_BYTES + 2 * PAGE_BYTES
    }

    /// Clears what the invocation used, for the next one or for a repetition. Costs some 15 us after a trap or an
    /// abandoned run.
    #[inline]
    pub fn reset(&mut self, call: &Call, lent: LentPart) {
        if !self.is_begun {
            return;
        }
        self.is_begun = false;
        let used = self.used(call, lent);
        if weakened::by("reset") && !self.instance.is_spent() {
            return;
        }
        let renewed = if self.is_strict || self.instance.is_spent() {
            self.instance.reset_all()
        } else {
            self.instance.reset_used(&used, MEMORY_PART_BYTES_KEPT)
        };
        self.is_usable = renewed.is_ok();
    }

    /// Gives up the parked run of an invocation.
    pub fn abandon(&mut self) {
        self.instance.abandon();
    }
}
