//! Guards what this server owns on its disk while others may recover it from the replicas of its log: workers serve it only
//! under the lease under which the metadata was last seen to name this server as the owner.
//!
//! ```text
//!   all metadata is read while a lease is held ──► verified ──► guarded, from the first record on that promises replicas
//!   the lease and the promises end ──► workers execute nothing ──► another lease ──► all metadata is read again ──► guarded by that one
//! ```
//! Also how a server leaves what it owns, at a stop or after a failure of its disk.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use cluster::metadata::{MetadataError, ServerRun};
use cluster::moment::Moment;
use cluster::records::{HeldLease, LeaseId};

use super::Control;
use crate::sync::lock;
use crate::tablet::DurableParts;
use crate::view::{Fence, Guard};

/// See the module's head.
#[derive(Debug)]
pub struct OwnershipGuard {
    /// Set when others recover what this server owns, or take it for ended: only another start may serve.
    pub is_replaced: AtomicBool,
    state: Mutex<GuardState>,
}

#[derive(Debug, Default)]
struct GuardState {
    /// The lease that was held before and after all metadata was read.
    verified: Option<LeaseId>,
    is_wanted: bool,
    guard: Option<Guard>,
    /// The servers whose replicas may count.
    backups: BTreeSet<u32>,
}

impl OwnershipGuard {
    /// Begins without a guard; if one `is_wanted` from the beginning, nothing may be served before there is one.
    #[must_use]
    pub fn new(is_wanted: bool) -> Self {
        let state = GuardState { is_wanted, ..GuardState::default() };
        Self { is_replaced: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Returns whether what the server owns is guarded, if it has to be.
    #[must_use]
    pub fn is_satisfied(&self) -> bool {
        let state = lock(&self.state);
        !state.is_wanted || state.guard.is_some()
    }

    /// Returns whether the server serves nothing without a lease.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        lock(&self.state).is_wanted
    }

    /// Sets the servers whose replicas may count: all that are in the record of the replicas, or may be by now.
    pub fn set_backups(&self, backups: BTreeSet<u32>) {
        lock(&self.state).backups = backups;
    }

    /// Returns the servers whose replicas may count.
    #[must_use]
    pub fn backups(&self) -> BTreeSet<u32> {
        lock(&self.state).backups.clone()
    }

    /// Guards what the server owns by the lease that is held, from now on; returns false if the metadata was not read yet under
    /// that.
    pub fn begin(&self, fence: &Arc<Fence>, held: Option<LeaseId>) -> bool {
        let mut state = lock(&self.state);
        if held.is_none() || held != state.verified {
            return false;
        }
        if !std::mem::replace(&mut state.is_wanted, true) {
            state.guard = held.map(|lease| fence.guard(lease));
        }
        true
    }

    /// Returns whether all metadata is to be read again, since another lease is held than before.
    pub fn is_unverified(&self, held: Option<LeaseId>) -> bool {
        held.is_some() && held != lock(&self.state).verified
    }

    /// Notes that all metadata was read, and applied here, while this lease was held.
    pub fn note_verified(&self, fence: &Arc<Fence>, lease: LeaseId) {
        let mut state = lock(&self.state);
        if state.verified != Some(lease) {
            state.verified = Some(lease);
            // The earlier one is dropped behind it.
            let guard = state.is_wanted.then(|| fence.guard(lease));
            state.guard = guard;
        }
    }
}

impl Control {
    /// Sets the lease that is held, or none.
    pub fn hold(&self, held: Option<HeldLease>) {
        if let Some(HeldLease { lease, until }) = held {
            self.fence.hold(lease, self.clock.us_at(until));
        }
        self.lease_cache.hold(held);
    }

    /// Returns whether what the start found may be shown: it is at as many backups as are promised, and nobody recovers it.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.waker.has_settled()) && self.ownership_guard.is_satisfied()
    }

    /// Returns whether others may have recovered what this server owns, as far as it knows: then it answers nothing.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fence.is_passed(self.clock.now_us())
    }

    /// Returns whether a file of metadata has failed: nobody knows what the next start will find there.
    #[must_use]
    pub fn has_lost_metadata(&self) -> bool {
        let durable = self.parts_made.durable.as_ref();
        self.metadata.records().has_failed() || durable.is_some_and(DurableParts::has_failed)
    }

    /// Returns whether the disk has failed, and others have all that was acknowledged.
    #[must_use]
    pub fn is_left_to_others(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.waker.has_failed() && log.figures.replicas() > 0)
    }

    /// Records how the server ends: with all of its log on the disk others wait some time for it, after a failure of the disk they
    /// recover it at once.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub fn leave_log(&self, run: ServerRun) -> Result<(), MetadataError> {
        if self.is_left_to_others() {
            return self.metadata.member_ended(run);
        }
        let is_complete = self.log.as_ref().is_some_and(|log| log.waker.is_complete());
        if is_complete { self.metadata.owner_stops(run.server, self.clock.wall_ms()) } else { Ok(()) }
    }

    /// Guards what this server owns, from now on; returns false if the metadata was not read yet under the present lease.
    pub fn guard_ownership(&self) -> bool {
        self.ownership_guard.begin(&self.fence, self.lease_cache.lease(Moment::now()))
    }

    /// Returns whether all metadata is to be read again, since another lease is held than before.
    pub fn is_unverified(&self) -> bool {
        self.ownership_guard.is_unverified(self.lease_cache.lease(Moment::now()))
    }

    /// Notes that all metadata was read, and applied here, while this lease was held.
    pub fn note_verified(&self, lease: LeaseId) {
        self.ownership_guard.note_verified(&self.fence, lease);
    }
}
