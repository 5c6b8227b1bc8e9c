//! Tests of modules: their calls, each kind of end, parking, and what of an instance survives a reset.
//!
//! The modules are written by hand (`modules.wat`) and compiled by `splinter-wasmc`, which is run as a program: as a
//! dependency it would turn on features of Wasmtime that the server must not have.

mod crashes;
mod refused;

use std::env;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::thread;

use super::{LEFT_BY_OVERFLOW, aborts, double, endless, panics_deep_down, reads_a_wild_address, run, set_up};
use crate::fault::Guarded;
use crate::running::{self, ParkedStack, ThreadState};
use crate::stack::{Cause, Stack, StackOutcome, StackPool, signal_frame_bytes};
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

/// Parks three times in the middle and once at the end, and returns the number of times that it went on.
unsafe fn long(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let mut times = 0;
    for _ in 0..3 {
        // SAFETY: the numbers on the stack own nothing.
        unsafe { running::yield_in_host_call() };
        running::with(ThreadState::set_pending);
        // SAFETY: as above.
        unsafe { running::yield_in_host_call() };
        assert!(running::with(ThreadState::is_in_host_call));
        times += 1;
    }
    running::with(ThreadState::set_pending);
    values[0].set_u64(times);
    Ok(())
}

/// Writes no result.
unsafe fn silent(_: &Memory, _: &mut [Value]) -> Result<(), Cause> {
    Ok(())
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

const IMPORTS: &[Import] = &[
    Import { name: "answer", parameters: &[Type::I32], result: Some(Type::I64), call: answer },
    Import { name: "park", parameters: &[Type::I32], result: Some(Type::I64), call: park },
    Import { name: "end", parameters: &[Type::I32], result: Some(Type::I64), call: end },
    Import { name: "long", parameters: &[Type::I32], result: Some(Type::I64), call: long },
    Import { name: "silent", parameters: &[Type::I32], result: Some(Type::I64), call: silent },
    Import { name: "silent_alone", parameters: &[], result: Some(Type::I64), call: silent },
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
    Bytes(compile(module)).load()
}

/// Compiles and loads a module with imports of its own.
pub(super) fn code_with(module: &str, imports: &'static [Import]) -> Arc<Code> {
    started();
    // SAFETY: our compiler made it of a module of these tests.
    Arc::new(unsafe { Code::load(&compile(module.as_bytes()), imports) }.expect("a module"))
}

/// A module out of the compiler.
pub(super) struct Bytes(Vec<u8>);

impl Bytes {
    pub(super) fn load(&self) -> Result<Code, LoadError> {
        started();
        // SAFETY: our compiler made it of a module of these tests.
        unsafe { Code::load(&self.0, IMPORTS) }
    }
}

/// Returns the module of `modules.wat`, to be loaded.
pub(super) fn compiled() -> Bytes {
    Bytes(compile(include_bytes!("modules.wat")))
}

/// Returns the module of `modules.wat`.
pub(super) fn code() -> Arc<Code> {
    static CODE: OnceLock<Arc<Code>> = OnceLock::new();
    Arc::clone(CODE.get_or_init(|| Arc::new(compiled().load().expect("the module of the tests"))))
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
    // What an import does not write is its argument or 0, and nothing that was on the stack.
    assert_eq!(runner.call(&mut instance, "asks_silent", u32::MAX), Ok(u64::from(u32::MAX)));
    assert_eq!(runner.call(&mut instance, "asks_silent_alone", 1), Ok(0));
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

#[test]
fn ends_after_parking_are_told_too() {
    let mut runner = Runner::new();
    for round in 0..200 {
        for (function, argument, expected) in [
            ("parks_and_traps", 0, Err(Cause::Abort)),
            ("parks_and_loads", 16 << 20, Err(Cause::WrongCode)),
            ("parks_and_loads", u32::MAX, Err(Cause::StackOverflow)),
            ("parks_and_loads", 70_000, Ok(u64::from_le_bytes(*b"as it wa"))),
            ("parks_and_ends", Cause::Panic as u32, Err(Cause::Panic)),
            ("parks_and_recurses", 0, Err(Cause::StackOverflow)),
            ("depth", 300, Ok(3300)),
            ("double", round, Ok(u64::from(round) * 2)),
        ] {
            let mut instance = runner.instance();
            assert_eq!(runner.call(&mut instance, function, argument), expected, "{function}");
        }
    }
}

#[test]
fn a_long_host_call_parks_between_its_parts() {
    let mut runner = Runner::new();
    for _ in 0..100 {
        let mut run = runner.parked("asks_long", 0);
        let mut parks = 1;
        let end = loop {
            assert_eq!(super::run(&mut runner.pool, double, 3).value, 6);
            match runner.step(run) {
                Ok(parked) => (run, parks) = (parked, parks + 1),
                Err(end) => break end,
            }
        };
        assert_eq!((end, parks), (Ok(3), 4));
    }
}

/// Functions that park, and how they end.
const PARKING: [Case; 6] = [
    ("parks", 40, Ok(0)),
    ("parks_and_traps", 0, Err(Cause::Abort)),
    ("parks_and_loads", 1 << 30, Err(Cause::WrongCode)),
    ("parks_and_ends", Cause::OutOfMemory as u32, Err(Cause::OutOfMemory)),
    ("parks_and_recurses", 0, Err(Cause::StackOverflow)),
    ("depth", 300, Ok(3300)),
];

#[test]
fn parked_instances_are_resumed_in_any_order_or_abandoned() {
    let mut runner = Runner::new();
    let mut instance = runner.instance();
    let parks = runner.call(&mut instance, "parks", 40);
    let expected = |case: usize| if case == 0 { parks } else { PARKING[case].2 };
    let mut random = fastrand::Rng::with_seed(7);
    let start = |runner: &mut Runner, random: &mut fastrand::Rng| {
        let case = random.usize(..PARKING.len());
        (case, runner.parked(PARKING[case].0, PARKING[case].1))
    };
    let mut runs: Vec<_> = (0..24).map(|_| start(&mut runner, &mut random)).collect();
    let (mut ended, mut abandoned) = (0, 0);
    for _ in 0..10_000 {
        let (case, run) = runs.swap_remove(random.usize(..runs.len()));
        if random.u32(..32) == 0 {
            let ParkedRun { mut instance, parked } = run;
            runner.pool.give(parked.into_stack());
            instance.abandon();
            assert!(instance.is_spent());
            instance.reset_all().expect("memory");
            assert_eq!(runner.call(&mut instance, "double", 4), Ok(8));
            abandoned += 1;
            runs.push(start(&mut runner, &mut random));
            continue;
        }
        match runner.step(run) {
            Ok(parked) => runs.push((case, parked)),
            Err(end) => {
                assert_eq!(end, expected(case), "{}", PARKING[case].0);
                ended += 1;
                runs.push(start(&mut runner, &mut random));
            }
        }
    }
    assert!(ended > 500 && abandoned > 100, "{ended} ended, {abandoned} abandoned");
}

#[test]
fn native_code_runs_and_faults_as_ever_between_parked_modules() {
    let mut runner = Runner::new();
    let mut first = Some(runner.parked("parks", 1_000));
    for round in 0..300 {
        let second = runner.parked("depth", 50);
        assert_eq!(run(&mut runner.pool, endless, 0), LEFT_BY_OVERFLOW);
        assert_eq!(run(&mut runner.pool, aborts, 0).cause(), Some(Cause::Abort));
        assert_eq!(run(&mut runner.pool, reads_a_wild_address, 64).cause(), Some(Cause::WrongCode));
        assert_eq!(run(&mut runner.pool, panics_deep_down, round).cause(), Some(Cause::Panic));
        assert_eq!(run(&mut runner.pool, double, round).value, round as u64 * 2);
        first = runner.step(first.take().expect("parked")).ok();
        assert_eq!(runner.step(second).err(), Some(Ok(3050)));
    }
    assert!(first.is_some(), "it parks a thousand times");
}

#[test]
fn each_thread_traps_and_parks_by_itself() {
    let threads: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(|| {
                let mut runner = Runner::new();
                let run = runner.parked("parks", 10);
                for (function, argument, expected) in ENDS.into_iter().cycle().take(2_000) {
                    let mut instance = runner.instance();
                    assert_eq!(runner.call(&mut instance, function, argument), expected);
                }
                assert!(runner.step(run).is_ok());
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread failed");
    }
}

#[test]
fn a_memory_never_grows() {
    let mut runner = Runner::new();
    let mut instance = runner.instance();
    assert_eq!(runner.call(&mut instance, "grow", 0), Ok(256));
    for pages in [1, 256, 65_535, 65_536, u32::MAX] {
        assert_eq!(runner.call(&mut instance, "grow", pages), Ok(u64::MAX), "{pages} pages");
    }
    assert_eq!(runner.call(&mut instance, "load", (16 << 20) - 8), Ok(0));
    assert_eq!(runner.call(&mut instance, "load", (16 << 20) - 7), Err(Cause::WrongCode));
}

#[test]
fn instances_share_no_memory_and_no_globals() {
    let mut runner = Runner::new();
    let (mut first, mut second) = (runner.instance(), runner.instance());
    for address in [0, 65_400, 70_000, 1 << 20, (16 << 20) - 8] {
        assert_eq!(runner.call(&mut first, "store", address), Ok(1));
        assert_eq!(runner.call(&mut first, "load", address), Ok(u64::MAX));
        assert_ne!(runner.call(&mut second, "load", address), Ok(u64::MAX));
    }
    assert_eq!(runner.call(&mut first, "count", 0), Ok(1));
    assert_eq!(runner.call(&mut second, "count", 0), Ok(1));
}

#[test]
fn resets_restore_what_they_promise() {
    let mut runner = Runner::new();
    let (mut used, mut all) = (runner.instance(), runner.instance());
    let data = Ok(u64::from_le_bytes(*b"as it wa"));
    for round in 1..=50 {
        for (instance, counted) in [(&mut used, round), (&mut all, 1)] {
            assert_eq!(runner.call(instance, "count", 0), Ok(counted));
            for address in [65_400, 64_400, 70_000, 73_728, 80_000, 8 << 20] {
                assert_eq!(runner.call(instance, "store", address), Ok(1));
            }
        }
        let used_ranges = [(73_728, 80_008), (8 << 20, (8 << 20) + 8), (90_000, 80_000), (1 << 31, u32::MAX)];
        used.reset_used(&used_ranges, [1 << 20, 0][round as usize % 2]).expect("memory");
        used.restore_data();
        all.reset_all().expect("memory");
        assert!(all.resident_bytes() <= 4 * 4096, "the pages are the kernel's again");
        for instance in [&mut used, &mut all] {
            for address in [65_400, 64_400, 73_728, 80_000, 8 << 20] {
                assert_eq!(runner.call(instance, "load", address), Ok(0), "{address}");
            }
            assert_eq!(runner.call(instance, "load", 70_000), data);
        }
    }
}

#[test]
fn a_spent_instance_is_not_entered() {
    let mut runner = Runner::new();
    let mut instance = runner.instance();
    assert_eq!(runner.call(&mut instance, "unreachable", 0), Err(Cause::Abort));
    let entered = catch_unwind(AssertUnwindSafe(|| instance.enter(0, 0)));
    assert!(entered.is_err() && instance.is_spent());
}

#[test]
fn a_module_leaves_the_stack_that_host_calls_and_traps_need() {
    let mut runner = Runner::new();
    for function in ["recurse", "recurse_host", "unreachable", "ends", "ask"] {
        let mut instance = runner.instance();
        let stack = runner.pool.take().expect("a stack");
        let bottom = stack.bottom() as *mut u8;
        // SAFETY: nothing runs on the stack.
        unsafe { bottom.write_bytes(0xa5, stack.bytes()) };
        runner.pool.give(stack);
        let _end = runner.call(&mut instance, function, Cause::Panic as u32);
        // SAFETY: as above.
        let untouched = (0..).take_while(|at| unsafe { *bottom.add(*at) } == 0xa5).count();
        assert!(untouched > signal_frame_bytes() + 4096, "{function} left {untouched} bytes of the stack");
    }
}
