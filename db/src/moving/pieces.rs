//! The hashes of a migration at its source, as pieces of one or several parts, in the order of the hashes.

use std::sync::Arc;

use cluster::migration::PullCursor;
use store::{Core, Cursor, HashRange, ReplayError, Replayed, Table, WriteError, within};

use crate::tablet::{Parts, Range};

/// A range of hashes in one part.
struct RangeInPart {
    hashes: Range,
    part: Arc<Table>,
}

/// The pieces of a migration.
pub(super) struct Pieces(Vec<RangeInPart>);

impl Pieces {
    /// Returns the pieces of this range that this server owns.
    pub(super) fn owned(parts: &Parts, range: Range) -> Self {
        let piece = |(hashes, part)| RangeInPart { hashes, part };
        Self(parts.pieces(range).into_iter().map(piece).collect())
    }

    /// Returns a version that no object of them has or had exceeded.
    pub(super) fn version_ceiling(&self) -> u64 {
        self.0.iter().map(|piece| piece.part.version_ceiling()).max().unwrap_or(0)
    }

    /// Returns the approximate number of their objects.
    pub(super) fn objects(&self) -> u64 {
        self.share(Table::objects)
    }

    /// Returns the approximate bytes of their objects.
    pub(super) fn bytes(&self) -> u64 {
        self.share(Table::bytes)
    }

    /// Estimates the pieces' share of a figure of their parts.
    fn share(&self, figure: impl Fn(&Table) -> u64) -> u64 {
        let share = |piece: &RangeInPart| {
            let width = u128::from(piece.hashes.1 - piece.hashes.0) + 1;
            let whole = u128::from(figure(&piece.part));
            (whole * (width >> 32) / (piece.part.hashes().width() >> 32).max(1)) as u64
        };
        self.0.iter().map(share).sum()
    }

    /// Returns each range with its part.
    pub(super) fn parts(&self) -> Vec<(Range, Arc<Table>)> {
        self.0.iter().map(|piece| (piece.hashes, Arc::clone(&piece.part))).collect()
    }

    /// Appends objects after `from`, or from a partition's first hash on, up to `bytes_max`; returns the position to
    /// continue from.
    pub(super) fn gather(
        &self,
        core: &Core,
        partition: HashRange,
        from: Option<PullCursor>,
        (bytes_max, pull): (usize, &mut Vec<u8>),
    ) -> Option<PullCursor> {
        let behind = |place: PullCursor| Cursor::behind(place.hash, place.second);
        let mut cursor = from.map_or_else(|| Cursor::before(partition.first()), behind);
        for RangeInPart { hashes: (first, last), part } in &self.0 {
            let last = (*last).min(partition.last());
            if cursor.done_to().is_some_and(|done| done >= last) || *first > partition.last() {
                continue;
            }
            if cursor.hashes().is_none_or(|(hash, _)| hash < *first) {
                cursor = Cursor::before(*first);
            }
            let pin = core.pin();
            // A part that is gone has no objects: its table was dropped.
            if let Ok(Some(next)) = pin.gather(part, cursor, last, bytes_max, pull) {
                return next.hashes().map(|(hash, second)| PullCursor { hash, second });
            }
            let done = PullCursor { hash: last, second: u64::MAX };
            if last < partition.last() && pull.len() >= bytes_max {
                return Some(done);
            }
            cursor = behind(done);
        }
        None
    }

    /// Appends all objects of a hash.
    pub(super) fn gather_hash(&self, core: &Core, hash: u64, pull: &mut Vec<u8>) {
        let of = |piece: &&RangeInPart| (piece.hashes.0..=piece.hashes.1).contains(&hash);
        if let Some(RangeInPart { part, .. }) = self.0.iter().find(of) {
            core.pin().gather_hash(part, hash, pull);
        }
    }

    /// Stores objects that the target returns; gives back those for which there is no room now.
    pub(super) fn take_back(&self, core: &Core, objects: &[u8]) -> Vec<u8> {
        let mut left = Vec::new();
        for RangeInPart { hashes: (first, last), part } in &self.0 {
            // A piece may be narrower than a table can be, if tablets were joined and cut beside a part's end: then
            // all returned objects of its part are stored there, and only the piece's are used.
            let hashes = HashRange::new(*first, *last).unwrap_or_else(|| part.hashes());
            let own = within(objects, hashes);
            let (mut rest, mut replayed) = (&own[..], Replayed::default());
            match core.pin().take_back(part, hashes, &mut rest, &mut replayed) {
                Ok(()) => {}
                Err(ReplayError::Refused(WriteError::Retry { .. } | WriteError::OutOfMemory)) => {
                    left.extend_from_slice(rest);
                }
                Err(error) => tracing::error!(%error, "cannot store objects that the target returned"),
            }
            if replayed.corrupted > 0 {
                tracing::error!(
                    objects = replayed.corrupted,
                    "objects were corrupted at the target or on the way back"
                );
            }
        }
        left
    }

    /// Removes a key that the target removed.
    pub(super) fn remove(&self, core: &Core, place: PullCursor) {
        let of = |piece: &&RangeInPart| (piece.hashes.0..=piece.hashes.1).contains(&place.hash);
        if let Some(RangeInPart { part, .. }) = self.0.iter().find(of) {
            // A part that is gone has no objects, and from one on the disk a target removes none.
            let _ = core.pin().remove_placed(part, (place.hash, place.second));
        }
    }

    /// Makes later writes use versions above this one.
    pub(super) fn begin_above(&self, version: u64) {
        self.0.iter().for_each(|piece| piece.part.begin_above(version));
    }

    /// Removes some objects; returns true if any may be left. A part without other hashes is dropped at once.
    pub(super) fn discard(&mut self, core: &Core) -> bool {
        let Some(RangeInPart { hashes: (first, last), part }) = self.0.first_mut() else { return false };
        let whole = part.hashes();
        let is_done = (whole.first(), whole.last()) == (*first, *last)
            || match core.pin().discard(part, Cursor::before(*first), *last) {
                Ok(Some(next)) => {
                    // The examined objects are gone: the next step begins after them.
                    *first = next.hashes().map_or(*first, |(hash, _)| hash.max(*first));
                    false
                }
                Ok(None) | Err(store::Gone) => true,
            };
        if is_done {
            self.0.remove(0);
        }
        !self.0.is_empty()
    }
}
