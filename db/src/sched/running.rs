//! What runs on this thread right now: the stack, the arena, and whether a host call is in progress.
//!
//! One record per thread, without a destructor and without lazy set-up, so that a signal handler may read
//! it. The worker fills it before it switches to an extension's stack and clears it when it is back. The
//! fault handler decides by it alone whether a fault is the extension's.
//!
//! Host calls run on the extension's stack. [`host_call`] first looks whether enough of it is left, and
//! marks the time during which a fault would be the server's own and leaving would tear the server's state.
//! Preemption will look at the same mark: it sets *pending* while a host call runs, and `host_call` will
//! look at *pending* on its way out.

use std::arch::asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{Ordering, compiler_fence};

use super::arena::Arena;
use super::stack::{Entry, Outcome, Stack, jump_to_landing, reserve_bytes, switch_to};

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
            _ => None,
        }
    }
}

/// The record of one thread. `stack_pointer` comes first: the switch writes it by address.
#[repr(C)]
#[derive(Debug)]
pub struct Running {
    stack_pointer: Cell<usize>,
    bottom: Cell<usize>,
    top: Cell<usize>,
    reserve: Cell<usize>,
    in_host_call: Cell<bool>,
    arena: Cell<*mut Arena>,
    context: Cell<*mut c_void>,
}

thread_local! {
    static RUNNING: Running = const {
        Running {
            stack_pointer: Cell::new(0),
            bottom: Cell::new(0),
            top: Cell::new(0),
            reserve: Cell::new(0),
            in_host_call: Cell::new(false),
            arena: Cell::new(ptr::null_mut()),
            context: Cell::new(ptr::null_mut()),
        }
    };
}

impl Running {
    /// Whether an extension's stack is in use on this thread and no host call is in progress: only then
    /// may the stack be left.
    #[inline]
    #[must_use]
    pub fn may_be_left(&self) -> bool {
        self.top.get() != 0 && !self.in_host_call.get()
    }

    /// The bounds of the stack in use, the guard excluded; (0, 0) when none is.
    #[must_use]
    pub fn bounds(&self) -> (usize, usize) {
        (self.bottom.get(), self.top.get())
    }

    /// The stack pointer of the worker to come back to.
    #[must_use]
    pub fn worker_stack_pointer(&self) -> usize {
        self.stack_pointer.get()
    }
}

/// Hands the record of this thread to `look`. Safe in a signal handler.
#[inline]
pub fn with<R>(look: impl FnOnce(&Running) -> R) -> R {
    RUNNING.with(look)
}

/// Runs `entry(data)` on `stack` until it returns or is left. `arena` is what [`arena`] answers meanwhile,
/// `context` what [`context`] answers. Costs a few ns beside the entry itself.
///
/// # Safety
/// `entry` may be called with `data`, and may be left without running a destructor; `arena` and `context`
/// stay valid until this returns. Nobody runs on `stack`. The thread holds a [`super::fault::Guarded`].
#[inline]
pub unsafe fn run(
    stack: &Stack,
    arena: *mut Arena,
    context: *mut c_void,
    entry: Entry,
    data: *mut c_void,
) -> Outcome {
    RUNNING.with(|running| {
        assert!(running.top.get() == 0, "an extension cannot run another one");
        if running.reserve.get() == 0 {
            running.reserve.set(reserve_bytes());
        }
        running.arena.set(arena);
        running.context.set(context);
        running.bottom.set(stack.bottom());
        running.top.set(stack.top());
        compiler_fence(Ordering::SeqCst);
        // SAFETY: the stack is free and mapped, as the caller promises, and the record is filled.
        let outcome = unsafe { switch_to(running, entry, data, stack.top()) };
        compiler_fence(Ordering::SeqCst);
        running.top.set(0);
        running.in_host_call.set(false);
        running.arena.set(ptr::null_mut());
        running.context.set(ptr::null_mut());
        outcome
    })
}

/// Leaves the extension's stack: [`run`] returns with `cause`. Nothing is unwound, no destructor runs.
///
/// # Safety
/// Called on the extension's stack, with no frame of the server on it that owns anything.
pub unsafe fn leave(cause: Cause) -> ! {
    RUNNING.with(|running| {
        assert!(running.top.get() != 0, "no stack to leave");
        // SAFETY: this thread is on the stack that `run` switched to; the rest is the caller's promise.
        unsafe { jump_to_landing(running, cause as u64) }
    })
}

/// Does `work` as a host call: when the stack has too little left for it, the stack is left instead.
///
/// # Safety
/// Called on the extension's stack, directly from the function that the extension called; that function
/// owns nothing. `work` neither panics nor leaves.
#[inline]
pub unsafe fn host_call<R>(work: impl FnOnce(*mut c_void) -> R) -> R {
    RUNNING.with(|running| {
        if stack_pointer().wrapping_sub(running.bottom.get()) < running.reserve.get() {
            // SAFETY: only this function's frame and its caller's are on the stack, and own nothing.
            unsafe { leave(Cause::StackOverflow) }
        }
        running.in_host_call.set(true);
        compiler_fence(Ordering::SeqCst);
        let answer = work(running.context.get());
        compiler_fence(Ordering::SeqCst);
        running.in_host_call.set(false);
        answer
    })
}

/// The arena of the invocation that runs on this thread; null when none does.
#[inline]
#[must_use]
pub fn arena() -> *mut Arena {
    RUNNING.with(|running| running.arena.get())
}

/// The context given to [`run`]; null when nothing runs.
#[inline]
#[must_use]
pub fn context() -> *mut c_void {
    RUNNING.with(|running| running.context.get())
}

#[inline]
fn stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}
