//! Wild reads and writes: by instructions with every kind of address, and by sources with `unsafe`.

use db::extension::Provenance;
use wire::Status;

use crate::stage::{Stage, TOOL_NAMES, TOOLS, attacker, module, rounds, unchecked, words};

const WILD: &str = include_str!("../unsafe/wild.rs");
const WILD_NAMES: [&str; 11] = [
    "read_at",
    "write_at",
    "null",
    "slice_of_everything",
    "a_pointer_over_an_await",
    "a_function_that_is_a_number",
    "another_type_of_function",
    "reply_of_everything",
    "arena_of_everything",
    "freed_twice",
    "unreachable",
];

const END: u64 = 16 << 20;
const WORD: u64 = 1 << 32;

#[test]
fn an_address_outside_of_the_memory_ends_the_attacker() {
    let extension = attacker(&module(TOOLS, &TOOL_NAMES, Provenance::Unknown));
    let mut stage = Stage::new();
    for _ in 0..rounds() {
        for address in [0, 1, 8, 65_528, END - 8] {
            assert_eq!(stage.attack(&extension, "peek", &words(&[address])).0, Status::Ok, "{address}");
            if address != END - 8 && address > 65_535 {
                assert_eq!(stage.attack(&extension, "poke", &words(&[address, 1, 0])).0, Status::Ok);
            }
        }
        for address in [END - 7, END - 1, END, END + 4096, 1 << 30, 1 << 31, WORD - (17 << 20)] {
            for function in ["peek", "poke", "peek_far", "poke_far", "peek_wide"] {
                let (status, _) = stage.attack(&extension, function, &words(&[address, u64::MAX, 0]));
                assert_eq!(status, Status::ExtensionPanicked, "{function} at {address}");
            }
        }
        // Near the highest address lies what overflows of the stack in memory hit.
        for address in [WORD - 4096, WORD - 8, WORD - 1] {
            let (status, _) = stage.attack(&extension, "poke", &words(&[address, u64::MAX, 0]));
            assert_eq!(status, Status::ExtensionStackOverflow, "{address}");
            let (status, _) = stage.attack(&extension, "peek_far", &words(&[address, 0, 0]));
            assert_eq!(status, Status::ExtensionPanicked, "{address}");
        }
    }
}

#[test]
fn sources_with_unsafe_reach_their_own_memory_alone() {
    let extension = attacker(&unchecked(WILD, &WILD_NAMES, Provenance::Unknown));
    let mut stage = Stage::new();
    stage.worker.put(b"key", b"value");
    for round in 0..rounds() {
        for address in [END, 1 << 31, WORD - (64 << 20), (u64::from(round) << 24 | END) % WORD] {
            // The last 16 MiB are what overflows of the stack in memory hit.
            let is_overflow = address >= WORD - END;
            let expected =
                if is_overflow { Status::ExtensionStackOverflow } else { Status::ExtensionPanicked };
            for function in ["read_at", "write_at"] {
                let (status, _) = stage.attack(&extension, function, &words(&[address]));
                assert_eq!(status, expected, "{function} at {address}");
            }
        }
        for function in &WILD_NAMES[2..] {
            let (status, body) = stage.attack(&extension, function, &words(&[u64::from(round)]));
            let expected: &[Status] = match *function {
                // Address 0 is the far end of its own stack.
                "null" | "a_pointer_over_an_await" | "freed_twice" => &[Status::Ok],
                "reply_of_everything" => &[Status::Ok, Status::ReplyTooLarge],
                "arena_of_everything" => &[Status::Ok, Status::ExtensionOutOfMemory],
                _ => &[Status::ExtensionPanicked],
            };
            assert!(expected.contains(&status), "{function}: {status} {:?}", body.get(..80));
        }
    }
    assert_eq!(stage.objects()[0], [(b"key".to_vec(), b"value".to_vec())]);
}
