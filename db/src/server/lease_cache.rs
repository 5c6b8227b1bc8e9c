//! What a server of a cluster goes by while the metadata does not answer: the tenants as it last saw them, so that sessions
//! are opened, for as long as its lease is held.
//!
//! A secret that another server rotated meanwhile opens sessions here until then: ten seconds at most, and only while
//! this server cannot reach what the other one can.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::clock::Moment;
use crate::cluster::metadata::{Metadata, MetadataError, ServerRun, TenantRow};
use crate::cluster::presence::Presence;
use crate::cluster::records::{HeldLease, LeaseId};
use crate::tenant::TenantId;

/// See the file's head.
#[derive(Debug, Default)]
pub struct LeaseCache(Mutex<LeaseState>);

#[derive(Debug, Default)]
struct LeaseState {
    /// The server's own number and start.
    run: Option<ServerRun>,
    held: Option<HeldLease>,
    tenants: BTreeMap<String, TenantRow>,
    presence: Presence,
}

impl LeaseCache {
    /// Of this server of a cluster, or of one that is alone.
    #[must_use]
    pub fn of(run: Option<ServerRun>) -> Self {
        Self(Mutex::new(LeaseState { run, ..LeaseState::default() }))
    }

    /// The server's number in the cluster and its start; nothing where it is alone.
    #[must_use]
    pub fn run(&self) -> Option<ServerRun> {
        self.state().run
    }

    /// This lease is held, or none.
    pub fn hold(&self, held: Option<HeldLease>) {
        self.state().held = held;
    }

    /// The lease, when it is held.
    #[must_use]
    pub fn lease(&self, now: Moment) -> Option<LeaseId> {
        self.state().held.filter(|held| now < held.until).map(|held| held.lease)
    }

    /// Looks which servers are there.
    ///
    /// # Errors
    /// When the metadata does not say.
    pub fn look(&self, metadata: &Metadata) -> Result<(), MetadataError> {
        let seen = metadata.members().and_then(|members| Ok((members, metadata.servers()?)));
        let mut state = self.state();
        match seen {
            Ok((members, registered)) => {
                let runs: Vec<ServerRun> = members.iter().map(|row| row.run).collect();
                let registered = registered.iter().map(|row| row.id).collect();
                state.presence.see(&runs, &registered, Instant::now());
                Ok(())
            }
            Err(error) => {
                state.presence.lose_sight();
                Err(error)
            }
        }
    }

    /// Whether a server is gone for good: see [`Presence`].
    #[must_use]
    pub fn is_gone(&self, run: ServerRun) -> bool {
        self.state().presence.is_gone(run, Instant::now())
    }

    /// The servers that are not.
    #[must_use]
    pub fn there(&self) -> Vec<ServerRun> {
        self.state().presence.there(Instant::now())
    }

    /// These are the tenants now, of those that `is_meant` says something about.
    pub fn see(&self, tenants: &[TenantRow], is_meant: impl Fn(TenantId) -> bool) {
        let mut state = self.state();
        state.tenants.retain(|_, row| !is_meant(row.id));
        state.tenants.extend(tenants.iter().map(|row| (row.name.clone(), row.clone())));
    }

    /// Whether the lease is held.
    #[must_use]
    pub fn is_held(&self, now: Moment) -> bool {
        self.lease(now).is_some()
    }

    /// The tenant of this name or none, when the lease is held; nothing when it is not.
    #[must_use]
    pub fn tenant(&self, name: &str, now: Moment) -> Option<Option<TenantRow>> {
        let state = self.state();
        state.held.filter(|held| now < held.until)?;
        Some(state.tenants.get(name).cloned())
    }

    /// The names of the tenants, whether the lease is held or not.
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

    use super::LeaseCache;
    use crate::clock::Moment;
    use crate::cluster::metadata::TenantRow;
    use crate::cluster::records::{HeldLease, LeaseId};
    use crate::tenant::TenantId;
    use crate::tenant::secret::SecretHash;

    #[test]
    fn tenants_are_known_as_long_as_the_lease_is_held() {
        let (interim, now) = (LeaseCache::default(), Moment::now());
        let row = |id, name: &str, salt| {
            let secret = SecretHash { salt: [salt; 16], digest: [0; 32] };
            TenantRow { id: TenantId(id), name: name.to_owned(), secret }
        };
        interim.see(&[row(1, "ann", 1), row(2, "bob", 1)], |_| true);
        assert_eq!(interim.tenant("ann", now), None, "never registered");
        interim.hold(Some(HeldLease { lease: LeaseId(7), until: now + Duration::from_secs(1) }));
        assert_eq!(interim.lease(now), Some(LeaseId(7)));
        assert_eq!(interim.tenant("ann", now), Some(Some(row(1, "ann", 1))));
        assert_eq!(interim.tenant("eve", now), Some(None), "who is none is told so like anybody");
        assert_eq!(interim.tenant("ann", now + Duration::from_secs(1)), None);
        interim.see(&[row(1, "ann", 2)], |tenant| tenant == TenantId(1));
        interim.see(&[], |tenant| tenant == TenantId(2));
        assert_eq!(interim.tenant("ann", now), Some(Some(row(1, "ann", 2))));
        assert_eq!(interim.tenant("bob", now), Some(None));
        interim.hold(None);
        assert_eq!(interim.tenant("ann", now), None);
    }
}
