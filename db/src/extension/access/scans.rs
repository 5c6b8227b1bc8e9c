//! The host call that reads a range of an ordered table.
//!
//! Each object counts as a read, and so does a call that finds none.

use sandstorm::Error;
use sandstorm::abi::{RawEntry, RawScanned, RawSlice};
use store::KeyRange;

use super::Access;
use super::calls::{checked_key, raw_of};
use crate::limits::SCAN_ENTRIES_MAX;
use crate::ops::transaction::{FoundObject, TransactionError};

impl Access {
    /// Reads objects of a range in order.
    ///
    /// # Safety
    /// There is room for `capacity` entries.
    pub unsafe fn scan(
        &mut self,
        table: u32,
        range: KeyRange<'_>,
        (entries, capacity): (*mut RawEntry, usize),
    ) -> Result<RawScanned, Error> {
        let [from, to, prefix, after] =
            [Some(range.from), range.to, Some(range.prefix), range.after].map(Option::unwrap_or_default);
        for bound in [from, to, prefix, after] {
            checked_key(bound)?;
        }
        // A call that reads keys and finds nothing costs too.
        self.spending.reads(1)?;
        let environment = self.environment();
        let whole = self.whole(environment, table)?;
        let (spending, mut met) = (&mut self.spending, 0);
        let mut refused = None;
        let capacity = capacity.min(SCAN_ENTRIES_MAX);
        let found = |key: &[u8], found: FoundObject| {
            let spent = match met {
                0 => Ok(()),
                _ => spending.reads(1),
            };
            if let Err(error) = spent.and_then(|()| spending.read_bytes(key.len() + found.value.bytes())) {
                refused = Some(error);
                return Err(TransactionError::Refused);
            }
            let entry = RawEntry { key: RawSlice::of(key), record: raw_of(Some(found)) };
            // SAFETY: no more than `capacity` objects are met, and there is room for them.
            unsafe { entries.add(met).write(entry) };
            met += 1;
            Ok(())
        };
        let scanned = self.transaction.scan(environment.pin, (table, whole), range, capacity, found);
        match scanned {
            Ok(scanned) => {
                let last = RawSlice::of(scanned.last.unwrap_or_default());
                Ok(RawScanned { count: met, last, ended: u32::from(scanned.last.is_none()), reserved: 0 })
            }
            Err(error) => Err(refused.unwrap_or_else(|| self.refuse(error))),
        }
    }
}
