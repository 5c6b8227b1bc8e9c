//! Who has a stream of the server, so that nobody keeps others out.
//!
//! ```text
//!                    right secret or token               ┌─▶ Tenant     within its own bound, beside a reserve
//!   accepted ──▶ Unopened ─────────── take ──────────────┤
//!                    │                                   └─▶ Operator   always
//!                    └── closed to make room ──▶ Leaving ◀── of the tenant with most, for one with less
//!                                                   └─▶ gone when its thread ends
//! ```
//! A stranger has a place as long as nobody else wants it: when all are taken, the oldest unopened stream of the
//! source prefix that has most of those is closed for the one that comes. Tenants have a bound each, and together
//! leave a reserve, in which operators open their streams whatever tenants do; within that a tenant which has less than
//! another gets a place of that one's ([`ceding`]). Who has what it came for and does not leave counts as one that has
//! opened nothing. Places come back by themselves.
//!
//! One lock, held for a look over all places: some microseconds, on control threads alone. What large records take,
//! [`records`] counts.

mod ceding;
mod records;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use net::StreamCloser;

use super::response_limiter::SourcePrefix;
use crate::config::StreamLimits;
use crate::limits::STREAMS_LEAVING_MAX;
use crate::tenant::TenantId;
pub use ceding::ServingGuard;
use records::RecordMemory;
pub use records::RecordRoom;

/// All streams of one listener.
pub struct Streams {
    limits: StreamLimits,
    state: Mutex<StreamTable>,
    /// Raised when a stream is gone.
    gone: Condvar,
    /// Raised when a large record is.
    room: Condvar,
    /// Counts the uses of all streams, which puts them in an order.
    uses: AtomicU64,
}

#[derive(Default)]
struct StreamTable {
    /// By number, which is by age.
    held: BTreeMap<u64, PermittedStream>,
    latest: u64,
    counts: Counts,
    reported: Counts,
    records: RecordMemory,
    /// All were closed: the listener has ended.
    is_over: bool,
}

/// A stream that has a place.
struct PermittedStream {
    closer: StreamCloser,
    standing: StreamRole,
    /// The number of its latest use; shared with its [`ConnectionPermit`].
    used: Arc<AtomicU64>,
}

/// What a stream has shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamRole {
    /// Nothing; it came from there.
    Unopened(SourcePrefix),
    /// Nothing, and it was closed for another one.
    Leaving,
    /// That it is a tenant's.
    Tenant(TenantId),
    /// That it is an operator's.
    Operator,
}

/// Whose a stream turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A tenant's.
    Tenant(TenantId),
    /// An operator's: the administrator's, or that of a reader of metrics.
    Operator,
}

/// Why a stream was not given to its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// The tenant has as many as it may.
    OfTenant,
    /// Tenants together have as many as they may.
    OfTenants,
    /// It was closed for another one meanwhile.
    Closed,
}

/// What became of streams since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Closed before they had opened anything, for one that came.
    pub evicted: u64,
    /// Turned away, since there was no place and nobody to be closed.
    pub turned_away: u64,
    /// Refused to a tenant by a bound.
    pub refused: u64,
    /// Of the tenant that had most, closed for one of a tenant that had less.
    pub ceded: u64,
}

/// Streams there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Of whoever has opened nothing yet.
    pub unopened: usize,
    /// Closed, their threads about to end.
    pub leaving: usize,
    /// Of tenants.
    pub tenants: usize,
    /// Of operators.
    pub operators: usize,
    /// What became of others.
    pub counts: Counts,
}

/// The place of one stream, for as long as its thread lives.
pub struct ConnectionPermit {
    streams: Arc<Streams>,
    number: u64,
    from: SourcePrefix,
    used: Arc<AtomicU64>,
}

impl Streams {
    /// No streams yet.
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

    /// Gives a fresh stream a place; `None` when all are held by tenants and operators. Waits at most `patience`
    /// for the thread of a stream that was closed, and only when many of those have not ended yet.
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
        let held = PermittedStream { closer, standing: StreamRole::Unopened(from), used: Arc::clone(&used) };
        state.held.insert(number, held);
        Some(ConnectionPermit { streams: Arc::clone(self), number, from, used })
    }

    /// Makes room for the stream of this number, which has a place and nothing to serve it: closes one that came before
    /// it and has opened nothing. False when there is none.
    pub fn close_one_before(&self, number: u64) -> bool {
        self.lock().evict(number)
    }

    /// Closes all.
    pub fn close_all(&self) {
        let mut state = self.lock();
        state.is_over = true;
        for held in state.held.values() {
            held.closer.close();
        }
        self.room.notify_all();
    }

    /// How many there are.
    #[must_use]
    pub fn census(&self) -> Census {
        let state = self.lock();
        let mut census = Census { counts: state.counts, ..Census::default() };
        for held in state.held.values() {
            match held.standing {
                StreamRole::Unopened(_) => census.unopened += 1,
                StreamRole::Leaving => census.leaving += 1,
                StreamRole::Tenant(_) => census.tenants += 1,
                StreamRole::Operator => census.operators += 1,
            }
        }
        census
    }

    /// What became of streams if it was not said yet: called now and then, so that a crowd fills no log.
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
        self.held.values().filter(|held| held.standing == StreamRole::Leaving).count()
    }

    /// Closes the oldest unopened stream of the prefix that has most of them, of those before this number; false when
    /// there is none.
    fn evict(&mut self, before: u64) -> bool {
        let mut prefixes: HashMap<SourcePrefix, (usize, u64)> = HashMap::new();
        for (number, held) in self.held.range(..before) {
            if let StreamRole::Unopened(from) = held.standing {
                prefixes.entry(from).or_insert((0, *number)).0 += 1;
            }
        }
        // Of prefixes with as many the one that was there first.
        let most = prefixes.into_values().max_by_key(|(streams, oldest)| (*streams, u64::MAX - *oldest));
        let Some((_, oldest)) = most else { return false };
        self.close(oldest);
        self.counts.evicted += 1;
        true
    }

    /// Closes the stream of this number, which makes room at once.
    fn close(&mut self, number: u64) {
        if let Some(held) = self.held.get_mut(&number) {
            held.closer.close();
            held.standing = StreamRole::Leaving;
        }
    }

    /// Whether a tenant may have one more; makes room for it if it is to have some.
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
}

impl ConnectionPermit {
    /// Number of the stream; later ones have larger ones.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Gives the stream to whose it turned out to be, before anything is made for him.
    ///
    /// # Errors
    /// Why not; the stream is to end then.
    pub fn take(&self, holder: Holder) -> Result<(), NoPlace> {
        let mut state = self.streams.lock();
        let is_leaving = state.held.get(&self.number).is_none_or(|held| held.standing == StreamRole::Leaving);
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
            held.standing = fresh;
        }
        self.note_use();
        Ok(())
    }
}

impl ConnectionPermit {
    /// What the stream was for is done: from here on it makes room for who comes, as one that has opened nothing.
    pub fn give_up(&self) {
        if let Some(held) = self.streams.lock().held.get_mut(&self.number)
            && held.standing != StreamRole::Leaving
        {
            held.standing = StreamRole::Unopened(self.from);
        }
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
