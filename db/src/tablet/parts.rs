//! The parts of a table that a server holds, and the hashes of which it serves requests.
//!
//! ```text
//!   hashes  0 ─────────────────────────────────────────────────── 2^64
//!   parts      [ made here               ]     [ arrived          ]     each a table of the store
//!   owned      [            ][  ]               [                 ]     what requests are served from
//! ```
//! A part stays whole when its tablet is split: what is owned is a matter of ranges. Hashes that went and came back are in
//! a part of their own, the newest of those that have them; the older one keeps what else it has. A key is found by its hash: one
//! comparison where the range is the widest one, which for most tables is all there is; a search among the others. What
//! is held and not owned, since it moves away, is counted and not served.
//!
//! Each worker has its own copy, in its catalog; the parts themselves are shared.

mod altering;

pub use altering::PartsChange;

use std::fmt;
use std::sync::Arc;

use store::{Eviction, HashRange, Table, TableKind, TableOptions};

use super::Moving;
use crate::limits::PARTS_PER_TABLE_MAX;

/// A range of hashes that is owned, within one part.
#[derive(Clone, Debug)]
struct OwnedRange {
    first: u64,
    /// Last minus first, so that one comparison is enough for both bounds.
    span: u64,
    /// `None` alone where nothing is owned.
    part: Option<Arc<Table>>,
}

impl OwnedRange {
    #[inline]
    fn contains(&self, hash: u64) -> bool {
        hash.wrapping_sub(self.first) <= self.span
    }

    fn last(&self) -> u64 {
        self.first + self.span
    }

    fn continues(&self, first: u64, part: &Arc<Table>) -> bool {
        self.last().checked_add(1) == Some(first)
            && self.part.as_ref().is_some_and(|own| Arc::ptr_eq(own, part))
    }
}

/// Every hash, of no part.
const NOTHING: OwnedRange = OwnedRange { first: 0, span: u64::MAX, part: None };

/// See the file's head.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Parts {
    /// The widest owned range, in which most look-ups end.
    widest: OwnedRange,
    /// The other owned ranges, by their hashes.
    others: Box<[OwnedRange]>,
    /// By their hashes.
    held: Box<[Arc<Table>]>,
    /// On the move here or from here, in such a way that reads may ask both servers.
    moving: Box<[Arc<Moving>]>,
    options: TableOptions,
}

/// Why there are no such parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartsError {
    /// Two ranges have this hash.
    Overlap(u64),
    /// The hash is owned and of no part.
    NotHeld(u64),
    /// The range from this hash on is narrower than a part may be.
    TooNarrow(u64),
    /// More parts or ranges than [`PARTS_PER_TABLE_MAX`].
    TooMany,
}

impl fmt::Display for PartsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap(hash) => write!(formatter, "the hash {hash:016x} is there twice"),
            Self::NotHeld(hash) => write!(formatter, "no part has the hash {hash:016x}"),
            Self::TooNarrow(hash) => write!(formatter, "the range from {hash:016x} on is too narrow"),
            Self::TooMany => write!(formatter, "a table has at most {PARTS_PER_TABLE_MAX} parts"),
        }
    }
}

impl std::error::Error for PartsError {}

impl Parts {
    /// One part, all of which is owned.
    #[must_use]
    pub fn whole(part: Arc<Table>) -> Self {
        let hashes = part.hashes();
        let options =
            TableOptions { kind: part.kind(), eviction: part.eviction(), ..TableOptions::default() };
        let held = [Arc::clone(&part)].into();
        let widest =
            OwnedRange { first: hashes.first(), span: hashes.last() - hashes.first(), part: Some(part) };
        Self { widest, others: Box::default(), held, moving: Box::default(), options }
    }

    /// Nothing of a table that is made so.
    #[must_use]
    pub fn none(options: TableOptions) -> Self {
        let options = TableOptions { hashes: HashRange::ALL, ..options };
        let (others, held, moving) = (Box::default(), Box::default(), Box::default());
        Self { widest: NOTHING, others, held, moving, options }
    }

    /// These parts, and the ranges of them that are owned: none of either, or many, in any order.
    ///
    /// # Errors
    /// See [`PartsError`].
    pub fn new(
        options: TableOptions,
        mut held: Vec<Arc<Table>>,
        owned: &[HashRange],
    ) -> Result<Self, PartsError> {
        if held.len().max(owned.len()) > PARTS_PER_TABLE_MAX {
            return Err(PartsError::TooMany);
        }
        held.sort_unstable_by_key(|part| part.hashes().first());
        let mut owned = owned.to_vec();
        owned.sort_unstable_by_key(|range| range.first());
        check_disjoint(owned.iter().copied())?;
        let mut pieces: Vec<OwnedRange> = Vec::new();
        for range in owned {
            let mut first = range.first();
            loop {
                let newest =
                    held.iter().filter(|part| part.hashes().contains(first)).max_by_key(|part| part.id());
                let part = newest.ok_or(PartsError::NotHeld(first))?;
                let last = last_of_piece(&held, part, first).min(range.last());
                match pieces.last_mut() {
                    Some(piece) if piece.continues(first, part) => piece.span = last - piece.first,
                    _ => pieces.push(OwnedRange { first, span: last - first, part: Some(Arc::clone(part)) }),
                }
                if last == range.last() {
                    break;
                }
                first = last + 1;
            }
        }
        let widest = (0..pieces.len()).max_by_key(|&at| pieces[at].span);
        let widest = widest.map_or(NOTHING, |at| pieces.remove(at));
        let options = TableOptions { hashes: HashRange::ALL, ..options };
        Ok(Self { widest, others: pieces.into(), held: held.into(), moving: Box::default(), options })
    }

