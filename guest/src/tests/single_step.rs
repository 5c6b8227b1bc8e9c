//! Tests a preemption at each instruction in turn: from inside a host call through its end and the parking to the
//! worker, and from the worker back into a parked stack. The processor's trap flag stops after each instruction.

use std::arch::asm;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem;
use std::ptr;

use super::set_up;
use crate::cycles;
use crate::preempt::Preemption;
use crate::running::{self, ParkedStack};
use crate::signal;
use crate::stack::{Stack, StackOutcome, StackPool};

const TRAP_FLAG: i64 = 0x100;

/// Traps after which a preemption parks at once: the host call has ended and the parking has not begun.
const TRAPS_TO_THE_END_OF_THE_CALL: u64 = 100;

/// Maximum instructions of the worker that are stepped through at a time.
const WORKER_STEPS_MAX: u64 = 2_000;

/// The state of the trap handler.
struct Stepper {
    /// Traps before the preemption is sent; 0 for no preemption.
    strike_after: Cell<u64>,
    struck: Cell<bool>,
}

thread_local! {
    static STEPPER: Stepper = const { Stepper { strike_after: Cell::new(0), struck: Cell::new(false) } };
    static WORKER_STEPS: Cell<u64> = const { Cell::new(0) };
}

/// The preemption signal is blocked while this runs, so it arrives right after the instruction that trapped.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context, whose registers the handler may change.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    STEPPER.with(|stepper| {
        let left = stepper.strike_after.get().saturating_sub(1);
        stepper.strike_after.set(left);
        let lent = running::with(running::ThreadState::is_lent);
        let on_worker = WORKER_STEPS.get();
        WORKER_STEPS.set(on_worker.saturating_sub(u64::from(!lent)));
        if left == 0 {
            stepper.struck.set(true);
            // SAFETY: a signal with a handler, to this thread.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal::NUMBER) };
        }
        if left == 0 || (!lent && on_worker == 0) {
            registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
        }
    });
}

/// Makes each following instruction trap, if a preemption is to be sent.
#[inline(always)]
fn step_from_here() {
    if STEPPER.with(|stepper| stepper.strike_after.get()) > 0 {
        // SAFETY: sets one flag, for which there is a handler.
        unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    }
}

/// Requests a preemption during a host call, which parks at its end; then returns its number plus 1000.
unsafe extern "C" fn parks_and_answers(number: *mut c_void) -> u64 {
    let work = |_: *mut c_void| {
        running::with(running::ThreadState::set_pending);
        step_from_here();
        number as u64
    };
    // SAFETY: on the extension's stack, from a function that owns nothing.
    unsafe { running::host_call(work) + 1000 }
}

fn start(stack: Stack, number: u64) -> Result<ParkedStack, StackOutcome> {
    // SAFETY: the entry takes a number and owns nothing; the caller holds a `Guarded`.
    let outcome = unsafe {
        running::run(&stack, ptr::null_mut(), ptr::null_mut(), 0, parks_and_answers, number as *mut c_void)
    };
    if outcome.is_parked() { Ok(ParkedStack::new(stack, outcome)) } else { Err(outcome) }
}

/// Resumes a stack until it is no longer parked.
fn finish(pool: &mut StackPool, mut parked: ParkedStack, steps_on_worker: u64) -> StackOutcome {
    for _ in 0..10 {
        WORKER_STEPS.set(steps_on_worker);
        if steps_on_worker > 0 {
            step_from_here();
        }
        // SAFETY: the stack was parked by this thread, and is resumed once.
        let outcome = unsafe { running::resume(&parked, ptr::null_mut(), ptr::null_mut(), 0) };
        WORKER_STEPS.set(0);
        if !outcome.is_parked() {
            pool.give(parked.into_stack());
            return outcome;
        }
        parked = ParkedStack::new(parked.into_stack(), outcome);
    }
    panic!("parked again and again");
}

fn strike_after(traps: u64) {
    STEPPER.with(|stepper| {
        stepper.strike_after.set(traps);
        stepper.struck.set(false);
    });
}

fn has_struck() -> bool {
    STEPPER.with(|stepper| stepper.struck.get())
}

fn catch_traps() {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_trap;
    // SAFETY: a `sigaction` of zeros is valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO;
    action.sa_mask = signal::set();
    // SAFETY: the handler touches thread-local cells without destructors and sends a signal.
    let installed = unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
    assert_eq!(installed, 0);
}

/// The code that the preemption interrupts.
#[derive(Clone, Copy, PartialEq)]
enum Struck {
    Parking,
    ResumingAfterCall,
    ResumingAfterSignal,
}

/// Parks two stacks, one after the other. While the first is parked or resumed, a preemption arrives after one
/// instruction; repeats this for each instruction in turn, and returns their number.
fn strike_each(struck: Struck) -> u64 {
    let (_guarded, mut pool) = set_up();
    let _preemption = Preemption::new(cycles::of_us(50)).expect("a timer");
    catch_traps();
    for traps in 1..100_000 {
        strike_after(match struck {
            Struck::Parking => traps,
            Struck::ResumingAfterCall => 0,
            Struck::ResumingAfterSignal => TRAPS_TO_THE_END_OF_THE_CALL,
        });
        let first = start(pool.take().expect("a stack"), 1).expect("parked");
        let mut has_ended = !has_struck();
        strike_after(0);
        let second = start(pool.take().expect("a stack"), 2).expect("parked");
        let resuming = struck != Struck::Parking;
        strike_after(if resuming { traps } else { 0 });
        let outcome = finish(&mut pool, first, if resuming { WORKER_STEPS_MAX } else { 0 });
        if resuming {
            has_ended = !has_struck();
        }
        strike_after(0);
        assert_eq!(outcome, StackOutcome { value: 1001, cause: 0 }, "struck behind instruction {traps}");
        assert_eq!(
            finish(&mut pool, second, 0),
            StackOutcome { value: 1002, cause: 0 },
            "beside one struck at {traps}"
        );
        if has_ended {
            return traps - 1;
        }
    }
    panic!("no end");
}

#[test]
fn a_preemption_at_any_instruction_of_parking_mixes_up_no_stacks() {
    let struck = strike_each(Struck::Parking);
    assert!(struck > 30, "only {struck} instructions were struck");
}

#[test]
fn a_preemption_at_any_instruction_of_resuming_mixes_up_no_stacks() {
    for struck in [Struck::ResumingAfterCall, Struck::ResumingAfterSignal] {
        let struck = strike_each(struck);
        assert!(struck > 100, "only {struck} instructions were struck");
    }
}
