//! Connection permits: which client streams are open, so that nobody keeps others out.
//!
//! ```text
//!                    right secret or token               ┌─▶ Tenant     within its own bound, beside a reserve
//!   accepted ──▶ Unopened ─────────── take ──────────────┤
//!                    │                                   └─▶ Operator   always
//!                    └── closed to make room ──▶ Leaving ◀── of the tenant with most, for one with fewer
//!                                                   └─▶ gone when its thread ends
//! ```
//! A stream that has opened nothing keeps its permit until someone else needs it: when all permits are taken, the
//! oldest unopened stream of the source prefix with the most unopened streams is closed for the newcomer. Each tenant
//! has a bound, and all tenants together leave a reserve, in which operators open their streams whatever tenants do.
//! When the tenants' permits are all taken, a tenant that has fewer streams by two or more gets a permit of the one with
//! the most: its least recently used stream is closed, so that the largest number shrinks until all tenants that want
//! streams have equally many (max-min fairness). A stream that serves a request counts as most recently used, whenever
//! the request began: it is closed only if its tenant has no other. Its session continues, and its client may attach
//! another stream. A stream that has served its purpose and stays open counts as unopened. A permit is returned
//! automatically on drop.
//!
//! One lock is held while all permits are searched: some microseconds, on control threads only. [`records`] counts the
//! memory of large records.

mod records;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::StreamCloser;
use wire::TenantId;

use crate::config::StreamLimits;
use crate::limits::STREAMS_LEAVING_MAX;
use crate::worker::response_limiter::SourcePrefix;
use records::RecordMemory;
pub use records::RecordRoom;

/// The use number of a busy stream: later than all others.
const NOW: u64 = u64::MAX;

/// The permits of all streams of one listener.
pub struct Streams {
    limits: StreamLimits,
    state: Mutex<StreamTable>,
    /// Signalled when a stream is gone.
    gone: Condvar,
    /// Signalled when the memory of a large record is returned.
    room: Condvar,
    /// Counts the uses of all streams, which orders them.
    uses: AtomicU64,
}

#[derive(Default)]
struct StreamTable {
    /// By number, that is, by age.
    held: BTreeMap<u64, PermittedStream>,
    latest: u64,
    counts: Counts,
    reported: Counts,
    records: RecordMemory,
    /// All streams were closed: the listener has ended.
    is_over: bool,
}

/// A stream with a permit.
struct PermittedStream {
    closer: StreamCloser,
    role: StreamRole,
    /// The number of its latest use; shared with its [`ConnectionPermit`].
    used: Arc<AtomicU64>,
}

/// The role that a stream has shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamRole {
    /// None yet; it came from this prefix.
    Unopened(SourcePrefix),
    /// None, and it was closed for another stream.
    Leaving,
    /// A tenant.
    Tenant(TenantId),
    /// An operator.
    Operator,
}

/// The holder of an opened stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A tenant.
    Tenant(TenantId),
    /// An operator: the administrator, a reader of metrics, or another server of the cluster.
    Operator,
}

/// The reason why a stream got no permit for its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// The tenant reached its bound.
    OfTenant,
    /// Tenants together reached their bound.
    OfTenants,
    /// The stream was closed for another one meanwhile.
    Closed,
}

/// Counts of closed and refused streams since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Closed before they had opened anything, for a new stream.
    pub evicted: u64,
    /// Turned away, because all permits were taken and no stream could be closed.
    pub turned_away: u64,
    /// Refused to a tenant because of a bound.
    pub refused: u64,
    /// Closed streams of the tenant with the most, for a tenant that had fewer.
    pub ceded: u64,
}

/// Numbers of open streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Streams that have opened nothing yet.
    pub unopened: usize,
    /// Closed streams whose threads are about to end.
    pub leaving: usize,
    /// Streams of tenants.
    pub tenants: usize,
    /// Streams of operators.
    pub operators: usize,
    /// Counts of closed and refused streams.
    pub counts: Counts,
}

/// The permit of one stream, held while its thread lives.
pub struct ConnectionPermit {
    streams: Arc<Streams>,
    number: u64,
    from: SourcePrefix,
    used: Arc<AtomicU64>,
}

/// A guard that marks its stream as serving a request.
pub struct ServingGuard<'p>(&'p ConnectionPermit);

