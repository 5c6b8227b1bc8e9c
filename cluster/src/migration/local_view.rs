//! The local view of a migration: the phase in the records, the lease under which it was read, and whether the other
//! side is gone.
//!
//! Phases follow an order, so a side that learns of two, in either order, keeps the later one. Changes of the records
//! are requested one at a time, and so are reads.

use super::Phase;
use super::lease::LeaseView;

/// The event that a side of a migration waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationWait {
    /// A slot at its own server.
    Slot,
    /// The server at the other end.
    Peer,
    /// A change of the records.
    Records,
}

/// One side's view of a migration.
#[derive(Debug)]
pub(super) struct LocalView {
    pub(super) phase: Phase,
    pub(super) lease: LeaseView,
    pub(super) is_peer_gone: bool,
    /// The pending change of the records: its first phase, and whether it requires that the other side is gone.
    committing: Option<(Phase, bool)>,
    is_looking: bool,
}

impl LocalView {
    /// Creates the view of a new side.
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Preparing,
            lease: LeaseView::Held,
            is_peer_gone: false,
            committing: None,
            is_looking: false,
        }
    }

    /// Adopts the phase in the records, unless it is outdated; returns whether it is new.
    pub(super) fn hear(&mut self, phase: Phase) -> bool {
        let is_news = phase as u8 > self.phase as u8;
        if is_news {
            self.phase = phase;
        }
        is_news
    }

    /// Notes the end of a change, successful or not; the resulting phase is still to be read.
    pub(super) fn committed(&mut self, phase: Phase) {
        // A refusal although the records hold the expected phase means that the other side is registered. If they hold
        // another phase, that was the reason, whatever was heard meanwhile, and tells nothing about the other side.
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

    /// Returns `Records` while a change of them is pending.
    pub(super) fn awaited(&self) -> Option<MigrationWait> {
        self.committing.map(|_| MigrationWait::Records)
    }

    /// Returns whether the records should be read now.
    pub(super) fn wants_look(&mut self) -> bool {
        self.lease == LeaseView::Again && !std::mem::replace(&mut self.is_looking, true)
    }
}
