//! Tests of all ways to leave a stack, with plain functions in place of extensions.

mod module_storm;
mod modules;
mod preemption;
mod registers;
mod single_step;

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::ptr;
use std::thread;

use super::arena::Arena;
use super::fault::Guarded;
use super::running;
use super::stack::{Cause, StackEntry, StackOutcome, StackPool, reserve_bytes, signal_frame_bytes};
use crate::limits::EXTENSION_STACK_BYTES;

/// Runs `entry` on a pooled stack with a number as its data.
fn run(pool: &mut StackPool, entry: StackEntry, number: usize) -> StackOutcome {
    let stack = pool.take().expect("a stack");
    // SAFETY: the entries of this file take a number, own nothing, and the caller holds a `Guarded`.
    let outcome = unsafe {
        running::run(&stack, ptr::null_mut(), ptr::null_mut(), u64::MAX, entry, number as *mut c_void)
    };
    pool.give(stack);
    outcome
}

fn set_up() -> (Guarded, StackPool) {
    (Guarded::new().expect("an alternate stack"), StackPool::new().expect("a stack"))
}

unsafe extern "C" fn double(data: *mut c_void) -> u64 {
    (data as u64) * 2
}

#[inline(never)]
fn sum_by_recursion(depth: u64) -> u64 {
    if depth == 0 { 0 } else { black_box(depth) + sum_by_recursion(depth - 1) }
}

unsafe extern "C" fn nested(data: *mut c_void) -> u64 {
    sum_by_recursion(data as u64)
}

unsafe extern "C" fn endless(_: *mut c_void) -> u64 {
    sum_by_recursion(u64::MAX)
}

unsafe extern "C" fn huge_frame(data: *mut c_void) -> u64 {
    let mut frame = [0_u8; 4 << 20];
    frame[data as usize] = 1;
    u64::from(black_box(&mut frame)[data as usize])
}

#[inline(never)]
fn leave_from(depth: u64, cause: Cause) -> u64 {
    if depth == 0 {
        // SAFETY: nothing on this stack owns anything.
        unsafe { running::leave(cause) }
    }
    black_box(depth) + leave_from(depth - 1, cause)
}

unsafe extern "C" fn panics_deep_down(data: *mut c_void) -> u64 {
    leave_from(data as u64, Cause::Panic)
}

unsafe extern "C" fn runs_out_of_memory(data: *mut c_void) -> u64 {
    leave_from(data as u64, Cause::OutOfMemory)
}

const LEFT_BY_OVERFLOW: StackOutcome = StackOutcome { value: 0, cause: Cause::StackOverflow as u64 };

#[test]
fn an_entry_returns_its_value() {
    let (_guarded, mut pool) = set_up();
    for number in 0..20_000 {
        assert_eq!(run(&mut pool, double, number), StackOutcome { value: number as u64 * 2, cause: 0 });
    }
    assert_eq!(run(&mut pool, nested, 200), StackOutcome { value: 200 * 201 / 2, cause: 0 });
}

#[test]
fn a_left_stack_answers_its_cause_from_any_depth() {
    let (_guarded, mut pool) = set_up();
    for depth in 0..200 {
        assert_eq!(run(&mut pool, panics_deep_down, depth).cause(), Some(Cause::Panic));
        assert_eq!(run(&mut pool, runs_out_of_memory, depth).cause(), Some(Cause::OutOfMemory));
        assert_eq!(run(&mut pool, double, depth).value, depth as u64 * 2);
    }
}

#[test]
fn recursion_and_huge_frames_overflow_and_the_thread_goes_on() {
    let (_guarded, mut pool) = set_up();
    for round in 0..2_000 {
        assert_eq!(run(&mut pool, endless, 0), LEFT_BY_OVERFLOW);
        assert_eq!(run(&mut pool, huge_frame, round), LEFT_BY_OVERFLOW);
        assert_eq!(run(&mut pool, double, round).value, round as u64 * 2);
    }
}

unsafe extern "C" fn aborts(_: *mut c_void) -> u64 {
    // SAFETY: the instruction is always invalid; the test is about its fault.
    unsafe { std::arch::asm!("ud2", options(noreturn)) }
}

#[test]
fn an_abort_ends_the_invocation_and_the_thread_goes_on() {
    let (_guarded, mut pool) = set_up();
    for round in 0..2_000 {
        assert_eq!(run(&mut pool, aborts, 0), StackOutcome { value: 0, cause: Cause::Abort as u64 });
        assert_eq!(run(&mut pool, double, round).value, round as u64 * 2);
    }
}

