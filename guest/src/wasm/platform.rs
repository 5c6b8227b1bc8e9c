//! The functions that Wasmtime without `std` asks its platform for (its file `runtime/vm/sys/custom/capi.rs`).
//!
//! Wasmtime declares them by their C names and promises no stability: a new one is an error of the linker, and the
//! version is pinned. They are
//! - memory for machine code, straight from the kernel;
//! - the thread's list of activations, which lives in our record of the thread and changes with the stack;
//! - the trap handler, which our fault handler calls;
//! - locks, held by whoever loads a module, makes a store or looks up a trap, for microseconds. A worker may wait for a
//!   control thread here: it spins for a moment and then yields the core, so that the holder can run.
//!
//! A preemption never parks a stack inside of these functions, because it parks modules in their own code only.

use std::hint;
use std::io;
use std::process;
use std::ptr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use crate::region::PAGE_BYTES;
use crate::running;
use crate::trap::{self, TrapHandler};

/// Rounds of spinning between two yields of the core.
const SPINS: u32 = 64;

/// The state of a lock for readers that a writer holds.
const WRITTEN: usize = usize::MAX;

/// Memory of Wasmtime's: private, and counted when it is touched.
const MAPPING: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Returns the protection for the kernel: Wasmtime's bits for reading, writing and execution are the kernel's.
const fn protection(flags: u32) -> i32 {
    const { assert!(libc::PROT_READ == 1 && libc::PROT_WRITE == 2 && libc::PROT_EXEC == 4) };
    (flags & 7) as i32
}

/// Returns 0, or the kernel's error of the call just made.
fn result(failed: bool) -> i32 {
    if failed { io::Error::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_page_size() -> usize {
    PAGE_BYTES
}

/// # Safety
/// Any size and flags; writes the address to `mapped`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_mmap_new(bytes: usize, flags: u32, mapped: &mut *mut u8) -> i32 {
    // SAFETY: a fresh anonymous mapping at an address chosen by the kernel touches no existing memory.
    let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection(flags), MAPPING, -1, 0) };
    if address != libc::MAP_FAILED {
        *mapped = address.cast();
    }
    result(address == libc::MAP_FAILED)
}

/// # Safety
/// The range is one of Wasmtime's mappings, of which nothing is borrowed.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_mmap_remap(address: *mut u8, bytes: usize, flags: u32) -> i32 {
    let flags = protection(flags);
    // SAFETY: replaces a mapping of Wasmtime's, as the caller promises.
    let mapped = unsafe { libc::mmap(address.cast(), bytes, flags, MAPPING | libc::MAP_FIXED, -1, 0) };
    result(mapped == libc::MAP_FAILED)
}

/// # Safety
/// The range is one of Wasmtime's mappings, of which nothing is borrowed.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_munmap(address: *mut u8, bytes: usize) -> i32 {
    // SAFETY: as the caller promises.
    result(unsafe { libc::munmap(address.cast(), bytes) } != 0)
}

/// # Safety
/// The range is one of Wasmtime's mappings.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_mprotect(address: *mut u8, bytes: usize, flags: u32) -> i32 {
    // SAFETY: as the caller promises.
    result(unsafe { libc::mprotect(address.cast(), bytes, protection(flags)) } != 0)
}

/// Images of memory for copy on write: there are none, which null says. The settings do not ask for any.
#[unsafe(no_mangle)]
extern "C" fn wasmtime_memory_image_new(_: *const u8, _: usize, image: &mut *mut u8) -> i32 {
    *image = ptr::null_mut();
    0
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_memory_image_map_at(_: *mut u8, _: *mut u8, _: usize) -> i32 {
    process::abort()
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_memory_image_free(_: *mut u8) {}

/// Never inlined: the address of a thread-local, once computed, must not be kept over a switch of stacks.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn wasmtime_tls_get(slot: usize) -> *mut u8 {
    debug_assert_eq!(slot, 0, "the second one belongs to a feature that is off");
    running::activation()
}

/// Never inlined, as above.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn wasmtime_tls_set(slot: usize, activation: *mut u8) {
    debug_assert_eq!(slot, 0, "the second one belongs to a feature that is off");
    running::set_activation(activation);
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_init_traps(handler: TrapHandler) -> i32 {
    trap::set_handler(handler);
    0
}

/// Returns the word of a lock; 0 is a free one, so that none has to be made or freed.
///
/// # Safety
/// `lock` is aligned and lives as long as the result is used; all access to it is atomic.
unsafe fn word<'a>(lock: *mut usize) -> &'a AtomicUsize {
    // SAFETY: as the caller promises; every access is one of this file's.
    unsafe { AtomicUsize::from_ptr(lock) }
}

/// Repeats `take` until it succeeds.
fn wait_for(mut take: impl FnMut() -> bool) {
    let mut rounds = 0_u32;
    while !take() {
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(SPINS) {
            thread::yield_now();
        } else {
            hint::spin_loop();
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_sync_lock_free(_: *mut usize) {}

/// # Safety
/// `lock` is a word of Wasmtime's that only these functions touch; so it is for those below.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_sync_lock_acquire(lock: *mut usize) {
    // SAFETY: as the caller promises.
    let word = unsafe { word(lock) };
    wait_for(|| word.compare_exchange_weak(0, 1, Acquire, Relaxed).is_ok());
}

/// # Safety
/// As above; the caller holds the lock.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_sync_lock_release(lock: *mut usize) {
    // SAFETY: as the caller promises.
    unsafe { word(lock) }.store(0, Release);
}

#[unsafe(no_mangle)]
extern "C" fn wasmtime_sync_rwlock_free(_: *mut usize) {}

/// # Safety
/// As for the lock above.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_sync_rwlock_read(lock: *mut usize) {
    // SAFETY: as the caller promises.
    let word = unsafe { word(lock) };
    wait_for(|| {
        let readers = word.load(Relaxed);
        readers < WRITTEN - 1 && word.compare_exchange_weak(readers, readers + 1, Acquire, Relaxed).is_ok()
    });
}

/// # Safety
/// As above; the caller is one of its readers.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_sync_rwlock_read_release(lock: *mut usize) {
    // SAFETY: as the caller promises.
    unsafe { word(lock) }.fetch_sub(1, Release);
}

/// # Safety
/// As for the lock above.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_sync_rwlock_write(lock: *mut usize) {
    // SAFETY: as the caller promises.
    let word = unsafe { word(lock) };
    wait_for(|| word.compare_exchange_weak(0, WRITTEN, Acquire, Relaxed).is_ok());
}

/// # Safety
/// As above; the caller is its writer.
#[unsafe(no_mangle)]
unsafe extern "C" fn wasmtime_sync_rwlock_write_release(lock: *mut usize) {
    // SAFETY: as the caller promises.
    unsafe { word(lock) }.store(0, Release);
}
