//! The reads and pending writes of one invocation, and the commit that applies the writes.
//!
//! Writes wait in a [`WriteSet`]; reads see them. A condition is evaluated when the function requests the write, and
//! the object that it depends on counts as read. A transaction that may write records every version that it reads,
//! including absence; the commit applies all writes if those versions are unchanged, or none.
//!
//! Objects lent by reads lie in the log under the pin, which the caller holds until it begins the transaction again. An
//! extension's host calls use this; the end of an invocation calls the commit.

pub mod scans;
pub mod write_set;

use guest::arena::Arena;
use sandstorm::abi::VERSION_UNAPPLIED;
use scans::ScanNote;
use store::{CommitError, Condition, Object, Pinned, RangeCheck, ReadCheck, Table, Write};

use super::read;
use crate::limits::{TRANSACTION_READS_KEPT, TRANSACTION_READS_MAX, TRANSACTION_WRITES_KEPT};
use crate::tablet::Parts;
pub use write_set::Full;
use write_set::{Lent, WriteSet};

/// The reason why a read or write was refused. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionError {
    /// The condition does not hold; contains the version found, 0 if absent.
    ConditionFailed(u64),
    /// The object's value does not have eight bytes.
    NotANumber,
    /// The sum is out of range.
    Overflow,
    /// The table cannot be scanned.
    NotOrdered,
    /// The receiver of a scan's objects refuses more.
    Refused,
    /// More objects than a writing transaction can record as read.
    TooManyReads,
    /// It depends on an object that is still in transit.
    NotArrived,
    /// There is no room for the write, or for the key that was found absent.
    Full(Full),
}

impl From<Full> for TransactionError {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

/// The reason why a commit was refused; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncommitted {
    /// The store refuses it.
    Refused(CommitError),
    /// This server no longer owns an object that was read or is to be written.
    Moved,
    /// The writes are to be on the disk, and one of the tables is in memory.
    NotDurable,
}

impl From<CommitError> for Uncommitted {
    fn from(error: CommitError) -> Self {
        Self::Refused(error)
    }
}

/// The memory and limits of a transaction that may write.
#[derive(Debug)]
pub struct Writing {
    /// Memory for the keys and values to be written, and for keys that were found absent.
    pub memory: Arena,
    /// The maximum number of objects to write.
    pub writes: usize,
    /// The maximum bytes of keys and values to write.
    pub write_bytes: usize,
}

/// An object as the transaction sees it.
#[derive(Clone, Copy, Debug)]
pub struct FoundObject {
    /// The value, lent until the transaction begins again.
    pub value: Lent,
    /// The version; [`VERSION_UNAPPLIED`] for a write of this transaction.
    pub version: u64,
    /// The expiry, by the store's clock.
    pub expires_ms: u64,
}

impl FoundObject {
    /// Wraps an object of the store.
    #[inline]
    #[must_use]
    pub fn of(object: &Object<'_>) -> Self {
        let (value, expires_ms) = (Lent::of(object.value()), object.expires_ms());
        Self { value, version: object.version(), expires_ms }
    }
}

/// The location of an operation's object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPlace<'p> {
    /// The table's number.
    pub id: u32,
    /// The table.
    pub table: &'p Table,
    /// [`store::hash`] of the key.
    pub hash: u64,
    /// The key.
    pub key: &'p [u8],
}

/// A read object, and the version found; 0 if absent.
#[derive(Clone, Copy, Debug)]
struct ReadVersion {
    hash: u64,
    version: u64,
    table: u32,
    key: Lent,
}

/// The transaction of one invocation, reused by the next one.
#[derive(Debug, Default)]
pub struct Transaction {
    writes: WriteSet,
    reads: Vec<ReadVersion>,
    scans: Vec<ScanNote>,
    /// Numbers of writes, for scans; kept for its capacity.
    own: Vec<u32>,
    notes_reads: bool,
    /// Empty between two commits; kept for its capacity.
    checks: Vec<ReadCheck<'static>>,
    /// As `checks`.
    ranges: Vec<RangeCheck<'static>>,
    /// As `checks`.
    changes: Vec<Write<'static>>,
}

impl Transaction {
    /// Clears everything. Without `writing` the transaction only reads and records nothing.
    #[inline]
    pub fn begin(&mut self, writing: Option<Writing>) {
        self.notes_reads = writing.is_some();
        let nothing = Writing { memory: Arena::empty(), writes: 0, write_bytes: 0 };
        let Writing { memory, writes, write_bytes } = writing.unwrap_or(nothing);
        self.writes.begin(memory, writes, write_bytes);
        self.reads.clear();
        self.scans.clear();
    }

