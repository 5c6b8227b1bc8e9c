//! Ranges of hashes that a server of the simulated cluster owns, with the parts in which they are.

use std::sync::Arc;

use store::{HashRange, Table};

/// First and last hash, and the part in which they are. Narrower than a tablet where that has several parts.
pub type Piece = ((u64, u64), Arc<Table>);

/// First and last hashes of what is owned, whatever the parts.
pub fn joined(owned: &[Piece]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<_> = owned.iter().map(|piece| piece.0).collect();
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if before.1.checked_add(1) == Some(first) => before.1 = last,
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// What is owned without a range.
pub fn without(owned: &[Piece], (begin, end): (u64, u64)) -> Vec<Piece> {
    let mut left = Vec::new();
    for &((first, last), ref part) in owned {
        let below = begin.checked_sub(1).map(|below| (first, last.min(below)));
        let above = end.checked_add(1).map(|above| (first.max(above), last));
        let rest = [below, above].into_iter().flatten().filter(|(first, last)| first <= last);
        left.extend(rest.map(|range| (range, Arc::clone(part))));
    }
    left
}

/// What is owned of a range.
pub fn within(owned: &[Piece], range: HashRange) -> Vec<Piece> {
    let piece = |&((first, last), ref part): &Piece| {
        let (first, last) = (first.max(range.first()), last.min(range.last()));
        (first <= last).then(|| ((first, last), Arc::clone(part)))
    };
    let mut pieces: Vec<_> = owned.iter().filter_map(piece).collect();
    pieces.sort_by_key(|(range, _)| range.0);
    pieces
}

/// What is not owned of a range.
pub fn lacking(owned: &[Piece], range: HashRange) -> Vec<(u64, u64)> {
    let (mut lacking, mut next) = (Vec::new(), Some(range.first()));
    for ((first, last), _) in within(owned, range) {
        lacking.extend(next.filter(|&next| next < first).map(|next| (next, first - 1)));
        next = last.checked_add(1);
    }
    lacking.extend(next.filter(|&next| next <= range.last()).map(|next| (next, range.last())));
    lacking
}
