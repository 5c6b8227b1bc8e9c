//! Hashes that move to another server: sets of them; those that clients may read at both servers; and the copying of
//! hashes that are served here.
//!
//! A [`Moving`] is shared by all workers and the migration's thread, at either end:
//!
//! ```text
//!   source   gave them away; replies with the former objects until it is closed    budget ── bytes sent ──► no more
//!   target   owns them; names objects that have not arrived, and the progress of the rest
//! ```
//! Objects at the source stay unchanged while it is open: it is closed before any of them is removed, and a worker
//! checks after its read whether it is still open.
//!
//! A [`Copier`] copies hashes in pieces: all of them in round 0, those written to since in later rounds. It needs a
//! store core other than the workers'. While it exists, parts mark the hashes that are written to. Round 0 may begin
//! when every worker has passed some change since the copier's creation. The copy of a span is at least as new as the
//! time when its mark was taken. So a receiver that replaces each span, in the order of the pieces, lacks exactly the
//! marked writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use store::{Core, Cursor, Table};

/// A range of hashes, both bounds included; sets of hashes are disjoint ranges.
pub type Range = (u64, u64);

/// A migration that lets clients read at both servers.
#[derive(Debug)]
pub struct Moving {
    /// The number of the migration.
    pub migration: u32,
    /// The hashes, with the parts that hold them.
    pieces: Vec<(Range, Arc<Table>)>,
    /// The budget for reads at a second server, in bytes.
    budget_bytes: u64,
    spent_bytes: AtomicU64,
    reads: AtomicU64,
    is_closed: AtomicBool,
}

