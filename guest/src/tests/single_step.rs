//! Tests a preemption at each instruction in turn: from inside a host call through its end and the parking to the
//! worker, and from the worker back into a parked stack. The processor's trap flag stops after each instruction.

use std::arch::asm;
use std::cell::Cell;
use std::env;
use std::ffi::c_void;
use std::mem;
use std::ptr;

use super::modules::code_with;
use super::set_up;
use crate::cycles;
use crate::preempt::Preemption;
use crate::running::{self, ParkedStack, ThreadState};
use crate::signal;
use crate::stack::{Cause, Stack, StackOutcome, StackPool};
use crate::wasm::{Import, Instance, Memory, Type, Value};

const TRAP_FLAG: i64 = 0x100;

/// Traps after which a preemption parks at once: the host call has ended and the parking has not begun.
const TRAPS_TO_THE_END_OF_THE_CALL: u64 = 100;

/// Maximum instructions of the worker that are stepped through at a time.
const WORKER_STEPS_MAX: u64 = 2_000;

/// The state of the trap handler.
struct Stepper {
    /// Traps before the preemption is sent; 0 for no preemption.
    strike_after: Cell<u64>,
    /// Counts only traps in the code of a module, where alone it is parked by the signal.
    in_modules: Cell<bool>,
    struck: Cell<bool>,
}

thread_local! {
    static STEPPER: Stepper = const { Stepper {
        strike_after: Cell::new(0),
        in_modules: Cell::new(false),
        struck: Cell::new(false),
    } };
    static WORKER_STEPS: Cell<u64> = const { Cell::new(0) };
}

/// The preemption signal is blocked while this runs, so it arrives right after the instruction that trapped.
extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid context, whose registers the handler may change.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    STEPPER.with(|stepper| {
        let instruction = registers[libc::REG_RIP as usize] as usize;
        let in_module =
            running::with(|running| running.module().is_some() && running.may_be_parked_at(instruction));
        let counts = in_module || !stepper.in_modules.get();
        let left = stepper.strike_after.get().saturating_sub(u64::from(counts));
        stepper.strike_after.set(left);
        let lent = running::with(ThreadState::is_lent);
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
        running::with(ThreadState::set_pending);
        step_from_here();
        number as u64
    };
    // SAFETY: on the extension's stack, from a function that owns nothing.
    unsafe { running::host_call(work) + 1000 }
}

/// The same as an import of a module.
unsafe fn parks(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    running::with(ThreadState::set_pending);
    step_from_here();
    let number = values[0].as_u32();
    values[0].set_u64(u64::from(number));
    Ok(())
}

const IMPORTS: &[Import] =
    &[Import { name: "parks", parameters: &[Type::I32], result: Some(Type::I64), call: parks }];

const MODULE: &str = r#"(module
    (import "splinter" "parks" (func $parks (param i32) (result i64)))
    (memory (export "memory") 256 256) (global (export "__heap_base") i32 (i32.const 65536))
    (func (export "parks_and_answers") (param i32) (result i64)
        (i64.add (call $parks (local.get 0)) (i64.const 1000)))
    (func (export "parks_and_traps") (param i32) (result i64)
        (i64.add (call $parks (local.get 0)) (i64.load (i32.const -4096)))))"#;

/// Code that is started with a number, parks, and ends with that number plus 1000.
trait Steps {
    /// Runs it until it is parked or has ended.
    fn start(&mut self, stack: &Stack, number: u32) -> StackOutcome;

    /// Returns what it ended with.
    fn end(&mut self, number: u32, outcome: StackOutcome) -> u64;
}

struct NativeSteps;

impl Steps for NativeSteps {
    fn start(&mut self, stack: &Stack, number: u32) -> StackOutcome {
        let data = number as usize as *mut c_void;
        // SAFETY: the entry takes a number and owns nothing; the caller holds a `Guarded`.
        unsafe { running::run(stack, ptr::null_mut(), ptr::null_mut(), 0, parks_and_answers, data) }
    }

    fn end(&mut self, _: u32, outcome: StackOutcome) -> u64 {
        assert_eq!(outcome.cause, 0);
        outcome.value
    }
}

/// A function of a module, with an instance for each of the numbers 1 and 2.
struct ModuleSteps {
    instances: [Instance; 2],
    function: usize,
    expected: fn(u32) -> Result<u64, Cause>,
}

