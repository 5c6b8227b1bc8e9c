//! What one invocation leaves behind for the next, in every place that a module can write.
//!
//! Two claims, for two kinds of modules. A module of *unknown* origin finds nothing at all of an earlier invocation,
//! its tenant's own included. One of a *checked source* finds nothing in what safe code is lent: stack, arena, reply,
//! lent objects. Should the check of sources have a hole, then it finds elsewhere what earlier invocations of the same
//! version of the same tenant left, and never of another version, of another tenant, or of another side of a grant.

use std::sync::Arc;

use db::extension::log::ExtensionLog;
use db::extension::{Extension, Provenance};
use db::tenant::account::Account;
use wire::{Status, TenantId};

use crate::stage::{Stage, TOOL_NAMES, TOOLS, VICTIM, attacker, extension, module, rounds, unchecked, words};

const STATICS: &str = include_str!("../unsafe/statics.rs");

const END: u64 = 16 << 20;
const MARK: u64 = 0x1357_9bdf_0246_8ace;
/// A word of each kibibyte of the memory, and every word of the first and the last mebibyte, without the call block.
const PLACES: [(u64, u64, u64); 4] =
    [(0, 65_408, 8), (65_544, 1 << 20, 8), (1 << 20, 15 << 20, 1_024), (15 << 20, END, 8)];

/// Writes marks everywhere.
fn fill(stage: &mut Stage, extension: &Arc<Extension>, code: u64) {
    for (from, to, step) in PLACES {
        stage.attack(extension, "fill", &words(&[from, to, step, MARK, code]));
    }
}

/// Counts the marks that are found: in memory, and in globals.
fn seek(stage: &mut Stage, extension: &Arc<Extension>) -> u64 {
    let number = |answer: (Status, Vec<u8>)| {
        assert_eq!(answer.0, Status::Ok);
        u64::from_le_bytes(answer.1[..].try_into().expect("a number"))
    };
    let found = PLACES.map(|(from, to, step)| {
        number(stage.attack(extension, "seek_read", &words(&[from, to, step, !MARK])))
    });
    found.iter().sum::<u64>() + u64::from(number(stage.attack(extension, "globals_read", b"")) != 0)
}

/// The same version for a tenant that has a grant.
fn granted(extension: &Extension, tenant: TenantId) -> Arc<Extension> {
    let (account, log) = (Arc::new(Account::new(tenant)), Arc::new(ExtensionLog::new()));
    Arc::new(extension.granted(9, account, "attack", log))
}

#[test]
fn code_of_unknown_origin_finds_nothing_of_an_earlier_invocation() {
    let library = module(TOOLS, &TOOL_NAMES, Provenance::Unknown);
    let extension = attacker(&library);
    let mut stage = Stage::new();
    stage.worker.put(b"key", &[0xab; 4096]);
    for _ in 0..rounds() {
        // Ends well, with an error, and with what the worker takes for pending.
        for code in [0, 77 << 8, 1] {
            fill(&mut stage, &extension, code);
            assert_eq!(seek(&mut stage, &extension), 0, "after {code}");
        }
        stage.attack(&extension, "claim", &words(&[MARK]));
        assert_eq!(seek(&mut stage, &extension), 0);
    }
}

#[test]
fn code_of_a_checked_source_finds_nothing_where_safe_code_is_lent_memory() {
    let extension = attacker(&module(TOOLS, &TOOL_NAMES, Provenance::CheckedSource));
    let mut stage = Stage::new();
    stage.worker.put(b"key", &MARK.to_le_bytes().repeat(512));
    for _ in 0..rounds() {
        let (status, body) = stage.attack(&extension, "claim", &words(&[MARK]));
        assert_eq!((status, body.len()), (Status::Ok, wire::limits::REPLY_BYTES_MAX));
        let mark = |bytes: &[u8]| bytes == MARK.to_le_bytes();
        assert!(body.chunks_exact(8).take(1_000).all(mark), "the reply holds what was written");
        assert_eq!(seek(&mut stage, &extension), 0);
    }
}

#[test]
fn a_hole_in_the_check_opens_no_way_to_another_version_tenant_or_grant() {
    let library = module(TOOLS, &TOOL_NAMES, Provenance::CheckedSource);
    let own = attacker(&library);
    let others = [
        ("the next version", extension(&library, own.tenant, 2)),
        ("another tenant", extension(&library, TenantId(3), 1)),
        ("the victim's own", extension(&library, VICTIM, 1)),
        ("a grant", granted(&own, TenantId(4))),
        ("the same again", attacker(&library)),
    ];
    let mut stage = Stage::new();
    for _ in 0..rounds() {
        fill(&mut stage, &own, 0);
        for (name, other) in &others {
            assert_eq!(seek(&mut stage, other), 0, "{name}");
            fill(&mut stage, &own, 0);
        }
    }
}

#[test]
fn statics_of_an_unchecked_source_are_as_new() {
    let names = ["keep", "kept_read"];
    let unknown = attacker(&unchecked(STATICS, &names, Provenance::Unknown));
    let library = unchecked(STATICS, &names, Provenance::CheckedSource);
    let (checked, grant) = (attacker(&library), granted(&attacker(&library), TenantId(4)));
    let mut stage = Stage::new();
    for _ in 0..rounds() {
        for (keeps, asks) in [(&unknown, &unknown), (&checked, &grant)] {
            assert_eq!(stage.attack(keeps, "keep", &words(&[MARK])).0, Status::Ok);
            let (status, body) = stage.attack(asks, "kept_read", b"");
            assert_eq!((status, body), (Status::Ok, words(&[5, 0])), "as the source has it");
        }
    }
}
