//! Returns the keys that were written and removed at the target of an aborted migration: a piece at a time, the
//! objects first.

use cluster::limits::PULL_BYTES;
use cluster::migration::{PullCursor, TargetEnd};
use store::{Core, Cursor, Table};

use crate::limits::{GIVEN_BACK_BYTES, GIVEN_BACK_REMOVALS, GIVING_STEPS_AT_ONCE};

/// The progress of the return.
#[derive(Default)]
pub(super) struct Giving {
    /// Objects gathered for the next piece.
    gathered: Vec<u8>,
    /// Position in the part to continue from; `None` at its end.
    from: Option<Cursor>,
    is_begun: bool,
    /// Removed keys that are still to be sent.
    removed: Vec<PullCursor>,
}

impl Giving {
    /// Returns the next piece of objects written above that version; `None` if it takes longer than a turn.
    pub(super) fn next(&mut self, core: &Core, part: &Table, ceiling: u64) -> Option<TargetEnd> {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.from = Some(Cursor::before(part.hashes().first()));
            let place = |(hash, second)| PullCursor { hash, second };
            self.removed = core.pin().removals(part).into_iter().map(place).collect();
        }
        for _ in 0..GIVING_STEPS_AT_ONCE {
            let Some(from) = self.from.filter(|_| self.gathered.len() < GIVEN_BACK_BYTES) else {
                return Some(self.piece());
            };
            let bytes_max = self.gathered.len() + PULL_BYTES;
            let gathered = core.pin().gather_since(part, from, ceiling, bytes_max, &mut self.gathered);
            // A part that is gone has no objects: its table was dropped.
            self.from = gathered.unwrap_or(None);
        }
        None
    }

    fn piece(&mut self) -> TargetEnd {
        let left = self.removed.len().saturating_sub(GIVEN_BACK_REMOVALS);
        let removed = self.removed.split_off(left);
        let is_last = self.from.is_none() && self.removed.is_empty();
        TargetEnd::GatheredBack { is_last, objects: std::mem::take(&mut self.gathered), removed }
    }
}
