//! The host's side of one invocation: its requests, lent memory and writes.
//!
//! Host calls come while the executor polls the function, so a task is only ever shared; its parts are cells that are
//! borrowed for one call. A ticket is the number of the first operation that a future waits for, counted from 1.
//!
//! A function that writes sees its own writes in a scan, and its commit names the ranges that it has scanned.

mod answers;
mod pages;
mod spending;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use sandstorm::abi::{RawEntry, RawRecord, VERSION_UNAPPLIED};
use sandstorm::{Condition, Level};
use wire::limits::{KEY_BYTES_MAX, TTL_MS_MAX, VALUE_BYTES_MAX};

use self::pages::AskedPage;
pub(super) use self::pages::PageOf;
use self::spending::Spending;
pub(super) use self::spending::TaskLimits;
use super::border::{Arena, Border, NOTHING};
use crate::Error;
use crate::write_set::{PendingWrite, WriteSet};

/// Maximum number of operations of one invocation.
pub(super) const OPERATIONS_MAX: usize = 1 << 18;
/// Bytes of a kept log line, as at the server.
const LINE_BYTES_MAX: usize = 256;
/// Operations for which an invocation's place keeps memory once it has asked for more bytes than [`ASKED_BYTES_KEPT`].
const OPERATIONS_KEPT: usize = 1024;
const ASKED_BYTES_KEPT: usize = 1 << 20;

/// The kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    /// Read the object of table and key.
    Object,
    /// Look up the id of the table whose name is the key.
    Table,
    /// Read a page of a table, which the operation's `page` describes.
    Page,
}

/// The reason why a host call returns no result now.
pub(super) enum Stop {
    /// The reply has not arrived.
    Pending,
    /// The call fails.
    Failed(sandstorm::Error),
}

impl From<sandstorm::Error> for Stop {
    fn from(error: sandstorm::Error) -> Stop {
        Stop::Failed(error)
    }
}

#[derive(Clone, Copy)]
enum State {
    Waiting,
    Done(RawRecord),
    Failed(sandstorm::Error),
}

/// One operation. Later invocations reuse its buffer.
struct Operation {
    ask: Lookup,
    table: u32,
    key: Vec<u8>,
    state: State,
    /// Whether it found the invocation's own write, so that nothing of the server was read.
    is_own: bool,
    /// Whether the server had read it for this invocation.
    is_known: bool,
    /// Remaining time to live of the object read, in milliseconds.
    ttl_ms: Option<u64>,
    /// Set for [`Lookup::Page`].
    page: Option<Box<AskedPage>>,
}

impl Operation {
    fn new(ask: Lookup, table: u32, (state, is_own): (State, bool)) -> Operation {
        Operation { ask, table, key: Vec::new(), state, is_own, is_known: false, ttl_ms: None, page: None }
    }
}

/// The operations of one invocation: the first `count` of the list.
#[derive(Default)]
struct Operations {
    list: Vec<Operation>,
    count: usize,
}

/// A function's knowledge of an object.
struct Seen {
    record: RawRecord,
    /// Remaining time to live, also of a pending write, in milliseconds.
    ttl_ms: Option<u64>,
}

/// An object that the server has read for the invocation.
struct ServerRead {
    table: u32,
    key: Vec<u8>,
    /// The body of the reply to a get; `None` if there was no object.
    body: Option<Vec<u8>>,
}

/// One invocation.
pub(super) struct Task {
    pub(super) border: Border,
    arena: Arena,
    may_write: Cell<bool>,
    spending: Spending,
    key: RefCell<Vec<u8>>,
    arguments: RefCell<Vec<u8>>,
    operations: RefCell<Operations>,
    /// Operations to send.
    asked: RefCell<VecDeque<usize>>,
    waiting: Cell<usize>,
    /// Objects that the server read for this invocation before.
    known: RefCell<Vec<ServerRead>>,
    reads: Cell<u32>,
    /// The version found by the last failed condition.
    version_found: Cell<u64>,
    writes: RefCell<WriteSet>,
    log: RefCell<Vec<(Level, String)>>,
    /// The server's failure, which the function received as "unavailable", or the end of a module's function.
    trouble: RefCell<Option<Error>>,
    /// Whether it is that end.
    has_ended: Cell<bool>,
    is_of_a_module: Cell<bool>,
    /// Time in the code of a module, and the bytes that it has allocated.
    computed: Cell<(Duration, usize)>,
}

