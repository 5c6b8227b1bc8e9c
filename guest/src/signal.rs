//! The preemption signal: its number, and when a thread takes it.
//!
//! The signal is SIGURG, because nothing else uses it, debuggers let it pass, and it is ignored where no handler is
//! installed. It is blocked while its handler runs, and while a stack parked by the handler is resumed until the kernel
//! restores the interrupted context. So a stack holds at most one signal frame.

use std::mem;
use std::ptr;

/// The number of the preemption signal.
pub const NUMBER: i32 = libc::SIGURG;

/// Returns the set that contains only this signal.
#[must_use]
pub fn set() -> libc::sigset_t {
    // SAFETY: a signal set of zeros is valid.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a valid set and a signal that exists.
    unsafe { libc::sigaddset(&raw mut set, NUMBER) };
    set
}

/// Removes the signal from a mask.
pub fn remove_from(mask: &mut libc::sigset_t) {
    // SAFETY: a valid set and a signal that exists.
    unsafe { libc::sigdelset(mask, NUMBER) };
}

/// Unblocks the signal, and those of faults, on a thread that is to run untrusted code and that this crate's caller has started. One
/// system call.
pub fn deliver() {
    let mut all = set();
    for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
        // SAFETY: a valid set and a signal that exists.
        unsafe { libc::sigaddset(&raw mut all, fault) };
    }
    // SAFETY: a valid set; null means that the old mask is not returned.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const all, ptr::null_mut()) };
    debug_assert_eq!(failed, 0, "the kernel knows how to unblock signals");
}

/// Blocks the signal on this thread. One system call.
pub fn block() {
    change(libc::SIG_BLOCK);
}

/// Unblocks the signal on this thread. One system call.
pub fn unblock() {
    change(libc::SIG_UNBLOCK);
}

fn change(how: i32) {
    let set = set();
    // SAFETY: a valid set; null means that the old mask is not returned.
    let failed = unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) };
    debug_assert_eq!(failed, 0, "the kernel knows how to block a signal");
}
