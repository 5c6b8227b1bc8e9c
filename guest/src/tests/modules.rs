//! Tests of modules: their calls, each kind of end, parking, and what of an instance survives a reset.
//!
//! The modules are written by hand (`modules.wat`) and compiled by `splinter-wasmc`, which is run as a program: as a
//! dependency it would turn on features of Wasmtime that the server must not have.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::thread;

use super::{LEFT_BY_OVERFLOW, double, endless, run, set_up};
use crate::fault::Guarded;
use crate::running::{self, ParkedStack, ThreadState};
use crate::stack::{Cause, Stack, StackOutcome, StackPool};
use crate::wasm::{self, Code, Import, Instance, LoadError, Memory, SELF_TEST_MODULE, Type, Value};

/// Returns twice the argument.
unsafe fn answer(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let number = values[0].as_u32();
    values[0].set_u64(u64::from(number) * 2);
    Ok(())
}

/// Asks for a preemption, which parks at the end of the call, and returns three times the argument.
unsafe fn park(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    running::with(ThreadState::set_pending);
    let number = values[0].as_u32();
    values[0].set_u64(u64::from(number) * 3);
    Ok(())
}

/// Ends the run with the cause of the argument's number.
unsafe fn end(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    running::with(ThreadState::set_pending);
    Err(Cause::from_number(u64::from(values[0].as_u32())).expect("a cause"))
}

/// Adds up its arguments, of all types.
unsafe fn six(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let signed = |value: &Value| f64::from(value.as_u32().cast_signed());
    let sum = signed(&values[0])
        + values[1].as_u64().cast_signed() as f64
        + values[2].as_f64() * 2.0
        + signed(&values[3])
        + signed(&values[4])
        + values[5].as_u64() as f64;
    values[0].set_f64(sum);
    Ok(())
}

pub(super) const IMPORTS: &[Import] = &[
    Import { name: "answer", parameters: &[Type::I32], result: Some(Type::I64), call: answer },
    Import { name: "park", parameters: &[Type::I32], result: Some(Type::I64), call: park },
    Import { name: "end", parameters: &[Type::I32], result: Some(Type::I64), call: end },
    Import {
        name: "six",
        parameters: &[Type::I32, Type::I64, Type::F64, Type::I32, Type::I32, Type::I64],
        result: Some(Type::F64),
        call: six,
    },
];

/// Returns the compiler: the one that SPLINTER_WASMC names, or the one in the target folder.
fn compiler() -> PathBuf {
    if let Some(path) = env::var_os("SPLINTER_WASMC") {
        return path.into();
    }
    let program = env::current_exe().expect("a test knows its program");
    let places = program.ancestors().flat_map(|folder| {
        ["splinter-wasmc", "wasmc/release/splinter-wasmc"].map(|place| folder.join(place))
    });
    places
        .into_iter()
        .find(|place| place.is_file())
        .expect("`splinter-wasmc` is built by scripts/setup, or SPLINTER_WASMC names it")
}

/// Compiles a module, which may be text.
fn compile(module: &[u8]) -> Vec<u8> {
    let module = wat::parse_bytes(module).expect("a module");
    let mut compiler = Command::new(compiler())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the compiler starts");
    compiler.stdin.take().expect("a pipe").write_all(&module).expect("the compiler reads");
    let output = compiler.wait_with_output().expect("the compiler ends");
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

fn started() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        // SAFETY: our compiler made it of our module.
        unsafe { wasm::start(&compile(SELF_TEST_MODULE)) }.expect("modules run here");
    });
}

fn load(module: &[u8]) -> Result<Code, LoadError> {
    started();
    // SAFETY: our compiler made it of a module of these tests.
    unsafe { Code::load(&compile(module), IMPORTS) }
}

/// Returns the module of `modules.wat`.
pub(super) fn code() -> Arc<Code> {
    static CODE: OnceLock<Arc<Code>> = OnceLock::new();
    Arc::clone(
        CODE.get_or_init(|| Arc::new(load(include_bytes!("modules.wat")).expect("the module of the tests"))),
    )
}

/// A thread that runs modules.
struct Runner {
    _guarded: Guarded,
    pool: StackPool,
    code: Arc<Code>,
}

/// A run that is parked, and its instance.
struct ParkedRun {
    instance: Instance,
    parked: ParkedStack,
}

impl Runner {
    fn new() -> Self {
        let (guarded, pool) = set_up();
        Self { _guarded: guarded, pool, code: code() }
    }

    fn instance(&self) -> Instance {
        Instance::new(&self.code).expect("an instance")
    }

