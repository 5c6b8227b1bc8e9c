//! The hashes of a migration as they lie in parts at its source: one or several, in the order of the hashes.

use std::sync::Arc;

use store::{Core, Cursor, HashRange, ReplayError, Replayed, Table, WriteError, within};

use crate::cluster::migration::PullCursor;
use crate::tablet::{Parts, ranges::Range};

/// Some hashes, all in one part.
struct RangeInPart {
    hashes: Range,
    part: Arc<Table>,
}

/// See the file's head.
pub(super) struct Pieces(Vec<RangeInPart>);

impl Pieces {
    /// Of these hashes, as far as they are owned here.
    pub(super) fn owned(parts: &Parts, hashes: HashRange) -> Self {
        let within = |((first, last), part): (Range, Arc<Table>)| {
            let bounds = (first.max(hashes.first()), last.min(hashes.last()));
            (bounds.0 <= bounds.1).then_some(RangeInPart { hashes: bounds, part })
        };
        Self(parts.pieces().into_iter().filter_map(within).collect())
    }

    /// No object of them has or had a higher version.
    pub(super) fn version_ceiling(&self) -> u64 {
        self.0.iter().map(|piece| piece.part.version_ceiling()).max().unwrap_or(0)
    }

    /// About how many objects they have.
    pub(super) fn objects(&self) -> u64 {
        self.share(Table::objects)
    }

    /// About how many bytes those are.
    pub(super) fn bytes(&self) -> u64 {
        self.share(Table::bytes)
    }

    /// A figure of the parts, as far as it is likely theirs.
    fn share(&self, figure: impl Fn(&Table) -> u64) -> u64 {
        let share = |piece: &RangeInPart| {
            let width = u128::from(piece.hashes.1 - piece.hashes.0) + 1;
            let whole = u128::from(figure(&piece.part));
            (whole * (width >> 32) / (piece.part.hashes().width() >> 32).max(1)) as u64
        };
        self.0.iter().map(share).sum()
    }

    /// The hashes and who has them.
    pub(super) fn parts(&self) -> Vec<(Range, Arc<Table>)> {
        self.0.iter().map(|piece| (piece.hashes, Arc::clone(&piece.part))).collect()
    }

    /// Appends objects behind `from`, or from the first hash of a partition on, until there are so many bytes; says where to
    /// go on within it.
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
            // A part that is gone has nothing any more: its table was dropped.
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

    /// Stores objects that come back, and gives those for which there is no room now.
    pub(super) fn take_back(&self, core: &Core, objects: &[u8]) -> Vec<u8> {
        let mut left = Vec::new();
        for RangeInPart { hashes: (first, last), part } in &self.0 {
            // A piece may be narrower than a table can be, where tablets were joined and cut beside a part's end: then all
            // that its part may have is stored there, of which only the piece is used.
            let hashes = HashRange::new(*first, *last).unwrap_or_else(|| part.hashes());
            let own = within(objects, hashes);
            let (mut rest, mut replayed) = (&own[..], Replayed::default());
            match core.pin().take_back(part, hashes, &mut rest, &mut replayed) {
                Ok(()) => {}
                Err(ReplayError::Refused(WriteError::Retry { .. } | WriteError::OutOfMemory)) => {
                    left.extend_from_slice(rest);
                }
                Err(error) => tracing::error!(%error, "what comes back cannot be stored"),
            }
            if replayed.corrupted > 0 {
                tracing::error!(
                    objects = replayed.corrupted,
                    "bytes have changed at the target, or on the way back"
                );
            }
        }
        left
    }

    /// Removes a key that was removed at the target.
    pub(super) fn remove(&self, core: &Core, place: PullCursor) {
        let of = |piece: &&RangeInPart| (piece.hashes.0..=piece.hashes.1).contains(&place.hash);
        if let Some(RangeInPart { part, .. }) = self.0.iter().find(of) {
            // A part that is gone has nothing any more.
            let _ = core.pin().remove_placed(part, (place.hash, place.second));
        }
    }

    /// Whatever is written from now on gets a higher version.
    pub(super) fn begin_above(&self, version: u64) {
        self.0.iter().for_each(|piece| piece.part.begin_above(version));
    }

    /// Removes some objects; whether any may be left. Of a part that has no other hashes all go with it, at once.
    pub(super) fn discard(&mut self, core: &Core) -> bool {
        let Some(RangeInPart { hashes: (first, last), part }) = self.0.first_mut() else { return false };
        let whole = part.hashes();
        let is_done = (whole.first(), whole.last()) == (*first, *last)
            || match core.pin().discard(part, Cursor::before(*first), *last) {
                Ok(Some(next)) => {
                    // What is done is gone: the next step begins behind it.
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