unsafe extern "C" fn divides_by_zero(_: *mut c_void) -> u64 {
    // SAFETY: the test is about the fault; a register changes, and nothing else.
    unsafe {
        std::arch::asm!("xor edx, edx", "mov eax, 1", "xor ecx, ecx", "div ecx", out("eax") _, out("ecx") _, out("edx") _)
    };
    0
}

#[test]
fn wrong_code_that_wrote_nothing_ends_the_invocation_and_the_thread_goes_on() {
    let (_guarded, mut pool) = set_up();
    let wrong = StackOutcome { value: 0, cause: Cause::WrongCode as u64 };
    for round in 0..2_000 {
        // A page that nobody has, one of the kernel's, and one that no memory can have.
        for address in [64, 0xffff_ffff_8000_0000, 0x8000_0000_0000_0000] {
            assert_eq!(run(&mut pool, reads_a_wild_address, address), wrong);
        }
        assert_eq!(run(&mut pool, divides_by_zero, 0), wrong);
        assert_eq!(run(&mut pool, double, round).value, round as u64 * 2);
    }
}

#[test]
fn overflows_leave_the_signal_mask_and_floating_point_as_they_were() {
    let (_guarded, mut pool) = set_up();
    let blocked = || {
        // SAFETY: a signal set of zeros is valid; the call below only queries the mask.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set) };
        // SAFETY: a set that the kernel filled.
        (1..32)
            .filter(|signal| unsafe { libc::sigismember(&raw const set, *signal) } == 1)
            .collect::<Vec<_>>()
    };
    let (before, third) = (blocked(), black_box(1.0_f64) / black_box(3.0));
    assert_eq!(run(&mut pool, endless, 0), LEFT_BY_OVERFLOW);
    assert_eq!(blocked(), before);
    assert_eq!((black_box(1.0_f64) / black_box(3.0)).to_bits(), third.to_bits());
}

