//! What a side of a migration believes: what the records say, read under which lease, and whether the other side is gone.
//!
//! The standing follows a line, so whoever hears of two, in whatever order, believes the one that follows the other. Changes
//! are asked for one at a time, and so are looks at the records.

use super::Phase;
use super::lease::LeaseView;

/// What a side of a migration waits for before it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationWait {
    /// A slot at its own server.
    Slot,
    /// The server at the other end.
    Peer,
    /// A change of the records.
    Records,
}

/// See the file's head.
#[derive(Debug)]
pub(super) struct LocalView {
    pub(super) standing: Phase,
    pub(super) lease: LeaseView,
    pub(super) is_peer_gone: bool,
    /// A change of the records is on its way: from which standing, and whether it needs the other side to be gone.
    committing: Option<(Phase, bool)>,
    is_looking: bool,
}

impl LocalView {
    /// That of a side that begins.
    pub(super) fn new() -> Self {
        Self {
            standing: Phase::Preparing,
            lease: LeaseView::Held,
            is_peer_gone: false,
            committing: None,
            is_looking: false,
        }
    }

    /// Takes over what the records say, unless that is of the past; whether it is news.
    pub(super) fn hear(&mut self, standing: Phase) -> bool {
        let is_news = standing as u8 > self.standing as u8;
        if is_news {
            self.standing = standing;
        }
        is_news
    }

    /// A change has been made or not; the records say so behind it, which has still to be heard.
    pub(super) fn committed(&mut self, standing: Phase) {
        // Refused although the records say what it was to change: the other side is registered. Where they say something else
        // it was refused for that, whatever has been heard meanwhile, and says nothing of the other side.
        let is_back = self.committing.take() == Some((standing, true));
        self.is_peer_gone &= !is_back;
    }

    /// The records have been read, under a lease or not.
    pub(super) fn looked_up(&mut self, is_registered: bool) {
        self.is_looking = false;
        self.lease.looked_up(is_registered);
    }

    /// Whether a change of the standing is to be asked for now.
    pub(super) fn may_commit(&mut self, is_peer_gone: bool) -> bool {
        let may = self.committing.is_none();
        if may {
            self.committing = Some((self.standing, is_peer_gone));
        }
        may
    }

    /// The records, while a change is on its way to them.
    pub(super) fn awaited(&self) -> Option<MigrationWait> {
        self.committing.map(|_| MigrationWait::Records)
    }

    /// Whether somebody is to read the records now.
    pub(super) fn wants_look(&mut self) -> bool {
        self.lease == LeaseView::Again && !std::mem::replace(&mut self.is_looking, true)
    }
}
