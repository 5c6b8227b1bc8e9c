//! Runs that end in the middle, at every moment, and whoever has the instance or the stack next.

use db::extension::Provenance;
use db::extension::invocation::LimitOverrides;
use wire::Status;

use crate::ends::ends;
use crate::stage::{Stage, rounds, words};

/// Kinds of traps; the last is a panic.
const TRAPS: [Status; 7] = [Status::ExtensionPanicked; 7];
/// What says nothing of an earlier invocation.
const NOTHING: [u64; 1] = [0];

#[test]
fn a_trap_at_any_poll_parked_or_not_leaves_nothing() {
    for provenance in [Provenance::Unknown, Provenance::CheckedSource] {
        let extension = ends(provenance);
        let mut stage = Stage::with_budget(LimitOverrides {
            slice_us: 50,
            cpu_us: 10_000_000,
            wall_us: 60_000_000,
            ..Default::default()
        });
        for round in 0..u64::from(rounds()) {
            for (kind, expected) in TRAPS.iter().enumerate() {
                for spins in [0, 100_000] {
                    let later = words(&[round % 6, spins, kind as u64]);
                    let (status, body) = stage.attack(&extension, "trap_later", &later);
                    assert_eq!(status, *expected, "{kind}");
                    assert_eq!(body, if kind == 6 { b"key".to_vec() } else { Vec::new() }, "{kind}");
                    let (status, body) = stage.attack(&extension, "left_read", b"");
                    assert_eq!((status, body), (Status::Ok, words(&NOTHING)));
                }
            }
        }
    }
}

#[test]
fn a_kill_while_parked_pending_or_in_a_copy_leaves_nothing() {
    for provenance in [Provenance::Unknown, Provenance::CheckedSource] {
        let extension = ends(provenance);
        let mut stage = Stage::with_budget(LimitOverrides {
            slice_us: 20,
            cpu_us: 2_000,
            wall_us: 60_000_000,
            yields: 50,
            ..Default::default()
        });
        stage.worker.put(b"key", &vec![7; 1 << 20]);
        for _ in 0..rounds() {
            for function in ["spin", "spin_touch", "spin_get", "spin_get_many", "pend", "trap_later"] {
                // A run that returns each time ends with its instance whole: see `residue`.
                if function == "trap_later" && provenance == Provenance::CheckedSource {
                    continue;
                }
                // More polls than it has yields.
                let (status, body) = stage.attack(&extension, function, &words(&[1_000, 10, 0]));
                let text = String::from_utf8_lossy(&body);
                assert_eq!(status, Status::ExtensionKilled, "{function}: {text}");
                assert!(text.contains("invocation_"), "{function} names its limit: {text}");
                let (status, body) = stage.attack(&extension, "left_read", b"");
                assert_eq!((status, body), (Status::Ok, words(&NOTHING)));
            }
        }
    }
}

#[test]
fn attacks_side_by_side_resume_in_any_order_and_end_for_themselves() {
    let (one, other) = (ends(Provenance::Unknown), ends(Provenance::CheckedSource));
    let mut stage = Stage::with_budget(LimitOverrides {
        slice_us: 20,
        cpu_us: 5_000,
        wall_us: 60_000_000,
        ..Default::default()
    });
    stage.worker.put(b"key", &vec![7; 1 << 20]);
    let trap = words(&[3, 20_000, 0]);
    for _ in 0..rounds() {
        let answers = stage.attack_all(&[
            (&one, "spin", b""),
            (&other, "trap_later", &trap),
            (&one, "trap_later", &trap),
            (&other, "spin_touch", b""),
            (&one, "copy", b""),
            (&other, "copy", b""),
            (&one, "deep", b""),
            (&other, "deep_indirect", b""),
        ]);
        let found: Vec<_> = answers.iter().map(|answer| answer.0).collect();
        assert_eq!(
            found,
            [
                Status::ExtensionKilled,
                Status::ExtensionPanicked,
                Status::ExtensionPanicked,
                Status::ExtensionKilled,
                Status::Ok,
                Status::Ok,
                Status::ExtensionStackOverflow,
                Status::ExtensionStackOverflow,
            ]
        );
    }
}
