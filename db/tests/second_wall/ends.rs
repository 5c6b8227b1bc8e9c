//! The module whose functions end, wait and go on in every way.

use std::sync::Arc;

use db::extension::{Extension, Provenance};

use crate::stage::{attacker, module};

/// Its functions.
const NAMES: [&str; 27] = [
    "trap_later",
    "pend",
    "left_read",
    "indirect",
    "indirect_other",
    "deep",
    "deep_indirect",
    "deep_host",
    "dive",
    "deep_in_memory",
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
    "copy",
    "lend",
    "pages",
    "writes",
    "logs",
    "grow",
    "no_memory",
];

/// Loads it.
pub fn ends(provenance: Provenance) -> Arc<Extension> {
    attacker(&module(include_str!("../modules/ends.wat"), &NAMES, provenance))
}
