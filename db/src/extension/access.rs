//! What the running invocation may reach, and how much of it is left: tables, write set, spending, log.
//!
//! The host calls of [`super::host`] unpack their C arguments and come here. Everything that the extension
//! says is checked: lengths against the limits, tables against the tenant, writes against the mode. What is
//! lent lies in the log under the pin or in the invocation's room. Answers are codes of the border.

use std::ptr::{self, NonNull};

use sandstorm::Error;
use sandstorm::abi::{Code, OK, RawRecord, RawSlice};
use store::{Condition, Table};
use wire::limits::REPLY_BYTES_MAX;

use super::allowance::{Allowance, Spending};
use super::measures::Spent;
use super::trace::{CallKind, Recorder};
use super::{Extension, Mode};
use crate::limits::{
    EXTENSION_LOG_LINES_MAX, GET_MANY_KEYS_MAX, LAST_WORDS_BYTES_MAX, QUALIFIED_NAME_BYTES_MAX,
};
use crate::ops::WorkerEnvironment;
use crate::ops::transaction::{Found, Place, Transaction, TransactionError, Writing};
use crate::sched::arena::Arena;

/// Reach and spending of one invocation. Lies still from start to end: the border holds its address.
#[derive(Debug)]
pub struct Access {
    /// What the worker lends; null between two polls.
    environment: *const WorkerEnvironment<'static>,
    /// The extension that runs; null when none does.
    extension: *const Extension,
    /// The table used last in this poll: most functions use one.
    table: Option<(u32, NonNull<Table>)>,
    /// Whether that one may be written.
    table_writable: bool,
    mode: Mode,
    transaction: Transaction,
    spending: Spending,
    log_lines_left: u32,
    panics: u32,
    version_found: u64,
    last_words: *mut u8,
    last_words_bytes: usize,
    /// What is told of host calls; null when the invocation is not traced.
    recorder: *mut Recorder,
}