impl Task {
    pub(super) fn new(reply_bytes_max: usize) -> Task {
        Task {
            border: Border::new(reply_bytes_max),
            arena: Arena::new(),
            may_write: Cell::new(false),
            spending: Spending::new(),
            key: RefCell::default(),
            arguments: RefCell::default(),
            operations: RefCell::default(),
            asked: RefCell::default(),
            waiting: Cell::new(0),
            known: RefCell::default(),
            reads: Cell::new(0),
            version_found: Cell::new(0),
            writes: RefCell::default(),
            log: RefCell::default(),
            trouble: RefCell::default(),
            has_ended: Cell::new(false),
            is_of_a_module: Cell::new(false),
            computed: Cell::default(),
        }
    }

    /// Keeps the input of an invocation. No function may run on the task.
    pub(super) fn set_input(&self, table: u32, key: &[u8], arguments: &[u8]) {
        self.key.replace_with(|old| refill(old, key));
        self.arguments.replace_with(|old| refill(old, arguments));
        self.border.set_table(table);
    }

    /// Prepares the task for the first run of an invocation, whose input it has. No function may run on it.
    pub(super) fn begin(&self, (may_write, limits): (bool, TaskLimits)) {
        self.may_write.set(may_write);
        self.spending.allow(limits);
        self.is_of_a_module.set(false);
        self.reads.set(0);
        self.begin_again();
    }

    /// Passes table, key and arguments of the invocation to `take`.
    #[cfg(feature = "modules")]
    pub(super) fn with_input<T>(&self, take: impl FnOnce(u32, &[u8], &[u8]) -> T) -> T {
        take(self.border.table(), &self.key.borrow(), &self.arguments.borrow())
    }

    /// Prepares the task for another run of the same invocation.
    pub(super) fn begin_again(&self) {
        self.arena.clear();
        let mut operations = self.operations.borrow_mut();
        operations.count = 0;
        if self.spending.begin() > ASKED_BYTES_KEPT {
            operations.list.truncate(OPERATIONS_KEPT);
            operations.list.iter_mut().for_each(|operation| operation.key = Vec::new());
        }
        drop(operations);
        self.version_found.set(0);
        self.asked.borrow_mut().clear();
        self.waiting.set(0);
        self.known.borrow_mut().clear();
        self.writes.borrow_mut().clear();
        self.trouble.replace(None);
        self.has_ended.set(false);
        self.computed.take();
        self.border.begin(self.arena.copy(&self.key.borrow()), self.arena.copy(&self.arguments.borrow()));
    }

