//! Stacks for extensions, pooled, and the switch onto one and back.
//!
//! A stack is what an extension may use, plus room for one signal frame of the kernel (`AT_MINSIGSTKSZ`,
//! which grows with the vector registers of the machine), plus the depth of a host call, above a guard that
//! is wider than any single step of the stack pointer: the compiler touches every page of a large frame.
//!
//! The switch saves the registers that a C function preserves, on the worker's stack, and puts the stack
//! pointer where the fault handler and [`leave`](super::running::leave) find it. It costs about 3 ns.

use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;

use super::region::{PAGE_BYTES, Region};
use crate::limits::{
    EXTENSION_STACK_BYTES, HOST_CALL_STACK_BYTES, STACK_GUARD_BYTES, STACKS_KEPT_PER_WORKER,
};

/// Why a stack was left for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Cause {
    /// The extension panicked.
    Panic = 1,
    /// An allocation did not fit the arena.
    OutOfMemory = 2,
    /// The stack was used up, or too little was left for a host call.
    StackOverflow = 3,
    /// It came to an instruction that aborts (`ud2`): where a library ends the process, as at 2^64 clones of one `Rc`.
    Abort = 4,
}

impl Cause {
    /// The cause of a number; `None` for 0 and for numbers that are none.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Panic),
            2 => Some(Self::OutOfMemory),
            3 => Some(Self::StackOverflow),
            4 => Some(Self::Abort),
            _ => None,
        }
    }
}

/// Where the switch saves stack pointers, by address.
#[repr(C)]
#[derive(Debug)]
pub struct StackPointers {
    /// The worker's, to come back to.
    pub(super) of_worker: Cell<usize>,
    /// That of the stack which was parked last.
    pub(super) of_parked: Cell<usize>,
}

impl StackPointers {
    pub(super) const fn new() -> Self {
        Self { of_worker: Cell::new(0), of_parked: Cell::new(0) }
    }
}

/// A function that runs on another stack.
pub type StackEntry = unsafe extern "C" fn(*mut c_void) -> u64;

/// How an [`StackEntry`] came back, in the two registers of a C answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackOutcome {
    /// What the entry returned; 0 when it was left.
    pub value: u64,
    /// 0 when it returned, else the number of a [`Cause`], or [`PARKED_BY_SIGNAL`], [`PARKED_BY_CALL`].
    pub cause: u64,
}

/// The stack was parked by the handler of the preemption signal, whose frame lies on it.
pub const PARKED_BY_SIGNAL: u64 = 16;

/// The stack was parked at the end of a host call.
pub const PARKED_BY_CALL: u64 = 17;

impl StackOutcome {
    /// Why the stack was left; `None` when the entry returned.
    #[inline]
    #[must_use]
    pub fn cause(self) -> Option<Cause> {
        Cause::from_number(self.cause)
    }

    /// Whether the stack was parked and is to be resumed or forgotten.
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
    /// What the kernel says.
    pub fn new() -> io::Result<Self> {
        let bytes = EXTENSION_STACK_BYTES + reserve_bytes();
        Region::new(bytes.next_multiple_of(PAGE_BYTES), STACK_GUARD_BYTES).map(|region| Self { region })
    }

    /// The lowest byte that may be used.
    #[inline]
    #[must_use]
    pub fn bottom(&self) -> usize {
        self.region.start().as_ptr() as usize
    }

    /// Bytes that whoever runs on it can touch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.region.bytes()
    }

    /// One past the highest byte, where the first frame begins; a multiple of 16.
    #[inline]
    #[must_use]
    pub fn top(&self) -> usize {
        self.region.end() as usize
    }
}

/// What a host call must find free below it: a frame of a signal that arrives meanwhile, and its own depth.
#[must_use]
pub fn reserve_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| signal_frame_bytes() + HOST_CALL_STACK_BYTES)
}

/// What the kernel needs on a stack to deliver a signal on this machine, in bytes.
#[must_use]
pub fn signal_frame_bytes() -> usize {
    // SAFETY: reads the auxiliary vector of the process.
    let told = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    // A kernel that does not tell is older than 5.14 and knows no registers beyond AVX-512.
    told.max(libc::MINSIGSTKSZ).max(4096)
}

/// Stacks of one worker that nobody runs on. Parked stacks stay out of it until their invocation ends.
#[derive(Debug, Default)]
pub struct StackPool {
    free: Vec<Stack>,
}

impl StackPool {
    /// A pool with one stack ready.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new() -> io::Result<Self> {
        let mut free = Vec::with_capacity(STACKS_KEPT_PER_WORKER);
        free.push(Stack::new()?);
        Ok(Self { free })
    }

    /// The stack given back last, whose pages are warm, or a new one.
    ///
    /// # Errors
    /// What the kernel says when a new one has to be mapped.
    #[inline]
    pub fn take(&mut self) -> io::Result<Stack> {
        self.free.pop().map_or_else(Stack::new, Ok)
    }

    /// Takes a stack back, or unmaps it when enough are kept.
    #[inline]
    pub fn give(&mut self, stack: Stack) {
        if self.free.len() < STACKS_KEPT_PER_WORKER {
            self.free.push(stack);
        }
    }
}

/// Calls `entry(data)` with the stack pointer at `top`, and returns when it does or when it is left.
///
/// Without unwind tables on purpose: a walk over the extension's stack ends here. The first of
/// `pointers` receives the stack pointer to come back to.
///
/// # Safety
/// `top` is the top of a mapped stack that nobody runs on, and the thread's record says so; `entry` may be called with
/// `data`. Whatever `entry` owns may be forgotten.
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

/// Where a left stack comes out on the worker's: the stack pointer as [`switch_to`] saved it, the cause in
/// `rdx`. Whatever the extension did to the flags and the floating-point unit is undone.
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

/// Goes from the extension's stack to [`landing`] with `cause`.
///
/// # Safety
/// Only on a stack that [`switch_to`] with the same `pointers` went to, and that is left for good.
#[unsafe(naked)]
pub unsafe extern "C" fn jump_to_landing(pointers: *const StackPointers, cause: u64) -> ! {
    naked_asm!("mov rsp, [rdi]", "mov rdx, rsi", "jmp {landing}", landing = sym landing)
}

/// Parks the extension's stack: saves on it what a C function preserves, and goes to [`landing`] with `how`.
/// Returns when [`switch_back`] comes for it.
///
/// # Safety
/// Only on a stack that [`switch_to`] or [`switch_back`] with the same `pointers` went to. The second of
/// `pointers` receives where the stack was left.
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

/// Goes on where [`park`] left a stack; comes back as [`switch_to`] does.
///
/// # Safety
/// `stack_pointer` is what [`park`] on this thread left, once, and the thread's record says whose stack it is.
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
