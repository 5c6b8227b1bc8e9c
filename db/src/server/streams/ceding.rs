//! Chooses the stream that is closed when tenants hold all their permits: the least recently used one of the tenant
//! with most.
//!
//! A tenant that has fewer streams by two or more gets the permit, so that the largest number shrinks until all
//! tenants that want streams have equally many (max-min fairness). A stream that serves a request counts as most
//! recently used, whenever the request began: it is closed only if its tenant has no other. Its session continues, and
//! its client may attach another stream.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use wire::TenantId;

use super::{ConnectionPermit, StreamRole, StreamTable};

/// The use number of a busy stream: later than all others.
const NOW: u64 = u64::MAX;

/// A guard that marks its stream as serving a request.
pub struct ServingGuard<'p>(&'p ConnectionPermit);

impl StreamTable {
    /// Returns the number of streams of each tenant.
    pub(super) fn streams_of_tenants(&self) -> HashMap<TenantId, usize> {
        let mut tenants = HashMap::new();
        for held in self.held.values() {
            if let StreamRole::Tenant(holder) = held.role {
                *tenants.entry(holder).or_insert(0) += 1;
            }
        }
        tenants
    }

    /// Closes a stream of the tenant with the most, for a tenant that has `own`; returns false if none has at least two
    /// more.
    pub(super) fn cede(&mut self, own: usize, tenants: &HashMap<TenantId, usize>) -> bool {
        // Among equals the tenant with the lowest number.
        let most = tenants.iter().max_by_key(|(tenant, streams)| (**streams, u32::MAX - tenant.0));
        let Some((&tenant, _)) = most.filter(|(_, streams)| **streams > own + 1) else { return false };
        let of_tenant = self.held.iter().filter(|(_, held)| held.role == StreamRole::Tenant(tenant));
        let idlest = of_tenant.min_by_key(|(number, held)| (held.used.load(Ordering::Relaxed), **number));
        let Some(number) = idlest.map(|(number, _)| *number) else { return false };
        self.close(number);
        self.counts.ceded += 1;
        true
    }
}

impl ConnectionPermit {
    /// Marks the stream as serving a request while the guard lives.
    #[must_use]
    pub fn busy(&self) -> ServingGuard<'_> {
        self.used.store(NOW, Ordering::Relaxed);
        ServingGuard(self)
    }

    /// Records that the stream was used now.
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
