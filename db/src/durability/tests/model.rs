//! What clients know: the state of all keys, replies without an acknowledgement, and facts that they were told.

use std::collections::{BTreeMap, HashMap};

use super::running::{CORES, Completions, Held, Key};

/// Something that a client was told of a key, once this cut is stable.
pub(super) struct Fact {
    pub(super) key: Key,
    /// The version that it had; of an absence, the one that was deleted.
    pub(super) version: u64,
    pub(super) cut: u64,
}

/// Requests that a client has not acknowledged: each core is a client with so many.
pub(super) const UNANSWERED: u64 = 20;

/// The state of all keys.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// The last request of each client, and its replies that count as unanswered.
    pub(super) sequences: [u64; CORES],
    pub(super) replies: Completions,
    pub(super) objects: BTreeMap<Key, Held>,
    /// The newest version of each key, gone or not.
    pub(super) newest: HashMap<Key, u64>,
    pub(super) now_ms: u64,
}
