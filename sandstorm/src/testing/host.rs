//! The host calls of a [`MemoryDb`](super::MemoryDb), and the write set of the calling invocation.
//!
//! Values are reference-counted and never change, so lent memory stays valid while the state is borrowed or the write
//! set lives.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::ffi::c_void;

use super::State;
use crate::Condition;
use crate::Error;
use crate::Level;
use crate::abi::Code;
use crate::abi::Host;
use crate::abi::OK;
use crate::abi::PENDING;
use crate::abi::RANGE_HAS_AFTER;
use crate::abi::RANGE_HAS_TO;
use crate::abi::RANGE_REVERSE;
use crate::abi::RawCondition;
use crate::abi::RawEntry;
use crate::abi::RawListed;
use crate::abi::RawRange;
use crate::abi::RawRecord;
use crate::abi::RawScanned;
use crate::abi::RawSlice;
use crate::abi::TTL_FOREVER;
use crate::abi::VERSION_UNAPPLIED;

/// The store's maximum size of a key, in bytes.
const KEY_BYTES_MAX: usize = (64 << 10) - 1;
/// The store's maximum size of a value, in bytes.
const VALUE_BYTES_MAX: usize = 1 << 20;

/// The table of host calls.
pub(super) static HOST: Host =
    Host { get, get_many, scan, enumerate, put, delete, increment, increment_float, table, log, now_ms };

/// One write; without a value a deletion.
pub(super) struct Write {
    pub(super) table: u32,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Rc<[u8]>>,
    /// Time when the object expires; `u64::MAX` for never.
    pub(super) expires_ms: u64,
}

/// The context of the host calls: one invocation.
pub(super) struct Invocation<'s> {
    state: &'s State,
    may_write: bool,
    /// Every write in order; none is removed, because values may be lent.
    writes: RefCell<Vec<Write>>,
    /// Index of the latest write of an object.
    latest: RefCell<BTreeMap<(u32, Vec<u8>), usize>>,
    log: RefCell<Vec<(Level, String)>>,
}

