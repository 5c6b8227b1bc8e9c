//! The parts of a table that a server holds, and the hashes for which it serves requests.
//!
//! ```text
//!   hashes  0 ─────────────────────────────────────────────────── 2^64
//!   parts      [ created here            ]     [ arrived          ]     each a table of the store
//!   owned      [            ][  ]               [                 ]     the ranges that serve requests
//! ```
//! A part stays whole when its tablet is split, because ownership is a matter of ranges. Hashes that left and returned
//! are in a new part, the newest one that holds them; the older one keeps its other hashes. A key is found by its hash:
//! with one comparison in the widest range, which is the only one of most tables, otherwise by a search among the
//! others. Objects that are held and not owned, because they move away, are counted and not served.
//!
//! A tagged table is divided by other [`wire::position`]s of its keys, and "hashes" above means those: each tablet has a part
//! of its own, whose index is by the hashes of the keys.
//!
//! Each worker has its own copy, in its catalog; the parts are shared.

use std::fmt;
use std::sync::Arc;

use store::{Eviction, HashRange, Table, TableKind, TableOptions};
use wire::tagged_positions;

use super::moving::{Moving, Range, subtract};
use crate::limits::PARTS_PER_TABLE_MAX;

/// An owned range of hashes within one part.
#[derive(Clone, Debug)]
struct OwnedRange {
    first: u64,
    /// Last minus first, so that one comparison covers both bounds.
    span: u64,
    /// `None` only if nothing is owned.
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

/// The range of every hash, without a part.
const NOTHING: OwnedRange = OwnedRange { first: 0, span: u64::MAX, part: None };

/// The held parts and owned ranges of one table.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Parts {
    /// The widest owned range, in which most lookups end.
    widest: OwnedRange,
    /// Whether `options` have positions. Here, since each look-up reads it.
    is_tagged: bool,
    /// The other owned ranges, by their hashes.
    others: Box<[OwnedRange]>,
    /// The held parts, by their hashes.
    held: Box<[Arc<Table>]>,
    /// The migrations to or from here whose reads may ask both servers.
    moving: Box<[Arc<Moving>]>,
    options: TableOptions,
}

/// The reason why parts are invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartsError {
    /// Two ranges contain this hash.
    Overlap(u64),
    /// The hash is owned and no part holds it.
    NotHeld(u64),
    /// The range that begins with this hash is narrower than a part may be.
    TooNarrow(u64),
    /// More parts or ranges than [`PARTS_PER_TABLE_MAX`].
    TooMany,
}

impl fmt::Display for PartsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap(hash) => write!(formatter, "two ranges contain the hash {hash:016x}"),
            Self::NotHeld(hash) => write!(formatter, "no part holds the hash {hash:016x}"),
            Self::TooNarrow(hash) => write!(formatter, "the range that begins at {hash:016x} is too narrow"),
            Self::TooMany => write!(formatter, "a table has at most {PARTS_PER_TABLE_MAX} parts"),
        }
    }
}

impl std::error::Error for PartsError {}

impl Parts {
    /// Creates one fully owned part.
    #[must_use]
    pub fn whole(part: Arc<Table>) -> Self {
        let (hashes, is_tagged) = (part.positions(), part.has_own_positions());
        let options = TableOptions {
            kind: part.kind(),
            eviction: part.eviction(),
            durable: part.is_durable(),
            positions: is_tagged.then_some(HashRange::ALL),
            ..TableOptions::default()
        };
        let held = [Arc::clone(&part)].into();
        let widest =
            OwnedRange { first: hashes.first(), span: hashes.last() - hashes.first(), part: Some(part) };
        Self { widest, is_tagged, others: Box::default(), held, moving: Box::default(), options }
    }

    /// Creates the parts of a table with these options of which nothing is here. It is tagged if they have positions.
    #[must_use]
    pub fn none(options: TableOptions) -> Self {
        let options = TableOptions { hashes: HashRange::ALL, ..options };
        let (is_tagged, others, held, moving) =
            (options.positions.is_some(), Box::default(), Box::default(), Box::default());
        Self { widest: NOTHING, is_tagged, others, held, moving, options }
    }

