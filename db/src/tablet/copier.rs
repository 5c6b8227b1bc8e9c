//! Copying of hashes served here in pieces: all of them in round 0, those written to since in later rounds.
//!
//! The copier needs a store core other than the workers'. While it exists, parts mark the hashes that are written to.
//! Round 0 may begin when every worker has passed some change since the copier's creation. The copy of a span is at
//! least as new as the time when its mark was taken. So a receiver that replaces each span, in the order of the pieces,
//! lacks exactly the marked writes.

use std::sync::Arc;

use store::{Core, Cursor, Table};

use super::ranges::Range;

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
