//! The host calls for data: reads, scans, enumerations and writes of the tenant's tables; table names, log lines.
//!
//! Every argument of the extension is checked here: lengths against the limits, tables against the tenant, writes
//! against the mode. Lent bytes lie in the log under the pin or in the write set.
//!
//! Each object of a scan or of a page counts as a read, and so does a call that finds none. An enumeration compares each
//! object with its checksum, so a page has the same byte limit as one of a client's; a corrupted object is counted and
//! not lent.

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use sandstorm::Error;
use sandstorm::abi::{
    CURSOR_BYTES_MAX, RawEntry, RawListed, RawRecord, RawScanned, RawSlice, TTL_FOREVER, TTL_MS_MAX,
};
use store::{CURSOR_BYTES, Condition, Cursor, KeyRange, Listed, PageLimits, Table};

use super::{Access, Awaited};
use crate::extension::CallMode;
use crate::limits::{ENUMERATION_ENTRIES_MAX, GET_MANY_KEYS_MAX, QUALIFIED_NAME_BYTES_MAX, SCAN_ENTRIES_MAX};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::ops::transaction::{FoundObject, ObjectPlace, TransactionError};
use crate::tablet::TableEntry;

const _: () = assert!(TTL_MS_MAX == wire::limits::TTL_MS_MAX);
const _: () = assert!(CURSOR_BYTES <= CURSOR_BYTES_MAX);

impl Access {
    /// Reads one object. Inlined into the host call with all its callees: a location passed through memory costs as
    /// much as the lookup.
    #[inline(always)]
    pub fn get(&mut self, table: u32, key: &[u8], record: &mut MaybeUninit<RawRecord>) -> Result<(), Error> {
        self.spending.reads(1)?;
        let environment = self.environment();
        let key = checked_key(key)?;
        let hash = store::hash(key);
        let Some(part) = self.entry(environment, table)?.parts.find(key, hash) else {
            return self.get_elsewhere(environment, (table, hash, key), record);
        };
        let place = ObjectPlace { id: table, table: part, hash, key };
        let found = self.transaction.get(environment.pin, place);
        let found = found.map_err(|error| self.refuse_at(place, error, 1))?;
        self.spending.read_bytes(key.len() + found.map_or(0, |found| found.value.bytes()))?;
        record.write(raw_of(found));
        Ok(())
    }

