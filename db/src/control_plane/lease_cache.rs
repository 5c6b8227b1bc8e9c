//! Cached cluster metadata, used while the metadata does not answer: the tenants as last seen, so that sessions can be
//! opened while the server's lease is held, or all others promise not to find it gone.
//!
//! A secret that another server rotated meanwhile opens sessions here until the lease expires or the promises end: some four seconds
//! at most, and only while this server cannot reach the metadata and the other one can.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::limits::PRESENCE_LOOK_MS_MAX;
use cluster::metadata::{MemberRow, Metadata, MetadataError, ServerRun, TenantRow};
use cluster::moment::Moment;
use cluster::presence::Presence;
use cluster::records::{HeldLease, LeaseId};
use wire::TenantId;

/// The cached state of a server in a cluster.
#[derive(Debug, Default)]
pub struct LeaseCache(Mutex<LeaseState>);

#[derive(Debug, Default)]
struct LeaseState {
    /// The server's number and start.
    run: Option<ServerRun>,
    held: Option<HeldLease>,
    /// The time before which all others have promised not to find this server gone.
    others_promised_until: Option<Moment>,
    tenants: BTreeMap<String, TenantRow>,
    presence: Presence,
    /// The time at which the check of the registrations began that has not ended yet.
    looking_since: Option<Instant>,
    /// The address of each server, and whether it was not gone at the last check.
    addresses: BTreeMap<u32, (SocketAddr, bool)>,
}

impl LeaseState {
    /// Notes where servers are, after a check of the registrations. Who is gone is there again when it is registered.
    fn note_addresses(&mut self, members: &[MemberRow], registered: &BTreeSet<u32>) {
        let now = Instant::now();
        let address = |row: &MemberRow| {
            let server = row.run.server;
            let was_there = self.addresses.get(&server).is_some_and(|(_, was_there)| *was_there);
            let is_there = registered.contains(&server) || was_there && !self.presence.is_gone(row.run, now);
            (server, (row.tcp, is_there))
        };
        self.addresses = members.iter().map(address).collect();
    }

    fn may_serve(&self, now: Moment) -> bool {
        self.held.is_some_and(|held| now < held.until)
            || self.others_promised_until.is_some_and(|until| now < until)
    }
}

impl LeaseCache {
    /// Creates the cache of a server in a cluster, or of one outside a cluster.
    #[must_use]
    pub fn of(run: Option<ServerRun>) -> Self {
        Self(Mutex::new(LeaseState { run, ..LeaseState::default() }))
    }

    /// Returns the server's number in the cluster and its start; `None` outside a cluster.
    #[must_use]
    pub fn run(&self) -> Option<ServerRun> {
        self.state().run
    }

    /// Sets the lease that is held, or none.
    pub fn hold(&self, held: Option<HeldLease>) {
        self.state().held = held;
    }

    /// Returns the lease if it is held.
    #[must_use]
    pub fn lease(&self, now: Moment) -> Option<LeaseId> {
        self.state().held.filter(|held| now < held.until).map(|held| held.lease)
    }

    /// Reads which servers are registered.
    ///
    /// # Errors
    /// If the metadata does not answer.
    pub fn look(&self, metadata: &Metadata) -> Result<(), MetadataError> {
        let begun = Instant::now();
        self.state().looking_since = Some(begun);
        let seen = metadata.members().and_then(|members| Ok((members, metadata.servers()?)));
        let mut state = self.state();
        state.looking_since = None;
        match seen {
            Ok((members, registered)) => {
                // What does not answer for so long keeps others from registering.
                if begun.elapsed() > Duration::from_millis(PRESENCE_LOOK_MS_MAX) {
                    state.presence.lose_sight(Instant::now());
                }
                let runs: Vec<ServerRun> = members.iter().map(|row| row.run).collect();
                let registered: BTreeSet<u32> = registered.iter().map(|row| row.id).collect();
                let has_ended = |row: &&MemberRow| row.ended == row.run.start;
                state.presence.note_ended(members.iter().filter(has_ended).map(|row| row.run).collect());
                state.presence.see(&runs, &registered, Instant::now());
                state.note_addresses(&members, &registered);
                Ok(())
            }
            Err(error) => {
                state.presence.lose_sight(Instant::now());
                Err(error)
            }
        }
    }

