//! The preemption signal: which one it is, and when a thread takes it.
//!
//! SIGURG, since nobody uses it for anything else, debuggers let it pass, and it is ignored where no handler
//! is installed. While its handler runs it is blocked, and it stays so while a stack that the handler parked
//! is resumed, until the kernel restores the interrupted context: so one signal frame at most is on a stack.

use std::mem;
use std::ptr;

/// Its number.
pub const NUMBER: i32 = libc::SIGURG;

/// The set of this one signal.
#[must_use]
pub fn set() -> libc::sigset_t {
    // SAFETY: a signal set of zeros is valid.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a valid set and a signal that exists.
    unsafe { libc::sigaddset(&raw mut set, NUMBER) };
    set
}

/// Takes the signal out of a mask.
pub fn remove_from(mask: &mut libc::sigset_t) {
    // SAFETY: a valid set and a signal that exists.
    unsafe { libc::sigdelset(mask, NUMBER) };
}

/// This thread does not take the signal from now on. One system call.
pub fn block() {
    change(libc::SIG_BLOCK);
}

/// This thread takes the signal again. One system call.
pub fn unblock() {
    change(libc::SIG_UNBLOCK);
}

fn change(how: i32) {
    let set = set();
    // SAFETY: a valid set; the answer is not asked for.
    let failed = unsafe { libc::pthread_sigmask(how, &raw const set, ptr::null_mut()) };
    debug_assert_eq!(failed, 0, "the kernel knows how to block a signal");
}