    /// As [`Parts::none`], with these parts and owned ranges, in any number and order.
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
        held.sort_unstable_by_key(|part| part.positions().first());
        let mut owned = owned.to_vec();
        owned.sort_unstable_by_key(|range| range.first());
        check_disjoint(owned.iter().copied())?;
        let mut pieces: Vec<OwnedRange> = Vec::new();
        for range in owned {
            let mut first = range.first();
            loop {
                let newest =
                    held.iter().filter(|part| part.positions().contains(first)).max_by_key(|part| part.id());
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
        debug_assert!(
            pieces.is_sorted_by(|before, next| before.last() < next.first),
            "a hash has one part that serves it"
        );
        let widest = (0..pieces.len()).max_by_key(|&at| pieces[at].span);
        let widest = widest.map_or(NOTHING, |at| pieces.remove(at));
        let (others, held) = (pieces.into(), held.into());
        Ok(Self { widest, others, held, ..Self::none(options) })
    }

    /// Returns the part of a key with this hash, if it is owned.
    #[inline]
    #[must_use]
    pub fn find(&self, key: &[u8], hash: u64) -> Option<&Table> {
        if self.widest.contains(hash) && (!self.is_tagged || self.widest.span == u64::MAX) {
            return self.widest.part.as_deref();
        }
        self.find_among_others(self.position(key, hash))
    }

    /// Returns the position of a key with this hash, by which the table is divided.
    #[inline]
    #[must_use]
    pub fn position(&self, key: &[u8], hash: u64) -> u64 {
        wire::position(key, hash, self.is_tagged, store::hash)
    }

    /// Returns whether the table is tagged.
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        self.is_tagged
    }

    #[inline(never)]
    fn find_among_others(&self, position: u64) -> Option<&Table> {
        self.piece(position).map(|(part, _)| part)
    }

    /// Returns the part with the keys of a position, if they are owned, and the last following position for which the
    /// same holds.
    #[must_use]
    pub fn piece(&self, position: u64) -> Option<(&Table, u64)> {
        let at = self.others.partition_point(|piece| piece.last() < position);
        let other = self.others.get(at);
        let piece =
            [Some(&self.widest), other].into_iter().flatten().find(|piece| piece.contains(position))?;
        Some((piece.part.as_deref()?, piece.last()))
    }

    /// Returns the part that holds all keys of the table, if one does.
    #[inline]
    #[must_use]
    pub fn only(&self) -> Option<&Table> {
        if self.widest.span == u64::MAX { self.widest.part.as_deref() } else { None }
    }

    /// Returns the part that holds all keys with this beginning, if one does: that of the whole table, or of a tagged
    /// table that of their tag, if the beginning has it.
    #[must_use]
    pub fn part_of(&self, beginning: &[u8]) -> Option<&Table> {
        self.only().or_else(|| self.find_among_others(self.tagged_positions(beginning)?.0))
    }

    /// Returns the positions of all keys with this beginning, if the table is tagged and it has their tag.
    #[must_use]
    pub fn tagged_positions(&self, beginning: &[u8]) -> Option<Range> {
        if self.is_tagged { tagged_positions(beginning, store::hash) } else { None }
    }

    /// Returns the part of the widest range, to be prefetched before the hash is known.
    #[inline]
    #[must_use]
    pub fn likely(&self) -> Option<&Table> {
        self.widest.part.as_deref()
    }

    /// Returns the migration of a hash that lets reads ask both servers.
    #[must_use]
    pub fn moving(&self, hash: u64) -> Option<&Moving> {
        self.moving.iter().map(|moving| &**moving).find(|moving| moving.has(hash) && moving.is_open())
    }

    /// Returns all held parts, owned or not, by their hashes.
    #[must_use]
    pub fn held(&self) -> &[Arc<Table>] {
        &self.held
    }

    /// Returns the owned ranges, by hashes; adjacent ranges within a part are merged.
    #[must_use]
    pub fn owned(&self) -> Vec<(u64, u64)> {
        let all = self.others.iter().chain([&self.widest]).filter(|piece| piece.part.is_some());
        let mut ranges: Vec<_> = all.map(|piece| (piece.first, piece.last())).collect();
        ranges.sort_unstable();
        ranges
    }

