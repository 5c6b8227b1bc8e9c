//! What a module costs beside native code: `cargo bench -p splinter-guest`, with SPLINTER_WASMC as for the tests.
//!
//! Each figure is the median of 61 batches, in nanoseconds of this thread's processor time; pin it with `taskset`.

use std::env;
use std::ffi::c_void;
use std::hint::black_box;
use std::io::Write;
use std::mem;
use std::process::{Command, Stdio};
use std::ptr;
use std::sync::Arc;

use guest::fault::Guarded;
use guest::running::{self, ParkedStack, ThreadState};
use guest::stack::{Cause, Stack, StackOutcome, StackPool};
use guest::wasm::{self, Code, Import, Instance, Memory, SELF_TEST_MODULE, Type, Value};

const BATCHES: usize = 61;

unsafe fn answer(_: &Memory, values: &mut [Value]) -> Result<(), Cause> {
    let number = values[0].as_u32();
    values[0].set_u64(u64::from(number) * 2);
    Ok(())
}

unsafe fn park(_: &Memory, _: &mut [Value]) -> Result<(), Cause> {
    running::with(ThreadState::set_pending);
    Ok(())
}

unsafe fn end(_: &Memory, _: &mut [Value]) -> Result<(), Cause> {
    Err(Cause::Panic)
}

const fn import(name: &'static str, call: unsafe fn(&Memory, &mut [Value]) -> Result<(), Cause>) -> Import {
    Import { name, parameters: &[Type::I32], result: Some(Type::I64), call }
}

const IMPORTS: &[Import] = &[
    import("answer", answer),
    import("park", park),
    import("end", end),
    import("long", answer),
    import("silent", answer),
    Import { name: "silent_alone", parameters: &[], result: Some(Type::I64), call: end },
    Import {
        name: "six",
        parameters: &[Type::I32, Type::I64, Type::F64, Type::I32, Type::I32, Type::I64],
        result: Some(Type::F64),
        call: end,
    },
];

fn compile(module: &[u8]) -> Vec<u8> {
    let module = wat::parse_bytes(module).expect("a module");
    let compiler = env::var_os("SPLINTER_WASMC").expect("SPLINTER_WASMC names the compiler");
    let mut compiler = Command::new(compiler)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the compiler starts");
    compiler.stdin.take().expect("a pipe").write_all(&module).expect("the compiler reads");
    compiler.wait_with_output().expect("the compiler ends").stdout
}

