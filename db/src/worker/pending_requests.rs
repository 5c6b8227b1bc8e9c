//! Pending requests, which wait for objects in transit without occupying a thread.
//!
//! ```text
//!   lacks objects ─► park: request their hashes ─► waiting, by hash ── wake ──► due ─► executed again as usual
//!                      └ no room: Retry               └ too long: Retry
//! ```
//! Each worker has its own table. A pending request keeps its bytes, session and route, and a mutation its ring
//! record: copies that arrive meanwhile get no reply of their own. Before it executes again the record is released, so
//! whatever holds by then (the session has ended, another server owns the range, a copy was faster) applies as to a
//! new request. Pending requests are bounded per worker and per tenant.

mod resume;

pub use resume::{RequestContext, Resume, park};

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use store::NumberHash;
use wire::TenantId;

use crate::limits::{
    PENDING_BYTES_MAX, PENDING_HASH_BYTES, PENDING_REQUEST_BYTES, PENDING_REQUESTS_MAX, PENDING_US_MAX,
    TENANT_PENDING_BYTES_MAX, TENANT_PENDING_REQUESTS_MAX,
};
use crate::session::{Route, Session};
use crate::view::change::Wake;

/// A request that waits for objects.
#[derive(Debug)]
pub struct PendingRequest {
    /// The session.
    pub session: Arc<Session>,
    /// The request's number in the session.
    pub sequence: u64,
    /// The view under which it was sent.
    pub view: u64,
    /// The opcode.
    pub opcode: u8,
    /// The request's body.
    pub body: Vec<u8>,
    /// The route of its answer.
    pub route: Route,
    /// Time since which it waits, in microseconds.
    pub since_us: u64,
}

impl PendingRequest {
    /// Returns true if it holds a ring record that marks it as executing.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        !wire::opcode::is_read(self.opcode)
    }

    /// Releases its ring record, so that copies may execute again.
    pub fn give_record_back(&self) {
        if self.is_recorded() {
            self.session.ring.release(self.sequence);
        }
    }
}

/// A part of the store, by number, and a hash in it.
pub type MissingHashes = (u32, u64);

#[derive(Debug)]
struct WaitingRequests {
    parked: PendingRequest,
    lacks: Box<[MissingHashes]>,
    /// Number of those that have not arrived.
    left: usize,
}

/// The pending requests of a worker or a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct WaitingCount {
    requests: usize,
    bytes: usize,
}

impl WaitingCount {
    fn has_room(self, bytes: usize, most: WaitingCount) -> bool {
        self.requests < most.requests && self.bytes + bytes <= most.bytes
    }
}

const WORKER_MOST: WaitingCount = WaitingCount { requests: PENDING_REQUESTS_MAX, bytes: PENDING_BYTES_MAX };
const TENANT_MOST: WaitingCount =
    WaitingCount { requests: TENANT_PENDING_REQUESTS_MAX, bytes: TENANT_PENDING_BYTES_MAX };

/// The pending requests of one worker.
#[derive(Debug, Default)]
pub struct PendingRequests {
    /// By ticket, in ascending order of arrival.
    waiting: HashMap<u64, WaitingRequests, NumberHash>,
    next_ticket: u64,
    /// Tickets by the hashes that they lack. Clients choose hashes, so the map hashes them with a secret.
    by_lacked: HashMap<MissingHashes, Vec<u64>>,
    /// Tickets by token and sequence: a copy replaces the pending request.
    by_request: HashMap<(u64, u64), u64>,
    /// Tickets in order of arrival, with the time since which each waits; includes tickets that no longer wait.
    order: VecDeque<(u64, u64)>,
    /// Requests that are due to execute again.
    due: VecDeque<PendingRequest>,
    all: WaitingCount,
    tenants: HashMap<TenantId, WaitingCount, NumberHash>,
}

impl PendingRequests {
    /// Returns the number of requests that wait or are due.
    #[inline]
    #[must_use]
    pub fn requests(&self) -> usize {
        self.all.requests
    }

