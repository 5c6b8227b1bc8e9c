//! What runs on this thread right now: the stack, the arena, its slice, and whether a host call is in progress.
//!
//! One record per thread, without a destructor and without lazy set-up, so that a signal handler may read
//! it. The worker fills it before it switches to an extension's stack and clears it when it is back. The
//! handlers of faults and of preemption decide by it alone; what they read is atomic, for the compiler's
//! sake: there is one thread.
//!
//! Host calls run on the extension's stack. [`host_call`] first looks whether enough of it is left, and
//! marks the time during which a fault would be the server's own, and leaving or parking would tear the
//! server's state. A preemption that comes meanwhile is *pending*, and the host call parks on its way out.

use std::arch::asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, compiler_fence};

use super::arena::Arena;
use super::heartbeat::{Heartbeat, NOBODYS};
use super::signal;
use super::stack::{
    Cause, PARKED_BY_CALL, PARKED_BY_SIGNAL, Stack, StackEntry, StackOutcome, StackPointers, jump_to_landing,
    park, reserve_bytes, switch_back, switch_to,
};

/// The record of one thread.
#[repr(C)]
#[derive(Debug)]
pub struct ThreadState {
    pointers: StackPointers,
    bottom: AtomicUsize,
    top: AtomicUsize,
    slice_ends: AtomicU64,
    in_host_call: AtomicBool,
    pending: AtomicBool,
    reserve: Cell<usize>,
    arena: Cell<*mut Arena>,
    context: Cell<*mut c_void>,
    heartbeat: Cell<*const Heartbeat>,
}

thread_local! {
    static RUNNING: ThreadState = const {
        ThreadState {
            pointers: StackPointers::new(),
            bottom: AtomicUsize::new(0),
            top: AtomicUsize::new(0),
            slice_ends: AtomicU64::new(0),
            in_host_call: AtomicBool::new(false),
            pending: AtomicBool::new(false),
            reserve: Cell::new(0),
            arena: Cell::new(ptr::null_mut()),
            context: Cell::new(ptr::null_mut()),
            heartbeat: Cell::new(&raw const NOBODYS),
        }
    };
}

impl ThreadState {
    /// Whether the worker has lent the thread to an extension.
    #[inline]
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.top.load(Relaxed) != 0
    }

    /// Whether an extension's stack is in use on this thread and no host call is in progress: only then
    /// may the stack be left or parked.
    #[inline]
    #[must_use]
    pub fn may_be_left(&self) -> bool {
        self.is_lent() && !self.in_host_call.load(Relaxed)
    }

    /// The bounds of the stack in use, the guard excluded; (_, 0) when none is.
    #[must_use]
    pub fn bounds(&self) -> (usize, usize) {
        (self.bottom.load(Relaxed), self.top.load(Relaxed))
    }

    /// The stack pointer of the worker to come back to.
    #[must_use]
    pub fn worker_stack_pointer(&self) -> usize {
        self.pointers.of_worker.get()
    }

    /// When the slice of what runs is over, in cycles.
    #[must_use]
    pub fn slice_ends(&self) -> u64 {
        self.slice_ends.load(Relaxed)
    }

    /// The next host call that ends parks the stack.
    pub fn set_pending(&self) {
        self.pending.store(true, Relaxed);
    }

    /// Parks the extension's stack with the signal frame on it; returns when it is resumed.
    ///
    /// # Safety
    /// In the handler of the preemption signal, which interrupted the extension on its own stack while it
    /// [may be left](Running::may_be_left).
    pub unsafe fn park_by_signal(&self) {
        self.pending.store(false, Relaxed);
        // SAFETY: this thread is on the stack that it was lent; the rest is the caller's promise.
        unsafe { park(&raw const self.pointers, PARKED_BY_SIGNAL) };
    }

    /// The call counts as in progress until the stack is left: a signal that parked the stack in the middle of this
    /// would come back to a parked stack pointer that is another stack's by then.
    #[cold]
    fn park_by_call(&self) {
        self.in_host_call.store(true, Relaxed);
        self.pending.store(false, Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: a host call ends, so this thread is on the stack that it was lent.
        unsafe { park(&raw const self.pointers, PARKED_BY_CALL) };
    }

    #[inline(always)]
    fn lend(&self, stack: &Stack, arena: *mut Arena, context: *mut c_void, slice_ends: u64) {
        assert!(!self.is_lent(), "an extension cannot run another one");
        if self.reserve.get() == 0 {
            self.reserve.set(reserve_bytes());
        }
        self.arena.set(arena);
        self.context.set(context);
        self.slice_ends.store(slice_ends, Relaxed);
        self.pending.store(false, Relaxed);
        self.bottom.store(stack.bottom(), Relaxed);
        // SAFETY: whoever sets the heartbeat takes it out before it ends.
        unsafe { (*self.heartbeat.get()).begin() };
        self.top.store(stack.top(), Relaxed);
        compiler_fence(SeqCst);
    }

    #[inline(always)]
    fn take_back(&self) {
        compiler_fence(SeqCst);
        self.top.store(0, Relaxed);
        self.in_host_call.store(false, Relaxed);
        // SAFETY: as in `lend`.
        unsafe { (*self.heartbeat.get()).end() };
        self.arena.set(ptr::null_mut());
        self.context.set(ptr::null_mut());
    }
}