    /// Reads objects for a host call. Returns those that are known, and requests the others.
    pub(super) fn read_many<'k>(
        &self,
        ticket: &mut u64,
        table: u32,
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        mut put: impl FnMut(usize, RawRecord),
    ) -> Result<(), Stop> {
        let count = keys.len();
        if *ticket == 0 {
            let first = self.operations.borrow().count;
            for key in keys {
                self.ask(Lookup::Object, table, key)?;
            }
            *ticket = first as u64 + 1;
        }
        // A module may pass any ticket.
        let first = *ticket as usize - 1;
        for index in 0..count {
            put(index, self.result(first.saturating_add(index))?);
        }
        Ok(())
    }

    /// Reads a page for a host call. Passes the objects, and the start of the next page, to `take`.
    pub(super) fn read_page(
        &self,
        ticket: &mut u64,
        table: u32,
        of: PageOf,
        capacity: usize,
        take: impl FnOnce(&[RawEntry], Option<&[u8]>),
    ) -> Result<(), Stop> {
        if self.may_write.get() && matches!(of, PageOf::Table { .. }) {
            return Err(sandstorm::Error::NotSerializable.into());
        }
        if *ticket == 0 {
            if let PageOf::Range { from, to, prefix, .. } = &of
                && [Some(from), to.as_ref(), Some(prefix)]
                    .into_iter()
                    .flatten()
                    .any(|key| key.len() > KEY_BYTES_MAX)
            {
                return Err(sandstorm::Error::KeyTooLarge.into());
            }
            let index = self.ask(Lookup::Page, table, &[])?;
            let objects_max = capacity.clamp(1, usize::from(u16::MAX)) as u16;
            let own = self.may_write.get().then(|| of.own_keys(table, &self.writes.borrow()));
            let own_bytes = own.iter().flatten().map(Vec::len).sum::<usize>();
            if !self.spending.asks(of.bytes() + own_bytes) {
                return Err(sandstorm::Error::LimitExceeded.into());
            }
            let page = AskedPage::new(of, objects_max, own);
            self.operations.borrow_mut().list[index].page = Some(Box::new(page));
            *ticket = index as u64 + 1;
        }
        let index = *ticket as usize - 1;
        self.result(index)?;
        let operations = self.operations.borrow();
        let page = operations.list[index].page.as_ref().ok_or(sandstorm::Error::Unknown)?;
        take(&page.met[..page.met.len().min(capacity)], page.next.as_deref());
        Ok(())
    }

    /// Looks up a table for a host call.
    pub(super) fn find_table(&self, ticket: &mut u64, name: &[u8]) -> Result<u32, Stop> {
        if *ticket == 0 {
            *ticket = self.ask(Lookup::Table, 0, name)? as u64 + 1;
        }
        self.result(*ticket as usize - 1).map(|record| record.version as u32)
    }

    /// Adds a write for a host call, if its condition holds. Without a value it is a deletion.
    pub(super) fn write(
        &self,
        ticket: &mut u64,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], Option<u64>)>,
        condition: Condition,
    ) -> Result<(), Stop> {
        self.check_write(key, value.map(|(value, _)| value))?;
        if value.is_some_and(|(_, ttl_ms)| ttl_ms.is_some_and(|ttl_ms| !(1..=TTL_MS_MAX).contains(&ttl_ms))) {
            return Err(sandstorm::Error::OutOfRange.into());
        }
        let mut seen = self.seen(table, key, false);
        if seen.is_none() && condition != Condition::Always {
            seen = Some(self.look(ticket, table, key)?);
        }
        let there = seen.as_ref().map_or(0, |seen| seen.record.version);
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => there == 0,
            Condition::Present => there != 0,
            Condition::Version(version) => there == version,
        };
        if !holds {
            self.version_found.set(there);
            return Err(sandstorm::Error::ConditionFailed.into());
        }
        Ok(self.add_write(table, key, value)?)
    }

    /// Replaces a number by the result of `sum` for a host call.
    pub(super) fn add(
        &self,
        ticket: &mut u64,
        table: u32,
        key: &[u8],
        sum: impl FnOnce([u8; 8]) -> Option<[u8; 8]>,
    ) -> Result<[u8; 8], Stop> {
        self.check_write(key, None)?;
        let seen = match self.seen(table, key, true) {
            Some(seen) => seen,
            None => self.look(ticket, table, key)?,
        };
        let old = match (seen.record.version, Border::bytes(seen.record.value).try_into()) {
            (0, _) => [0; 8],
            (_, Ok(bytes)) => bytes,
            (_, Err(_)) => return Err(sandstorm::Error::NotANumber.into()),
        };
        let sum = sum(old).ok_or(sandstorm::Error::Overflow)?;
        let number = (&sum[..], seen.ttl_ms);
        self.add_write(table, key, Some(number))?;
        Ok(sum)
    }

    /// Adds a write, unless the function writes too many objects.
    fn add_write(
        &self,
        table: u32,
        key: &[u8],
        value: Option<(&[u8], Option<u64>)>,
    ) -> Result<(), sandstorm::Error> {
        let (mut writes, limits) = (self.writes.borrow_mut(), self.spending.limits());
        if writes.len() >= limits.writes && writes.get(table, key).is_none() {
            return Err(sandstorm::Error::LimitExceeded);
        }
        let (value, ttl_ms) = value.map_or((None, None), |(value, ttl_ms)| (Some(value), ttl_ms));
        if !self.spending.writes(key.len() + value.map_or(0, <[u8]>::len)) {
            return Err(sandstorm::Error::LimitExceeded);
        }
        writes.put(table, key, value, ttl_ms);
        Ok(())
    }

    /// Keeps a log line.
    pub(super) fn log(&self, level: Level, text: &[u8]) {
        if self.spending.logs() {
            let text = &text[..text.len().min(LINE_BYTES_MAX)];
            self.log.borrow_mut().push((level, String::from_utf8_lossy(text).into_owned()));
        }
    }

    fn check_write(&self, key: &[u8], value: Option<&[u8]>) -> Result<(), sandstorm::Error> {
        if !self.may_write.get() {
            return Err(sandstorm::Error::ReadOnly);
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(sandstorm::Error::KeyTooLarge);
        }
        match value {
            Some(value) if value.len() > VALUE_BYTES_MAX => Err(sandstorm::Error::ValueTooLarge),
            _ => Ok(()),
        }
    }

    /// Adds an operation. Completes it at once if the invocation itself wrote the object.
    fn ask(&self, ask: Lookup, table: u32, key: &[u8]) -> Result<usize, sandstorm::Error> {
        if key.len() > KEY_BYTES_MAX {
            return Err(sandstorm::Error::KeyTooLarge);
        }
        let is_own = ask == Lookup::Object && self.writes.borrow().get(table, key).is_some();
        let is_read = ask != Lookup::Table && !is_own;
        let mut operations = self.operations.borrow_mut();
        let index = operations.count;
        if index == OPERATIONS_MAX
            || is_read && !self.spending.reads(1)
            || !self.spending.asks(key.len())
            || is_own && !self.may_be_lent_more()
        {
            return Err(sandstorm::Error::LimitExceeded);
        }
        let own = if is_own { self.own_write(table, key) } else { None };
        let state = own.map_or(State::Waiting, State::Done);
        if let Some(operation) = operations.list.get_mut(index) {
            let key = refill(&mut operation.key, key);
            *operation = Operation { key, ..Operation::new(ask, table, (state, is_own)) };
        } else {
            operations
                .list
                .push(Operation { key: key.to_vec(), ..Operation::new(ask, table, (state, is_own)) });
        }
        operations.count += 1;
        drop(operations);
        if own.is_none() {
            self.waiting.set(self.waiting.get() + 1);
            if ask != Lookup::Object || !self.answer_from_server_reads(index, table, key) {
                self.asked.borrow_mut().push_back(index);
                self.reads.set(self.reads.get() + 1);
            }
        }
        Ok(index)
    }

    fn own_write(&self, table: u32, key: &[u8]) -> Option<RawRecord> {
        let writes = self.writes.borrow();
        let write = writes.get(table, key)?;
        Some(match &write.value {
            Some(value) => RawRecord { value: self.arena.copy(value), version: VERSION_UNAPPLIED },
            None => Border::NO_RECORD,
        })
    }

    fn result(&self, index: usize) -> Result<RawRecord, Stop> {
        let operations = self.operations.borrow();
        match operations.list[..operations.count].get(index).map(|operation| operation.state) {
            Some(State::Done(record)) => Ok(record),
            Some(State::Waiting) => Err(Stop::Pending),
            Some(State::Failed(error)) => Err(error.into()),
            None => Err(sandstorm::Error::Unknown.into()),
        }
    }

    /// Reads an object whose version is needed before a write.
    fn look(&self, ticket: &mut u64, table: u32, key: &[u8]) -> Result<Seen, Stop> {
        if *ticket == 0 {
            *ticket = self.ask(Lookup::Object, table, key)? as u64 + 1;
        }
        let index = *ticket as usize - 1;
        let record = self.result(index)?;
        let ttl_ms = self.operations.borrow().list[index].ttl_ms;
        Ok(Seen { record, ttl_ms })
    }

    /// Returns an object as the invocation wrote it, or else first read it; of what it wrote, if it `adds`, the value of a number.
    fn seen(&self, table: u32, key: &[u8], adds: bool) -> Option<Seen> {
        let operations = self.operations.borrow();
        let read = operations.list[..operations.count].iter().find_map(|operation| match operation.state {
            State::Done(record)
                if operation.ask == Lookup::Object
                    && !operation.is_own
                    && operation.table == table
                    && operation.key == key =>
            {
                Some((record, operation.ttl_ms))
            }
            _ => None,
        });
        let writes = self.writes.borrow();
        match writes.get(table, key) {
            Some(PendingWrite { value: None, .. }) => Some(Seen { record: Border::NO_RECORD, ttl_ms: None }),
            Some(PendingWrite { value: Some(value), ttl_ms }) => {
                // Of anything else the length is wrong, whatever it is.
                let number = value.first_chunk::<8>().filter(|_| adds && value.len() == 8);
                let value = number.map_or(NOTHING, |number| self.arena.copy(number));
                let record = RawRecord { value, version: VERSION_UNAPPLIED };
                Some(Seen { record, ttl_ms: *ttl_ms })
            }
            None => read.map(|(record, ttl_ms)| Seen { record, ttl_ms }),
        }
    }
}

/// Returns the buffer of `old`, with new contents.
fn refill(old: &mut Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    let mut buffer = std::mem::take(old);
    buffer.clear();
    buffer.extend_from_slice(bytes);
    buffer
}
