//! What a module uses up without an end, or says that it did.

use db::extension::Provenance;
use wire::Status;

use crate::ends::ends;
use crate::stage::{Stage, attacker, module, rounds, words};

/// Waits once, and holds its instance meanwhile.
const HOARDS: &str = r#"(module
  (memory (export "memory") 256 256)
  (global (export "__heap_base") i32 (i32.const 65536))
  (func (export "run_hoard_read") (param i32) (result i64)
    (if (result i64) (i32.load offset=44 (local.get 0))
      (then (i64.const 0))
      (else (i32.store offset=44 (local.get 0) (i32.const 1)) (i64.const 4294967295)))))"#;

#[test]
fn a_tenant_that_holds_instances_leaves_others_theirs() {
    let hoards = attacker(&module(HOARDS, &["hoard_read"], Provenance::Unknown));
    let mut stage = Stage::new();
    let attacks = vec![(&hoards, "hoard_read", &[][..]); 2_200];
    for _ in 0..2 {
        let answers = stage.attack_all(&attacks);
        let held = answers.iter().filter(|(status, _)| *status == Status::Ok).count();
        let refused = answers.iter().filter(|(status, _)| *status == Status::Retry).count();
        assert_eq!(held + refused, attacks.len());
        assert!(held >= 1_000 && refused >= 1_000, "{held} held, {refused} refused");
    }
}

#[test]
fn each_budget_ends_in_its_limit() {
    let extension = ends(Provenance::Unknown);
    let mut stage = Stage::new();
    stage.worker.put(b"key", &vec![7; 1 << 20]);
    for key in 0..8u8 {
        stage.put_ordered(&[key], &[key; 20_000]);
    }
    let before = stage.objects();
    for _ in 0..rounds() {
        for (function, arguments, limit) in [
            ("lend", &[3, 0][..], ""),
            ("lend", &[1 << 20, 0], "lent_bytes_of_an_invocation"),
            // No page before, and a page before that is not the host's.
            ("pages", &[20, 0], ""),
            ("pages", &[1 << 20, 0], "lent_bytes_of_an_invocation"),
            ("pages", &[1 << 20, u64::MAX], "lent_bytes_of_an_invocation"),
            ("pages", &[1 << 20, 0xffff_0000_0001_0000], "lent_bytes_of_an_invocation"),
            ("writes", &[1 << 20, 3], "invocation_writes"),
            ("writes", &[1 << 20, 1 << 20], "invocation_write"),
        ] {
            let (status, body) = stage.attack(&extension, function, &words(arguments));
            let text = String::from_utf8_lossy(&body);
            let expected = if limit.is_empty() { Status::Ok } else { Status::LimitExceeded };
            assert_eq!(status, expected, "{function} {arguments:?}: {text}");
            assert!(text.contains(limit), "{function}: {text}");
        }
        for pages in [1, 255, 256, 65_280, 65_536, u64::from(u32::MAX)] {
            let (status, body) = stage.attack(&extension, "grow", &words(&[pages]));
            assert_eq!((status, body), (Status::Ok, words(&[u64::MAX])), "grow by {pages}");
        }
        assert_eq!(stage.attack(&extension, "logs", &words(&[100_000])).0, Status::Ok);
        for claim in [0, 1, u64::from(u32::MAX)] {
            let (status, body) = stage.attack(&extension, "no_memory", &words(&[claim]));
            assert_eq!(status, Status::ExtensionOutOfMemory);
            assert!(String::from_utf8_lossy(&body).contains("invocation_arena_bytes"));
        }
        assert!(stage.objects() == before, "nothing was written");
    }
}