    /// Returns true if a request is due or overdue at that time.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now_us: u64) -> bool {
        self.all.requests > 0 && (!self.due.is_empty() || self.is_overdue(now_us))
    }

    fn is_overdue(&self, now_us: u64) -> bool {
        self.order.front().is_some_and(|&(_, since_us)| since_us + PENDING_US_MAX <= now_us)
    }

    /// Adds a request that lacks these hashes, each listed once. A copy of a pending request replaces it.
    ///
    /// # Errors
    /// The request, which keeps its ring record, if there is no room.
    pub fn park(
        &mut self,
        mut parked: PendingRequest,
        lacks: Box<[MissingHashes]>,
    ) -> Result<(), PendingRequest> {
        let of = (parked.session.token, parked.sequence);
        if let Some(copy) = self.by_request.get(&of).copied().and_then(|ticket| self.take(ticket)) {
            parked.since_us = parked.since_us.min(copy.since_us);
        }
        let (bytes, tenant) = (bytes_of(&parked, lacks.len()), parked.session.tenant);
        let of_tenant = self.tenants.get(&tenant).copied().unwrap_or_default();
        if !self.all.has_room(bytes, WORKER_MOST) || !of_tenant.has_room(bytes, TENANT_MOST) {
            return Err(parked);
        }
        self.count(tenant, bytes);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        for &lacked in &lacks {
            self.by_lacked.entry(lacked).or_default().push(ticket);
        }
        self.by_request.insert(of, ticket);
        // A copy inherits the age of the older one but stands after younger ones: it waits a little longer.
        self.order.push_back((ticket, parked.since_us));
        let left = lacks.len();
        self.waiting.insert(ticket, WaitingRequests { parked, lacks, left });
        if left == 0 {
            // The objects have arrived since the request was found to lack them.
            self.make_due(ticket);
        }
        self.check();
        Ok(())
    }

    /// Marks hashes as arrived; makes requests that lack no others due.
    pub fn wake(&mut self, wake: &Wake) {
        match &wake.hashes {
            Some(hashes) => hashes.iter().for_each(|&hash| self.arrived((wake.part, hash))),
            None => {
                let all = self.by_lacked.keys().copied().filter(|&(part, _)| part == wake.part);
                let mut all: Vec<MissingHashes> = all.collect();
                // The longest-waiting requests continue first.
                all.sort_unstable_by_key(|lacked| self.by_lacked[lacked].first().copied());
                all.into_iter().for_each(|lacked| self.arrived(lacked));
            }
        }
        self.check();
    }

    fn arrived(&mut self, lacked: MissingHashes) {
        for ticket in self.by_lacked.remove(&lacked).unwrap_or_default() {
            let Some(waiting) = self.waiting.get_mut(&ticket) else { continue };
            debug_assert!(waiting.left > 0, "a request that lacks nothing does not wait");
            waiting.left -= 1;
            if waiting.left == 0 {
                self.make_due(ticket);
            }
        }
    }

    /// Makes all requests due for which `holds` returns true, whatever they lack.
    pub fn wake_where(&mut self, holds: impl Fn(&PendingRequest) -> bool) {
        let chosen = self.waiting.iter().filter(|(_, waiting)| holds(&waiting.parked));
        let mut tickets: Vec<u64> = chosen.map(|(&ticket, _)| ticket).collect();
        tickets.sort_unstable();
        tickets.into_iter().for_each(|ticket| self.make_due(ticket));
    }

    fn make_due(&mut self, ticket: u64) {
        if let Some(parked) = self.take(ticket) {
            // It counts until it executes.
            self.count(parked.session.tenant, bytes_of(&parked, 0));
            self.due.push_back(parked);
        }
    }

    /// Takes the next due request; it counts no more.
    pub fn take_due(&mut self) -> Option<PendingRequest> {
        let parked = self.due.pop_front()?;
        self.forget(parked.session.tenant, bytes_of(&parked, 0));
        self.check();
        Some(parked)
    }

    /// Takes the next request that has waited too long at that time.
    pub fn take_overdue(&mut self, now_us: u64) -> Option<PendingRequest> {
        while self.is_overdue(now_us) {
            let (ticket, _) = self.order.pop_front()?;
            if let Some(parked) = self.take(ticket) {
                return Some(parked);
            }
        }
        None
    }

    /// Takes any pending request.
    pub fn take_any(&mut self) -> Option<PendingRequest> {
        self.take_due().or_else(|| self.take_overdue(u64::MAX))
    }

    /// Removes a pending request.
    fn take(&mut self, ticket: u64) -> Option<PendingRequest> {
        let WaitingRequests { parked, lacks, .. } = self.waiting.remove(&ticket)?;
        for lacked in &lacks {
            let Some(tickets) = self.by_lacked.get_mut(lacked) else { continue };
            tickets.retain(|&other| other != ticket);
            if tickets.is_empty() {
                self.by_lacked.remove(lacked);
            }
        }
        self.by_request.remove(&(parked.session.token, parked.sequence));
        self.forget(parked.session.tenant, bytes_of(&parked, lacks.len()));
        while self.order.front().is_some_and(|(ticket, _)| !self.waiting.contains_key(ticket)) {
            self.order.pop_front();
        }
        self.check();
        Some(parked)
    }

    /// Asserts that every request counts once, and that those that wait can be found.
    #[inline]
    fn check(&self) {
        debug_assert_eq!(self.all.requests, self.waiting.len() + self.due.len(), "each request counts once");
        debug_assert_eq!(self.by_request.len(), self.waiting.len(), "a request waits once");
        debug_assert!(self.order.len() >= self.waiting.len(), "each has its turn to be overdue");
        debug_assert!(self.all.requests > 0 || self.all.bytes == 0, "nothing counts for no request");
        debug_assert!(
            self.tenants.len() <= self.all.requests,
            "a tenant that waits for nothing is forgotten"
        );
    }

    fn count(&mut self, tenant: TenantId, bytes: usize) {
        let of_tenant = self.tenants.entry(tenant).or_default();
        for share in [&mut self.all, of_tenant] {
            share.requests += 1;
            share.bytes += bytes;
        }
    }

    fn forget(&mut self, tenant: TenantId, bytes: usize) {
        debug_assert!(self.tenants.contains_key(&tenant), "only a counted request is forgotten");
        let Some(of_tenant) = self.tenants.get_mut(&tenant) else { return };
        for share in [&mut self.all, of_tenant] {
            share.requests -= 1;
            share.bytes -= bytes;
        }
        if self.tenants.get(&tenant) == Some(&WaitingCount::default()) {
            self.tenants.remove(&tenant);
        }
    }
}

/// Returns the bytes that a request counts for.
fn bytes_of(parked: &PendingRequest, lacks: usize) -> usize {
    PENDING_REQUEST_BYTES + parked.body.len() + lacks * PENDING_HASH_BYTES
}

#[cfg(test)]
mod tests;
