//! The call block belongs to the module as far as the processor is concerned: all that it holds is a claim.

use std::sync::Arc;

use db::extension::Provenance;
use db::extension::log::ExtensionLog;
use db::tenant::account::Account;
use db::tenant::limit::TenantLimit;
use wire::Status;

use crate::stage::{Stage, TOOL_NAMES, TOOLS, attacker, module, rounds, words};
use crate::worker::TENANT;

const BLOCK: u64 = 65_408;
/// The length of the reply, and its highest value ever.
const REPLY_BYTES: u64 = BLOCK + 16 + 28;
const REPLY_HIGHEST: u64 = BLOCK + 16 + 36;

const VALUES: [u64; 10] =
    [0, 1, BLOCK, 65_536, 1 << 20, (16 << 20) - 1, 16 << 20, 1 << 31, (1 << 32) - 8, (1 << 32) - 1];

#[test]
fn each_word_of_the_call_block_is_a_claim() {
    let extension = attacker(&module(TOOLS, &TOOL_NAMES, Provenance::Unknown));
    let mut stage = Stage::new();
    let mut codes = vec![0, 1, 2, u64::MAX];
    codes.extend((0..64).map(|bit| 1 << bit));
    for word in 0..32 {
        for value in VALUES {
            let (status, body) = stage.attack(&extension, "poke_word", &words(&[BLOCK + 4 * word, value, 0]));
            assert_eq!(status, Status::Ok);
            let claimed = if BLOCK + 4 * word == REPLY_BYTES { value as usize } else { 0 };
            assert_eq!(body.len(), claimed.min(wire::limits::REPLY_BYTES_MAX), "word {word}, {value:x}");
            assert!(body.iter().all(|byte| *byte == 0), "what nobody wrote is zero");
            // The same lies on every other way out: an error of the function's, no memory, pending for ever.
            for code in &codes {
                let lie = words(&[BLOCK + 4 * word, value, *code]);
                let (status, body) = stage.attack(&extension, "poke_word", &lie);
                assert!(*code == 0 || status != Status::Ok, "{word} {value:x} {code:x}");
                assert_ne!(status, Status::Internal, "{word} {value:x} {code:x}");
                assert!(body.len() <= wire::limits::REPLY_BYTES_MAX);
            }
        }
        if rounds() <= 20 && word % 4 != 3 {
            codes.truncate(3);
        }
    }
}

#[test]
fn a_code_that_no_sdk_knows_is_the_modules_fault() {
    let extension = attacker(&module(TOOLS, &TOOL_NAMES, Provenance::Unknown));
    let mut stage = Stage::new();
    for code in [19, 25, 9_999, u64::MAX] {
        let (status, text) = stage.attack(&extension, "poke_word", &words(&[BLOCK, 0, code]));
        assert_eq!(status, Status::ExtensionPanicked);
        let expected = format!("the code {code} is none of the SDK's: returned in ");
        assert!(text.starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn a_reply_is_never_longer_than_its_tenants_limit() {
    const LIMIT: usize = 1_000;
    let account = Account::new(TENANT);
    account.set_limit(TenantLimit::InvocationReplyBytes, LIMIT as u64);
    let library = module(TOOLS, &TOOL_NAMES, Provenance::Unknown);
    let limited = attacker(&library).granted(1, Arc::new(account), "attack", Arc::new(ExtensionLog::new()));
    let limited = Arc::new(limited);
    let mut stage = Stage::new();
    for _ in 0..rounds() {
        for (extension, most) in [(&attacker(&library), wire::limits::REPLY_BYTES_MAX), (&limited, LIMIT)] {
            for claim in [LIMIT as u64, wire::limits::REPLY_BYTES_MAX as u64, 1 << 24, u64::from(u32::MAX)] {
                // Both words at once, the length and the capacity, or what was ever used and asked.
                let both = claim | claim << 32;
                for (address, expected) in [(REPLY_BYTES, (claim as usize).min(most)), (REPLY_HIGHEST, 0)] {
                    let (status, body) = stage.attack(extension, "poke", &words(&[address, both, 0]));
                    assert_eq!((status, body.len()), (Status::Ok, expected));
                    assert!(body.iter().all(|byte| *byte == 0), "what nobody wrote is zero");
                }
            }
        }
    }
}
