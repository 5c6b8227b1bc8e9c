//! Tests of preemption with plain functions: when it acts, when it must not act, and what it must preserve.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::{LEFT_BY_OVERFLOW, double, near_the_bottom, run, set_up, sum_by_recursion};
use crate::cycles;
use crate::preempt::Preemption;
use crate::running::{self, ParkedStack};
use crate::signal;
use crate::stack::{Stack, StackEntry, StackOutcome, StackPool, signal_frame_bytes};
use crate::watchdog::{self, Watchdog};

/// The state that a test shares with its entry.
#[derive(Default)]
pub(super) struct Bench {
    pub(super) stop: AtomicBool,
    count: AtomicU64,
}

/// The current thread, set up for preemption.
pub(super) struct Preempted {
    _guarded: crate::fault::Guarded,
    pub(super) pool: StackPool,
    preemption: Preemption,
}

impl Preempted {
    pub(super) fn new(slice_us: u64) -> Self {
        let (guarded, pool) = set_up();
        let preemption = Preemption::new(cycles::of_us(slice_us)).expect("a timer");
        Self { _guarded: guarded, pool, preemption }
    }

    pub(super) fn slice_ends(&self) -> u64 {
        self.preemption.begin(cycles::now(), false);
        let now = cycles::now();
        self.preemption.watch_closely(now);
        now + self.preemption.slice()
    }

    fn start<T>(&mut self, entry: StackEntry, data: &T) -> (Stack, StackOutcome) {
        let stack = self.pool.take().expect("a stack");
        let (data, nothing) = (ptr::from_ref(data).cast_mut().cast(), ptr::null_mut());
        // SAFETY: the entries of this file take a reference to their data, and own nothing.
        let outcome =
            unsafe { running::run(&stack, nothing, nothing.cast(), self.slice_ends(), entry, data) };
        (stack, outcome)
    }

    pub(super) fn resume(&mut self, parked: ParkedStack) -> (Stack, StackOutcome) {
        let nothing = ptr::null_mut();
        // SAFETY: the stack was parked by this thread, and is taken by value.
        let outcome = unsafe { running::resume(&parked, nothing, nothing.cast(), self.slice_ends()) };
        (parked.into_stack(), outcome)
    }

    /// Starts `entry`, which must be parked.
    pub(super) fn parked<T>(&mut self, entry: StackEntry, data: &T) -> ParkedStack {
        let (stack, outcome) = self.start(entry, data);
        assert!(outcome.is_parked(), "{outcome:?}");
        ParkedStack::new(stack, outcome)
    }

    /// Resumes a stack until it is no longer parked.
    pub(super) fn finish(&mut self, mut parked: ParkedStack) -> StackOutcome {
        loop {
            let (stack, outcome) = self.resume(parked);
            if !outcome.is_parked() {
                self.pool.give(stack);
                return outcome;
            }
            parked = ParkedStack::new(stack, outcome);
        }
    }

    /// Checks that an endless loop is parked, so the timer and the signal work.
    fn assert_preempts(&mut self) {
        let parked = self.parked(counts, &Bench::default());
        self.pool.give(parked.into_stack());
    }
}

pub(super) unsafe extern "C" fn counts(bench: *mut c_void) -> u64 {
    // SAFETY: the tests pass a `Bench`.
    let bench = unsafe { &*bench.cast::<Bench>() };
    while !bench.stop.load(Relaxed) {
        bench.count.store(bench.count.load(Relaxed) + 1, Relaxed);
    }
    bench.count.load(Relaxed)
}

