//! Sets of hashes: disjoint ranges, each with its first and last hash.

/// A range of hashes, both bounds included.
pub type Range = (u64, u64);

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
    united
}

/// Returns whether the sets have a hash in common.
#[must_use]
pub fn overlap(one: &[Range], other: &[Range]) -> bool {
    one.iter().any(|&(first, last)| other.iter().any(|&(from, to)| first <= to && from <= last))
}

#[cfg(test)]
mod tests {
    use super::{overlap, subtract, unite};

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