impl<'s> Invocation<'s> {
    /// Returns an invocation that has done nothing yet.
    pub(super) fn new(state: &'s State, may_write: bool) -> Invocation<'s> {
        Invocation {
            state,
            may_write,
            writes: RefCell::default(),
            latest: RefCell::default(),
            log: RefCell::default(),
        }
    }

    /// Returns the write set and the log lines.
    pub(super) fn finish(self) -> (Vec<Write>, Vec<(Level, String)>) {
        (self.writes.into_inner(), self.log.into_inner())
    }

    /// Returns the object as the invocation sees it: version (0: none) and value.
    fn look_up(&self, table: u32, key: &[u8]) -> Result<(u64, Rc<[u8]>), Error> {
        if !self.state.tables.values().any(|id| *id == table) {
            return Err(Error::UnknownTable);
        }
        let name = (table, key.to_vec());
        if let Some(index) = self.latest.borrow().get(&name) {
            let value = &self.writes.borrow()[*index].value;
            return Ok(value.as_ref().map_or((0, Rc::from([])), |value| (VERSION_UNAPPLIED, value.clone())));
        }
        let object = self.state.object(&name);
        Ok(object.map_or((0, Rc::from([])), |object| (object.version, object.value.clone())))
    }

    /// Returns the objects of a range as the invocation sees them. Lends keys and values, which state and write set
    /// keep.
    fn scan(&self, table: u32, range: &RawRange, capacity: usize) -> Result<Vec<RawEntry>, Error> {
        if !self.state.tables.values().any(|id| *id == table) {
            return Err(Error::UnknownTable);
        }
        if !self.state.ordered.contains(&table) {
            return Err(Error::NotOrdered);
        }
        // SAFETY: the caller lends the slices of the range during the call.
        let [from, to, prefix, after] =
            [range.from, range.to, range.prefix, range.after].map(|slice| unsafe { slice.as_slice() });
        let has = |flag: u32| range.flags & flag != 0;
        let passed = |key: &[u8]| if has(RANGE_REVERSE) { key >= after } else { key <= after };
        let is_in = |key: &[u8]| {
            let below_end = !has(RANGE_HAS_TO) || key < to;
            key >= from && below_end && key.starts_with(prefix) && !(has(RANGE_HAS_AFTER) && passed(key))
        };
        let mut seen: BTreeMap<&[u8], RawEntry> = BTreeMap::new();
        for ((id, key), object) in &self.state.objects {
            if *id == table && is_in(key) {
                let record = RawRecord { value: RawSlice::of(&object.value), version: object.version };
                seen.insert(key, RawEntry { key: RawSlice::of(key), record });
            }
        }
        let writes = self.writes.borrow();
        for write in writes.iter().filter(|write| write.table == table && is_in(&write.key)) {
            match &write.value {
                Some(value) => {
                    let record = RawRecord { value: RawSlice::of(value), version: VERSION_UNAPPLIED };
                    seen.insert(&write.key, RawEntry { key: RawSlice::of(&write.key), record });
                }
                None => drop(seen.remove(&write.key[..])),
            }
        }
        let entries = seen.into_values();
        Ok(if has(RANGE_REVERSE) {
            entries.rev().take(capacity).collect()
        } else {
            entries.take(capacity).collect()
        })
    }

    /// Adds a write to the write set if it passes limits and condition.
    fn write(
        &self,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], u64)>,
        condition: RawCondition,
    ) -> Result<(), Error> {
        if !self.may_write {
            return Err(Error::ReadOnly);
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::KeyTooLarge);
        }
        if value.is_some_and(|(value, _)| value.len() > VALUE_BYTES_MAX) {
            return Err(Error::ValueTooLarge);
        }
        let (version, _) = self.look_up(table, key)?;
        let holds = match Condition::from_raw(condition) {
            Some(Condition::Always) => true,
            Some(Condition::Absent) => version == 0,
            Some(Condition::Present) => version != 0,
            Some(Condition::Version(wanted)) => version == wanted,
            None => false,
        };
        if !holds {
            return Err(Error::ConditionFailed);
        }
        let mut writes = self.writes.borrow_mut();
        self.latest.borrow_mut().insert((table, key.to_vec()), writes.len());
        let expires_ms = value.map_or(u64::MAX, |(_, expires_ms)| expires_ms);
        writes.push(Write {
            table,
            key: key.to_vec(),
            value: value.map(|(value, _)| Rc::from(value)),
            expires_ms,
        });
        Ok(())
    }

    /// Replaces an object's number by the result of `sum`, and returns it.
    fn add(
        &self,
        table: u32,
        key: &[u8],
        sum: impl FnOnce([u8; 8]) -> Option<[u8; 8]>,
    ) -> Result<[u8; 8], Error> {
        let (version, value) = self.look_up(table, key)?;
        let old = match <[u8; 8]>::try_from(&*value) {
            Ok(bytes) => bytes,
            Err(_) if version == 0 => [0; 8],
            Err(_) => return Err(Error::NotANumber),
        };
        let sum = sum(old).ok_or(Error::Overflow)?;
        let expires_ms = self.expiry(table, key);
        self.write(table, key, Some((&sum, expires_ms)), RawCondition { kind: 0, version: 0 })?;
        Ok(sum)
    }

    /// Returns the expiry time of the object that the invocation sees.
    fn expiry(&self, table: u32, key: &[u8]) -> u64 {
        let name = (table, key.to_vec());
        if let Some(index) = self.latest.borrow().get(&name) {
            return self.writes.borrow()[*index].expires_ms;
        }
        self.state.object(&name).map_or(u64::MAX, |object| object.expires_ms)
    }

    /// Returns whether the database is stalling and this is the first poll of an operation.
    fn stalls(&self, ticket: &mut u64) -> bool {
        let stalls = self.state.stalling && *ticket == 0;
        if stalls {
            *ticket = 1;
        }
        stalls
    }
}

/// Makes a host call: pending if stalling, else the result of `operation`.
///
/// # Safety
/// `context` is an [`Invocation`] and `ticket` is valid.
unsafe fn answer(
    context: *mut c_void,
    ticket: *mut u64,
    operation: impl FnOnce(&Invocation<'_>) -> Result<(), Error>,
) -> Code {
    // SAFETY: by contract; the invocation is only ever shared.
    let (invocation, ticket) = unsafe { (&*context.cast::<Invocation<'_>>(), &mut *ticket) };
    if invocation.stalls(ticket) {
        return PENDING;
    }
    operation(invocation).map_or_else(Error::code, |()| OK)
}

/// Reads one object into an ABI record. Lends the value, which state or write set keeps.
fn read(invocation: &Invocation<'_>, table: u32, key: &[u8]) -> Result<RawRecord, Error> {
    let (version, value) = invocation.look_up(table, key)?;
    Ok(RawRecord { value: RawSlice::of(&value), version })
}

unsafe extern "C" fn get(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    record: *mut RawRecord,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            record.write(read(invocation, table, key.as_slice())?);
            Ok(())
        })
    }
}

