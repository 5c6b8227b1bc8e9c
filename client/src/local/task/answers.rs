//! The executor's side of a task: what is to be sent, and the answers that come.

use sandstorm::Level;
use sandstorm::abi::RawRecord;
use wire::{Completion, Request, Status, reply};

use super::{Lookup, State, Task};
use crate::Error;
use crate::local::LocalFailure;
use crate::local::border::Border;
use crate::local::write_set::PendingWrite;

/// Bytes that one invocation may be lent.
const LENT_BYTES_MAX: usize = 256 << 20;

/// An operation that is to be sent.
pub(in crate::local) enum AskedOperation<'o> {
    /// As this request.
    Request(Request<'o>),
    /// The id of the table of this name is wanted.
    Table(&'o [u8]),
    /// There is nothing to ask for: the answer is empty.
    Nothing,
}

/// What became of an operation that was to be sent.
pub(in crate::local) enum Sending {
    /// Its answer will come.
    Sent,
    /// There is no place for it now.
    Full,
    /// It cannot be sent.
    Failed(Error),
    /// It has been answered: a table's id.
    Table(Result<u32, Error>),
    /// It needs no answer.
    Nothing,
}

impl Task {
    /// Gives every operation that is to be sent to `send`, until one finds the window full: that stays the
    /// next one. Returns whether all were taken.
    pub(in crate::local) fn send_asks(
        &self,
        mut send: impl FnMut(usize, AskedOperation<'_>) -> Sending,
    ) -> bool {
        loop {
            let Some(index) = self.asked.borrow_mut().pop_front() else { return true };
            let sending = {
                let operation = &self.operations.borrow().list[index];
                let (table, key) = (operation.table, &operation.key[..]);
                let asked = match (operation.ask, &operation.page) {
                    (Lookup::Object, _) => AskedOperation::Request(Request::Get { table, key }),
                    (Lookup::Table, _) => AskedOperation::Table(key),
                    (Lookup::Page, page) => {
                        let request = page.as_ref().and_then(|page| page.request(table));
                        request.map_or(AskedOperation::Nothing, AskedOperation::Request)
                    }
                };
                match asked {
                    AskedOperation::Nothing => Sending::Nothing,
                    asked => send(index, asked),
                }
            };
            match sending {
                Sending::Sent => {}
                Sending::Full => {
                    self.asked.borrow_mut().push_front(index);
                    return false;
                }
                Sending::Failed(error) => {
                    self.trouble.replace(Some(error));
                    self.settle(index, State::Failed(sandstorm::Error::Unavailable));
                }
                Sending::Table(found) => self.answer_table(index, found),
                Sending::Nothing => self.settle(index, State::Done(Border::NO_RECORD)),
            }
        }
    }

    /// Takes the answer to an operation.
    pub(in crate::local) fn answer(&self, index: usize, completion: &Completion<'_>) {
        let is_page = self.operations.borrow().list.get(index).is_some_and(|it| it.ask == Lookup::Page);
        let state = match completion.status {
            Ok(Status::Ok) if is_page && self.arena.bytes() <= LENT_BYTES_MAX => {
                match self.answer_page(index, completion.body) {
                    Some(state) => state,
                    None => return,
                }
            }
            Ok(Status::Ok) if is_page => State::Failed(sandstorm::Error::LimitExceeded),
            Ok(Status::Ok) => match reply::Object::decode(completion.body) {
                Ok(_) if self.arena.bytes() > LENT_BYTES_MAX => {
                    State::Failed(sandstorm::Error::LimitExceeded)
                }
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
        self.settle(index, state);
    }

    fn note_ttl(&self, index: usize, ttl_ms: Option<u64>) {
        if let Some(operation) = self.operations.borrow_mut().list.get_mut(index) {
            operation.ttl_ms = ttl_ms;
        }
    }

    /// Takes the id of a table, or why there is none.
    fn answer_table(&self, index: usize, found: Result<u32, Error>) {
        let state = match found {
            Ok(id) => State::Done(RawRecord { version: u64::from(id), ..Border::NO_RECORD }),
            Err(Error::Refused { status: Status::UnknownTable | Status::NameInvalid, .. }) => {
                State::Failed(sandstorm::Error::UnknownTable)
            }
            Err(error) => {
                self.trouble.replace(Some(error));
                State::Failed(sandstorm::Error::Unavailable)
            }
        };
        self.settle(index, state);
    }

    fn settle(&self, index: usize, state: State) {
        let mut operations = self.operations.borrow_mut();
        if let Some(operation) = operations.list.get_mut(index)
            && matches!(operation.state, State::Waiting)
        {
            operation.state = state;
            self.waiting.set(self.waiting.get() - 1);
        }
    }

    /// Whether there are operations to be sent.
    pub(in crate::local) fn asks(&self) -> bool {
        !self.asked.borrow().is_empty()
    }

    /// Operations whose answer has not come.
    pub(in crate::local) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// Objects asked for since the invocation began, over all its runs.
    pub(in crate::local) fn reads(&self) -> u32 {
        self.reads.get()
    }

    pub(in crate::local) fn write_count(&self) -> usize {
        self.writes.borrow().len()
    }

    /// Lends a write of the write set.
    pub(in crate::local) fn with_write<T>(
        &self,
        index: usize,
        apply: impl FnOnce(&PendingWrite) -> T,
    ) -> Option<T> {
        self.writes.borrow().get(index).map(apply)
    }

    /// What a function's error means to its caller: trouble with the server, when that is behind it.
    pub(in crate::local) fn failure_of(&self, error: sandstorm::Error) -> LocalFailure {
        match (error, self.trouble.take()) {
            (sandstorm::Error::Unavailable, Some(trouble)) => LocalFailure::Server(trouble),
            _ => LocalFailure::Function(error),
        }
    }

    /// Moves the log lines to `log`.
    pub(in crate::local) fn take_log(&self, log: &mut Vec<(Level, String)>) {
        log.append(&mut self.log.borrow_mut());
    }

    /// The reply of a function that has ended.
    pub(in crate::local) fn reply(&self) -> &[u8] {
        self.border.reply()
    }
}
