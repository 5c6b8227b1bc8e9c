//! The handler of SIGSEGV, SIGBUS, SIGILL and SIGFPE. A fault of an extension's code ends its invocation if the
//! instruction wrote nothing; any other fault is the server's own and goes to the previous handler.
//!
//! A fault is an extension's if a stack is lent on this thread, no host call is in progress, and the stack pointer lies
//! on that stack. It is
//! - an overflow if the address lies in the stack's guard, where the stack pointer may lie too, or if the kernel could
//!   not write a signal frame because the extension had used up the stack;
//! - an abort if the processor does not know the instruction;
//! - wrong code if the instruction read an address without memory, had an address that no memory can have, or divided
//!   by zero. Safe Rust never does that, but compilers make mistakes. A write to an address without memory ends the
//!   process, because code that writes at wrong addresses may have hit others before.
//!
//! A module of WebAssembly faults as part of its work: its traps are faults at instructions that Wasmtime knows. Then the
//! interrupted stack goes on in Wasmtime's trap handler ([`trap`](super::trap)). Only a fault in the module's own code
//! is the module's; one in Wasmtime's code, in which locks may be held, is the server's. An overflow of the native
//! stack is ended as above, although Wasmtime checks the stack itself.
//!
//! The handler runs on a stack of its own, because the faulting one has no room. It does not jump: it edits the
//! interrupted context so that returning from the signal continues at the exit of a left stack. So the signal mask and
//! the alternate stack stay as they were.

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::{Once, OnceLock};

use super::region::{PAGE_BYTES, Region};
use super::running::{self, ModuleBounds, ThreadState};
use super::signal;
use super::stack::Cause;
use super::stack::{landing, signal_frame_bytes};
use super::trap::{TRAP_STACK_BYTES, continue_in_trap};
use crate::limits::{ALTERNATE_STACK_BYTES, STACK_GUARD_BYTES};

/// The `si_code` of signals that the kernel raised without an address.
const FROM_KERNEL: i32 = 0x80;

/// The alternate stack of this thread, on which overflows are caught. Stays on its thread.
#[derive(Debug)]
pub struct Guarded {
    previous: libc::stack_t,
    /// The alternate stack, unmapped after the previous one is restored.
    _region: Region,
    _stays_on_its_thread: PhantomData<*mut ()>,
}

impl Guarded {
    /// Gives this thread its alternate stack; the first call in the process installs the handler.
    ///
    /// # Errors
    /// The kernel's error if there is no memory for the stack.
    pub fn new() -> io::Result<Self> {
        install();
        let bytes = ALTERNATE_STACK_BYTES + signal_frame_bytes().next_multiple_of(PAGE_BYTES);
        let region = Region::new(bytes, PAGE_BYTES)?;
        let own = libc::stack_t { ss_sp: region.start().as_ptr().cast(), ss_flags: 0, ss_size: bytes };
        // SAFETY: a `stack_t` of zeros is valid.
        let mut previous = unsafe { mem::zeroed() };
        // SAFETY: the stack is mapped and outlives its installation: `drop` uninstalls it first.
        if unsafe { libc::sigaltstack(&raw const own, &raw mut previous) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { previous, _region: region, _stays_on_its_thread: PhantomData })
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: restores this thread's previous stack; no handler is running on this one, because a destructor is.
        unsafe { libc::sigaltstack(&raw const self.previous, ptr::null_mut()) };
    }
}

/// The previous handlers.
static PREVIOUS_SEGV: OnceLock<libc::sigaction> = OnceLock::new();
static PREVIOUS_BUS: OnceLock<libc::sigaction> = OnceLock::new();
static PREVIOUS_ILL: OnceLock<libc::sigaction> = OnceLock::new();
static PREVIOUS_FPE: OnceLock<libc::sigaction> = OnceLock::new();

/// The handled signals, each with its previous handler.
const HANDLED: [(i32, &OnceLock<libc::sigaction>); 4] = [
    (libc::SIGSEGV, &PREVIOUS_SEGV),
    (libc::SIGBUS, &PREVIOUS_BUS),
    (libc::SIGILL, &PREVIOUS_ILL),
    (libc::SIGFPE, &PREVIOUS_FPE),
];

/// The processor's numbers of two exceptions: an address that no memory can have, and a page that is not there.
const GENERAL_PROTECTION: i64 = 13;
const PAGE_FAULT: i64 = 14;
/// Bits of a page fault's error code: a write, and the fetch of an instruction.
const WRITES: i64 = 1 << 1;
const FETCHES: i64 = 1 << 4;

fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (signal, previous) in HANDLED {
            // SAFETY: a `sigaction` of zeros is valid: the default handler.
            let mut before: libc::sigaction = unsafe { mem::zeroed() };
            // SAFETY: only queries the handler. The result is stored before the new handler can run.
            let asked = unsafe { libc::sigaction(signal, ptr::null(), &raw mut before) };
            assert_eq!(asked, 0, "the kernel knows these signals");
            previous.get_or_init(|| before);
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_fault;
            // SAFETY: as above.
            let mut action: libc::sigaction = unsafe { mem::zeroed() };
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            action.sa_mask = signal::set();
            // SAFETY: the handler has the signature that SA_SIGINFO requires, and does only what a handler
            // may: it reads thread-local cells without a destructor and edits the context.
            let installed = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
            assert_eq!(installed, 0, "the kernel takes a handler for them");
        }
    });
}

/// A fault as the kernel reports it.
struct Fault {
    signal: i32,
    code: i32,
    address: usize,
    instruction: usize,
    stack_pointer: usize,
    /// The number of the processor's exception, and its error code.
    exception: (i64, i64),
}

