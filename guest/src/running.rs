//! The state of this thread's running code: stack, arena, slice, and whether a host call is in progress.
//!
//! One record per thread, without a destructor and without lazy initialization, so that a signal handler may read it.
//! The worker fills it before it switches to an extension's stack and clears it afterwards. The handlers of faults and
//! of preemption decide from this record only; its fields are atomic for the compiler's sake, because only one thread
//! uses it.
//!
//! Host calls run on the extension's stack. [`host_call`] first checks that enough of it is left. Then it marks the
//! time in which a fault would be the server's own, and in which leaving or parking the stack would corrupt the
//! server's state. A preemption in that time is *pending*, and the host call parks at its end.

mod module_state;

use std::arch::asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, compiler_fence};

pub use module_state::{ModuleBounds, ModuleEntry};
use module_state::{ModuleState, ParkedModule};

use super::arena::Arena;
use super::heartbeat::{DUMMY, Heartbeat};
use super::signal;
use super::stack::{
    Cause, PARKED_BY_CALL, PARKED_BY_SIGNAL, Stack, StackEntry, StackOutcome, StackPointers, jump_to_landing,
    park, reserve_bytes, switch_back, switch_to,
};

/// The record of one thread's running code.
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
    module: ModuleState,
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
            heartbeat: Cell::new(&raw const DUMMY),
            module: ModuleState::new(),
        }
    };
}

