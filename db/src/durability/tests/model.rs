//! What clients know: the state of all keys, replies without an acknowledgement, and facts that they were told.

use std::collections::{BTreeMap, HashMap};

use store::AwaitedCuts;

use super::running::{CORES, Completions, Held, Key};

/// Something that a client was told of a key, once these cuts are reached.
#[derive(Clone)]
pub(super) struct Fact {
    pub(super) key: Key,
    /// The version that it had; of an absence, the one that was deleted.
    pub(super) version: u64,
    /// Whether it was that the object of this version has expired.
    pub(super) is_expiry: bool,
    pub(super) cuts: AwaitedCuts,
}

/// Requests that a client has not acknowledged: each core is a client with so many.
pub(super) const UNANSWERED: u64 = 20;

/// The state of all keys.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// The last request of each client, and its replies that count as unanswered.
    pub(super) sequences: [u64; CORES],
    pub(super) replies: Completions,
    /// The last object of each key that was not removed, expired or not.
    pub(super) objects: BTreeMap<Key, Held>,
    /// The newest version of each key, gone or not.
    pub(super) newest: HashMap<Key, u64>,
    pub(super) now_ms: u64,
}

impl Model {
    /// Returns what a client reads of a key.
    pub(super) fn visible(&self, key: Key) -> Option<&Held> {
        self.objects.get(&key).filter(|held| held.2 > self.now_ms)
    }

    /// Returns whether a start may find this of a key, `before` being the time of the clock at the crash: it may have
    /// forgotten what had expired.
    pub(super) fn allows(&self, key: Key, found: Option<&Held>, before_ms: u64) -> bool {
        match (self.objects.get(&key), found) {
            (Some(held), None) => held.2 <= before_ms.max(self.now_ms),
            (held, found) => held == found,
        }
    }

    /// Returns whether a start may find this, `before_ms` being the time of the clock at the crash: each unanswered request has
    /// its reply, and no request that changed nothing has one.
    pub(super) fn is_as(&self, objects: &BTreeMap<Key, Held>, replies: &Completions, before_ms: u64) -> bool {
        let is_unanswered = |&(client, sequence): &(u64, u64)| {
            sequence > self.sequences[client as usize].saturating_sub(UNANSWERED)
        };
        let is_right = |(request, reply)| !is_unanswered(request) || self.replies.get(request) == Some(reply);
        let mut keys = self.objects.keys().chain(objects.keys());
        keys.all(|key| self.allows(*key, objects.get(key), before_ms))
            && self.replies.iter().all(|(request, reply)| replies.get(request) == Some(reply))
            && replies.iter().all(is_right)
    }

    /// Returns whether two recovered logs are the same for clients; objects that had expired by `before_ms` may be gone.
    pub(super) fn are_same(
        &self,
        one: (&BTreeMap<Key, Held>, &Completions),
        other: (&BTreeMap<Key, Held>, &Completions),
        before_ms: u64,
    ) -> bool {
        let [ones, others] = [one.0, other.0].map(|all| all.iter().filter(|(_, held)| held.2 > before_ms));
        let is_unanswered = |&(client, sequence): &(u64, u64)| {
            sequence > self.sequences[client as usize].saturating_sub(UNANSWERED)
        };
        let unanswered = |all: &Completions| -> Completions {
            all.iter()
                .filter(|(request, _)| is_unanswered(request))
                .map(|(&id, reply)| (id, reply.clone()))
                .collect()
        };
        ones.eq(others) && unanswered(one.1) == unanswered(other.1)
    }
}