    fn start(&mut self, instance: &mut Instance, function: &str, argument: u32) -> (Stack, StackOutcome) {
        let function = self.code.function(function).expect(function);
        let stack = self.pool.take().expect("a stack");
        let module = instance.enter(function, argument);
        let (arena, context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stack is free, the thread is guarded, and the tests resume or abandon what is parked.
        let outcome = unsafe { running::run_module(&stack, arena, context, u64::MAX, module) };
        (stack, outcome)
    }

    /// Runs a function to its end, through all its parks.
    fn call(&mut self, instance: &mut Instance, function: &str, argument: u32) -> Result<u64, Cause> {
        let (mut stack, mut outcome) = self.start(instance, function, argument);
        while outcome.is_parked() {
            (stack, outcome) = resume(ParkedStack::new(stack, outcome));
        }
        self.pool.give(stack);
        instance.outcome(outcome)
    }

    /// Starts a function, which parks.
    fn parked(&mut self, function: &str, argument: u32) -> ParkedRun {
        let mut instance = self.instance();
        let (stack, outcome) = self.start(&mut instance, function, argument);
        assert!(outcome.is_parked(), "{outcome:?}");
        ParkedRun { instance, parked: ParkedStack::new(stack, outcome) }
    }

    /// Resumes a run once; returns it if it is parked again, otherwise its end.
    fn step(&mut self, run: ParkedRun) -> Result<ParkedRun, Result<u64, Cause>> {
        let ParkedRun { mut instance, parked } = run;
        let (stack, outcome) = resume(parked);
        if outcome.is_parked() {
            return Ok(ParkedRun { instance, parked: ParkedStack::new(stack, outcome) });
        }
        self.pool.give(stack);
        Err(instance.outcome(outcome))
    }
}

fn resume(parked: ParkedStack) -> (Stack, StackOutcome) {
    let (arena, context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the stack was parked by this thread, and is taken by value.
    let outcome = unsafe { running::resume(&parked, arena, context, u64::MAX) };
    (parked.into_stack(), outcome)
}

/// A function, its argument, and how it ends.
type Case = (&'static str, u32, Result<u64, Cause>);

/// Calls that end otherwise than by returning.
const ENDS: [Case; 20] = [
    ("unreachable", 0, Err(Cause::Abort)),
    ("load", 16 << 20, Err(Cause::WrongCode)),
    ("load", 16 << 20 | 0x7000_0000, Err(Cause::WrongCode)),
    ("load", u32::MAX, Err(Cause::StackOverflow)),
    ("load", u32::MAX - 60_000, Err(Cause::StackOverflow)),
    ("load_far", u32::MAX, Err(Cause::StackOverflow)),
    ("load_farthest", u32::MAX, Err(Cause::WrongCode)),
    ("load_farthest", 0, Err(Cause::WrongCode)),
    ("store", (16 << 20) - 7, Err(Cause::WrongCode)),
    ("store", 0x8000_0000, Err(Cause::WrongCode)),
    ("divide", 0, Err(Cause::WrongCode)),
    ("divide_signed", 0, Err(Cause::WrongCode)),
    ("convert", 0, Err(Cause::WrongCode)),
    ("indirect", 0, Err(Cause::WrongCode)),
    ("indirect", 1, Err(Cause::WrongCode)),
    ("indirect", 99, Err(Cause::WrongCode)),
    ("recurse", 0, Err(Cause::StackOverflow)),
    ("recurse_host", 0, Err(Cause::StackOverflow)),
    ("ends", Cause::Panic as u32, Err(Cause::Panic)),
    ("ends", Cause::OutOfMemory as u32, Err(Cause::OutOfMemory)),
];

#[test]
fn the_assembled_self_test_is_its_text() {
    let text = include_str!("../wasm/self_test.wat");
    assert_eq!(wat::parse_str(text).expect("a module"), SELF_TEST_MODULE);
}

#[test]
fn calls_return_what_the_module_computes() {
    let mut runner = Runner::new();
    let mut instance = runner.instance();
    for number in 0..2_000 {
        assert_eq!(runner.call(&mut instance, "noop", number), Ok(0));
        assert_eq!(runner.call(&mut instance, "double", number), Ok(u64::from(number) * 2));
        assert_eq!(runner.call(&mut instance, "ask", number), Ok(u64::from(number) * 2));
        assert_eq!(runner.call(&mut instance, "count", 0), Ok(u64::from(number) + 1));
    }
    assert_eq!(runner.call(&mut instance, "passes_six", 10), Ok(10 - 2 + 1 - 1 + 7 + (1 << 32)));
    assert_eq!(runner.call(&mut instance, "indirect", 2), Ok(0));
    assert!(!instance.is_spent());
}

#[test]
fn each_end_is_told_a_thousand_times_on_one_stack_and_store() {
    let mut runner = Runner::new();
    for (function, argument, expected) in ENDS {
        let mut instance = runner.instance();
        for round in 0..1_000 {
            assert_eq!(runner.call(&mut instance, function, argument), expected, "{function} {argument}");
            assert!(instance.is_spent());
            instance.reuse();
            if round % 100 == 0 {
                assert_eq!(runner.call(&mut instance, "double", round), Ok(u64::from(round) * 2));
            }
        }
    }
}
