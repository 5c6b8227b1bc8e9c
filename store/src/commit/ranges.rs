//! The range checks of a commit that relies on a scan: no key has appeared in the range.
//!
//! The keys that the scan met are checked as reads; this file walks through the range again for others. The keys that
//! the commit inserts have entered the trees before that and can be found afterwards, so of two commits that insert
//! into each other's scanned range at least one sees the other's key. A key that another writer is just inserting or
//! removing may be taken for one that has appeared: the commit is refused, and its caller may try again.
//!
//! All ranges must have had exactly these keys at one moment. While a walk is under way, a key may appear behind it and another
//! one, which was there before, disappear ahead of it. The walk then meets neither, a state that never existed. So unless there is
//! one range of one leaf, all ranges are walked again over their leaves, and the check passes only if the leaves are the same; after
//! [`RANGE_WALKS_MAX`] attempts it is a conflict.

use std::ops::Range;

use crate::commit::{ReadCheck, Write};
use crate::error::CommitError;
use crate::limits::RANGE_WALKS_MAX;
use crate::ordered::{KeyRange, Leaves};
use crate::store::core::Pinned;
use crate::sync::{Ordering, fence};
use crate::table::Table;

/// A condition of a commit: the range has no keys but those that the scan met.
#[derive(Clone, Debug)]
pub struct RangeCheck<'a> {
    /// The table, an ordered one.
    pub table: &'a Table,
    /// The range that was scanned.
    pub range: KeyRange<'a>,
    /// The last examined key, if the scan ended before the range did.
    pub until: Option<&'a [u8]>,
    /// The read checks of its keys, in the order in which they were met.
    pub reads: Range<usize>,
}

impl Pinned<'_> {
    /// Checks the ranges of a commit that has locked its buckets, checked its reads and entered its new keys into
    /// their trees. `order` has all writes by hash, `entering` those of new keys.
    pub(crate) fn check_ranges(
        &self,
        (reads, ranges): (&[ReadCheck<'_>], &[RangeCheck<'_>]),
        writes: &[Write<'_>],
        (entering, order): (&[u32], &[u32]),
        walked: &mut Vec<Leaves>,
    ) -> Result<(), CommitError> {
        if ranges.is_empty() {
            return Ok(());
        }
        // Between the entry of this commit's keys and the reads below. With the same fence in another commit, at least
        // one of the two sees the other's keys.
        fence(Ordering::SeqCst);
        let is_own = |table: &Table, key: &[u8]| {
            let hash = crate::hash(key);
            let first = order.partition_point(|&at| writes[at as usize].hash < hash);
            let mut same_hash = order[first..].iter().take_while(|&&at| writes[at as usize].hash == hash);
            same_hash.any(|at| {
                let write = &writes[*at as usize];
                entering.binary_search(at).is_ok() && std::ptr::eq(write.table, table) && write.key == key
            })
        };
        let conflict = |range: usize| CommitError::Conflict { read: reads.len() + range };
        let mut moved = 0;
        for _ in 0..RANGE_WALKS_MAX {
            walked.clear();
            for (at, check) in ranges.iter().enumerate() {
                walked.push(self.walk_through(check, reads, is_own).ok_or(conflict(at))?);
            }
            if let [Leaves { count: 1, .. }] = walked[..] {
                return Ok(());
            }
            let mut pairs = ranges.iter().zip(&*walked);
            match pairs.position(|(check, &leaves)| !self.repeats(check, leaves)) {
                None => return Ok(()),
                Some(at) => moved = at,
            }
        }
        Err(conflict(moved))
    }

    /// Returns whether the keys of a range are in the leaves in which a walk has met them.
    fn repeats(&self, check: &RangeCheck<'_>, leaves: Leaves) -> bool {
        let keys = check.table.ordered.as_ref();
        keys.is_some_and(|keys| keys.walk(&self.pin, check.range).repeats(leaves))
    }

    /// Returns the leaves of a range, if it has no keys except those of its reads and those that the commit itself inserts.
    fn walk_through(
        &self,
        check: &RangeCheck<'_>,
        reads: &[ReadCheck<'_>],
        is_own: impl Fn(&Table, &[u8]) -> bool,
    ) -> Option<Leaves> {
        let keys = check.table.ordered.as_ref()?;
        let comes_before = |left: &[u8], right: &[u8]| (left < right) != check.range.reverse && left != right;
        let mut met = reads[check.reads.clone()].iter().map(|read| read.key).peekable();
        let mut walk = keys.walk(&self.pin, check.range);
        while let Some(key) = walk.next() {
            if check.until.is_some_and(|until| comes_before(until, key)) {
                break;
            }
            while met.next_if(|met| comes_before(met, key)).is_some() {}
            if met.next_if_eq(&key).is_none() && !is_own(check.table, key) {
                return None;
            }
        }
        Some(walk.leaves())
    }
}
