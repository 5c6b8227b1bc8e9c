//! The functions that an artefact's glue calls beside the host table: its allocator and the exit from a panic.
//!
//! They run on the extension's stack for the invocation on this thread. They take no lock and touch only that
//! invocation's arena and reply, so leaving or parking the stack in the middle is harmless. Access to state that the
//! worker also touches goes through a host call.

use std::ffi::c_void;
use std::ptr;

use guest::running::{self, host_call};
use guest::stack::Cause;
use sandstorm::abi::{RawSlice, Services};

use super::access::Access;

/// The table that an artefact gets when it is opened.
pub const SERVICES: Services = Services { allocate, free, reallocate, begin_panic, abandon };

/// The `kind` of [`abandon`] for out of memory.
const KIND_OUT_OF_MEMORY: u32 = 1;

unsafe extern "C" fn allocate(bytes: usize, align: usize) -> *mut u8 {
    // SAFETY: the arena of the running invocation, which nothing else uses while this runs.
    unsafe { running::arena().as_mut() }.map_or(ptr::null_mut(), |arena| arena.allocate(bytes, align))
}

unsafe extern "C" fn free(address: *mut u8, bytes: usize, _align: usize) {
    // SAFETY: as in `allocate`.
    if let Some(arena) = unsafe { running::arena().as_mut() } {
        arena.free(address, bytes);
    }
}

unsafe extern "C" fn reallocate(address: *mut u8, bytes: usize, align: usize, new_bytes: usize) -> *mut u8 {
    // SAFETY: as in `allocate`.
    let Some(arena) = (unsafe { running::arena().as_mut() }) else { return ptr::null_mut() };
    // SAFETY: the language's allocator calls this with an allocation of this arena that is in use.
    unsafe { arena.reallocate(address, bytes, align, new_bytes) }
}

unsafe extern "C" fn begin_panic() -> u32 {
    // SAFETY: called by the glue on the extension's stack; the context of a running invocation is its
    // `Access`, which nobody else uses meanwhile.
    unsafe { host_call(|context| context.cast::<Access>().as_mut().map_or(u32::MAX, Access::begin_panic)) }
}

unsafe extern "C" fn abandon(kind: u32, text: RawSlice) -> ! {
    let keep = |context: *mut c_void| {
        // SAFETY: as in `begin_panic`.
        if let Some(access) = unsafe { context.cast::<Access>().as_mut() } {
            access.keep_last_words(text);
        }
    };
    // SAFETY: as in `begin_panic`.
    unsafe { host_call(keep) };
    let cause = if kind == KIND_OUT_OF_MEMORY { Cause::OutOfMemory } else { Cause::Panic };
    // SAFETY: on the extension's stack; this function and the glue that called it own nothing.
    unsafe { running::leave(cause) }
}