    /// Returns the parts of what is owned in a range, each with the hashes of the keys there, by the range. A tablet of a
    /// tagged table has keys of all hashes.
    #[must_use]
    pub fn pieces(&self, (first, last): Range) -> Vec<(Range, Arc<Table>)> {
        let all = self.others.iter().chain([&self.widest]);
        let mut pieces: Vec<_> = all.filter(|piece| piece.first <= last && first <= piece.last()).collect();
        pieces.sort_unstable_by_key(|piece| piece.first);
        let piece = |piece: &OwnedRange| {
            let part = piece.part.as_ref()?;
            let bounds = (piece.first.max(first), piece.last().min(last));
            debug_assert!(
                !self.is_tagged || bounds == (part.positions().first(), part.positions().last()),
                "a tablet of a tagged table has its own part"
            );
            let hashes = if self.is_tagged { (0, u64::MAX) } else { bounds };
            Some((hashes, Arc::clone(part)))
        };
        pieces.into_iter().filter_map(piece).collect()
    }

    /// Returns the table's kind.
    #[must_use]
    pub fn kind(&self) -> TableKind {
        self.options.kind
    }

    /// Returns which objects the table evicts automatically.
    #[must_use]
    pub fn eviction(&self) -> Eviction {
        self.options.eviction
    }

    /// Returns the sum of a figure over all held parts.
    #[must_use]
    pub fn sum(&self, figure: impl Fn(&Table) -> u64) -> u64 {
        self.held.iter().fold(0, |sum, part| sum.wrapping_add(figure(part)))
    }

    /// Returns the number of held objects.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.sum(Table::objects)
    }

    /// Returns the bytes of the held objects.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sum(Table::bytes)
    }

    /// Returns the bytes of the indexes.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.sum(Table::index_bytes)
    }
}

/// Returns the last hash, from `first` on, for which `part` stays the newest one.
fn last_of_piece(held: &[Arc<Table>], part: &Table, first: u64) -> u64 {
    let is_newer = |other: &&Arc<Table>| other.id() > part.id() && other.positions().first() > first;
    let newer = held.iter().filter(is_newer).map(|other| other.positions().first() - 1);
    newer.min().unwrap_or(u64::MAX).min(part.positions().last())
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

/// A change of held parts and owned hashes.
#[derive(Clone, Debug, Default)]
pub struct PartsChange {
    /// Hashes to be owned no longer, whether owned before or not.
    pub leave: Vec<Range>,
    /// Hashes to be owned, whether owned before or not; a held or new part contains them.
    pub take: Vec<Range>,
    /// Parts to be held, whether held before or not.
    pub come: Vec<Arc<Table>>,
    /// Parts to be held no longer, if they were.
    pub go: Vec<Arc<Table>>,
    /// New migrations whose reads may ask both servers. They end by being closed.
    pub moving: Vec<Arc<Moving>>,
}

impl PartsChange {
    /// Returns whether the change is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { leave, take, come, go, moving } = self;
        leave.is_empty() && take.is_empty() && come.is_empty() && go.is_empty() && moving.is_empty()
    }
}

impl Parts {
    /// Returns these parts after a change.
    ///
    /// # Errors
    /// See [`PartsError`].
    pub fn altered(&self, change: &PartsChange) -> Result<Self, PartsError> {
        let mut owned = subtract(&subtract(&self.owned(), &change.leave), &change.take);
        owned.extend(&change.take);
        let range = |&(first, last): &Range| HashRange::new(first, last).ok_or(PartsError::TooNarrow(first));
        let owned = owned.iter().map(range).collect::<Result<Vec<_>, _>>()?;
        let is_kept = |part: &&Arc<Table>| !change.go.iter().any(|gone| Arc::ptr_eq(gone, part));
        let is_new = |part: &&Arc<Table>| !self.held.iter().any(|held| Arc::ptr_eq(held, part));
        let come = change.come.iter().filter(is_new);
        let held = self.held.iter().filter(is_kept).chain(come).cloned().collect();
        let open = self.moving.iter().filter(|moving| moving.is_open()).chain(&change.moving);
        let moving = open.cloned().collect();
        Ok(Self { moving, ..Self::new(self.options, held, &owned)? })
    }
}

#[cfg(test)]
mod tests;