/// The record of this thread. The lifetime is that of the thread, on which every caller stays.
#[inline(always)]
fn record<'t>() -> &'t ThreadState {
    // SAFETY: the record has no destructor, so it is valid as long as the thread.
    RUNNING.with(|running| unsafe { &*ptr::from_ref(running) })
}

/// Hands the record of this thread to `look`. Safe in a signal handler.
#[inline]
pub fn with<R>(look: impl FnOnce(&ThreadState) -> R) -> R {
    RUNNING.with(look)
}

/// Says where this thread shows that it comes back; null for nowhere.
///
/// # Safety
/// The heartbeat lives until another one is set.
pub unsafe fn set_heartbeat(heartbeat: *const Heartbeat) {
    let heartbeat = if heartbeat.is_null() { &raw const NOBODYS } else { heartbeat };
    RUNNING.with(|running| running.heartbeat.set(heartbeat));
}

/// A stack that was parked: it holds frames that are to be resumed on this thread, or forgotten.
#[derive(Debug)]
pub struct ParkedStack {
    stack: Stack,
    stack_pointer: usize,
    by_signal: bool,
}

impl ParkedStack {
    /// The stack on which the last [`run`] or [`resume`] of this thread was parked.
    #[must_use]
    pub fn new(stack: Stack, outcome: StackOutcome) -> Self {
        assert!(outcome.is_parked(), "not a parked stack");
        let stack_pointer = RUNNING.with(|running| running.pointers.of_parked.get());
        Self { stack, stack_pointer, by_signal: outcome.cause == PARKED_BY_SIGNAL }
    }

    /// Bytes that the stack holds at the most.
    #[must_use]
    pub fn stack_bytes(&self) -> usize {
        self.stack.bytes()
    }

    /// Forgets what is on the stack, or takes it after it was resumed.
    #[must_use]
    pub fn into_stack(self) -> Stack {
        self.stack
    }
}

/// Runs `entry(data)` on `stack` until it returns, is left or is parked. `arena` is what [`arena`] answers
/// meanwhile, `context` what [`context`] answers; its slice ends at `slice_ends`. Costs a few ns beside the
/// entry itself.
///
/// # Safety
/// `entry` may be called with `data`, and may be left without running a destructor; `arena` and `context`
/// stay valid until this returns. Nobody runs on `stack`. The thread holds a [`super::fault::Guarded`].
#[inline(always)]
pub unsafe fn run(
    stack: &Stack,
    arena: *mut Arena,
    context: *mut c_void,
    slice_ends: u64,
    entry: StackEntry,
    data: *mut c_void,
) -> StackOutcome {
    let running = record();
    running.lend(stack, arena, context, slice_ends);
    // SAFETY: the stack is free and mapped, as the caller promises, and the record is filled.
    let outcome = unsafe { switch_to(&raw const running.pointers, entry, data, stack.top()) };
    running.take_back();
    if outcome.cause == PARKED_BY_SIGNAL {
        signal::unblock();
    }
    outcome
}

/// Goes on where a stack was parked, as [`run`] does. Registers, vector registers among them, are as they
/// were: the kernel restores them from the signal frame.
///
/// # Safety
/// As for [`run`], with the arena and the context that the stack was run with. `parked` was parked on this
/// thread and is resumed for the first time since.
#[cold]
pub unsafe fn resume(
    parked: &ParkedStack,
    arena: *mut Arena,
    context: *mut c_void,
    slice_ends: u64,
) -> StackOutcome {
    let running = record();
    if parked.by_signal {
        signal::block();
    }
    running.lend(&parked.stack, arena, context, slice_ends);
    // SAFETY: the frames on the stack are whole, as the caller promises, and the record is filled.
    let outcome = unsafe { switch_back(&raw const running.pointers, parked.stack_pointer) };
    running.take_back();
    if outcome.cause == PARKED_BY_SIGNAL {
        signal::unblock();
    }
    outcome
}

/// Leaves the extension's stack: [`run`] returns with `cause`. Nothing is unwound, no destructor runs.
///
/// # Safety
/// Called on the extension's stack, with no frame of the server on it that owns anything.
pub unsafe fn leave(cause: Cause) -> ! {
    let running = record();
    assert!(running.is_lent(), "no stack to leave");
    // SAFETY: this thread is on the stack that `run` switched to; the rest is the caller's promise.
    unsafe { jump_to_landing(&raw const running.pointers, cause as u64) }
}

/// Does `work` as a host call: when the stack has too little left for it, the stack is left instead.
///
/// # Safety
/// Called on the extension's stack, directly from the function that the extension called; that function
/// owns nothing, and neither does the answer. `work` neither panics nor leaves.
#[inline(always)]
pub unsafe fn host_call<R>(work: impl FnOnce(*mut c_void) -> R) -> R {
    let running = record();
    if stack_pointer().wrapping_sub(running.bottom.load(Relaxed)) < running.reserve.get() {
        // SAFETY: only this function's frame and its caller's are on the stack, and own nothing.
        unsafe { leave(Cause::StackOverflow) }
    }
    running.in_host_call.store(true, Relaxed);
    compiler_fence(SeqCst);
    let answer = work(running.context.get());
    compiler_fence(SeqCst);
    running.in_host_call.store(false, Relaxed);
    compiler_fence(SeqCst);
    if running.pending.load(Relaxed) {
        running.park_by_call();
    }
    answer
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
