//! Leases in etcd, as long as this server's own clock says that they are held.
//!
//! A lease is counted from before the request that granted or renewed it, and for no longer than requested. So its
//! holder stops before etcd grants it to anyone else, whatever happens to the network. The clock continues while the
//! process is stopped and while the machine is suspended.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cluster::moment::Moment;

use super::members::{Members, patiently};
use crate::limits::ETCD_MARKS_TTL_MS;
use cluster::records::{HeldLease, LeaseId, RecordsError};

/// The leases of this server.
#[derive(Debug, Default)]
pub(super) struct EtcdLeases {
    /// The requested duration of each.
    ttls: Mutex<HashMap<LeaseId, Duration>>,
    /// The lease of the commits' marks.
    marks: Mutex<Option<HeldLease>>,
}

impl EtcdLeases {
    pub(super) async fn grant(&self, members: &Members, ttl: Duration) -> Result<HeldLease, RecordsError> {
        let seconds = ttl.as_millis().div_ceil(1000) as i64;
        let granted = patiently(|| {
            let (sent, mut leases) = (Moment::now(), members.leases());
            async move { Ok((sent, members.answer(leases.grant(seconds, None)).await?)) }
        });
        let (sent, granted) = granted.await?;
        let lease = LeaseId(granted.id());
        self.ttls.lock().unwrap_or_else(PoisonError::into_inner).insert(lease, ttl);
        Ok(HeldLease { lease, until: sent + ttl })
    }

    pub(super) async fn keep(&self, members: &Members, lease: LeaseId) -> Result<HeldLease, RecordsError> {
        let ttl = self.ttls.lock().unwrap_or_else(PoisonError::into_inner).get(&lease).copied();
        let ttl = ttl.ok_or(RecordsError::LeaseGone)?;
        let kept = patiently(|| {
            let (sent, mut leases) = (Moment::now(), members.leases());
            async move { members.answer(leases.keep_alive(lease.0)).await.map(|_| sent) }
        });
        let kept = kept.await;
        if kept == Err(RecordsError::LeaseGone) {
            self.forget(lease);
        }
        Ok(HeldLease { lease, until: kept? + ttl })
    }

    pub(super) async fn revoke(&self, members: &Members, lease: LeaseId) -> Result<(), RecordsError> {
        let revoked = patiently(|| {
            let mut leases = members.leases();
            async move { members.answer(leases.revoke(lease.0)).await }
        });
        let revoked = revoked.await;
        self.forget(lease);
        match revoked {
            Ok(_) | Err(RecordsError::LeaseGone) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn forget(&self, lease: LeaseId) {
        self.ttls.lock().unwrap_or_else(PoisonError::into_inner).remove(&lease);
    }

    /// Returns a lease for the mark of the next commit, held for longer than the resolution of its outcome takes.
    pub(super) async fn for_marks(&self, members: &Members) -> Result<LeaseId, RecordsError> {
        let ttl = Duration::from_millis(ETCD_MARKS_TTL_MS);
        let held = *self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let held = match held {
            Some(held) if held.until > Moment::now() + ttl / 2 => return Ok(held.lease),
            Some(held) => match self.keep(members, held.lease).await {
                Err(RecordsError::LeaseGone) => self.grant(members, ttl).await?,
                other => other?,
            },
            None => self.grant(members, ttl).await?,
        };
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(held.lease)
    }

    /// Returns the lease of the marks, if there is one.
    pub(super) fn of_marks(&self) -> Option<LeaseId> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).map(|held| held.lease)
    }

    /// Drops the expired lease of the marks; the next commit gets a new one.
    pub(super) fn lose_marks(&self) {
        *self.marks.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