impl ThreadState {
    /// Returns whether the worker has lent the thread to an extension.
    #[inline]
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.top.load(Relaxed) != 0
    }

    /// Returns whether an extension's stack is in use on this thread and no host call is in progress. Only then may the
    /// stack be left or parked.
    #[inline]
    #[must_use]
    pub fn may_be_left(&self) -> bool {
        self.is_lent() && !self.in_host_call.load(Relaxed)
    }

    /// Returns whether a host call is in progress.
    #[inline]
    #[must_use]
    pub fn is_in_host_call(&self) -> bool {
        self.in_host_call.load(Relaxed)
    }

    /// Returns the module that runs, or is being instantiated, on this thread; `None` for native code.
    #[inline]
    #[must_use]
    pub fn module(&self) -> Option<ModuleBounds> {
        self.module.bounds()
    }

    /// Returns whether a stack that [may be left](ThreadState::may_be_left) may be parked at this instruction. Native
    /// code may be parked anywhere; a module only in its own code, because Wasmtime's may hold a lock.
    #[inline]
    #[must_use]
    pub fn may_be_parked_at(&self, instruction: usize) -> bool {
        self.module().is_none_or(|module| (module.code.0..module.code.1).contains(&instruction))
    }

    /// Sets the address that a trap of the module hit; 0 if it was no access.
    pub fn set_trap_address(&self, address: usize) {
        self.module.set_trap_address(address);
    }

    /// Returns the bounds of the stack in use, without the guard; (_, 0) if there is none.
    #[must_use]
    pub fn bounds(&self) -> (usize, usize) {
        (self.bottom.load(Relaxed), self.top.load(Relaxed))
    }

    /// Returns the worker's saved stack pointer.
    #[must_use]
    pub fn worker_stack_pointer(&self) -> usize {
        self.pointers.of_worker.get()
    }

    /// Returns the end of the current slice, in cycles.
    #[must_use]
    pub fn slice_ends(&self) -> u64 {
        self.slice_ends.load(Relaxed)
    }

    /// Makes the next host call that ends park the stack.
    pub fn set_pending(&self) {
        self.pending.store(true, Relaxed);
    }

    /// Parks the extension's stack with the signal frame on it; returns when it is resumed.
    ///
    /// # Safety
    /// In the handler of the preemption signal, which interrupted the extension on its own stack while it [may be
    /// left](ThreadState::may_be_left).
    pub unsafe fn park_by_signal(&self) {
        self.pending.store(false, Relaxed);
        self.module.note_parked();
        // SAFETY: this thread is on the lent stack; the caller promises the rest.
        unsafe { park(&raw const self.pointers, PARKED_BY_SIGNAL) };
    }

    /// Parks the stack at the end of a host call. The call counts as in progress until the stack is left: a signal that
    /// parked the stack in the middle of this would return to a saved stack pointer that belongs to another stack by
    /// then.
    #[cold]
    fn park_by_call(&self) {
        self.in_host_call.store(true, Relaxed);
        self.pending.store(false, Relaxed);
        self.module.note_parked();
        compiler_fence(SeqCst);
        // SAFETY: a host call ends, so this thread is on the lent stack.
        unsafe { park(&raw const self.pointers, PARKED_BY_CALL) };
    }

    #[inline(always)]
    fn lend(&self, stack: &Stack, arena: *mut Arena, context: *mut c_void, slice_ends: u64) {
        assert!(!self.is_lent(), "an extension cannot run another one");
        debug_assert!(!self.in_host_call.load(Relaxed), "the host call before is over");
        if self.reserve.get() == 0 {
            self.reserve.set(reserve_bytes());
        }
        self.arena.set(arena);
        self.context.set(context);
        self.slice_ends.store(slice_ends, Relaxed);
        self.pending.store(false, Relaxed);
        self.bottom.store(stack.bottom(), Relaxed);
        // SAFETY: the setter of the heartbeat promises to unset it before the heartbeat's end.
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

/// Returns the record of this thread. The lifetime is that of the thread, on which every caller stays.
#[inline(always)]
fn record<'t>() -> &'t ThreadState {
    // SAFETY: the record has no destructor, so it is valid as long as the thread.
    RUNNING.with(|running| unsafe { &*ptr::from_ref(running) })
}

/// Passes the record of this thread to `look`. Safe in a signal handler.
#[inline]
pub fn with<R>(look: impl FnOnce(&ThreadState) -> R) -> R {
    RUNNING.with(look)
}

/// Sets the heartbeat of this thread; null for none.
///
/// # Safety
/// The heartbeat lives until another one is set.
pub unsafe fn set_heartbeat(heartbeat: *const Heartbeat) {
    let heartbeat = if heartbeat.is_null() { &raw const DUMMY } else { heartbeat };
    RUNNING.with(|running| running.heartbeat.set(heartbeat));
}

/// A parked stack: its frames are to be resumed on this thread or discarded.
#[derive(Debug)]
pub struct ParkedStack {
    stack: Stack,
    stack_pointer: usize,
    by_signal: bool,
    module: ParkedModule,
}

impl ParkedStack {
    /// Wraps the stack on which the last [`run`] or [`resume`] of this thread was parked.
    #[must_use]
    pub fn new(stack: Stack, outcome: StackOutcome) -> Self {
        assert!(outcome.is_parked(), "not a parked stack");
        let running = record();
        let stack_pointer = running.pointers.of_parked.get();
        assert!((stack.bottom()..stack.top()).contains(&stack_pointer), "the stack was parked last");
        Self {
            stack,
            stack_pointer,
            by_signal: outcome.cause == PARKED_BY_SIGNAL,
            module: running.module.parked(),
        }
    }

    /// Returns the maximum bytes that the stack holds.
    #[must_use]
    pub fn stack_bytes(&self) -> usize {
        self.stack.bytes()
    }

    /// Returns whether Wasmtime's frames on the stack are in its list of activations, as they must be.
    pub(crate) fn has_activation(&self) -> bool {
        self.module.has_activation()
    }

    /// Returns the stack, discarding its frames unless it was resumed. The instance of a module that ran on it can only
    /// be abandoned then.
    #[must_use]
    pub fn into_stack(self) -> Stack {
        self.stack
    }
}

/// Runs `entry(data)` on `stack` until it returns, is left or is parked. Meanwhile [`arena`] returns `arena` and
/// [`context`] returns `context`; the slice ends at `slice_ends`. Costs a few ns in addition to the entry.
///
/// # Safety
/// `entry` may be called with `data`, and may be left without running a destructor; `arena` and `context` stay valid
/// until this returns. Nothing runs on `stack`. The thread holds a [`super::fault::Guarded`].
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

/// Runs a function of a module as [`run`] runs native code. Costs some 2 ns more.
///
/// # Safety
/// As for [`run`]. `module` is the latest one of its instance, which is not dropped, moved to another thread or entered
/// again before this run has ended, and is abandoned if the run leaves the stack or is parked and never resumed.
#[inline(always)]
pub unsafe fn run_module(
    stack: &Stack,
    arena: *mut Arena,
    context: *mut c_void,
    slice_ends: u64,
    module: ModuleEntry,
) -> StackOutcome {
    let running = record();
    running.module.begin(ParkedModule::fresh(module.bounds));
    // SAFETY: the caller promises what `run` asks for.
    let outcome = unsafe { run(stack, arena, context, slice_ends, module.entry, module.data) };
    debug_assert!(
        outcome.cause != 0 || !running.module.has_activation(),
        "a call that returned is on no list"
    );
    running.module.end();
    outcome
}

/// Runs `work`, in which Wasmtime calls code of a module on this thread's own stack, to instantiate it. A trap there is
/// the module's; the code is not preempted.
pub(crate) fn with_module<R>(module: ModuleBounds, work: impl FnOnce() -> R) -> R {
    struct End<'t>(&'t ThreadState);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.module.end();
        }
    }
    let running = record();
    assert!(!running.is_lent(), "an extension cannot instantiate a module");
    running.module.begin(ParkedModule::fresh(module));
    let _end = End(running);
    work()
}