/// What a handled fault does to the interrupted code.
enum Verdict {
    /// Its stack is left for good.
    Leave(Cause),
    /// It goes on in Wasmtime's trap handler; with the address of the access, if it was one.
    Trap(Option<usize>),
}

extern "C" fn on_fault(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let machine = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes a valid context, whose registers the handler may read and change.
    let registers = unsafe { &mut (*machine).uc_mcontext.gregs };
    // SAFETY: as above; the mask is another field.
    let mask = unsafe { &mut (*machine).uc_sigmask };
    // SAFETY: the kernel passes a valid record; faults carry an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let fault = Fault {
        signal,
        code,
        address,
        instruction: registers[libc::REG_RIP as usize] as usize,
        stack_pointer: registers[libc::REG_RSP as usize] as usize,
        exception: (registers[libc::REG_TRAPNO as usize], registers[libc::REG_ERR as usize]),
    };
    let verdict = running::with(|running| {
        let verdict = match running.module() {
            None => judge_native(running, &fault).map(Verdict::Leave),
            Some(module) => judge_module(running, module, &fault),
        };
        if let Some(Verdict::Leave(cause)) = verdict {
            registers[libc::REG_RIP as usize] = landing as *const () as i64;
            registers[libc::REG_RSP as usize] = running.worker_stack_pointer() as i64;
            registers[libc::REG_RDX as usize] = cause as i64;
            // The preemption handler itself may have run out of stack, and had its signal blocked.
            signal::remove_from(mask);
        }
        verdict
    });
    match verdict {
        None => crash(signal, info, context),
        Some(Verdict::Trap(address)) => continue_in_trap(registers, address),
        Some(Verdict::Leave(_)) => {}
    }
}

/// Returns why native code's stack is to be left; `None` if the fault is the server's own.
fn judge_native(running: &ThreadState, fault: &Fault) -> Option<Cause> {
    let is_on_its_stack = is_on_its_stack(running, fault.stack_pointer);
    match fault.signal {
        libc::SIGILL => (is_on_its_stack && is_instruction(fault.code)).then_some(Cause::Abort),
        libc::SIGFPE => (is_on_its_stack && is_instruction(fault.code)).then_some(Cause::WrongCode),
        _ if is_overflow(running, fault) => Some(Cause::StackOverflow),
        libc::SIGSEGV => {
            (is_on_its_stack && wrote_nothing(fault.code, fault.exception)).then_some(Cause::WrongCode)
        }
        _ => None,
    }
}

/// Returns what to do about a fault while a module runs, or is being instantiated on a thread's own stack; `None` if
/// the fault is the server's own.
fn judge_module(running: &ThreadState, module: ModuleBounds, fault: &Fault) -> Option<Verdict> {
    let is_in_its_code = (module.code.0..module.code.1).contains(&fault.instruction);
    if !is_in_its_code || running.is_in_host_call() {
        return None;
    }
    if running.is_lent() {
        let bottom = running.bounds().0;
        let has_no_room =
            is_on_its_stack(running, fault.stack_pointer) && fault.stack_pointer < bottom + TRAP_STACK_BYTES;
        if has_no_room || is_overflow(running, fault) {
            return Some(Verdict::Leave(Cause::StackOverflow));
        }
        if !is_on_its_stack(running, fault.stack_pointer) {
            return None;
        }
    }
    if !is_instruction(fault.code) {
        return None;
    }
    match fault.signal {
        libc::SIGILL | libc::SIGFPE => Some(Verdict::Trap(None)),
        libc::SIGSEGV if is_access(fault.exception) => Some(Verdict::Trap(Some(fault.address))),
        _ => None,
    }
}

fn is_overflow(running: &ThreadState, fault: &Fault) -> bool {
    if !running.may_be_left() {
        return false;
    }
    let (bottom, top) = running.bounds();
    let guard = bottom - STACK_GUARD_BYTES..bottom;
    if !(guard.start..top).contains(&fault.stack_pointer) {
        return false;
    }
    let no_room_for_a_signal =
        fault.code == FROM_KERNEL && fault.stack_pointer < bottom + signal_frame_bytes();
    guard.contains(&fault.address) || no_room_for_a_signal
}

fn is_on_its_stack(running: &ThreadState, stack_pointer: usize) -> bool {
    let (bottom, top) = running.bounds();
    running.may_be_left() && (bottom..top).contains(&stack_pointer)
}

/// Returns whether an instruction raised the signal, and not another process.
const fn is_instruction(code: i32) -> bool {
    code > 0 && code != FROM_KERNEL
}

/// Returns whether the instruction was stopped at a read, or at an address that no memory can have.
const fn wrote_nothing(code: i32, (number, error): (i64, i64)) -> bool {
    match number {
        PAGE_FAULT => is_instruction(code) && error & (WRITES | FETCHES) == 0,
        GENERAL_PROTECTION => code == FROM_KERNEL,
        _ => false,
    }
}

/// Returns whether the instruction was stopped at data that it read or wrote.
const fn is_access((number, error): (i64, i64)) -> bool {
    number == PAGE_FAULT && error & FETCHES == 0
}

/// Passes a fault of the server to the previous handler, or lets the kernel end the process.
fn crash(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = HANDLED.iter().find(|(handled, _)| *handled == signal).and_then(|(_, slot)| slot.get());
    let Some(previous) = previous else { return };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: restores the kernel's default action; the faulting instruction runs again and ends the process.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            type SignalAction = extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void);
            // SAFETY: it was installed with SA_SIGINFO, so it has this signature.
            let handler = unsafe { mem::transmute::<usize, SignalAction>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: it was installed without SA_SIGINFO, so it has this signature.
            let handler = unsafe { mem::transmute::<usize, extern "C" fn(i32)>(handler) };
            handler(signal);
        }
    }
}
