//! Loops without an end, of every kind: each is parked at its slices' ends, and killed.

use std::fmt::Write;

use db::extension::Provenance;
use db::extension::invocation::LimitOverrides;
use wire::Status;

use crate::ends::ends;
use crate::stage::{Stage, attacker, module, rounds, words};

fn short() -> LimitOverrides {
    LimitOverrides { slice_us: 100, cpu_us: 3_000, wall_us: 60_000_000, ..Default::default() }
}

#[test]
fn each_kind_of_endless_loop_is_killed() {
    let extension = ends(Provenance::Unknown);
    let mut stage = Stage::with_budget(short());
    stage.worker.put(b"key", &vec![7; 1 << 20]);
    for key in 0..100u8 {
        stage.put_ordered(&[key], &[key; 1_000]);
    }
    for _ in 0..rounds() {
        for function in [
            "spin",
            "spin_calls",
            "spin_indirect",
            "spin_host",
            "spin_grow",
            "spin_log",
            "spin_get",
            "spin_get_many",
            "spin_scan",
            "spin_touch",
        ] {
            let (status, body) = stage.attack(&extension, function, &words(&[0]));
            let text = String::from_utf8_lossy(&body);
            assert_eq!(status, Status::ExtensionKilled, "{function}");
            assert!(text.contains("invocation_cpu_us"), "{function}: {text}");
        }
    }
}

#[test]
fn long_code_without_a_loop_is_killed() {
    // Functions that call each other down a tree: 2^40 calls, and none jumps back.
    let mut functions = String::new();
    for level in 0..40 {
        let next = level + 1;
        let _ = write!(functions, "(func $f{level} (call $f{next}) (call $f{next}))");
    }
    let straight =
        "(i64.store (i32.const 66000) (i64.mul (i64.load (i32.const 66000)) (i64.const 3)))".repeat(3_000);
    let text = format!(
        "(module (memory (export \"memory\") 256 256) (global (export \"__heap_base\") i32 (i32.const 70000))
            {functions} (func $f40 {straight})
            (func (export \"run_f\") (param i32) (result i64) (call $f0) (i64.const 0)))"
    );
    let extension = attacker(&module(&text, &["f"], Provenance::Unknown));
    let mut stage = Stage::with_budget(short());
    for _ in 0..rounds() {
        assert_eq!(stage.attack(&extension, "f", b"").0, Status::ExtensionKilled);
    }
}

#[test]
fn a_storm_of_short_attacks_leaves_the_victim_its_turns() {
    let extension = ends(Provenance::Unknown);
    let mut stage = Stage::new();
    let [trap, deep] = [words(&[0, 0, 0]), words(&[0])];
    for _ in 0..rounds() {
        let storm: Vec<_> = (0..64)
            .map(|index| match index % 2 {
                0 => (&extension, "trap_later", &trap[..]),
                _ => (&extension, "deep", &deep[..]),
            })
            .collect();
        for (index, (status, _)) in stage.attack_all(&storm).into_iter().enumerate() {
            let expected = [Status::ExtensionPanicked, Status::ExtensionStackOverflow][index % 2];
            assert_eq!(status, expected);
        }
    }
}
