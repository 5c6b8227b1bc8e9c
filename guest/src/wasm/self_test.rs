//! The test that a process makes before it loads modules: a call, traps, and two runs that are parked.
//!
//! It would fail if Wasmtime were built with its `std` feature, kept its activations elsewhere, handled the signals
//! itself, or if its compiler and its runtime did not fit each other.

use std::ptr;
use std::sync::Arc;

use super::code::Code;
use super::engine::{self, Unavailable};
use super::import::{Import, Type, Value};
use super::instance::Instance;
use super::memory::Memory;
use crate::fault::Guarded;
use crate::running::{self, ParkedStack, ThreadState};
use crate::stack::{Cause, Stack, StackOutcome};

/// The module to be compiled for [`start`]: `self_test.wat`, assembled.
pub const SELF_TEST_MODULE: &[u8] = include_bytes!("self_test.wasm");

/// The names of its functions, without what an export's name begins with.
pub const SELF_TEST_FUNCTIONS: [&str; 4] = ["call", "park", "trap", "unreachable"];

/// The answer of the import that parks.
const ANSWER: u64 = 40;

/// The one import of the module.
const IMPORTS: &[Import] = &[Import { name: "now_ms", parameters: &[], result: Some(Type::I64), call: park }];

/// Asks for a preemption, which parks the stack when the host call ends.
unsafe fn park(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    running::with(ThreadState::set_pending);
    values[0].set_u64(ANSWER);
    Ok(())
}

/// Tests that modules run on this machine, on the calling thread; afterwards modules can be loaded. `compiled` is
/// [`SELF_TEST_MODULE`] out of our compiler. Tests once in a process; further calls return the first result.
///
/// # Errors
/// Why they do not.
///
/// # Safety
/// As for [`Code::load`].
pub unsafe fn start(compiled: &[u8]) -> Result<(), Unavailable> {
    engine::test_once(|| {
        let engine = engine::untested()?;
        // SAFETY: the caller promises what compiled it.
        let code = unsafe { Code::load_into(engine, compiled, IMPORTS) }.map_err(unavailable)?;
        let _guarded = Guarded::new().map_err(unavailable)?;
        let code = Arc::new(code);
        calls_and_traps(&code)?;
        parks_and_resumes(&code)
    })
}

fn unavailable(reason: impl ToString) -> Unavailable {
    Unavailable(reason.to_string())
}

/// Returns an error that names what failed unless `holds`.
fn check(holds: bool, what: &str) -> Result<(), Unavailable> {
    if holds { Ok(()) } else { Err(Unavailable(format!("the self-test failed: {what}"))) }
}

fn function(code: &Code, name: &str) -> Result<usize, Unavailable> {
    code.function(name).ok_or_else(|| Unavailable(format!("the self-test has no {name}")))
}

/// Runs a function until it ends or is parked.
fn run(instance: &mut Instance, stack: &Stack, function: usize, argument: u32) -> StackOutcome {
    let module = instance.enter(function, argument);
    let (arena, context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: nothing runs on the stack, the thread is guarded, and a parked run is resumed below.
    unsafe { running::run_module(stack, arena, context, u64::MAX, module) }
}

fn calls_and_traps(code: &Arc<Code>) -> Result<(), Unavailable> {
    let stack = Stack::new().map_err(unavailable)?;
    let mut instance = Instance::new(code).map_err(unavailable)?;
    let outside = instance.memory().bytes() as u32;
    for (name, argument, expected) in [
        ("run_call", 7, Ok(7 + u64::from(b's'))),
        ("run_trap", outside, Err(Cause::WrongCode)),
        ("run_trap", u32::MAX, Err(Cause::StackOverflow)),
        ("run_unreachable", 0, Err(Cause::Abort)),
        ("run_trap", 0, Ok(0)),
    ] {
        let outcome = run(&mut instance, &stack, function(code, name)?, argument);
        check(!outcome.is_parked(), name)?;
        check(instance.outcome(outcome) == expected, name)?;
        if instance.is_spent() {
            instance.reset_all().map_err(unavailable)?;
        }
    }
    Ok(())
}

/// Parks two runs and resumes them in the order in which they began, which is not that of a stack.
fn parks_and_resumes(code: &Arc<Code>) -> Result<(), Unavailable> {
    let park = function(code, "run_park")?;
    let mut runs = Vec::new();
    for argument in [1, 2] {
        let mut instance = Instance::new(code).map_err(unavailable)?;
        let stack = Stack::new().map_err(unavailable)?;
        let outcome = run(&mut instance, &stack, park, argument);
        check(outcome.is_parked(), "a host call parks")?;
        let parked = ParkedStack::new(stack, outcome);
        check(parked.has_activation(), "Wasmtime uses our thread-local")?;
        runs.push((instance, parked, argument));
    }
    for (mut instance, parked, argument) in runs {
        let (arena, context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: parked on this thread by the loop above, and resumed once.
        let outcome = unsafe { running::resume(&parked, arena, context, u64::MAX) };
        check(!outcome.is_parked(), "a resumed run ends")?;
        check(instance.outcome(outcome) == Ok(ANSWER + u64::from(argument)), "a resumed run goes on")?;
    }
    Ok(())
}