impl Streams {
    /// Creates permits for a listener without streams.
    #[must_use]
    pub fn new(limits: StreamLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            state: Mutex::default(),
            gone: Condvar::new(),
            room: Condvar::new(),
            uses: AtomicU64::new(0),
        })
    }

    /// Gives a new stream a permit; `None` if tenants and operators hold all permits. Waits at most `patience` for the
    /// thread of a closed stream, and only if many of those have not ended yet.
    pub fn enter(
        self: &Arc<Self>,
        closer: StreamCloser,
        from: SourcePrefix,
        patience: Duration,
    ) -> Option<ConnectionPermit> {
        let mut state = self.lock();
        if state.held.len() - state.leaving() >= self.limits.places && !state.evict(u64::MAX) {
            state.counts.turned_away += 1;
            return None;
        }
        let threads_max = self.limits.places + STREAMS_LEAVING_MAX;
        let is_full = |state: &mut StreamTable| state.held.len() >= threads_max;
        let waited = self.gone.wait_timeout_while(state, patience, is_full);
        (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if is_full(&mut state) {
            state.counts.turned_away += 1;
            return None;
        }
        state.latest += 1;
        let (number, used) = (state.latest, Arc::new(AtomicU64::new(0)));
        let held = PermittedStream { closer, role: StreamRole::Unopened(from), used: Arc::clone(&used) };
        state.held.insert(number, held);
        Some(ConnectionPermit { streams: Arc::clone(self), number, from, used })
    }

    /// Closes a stream older than this number that has opened nothing, because the stream with this number has a
    /// permit but no resources to serve it. Returns false if there is none.
    pub fn close_one_before(&self, number: u64) -> bool {
        self.lock().evict(number)
    }

    /// Closes all streams.
    pub fn close_all(&self) {
        let mut state = self.lock();
        state.is_over = true;
        for held in state.held.values() {
            held.closer.close();
        }
        self.room.notify_all();
    }

    /// Returns whether the server ends, so that whoever serves a stream must not go on for long.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.lock().is_over
    }

    /// Returns the numbers of streams.
    #[must_use]
    pub fn census(&self) -> Census {
        let state = self.lock();
        let mut census = Census { counts: state.counts, ..Census::default() };
        for held in state.held.values() {
            match held.role {
                StreamRole::Unopened(_) => census.unopened += 1,
                StreamRole::Leaving => census.leaving += 1,
                StreamRole::Tenant(_) => census.tenants += 1,
                StreamRole::Operator => census.operators += 1,
            }
        }
        census
    }

    /// Returns the counts if they changed since the last call. Called periodically, so that a crowd does not fill the
    /// log.
    pub fn news(&self) -> Option<Counts> {
        let mut state = self.lock();
        let counts = state.counts;
        (std::mem::replace(&mut state.reported, counts) != counts).then_some(counts)
    }

    fn lock(&self) -> MutexGuard<'_, StreamTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamTable {
    fn leaving(&self) -> usize {
        self.held.values().filter(|held| held.role == StreamRole::Leaving).count()
    }

    /// Closes the oldest unopened stream of the prefix with the most of them, among those before this number; returns
    /// false if there is none.
    fn evict(&mut self, before: u64) -> bool {
        let mut prefixes: HashMap<SourcePrefix, (usize, u64)> = HashMap::new();
        for (number, held) in self.held.range(..before) {
            if let StreamRole::Unopened(from) = held.role {
                prefixes.entry(from).or_insert((0, *number)).0 += 1;
            }
        }
        // Among equals the prefix that was there first.
        let most = prefixes.into_values().max_by_key(|(streams, oldest)| (*streams, u64::MAX - *oldest));
        let Some((_, oldest)) = most else { return false };
        self.close(oldest);
        self.counts.evicted += 1;
        true
    }

    /// Closes the stream with this number, which frees its permit at once.
    fn close(&mut self, number: u64) {
        if let Some(held) = self.held.get_mut(&number) {
            held.closer.close();
            held.role = StreamRole::Leaving;
        }
    }

    /// Checks a tenant's bound; closes a stream of another tenant if this one is entitled to it.
    fn admit(&mut self, tenant: TenantId, limits: StreamLimits) -> Result<(), NoPlace> {
        let tenants = self.streams_of_tenants();
        let (own, all) = (tenants.get(&tenant).copied().unwrap_or(0), tenants.values().sum::<usize>());
        if own >= limits.of_tenant {
            return Err(NoPlace::OfTenant);
        }
        if all + limits.reserve < limits.places || self.cede(own, &tenants) {
            Ok(())
        } else {
            Err(NoPlace::OfTenants)
        }
    }

    /// Returns the number of streams of each tenant.
    fn streams_of_tenants(&self) -> HashMap<TenantId, usize> {
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
    fn cede(&mut self, own: usize, tenants: &HashMap<TenantId, usize>) -> bool {
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
    /// Returns the number of the stream; later streams have larger numbers.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Assigns the stream to its holder, before anything is allocated for it.
    ///
    /// # Errors
    /// The reason of the refusal; the stream must end then.
    pub fn take(&self, holder: Holder) -> Result<(), NoPlace> {
        let mut state = self.streams.lock();
        let is_leaving = state.held.get(&self.number).is_none_or(|held| held.role == StreamRole::Leaving);
        if is_leaving {
            return Err(NoPlace::Closed);
        }
        let fresh = match holder {
            Holder::Operator => StreamRole::Operator,
            Holder::Tenant(tenant) => match state.admit(tenant, self.streams.limits) {
                Ok(()) => StreamRole::Tenant(tenant),
                Err(refused) => {
                    state.counts.refused += 1;
                    return Err(refused);
                }
            },
        };
        if let Some(held) = state.held.get_mut(&self.number) {
            held.role = fresh;
        }
        self.note_use();
        Ok(())
    }
}

impl ConnectionPermit {
    /// Marks the stream as done: from here on it counts as unopened and may be closed for a newcomer.
    pub fn give_up(&self) {
        if let Some(held) = self.streams.lock().held.get_mut(&self.number)
            && held.role != StreamRole::Leaving
        {
            held.role = StreamRole::Unopened(self.from);
        }
    }

    /// Marks the stream as serving a request while the guard lives.
    #[must_use]
    pub fn busy(&self) -> ServingGuard<'_> {
        self.used.store(NOW, Ordering::Relaxed);
        ServingGuard(self)
    }

    /// Records that the stream was used now.
    fn note_use(&self) {
        let latest = self.streams.uses.fetch_add(1, Ordering::Relaxed);
        self.used.store(latest, Ordering::Relaxed);
    }
}

impl Drop for ServingGuard<'_> {
    fn drop(&mut self) {
        self.0.note_use();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.streams.lock().held.remove(&self.number);
        self.streams.gone.notify_all();
    }
}

#[cfg(test)]
mod tests;
