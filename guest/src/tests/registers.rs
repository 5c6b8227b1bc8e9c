//! Tests that resuming a parked stack restores every register, whatever the worker did with them meanwhile.

use std::arch::{asm, naked_asm};
use std::ffi::c_void;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::preemption::{Bench, Preempted};
use crate::running::ParkedStack;
use crate::stack::{StackEntry, StackOutcome};

const VECTOR_BYTES: usize = 64 * 32;

/// The initial contents of the vector registers, the memory to store them to, and the flag that requests it.
struct Vectors {
    stop: AtomicBool,
    image: [u8; VECTOR_BYTES],
    after: [u8; VECTOR_BYTES],
}

impl Vectors {
    fn new(seed: u8, stop: bool) -> Self {
        let image = std::array::from_fn(|at| (at as u8).wrapping_mul(31).wrapping_add(seed));
        Self { stop: AtomicBool::new(stop), image, after: [0; VECTOR_BYTES] }
    }
}

macro_rules! hold_vectors {
    ($name:ident, $feature:literal, $mov:literal, $register:literal, $stride:literal, $($number:literal)*) => {
        #[target_feature(enable = $feature)]
        unsafe extern "C" fn $name(vectors: *mut c_void) -> u64 {
            let vectors = vectors.cast::<Vectors>();
            // SAFETY: the tests pass `Vectors`; the loop only reads the flag.
            unsafe {
                asm!(
                    $(concat!($mov, " ", $register, $number, ", [{image} + ", $stride, " * ", $number, "]"),)*
                    "2:",
                    "cmp byte ptr [{stop}], 0",
                    "je 2b",
                    $(concat!($mov, " [{after} + ", $stride, " * ", $number, "], ", $register, $number),)*
                    image = in(reg) &raw const (*vectors).image,
                    after = in(reg) &raw mut (*vectors).after,
                    stop = in(reg) &raw const (*vectors).stop,
                    clobber_abi("C"),
                );
            }
            0
        }
    };
}

hold_vectors!(holds_512, "avx512f", "vmovdqu64", "zmm", "64", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
hold_vectors!(holds_256, "avx", "vmovdqu", "ymm", "32", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
hold_vectors!(holds_128, "sse2", "movdqu", "xmm", "16", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);

#[test]
fn vector_registers_survive_parking() {
    let mut thread = Preempted::new(20);
    let mut widths: Vec<(StackEntry, usize)> = vec![(holds_128, 16 * 16)];
    if std::arch::is_x86_feature_detected!("avx") {
        widths.push((holds_256, 32 * 16));
    }
    if std::arch::is_x86_feature_detected!("avx512f") {
        widths.push((holds_512, 64 * 32));
    }
    for (entry, bytes) in widths {
        for seed in 0..100 {
            let vectors = Vectors::new(seed, false);
            let mut parked = thread.parked(entry, &vectors);
            for other in 0..3 {
                // The worker's own use of the same registers.
                let mut others = Vectors::new(!seed.wrapping_add(other), true);
                // SAFETY: the processor has these registers; the flag is set, so the entry returns.
                unsafe { entry((&raw mut others).cast()) };
                assert_eq!(others.after[..bytes], others.image[..bytes]);
                let (stack, outcome) = thread.resume(parked);
                parked = ParkedStack::new(stack, outcome);
            }
            vectors.stop.store(true, Relaxed);
            assert_eq!(thread.finish(parked).cause, 0);
            let after = black_box(&vectors).after;
            assert_eq!(after[..bytes], vectors.image[..bytes], "{bytes} bytes, seed {seed}");
        }
    }
}

/// Fills every other general register, the direction flag, the red zone and the x87 stack, waits for the flag
/// that `rdi` points to, and returns 0 if all are unchanged.
macro_rules! hold_general {
    ($name:ident, $($register:literal $number:literal)*) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name(_: *mut c_void) -> u64 {
            naked_asm!(
                "push rbp; push rbx; push r12; push r13; push r14; push r15",
                "mov rax, 0x1001",
                $(concat!("mov ", $register, ", ", $number),)*
                "mov qword ptr [rsp - 128], 0x1011",
                "fldpi",
                "std",
                "2:",
                "cmp byte ptr [rdi], 0",
                "je 2b",
                "pushfq",
                "cld",
                "sub rax, 0x1001",
                $(concat!("sub ", $register, ", ", $number), concat!("or rax, ", $register),)*
                "pop rcx; not rcx; and rcx, 0x400; or rax, rcx",
                "mov rcx, [rsp - 128]; sub rcx, 0x1011; or rax, rcx",
                "mov rsi, rax",
                "fldpi; fcompp; fnstsw ax",
                "and eax, 0x4500; xor eax, 0x4000; or rax, rsi",
                "pop r15; pop r14; pop r13; pop r12; pop rbx; pop rbp",
                "ret",
            )
        }
    };
}

hold_general!(holds_general,
    "rbx" 0x1002 "rcx" 0x1003 "rdx" 0x1004 "rsi" 0x1005 "rbp" 0x1006 "r8" 0x1008 "r9" 0x1009 "r10" 0x100a
    "r11" 0x100b "r12" 0x100c "r13" 0x100d "r14" 0x100e "r15" 0x100f);

#[test]
fn general_registers_flags_red_zone_and_x87_survive_parking() {
    let mut thread = Preempted::new(20);
    for _ in 0..200 {
        let bench = Bench::default();
        let parked = thread.parked(holds_general, &bench.stop);
        let (stack, outcome) = thread.resume(parked);
        let parked = ParkedStack::new(stack, outcome);
        bench.stop.store(true, Relaxed);
        assert_eq!(thread.finish(parked), StackOutcome { value: 0, cause: 0 });
    }
}
