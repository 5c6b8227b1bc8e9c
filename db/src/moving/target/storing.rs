//! Stores the objects of a pull: at once if there is room, otherwise when the cleaner has made some. Returns the keys
//! that were written and removed at the target of an aborted migration: a piece at a time, the objects first.

use std::time::{Duration, Instant};

use cluster::limits::PULL_BYTES;
use cluster::migration::{Copied, PullCursor, TargetAction, TargetEnd};
use store::{Core, Cursor, HashRange, ReplayError, Replayed, Table, WriteError};

use crate::control_plane::migrations::Figure;
use crate::limits::{GIVEN_BACK_BYTES, GIVEN_BACK_REMOVALS, GIVING_STEPS_AT_ONCE, REPLAY_PATIENCE_MS};
use crate::moving::context::MigrationContext;

/// Steps of the store's background work after each pull: the writer pays for the room.
const STEPS_PER_PULL: usize = 2;
/// Steps of the store's background work while there is no room.
const STEPS_WITHOUT_ROOM: usize = 16;

/// The progress of storing one action's objects.
#[derive(Debug, Default)]
pub(super) struct Storing {
    /// Stored bytes of the current action.
    done_bytes: usize,
    /// Time since which there is no room.
    refused: Option<Instant>,
}

/// The outcome of storing objects.
pub(super) enum StoreOutcome {
    /// All objects are stored.
    There(TargetEnd),
    /// The rest must wait.
    Later(TargetAction),
    /// They cannot be stored: there is no room, or they are not what was requested.
    Never,
}

impl Storing {
    /// Returns true if an action is partly stored: no other one may come before it.
    pub(super) fn is_begun(&self) -> bool {
        self.done_bytes > 0
    }

    /// Returns true if there is no room now.
    pub(super) fn is_held_up(&self) -> bool {
        self.refused.is_some()
    }

    /// Stores objects of a pull, a priority pull or a copy.
    pub(super) fn go_on(
        &mut self,
        context: &MigrationContext,
        part: &Table,
        partitions: &[HashRange],
        action: TargetAction,
    ) -> StoreOutcome {
        let (hashes, objects) = match &action {
            TargetAction::Replay { partition, objects, .. } => {
                (partitions.get(usize::from(*partition)).copied(), objects)
            }
            TargetAction::ReplayPriority { objects, .. } => (Some(context.row.key_hashes()), objects),
            TargetAction::StoreCopy(piece) => (Some(context.row.key_hashes()), &piece.objects),
            _ => (None, &Vec::new()),
        };
        let Some(hashes) = hashes else { return StoreOutcome::Never };
        let mut rest = &objects[self.done_bytes..];
        let mut replayed = Replayed::default();
        let stored = match &action {
            TargetAction::StoreCopy(piece) => {
                let is_due = piece.is_again && self.done_bytes == 0;
                let removed = if is_due { remove_absent(context, part, piece) } else { Ok(()) };
                removed.and_then(|()| context.core().pin().copy(part, hashes, &mut rest, &mut replayed))
            }
            _ => context.core().pin().replay(part, hashes, &mut rest, &mut replayed),
        };
        let done_bytes = objects.len() - rest.len();
        let progress = &context.progress;
        progress.add(Figure::Bytes, (done_bytes - self.done_bytes) as u64);
        progress.add(Figure::Objects, replayed.stored);
        progress.add(Figure::Late, replayed.late);
        if replayed.corrupted > 0 {
            progress.add(Figure::Damaged, replayed.corrupted);
            let (migration, objects) = (context.row.id, replayed.corrupted);
            tracing::error!(
                migration,
                objects,
                "objects were corrupted at the source or on the way: they are lost"
            );
        }
        self.done_bytes = done_bytes;
        match stored {
            Ok(()) => {
                *self = Self::default();
                context.tidy(STEPS_PER_PULL);
                StoreOutcome::There(finish(part, partitions, action))
            }
            Err(ReplayError::Refused(
                WriteError::Retry { .. } | WriteError::OutOfMemory | WriteError::StorageFull,
            )) => {
                context.tidy(STEPS_WITHOUT_ROOM);
                let since = *self.refused.get_or_insert_with(Instant::now);
                if since.elapsed() >= Duration::from_millis(REPLAY_PATIENCE_MS) {
                    tracing::error!(
                        migration = context.row.id,
                        "no room for arriving objects: the hashes return to the source"
                    );
                    *self = Self::default();
                    return StoreOutcome::Never;
                }
                StoreOutcome::Later(action)
            }
            Err(error) => {
                tracing::error!(
                    migration = context.row.id,
                    %error,
                    "cannot store arriving objects: the hashes return to the source"
                );
                *self = Self::default();
                StoreOutcome::Never
            }
        }
    }
}

/// Removes keys that the source no longer has.
fn remove_absent(context: &MigrationContext, part: &Table, piece: &Copied) -> Result<(), ReplayError> {
    let place = |place: PullCursor| (place.hash, place.second);
    for span in &piece.spans {
        let span = (place(span.first), place(span.last));
        let removed = context.core().pin().remove_absent(part, span, &piece.objects);
        removed.map_err(ReplayError::Refused)?;
    }
    Ok(())
}

/// Notes that the action's objects have arrived.
fn finish(part: &Table, partitions: &[HashRange], action: TargetAction) -> TargetEnd {
    match action {
        TargetAction::Replay { partition, next, .. } => {
            let hashes = partitions[usize::from(partition)];
            if let Some(last) = last_of(next, hashes) {
                part.arrived(usize::from(partition), last);
            }
            TargetEnd::Replayed { partition }
        }
        TargetAction::StoreCopy(_) => TargetEnd::CopyStored,
        TargetAction::ReplayPriority { hashes, .. } => {
            part.pulled(&hashes);
            TargetEnd::PriorityReplayed
        }
        _ => unreachable!("nothing else is stored"),
    }
}

/// Returns the last hash of a partition up to which all objects have arrived, if there is one.
fn last_of(next: Option<PullCursor>, hashes: HashRange) -> Option<u64> {
    let last = match next {
        None => Some(hashes.last()),
        Some(PullCursor { hash, second: u64::MAX }) => Some(hash),
        Some(PullCursor { hash, .. }) => hash.checked_sub(1),
    };
    last.filter(|last| hashes.contains(*last))
}

/// The progress of returning keys to the source.
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

#[cfg(test)]
mod tests {
    use cluster::migration::PullCursor;
    use store::HashRange;

    use super::last_of;

    #[test]
    fn what_has_arrived_ends_behind_the_last_hash_of_which_all_is_there() {
        let hashes = HashRange::new(1 << 40, 1 << 41).expect("wide enough");
        let at = |hash, second| last_of(Some(PullCursor { hash, second }), hashes);
        assert_eq!(last_of(None, hashes), Some(1 << 41));
        assert_eq!(at((1 << 40) + 5, u64::MAX), Some((1 << 40) + 5));
        assert_eq!(at((1 << 40) + 5, 7), Some((1 << 40) + 4));
        assert_eq!(at(1 << 40, 7), None, "of the first hash itself some may be missing");
    }
}