#[test]
fn a_loop_is_parked_and_goes_on_where_it_was() {
    let (mut thread, bench) = (Preempted::new(50), Bench::default());
    let mut parked = thread.parked(counts, &bench);
    let mut counted = vec![bench.count.load(Relaxed)];
    for _ in 0..200 {
        let (stack, outcome) = thread.resume(parked);
        parked = ParkedStack::new(stack, outcome);
        counted.push(bench.count.load(Relaxed));
    }
    // On a busy machine the thread may sometimes lose its core for a whole slice.
    let brought = counted.windows(2).filter(|pair| pair[1] > pair[0]).count();
    assert!(brought > 100 && counted.is_sorted(), "{brought} of 200 slices brought something");
    bench.stop.store(true, Relaxed);
    assert_eq!(thread.finish(parked), StackOutcome { value: bench.count.load(Relaxed), cause: 0 });
}

#[test]
fn forgotten_stacks_are_reused_and_the_thread_stays_preemptible() {
    let mut thread = Preempted::new(20);
    for round in 0..500 {
        thread.assert_preempts();
        assert_eq!(run(&mut thread.pool, double, round).value, round as u64 * 2);
    }
}

#[test]
fn many_parked_stacks_do_not_disturb_each_other() {
    let mut thread = Preempted::new(20);
    let benches: Vec<Bench> = (0..50).map(|_| Bench::default()).collect();
    let mut parked: Vec<ParkedStack> = benches.iter().map(|bench| thread.parked(counts, bench)).collect();
    for _ in 0..5 {
        parked = parked
            .into_iter()
            .map(|parked| {
                let (stack, outcome) = thread.resume(parked);
                ParkedStack::new(stack, outcome)
            })
            .collect();
    }
    for (bench, parked) in benches.iter().zip(parked) {
        bench.stop.store(true, Relaxed);
        assert_eq!(thread.finish(parked).value, bench.count.load(Relaxed));
    }
}

unsafe extern "C" fn keeps_errno(bench: *mut c_void) -> u64 {
    // SAFETY: the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = 77 };
    // SAFETY: as the caller.
    unsafe { counts(bench) };
    // SAFETY: as above.
    (unsafe { *libc::__errno_location() }) as u64
}

#[test]
fn errno_survives_parking() {
    let (mut thread, bench) = (Preempted::new(20), Bench::default());
    let parked = thread.parked(keeps_errno, &bench);
    // SAFETY: the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = 5 };
    bench.stop.store(true, Relaxed);
    assert_eq!(thread.finish(parked).value, 77);
}

unsafe extern "C" fn computes(_: *mut c_void) -> u64 {
    (0..2_000_000_u64).fold(7, |sum, number| black_box(sum).wrapping_mul(31) ^ number)
}

#[test]
fn signals_from_outside_change_nothing_before_a_slice_is_over() {
    let (mut thread, bench) = (Preempted::new(60_000_000), Bench::default());
    // SAFETY: as a plain function.
    let expected = unsafe { computes(ptr::null_mut()) };
    // SAFETY: returns the id of this thread.
    let (id, sent) = (unsafe { libc::gettid() }, AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !bench.stop.load(Relaxed) {
                // SAFETY: a signal with a handler, to a thread that outlives the scope.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), id, signal::NUMBER) };
                // SAFETY: the same signal to the process: any thread may receive it.
                unsafe { libc::kill(libc::getpid(), signal::NUMBER) };
                sent.fetch_add(1, Relaxed);
            }
        });
        while sent.load(Relaxed) < 1000 {
            let (stack, outcome) = thread.start(computes, &());
            assert_eq!(outcome, StackOutcome { value: expected, cause: 0 });
            thread.pool.give(stack);
        }
        bench.stop.store(true, Relaxed);
    });
}

unsafe extern "C" fn stays_in_the_host(bench: *mut c_void) -> u64 {
    let work = |_: *mut c_void| {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(2) {}
        // SAFETY: the tests pass a `Bench`.
        unsafe { &*bench.cast::<Bench>() }.count.fetch_add(1, Relaxed)
    };
    // SAFETY: on the extension's stack, from a function that owns nothing.
    unsafe { running::host_call(work) + 40 }
}