    /// Returns for how long from now on this server will not find another one gone: see [`Presence::not_gone_for`].
    #[must_use]
    pub fn not_gone_for(&self, run: ServerRun) -> Duration {
        let state = self.state();
        let soon = Duration::from_millis(PRESENCE_LOOK_MS_MAX);
        let is_in_sight = state.looking_since.is_none_or(|since| since.elapsed() <= soon);
        state.presence.not_gone_for(run, is_in_sight, Instant::now())
    }

    /// Returns the addresses of all servers but one, each with whether it was not gone when that was last checked.
    #[must_use]
    pub fn others(&self, own: u32) -> BTreeMap<u32, (SocketAddr, bool)> {
        let mut others = self.state().addresses.clone();
        others.remove(&own);
        others
    }

    /// Notes that all others have promised not to find this server gone before this time.
    pub fn note_promises_of_others(&self, until: Moment) {
        self.state().others_promised_until = Some(until);
    }

    /// Returns true if a server is gone for good: see [`Presence`].
    #[must_use]
    pub fn is_gone(&self, run: ServerRun) -> bool {
        self.state().presence.is_gone(run, Instant::now())
    }

    /// Returns for how long a server has been missing, as far as this one knows.
    #[must_use]
    pub fn missing_for(&self, server: u32) -> Option<Duration> {
        self.state().presence.missing_for(server, Instant::now())
    }

    /// Returns the servers that are not gone.
    #[must_use]
    pub fn there(&self) -> Vec<ServerRun> {
        self.state().presence.there(Instant::now())
    }

    /// Replaces the known tenants that `is_meant` selects.
    pub fn see(&self, tenants: &[TenantRow], is_meant: impl Fn(TenantId) -> bool) {
        let mut state = self.state();
        state.tenants.retain(|_, row| !is_meant(row.id));
        state.tenants.extend(tenants.iter().map(|row| (row.name.clone(), row.clone())));
    }

    /// Returns true if the lease is held.
    #[must_use]
    pub fn is_held(&self, now: Moment) -> bool {
        self.lease(now).is_some()
    }

    /// Returns the tenant of this name, if it exists, while the lease is held, or all others have promised; `None` else.
    #[must_use]
    pub fn tenant(&self, name: &str, now: Moment) -> Option<Option<TenantRow>> {
        let state = self.state();
        state.may_serve(now).then_some(())?;
        Some(state.tenants.get(name).cloned())
    }

    /// Returns the names of the tenants, whether the lease is held or not.
    #[must_use]
    pub fn names(&self) -> BTreeMap<TenantId, String> {
        self.state().tenants.values().map(|row| (row.id, row.name.clone())).collect()
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cluster::metadata::TenantRow;
    use cluster::moment::Moment;
    use cluster::records::{HeldLease, LeaseId};
    use cluster::secret::SecretHash;
    use wire::TenantId;

    use super::LeaseCache;

    #[test]
    fn tenants_are_known_as_long_as_the_lease_is_held() {
        let (lease_cache, now) = (LeaseCache::default(), Moment::now());
        let row = |id, name: &str, salt| {
            let secret = SecretHash { salt: [salt; 16], digest: [0; 32] };
            TenantRow { id: TenantId(id), name: name.to_owned(), secret }
        };
        lease_cache.see(&[row(1, "ann", 1), row(2, "bob", 1)], |_| true);
        assert_eq!(lease_cache.tenant("ann", now), None, "never registered");
        lease_cache.hold(Some(HeldLease { lease: LeaseId(7), until: now + Duration::from_secs(1) }));
        assert_eq!(lease_cache.lease(now), Some(LeaseId(7)));
        assert_eq!(lease_cache.tenant("ann", now), Some(Some(row(1, "ann", 1))));
        assert_eq!(lease_cache.tenant("eve", now), Some(None), "who is none is told so like anybody");
        assert_eq!(lease_cache.tenant("ann", now + Duration::from_secs(1)), None);
        lease_cache.see(&[row(1, "ann", 2)], |tenant| tenant == TenantId(1));
        lease_cache.see(&[], |tenant| tenant == TenantId(2));
        assert_eq!(lease_cache.tenant("ann", now), Some(Some(row(1, "ann", 2))));
        assert_eq!(lease_cache.tenant("bob", now), Some(None));
        lease_cache.hold(None);
        assert_eq!(lease_cache.tenant("ann", now), None);
        lease_cache.note_promises_of_others(now + Duration::from_secs(1));
        assert_eq!(lease_cache.tenant("bob", now), Some(None), "the others have promised");
        assert_eq!(lease_cache.tenant("bob", now + Duration::from_secs(1)), None);
        assert!(!lease_cache.is_held(now));
    }
}
