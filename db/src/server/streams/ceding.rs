//! Who gives a place up when tenants have all of theirs: the one with most, the stream that it has used least lately.
//!
//! A tenant that has less by two or more gets the place, so that the most that any has shrinks until all who want some
//! have as many (max-min fairness). A stream that serves a request counts as used last, whenever that began: it is closed
//! only when its tenant has no other. Its session goes on, and its client may attach another stream.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::{ConnectionPermit, StreamRole, StreamTable};
use crate::tenant::TenantId;

/// The use of a stream that is busy: later than all others.
const NOW: u64 = u64::MAX;

/// While it lives its stream serves a request.
pub struct ServingGuard<'p>(&'p ConnectionPermit);

impl StreamTable {
    /// How many streams each tenant has.
    pub(super) fn streams_of_tenants(&self) -> HashMap<TenantId, usize> {
        let mut tenants = HashMap::new();
        for held in self.held.values() {
            if let StreamRole::Tenant(holder) = held.standing {
                *tenants.entry(holder).or_insert(0) += 1;
            }
        }
        tenants
    }

    /// Closes a stream of the tenant with most for one of a tenant that has `own`; false when none has so many more.
    pub(super) fn cede(&mut self, own: usize, tenants: &HashMap<TenantId, usize>) -> bool {
        // Of those with as many the one with the lowest number.
        let most = tenants.iter().max_by_key(|(tenant, streams)| (**streams, u32::MAX - tenant.0));
        let Some((&tenant, _)) = most.filter(|(_, streams)| **streams > own + 1) else { return false };
        let of_tenant = self.held.iter().filter(|(_, held)| held.standing == StreamRole::Tenant(tenant));
        let idlest = of_tenant.min_by_key(|(number, held)| (held.used.load(Ordering::Relaxed), **number));
        let Some(number) = idlest.map(|(number, _)| *number) else { return false };
        self.close(number);
        self.counts.ceded += 1;
        true
    }
}

impl ConnectionPermit {
    /// The stream serves a request from now on.
    #[must_use]
    pub fn busy(&self) -> ServingGuard<'_> {
        self.used.store(NOW, Ordering::Relaxed);
        ServingGuard(self)
    }

    /// The stream was used just now.
    pub(super) fn note_use(&self) {
        let latest = self.streams.uses.fetch_add(1, Ordering::Relaxed);
        self.used.store(latest, Ordering::Relaxed);
    }
}

impl Drop for ServingGuard<'_> {
    fn drop(&mut self) {
        self.0.note_use();
    }
}
