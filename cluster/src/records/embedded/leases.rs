//! The leases of an embedded store: the expiry of each, and its records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::{HeldLease, LeaseId, RecordChange};
use crate::moment::Moment;

#[derive(Debug)]
struct EmbeddedLease {
    ttl: Duration,
    until: Moment,
    keys: BTreeSet<String>,
}

/// The leases of an embedded store.
#[derive(Debug, Default)]
pub(super) struct EmbeddedLeases {
    last: i64,
    held: BTreeMap<LeaseId, EmbeddedLease>,
}

impl EmbeddedLeases {
    pub(super) fn grant(&mut self, ttl: Duration, now: Moment) -> HeldLease {
        self.last += 1;
        let (lease, until) = (LeaseId(self.last), now + ttl);
        self.held.insert(lease, EmbeddedLease { ttl, until, keys: BTreeSet::new() });
        HeldLease { lease, until }
    }

    pub(super) fn keep(&mut self, lease: LeaseId, now: Moment) -> Option<HeldLease> {
        let held = self.held.get_mut(&lease)?;
        held.until = now + held.ttl;
        Some(HeldLease { lease, until: held.until })
    }

    pub(super) fn are_held(&self, mut leases: impl Iterator<Item = LeaseId>) -> bool {
        leases.all(|lease| self.held.contains_key(&lease))
    }

    /// Returns an expired lease.
    pub(super) fn expired(&self, now: Moment) -> Option<LeaseId> {
        self.held.iter().find(|(_, held)| held.until <= now).map(|(lease, _)| *lease)
    }

    /// Updates the records of the leases after a commit.
    pub(super) fn note(&mut self, changes: &[RecordChange]) {
        for change in changes {
            match change {
                RecordChange::Put { key, lease, .. } => {
                    self.release(key);
                    if let Some(held) = lease.and_then(|lease| self.held.get_mut(&lease)) {
                        held.keys.insert(key.clone());
                    }
                }
                RecordChange::Delete(key) => self.release(key),
                RecordChange::DeletePrefix(prefix) => {
                    for held in self.held.values_mut() {
                        held.keys.retain(|key| !key.starts_with(prefix));
                    }
                }
            }
        }
    }

    fn release(&mut self, key: &str) {
        for held in self.held.values_mut() {
            held.keys.remove(key);
        }
    }

    pub(super) fn keys(&self, lease: LeaseId) -> BTreeSet<String> {
        self.held.get(&lease).map(|held| held.keys.clone()).unwrap_or_default()
    }

    pub(super) fn forget(&mut self, lease: LeaseId) {
        self.held.remove(&lease);
    }
}
