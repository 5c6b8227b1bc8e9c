//! What the running invocation may reach, and how much of it is left: tables, write set, spending, log.
//!
//! The host calls of [`super::host`] unpack their C arguments and come here, those for data to [`calls`]. What is
//! lent lies in the log under the pin or in the invocation's room. Answers are codes of the border.

mod calls;
mod enumeration;
mod remote;
mod scans;

use std::ptr::{self, NonNull};

use sandstorm::Error;
use sandstorm::abi::{Code, OK, PENDING, RawSlice};
use wire::limits::REPLY_BYTES_MAX;

use super::allowance::{Allowance, Spending};
use super::trace::{CallKind, Recorder};
use super::version_metrics::Spent;
use super::{CallMode, Extension};
use crate::limits::{EXTENSION_LOG_LINES_MAX, LAST_WORDS_BYTES_MAX};
use crate::ops::WorkerEnvironment;
use crate::ops::transaction::{Transaction, Writing};
use crate::sched::arena::Arena;
use crate::tablet::TableEntry;

/// What an invocation that yields waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// What a part of the store has of a hash is still on its way here.
    Arrival(u32, u64),
    /// Answers of other servers, to the invocation of this number.
    Answers(u64),
}

/// What an invocation lacks, since it is not here, or not yet.
#[derive(Clone, Copy, Debug, Default)]
struct MissingObjects {
    /// The answer of this host call is that it is to be made again.
    is_pending: bool,
    /// What the next poll waits for.
    awaited: Option<Awaited>,
    /// It was refused something that it may have later: objects of its table have still to arrive, or too much was asked
    /// of other servers.
    is_refused: bool,
}

/// Reach and spending of one invocation. Lies still from start to end: the border holds its address.
#[derive(Debug)]
pub struct Access {
    /// What the worker lends; null between two polls.
    environment: *const WorkerEnvironment<'static>,
    /// The extension that runs; null when none does.
    extension: *const Extension,
    /// The table used last in this poll: most functions use one.
    table: Option<(u32, NonNull<TableEntry>)>,
    /// Whether that one may be written.
    table_writable: bool,
    mode: CallMode,
    transaction: Transaction,
    spending: Spending,
    log_lines_left: u32,
    panics: u32,
    version_found: u64,
    lacking: MissingObjects,
    /// What it reads at other servers, from the first such read on.
    remote: Option<Box<remote::Reads>>,
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
            mode: CallMode::Read,
            transaction: Transaction::default(),
            spending: Spending::new(),
            log_lines_left: 0,
            panics: 0,
            version_found: 0,
            lacking: MissingObjects::default(),
            remote: None,
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
    pub fn begin(&mut self, extension: &Extension, mode: CallMode, memory: Arena, last_words: *mut u8) {
        self.extension = extension;
        self.mode = mode;
        self.spending.rewind();
        let (writes, write_bytes) = (self.spending.allowance().writes, self.spending.allowance().write_bytes);
        let writing = (mode == CallMode::Write).then_some(Writing { memory, writes, write_bytes });
        self.transaction.begin(writing);
        self.log_lines_left = EXTENSION_LOG_LINES_MAX;
        self.panics = 0;
        self.version_found = 0;
        self.lacking = MissingObjects::default();
        if let Some(remote) = &mut self.remote {
            remote.clear();
        }
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
            CallMode::Read => (0, 0),
            CallMode::Write => self.transaction.written(),
        };
        Spent { reads, read_bytes, writes, write_bytes, ..Spent::default() }
    }

    /// What the invocation that yields waits for; then it is forgotten.
    #[inline]
    pub fn take_awaited(&mut self) -> Option<Awaited> {
        self.lacking.awaited.take()
    }

    /// Whether it was refused something that it may have when it comes again.
    #[must_use]
    pub fn may_come_again(&self) -> bool {
        self.lacking.is_refused
    }

    /// The code of a host call's answer.
    #[inline]
    pub fn code_of(&mut self, answer: Result<(), Error>) -> Code {
        match answer {
            Ok(()) => OK,
            Err(error) => self.code_of_error(error),
        }
    }

    /// The code of a host call that went wrong, or is to be made again.
    pub fn code_of_error(&mut self, error: Error) -> Code {
        if std::mem::take(&mut self.lacking.is_pending) { PENDING } else { error.code() }
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
}

impl Default for Access {
    fn default() -> Self {
        Self::new()
    }
}

const _: () = assert!(LAST_WORDS_BYTES_MAX <= REPLY_BYTES_MAX);