impl Steps for ModuleSteps {
    fn start(&mut self, stack: &Stack, number: u32) -> StackOutcome {
        let module = self.instances[number as usize - 1].enter(self.function, number);
        // SAFETY: the stack is free, the caller holds a `Guarded`, and the run is resumed to its end.
        unsafe { running::run_module(stack, ptr::null_mut(), ptr::null_mut(), 0, module) }
    }

    fn end(&mut self, number: u32, outcome: StackOutcome) -> u64 {
        let instance = &mut self.instances[number as usize - 1];
        assert_eq!(instance.outcome(outcome), (self.expected)(number));
        instance.reuse();
        u64::from(number) + 1000
    }
}

fn start(steps: &mut impl Steps, pool: &mut StackPool, number: u32) -> ParkedStack {
    let stack = pool.take().expect("a stack");
    let outcome = steps.start(&stack, number);
    assert!(outcome.is_parked(), "{outcome:?}");
    ParkedStack::new(stack, outcome)
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
/// instruction; repeats this for each instruction in turn, and returns their number. From the first `all` instructions on
/// it leaves out more and more.
fn strike_each(struck: Struck, all: u64, steps: &mut impl Steps) -> u64 {
    let (_guarded, mut pool) = set_up();
    let _preemption = Preemption::new(cycles::of_us(50)).expect("a timer");
    catch_traps();
    let mut traps = 0;
    while traps < 100_000 {
        traps += 1 + traps / all;
        strike_after(match struck {
            Struck::Parking => traps,
            Struck::ResumingAfterCall => 0,
            Struck::ResumingAfterSignal => TRAPS_TO_THE_END_OF_THE_CALL,
        });
        let first = start(steps, &mut pool, 1);
        let mut has_ended = !has_struck();
        strike_after(0);
        let second = start(steps, &mut pool, 2);
        let resuming = struck != Struck::Parking;
        strike_after(if resuming { traps } else { 0 });
        let outcome = finish(&mut pool, first, if resuming { WORKER_STEPS_MAX } else { 0 });
        if resuming {
            has_ended = !has_struck();
        }
        strike_after(0);
        assert_eq!(steps.end(1, outcome), 1001, "struck behind instruction {traps}");
        let outcome = finish(&mut pool, second, 0);
        assert_eq!(steps.end(2, outcome), 1002, "beside one struck at {traps}");
        if has_ended {
            return traps - 1;
        }
    }
    panic!("no end");
}

#[test]
fn a_preemption_at_any_instruction_of_parking_mixes_up_no_stacks() {
    let struck = strike_each(Struck::Parking, u64::MAX, &mut NativeSteps);
    assert!(struck > 30, "only {struck} instructions were struck");
}

#[test]
fn a_preemption_at_any_instruction_of_resuming_mixes_up_no_stacks() {
    for struck in [Struck::ResumingAfterCall, Struck::ResumingAfterSignal] {
        let struck = strike_each(struck, u64::MAX, &mut NativeSteps);
        assert!(struck > 100, "only {struck} instructions were struck");
    }
}

/// Strikes a function at each instruction of its module; under SPLINTER_FULL also at those of Wasmtime and of the switch.
fn strike_module(function: &str, expected: fn(u32) -> Result<u64, Cause>) {
    let code = code_with(MODULE, IMPORTS);
    let function = code.function(function).expect("exported");
    let instances = [1, 2].map(|_| Instance::new(&code).expect("an instance"));
    let mut steps = ModuleSteps { instances, function, expected };
    STEPPER.with(|stepper| stepper.in_modules.set(true));
    let struck = strike_each(Struck::ResumingAfterCall, u64::MAX, &mut steps);
    STEPPER.with(|stepper| stepper.in_modules.set(false));
    assert!(struck > 5, "only {struck} instructions of the module were struck");
    if env::var_os("SPLINTER_FULL").is_some() {
        for struck in [Struck::Parking, Struck::ResumingAfterCall, Struck::ResumingAfterSignal] {
            strike_each(struck, 1_000, &mut steps);
        }
    }
}

#[test]
fn a_preemption_at_any_instruction_of_a_parking_or_resumed_module_mixes_up_no_stacks() {
    strike_module("parks_and_answers", |number| Ok(u64::from(number) + 1000));
}

#[test]
fn a_preemption_at_any_instruction_of_a_trap_changes_nothing() {
    strike_module("parks_and_traps", |_| Err(Cause::StackOverflow));
}
