//! DPDK's environment (EAL), and the common parts of its functions: threads, errors, texts.
//!
//! The environment starts once in the life of a process and ends with its last user; DPDK forbids another start.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::DpdkError;

/// Bindings that bindgen generated from DPDK's headers; their style differs from ours.
#[expect(clippy::all, clippy::undocumented_unsafe_blocks, reason = "generated")]
#[expect(non_camel_case_types, unused_qualifications, reason = "generated")]
#[allow(non_snake_case, non_upper_case_globals, dead_code, unnecessary_transmutes, reason = "generated")]
pub(super) mod bindings {
    include!(concat!(env!("OUT_DIR"), "/dpdk.rs"));
}

use bindings as d;

/// DPDK's state in this process: memory, devices, a thread.
pub(super) struct Environment(());

static BEGUN: AtomicBool = AtomicBool::new(false);

impl Environment {
    /// Starts the environment with DPDK's usual arguments, such as `--no-pci`.
    pub(super) fn begin(arguments: &[String]) -> Result<Self, DpdkError> {
        if BEGUN.swap(true, Ordering::SeqCst) {
            return Err(DpdkError::BegunBefore);
        }
        let all = ["splinter"].into_iter().chain(arguments.iter().map(String::as_str));
        let all: Result<Vec<CString>, _> = all.map(CString::new).collect();
        let all = all.map_err(|_| DpdkError::Environment("an argument has a zero byte".to_owned()))?;
        // DPDK pins the thread that starts it to a CPU, so it gets a thread of its own.
        let begun = thread::Builder::new().name("dpdk".to_owned()).spawn(move || {
            // DPDK keeps pointers to its arguments and may change their order.
            let mut pointers: Vec<*mut c_char> = all.into_iter().map(CString::into_raw).collect();
            let pointers = Vec::leak(std::mem::take(&mut pointers));
            // SAFETY: the pointers are to leaked strings that end with zero; their number is passed. DPDK has not
            // been started before.
            let begun = unsafe { d::rte_eal_init(pointers.len() as c_int, pointers.as_mut_ptr()) };
            if begun < 0 { Err(DpdkError::Environment(last_error())) } else { Ok(Self(())) }
        });
        let begun = begun.map_err(|error| DpdkError::Environment(error.to_string()))?;
        begun.join().unwrap_or_else(|_| Err(DpdkError::Environment("its thread panicked".to_owned())))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // SAFETY: the environment has started, and its users (devices, pools, packets) are gone: they hold its owner.
        unsafe { d::rte_eal_cleanup() };
    }
}

/// Registers this thread with DPDK, so that pools keep packets ready for it. Returns false if no number is left.
pub(super) fn register_thread() -> bool {
    // SAFETY: no pointers; the environment has started.
    unsafe { d::rte_thread_register() == 0 }
}

/// Unregisters this thread.
pub(super) fn unregister_thread() {
    // SAFETY: no pointers.
    unsafe { d::rte_thread_unregister() };
}

/// Checks the result of a DPDK call; functions of devices return the negated number of an error.
pub(super) fn checked(part: &'static str, result: c_int) -> Result<(), DpdkError> {
    match result {
        0.. => Ok(()),
        _ => Err(DpdkError::Device { part, text: error_text(-result) }),
    }
}

pub(super) fn last_error() -> String {
    // SAFETY: no pointers.
    error_text(unsafe { d::splinter_errno() })
}

fn error_text(number: c_int) -> String {
    // SAFETY: the text belongs to DPDK and this thread, and ends with zero.
    text(unsafe { d::rte_strerror(number) })
}

/// Converts a text from DPDK.
pub(super) fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: all callers pass strings that DPDK ends with zero and keeps until its next call.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}
