//! Scans of a transaction: the store's objects of a range merged with the transaction's own writes, and the checks of
//! the commit.
//!
//! A transaction that may write records as read every key that a scan found, and the part of the range that the scan
//! covered. Bounds are copied, because they are lent for the call only; keys of the store lie under the held pin.

use std::ops::{ControlFlow, Range};

use sandstorm::abi::VERSION_UNAPPLIED;
use store::{KeyRange, Object, Pinned, RangeCheck, Table};

use super::write_set::{Lent, WriteSet};
use super::{FoundObject, ObjectPlace, Transaction, TransactionError};
use crate::limits::{SCAN_KEYS_EXAMINED_MAX, TRANSACTION_READS_MAX};

/// A scanned part of a table.
#[derive(Clone, Debug)]
pub struct ScanNote {
    pub(super) table: u32,
    from: Lent,
    to: Option<Lent>,
    prefix: Lent,
    after: Option<Lent>,
    reverse: bool,
    until: Option<Lent>,
    reads: Range<usize>,
}

/// The progress of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned<'p> {
    /// The key examined last; `None` at the end of the range.
    pub last: Option<&'p [u8]>,
}

/// The state of one scan call.
struct Merge<'t, 'p, F> {
    transaction: &'t mut Transaction,
    table: (u32, &'p Table),
    range: KeyRange<'t>,
    /// The transaction's remaining writes in the range, the next one last.
    own: Vec<u32>,
    left: usize,
    last: Option<&'p [u8]>,
    found: F,
}

impl Transaction {
    /// Passes the objects of a range to `found` in order, at most `capacity`. Each is the transaction's own write if it
    /// exists, or else the store's object.
    ///
    /// # Errors
    /// `NotOrdered`, `TooManyReads`, `Full`, or the error of `found`.
    pub fn scan<'p>(
        &mut self,
        pin: &'p Pinned<'_>,
        (id, table): (u32, &'p Table),
        range: KeyRange<'_>,
        capacity: usize,
        found: impl FnMut(&'p [u8], FoundObject) -> Result<(), TransactionError>,
    ) -> Result<Scanned<'p>, TransactionError> {
        let (notes_reads, first_read) = (self.notes_reads, self.reads.len());
        if notes_reads && self.scans.len() == TRANSACTION_READS_MAX {
            return Err(TransactionError::TooManyReads);
        }
        let mut own = std::mem::take(&mut self.own);
        self.writes.fill_in_range(id, &range, &mut own);
        let (table, last) = ((id, table), None);
        let mut merge = Merge { transaction: self, table, range, own, left: capacity, last, found };
        let (mut ended, mut examined, mut failure) = (true, 0, None);
        let scanned = pin.scan(table.1, range, capacity, |key, hash, object| {
            if merge.left == 0 || examined == SCAN_KEYS_EXAMINED_MAX {
                ended = false;
                return ControlFlow::Break(());
            }
            examined += 1;
            match merge.meet(key, hash, object) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        scanned.map_err(|_| TransactionError::NotOrdered)?;
        if let Some(error) = failure {
            return Err(error);
        }
        if ended {
            merge.take_own(None)?;
        }
        let is_at_end = ended && merge.own.is_empty();
        let last = merge.last.filter(|_| !is_at_end);
        self.own = merge.own;
        if notes_reads {
            self.note_scan(id, &range, last, first_read)?;
        }
        Ok(Scanned { last })
    }

    fn note_scan(
        &mut self,
        table: u32,
        range: &KeyRange<'_>,
        until: Option<&[u8]>,
        first_read: usize,
    ) -> Result<(), TransactionError> {
        let mut copy = |bytes: &[u8]| self.writes.copy(bytes);
        let note = ScanNote {
            table,
            from: copy(range.from)?,
            to: range.to.map(&mut copy).transpose()?,
            prefix: copy(range.prefix)?,
            after: range.after.map(&mut copy).transpose()?,
            reverse: range.reverse,
            until: until.map(Lent::of),
            reads: first_read..self.reads.len(),
        };
        self.scans.push(note);
        Ok(())
    }
}

impl<'p, F: FnMut(&'p [u8], FoundObject) -> Result<(), TransactionError>> Merge<'_, 'p, F> {
    /// Handles a key of the store: passes on the transaction's own writes before it, then the current state of the key.
    fn meet(&mut self, key: &'p [u8], hash: u64, object: Option<Object<'p>>) -> Result<(), TransactionError> {
        let (id, table) = self.table;
        if !self.own.is_empty() {
            self.take_own(Some(key))?;
            if self.left == 0 {
                return Ok(());
            }
        }
        if self.transaction.notes_reads {
            let place = ObjectPlace { id, table, hash, key };
            self.transaction.note_met(place, object.map_or(0, |object| object.version()))?;
        }
        self.last = Some(key);
        if let Some(&own) = self.own.last()
            && self.own_key(own) == key
        {
            return self.give_own();
        }
        let Some(object) = object else { return Ok(()) };
        self.left -= 1;
        // The key of the object, not of the tree: it does not move either, and its value follows it.
        (self.found)(object.key(), FoundObject::of(&object))
    }