#[test]
fn a_preemption_in_a_host_call_waits_for_its_end() {
    let (mut thread, bench) = (Preempted::new(50), Bench::default());
    for round in 0..50 {
        let parked = thread.parked(stays_in_the_host, &bench);
        assert_eq!(bench.count.load(Relaxed), round + 1, "parked before the host call was over");
        assert_eq!(thread.finish(parked), StackOutcome { value: round + 40, cause: 0 });
    }
    thread.assert_preempts();
}

unsafe extern "C" fn overflows_later(bench: *mut c_void) -> u64 {
    // SAFETY: as the caller.
    unsafe { counts(bench) };
    sum_by_recursion(u64::MAX)
}

#[test]
fn an_overflow_after_a_preemption_is_caught() {
    let mut thread = Preempted::new(20);
    for _ in 0..200 {
        let bench = Bench::default();
        let parked = thread.parked(overflows_later, &bench);
        bench.stop.store(true, Relaxed);
        assert_eq!(thread.finish(parked), LEFT_BY_OVERFLOW);
    }
    thread.assert_preempts();
}

fn spins() -> u64 {
    while black_box(true) {}
    1
}

unsafe extern "C" fn spins_with(left: *mut c_void) -> u64 {
    // SAFETY: the test passes a number by reference.
    near_the_bottom(unsafe { *left.cast::<usize>() }, spins)
}

#[test]
fn a_preemption_on_a_full_stack_ends_the_entry_and_not_the_process() {
    let (mut thread, mut parked, mut left_stacks) = (Preempted::new(2_000), 0, 0);
    for left in (256..signal_frame_bytes() + 8192).step_by(256) {
        let (stack, outcome) = thread.start(spins_with, &left);
        match outcome {
            LEFT_BY_OVERFLOW => left_stacks += 1,
            outcome => {
                assert!(outcome.is_parked(), "{outcome:?} with {left} bytes left");
                parked += 1;
            }
        }
        thread.pool.give(stack);
        thread.assert_preempts();
    }
    assert!(parked > 5 && left_stacks > 5, "{parked} parked, {left_stacks} left");
}

#[test]
fn a_lost_timer_is_made_up_for_by_the_watchdog() {
    let (mut thread, _watchdog) = (Preempted::new(50), Watchdog::start(|| {}).expect("a thread"));
    let (bench, before) = (Bench::default(), watchdog::counts().0);
    let stack = thread.pool.take().expect("a stack");
    let (data, nothing) = (ptr::from_ref(&bench).cast_mut().cast(), ptr::null_mut());
    // SAFETY: as in `Preempted::start`, except that the timer is not armed.
    let outcome = unsafe { running::run(&stack, nothing, nothing.cast(), cycles::now(), counts, data) };
    assert!(outcome.is_parked());
    assert!(watchdog::counts().0 > before);
    thread.pool.give(ParkedStack::new(stack, outcome).into_stack());
}

unsafe extern "C" fn is_stuck_in_the_host(bench: *mut c_void) -> u64 {
    let work = |_: *mut c_void| {
        let (begin, before) = (Instant::now(), watchdog::counts().1);
        while watchdog::counts().1 == before && begin.elapsed() < Duration::from_secs(20) {}
        // SAFETY: the tests pass a `Bench`.
        unsafe { &*bench.cast::<Bench>() }.count.store(1, Relaxed);
    };
    // SAFETY: on the extension's stack, from a function that owns nothing.
    unsafe { running::host_call(work) };
    watchdog::counts().1
}

#[test]
fn a_worker_that_is_stuck_is_reported() {
    let (mut thread, _watchdog) = (Preempted::new(50), Watchdog::start(|| {}).expect("a thread"));
    let (bench, before) = (Bench::default(), watchdog::counts().1);
    let parked = thread.parked(is_stuck_in_the_host, &bench);
    assert_eq!(bench.count.load(Relaxed), 1);
    assert!(watchdog::counts().1 > before);
    assert_eq!(thread.finish(parked).cause, 0);
}
