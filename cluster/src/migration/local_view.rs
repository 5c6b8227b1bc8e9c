//! The local view of a migration: the phase in the records, the lease under which it was read, and whether the other
//! side is gone.
//!
//! Phases follow an order, so a side that learns of two, in either order, keeps the later one. Changes of the records
//! are requested one at a time, and so are reads.
//!
//! While the lease is over, other servers may declare this one gone and own the moving hashes. A server is declared
//! gone only by a commit that finds it unregistered. So records read by a server that has been registered since before
//! that read are still valid, or will be changed by the server or with its knowledge.

use super::MigrationPhase;
use crate::records::LeaseId;

/// One side's view of a migration.
#[derive(Debug)]
pub(super) struct LocalView {
    pub(super) phase: MigrationPhase,
    pub(super) lease: LeaseView,
    pub(super) is_peer_gone: bool,
    /// The pending change of the records: its first phase, and whether it requires that the other side is gone.
    committing: Option<(MigrationPhase, bool)>,
    is_looking: bool,
}

impl LocalView {
    /// Creates the view of a new side.
    pub(super) fn new() -> Self {
        Self {
            phase: MigrationPhase::Preparing,
            lease: LeaseView::Held,
            is_peer_gone: false,
            committing: None,
            is_looking: false,
        }
    }

    /// Adopts the phase in the records, unless it is outdated; returns whether it is new.
    pub(super) fn hear(&mut self, phase: MigrationPhase) -> bool {
        let is_news = phase as u8 > self.phase as u8;
        if is_news {
            self.phase = phase;
        }
        is_news
    }

    /// Notes the end of a change, successful or not; the resulting phase is still to be read.
    pub(super) fn committed(&mut self, phase: MigrationPhase) {
        // A refusal although the records hold the expected phase means that the other side is registered. If they hold
        // another phase, that was the reason, whatever was heard meanwhile, and tells nothing about the other side.
        debug_assert!(self.committing.is_some(), "a change ends that was requested");
        let is_back = self.committing.take() == Some((phase, true));
        self.is_peer_gone &= !is_back;
    }

    /// Notes that the records were read, under a lease or not.
    pub(super) fn looked_up(&mut self, is_registered: bool) {
        self.is_looking = false;
        self.lease.looked_up(is_registered);
    }

    /// Returns whether a change of the phase should be requested now.
    pub(super) fn may_commit(&mut self, is_peer_gone: bool) -> bool {
        let may = self.committing.is_none();
        if may {
            self.committing = Some((self.phase, is_peer_gone));
        }
        may
    }

    /// Returns whether a change of the records is pending.
    pub(super) fn is_committing(&self) -> bool {
        self.committing.is_some()
    }

    /// Returns whether the records should be read now.
    pub(super) fn wants_look(&mut self) -> bool {
        self.lease == LeaseView::Again && !std::mem::replace(&mut self.is_looking, true)
    }
}

/// The lease under which a side's machine last considered its server registered.
#[derive(Clone, Copy, Debug)]
pub struct Tenure {
    is_registered: bool,
    lease: Option<LeaseId>,
}

impl Tenure {
    /// Creates the state of a new side, whose machine considers the server registered.
    #[must_use]
    pub fn begin(lease: Option<LeaseId>) -> Self {
        Self { is_registered: true, lease }
    }

    /// Updates the held lease. Returns whether the machine must be told that the server is registered or is not; `None`
    /// without a change. A different lease is reported as the end of the earlier one, because the server was
    /// unregistered in between.
    pub fn turn(&mut self, lease: Option<LeaseId>) -> Option<bool> {
        let is_same = lease == self.lease;
        let is_registered = lease.is_some() && (is_same || !self.is_registered);
        let was_registered = self.is_registered;
        *self = Self { is_registered, lease: lease.filter(|_| is_registered) };
        (is_registered != was_registered).then_some(is_registered)
    }

    /// Returns the lease while the machine considers the server registered.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        self.lease
    }
}

/// A side's view of the lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LeaseView {
    /// The lease was held when the records were read last, and is since.
    Held,
    /// The lease is over.
    Over,
    /// The lease is held again; the records must still be read.
    Again,
}

impl LeaseView {
    /// Notes that the lease is held or over.
    pub(super) fn turn(&mut self, is_held: bool) {
        *self = match (is_held, *self) {
            (false, _) => LeaseView::Over,
            (true, LeaseView::Over) => LeaseView::Again,
            (true, before) => before,
        };
    }

    /// Notes that the records were read, under a lease or not.
    pub(super) fn looked_up(&mut self, is_registered: bool) {
        if is_registered && *self == LeaseView::Again {
            *self = LeaseView::Held;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tenure;
    use crate::records::LeaseId;

    #[test]
    fn another_lease_is_told_as_the_end_of_the_one_before() {
        let [one, other] = [1, 2].map(|number| Some(LeaseId(number)));
        let mut tenure = Tenure::begin(one);
        assert_eq!([one, one].map(|lease| tenure.turn(lease)), [None, None]);
        assert_eq!([other, other, other].map(|lease| tenure.turn(lease)), [Some(false), Some(true), None]);
        assert_eq!(tenure.lease(), other);
        assert_eq!([None, None, one].map(|lease| tenure.turn(lease)), [Some(false), None, Some(true)]);
    }

    #[test]
    fn a_side_that_begins_without_a_lease_is_told_so() {
        let mut tenure = Tenure::begin(None);
        assert_eq!([None, None].map(|lease| tenure.turn(lease)), [Some(false), None]);
        assert_eq!((tenure.turn(Some(LeaseId(1))), tenure.lease()), (Some(true), Some(LeaseId(1))));
    }
}