    /// Ends the transaction: releases the capacity that a large one needed for its lists. The other lists never exceed
    /// these two.
    #[inline]
    pub fn trim(&mut self) {
        let (reads, writes) = (self.reads.capacity(), self.writes.capacity());
        let scans = self.scans.capacity();
        if (reads.max(scans) > TRANSACTION_READS_KEPT) | (writes > TRANSACTION_WRITES_KEPT) {
            self.shrink();
        }
    }

    #[cold]
    fn shrink(&mut self) {
        self.reads.clear();
        self.reads.shrink_to(TRANSACTION_READS_KEPT);
        self.checks.shrink_to(TRANSACTION_READS_KEPT);
        self.scans.clear();
        self.scans.shrink_to(TRANSACTION_READS_KEPT);
        self.ranges.shrink_to(TRANSACTION_READS_KEPT);
        self.writes.shrink();
        self.own = Vec::new();
        self.changes.shrink_to(TRANSACTION_WRITES_KEPT);
    }

    /// Returns the bytes of the lists of reads and writes.
    #[must_use]
    pub fn list_bytes(&self) -> usize {
        self.writes.list_bytes()
            + self.reads.capacity() * size_of::<ReadVersion>()
            + self.checks.capacity() * size_of::<ReadCheck<'_>>()
            + self.scans.capacity() * size_of::<ScanNote>()
            + self.own.capacity() * size_of::<u32>()
            + self.ranges.capacity() * size_of::<RangeCheck<'_>>()
            + self.changes.capacity() * size_of::<Write<'_>>()
    }

    /// Returns whether there is nothing to write and no read spanned several steps.
    #[inline]
    #[must_use]
    pub fn needs_no_commit(&self) -> bool {
        self.writes.writes().is_empty() && self.reads.len() < 2 && self.scans.is_empty()
    }

    /// Returns table, hash, key and version of each object that it has noted as read; version 0 if it was absent.
    pub fn noted_reads(&self) -> impl Iterator<Item = (u32, u64, Lent, u64)> {
        self.reads.iter().map(|read| (read.table, read.hash, read.key, read.version))
    }

    /// Returns the number of objects to be written, and the bytes of keys and values given for them.
    #[inline]
    #[must_use]
    pub fn written(&self) -> (u64, u64) {
        (self.writes.writes().len() as u64, self.writes.bytes_written() as u64)
    }

