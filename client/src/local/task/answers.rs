//! The executor's side of a task: operations to send, and their replies.

use std::collections::HashMap;
use std::ops::ControlFlow;

use control::{AdminRequest, TableId};
#[cfg(feature = "modules")]
use guest::border::status_of;
use sandstorm::Level;
use sandstorm::abi::RawRecord;
use wire::limits::PUSHED_BACK_BYTES_MAX;
use wire::{Changes, CommitRead, Completion, Request, Status, reply};

#[cfg(feature = "modules")]
use super::ServerRead;
use super::pages::ScannedPages;
use super::{Lookup, Operation, PageOf, State, Task};
use crate::local::border::Border;
use crate::local::{LocalFailure, Usage};
use crate::{Error, Session};

impl Task {
    /// Sends the operations until the window is full. Returns whether all were sent.
    pub(in crate::local) fn send_asks(
        &self,
        session: &mut Session,
        tables: &mut HashMap<String, u32>,
        tag_of: impl Fn(usize) -> u64,
    ) -> bool {
        loop {
            let Some(index) = self.asked.borrow_mut().pop_front() else { return true };
            let operations = self.operations.borrow();
            let operation = &operations.list[index];
            let (table, key) = (operation.table, &operation.key[..]);
            let request = match operation.ask {
                Lookup::Object => Some(Request::Get { table, key }),
                Lookup::Page => operation.page.as_ref().and_then(|page| page.request(table)),
                Lookup::Table => {
                    let found = match str::from_utf8(key).ok().and_then(|name| tables.get(name)) {
                        Some(&id) => Ok(id),
                        None if self.spending.looks_up() => find_table(session, tables, key),
                        None => Err(Error::Refused { status: Status::LimitExceeded, text: String::new() }),
                    };
                    drop(operations);
                    self.answer_table(index, found);
                    continue;
                }
            };
            let sent = request.map(|request| session.submit(&request, tag_of(index)));
            drop(operations);
            match sent {
                Some(Ok(())) => {}
                Some(Err(Error::Full)) => {
                    self.asked.borrow_mut().push_front(index);
                    return false;
                }
                Some(Err(error)) => {
                    self.trouble.replace(Some(error));
                    self.finish(index, State::Failed(sandstorm::Error::Unavailable));
                }
                // The range has no keys.
                None => self.finish(index, State::Done(Border::NO_RECORD)),
            }
        }
    }

    /// Processes the reply to an operation.
    pub(in crate::local) fn answer(&self, index: usize, completion: &Completion<'_>) {
        let is_page = self.operations.borrow().list.get(index).is_some_and(|it| it.ask == Lookup::Page);
        let state = match completion.status {
            Ok(Status::Ok) if is_page && self.may_be_lent_more() => {
                match self.answer_page(index, completion.body) {
                    Some(state) => state,
                    None => return,
                }
            }
            Ok(Status::Ok) if is_page => State::Failed(sandstorm::Error::LimitExceeded),
            Ok(Status::Ok) => match reply::Object::decode(completion.body) {
                Ok(_) if !self.may_be_lent_more() => State::Failed(sandstorm::Error::LimitExceeded),
                Ok(object) => {
                    self.note_ttl(index, object.ttl_ms);
                    State::Done(RawRecord { value: self.arena.copy(object.value), version: object.version })
                }
                Err(_) => State::Failed(sandstorm::Error::Unavailable),
            },
            Ok(Status::NotFound) => State::Done(Border::NO_RECORD),
            Ok(Status::UnknownTable) => State::Failed(sandstorm::Error::UnknownTable),
            Ok(Status::KeyTooLarge) => State::Failed(sandstorm::Error::KeyTooLarge),
            Ok(Status::NotOrdered) => State::Failed(sandstorm::Error::NotOrdered),
            Ok(Status::CursorInvalid) => State::Failed(sandstorm::Error::CursorInvalid),
            Ok(Status::NotPermitted) => State::Failed(sandstorm::Error::NotPermitted),
            Ok(_) | Err(_) => {
                if let Err(error) = Error::check(completion) {
                    self.trouble.replace(Some(error));
                }
                State::Failed(sandstorm::Error::Unavailable)
            }
        };
        self.finish(index, state);
    }