impl Moving {
    /// Creates the state of a migration, with the parts that hold the hashes, and the byte budget.
    #[must_use]
    pub fn new(migration: u32, pieces: Vec<(Range, Arc<Table>)>, budget_bytes: u64) -> Self {
        Self {
            migration,
            pieces,
            budget_bytes,
            spent_bytes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Returns whether a hash is in migration.
    #[must_use]
    pub fn has(&self, hash: u64) -> bool {
        self.part(hash).is_some()
    }

    /// Returns the part that holds a hash.
    #[must_use]
    pub fn part(&self, hash: u64) -> Option<&Table> {
        let piece = self.pieces.iter().find(|((first, last), _)| (*first..=*last).contains(&hash));
        piece.map(|(_, part)| &**part)
    }

    /// Returns the ranges that have arrived here.
    pub fn arrived(&self) -> impl Iterator<Item = (u64, u64)> {
        self.pieces.iter().flat_map(|(_, part)| part.arrived_ranges())
    }

    /// Returns whether reads are answered. If so, an earlier read of the objects is valid.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Acquire)
    }

    /// Closes the source, before any of the objects changes.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Charges the bytes of a read at a second server. Returns false, without a charge, if they exceed the budget.
    pub fn spend(&self, bytes: u64) -> bool {
        let before = self.spent_bytes.fetch_add(bytes, Ordering::Relaxed);
        let may = before.saturating_add(bytes) <= self.budget_bytes;
        if may {
            self.reads.fetch_add(1, Ordering::Relaxed);
        } else {
            self.spent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        may
    }

    /// Charges bytes that must be sent, regardless of the budget.
    pub fn count(&self, bytes: u64) {
        self.spent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of admitted reads, and the bytes charged.
    #[must_use]
    pub fn spent(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.spent_bytes.load(Ordering::Relaxed))
    }
}

/// The number of bucket reads after which a piece with few objects ends, because the thread has other work, too.
const GATHERS_PER_PIECE: usize = 8;

/// The two hashes of a position.
pub type Spot = (u64, u64);

/// Copies ranges of hashes in pieces and rounds.
#[derive(Debug)]
pub struct Copier {
    pieces: Vec<(Range, Arc<Table>)>,
    round: Option<u32>,
    /// The current piece, and the first hash in it to examine next; `None` after its last one.
    at: (usize, Option<u64>),
    /// The rest of some hashes still to be copied, up to the last one.
    open: Option<(Cursor, u64)>,
}

/// One copied piece.
#[derive(Debug, Default)]
pub struct Copy {
    /// The copied spans, both bounds included.
    pub spans: Vec<(Spot, Spot)>,
    /// All objects in them.
    pub objects: Vec<u8>,
    /// Whether the round is over.
    pub is_end: bool,
}

impl Copier {
    /// Creates a copier of these hashes of these parts.
    #[must_use]
    pub fn new(pieces: Vec<(Range, Arc<Table>)>) -> Self {
        pieces.iter().for_each(|(_, part)| part.watch());
        Self { pieces, round: None, at: (0, None), open: None }
    }

    /// Returns the next piece of a round, of about `bytes_max` bytes and at most `spans_max` spans. Another round than
    /// before starts at the beginning.
    pub fn next(&mut self, core: &Core, round: u32, (bytes_max, spans_max): (usize, usize)) -> Copy {
        if self.round.replace(round) != Some(round) {
            self.open = None;
            self.at = (0, self.pieces.first().map(|((first, _), _)| *first));
        }
        let mut copy = Copy { objects: Vec::with_capacity(bytes_max + bytes_max / 4), ..Copy::default() };
        let mut gathers = 0;
        while copy.objects.len() < bytes_max && copy.spans.len() < spans_max {
            let Some((cursor, last)) = self.open.take().or_else(|| self.open_next(round)) else {
                copy.is_end = true;
                break;
            };
            let part = &self.pieces[self.at.0].1;
            let first = cursor.hashes().map_or((part.hashes().first(), 0), behind);
            let mut done = cursor;
            let rest = loop {
                let pin = core.pin();
                // A part that is gone has nothing any more: its table was dropped.
                let next = pin.gather(part, done, last, bytes_max, &mut copy.objects).unwrap_or(None);
                gathers += 1;
                let Some(next) = next else { break None };
                let is_full = next == done || gathers >= GATHERS_PER_PIECE;
                done = next;
                if is_full {
                    break Some(done);
                }
            };
            match rest.map(|rest| (rest, rest.hashes())) {
                None => copy.spans.push((first, (last, u64::MAX))),
                Some((rest, to)) => {
                    copy.spans.extend(to.filter(|&to| to >= first).map(|to| (first, to)));
                    self.open = Some((rest, last));
                    break;
                }
            }
        }
        copy
    }

    /// Returns about how many bytes were written since they were copied.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.pieces.iter().map(|(range, part)| part.dirty_bytes(*range)).sum()
    }

    /// Returns the next hashes of a round.
    fn open_next(&mut self, round: u32) -> Option<(Cursor, u64)> {
        loop {
            let (range, part) = self.pieces.get(self.at.0)?;
            let next = self.at.1.filter(|next| *next <= range.1).and_then(|next| match round {
                0 => Some((next, range.1)),
                _ => part.take_dirty(next, *range),
            });
            match next {
                Some((first, last)) => {
                    self.at.1 = last.checked_add(1);
                    return Some((Cursor::before(first), last));
                }
                None => {
                    self.at.0 += 1;
                    self.at.1 = self.pieces.get(self.at.0).map(|((first, _), _)| *first);
                }
            }
        }
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.pieces.iter().for_each(|(_, part)| part.unwatch());
    }
}

/// Returns the position after another one.
fn behind((hash, second): Spot) -> Spot {
    second.checked_add(1).map_or((hash + 1, 0), |second| (hash, second))
}

/// Returns whether these ranges are in order and disjoint.
fn are_disjoint(ranges: &[Range]) -> bool {
    ranges.iter().all(|(first, last)| first <= last) && ranges.is_sorted_by(|before, next| before.1 < next.0)
}

/// Returns the hashes that are in `from` and not in `what`.
#[must_use]
pub fn subtract(from: &[Range], what: &[Range]) -> Vec<Range> {
    let mut left: Vec<Range> = from.to_vec();
    for &(first, last) in what {
        let cut = |&(from, to): &Range| {
            if to < first || last < from {
                return [Some((from, to)), None];
            }
            [(from < first).then(|| (from, first - 1)), (last < to).then(|| (last + 1, to))]
        };
        left = left.iter().flat_map(cut).flatten().collect();
    }
    left.sort_unstable();
    debug_assert!(are_disjoint(&left), "a set of hashes has each once: {left:?}");
    left
}

/// Returns the hashes in either set; adjacent ranges are merged.
#[must_use]
pub fn unite(one: &[Range], other: &[Range]) -> Vec<Range> {
    let mut all = [subtract(one, other), other.to_vec()].concat();
    all.sort_unstable();
    let mut united: Vec<Range> = Vec::with_capacity(all.len());
    for (first, last) in all {
        match united.last_mut() {
            Some(before) if before.1.checked_add(1) == Some(first) => before.1 = last,
            _ => united.push((first, last)),
        }
    }
    debug_assert!(are_disjoint(&united), "a set of hashes has each once: {united:?}");
    united
}

/// Returns whether the sets have a hash in common.
#[must_use]
pub fn overlap(one: &[Range], other: &[Range]) -> bool {
    one.iter().any(|&(first, last)| other.iter().any(|&(from, to)| first <= to && from <= last))
}

#[cfg(test)]
mod tests {
    use super::{Moving, overlap, subtract, unite};

    #[test]
    fn what_is_spent_stays_within_the_budget() {
        let moving = Moving::new(1, Vec::new(), 100);
        assert_eq!([60, 60, 40, 1].map(|bytes| moving.spend(bytes)), [true, false, true, false]);
        assert_eq!(moving.spent(), (2, 100));
        assert!(moving.is_open() && !moving.has(7));
        moving.close();
        assert!(!moving.is_open());
    }

    const ALL: (u64, u64) = (0, u64::MAX);

    #[test]
    fn what_is_taken_away_and_added_again_is_all_there_was() {
        let middle = [(10, 19), (30, u64::MAX)];
        let rest = subtract(&[ALL], &middle);
        assert_eq!(rest, [(0, 9), (20, 29)]);
        assert_eq!(unite(&rest, &middle), [ALL]);
        assert_eq!(unite(&middle, &[(15, 34)]), [(10, u64::MAX)]);
        assert_eq!(subtract(&rest, &[ALL]), []);
        assert_eq!(subtract(&rest, &[]), rest);
        assert!(!overlap(&rest, &middle) && overlap(&rest, &[(9, 10)]) && !overlap(&[], &[ALL]));
    }
}
