//! The entry of a module's function on a pooled stack, and the translation of its traps.

use std::ffi::c_void;

use wasmtime::Trap;

use super::code::{Ended, Function, ModuleStore};
use super::memory::{ADDRESSABLE_BYTES, Memory};
use crate::limits::MODULE_MEMORY_BYTES;
use crate::running;
use crate::stack::Cause;

/// A store with its functions, and the call that it executes. Stays where it is while a run uses it.
pub(super) struct Live {
    pub(super) store: ModuleStore,
    pub(super) functions: Box<[Function]>,
    pub(super) memory: Memory,
    /// The function to call, and its argument.
    pub(super) function: usize,
    pub(super) argument: u32,
    /// Why the call ended; `None` if it returned.
    pub(super) cause: Option<Cause>,
}

/// Calls the function that `live` names; returns its result, or 0 and notes the cause.
///
/// # Safety
/// `live` is a [`Live`] that nothing else uses until this returns or its stack is discarded. Runs on a pooled stack, by
/// [`running::run_module`].
pub(super) unsafe extern "C" fn enter(live: *mut c_void) -> u64 {
    // SAFETY: as the caller promises.
    let live = unsafe { &mut *live.cast::<Live>() };
    match live.functions[live.function].call(&mut live.store, live.argument) {
        Ok(code) => code,
        Err(error) => {
            live.cause = Some(cause_of(&error, live.memory));
            0
        }
    }
}

/// Returns why Wasmtime ended a call.
fn cause_of(error: &wasmtime::Error, memory: Memory) -> Cause {
    let address = running::trap_address();
    if let Some(Ended(cause)) = error.downcast_ref() {
        return *cause;
    }
    match error.downcast_ref() {
        Some(Trap::StackOverflow) => Cause::StackOverflow,
        Some(Trap::UnreachableCodeReached) => Cause::Abort,
        Some(Trap::MemoryOutOfBounds) if is_below_the_stack(address, memory) => Cause::StackOverflow,
        _ => Cause::WrongCode,
    }
}

/// Returns whether an access hit where the module's own stack goes on below address 0: its stack pointer wraps around
/// to the highest addresses. A frame is smaller than the memory. A wild address may lie there too.
fn is_below_the_stack(address: usize, memory: Memory) -> bool {
    memory.offset_of(address).is_some_and(|offset| offset >= ADDRESSABLE_BYTES - MODULE_MEMORY_BYTES)
}
