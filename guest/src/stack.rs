//! Pooled stacks for extensions, and the switch onto one and back.
//!
//! A stack consists of the extension's share, room for one signal frame of the kernel (`AT_MINSIGSTKSZ`, which grows
//! with the vector registers of the machine), and the depth of a host call. The guard below is wider than any single
//! step of the stack pointer, because the compiler touches every page of a large frame.
//!
//! The switch saves the registers that a C function preserves on the worker's stack, and stores the stack pointer where
//! the fault handler and [`leave`](super::running::leave) find it. It costs about 3 ns.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;

use super::region::{PAGE_BYTES, Region};
use crate::limits::{
    EXTENSION_STACK_BYTES, HOST_CALL_STACK_BYTES, STACK_GUARD_BYTES, STACKS_KEPT_PER_WORKER,
};

/// The reason why a stack was left for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Cause {
    /// The extension panicked.
    Panic = 1,
    /// An allocation did not fit the arena.
    OutOfMemory = 2,
    /// The stack was used up, or too little was left for a host call.
    StackOverflow = 3,
    /// Its code reached an instruction that aborts (`ud2`, in a module `unreachable`), where a library ends the process,
    /// as at 2^64 clones of one `Rc`.
    Abort = 4,
    /// Its code read an address without memory, or divided by zero: the compiler made wrong code of safe Rust. In a
    /// module any other trap.
    WrongCode = 5,
}

impl Cause {
    /// Returns the cause with this number; `None` for 0 and for unknown numbers.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Panic),
            2 => Some(Self::OutOfMemory),
            3 => Some(Self::StackOverflow),
            4 => Some(Self::Abort),
            5 => Some(Self::WrongCode),
            _ => None,
        }
    }
}

/// The stack pointers that the switch saves.
#[repr(C)]
#[derive(Debug)]
pub struct StackPointers {
    /// The worker's stack pointer, to return to.
    pub(super) of_worker: Cell<usize>,
    /// The stack pointer of the stack parked last.
    pub(super) of_parked: Cell<usize>,
}

impl StackPointers {
    pub(super) const fn new() -> Self {
        Self { of_worker: Cell::new(0), of_parked: Cell::new(0) }
    }
}

/// A function that runs on another stack.
pub type StackEntry = unsafe extern "C" fn(*mut c_void) -> u64;

/// The outcome of a [`StackEntry`], in the two registers of a C result.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOutcome {
    /// The entry's return value; 0 if its stack was left.
    pub value: u64,
    /// 0 after a return, otherwise the number of a [`Cause`], or [`PARKED_BY_SIGNAL`], [`PARKED_BY_CALL`].
    pub cause: u64,
}

/// The handler of the preemption signal parked the stack; its frame lies on it.
pub const PARKED_BY_SIGNAL: u64 = 16;

/// A host call parked the stack at its end.
pub const PARKED_BY_CALL: u64 = 17;

impl StackOutcome {
    /// Returns why the stack was left; `None` if the entry returned.
    #[inline]
    #[must_use]
    pub fn cause(self) -> Option<Cause> {
        Cause::from_number(self.cause)
    }

    /// Returns whether the stack was parked and is to be resumed or discarded.
    #[inline]
    #[must_use]
    pub const fn is_parked(self) -> bool {
        self.cause >= PARKED_BY_SIGNAL
    }
}

/// A mapped stack with its guard.
#[derive(Debug)]
pub struct Stack {
    region: Region,
}

impl Stack {
    /// Maps a stack. Two system calls; pages are touched as the stack grows.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        let bytes = EXTENSION_STACK_BYTES + reserve_bytes();
        let stack = Region::new(bytes.next_multiple_of(PAGE_BYTES), STACK_GUARD_BYTES);
        let stack = stack.map(|region| Self { region })?;
        assert!(stack.top().is_multiple_of(16), "the first frame is aligned");
        assert_eq!(stack.top() - stack.bottom(), stack.bytes(), "the guard is below the stack");
        Ok(stack)
    }

    /// Returns the lowest usable byte.
    #[inline]
    #[must_use]
    pub fn bottom(&self) -> usize {
        self.region.start().as_ptr() as usize
    }

    /// Returns the bytes that code on the stack can touch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// Returns one past the highest byte, where the first frame begins; a multiple of 16.
    #[inline]
    #[must_use]
    pub fn top(&self) -> usize {
        self.region.end() as usize
    }
}