impl Access {
    /// Reaches nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            environment: ptr::null(),
            extension: ptr::null(),
            table: None,
            table_writable: false,
            mode: Mode::Read,
            transaction: Transaction::default(),
            spending: Spending::new(),
            log_lines_left: 0,
            panics: 0,
            version_found: 0,
            last_words: ptr::null_mut(),
            last_words_bytes: 0,
            recorder: ptr::null_mut(),
        }
    }

    /// Tells a recorder of the host calls of a poll; null for none. It lives, and nobody else uses it, until the
    /// poll is over.
    #[inline]
    pub fn record(&mut self, recorder: *mut Recorder) {
        self.recorder = recorder;
    }

    /// A host call of a traced invocation took this long.
    pub fn note_call(&mut self, kind: CallKind, cycles: u64) {
        // SAFETY: as `record` says: a host call belongs to a poll.
        if let Some(recorder) = unsafe { self.recorder.as_mut() } {
            recorder.called(kind, cycles);
        }
    }

    /// Begins an invocation with what its spending was [allowed](Access::allow). `memory` is for its write
    /// set; `last_words`, where the text of a panic goes, has room for [`LAST_WORDS_BYTES_MAX`] bytes.
    #[inline]
    pub fn begin(&mut self, extension: &Extension, mode: Mode, memory: Arena, last_words: *mut u8) {
        self.extension = extension;
        self.mode = mode;
        self.spending.rewind();
        let (writes, write_bytes) = (self.spending.allowance().writes, self.spending.allowance().write_bytes);
        let writing = (mode == Mode::Write).then_some(Writing { memory, writes, write_bytes });
        self.transaction.begin(writing);
        self.log_lines_left = EXTENSION_LOG_LINES_MAX;
        self.panics = 0;
        self.version_found = 0;
        self.last_words = last_words;
        self.last_words_bytes = 0;
    }

    /// Lends the worker's environment for one poll.
    ///
    /// # Safety
    /// [`Access::leave`] is called before the environment ends, and the pin in it, or an older one, is held
    /// until [`Access::begin`] is called again.
    #[inline]
    pub unsafe fn enter(&mut self, environment: &WorkerEnvironment<'_>) {
        self.environment = ptr::from_ref(environment).cast();
        self.table = None;
    }

    /// Takes the environment back.
    #[inline]
    pub fn leave(&mut self) {
        self.environment = ptr::null();
    }

    /// The writes and reads of the invocation.
    #[inline]
    pub fn transaction(&mut self) -> &mut Transaction {
        &mut self.transaction
    }

    /// What the invocation may use, from its next beginning on.
    #[inline]
    pub fn allow(&mut self, allowance: Allowance) {
        self.spending.allow(allowance);
    }

    /// What the invocation may use, and the limit that it met.
    #[inline]
    #[must_use]
    pub fn spending(&self) -> &Spending {
        &self.spending
    }

    /// What the invocation has read and would write, for who counts it.
    #[inline]
    #[must_use]
    pub fn spent(&self) -> Spent {
        let (reads, read_bytes) = self.spending.read();
        let (writes, write_bytes) = match self.mode {
            Mode::Read => (0, 0),
            Mode::Write => self.transaction.written(),
        };
        Spent { reads, read_bytes, writes, write_bytes, ..Spent::default() }
    }

    /// The version that the last failed condition met.
    #[must_use]
    pub fn version_found(&self) -> u64 {
        self.version_found
    }

    /// Bytes of the text that the invocation left behind where `begin` said.
    #[must_use]
    pub fn last_words_bytes(&self) -> usize {
        self.last_words_bytes
    }

    /// Counts a panic and answers how many there were before.
    pub fn begin_panic(&mut self) -> u32 {
        self.panics += 1;
        self.panics - 1
    }

    /// Keeps the beginning of the text of a panic.
    pub fn keep_last_words(&mut self, text: RawSlice) {
        if self.last_words.is_null() || text.address.is_null() {
            return;
        }
        self.last_words_bytes = text.bytes.min(LAST_WORDS_BYTES_MAX);
        // SAFETY: the glue lends the text for this call; the place has this much room. They may overlap,
        // since an author may panic with words of the reply.
        unsafe { ptr::copy(text.address, self.last_words, self.last_words_bytes) };
    }

    /// Reads one object. Inlined into the host call with all below it: a place handed on through memory costs
    /// as much as the lookup.
    #[inline(always)]
    pub fn get(&mut self, table: u32, key: &[u8], record: &mut RawRecord) -> Result<(), Error> {
        self.spending.reads(1)?;
        let environment = self.environment();
        let place = self.place(environment, table, key)?;
        let found = self.transaction.get(environment.pin, place).map_err(|error| self.refuse(error))?;
        self.spending.read_bytes(key.len() + found.map_or(0, |found| found.value.bytes()))?;
        *record = raw_of(found);
        Ok(())
    }

    /// Reads as many objects as there are keys: first all buckets are prefetched, then all objects.
    ///
    /// # Safety
    /// The keys are readable.
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
        let mut hashes = [0_u64; GET_MANY_KEYS_MAX];
        let whole = self.place(environment, table, &[])?.table;
        for (hash, key) in hashes.iter_mut().zip(keys) {
            // SAFETY: readable, as the caller promises.
            *hash = store::hash(checked_key(unsafe { key.as_slice() })?);
            pin.prefetch_bucket(whole, *hash);
        }
        for (hash, key) in hashes.iter().zip(keys) {
            pin.prefetch_key(whole, *hash, key.bytes);
        }
        for (index, key) in keys.iter().enumerate() {
            // SAFETY: as above.
            let key = unsafe { key.as_slice() };
            let place = Place { id: table, table: whole, hash: hashes[index], key };
            let found = self.transaction.get(pin, place).map_err(|error| self.refuse(error))?;
            self.spending.read_bytes(key.len() + found.map_or(0, |found| found.value.bytes()))?;
            // SAFETY: there is a record for each key.
            unsafe { records.add(index).write(raw_of(found)) };
        }
        Ok(())
    }

    /// Takes a write, or with `value` `None` a deletion.
    pub fn write(
        &mut self,
        table: u32,
        key: &[u8],
        value: Option<&[u8]>,
        condition: Condition,
    ) -> Result<(), Error> {
        self.may_write()?;
        if value.is_some_and(|value| value.len() > store::VALUE_BYTES_MAX) {
            return Err(Error::ValueTooLarge);
        }
        let environment = self.environment();
        let place = self.place_to_write(environment, table, key)?;
        let taken = self.transaction.write(environment.pin, place, value, condition);
        taken.map_err(|error| self.refuse(error))
    }

    /// Adds to a number and gives the sum.
    pub fn increment(&mut self, table: u32, key: &[u8], delta: i64) -> Result<i64, Error> {
        self.may_write()?;
        self.spending.reads(1)?;
        self.spending.read_bytes(key.len() + size_of::<i64>())?;
        let environment = self.environment();
        let place = self.place_to_write(environment, table, key)?;
        self.transaction.increment(environment.pin, place, delta).map_err(|error| self.refuse(error))
    }

    /// The number of the tenant's table of this name, or of one that is granted to it, `owner/name`.
    pub fn table_named(&self, name: &[u8]) -> Result<u32, Error> {
        let name = name.get(..name.len().min(QUALIFIED_NAME_BYTES_MAX + 1)).unwrap_or_default();
        let name = str::from_utf8(name).map_err(|_| Error::UnknownTable)?;
        self.environment().tables.find(self.extension().tenant, name).ok_or(Error::UnknownTable)
    }

    /// Appends a line to the tenant's log, as long as the invocation has lines left.
    pub fn log(&mut self, level: u32, text: &[u8]) {
        if self.log_lines_left > 0 {
            self.log_lines_left -= 1;
            let extension = self.extension();
            let version = (extension.id, extension.version);
            extension.log.append(level.min(3) as u8, version, self.now_ms(), text);
        }
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.environment().wall_ms
    }

    #[inline]
    fn environment<'e>(&self) -> &'e WorkerEnvironment<'e> {
        assert!(!self.environment.is_null(), "a host call outside of a poll");
        // SAFETY: lent by `enter`, and not yet taken back. Callers use it within one host call.
        unsafe { &*self.environment.cast::<WorkerEnvironment<'e>>() }
    }

    #[inline]
    fn extension<'e>(&self) -> &'e Extension {
        // SAFETY: the invocation holds the extension from `begin` to its end, and host calls happen between.
        unsafe { &*self.extension }
    }

    #[inline(always)]
    fn place<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
        key: &'e [u8],
    ) -> Result<Place<'e>, Error> {
        let table = match self.table {
            // SAFETY: found in the tables of this environment, which do not change during a poll.
            Some((known, table)) if known == id => unsafe { table.as_ref() },
            _ => self.find_table(environment, id)?,
        };
        Ok(Place { id, table, hash: store::hash(key), key: checked_key(key)? })
    }

    #[inline]
    fn place_to_write<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
        key: &'e [u8],
    ) -> Result<Place<'e>, Error> {
        let place = self.place(environment, id, key)?;
        if self.table_writable { Ok(place) } else { Err(Error::NotPermitted) }
    }

    #[inline(never)]
    fn find_table<'e>(
        &mut self,
        environment: &'e WorkerEnvironment<'e>,
        id: u32,
    ) -> Result<&'e Table, Error> {
        let entry = environment.tables.get(self.extension().tenant, id).ok_or(Error::UnknownTable)?;
        self.table = Some((id, NonNull::from(&*entry.table)));
        self.table_writable = entry.writable;
        Ok(&entry.table)
    }

    fn may_write(&self) -> Result<(), Error> {
        if self.mode == Mode::Write { Ok(()) } else { Err(Error::ReadOnly) }
    }

    #[cold]
    fn refuse(&mut self, error: TransactionError) -> Error {
        match error {
            TransactionError::ConditionFailed(version) => {
                self.version_found = version;
                Error::ConditionFailed
            }
            TransactionError::NotANumber => Error::NotANumber,
            TransactionError::Overflow => Error::Overflow,
            TransactionError::TooManyReads => self.spending.too_many_noted(),
            TransactionError::Full(full) => self.spending.full(full),
        }
    }
}

impl Default for Access {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn checked_key(key: &[u8]) -> Result<&[u8], Error> {
    if key.len() > store::KEY_BYTES_MAX { Err(Error::KeyTooLarge) } else { Ok(key) }
}

/// An object at the border: an absent one has version 0.
#[inline]
fn raw_of(found: Option<Found>) -> RawRecord {
    match found {
        Some(found) => {
            let value = RawSlice { address: found.value.address(), bytes: found.value.bytes() };
            RawRecord { value, version: found.version }
        }
        None => RawRecord { value: RawSlice { address: ptr::null(), bytes: 0 }, version: 0 },
    }
}

/// The code of a host call's answer.
#[inline]
pub fn code_of(answer: Result<(), Error>) -> Code {
    match answer {
        Ok(()) => OK,
        Err(error) => error.code(),
    }
}

const _: () = assert!(LAST_WORDS_BYTES_MAX <= REPLY_BYTES_MAX);
