//! A storm of modules: two threads, each with 24 runs that a timer interrupts at any instruction, resumed in random order,
//! some abandoned where they stand, some trapping after they were parked; native code between them; and a third thread
//! that loads and drops modules, which takes the locks that traps and new stores wait for.
//!
//! Takes two seconds; a minute under SPLINTER_FULL. SPLINTER_SEED repeats the choices, though not the interruptions.

use std::env;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::modules::{Bytes, code, compiled};
use super::preemption::{Bench, Preempted, counts};
use crate::cycles;
use crate::running::{self, ParkedStack};
use crate::stack::{Cause, PARKED_BY_SIGNAL, Stack, StackOutcome};
use crate::wasm::{Code, Instance};

const RUNS: usize = 24;
const SLICE_US: u64 = 20;

/// The functions of the storm; the last one never ends, the one before is native.
const KINDS: [(&str, u32); 10] = [
    ("spin", 60_000),
    ("spins_with_calls", 300),
    ("spins_and_loads", 50_000),
    ("parks_and_ends", Cause::Panic as u32),
    ("parks_and_recurses", 0),
    ("parks", 30),
    ("vectors", 40_000),
    ("depth", 200),
    ("native", 0),
    ("forever", 0),
];
const NATIVE: usize = 8;
const FOREVER: usize = 9;

/// A call of a function, which may be parked.
#[derive(Default)]
struct Run {
    kind: usize,
    instance: Option<Instance>,
    bench: Box<Bench>,
    parked: Option<ParkedStack>,
    parks: u32,
}

/// What a thread saw.
#[derive(Debug, Default)]
struct Seen {
    ended: [u64; KINDS.len()],
    parked_by_signal: u64,
    parked_by_call: u64,
    abandoned: u64,
    ended_after_signals: u64,
}

impl Seen {
    /// Returns whether everything happened that the storm is about. On a busy machine that takes longer.
    fn is_enough(&self) -> bool {
        let has_each_ended = self.ended[..FOREVER].iter().all(|ended| *ended > 0);
        has_each_ended && self.parked_by_signal > 100 && self.parked_by_call > 100 && self.abandoned > 10
    }
}

struct Storm {
    thread: Preempted,
    code: Arc<Code>,
    random: fastrand::Rng,
    expected: Vec<Result<u64, Cause>>,
    seen: Seen,
}

impl Storm {
    fn new(seed: u64) -> Self {
        let mut storm = Self {
            thread: Preempted::new(SLICE_US),
            code: code(),
            random: fastrand::Rng::with_seed(seed),
            expected: Vec::new(),
            seen: Seen::default(),
        };
        for kind in 0..NATIVE {
            let mut run = storm.begin(kind);
            let end = loop {
                if let Some(end) = storm.step(&mut run, undisturbed()) {
                    break end;
                }
            };
            storm.expected.push(end);
        }
        storm.seen = Seen::default();
        storm
    }

    fn begin(&self, kind: usize) -> Run {
        let instance = (kind != NATIVE).then(|| Instance::new(&self.code).expect("an instance"));
        Run { kind, instance, ..Run::default() }
    }

    /// Starts or resumes a run until it parks; returns its end.
    fn step(&mut self, run: &mut Run, slice_ends: u64) -> Option<Result<u64, Cause>> {
        let (stack, outcome) = match run.parked.take() {
            Some(parked) => resume(parked, slice_ends),
            None => self.start(run, slice_ends),
        };
        if outcome.is_parked() {
            if outcome.cause == PARKED_BY_SIGNAL {
                self.seen.parked_by_signal += 1;
                run.parks += 1;
            } else {
                self.seen.parked_by_call += 1;
            }
            run.parked = Some(ParkedStack::new(stack, outcome));
            return None;
        }
        self.thread.pool.give(stack);
        Some(match &mut run.instance {
            Some(instance) => instance.outcome(outcome),
            None => Ok(outcome.value),
        })
    }