/// Continues a parked stack, as [`run`] does. All registers, including vector registers, are restored by the kernel
/// from the signal frame.
///
/// # Safety
/// As for [`run`], with the arena and the context that the stack was run with. `parked` was parked on this thread and
/// is resumed for the first time since.
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
    running.module.begin(parked.module);
    running.lend(&parked.stack, arena, context, slice_ends);
    // SAFETY: the frames on the stack are whole, as the caller promises, and the record is filled.
    let outcome = unsafe { switch_back(&raw const running.pointers, parked.stack_pointer) };
    running.take_back();
    running.module.end();
    if outcome.cause == PARKED_BY_SIGNAL {
        signal::unblock();
    }
    outcome
}

/// Leaves the extension's stack: [`run`] returns with `cause`. Nothing is unwound, no destructor runs.
///
/// # Safety
/// Called on the extension's stack, which holds no frame of the server that owns anything.
pub unsafe fn leave(cause: Cause) -> ! {
    let running = record();
    assert!(running.is_lent(), "no stack to leave");
    // SAFETY: this thread is on the stack that `run` switched to; the caller promises the rest.
    unsafe { jump_to_landing(&raw const running.pointers, cause as u64) }
}

/// Runs `work` as a host call; if too little of the stack is left for it, leaves the stack instead.
///
/// # Safety
/// Called on the extension's stack, directly from the function that the extension called; that function owns nothing,
/// and neither does the result. `work` neither panics nor leaves.
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

/// Runs `work` as a host call of a module; if too little of the stack is left for it, returns that as the cause in
/// place of leaving the stack. A call that fails does not park: its error ends the run. A module that calls the host
/// while it is instantiated, which the builder refuses, gets an error.
///
/// # Safety
/// Called on the extension's stack, from a function that Wasmtime called and whose frame owns nothing. `work` neither
/// panics nor leaves.
#[inline(always)]
pub unsafe fn host_call_of_module(work: impl FnOnce() -> Result<(), Cause>) -> Result<(), Cause> {
    let running = record();
    if stack_pointer().wrapping_sub(running.bottom.load(Relaxed)) < running.reserve.get() {
        return Err(Cause::StackOverflow);
    }
    if !running.is_lent() {
        return Err(Cause::WrongCode);
    }
    running.in_host_call.store(true, Relaxed);
    compiler_fence(SeqCst);
    let answer = work();
    compiler_fence(SeqCst);
    running.in_host_call.store(false, Relaxed);
    compiler_fence(SeqCst);
    if answer.is_ok() && running.pending.load(Relaxed) {
        running.park_by_call();
    }
    answer
}

/// Parks the stack in the middle of a module's host call if a preemption is pending, so that a long one holds the core
/// no longer than its parts.
///
/// # Safety
/// Called by the `work` of a [`host_call_of_module`], on the module's stack. Until this returns, the frames on the stack
/// own nothing and borrow nothing, because they may be discarded, and the worker goes on meanwhile.
#[inline]
pub unsafe fn yield_in_host_call() {
    let running = record();
    debug_assert!(running.is_lent() && running.is_in_host_call(), "a part of a host call");
    if running.pending.load(Relaxed) {
        running.park_by_call();
        compiler_fence(SeqCst);
        running.in_host_call.store(true, Relaxed);
        compiler_fence(SeqCst);
    }
}

/// Returns the head of Wasmtime's list of activations on the stack in use.
pub(crate) fn activation() -> *mut u8 {
    RUNNING.with(|running| running.module.activation())
}

/// Sets the head of Wasmtime's list of activations on the stack in use.
pub(crate) fn set_activation(activation: *mut u8) {
    RUNNING.with(|running| running.module.set_activation(activation));
}

/// Returns the address that the trap of this run hit; 0 if it was no access.
pub(crate) fn trap_address() -> usize {
    RUNNING.with(|running| running.module.trap_address())
}

/// Returns the arena of the invocation on this thread; null if none runs.
#[inline]
#[must_use]
pub fn arena() -> *mut Arena {
    RUNNING.with(|running| running.arena.get())
}

/// Returns the context given to [`run`]; null if nothing runs.
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
