//! The range checks of a commit that relies on a scan: no key has appeared in the range.
//!
//! The keys that the scan met are checked as reads; this file walks through the range again for others. The keys that
//! the commit inserts have entered the trees before that and can be found afterwards, so of two commits that insert
//! into each other's scanned range at least one sees the other's key. A key that another writer is just inserting or
//! removing may be taken for one that has appeared: the commit is refused, and its caller may try again.

use std::ops::Range;

use crate::commit::{ReadCheck, Write};
use crate::error::CommitError;
use crate::ordered::KeyRange;
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
        let changed = ranges.iter().position(|check| !self.stands(check, reads, is_own));
        changed.map_or(Ok(()), |range| Err(CommitError::Conflict { read: reads.len() + range }))
    }

    /// Returns whether a range has no keys except those of its reads and those that the commit itself inserts.
    fn stands(
        &self,
        check: &RangeCheck<'_>,
        reads: &[ReadCheck<'_>],
        is_own: impl Fn(&Table, &[u8]) -> bool,
    ) -> bool {
        let Some(keys) = &check.table.ordered else { return false };
        let comes_before = |left: &[u8], right: &[u8]| (left < right) != check.range.reverse && left != right;
        let mut met = reads[check.reads.clone()].iter().map(|read| read.key).peekable();
        let mut walk = keys.walk(&self.pin, check.range);
        while let Some(key) = walk.next() {
            if check.until.is_some_and(|until| comes_before(until, key)) {
                return true;
            }
            while met.next_if(|met| comes_before(met, key)).is_some() {}
            if met.next_if_eq(&key).is_none() && !is_own(check.table, key) {
                return false;
            }
        }
        true
    }
}