    /// Reads one object per key: first prefetches all buckets, then all objects.
    ///
    /// # Safety
    /// The keys are readable, and there is a record for each.
    pub unsafe fn get_many(
        &mut self,
        table: u32,
        keys: &[RawSlice],
        records: *mut RawRecord,
    ) -> Result<(), Error> {
        if keys.len() > GET_MANY_KEYS_MAX {
            return Err(Error::LimitExceeded);
        }
        self.spending.reads(keys.len() as u64)?;
        let environment = self.environment();
        let pin = environment.pin;
        let mut found_in: [Option<(&Table, u64)>; GET_MANY_KEYS_MAX] = [None; GET_MANY_KEYS_MAX];
        let parts = &self.entry(environment, table)?.parts;
        for (place, key) in found_in.iter_mut().zip(keys) {
            // SAFETY: readable, as the caller promises.
            let key = checked_key(unsafe { key.as_slice() })?;
            let hash = store::hash(key);
            let Some(part) = parts.find(key, hash) else {
                // SAFETY: as the caller promises.
                return unsafe { self.get_many_elsewhere(environment, table, keys, records) };
            };
            pin.prefetch_bucket(part, hash);
            *place = Some((part, hash));
        }
        let mut arrives = false;
        for (&(part, hash), key) in found_in.iter().flatten().zip(keys) {
            pin.prefetch_key(part, hash, key.bytes);
            arrives |= part.is_arrival();
        }
        if arrives {
            // SAFETY: as above.
            let keys = keys.iter().map(|key| unsafe { key.as_slice() });
            self.want_all(environment, table, found_in.iter().flatten().copied().zip(keys))?;
        }
        for (index, (&(part, hash), key)) in found_in.iter().flatten().zip(keys).enumerate() {
            // SAFETY: as above.
            let key = unsafe { key.as_slice() };
            let place = ObjectPlace { id: table, table: part, hash, key };
            let found = self.transaction.get(pin, place).map_err(|error| self.refuse_at(place, error, 0))?;
            self.spending.read_bytes(key.len() + found.map_or(0, |found| found.value.bytes()))?;
            // SAFETY: there is a record for each key.
            unsafe { records.add(index).write(raw_of(found)) };
        }
        Ok(())
    }

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
        let whole = self.part_of(environment, table, range.prefix)?;
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
                let ended = usize::from(scanned.last.is_none());
                Ok(RawScanned { count: met, last, ended, page: RawSlice::EMPTY })
            }
            Err(error) => Err(refused.unwrap_or_else(|| self.refuse(error))),
        }
    }

    /// Reads objects after a cursor.
    ///
    /// # Safety
    /// There is room for `capacity` entries.
    pub unsafe fn enumerate(
        &mut self,
        table: u32,
        cursor: &[u8],
        (entries, capacity): (*mut RawEntry, usize),
    ) -> Result<RawListed, Error> {
        if self.mode == CallMode::Write {
            return Err(Error::NotSerializable);
        }
        // A call that reads buckets and finds nothing costs too.
        self.spending.reads(1)?;
        let environment = self.environment();
        let table = self.part_of(environment, table, &[])?;
        let from = Cursor::decode(table, cursor).map_err(|_| Error::CursorInvalid)?;
        let mut found: [Option<Listed<'_>>; ENUMERATION_ENTRIES_MAX] =
            [const { None }; ENUMERATION_ENTRIES_MAX];
        let found = &mut found[..capacity.min(ENUMERATION_ENTRIES_MAX)];
        let limits =
            PageLimits { objects: found.len(), bytes: wire::limits::ENUMERATE_BYTES_MAX, keys_only: false };
        let page = environment.pin.enumerate(table, from, limits, found).map_err(|_| Error::UnknownTable)?;
        if page.count == 0 && page.next == Some(from) {
            // Crafted keys: all of one place come together, and there is no room for them.
            return Err(Error::LimitExceeded);
        }
        let mut met = 0;
        for listed in found[..page.count].iter().flatten() {
            let Some(object) = &listed.object else {
                environment.metrics.add(Counter::ObjectsCorrupted, 1);
                continue;
            };
            if met > 0 {
                self.spending.reads(1)?;
            }
            self.spending.read_bytes(object.key().len() + object.value().len())?;
            let entry =
                RawEntry { key: RawSlice::of(object.key()), record: raw_of(Some(FoundObject::of(object))) };
            // SAFETY: no more than `capacity` objects are met, and there is room for them.
            unsafe { entries.add(met).write(entry) };
            met += 1;
        }
        let cursor = [0; CURSOR_BYTES_MAX];
        let mut listed = RawListed { count: met, cursor_bytes: 0, cursor, page: RawSlice::EMPTY };
        if let Some(next) = page.next {
            listed.cursor[..CURSOR_BYTES].copy_from_slice(&next.encode(table));
            listed.cursor_bytes = CURSOR_BYTES;
        }
        Ok(listed)
    }

    /// Adds a write of a value with its time to live, or with `value` `None` a deletion.
    pub fn write(
        &mut self,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], u64)>,
        condition: Condition,
    ) -> Result<(), Error> {
        self.may_write()?;
        if value.is_some_and(|(value, _)| value.len() > store::VALUE_BYTES_MAX) {
            return Err(Error::ValueTooLarge);
        }
        let environment = self.environment();
        let expires_ms = match value {
            None | Some((_, TTL_FOREVER)) => store::NEVER_MS,
            Some((_, ttl_ms @ 1..=TTL_MS_MAX)) => environment.core.store().now_ms() + ttl_ms,
            Some(_) => return Err(Error::OutOfRange),
        };
        let place = self.place_to_write(environment, table, key)?;
        let value = value.map(|(value, _)| value);
        let taken = self.transaction.write(environment.pin, place, value, expires_ms, condition);
        taken.map_err(|error| self.refuse_at(place, error, 0))
    }

    /// Adds to a number and returns the sum.
    pub fn increment(&mut self, table: u32, key: &[u8], delta: i64) -> Result<i64, Error> {
        self.may_write()?;
        self.spending.reads(1)?;
        self.spending.read_bytes(key.len() + size_of::<i64>())?;
        let environment = self.environment();
        let place = self.place_to_write(environment, table, key)?;
        let sum = self.transaction.increment(environment.pin, place, delta);
        sum.map_err(|error| self.refuse_at(place, error, 1))
    }

    /// Adds to a floating point number and returns the sum.
    pub fn increment_float(&mut self, table: u32, key: &[u8], delta: f64) -> Result<f64, Error> {
        self.may_write()?;
        if !delta.is_finite() {
            return Err(Error::OutOfRange);
        }
        self.spending.reads(1)?;
        self.spending.read_bytes(key.len() + size_of::<f64>())?;
        let environment = self.environment();
        let place = self.place_to_write(environment, table, key)?;
        let sum = self.transaction.increment_float(environment.pin, place, delta);
        sum.map_err(|error| self.refuse_at(place, error, 1))
    }

    /// Returns the number of the tenant's table with this name, or of a granted table, `owner/name`.
    pub fn table_named(&self, name: &[u8]) -> Result<u32, Error> {
        let name = name.get(..name.len().min(QUALIFIED_NAME_BYTES_MAX + 1)).unwrap_or_default();
        let name = str::from_utf8(name).map_err(|_| Error::UnknownTable)?;
        self.environment().tables.find(self.extension().tenant, name).ok_or(Error::UnknownTable)
    }

    /// Appends a line to the tenant's log while the invocation has lines left.
    pub fn log(&mut self, level: u32, text: &[u8]) {
        if self.log_lines_left > 0 {
            self.log_lines_left -= 1;
            let extension = self.extension();
            let version = (extension.id, extension.version);
            extension.log.append(level.min(3) as u8, version, self.now_ms(), text);
        }
    }

    /// Returns milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.environment().wall_ms
    }

    #[inline(always)]
    pub(super) fn place<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
        key: &'e [u8],
    ) -> Result<ObjectPlace<'e>, Error> {
        let key = checked_key(key)?;
        let hash = store::hash(key);
        let part = self.entry(environment, id)?.parts.find(key, hash).ok_or(Error::NotLocal)?;
        Ok(ObjectPlace { id, table: part, hash, key })
    }

    /// Returns the table with this number.
    #[inline(always)]
    pub(super) fn entry<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
    ) -> Result<&'e TableEntry, Error> {
        match self.table {
            // SAFETY: found in the tables of this environment, which do not change during a poll.
            Some((known, entry)) if known == id => Ok(unsafe { entry.as_ref() }),
            _ => self.find_table(environment, id),
        }
    }

    /// Returns the part that holds all keys of a table with this beginning.
    pub(super) fn part_of<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
        beginning: &[u8],
    ) -> Result<&'e Table, Error> {
        let part = self.entry(environment, id)?.parts.part_of(beginning).ok_or(Error::NotLocal)?;
        if part.is_complete() {
            return Ok(part);
        }
        // The arrival may take much longer than an invocation should keep its reads.
        self.lacking.is_refused = true;
        Err(Error::Unavailable)
    }

    /// Requests all listed objects of a table that are in transit; the call is repeated when the first one arrives.
    #[cold]
    fn want_all<'k>(
        &mut self,
        environment: &WorkerEnvironment<'_>,
        id: u32,
        keys: impl Iterator<Item = ((&'k Table, u64), &'k [u8])> + Clone,
    ) -> Result<(), Error> {
        let count = keys.clone().count() as u64;
        for ((part, hash), key) in keys {
            let is_known =
                self.transaction.has_written(id, hash, key) || environment.pin.knows(part, hash, key);
            if !is_known {
                self.lack(part, hash);
            }
        }
        if !self.lacking.is_pending {
            return Ok(());
        }
        self.spending.take_back_reads(count);
        Err(Error::Unavailable)
    }

    /// Marks the call as lacking the objects of a hash, to be repeated.
    pub(super) fn lack(&mut self, part: &Table, hash: u64) {
        self.lacking.is_pending = true;
        // If too many hashes are requested, it is polled again at its next turn.
        if part.want(hash) && self.lacking.awaited.is_none() {
            self.lacking.awaited = Some(Awaited::Arrival(part.id(), hash));
        }
    }

    /// Like [`Access::refuse`] for a place for which `reads` reads were counted.
    #[cold]
    pub(super) fn refuse_at(&mut self, place: ObjectPlace<'_>, error: TransactionError, reads: u64) -> Error {
        if error == TransactionError::NotArrived {
            self.lack(place.table, place.hash);
            self.spending.take_back_reads(reads);
        }
        self.refuse(error)
    }

    #[inline]
    fn place_to_write<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
        key: &'e [u8],
    ) -> Result<ObjectPlace<'e>, Error> {
        let place = self.place(environment, id, key)?;
        if self.table_writable { Ok(place) } else { Err(Error::NotPermitted) }
    }

    #[inline(never)]
    fn find_table<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
    ) -> Result<&'e TableEntry, Error> {
        let entry = environment.tables.get(self.extension().tenant, id).ok_or(Error::UnknownTable)?;
        self.table = Some((id, NonNull::from(&**entry)));
        self.table_writable = entry.writable;
        Ok(entry)
    }

    fn may_write(&self) -> Result<(), Error> {
        if self.mode == CallMode::Write { Ok(()) } else { Err(Error::ReadOnly) }
    }

    #[cold]
    pub(super) fn refuse(&mut self, error: TransactionError) -> Error {
        match error {
            TransactionError::ConditionFailed(version) => {
                self.version_found = version;
                Error::ConditionFailed
            }
            TransactionError::NotANumber => Error::NotANumber,
            TransactionError::NotOrdered => Error::NotOrdered,
            // The extension sees "pending", and the call is repeated.
            TransactionError::NotArrived => Error::Unavailable,
            TransactionError::Refused => Error::LimitExceeded,
            TransactionError::Overflow => Error::Overflow,
            TransactionError::TooManyReads => self.spending.too_many_noted(),
            TransactionError::Full(full) => self.spending.full(full),
        }
    }
}

/// Returns a key that an object may have. Called before a key is hashed: a module may pass all of its memory, and no
/// signal ends a host call.
#[inline]
pub(super) fn checked_key(key: &[u8]) -> Result<&[u8], Error> {
    if key.len() > store::KEY_BYTES_MAX { Err(Error::KeyTooLarge) } else { Ok(key) }
}

/// Converts an object to its ABI form; an absent one has version 0.
#[inline]
pub(super) fn raw_of(found: Option<FoundObject>) -> RawRecord {
    match found {
        Some(found) => {
            let value = RawSlice { address: found.value.address(), bytes: found.value.bytes() };
            RawRecord { value, version: found.version }
        }
        None => RawRecord { value: RawSlice { address: ptr::null(), bytes: 0 }, version: 0 },
    }
}