    /// The part that has the keys of a hash, if they are owned.
    #[inline]
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<&Table> {
        if self.widest.contains(hash) {
            return self.widest.part.as_deref();
        }
        self.find_among_others(hash)
    }

    #[inline(never)]
    fn find_among_others(&self, hash: u64) -> Option<&Table> {
        let at = self.others.partition_point(|piece| piece.last() < hash);
        self.others.get(at).filter(|piece| piece.contains(hash))?.part.as_deref()
    }

    /// The part that has the keys of a hash, if they are owned, and the last hash from there on of which the same is true.
    #[must_use]
    pub fn piece(&self, hash: u64) -> Option<(&Table, u64)> {
        let at = self.others.partition_point(|piece| piece.last() < hash);
        let other = self.others.get(at);
        let piece = [Some(&self.widest), other].into_iter().flatten().find(|piece| piece.contains(hash))?;
        Some((piece.part.as_deref()?, piece.last()))
    }

    /// The one part that has all keys of the table, where it is so.
    #[inline]
    #[must_use]
    pub fn only(&self) -> Option<&Table> {
        if self.widest.span == u64::MAX { self.widest.part.as_deref() } else { None }
    }

    /// The part of the widest range: what to ask ahead for, before the hash is known.
    #[inline]
    #[must_use]
    pub fn likely(&self) -> Option<&Table> {
        self.widest.part.as_deref()
    }

    /// What moves a hash, here or from here, and lets reads ask both servers.
    #[must_use]
    pub fn moving(&self, hash: u64) -> Option<&Moving> {
        self.moving.iter().map(|moving| &**moving).find(|moving| moving.has(hash) && moving.is_open())
    }

    /// All parts that are held, owned or not, by their hashes.
    #[must_use]
    pub fn held(&self) -> &[Arc<Table>] {
        &self.held
    }

    /// What is owned, by hashes; ranges that follow each other within a part are one.
    #[must_use]
    pub fn owned(&self) -> Vec<(u64, u64)> {
        let all = self.others.iter().chain([&self.widest]).filter(|piece| piece.part.is_some());
        let mut ranges: Vec<_> = all.map(|piece| (piece.first, piece.last())).collect();
        ranges.sort_unstable();
        ranges
    }

    /// What is owned, by hashes, with the part that has it.
    #[must_use]
    pub fn pieces(&self) -> Vec<((u64, u64), Arc<Table>)> {
        let all = self.others.iter().chain([&self.widest]);
        let piece =
            |piece: &OwnedRange| Some(((piece.first, piece.last()), Arc::clone(piece.part.as_ref()?)));
        let mut pieces: Vec<_> = all.filter_map(piece).collect();
        pieces.sort_unstable_by_key(|(hashes, _)| *hashes);
        pieces
    }

    /// The table's kind.
    #[must_use]
    pub fn kind(&self) -> TableKind {
        self.options.kind
    }

    /// Which objects leave the table by themselves.
    #[must_use]
    pub fn eviction(&self) -> Eviction {
        self.options.eviction
    }

    /// The sum of a figure over all parts that are held.
    #[must_use]
    pub fn sum(&self, figure: impl Fn(&Table) -> u64) -> u64 {
        self.held.iter().fold(0, |sum, part| sum.wrapping_add(figure(part)))
    }

    /// Objects that are held.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.sum(Table::objects)
    }

    /// Bytes of those.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sum(Table::bytes)
    }

    /// Bytes of the indexes.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.sum(Table::index_bytes)
    }

    /// Takes all parts out of service.
    pub fn retire(&self) {
        self.held.iter().for_each(|part| part.retire());
    }
}

/// Up to where a part is the newest one, from a hash on of which it is.
fn last_of_piece(held: &[Arc<Table>], part: &Table, first: u64) -> u64 {
    let is_newer = |other: &&Arc<Table>| other.id() > part.id() && other.hashes().first() > first;
    let newer = held.iter().filter(is_newer).map(|other| other.hashes().first() - 1);
    newer.min().unwrap_or(u64::MAX).min(part.hashes().last())
}

fn check_disjoint(ranges: impl Iterator<Item = HashRange>) -> Result<(), PartsError> {
    let mut last = None;
    for range in ranges {
        if last.is_some_and(|last| range.first() <= last) {
            return Err(PartsError::Overlap(range.first()));
        }
        last = Some(range.last());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
