//! Both stacks of a module used up: by recursion, by recursion into the host, by frames, and to the last byte before a
//! host call, a trap or a preemption.

use std::fmt::Write;

use db::extension::Provenance;
use db::extension::allowance::Sandbox;
use db::extension::invocation::LimitOverrides;
use wire::Status;

use crate::ends::ends;
use crate::stage::{Stage, attacker, module, rounds, words};

#[test]
fn a_stack_that_is_used_up_ends_the_attacker() {
    let extension = ends(Provenance::Unknown);
    let mut stage = Stage::new();
    stage.worker.put(b"key", b"value");
    for _ in 0..rounds() {
        for function in ["deep", "deep_indirect", "deep_host", "deep_in_memory"] {
            let (status, _) = stage.attack(&extension, function, &words(&[0]));
            assert_eq!(status, Status::ExtensionStackOverflow, "{function}");
        }
    }
}

/// Things to do at the bottom of the stack: host calls, calls of the runtime, traps.
const DEEDS: u64 = 11;

#[test]
fn whatever_happens_at_any_depth_of_the_stack_ends_in_a_status() {
    let extension = ends(Provenance::Unknown);
    // Slices so short that preemptions come everywhere.
    let mut stage = Stage::with_budget(LimitOverrides {
        slice_us: 20,
        cpu_us: 1_000_000,
        wall_us: 60_000_000,
        sandbox: Some(Sandbox::Wasm),
        ..Default::default()
    });
    stage.worker.put(b"key", b"value");
    let mut overflows = 0;
    for deed in 0..DEEDS {
        let (mut depth, mut step) = (0, 97);
        let mut deepest = 0;
        // Finds the greatest depth at which the function still returns or traps, then looks closely around it.
        while step > 0 {
            let (status, _) = stage.attack(&extension, "dive", &words(&[depth, deed]));
            match status {
                Status::ExtensionStackOverflow => {
                    overflows += 1;
                    depth = deepest;
                    step = if step > 1 { step / 3 } else { 0 };
                }
                Status::Ok | Status::ExtensionPanicked => deepest = depth,
                _ => panic!("{deed} at {depth}: {status:?}"),
            }
            depth += step;
        }
        for depth in deepest.saturating_sub(u64::from(rounds()))..deepest + u64::from(rounds()) {
            stage.attack(&extension, "dive", &words(&[depth, deed]));
        }
    }
    assert!(overflows >= DEEDS, "each deed met the end of the stack");
}

#[test]
fn a_huge_frame_ends_the_attacker() {
    // As many values of 16 bytes alive at a time as locals are allowed.
    let mut body = String::new();
    for local in 1..490 {
        let _ = write!(body, "(local.set {local} (i32x4.splat (i32.add (local.get 0) (i32.const {local}))))");
    }
    body += "(drop (call $frame (i32.add (local.get 0) (i32.const 1))))";
    body += "(local.set 490 (v128.const i64x2 0 0))";
    for local in 1..490 {
        let _ = write!(body, "(local.set 490 (i32x4.add (local.get 490) (local.get {local})))");
    }
    let text = format!(
        "(module (memory (export \"memory\") 256 256) (global (export \"__heap_base\") i32 (i32.const 70000))
            (func $frame (param i32) (result i32) (local{}) {body} (i32x4.extract_lane 0 (local.get 490)))
            (func (export \"run_f\") (param i32) (result i64) (i64.extend_i32_u (call $frame (i32.const 0)))))",
        " v128".repeat(490)
    );
    let extension = attacker(&module(&text, &["f"], Provenance::Unknown));
    let mut stage = Stage::new();
    for _ in 0..rounds() {
        let (status, text) = stage.attack(&extension, "f", b"");
        assert_eq!(status, Status::ExtensionStackOverflow);
        assert!(text.starts_with(b"the limit stack_bytes = 57344 was reached: "));
    }
}
