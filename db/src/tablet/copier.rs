//! Copying hashes that are served here, a piece at a time: all of them in round 0, what was written to since in later ones.
//!
//! Begun by who has a core of the store beside the workers; it makes parts mark what is written to until it is dropped. Round
//! 0 may begin when every worker has passed some change since then. What it gathers of a span is at least as new as when
//! the span's mark was taken, so whoever replaces what is in the span, in the order of the pieces, is behind by what is
//! marked, and by nothing else.

use std::sync::Arc;

use store::{Core, Cursor, Table};

use super::ranges::Range;

/// Looks at buckets after which a piece ends that has few objects: a thread has other things to do, too.
const GATHERS_PER_PIECE: usize = 8;

/// The two hashes of a place.
pub type Spot = (u64, u64);

/// See the file's head.
#[derive(Debug)]
pub struct Copier {
    pieces: Vec<(Range, Arc<Table>)>,
    round: Option<u32>,
    /// The piece at hand, and the first hash in it that is looked at next; none behind its last one.
    at: (usize, Option<u64>),
    /// What of some hashes is still to be gathered: up to the last one.
    open: Option<(Cursor, u64)>,
}

/// What was gathered.
#[derive(Debug, Default)]
pub struct Copy {
    /// From and to where, both included.
    pub spans: Vec<(Spot, Spot)>,
    /// All objects there.
    pub objects: Vec<u8>,
    /// Whether the round is over.
    pub is_end: bool,
}

impl Copier {
    /// Of what these parts have of these hashes.
    #[must_use]
    pub fn new(pieces: Vec<(Range, Arc<Table>)>) -> Self {
        pieces.iter().for_each(|(_, part)| part.watch());
        Self { pieces, round: None, at: (0, None), open: None }
    }

    /// The next piece of a round, of about so many bytes and at most so many spans. Another round than before begins anew.
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

    /// About how many bytes were written since they were gathered.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.pieces.iter().map(|(range, part)| part.touched_bytes(*range)).sum()
    }

    /// The hashes that come next in a round.
    fn open_next(&mut self, round: u32) -> Option<(Cursor, u64)> {
        loop {
            let (range, part) = self.pieces.get(self.at.0)?;
            let next = self.at.1.filter(|next| *next <= range.1).and_then(|next| match round {
                0 => Some((next, range.1)),
                _ => part.take_touched(next, *range),
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

/// The place behind one.
fn behind((hash, second): Spot) -> Spot {
    second.checked_add(1).map_or((hash + 1, 0), |second| (hash, second))
}