#[test]
fn every_worker_thread_catches_its_own_overflows() {
    let threads: Vec<_> = (0..4)
        .map(|index| {
            thread::spawn(move || {
                let (_guarded, mut pool) = set_up();
                for round in 0..500 {
                    assert_eq!(run(&mut pool, endless, 0), LEFT_BY_OVERFLOW);
                    assert_eq!(run(&mut pool, double, round + index).value, (round + index) as u64 * 2);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread failed");
    }
}

/// Recurses until less than `left` bytes of the stack are free, then runs `work` there.
#[inline(never)]
fn near_the_bottom(left: usize, work: fn() -> u64) -> u64 {
    let here = black_box(0_u8);
    let bottom = running::with(|running| running.bounds().0);
    if (&raw const here) as usize - bottom > left {
        return black_box(near_the_bottom(left, work));
    }
    work()
}

fn calls_the_host() -> u64 {
    // SAFETY: on the extension's stack, from a function that owns nothing.
    unsafe { running::host_call(|_| 7) }
}

unsafe extern "C" fn host_call_with(left: *mut c_void) -> u64 {
    near_the_bottom(left as usize, calls_the_host)
}

#[test]
fn a_host_call_with_too_little_stack_overflows_instead() {
    let (_guarded, mut pool) = set_up();
    assert_eq!(run(&mut pool, host_call_with, EXTENSION_STACK_BYTES), StackOutcome { value: 7, cause: 0 });
    assert_eq!(run(&mut pool, host_call_with, reserve_bytes() + 2048), StackOutcome { value: 7, cause: 0 });
    assert_eq!(run(&mut pool, host_call_with, reserve_bytes() - 64), LEFT_BY_OVERFLOW);
    assert_eq!(run(&mut pool, host_call_with, 1024), LEFT_BY_OVERFLOW);
}

thread_local! {
    static DELIVERED: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn count_delivery(_: i32) {
    DELIVERED.with(|delivered| delivered.set(delivered.get() + 1));
}

fn raises_a_signal() -> u64 {
    // SAFETY: the handler of the test counts and returns.
    unsafe { libc::raise(libc::SIGUSR2) };
    3
}

unsafe extern "C" fn signal_with(left: *mut c_void) -> u64 {
    near_the_bottom(left as usize, raises_a_signal)
}

#[test]
fn a_signal_from_outside_fits_a_deep_stack_and_overflows_a_full_one() {
    let (_guarded, mut pool) = set_up();
    let handler: extern "C" fn(i32) = count_delivery;
    // SAFETY: the handler touches one thread-local cell.
    unsafe { libc::signal(libc::SIGUSR2, handler as usize) };
    assert_eq!(run(&mut pool, signal_with, signal_frame_bytes() + 4096), StackOutcome { value: 3, cause: 0 });
    assert_eq!(DELIVERED.get(), 1);
    assert_eq!(run(&mut pool, signal_with, 1024), LEFT_BY_OVERFLOW);
    assert_eq!(run(&mut pool, double, 4).value, 8);
}

#[test]
fn an_arena_and_a_context_belong_to_the_entry_that_runs() {
    unsafe extern "C" fn sees(_: *mut c_void) -> u64 {
        (running::arena() as u64) ^ (running::context() as u64)
    }
    let (_guarded, mut pool) = set_up();
    let stack = pool.take().expect("a stack");
    let mut arena = Arena::empty();
    let (arena, context) = (&raw mut arena, 5 as *mut c_void);
    // SAFETY: the entry only reads the two pointers.
    let outcome = unsafe { running::run(&stack, arena, context, u64::MAX, sees, ptr::null_mut()) };
    assert_eq!(outcome.value, arena as u64 ^ 5);
    assert!(running::arena().is_null() && running::context().is_null());
}

#[test]
fn a_pool_keeps_stacks_and_hands_out_the_warm_one() {
    let mut pool = StackPool::new().expect("a stack");
    let (first, second) = (pool.take().expect("kept"), pool.take().expect("mapped"));
    let bottom = first.bottom();
    assert!(second.top() - second.bottom() >= EXTENSION_STACK_BYTES + reserve_bytes());
    pool.give(second);
    pool.give(first);
    assert_eq!(pool.take().expect("kept").bottom(), bottom);
}

unsafe extern "C" fn reads_a_wild_address(address: *mut c_void) -> u64 {
    // SAFETY: deliberately unsound: the tests show who ends.
    unsafe { address.cast::<u64>().read_volatile() }
}

unsafe extern "C" fn writes_a_wild_address(address: *mut c_void) -> u64 {
    // SAFETY: deliberately unsound: the test shows that the process ends.
    unsafe { address.cast::<u64>().write_volatile(7) };
    7
}

unsafe extern "C" fn runs_a_wild_address(address: *mut c_void) -> u64 {
    // SAFETY: deliberately unsound: as above.
    let wild = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> u64>(address) };
    wild()
}

fn overflows_in_a_host_call() -> u64 {
    // SAFETY: on the extension's stack; the test is about the fault.
    unsafe { running::host_call(|_| sum_by_recursion(u64::MAX)) }
}

unsafe extern "C" fn faults_in_the_host(_: *mut c_void) -> u64 {
    overflows_in_a_host_call()
}

/// The child process of the next test, which must crash; not a test by itself.
#[test]
#[ignore = "crashes; run by the test after it"]
fn child_that_crashes() {
    let (_guarded, mut pool) = set_up();
    let _kept = run(&mut pool, endless, 0);
    match std::env::var("SPLINTER_CRASH").as_deref() {
        Ok("write") => run(&mut pool, writes_a_wild_address, 64),
        Ok("fetch") => run(&mut pool, runs_a_wild_address, 64),
        Ok("host") => run(&mut pool, faults_in_the_host, 0),
        // SAFETY: deliberately unsound: an abort outside any extension's stack.
        Ok("abort") => StackOutcome { value: unsafe { aborts(ptr::null_mut()) }, cause: 0 },
        // SAFETY: deliberately unsound: a fault outside any extension's stack.
        Ok("worker") => StackOutcome { value: unsafe { reads_a_wild_address(64 as *mut c_void) }, cause: 0 },
        _ => return,
    };
    unreachable!("the fault was swallowed");
}

#[test]
fn faults_of_the_server_and_writes_at_wrong_addresses_still_crash() {
    let program = std::env::current_exe().expect("a test knows its program");
    for case in ["write", "fetch", "host", "worker", "abort"] {
        let child = Command::new(&program)
            .args(["--exact", "tests::child_that_crashes", "--ignored", "--nocapture"])
            .env("SPLINTER_CRASH", case)
            .output()
            .expect("the child starts");
        let signal = if case == "abort" { libc::SIGILL } else { libc::SIGSEGV };
        assert_eq!(child.status.signal(), Some(signal), "{case}: {child:?}");
    }
}