/// Returns this thread's processor time in nanoseconds.
fn now_ns() -> u64 {
    // SAFETY: a `timespec` of zeros is valid.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: a clock that exists, and a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn measure(name: &str, rounds: u32, mut work: impl FnMut()) {
    let mut times: Vec<f64> = (0..=BATCHES)
        .map(|_| {
            let begin = now_ns();
            (0..rounds).for_each(|_| work());
            (now_ns() - begin) as f64 / f64::from(rounds)
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:52} {:10.1}", times[BATCHES / 2]);
}

unsafe extern "C" fn nothing(_: *mut c_void) -> u64 {
    0
}

struct Bench {
    pool: StackPool,
    code: Arc<Code>,
}

impl Bench {
    fn native(&mut self) -> StackOutcome {
        let stack = self.pool.take().expect("a stack");
        let null = ptr::null_mut::<c_void>();
        // SAFETY: the entry does nothing, and the thread is guarded.
        let outcome = unsafe { running::run(&stack, null.cast(), null, u64::MAX, nothing, null) };
        self.pool.give(stack);
        outcome
    }

    fn start(&mut self, instance: &mut Instance, function: usize, argument: u32) -> (Stack, StackOutcome) {
        let stack = self.pool.take().expect("a stack");
        let module = instance.enter(function, argument);
        let null = ptr::null_mut::<c_void>();
        // SAFETY: the stack is free, the thread is guarded, and a parked run is resumed or abandoned.
        let outcome = unsafe { running::run_module(&stack, null.cast(), null, u64::MAX, module) };
        (stack, outcome)
    }

    fn call(&mut self, instance: &mut Instance, function: usize, argument: u32) -> Result<u64, Cause> {
        let (stack, outcome) = self.start(instance, function, argument);
        self.pool.give(stack);
        instance.outcome(outcome)
    }

    fn calls(&mut self, instance: &mut Instance) {
        let [noop, double, asks] =
            ["noop", "double", "asks"].map(|name| self.code.function(name).expect("a function"));
        measure("bare native run", 20_000, || {
            black_box(self.native());
        });
        measure("bare module run (noop)", 20_000, || {
            black_box(self.call(instance, noop, 1).is_ok());
        });
        measure("module run of another function", 20_000, || {
            black_box(self.call(instance, double, 1).is_ok());
        });
        measure("bare native run, again", 20_000, || {
            black_box(self.native());
        });
        measure("1,000 host calls", 20, || {
            black_box(self.call(instance, asks, 1_000).is_ok());
        });
    }

    fn parks(&mut self, instance: &mut Instance) {
        let parks = self.code.function("parks").expect("a function");
        let (stack, outcome) = self.start(instance, parks, 1 << 31);
        let mut parked = Some(ParkedStack::new(stack, outcome));
        measure("resume and park in an import", 5_000, || {
            let before = parked.take().expect("parked");
            let null = ptr::null_mut::<c_void>();
            // SAFETY: parked by this thread, and resumed once.
            let outcome = unsafe { running::resume(&before, null.cast(), null, u64::MAX) };
            parked = Some(ParkedStack::new(before.into_stack(), outcome));
        });
        self.pool.give(parked.expect("parked").into_stack());
        instance.abandon();
    }

    fn instances(&mut self, bytes: &[u8]) {
        let code = Arc::clone(&self.code);
        let [unreachable, load, ends, store] =
            ["unreachable", "load", "ends", "store"].map(|name| code.function(name).expect("a function"));
        measure("instance made and dropped", 200, || {
            black_box(Instance::new(&code).is_ok());
        });
        let mut instance = Instance::new(&code).expect("an instance");
        measure("reset (1): 4 KiB of stack, 128 B, 256 B", 5_000, || {
            instance.reset_used(black_box(&[(65_408, 65_536), (80_000, 80_256)]), 65_536).expect("memory");
        });
        measure("  the stack alone", 5_000, || instance.reset_used(black_box(&[]), 65_536).expect("memory"));
        measure("restore of 8 KiB of data", 5_000, || instance.restore_data());
        measure("reset (2): new store, memory discarded, untouched", 200, || {
            instance.reset_all().expect("memory");
        });
        measure("  with four pages touched", 200, || {
            for address in [65_000, 80_000, 1 << 20, 8 << 20] {
                black_box(self.call(&mut instance, store, address).is_ok());
            }
            instance.reset_all().expect("memory");
        });
        for (name, function, argument) in [
            ("trap (unreachable) and new store", unreachable, 0),
            ("trap (out of bounds) and new store", load, u32::MAX),
            ("end by a host call and new store", ends, 1),
        ] {
            measure(name, 200, || {
                black_box(self.call(&mut instance, function, argument).is_err());
                instance.reset_all().expect("memory");
            });
        }
        measure("module loaded and dropped", 50, || {
            // SAFETY: our compiler made it.
            black_box(unsafe { Code::load(bytes, IMPORTS) }.is_ok());
        });
    }
}

fn main() {
    let _guarded = Guarded::new().expect("an alternate stack");
    // SAFETY: our compiler made it of our module.
    unsafe { wasm::start(&compile(SELF_TEST_MODULE)) }.expect("modules run here");
    let bytes = compile(include_bytes!("../src/tests/modules.wat"));
    // SAFETY: our compiler made it.
    let code = Arc::new(unsafe { Code::load(&bytes, IMPORTS) }.expect("a module"));
    let mut bench = Bench { pool: StackPool::new().expect("a stack"), code: Arc::clone(&code) };
    let mut instance = Instance::new(&code).expect("an instance");
    bench.calls(&mut instance);
    bench.parks(&mut instance);
    bench.instances(&bytes);
}