unsafe extern "C" fn get_many(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    keys: *const RawSlice,
    count: usize,
    records: *mut RawRecord,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            for index in 0..count {
                records.add(index).write(read(invocation, table, (*keys.add(index)).as_slice())?);
            }
            Ok(())
        })
    }
}

unsafe extern "C" fn scan(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    range: *const RawRange,
    entries: *mut RawEntry,
    capacity: usize,
    scanned: *mut RawScanned,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            let met = invocation.scan(table, &*range, capacity)?;
            for (index, entry) in met.iter().enumerate() {
                entries.add(index).write(*entry);
            }
            let last = met.last().map_or(RawSlice::EMPTY, |entry| entry.key);
            let ended = usize::from(met.len() < capacity);
            scanned.write(RawScanned { count: met.len(), last, ended, page: RawSlice::EMPTY });
            Ok(())
        })
    }
}

unsafe extern "C" fn enumerate(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    cursor: RawSlice,
    entries: *mut RawEntry,
    capacity: usize,
    listed: *mut RawListed,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            if invocation.may_write {
                return Err(Error::NotSerializable);
            }
            let (met, page) = invocation.state.page(table, cursor.as_slice(), capacity)?;
            for (index, entry) in met.iter().enumerate() {
                entries.add(index).write(*entry);
            }
            listed.write(page);
            Ok(())
        })
    }
}

unsafe extern "C" fn put(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    value: RawSlice,
    condition: RawCondition,
    ttl_ms: u64,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            let expires_ms = match ttl_ms {
                TTL_FOREVER => u64::MAX,
                ttl_ms => invocation.state.now_ms + ttl_ms,
            };
            invocation.write(table, key.as_slice(), Some((value.as_slice(), expires_ms)), condition)
        })
    }
}

unsafe extern "C" fn delete(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    condition: RawCondition,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe { answer(context, ticket, |invocation| invocation.write(table, key.as_slice(), None, condition)) }
}

unsafe extern "C" fn increment(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: i64,
    value: *mut i64,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            let sum = |old| i64::from_le_bytes(old).checked_add(delta).map(i64::to_le_bytes);
            value.write(i64::from_le_bytes(invocation.add(table, key.as_slice(), sum)?));
            Ok(())
        })
    }
}

unsafe extern "C" fn increment_float(
    context: *mut c_void,
    ticket: *mut u64,
    table: u32,
    key: RawSlice,
    delta: f64,
    value: *mut f64,
) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            let sum = |old| Some(f64::from_le_bytes(old) + delta).filter(|sum| sum.is_finite());
            let added = invocation.add(table, key.as_slice(), |old| sum(old).map(f64::to_le_bytes))?;
            value.write(f64::from_le_bytes(added));
            Ok(())
        })
    }
}

unsafe extern "C" fn table(context: *mut c_void, ticket: *mut u64, name: RawSlice, id: *mut u32) -> Code {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe {
        answer(context, ticket, |invocation| {
            let name = str::from_utf8(name.as_slice()).map_err(|_| Error::UnknownTable)?;
            id.write(*invocation.state.tables.get(name).ok_or(Error::UnknownTable)?);
            Ok(())
        })
    }
}

unsafe extern "C" fn log(context: *mut c_void, level: u32, text: RawSlice) {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    let (invocation, text) = unsafe { (&*context.cast::<Invocation<'_>>(), text.as_slice()) };
    let level = match level {
        0 => Level::Error,
        1 => Level::Warning,
        2 => Level::Information,
        _ => Level::Debug,
    };
    invocation.log.borrow_mut().push((level, String::from_utf8_lossy(text).into_owned()));
}

unsafe extern "C" fn now_ms(context: *mut c_void) -> u64 {
    // SAFETY: called as the ABI specifies, with the context that MemoryDb gave.
    unsafe { (*context.cast::<Invocation<'_>>()).state.now_ms }
}