    /// Keeps what the server has read for this run.
    #[cfg(feature = "modules")]
    pub(in crate::local) fn keep_server_reads(&self, pushed_back: &reply::PushedBack<'_>) {
        // Bounds what a faulty server can make the client keep.
        let mut bytes_left = PUSHED_BACK_BYTES_MAX;
        let fits = |record: &reply::ReadRecord<'_>| {
            let left = bytes_left.checked_sub(record.bytes());
            bytes_left = left.unwrap_or(0);
            left.is_some()
        };
        let known = pushed_back.records().take_while(fits).map(|record| {
            let body = record.object.map(|object| {
                let mut body = vec![0; object.body_bytes()];
                object.encode(&mut body);
                body
            });
            ServerRead { table: record.table, key: record.key.to_vec(), body }
        });
        self.known.borrow_mut().extend(known);
    }

    /// Answers an operation from what the server has read; returns whether it was known.
    pub(super) fn answer_from_server_reads(&self, index: usize, table: u32, key: &[u8]) -> bool {
        let known = self.known.borrow();
        let Some(found) = known.iter().find(|known| known.table == table && known.key == key) else {
            return false;
        };
        let (status, body) =
            found.body.as_ref().map_or((Status::NotFound, &[][..]), |body| (Status::Ok, body));
        self.answer(index, &Completion { tag: 0, sequence: 0, status: Ok(status), body });
        if let Some(operation) = self.operations.borrow_mut().list.get_mut(index) {
            operation.is_known = true;
        }
        true
    }

    pub(super) fn may_be_lent_more(&self) -> bool {
        self.spending.may_be_lent(self.arena.bytes())
    }

    /// Ends the invocation with an error of the client.
    #[cfg(feature = "modules")]
    pub(in crate::local) fn end(&self, error: Error) -> sandstorm::Error {
        self.trouble.replace(Some(error));
        self.has_ended.set(true);
        sandstorm::Error::Unavailable
    }

    /// Ends the invocation with the error that a server answers if a function ends with this one, after `reply`.
    #[cfg(feature = "modules")]
    pub(in crate::local) fn end_with(&self, error: sandstorm::Error, reply: &[u8]) -> sandstorm::Error {
        let refused = |status| Error::Refused { status, text: String::new() };
        self.end(match error {
            sandstorm::Error::Unavailable if self.trouble.borrow().is_some() => return error,
            sandstorm::Error::Application(code) => Error::ExtensionFailed { code, message: reply.to_vec() },
            sandstorm::Error::ConditionFailed => Error::ConditionFailed { current: self.version_found.get() },
            error => refused(status_of(error).unwrap_or(Status::ExtensionPanicked)),
        })
    }

    /// Processes a page. A scan that has found nothing but not ended is continued from there.
    fn answer_page(&self, index: usize, body: &[u8]) -> Option<State> {
        let mut operations = self.operations.borrow_mut();
        let Some(Operation { table, page: Some(page), .. }) = operations.list.get_mut(index) else {
            return Some(State::Failed(sandstorm::Error::Unknown));
        };
        let is_range = !matches!(page.of, PageOf::Table { .. });
        let listing = if is_range { reply::Scanned::decode(body) } else { reply::Listing::decode(body) };
        let Ok(listing) = listing else { return Some(State::Failed(sandstorm::Error::Unavailable)) };
        let next = listing.cursor().map(<[u8]>::to_vec);
        // Corrupted objects are left out, as at the server.
        let objects = listing.filter(|listed| listed.status == Status::Ok);
        let writes = self.writes.borrow();
        let own_value = |key: &[u8]| {
            let write = writes.get(*table, key)?;
            write.value.as_ref().map(|value| self.arena.copy(value))
        };
        let is_end = page.merge(objects, next.is_none(), (&self.arena, own_value));
        let next = next.unwrap_or_default();
        if !is_end && is_range && page.met.is_empty() {
            page.cursor = next;
            self.asked.borrow_mut().push_back(index);
            return None;
        }
        page.end((!is_end).then_some(next));
        // The first one was counted when it was asked for.
        if !self.spending.reads(page.met.len().saturating_sub(1)) {
            return Some(State::Failed(sandstorm::Error::LimitExceeded));
        }
        Some(State::Done(Border::NO_RECORD))
    }

    fn note_ttl(&self, index: usize, ttl_ms: Option<u64>) {
        if let Some(operation) = self.operations.borrow_mut().list.get_mut(index) {
            operation.ttl_ms = ttl_ms;
        }
    }

    /// Stores the id of a table, or the failure of its lookup.
    fn answer_table(&self, index: usize, found: Result<u32, Error>) {
        let state = match found {
            Ok(id) => State::Done(RawRecord { version: u64::from(id), ..Border::NO_RECORD }),
            Err(Error::Refused { status: Status::UnknownTable | Status::NameInvalid, .. }) => {
                State::Failed(sandstorm::Error::UnknownTable)
            }
            Err(Error::Refused { status: Status::LimitExceeded, .. }) => {
                State::Failed(sandstorm::Error::LimitExceeded)
            }
            Err(error) => {
                self.trouble.replace(Some(error));
                State::Failed(sandstorm::Error::Unavailable)
            }
        };
        self.finish(index, state);
    }

    fn finish(&self, index: usize, state: State) {
        let mut operations = self.operations.borrow_mut();
        if let Some(operation) = operations.list.get_mut(index)
            && matches!(operation.state, State::Waiting)
        {
            operation.state = state;
            self.waiting.set(self.waiting.get() - 1);
        }
    }

    /// Returns whether there are operations to send.
    pub(in crate::local) fn asks(&self) -> bool {
        !self.asked.borrow().is_empty()
    }

    /// Returns the number of operations without a reply.
    pub(in crate::local) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// Returns what the run has used.
    pub(in crate::local) fn usage(&self) -> Usage {
        let ((compute, arena_bytes), writes) = (self.computed.get(), self.writes.borrow());
        let input_bytes = self.key.borrow().len() + self.arguments.borrow().len();
        Usage {
            read_bytes: self.arena.bytes() - input_bytes,
            writes: writes.len(),
            write_bytes: writes.bytes(),
            compute,
            arena_bytes,
        }
    }

    /// Notes that the invocation's function is one of a module.
    #[cfg(feature = "modules")]
    pub(in crate::local) fn note_module(&self) {
        self.is_of_a_module.set(true);
    }

    /// Notes what a poll of a module has computed, and the bytes that its function has allocated.
    #[cfg(feature = "modules")]
    pub(in crate::local) fn note_computed(&self, time: std::time::Duration, arena_bytes: usize) {
        self.computed.set((self.computed.get().0 + time, arena_bytes));
    }

    /// Returns the number of objects requested in all runs.
    pub(in crate::local) fn reads(&self) -> u32 {
        self.reads.get()
    }

    /// Submits the commit of a function that has ended; `None` if it needs none.
    pub(in crate::local) fn commit(&self, session: &mut Session, tag: u64) -> Option<Result<(), Error>> {
        // Functions that only read promise no more than that each read was so at one moment.
        if !self.may_write.get() {
            return None;
        }
        let (operations, writes) = (self.operations.borrow(), self.writes.borrow());
        let writes = writes.all();
        let read_version = |operation: &Operation| match operation.state {
            State::Done(record) if operation.ask == Lookup::Object && !operation.is_own => {
                Some(record.version)
            }
            _ => None,
        };
        let read = |operation| {
            let version = read_version(operation)?;
            let read = CommitRead { table: operation.table, key: &operation.key, version };
            Some((read, operation.is_known))
        };
        let operations = &operations.list[..operations.count];
        let objects: Vec<(CommitRead<'_>, bool)> = operations.iter().filter_map(read).collect();
        let pages = operations.iter().filter(|operation| matches!(operation.state, State::Done(_)));
        let pages = pages.filter_map(|operation| Some((operation.table, operation.page.as_deref()?)));
        let mut scans: Vec<ScannedPages<'_>> = Vec::new();
        for page in pages.filter_map(|(table, page)| ScannedPages::of(table, page)) {
            let joined = scans.iter_mut().rev().try_fold(page, |page, scan| match scan.join(page) {
                Ok(()) => ControlFlow::Break(()),
                Err(page) => ControlFlow::Continue(page),
            });
            scans.extend(joined.continue_value());
        }
        if writes.is_empty() && objects.len() < 2 && scans.is_empty() {
            return None;
        }
        let not_local = || Some(Err(Error::Refused { status: Status::NotLocal, text: String::new() }));
        let mut of_scans = scans.iter().filter_map(|scan| {
            let (table, prefix) = scan.place();
            session.server_of_prefix(table, prefix)
        });
        // As at the server, a scan is of one server's keys.
        let Ok(of_scans) = of_scans.try_fold(None, |found, server| match (found, server) {
            (None, Some(server)) => Ok(Some(server)),
            (Some(found), Some(server)) if found == server => Ok(Some(server)),
            _ => Err(()),
        }) else {
            return not_local();
        };
        let mut at = |table, key| session.server_of(table, key);
        let server = of_scans.or_else(|| writes.iter().find_map(|write| at(write.table, write.key)));
        let server = server.or_else(|| objects.iter().find_map(|(read, _)| at(read.table, read.key)));
        let mut is_elsewhere =
            |table, key| server.zip(at(table, key)).is_some_and(|(one, other)| one != other);
        if writes.iter().any(|write| is_elsewhere(write.table, write.key)) {
            return not_local();
        }
        let mut reads = Vec::new();
        let ranges: Vec<_> = scans.into_iter().map(|scan| scan.add_to(&mut reads)).collect();
        // What the server had read itself is its own, whatever is known of the owner here.
        let checked =
            objects.into_iter().filter(|(read, is_known)| *is_known || !is_elsewhere(read.table, read.key));
        reads.extend(checked.map(|(read, _)| read));
        let changes = Changes::listed(&reads, &ranges, &writes);
        Some(session.submit(&Request::Commit { changes }, tag))
    }

    /// Returns the failure behind a function's error: the server's, if that caused it.
    pub(in crate::local) fn failure_of(&self, error: sandstorm::Error) -> LocalFailure {
        match (error, self.trouble.take()) {
            (sandstorm::Error::Unavailable, Some(trouble)) => LocalFailure::Server(trouble),
            _ => LocalFailure::Function(error),
        }
    }

    /// Returns the failure of a function whose reads have changed in each run.
    pub(in crate::local) fn conflict(&self) -> LocalFailure {
        if self.is_of_a_module.get() {
            return LocalFailure::Server(Error::Refused { status: Status::Conflict, text: String::new() });
        }
        LocalFailure::Function(sandstorm::Error::Conflict)
    }

    /// Drops the writes of a function that has failed. Returns whether its reads are to be checked, which may be the cause.
    pub(in crate::local) fn give_up_writes(&self, failure: &LocalFailure) -> bool {
        self.writes.borrow_mut().clear();
        let is_the_functions = matches!(failure, LocalFailure::Function(_)) || self.has_ended.get();
        is_the_functions && self.may_write.get()
    }

    /// Moves the log lines to `log`.
    pub(in crate::local) fn take_log(&self, log: &mut Vec<(Level, String)>) {
        log.append(&mut self.log.borrow_mut());
    }
}

/// Asks the server for a table.
fn find_table(session: &mut Session, tables: &mut HashMap<String, u32>, name: &[u8]) -> Result<u32, Error> {
    let unknown = || Error::Refused { status: Status::UnknownTable, text: String::new() };
    let name = str::from_utf8(name).map_err(|_| unknown())?;
    let TableId { id } = session.administer(&AdminRequest::TableOpen { name })?;
    tables.insert(name.to_owned(), id);
    Ok(id)
}