    fn start(&mut self, run: &mut Run, slice_ends: u64) -> (Stack, StackOutcome) {
        let stack = self.thread.pool.take().expect("a stack");
        let (arena, context) = (ptr::null_mut(), ptr::null_mut());
        let outcome = match &mut run.instance {
            Some(instance) => {
                let (name, argument) = KINDS[run.kind];
                let module = instance.enter(self.code.function(name).expect(name), argument);
                // SAFETY: the stack is free, the thread is guarded, and a parked run is resumed or abandoned.
                unsafe { running::run_module(&stack, arena, context, slice_ends, module) }
            }
            None => {
                let bench: *mut c_void = ptr::from_ref(&*run.bench).cast_mut().cast();
                // SAFETY: as above; the bench is boxed and outlives the run.
                unsafe { running::run(&stack, arena, context, slice_ends, counts, bench) }
            }
        };
        (stack, outcome)
    }

    /// Discards a run where it stands; sometimes keeps its instance, reset, for a call.
    fn abandon(&mut self, run: Run) {
        let Some(parked) = run.parked else { return };
        self.thread.pool.give(parked.into_stack());
        self.seen.abandoned += 1;
        let Some(mut instance) = run.instance else { return };
        instance.abandon();
        if self.random.bool() {
            instance.reset_all().expect("memory");
            let mut again = Run { kind: 0, instance: Some(instance), ..Run::default() };
            while self.step(&mut again, undisturbed()).is_none() {}
        }
    }

    fn rage(mut self, until: Instant) -> Seen {
        let mut runs: Vec<Run> = (0..RUNS).map(|at| self.begin(at % KINDS.len())).collect();
        let latest = until + Duration::from_secs(120);
        while Instant::now() < until || (!self.seen.is_enough() && Instant::now() < latest) {
            let at = self.random.usize(..RUNS);
            let slice_ends = self.thread.slice_ends();
            if runs[at].kind == NATIVE && runs[at].parks > 2 {
                runs[at].bench.stop.store(true, Relaxed);
            }
            let end = self.step(&mut runs[at], slice_ends);
            let is_endless = runs[at].kind == FOREVER && runs[at].parks > 10;
            if end.is_none() && !is_endless && self.random.u32(..64) != 0 {
                continue;
            }
            let kind = self.random.usize(..KINDS.len());
            let new = self.begin(kind);
            let old = std::mem::replace(&mut runs[at], new);
            match end {
                None => self.abandon(old),
                Some(end) => {
                    let expected = self.expected.get(old.kind);
                    assert!(
                        expected.is_none_or(|expected| *expected == end),
                        "{}: {end:?} and not {expected:?}",
                        KINDS[old.kind].0
                    );
                    self.seen.ended[old.kind] += 1;
                    self.seen.ended_after_signals += u64::from(old.parks > 0);
                }
            }
        }
        for run in runs {
            self.abandon(run);
        }
        self.seen
    }
}

/// Returns the end of a slice that is long enough for every run.
fn undisturbed() -> u64 {
    cycles::now() + cycles::of_us(10_000_000)
}

fn resume(parked: ParkedStack, slice_ends: u64) -> (Stack, StackOutcome) {
    let (arena, context) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the stack was parked by this thread, and is taken by value.
    let outcome = unsafe { running::resume(&parked, arena, context, slice_ends) };
    (parked.into_stack(), outcome)
}

/// Loads and drops a module until it is told to stop.
fn load_again_and_again(bytes: &Bytes, stop: &AtomicBool) -> u64 {
    let mut loads = 0;
    while !stop.load(Relaxed) {
        drop(bytes.load().expect("a module"));
        loads += 1;
        thread::sleep(Duration::from_micros(200));
    }
    loads
}

#[test]
fn a_storm_of_signals_traps_and_abandoned_runs_mixes_nothing_up() {
    let seconds = if env::var_os("SPLINTER_FULL").is_some() { 60 } else { 2 };
    let seed = env::var("SPLINTER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(17);
    println!("SPLINTER_SEED={seed}");
    let bytes = compiled();
    let (until, stop) = (Instant::now() + Duration::from_secs(seconds), AtomicBool::new(false));
    let seen: Vec<Seen> = thread::scope(|scope| {
        let loader = scope.spawn(|| load_again_and_again(&bytes, &stop));
        let threads = [seed, seed + 1].map(|seed| scope.spawn(move || Storm::new(seed).rage(until)));
        let seen = threads.map(|thread| thread.join().expect("nothing is mixed up")).into_iter().collect();
        stop.store(true, Relaxed);
        println!("{} loads", loader.join().expect("modules are loaded"));
        seen
    });
    println!("{seen:#?}");
    assert!(seen.iter().all(Seen::is_enough));
}
