//! Scans of ordered tables.
//!
//! A scan goes through the keys of a range in order and looks each up in the index. Every object that lived
//! throughout is met exactly once, and what is met was there at some moment of the scan; objects that come or go
//! meanwhile may be met or not. The keys are followed a batch ahead, so that the misses of many lookups overlap.
//! A commit can rely on what was met: `commit/ranges.rs`.

use std::fmt;
use std::ops::ControlFlow;

use crate::object::Object;
use crate::ordered::KeyRange;
use crate::pinned::Pinned;
use crate::table::Table;

/// Lookups whose misses overlap.
const PREFETCH_BATCH: usize = 32;

/// The table is not an ordered one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotOrdered;

impl fmt::Display for NotOrdered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the table is not ordered")
    }
}

impl std::error::Error for NotOrdered {}

impl Pinned<'_> {
    /// Calls `visit` with the keys of a range in their order and what the index has under them, until it breaks; a
    /// key that disappears just now, or whose object cannot be found yet, comes with nothing. `expected` is how many
    /// will be asked for, about. Key and object live as long as the pin.
    pub fn scan<'p>(
        &'p self,
        table: &'p Table,
        range: KeyRange<'_>,
        expected: usize,
        mut visit: impl FnMut(&'p [u8], u64, Option<Object<'p>>) -> ControlFlow<()>,
    ) -> Result<(), NotOrdered> {
        self.assert_own(table);
        let keys = table.ordered.as_ref().ok_or(NotOrdered)?;
        let mut walk = keys.walk(&self.pin, range);
        let mut batch: [(u64, &[u8]); PREFETCH_BATCH] = [(0, &[]); PREFETCH_BATCH];
        let mut left = expected.max(1);
        loop {
            let mut filled = 0;
            while filled < PREFETCH_BATCH.min(left)
                && let Some(key) = walk.next()
            {
                batch[filled] = (crate::hash(key), key);
                self.prefetch_bucket(table, batch[filled].0);
                filled += 1;
            }
            let batch = &batch[..filled];
            batch.iter().for_each(|&(hash, _)| self.prefetch_object(table, hash));
            for &(hash, key) in batch {
                if visit(key, hash, self.get(table, hash, key)).is_break() {
                    return Ok(());
                }
            }
            if filled == 0 {
                return Ok(());
            }
            left = left.saturating_sub(filled).max(1);
        }
    }
}