/// Returns the free bytes that a host call needs: the frame of a signal during the call, and its own depth.
#[must_use]
pub fn reserve_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| signal_frame_bytes() + HOST_CALL_STACK_BYTES)
}

/// Returns the bytes that the kernel needs on a stack to deliver a signal on this machine.
#[must_use]
pub fn signal_frame_bytes() -> usize {
    // SAFETY: reads the auxiliary vector of the process.
    let told = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    // A kernel that does not report the size is older than 5.14 and supports no registers beyond AVX-512.
    told.max(libc::MINSIGSTKSZ).max(4096)
}

/// The unused stacks of one worker. A parked stack stays outside until its invocation ends.
#[derive(Debug, Default)]
pub struct StackPool {
    free: Vec<Stack>,
}

impl StackPool {
    /// Creates a pool with one stack ready.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        let mut free = Vec::with_capacity(STACKS_KEPT_PER_WORKER);
        free.push(Stack::new()?);
        Ok(Self { free })
    }

    /// Returns the stack given back last, whose pages are warm, or a new one.
    ///
    /// # Errors
    /// The kernel's error if it cannot map a new one.
    #[inline]
    pub fn take(&mut self) -> io::Result<Stack> {
        self.free.pop().map_or_else(Stack::new, Ok)
    }

    /// Returns a stack to the pool, or unmaps it when the pool is full.
    #[inline]
    pub fn give(&mut self, stack: Stack) {
        debug_assert!(
            self.free.last().is_none_or(|free| free.bottom() != stack.bottom()),
            "a stack is given back once"
        );
        if self.free.len() < STACKS_KEPT_PER_WORKER {
            self.free.push(stack);
        }
    }
}

/// Calls `entry(data)` with the stack pointer at `top`, and returns when it returns or its stack is left.
///
/// It deliberately has no unwind tables, so that a walk over the extension's stack ends here. The first of `pointers`
/// receives the stack pointer to return to.
///
/// # Safety
/// `top` is the top of a mapped stack that nothing runs on, and the thread's record says so; `entry` may be called with
/// `data`. All that `entry` owns may be forgotten.
#[unsafe(naked)]
pub unsafe extern "C" fn switch_to(
    pointers: *const StackPointers,
    entry: StackEntry,
    data: *mut c_void,
    top: usize,
) -> StackOutcome {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rbx, rdi",
        "mov rsp, rcx",
        "mov rdi, rdx",
        "xor ebp, ebp",
        "call rsi",
        "mov rsp, [rbx]",
        "xor edx, edx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// The exit of a left stack onto the worker's stack. Expects the stack pointer that [`switch_to`] saved, and the cause
/// in `rdx`. Restores the flags and the floating-point unit, which the extension may have changed.
///
/// # Safety
/// To be jumped to, never called.
#[unsafe(naked)]
pub unsafe extern "C" fn landing() {
    naked_asm!(
        "cld",
        "fninit",
        "xor eax, eax",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Jumps from the extension's stack to [`landing`] with `cause`.
///
/// # Safety
/// Only on a stack entered by [`switch_to`] with the same `pointers`, and left for good.
#[unsafe(naked)]
pub unsafe extern "C" fn jump_to_landing(pointers: *const StackPointers, cause: u64) -> ! {
    naked_asm!("mov rsp, [rdi]", "mov rdx, rsi", "jmp {landing}", landing = sym landing)
}

/// Parks the extension's stack: saves the registers that a C function preserves on it, and goes to [`landing`] with
/// `how`. Returns when [`switch_back`] resumes it.
///
/// # Safety
/// Only on a stack entered by [`switch_to`] or [`switch_back`] with the same `pointers`. The second of `pointers`
/// receives the saved stack pointer.
#[unsafe(naked)]
pub unsafe extern "C" fn park(pointers: *const StackPointers, how: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi + 8], rsp",
        "mov rsp, [rdi]",
        "mov rdx, rsi",
        "jmp {landing}",
        landing = sym landing,
    )
}

/// Continues a stack parked by [`park`]; returns as [`switch_to`] does.
///
/// # Safety
/// `stack_pointer` is the one that [`park`] on this thread saved, used once, and the thread's record names its stack.
#[unsafe(naked)]
pub unsafe extern "C" fn switch_back(pointers: *const StackPointers, stack_pointer: usize) -> StackOutcome {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}