    /// Passes on own writes while there is room; only those before `key` if it is given.
    fn take_own(&mut self, key: Option<&[u8]>) -> Result<(), TransactionError> {
        while let Some(&own) = self.own.last()
            && self.left > 0
        {
            let own_key = self.own_key(own);
            if key.is_some_and(|key| own_key == key || (own_key < key) == self.range.reverse) {
                return Ok(());
            }
            self.give_own()?;
        }
        Ok(())
    }

    fn own_key(&self, own: u32) -> &'p [u8] {
        // SAFETY: keys of the set lie in its memory, which is valid until the transaction begins again, like
        // the objects under the pin.
        unsafe { self.transaction.writes.writes()[own as usize].key.as_slice() }
    }

    /// Passes on the next own write, unless it is a deletion.
    fn give_own(&mut self) -> Result<(), TransactionError> {
        let Some(own) = self.own.pop() else { return Ok(()) };
        let key = self.own_key(own);
        self.last = Some(key);
        let write = self.transaction.writes.writes()[own as usize];
        let Some(value) = write.value else { return Ok(()) };
        self.left -= 1;
        (self.found)(key, FoundObject { value, version: VERSION_UNAPPLIED, expires_ms: write.expires_ms })
    }
}

impl ScanNote {
    /// Returns the check of the commit.
    ///
    /// # Safety
    /// The pin of the scan is held, and so is the memory of the write set.
    pub(super) unsafe fn check<'t>(
        &self,
        part_of: impl Fn(&[u8]) -> Option<&'t Table>,
    ) -> Option<RangeCheck<'t>> {
        // SAFETY: bounds lie in the memory of the set, the last key in the log or the tree under the pin, or in the
        // set.
        let slice = |lent: Lent| unsafe { lent.as_slice() };
        let range = KeyRange {
            from: slice(self.from),
            to: self.to.map(slice),
            prefix: slice(self.prefix),
            after: self.after.map(slice),
            reverse: self.reverse,
        };
        let table = part_of(range.prefix)?;
        Some(RangeCheck { table, range, until: self.until.map(slice), reads: self.reads.clone() })
    }
}

impl WriteSet {
    /// Lists the numbers of the writes in a range, the first one in scan order last.
    fn fill_in_range(&self, table: u32, range: &KeyRange<'_>, own: &mut Vec<u32>) {
        own.clear();
        let key_of = |at: u32| {
            // SAFETY: keys of the set lie in its memory, which stands until the next `begin`.
            unsafe { self.writes()[at as usize].key.as_slice() }
        };
        let is_in = |&at: &u32| self.writes()[at as usize].table == table && range.contains(key_of(at));
        own.extend((0..self.writes().len() as u32).filter(is_in));
        own.sort_unstable_by(|&left, &right| match range.reverse {
            false => key_of(right).cmp(key_of(left)),
            true => key_of(left).cmp(key_of(right)),
        });
    }
}