    /// Returns the bytes of the lent memory in use.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.writes.memory_bytes()
    }

    /// Reads an object: the transaction's own write of it, or else the store's object.
    ///
    /// # Errors
    /// `TooManyReads`, `Full` if another read cannot be recorded; `NotArrived`, with nothing recorded.
    #[inline(always)]
    pub fn get(
        &mut self,
        pin: &Pinned<'_>,
        place: ObjectPlace<'_>,
    ) -> Result<Option<FoundObject>, TransactionError> {
        if let Some(write) = self.writes.find(place.id, place.hash, place.key) {
            let expires_ms = write.expires_ms;
            return Ok(write.value.map(|value| FoundObject {
                value,
                version: VERSION_UNAPPLIED,
                expires_ms,
            }));
        }
        let object = pin.get(place.table, place.hash, place.key);
        if object.is_none() && place.table.is_arrival() {
            return self.get_arriving(pin, place);
        }
        let found = object.as_ref().map(FoundObject::of);
        if self.notes_reads {
            self.note(place, object)?;
        }
        Ok(found)
    }

    /// Reads again, because the object may have arrived meanwhile.
    #[cold]
    fn get_arriving(
        &mut self,
        pin: &Pinned<'_>,
        place: ObjectPlace<'_>,
    ) -> Result<Option<FoundObject>, TransactionError> {
        let object = read::get_arriving(pin, place.table, place.hash, place.key);
        let object = object.ok_or(TransactionError::NotArrived)?;
        let found = object.as_ref().map(FoundObject::of);
        if self.notes_reads {
            self.note(place, object)?;
        }
        Ok(found)
    }

    /// Returns whether it would write or delete the object.
    #[must_use]
    pub fn has_written(&self, id: u32, hash: u64, key: &[u8]) -> bool {
        self.writes.find(id, hash, key).is_some()
    }

    /// Returns its pending write of an object, with an inner `None` for a deletion; `None` if it has none.
    #[must_use]
    pub fn own_write(&self, id: u32, hash: u64, key: &[u8]) -> Option<Option<FoundObject>> {
        let write = self.writes.find(id, hash, key)?;
        let expires_ms = write.expires_ms;
        Some(write.value.map(|value| FoundObject { value, version: VERSION_UNAPPLIED, expires_ms }))
    }

    /// Adds a write of `value` that expires at `expires_ms`, or a deletion, if `condition` holds now.
    ///
    /// # Errors
    /// `ConditionFailed`, `TooManyReads`, `Full`; `NotArrived` for a deletion of an object that may be in transit,
    /// and for any write of a key that a recovery has not brought.
    pub fn write(
        &mut self,
        pin: &Pinned<'_>,
        place: ObjectPlace<'_>,
        value: Option<&[u8]>,
        expires_ms: u64,
        condition: Condition,
    ) -> Result<(), TransactionError> {
        if condition != Condition::Always {
            self.check(pin, place, condition)?;
        }
        let must_know = value.is_none() || place.table.is_replaying();
        if must_know && !pin.knows(place.table, place.hash, place.key) {
            return Err(TransactionError::NotArrived);
        }
        self.writes.record_until(place.id, place.hash, place.key, value, expires_ms)?;
        Ok(())
    }

    /// Adds to the number in an object, 0 if absent, and returns the sum. The expiry does not change.
    ///
    /// # Errors
    /// `NotANumber`, `Overflow`, `TooManyReads`, `Full`.
    pub fn increment(
        &mut self,
        pin: &Pinned<'_>,
        place: ObjectPlace<'_>,
        delta: i64,
    ) -> Result<i64, TransactionError> {
        let sum = |before| i64::from_le_bytes(before).checked_add(delta).map(i64::to_le_bytes);
        self.add(pin, place, sum).map(i64::from_le_bytes)
    }

    /// Like [`Transaction::increment`] for a floating point number; a sum that is not finite is `Overflow`.
    ///
    /// # Errors
    /// As [`Transaction::increment`].
    pub fn increment_float(
        &mut self,
        pin: &Pinned<'_>,
        place: ObjectPlace<'_>,
        delta: f64,
    ) -> Result<f64, TransactionError> {
        let sum = |before| Some(f64::from_le_bytes(before) + delta).filter(|sum| sum.is_finite());
        self.add(pin, place, |before| sum(before).map(f64::to_le_bytes)).map(f64::from_le_bytes)
    }

    /// Writes the result of `sum` for the eight bytes of an object, zeros if absent.
    #[inline]
    fn add(
        &mut self,
        pin: &Pinned<'_>,
        place: ObjectPlace<'_>,
        sum: impl FnOnce([u8; 8]) -> Option<[u8; 8]>,
    ) -> Result<[u8; 8], TransactionError> {
        let found = self.get(pin, place)?;
        let expires_ms = found.map_or(store::NEVER_MS, |found| found.expires_ms);
        let before = match found {
            None => [0; 8],
            Some(found) => {
                // SAFETY: lent just now, under the pin and by the set.
                let bytes = unsafe { found.value.as_slice() };
                bytes.try_into().map_err(|_| TransactionError::NotANumber)?
            }
        };
        let sum = sum(before).ok_or(TransactionError::Overflow)?;
        self.writes.record_until(place.id, place.hash, place.key, Some(&sum), expires_ms)?;
        Ok(sum)
    }

    /// Applies all writes, or none. `parts_of` returns the parts of a table by its number; a write to a table that is
    /// gone is refused as the store refuses a retired table. Each key is looked up again: its part may have changed
    /// since the read, or be gone. With `for_disk`, all written tables must be durable.
    ///
    /// # Errors
    /// The store's error, `Moved`, or `NotDurable`; nothing was written then.
    ///
    /// # Safety
    /// The pin under which the first read was made is held, and so is the memory of the write set.
    pub unsafe fn commit<'t>(
        &mut self,
        pin: &Pinned<'_>,
        parts_of: impl Fn(u32) -> Option<&'t Parts>,
        for_disk: bool,
    ) -> Result<(), Uncommitted> {
        let mut checks = recycle_checks(std::mem::take(&mut self.checks));
        let mut changes = recycle_changes(std::mem::take(&mut self.changes));
        let mut ranges = recycle_ranges(std::mem::take(&mut self.ranges));
        // SAFETY: as the caller says.
        let listed = unsafe { self.list(pin, &parts_of, (&mut checks, &mut ranges, &mut changes)) };
        let result = listed.and_then(|()| {
            if for_disk && changes.iter().any(|change| !change.table.is_promised()) {
                return Err(Uncommitted::NotDurable);
            }
            Ok(pin.commit_ranges(&checks, &ranges, &changes).map(|_| ())?)
        });
        self.checks = recycle_checks(checks);
        self.ranges = recycle_ranges(ranges);
        self.changes = recycle_changes(changes);
        result
    }

    /// Lists the checks and changes of the commit.
    ///
    /// # Safety
    /// As [`Transaction::commit`].
    unsafe fn list<'t>(
        &self,
        pin: &Pinned<'_>,
        parts_of: &impl Fn(u32) -> Option<&'t Parts>,
        (checks, ranges, changes): (&mut Vec<ReadCheck<'t>>, &mut Vec<RangeCheck<'t>>, &mut Vec<Write<'t>>),
    ) -> Result<(), Uncommitted> {
        let table = |id| parts_of(id).ok_or(CommitError::Write(store::WriteError::TableRetired));
        for read in &self.reads {
            // SAFETY: the key lies in the log under the held pin, or in the memory of the set.
            let key = unsafe { read.key.as_slice() };
            let table = table(read.table)?.find(key, read.hash).ok_or(Uncommitted::Moved)?;
            // What was absent may be on its way here, if the key left and returned meanwhile.
            if read.version == 0 && table.is_arrival() && !pin.knows(table, read.hash, key) {
                return Err(Uncommitted::Moved);
            }
            checks.push(ReadCheck { table, hash: read.hash, key, version: read.version });
        }
        for scan in &self.scans {
            let parts = table(scan.table)?;
            let part_of = |prefix: &[u8]| parts.part_of(prefix).filter(|part| part.is_complete());
            // SAFETY: as the caller says.
            ranges.push(unsafe { scan.check(part_of) }.ok_or(Uncommitted::Moved)?);
        }
        for write in self.writes.writes() {
            // SAFETY: key and value lie in the memory of the set.
            let (key, value) = unsafe { (write.key.as_slice(), write.value.map(|value| value.as_slice())) };
            let table = table(write.table)?.find(key, write.hash).ok_or(Uncommitted::Moved)?;
            changes.push(Write { table, hash: write.hash, key, value, expires_ms: write.expires_ms });
        }
        Ok(())
    }

    fn check(
        &mut self,
        pin: &Pinned<'_>,
        place: ObjectPlace<'_>,
        condition: Condition,
    ) -> Result<(), TransactionError> {
        let version = self.get(pin, place)?.map_or(0, |found| found.version);
        if condition.holds(version) { Ok(()) } else { Err(TransactionError::ConditionFailed(version)) }
    }

    /// Records a key that a scan found; it lies in the tree under the pin.
    fn note_met(&mut self, place: ObjectPlace<'_>, version: u64) -> Result<(), TransactionError> {
        if self.reads.len() == TRANSACTION_READS_MAX {
            return Err(TransactionError::TooManyReads);
        }
        self.reads.push(ReadVersion { hash: place.hash, version, table: place.id, key: Lent::of(place.key) });
        Ok(())
    }

    #[inline(never)]
    fn note(&mut self, place: ObjectPlace<'_>, object: Option<Object<'_>>) -> Result<(), TransactionError> {
        if self.reads.len() == TRANSACTION_READS_MAX {
            return Err(TransactionError::TooManyReads);
        }
        let (version, key) = match object {
            Some(object) => (object.version(), Lent::of(object.key())),
            None => (0, self.writes.copy(place.key)?),
        };
        self.reads.push(ReadVersion { hash: place.hash, version, table: place.id, key });
        Ok(())
    }
}

/// Empties a vector and reuses its capacity for another lifetime; the standard library collects in place.
fn recycle_checks<'new>(mut checks: Vec<ReadCheck<'_>>) -> Vec<ReadCheck<'new>> {
    checks.clear();
    checks.into_iter().map(|_| unreachable!("cleared")).collect()
}

/// As [`recycle_checks`].
fn recycle_ranges<'new>(mut ranges: Vec<RangeCheck<'_>>) -> Vec<RangeCheck<'new>> {
    ranges.clear();
    ranges.into_iter().map(|_| unreachable!("cleared")).collect()
}

/// As [`recycle_checks`].
fn recycle_changes<'new>(mut changes: Vec<Write<'_>>) -> Vec<Write<'new>> {
    changes.clear();
    changes.into_iter().map(|_| unreachable!("cleared")).collect()
}
