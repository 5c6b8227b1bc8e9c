//! The reach and the remaining budget of the running invocation: tables, write set, usage, log.
//!
//! The host calls of [`super::host`] unpack their C arguments and call this module; data calls go to [`calls`]. Lent
//! bytes lie in the log under the pin or in the invocation's memory. Results are status codes of the ABI.

mod border;
mod calls;
mod remote;

use std::ptr::{self, NonNull};

use guest::arena::Arena;
use guest::border::{CallKind, LentPart};
use sandstorm::Error;
use sandstorm::abi::{Code, OK, PENDING, RawSlice};
use wire::limits::REPLY_BYTES_MAX;

use super::allowance::{Allowance, Spending};
use super::trace::Recorder;
use super::version_metrics::Spent;
use super::{CallMode, Extension};
use crate::limits::{EXTENSION_LOG_LINES_MAX, LAST_WORDS_BYTES_MAX};
use crate::ops::WorkerEnvironment;
use crate::ops::transaction::{Transaction, Writing};
use crate::tablet::TableEntry;

/// The event that a yielding invocation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The arrival of a hash's objects in a part of the store, during a migration.
    Arrival(u32, u64),
    /// Replies of other servers to the invocation with this number.
    Answers(u64),
}

/// Objects that an invocation lacks, because they are elsewhere or still in transit.
#[derive(Clone, Copy, Debug, Default)]
struct MissingObjects {
    /// This host call returns "pending" and must be repeated.
    is_pending: bool,
    /// The event that the next poll waits for.
    awaited: Option<Awaited>,
    /// A request was refused that may succeed later: objects of its table are still in transit, or too much was asked
    /// of other servers.
    is_refused: bool,
}

/// The reach and usage of one invocation. Does not move between start and end, because the ABI holds its address.
#[derive(Debug)]
pub struct Access {
    /// The worker's environment, lent for one poll; null between polls.
    environment: *const WorkerEnvironment<'static>,
    /// The running extension; null if none runs.
    extension: *const Extension,
    /// The table used last in this poll; most functions use one table.
    table: Option<(u32, NonNull<TableEntry>)>,
    /// Whether that table is writable.
    table_writable: bool,
    mode: CallMode,
    transaction: Transaction,
    spending: Spending,
    log_lines_left: u32,
    panics: u32,
    version_found: u64,
    lacking: MissingObjects,
    /// The invocation's reads at other servers; allocated by the first one.
    remote: Option<Box<remote::Reads>>,
    last_words: *mut u8,
    last_words_bytes: usize,
    /// The recorder of host calls; null unless the invocation is traced.
    recorder: *mut Recorder,
    /// Whether the last host call has stalled; `None` if they do not.
    stall: Option<bool>,
    /// The part of a module's memory that host calls fill; empty for a native extension.
    lent: LentPart,
}

impl Access {
    /// Creates an access that reaches nothing.
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
            stall: None,
            lent: LentPart::default(),
        }
    }

    /// Sets the recorder for the host calls of a poll; null for none. The recorder lives, and nothing else uses it,
    /// until the poll ends.
    #[inline]
    pub fn record(&mut self, recorder: *mut Recorder) {
        self.recorder = recorder;
    }

    /// Returns whether host calls are recorded, or stall.
    #[inline]
    pub(super) fn is_observed(&self) -> bool {
        !self.recorder.is_null() | self.stall.is_some()
    }

    /// Makes each host call return "pending" once before it is done, for tests.
    pub(super) fn stall(&mut self, stalls: bool) {
        self.stall = stalls.then_some(false);
    }

    /// Returns whether this host call is to return "pending"; its repetition is not.
    pub(super) fn stalls(&mut self) -> bool {
        let Some(stalled) = &mut self.stall else { return false };
        *stalled = !*stalled;
        *stalled
    }

    /// Sets the part of a module's memory in which host calls lend.
    #[inline]
    pub(super) fn lend_in(&mut self, part: LentPart) {
        self.lent = part;
    }

    /// Returns the part of a module's memory in which host calls lend.
    #[inline]
    pub(super) fn lent(&self) -> LentPart {
        self.lent
    }

    /// Records the duration of a traced invocation's host call.
    pub fn note_call(&mut self, kind: CallKind, cycles: u64) {
        // SAFETY: as `record` says: a host call belongs to a poll.
        if let Some(recorder) = unsafe { self.recorder.as_mut() } {
            recorder.called(kind, cycles);
        }
    }

    /// Begins an invocation within its [allowance](Access::allow). `memory` holds the write set; `last_words` receives
    /// the text of a panic and has room for [`LAST_WORDS_BYTES_MAX`] bytes.
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

    /// Returns the reads and writes of the invocation.
    #[inline]
    pub fn transaction(&mut self) -> &mut Transaction {
        &mut self.transaction
    }

    /// Sets the allowance, effective when the next invocation begins.
    #[inline]
    pub fn allow(&mut self, allowance: Allowance) {
        self.spending.allow(allowance);
    }

    /// Returns the invocation's allowance and usage, and the limit that it reached.
    #[inline]
    #[must_use]
    pub fn spending(&self) -> &Spending {
        &self.spending
    }

    /// Returns the invocation's reads and pending writes, for its metrics.
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

    /// Takes the event that the yielding invocation waits for.
    #[inline]
    pub fn take_awaited(&mut self) -> Option<Awaited> {
        self.lacking.awaited.take()
    }

    /// Returns whether a refused request may succeed when the invocation is repeated.
    #[must_use]
    pub fn may_come_again(&self) -> bool {
        self.lacking.is_refused
    }

    /// Returns the status code of a host call's result.
    #[inline]
    pub fn code_of(&mut self, answer: Result<(), Error>) -> Code {
        match answer {
            Ok(()) => OK,
            Err(error) => self.code_of_error(error),
        }
    }

    /// Returns the status code of a host call that failed or must be repeated.
    pub fn code_of_error(&mut self, error: Error) -> Code {
        if std::mem::take(&mut self.lacking.is_pending) { PENDING } else { error.code() }
    }

    /// Returns the version found by the last failed condition.
    #[must_use]
    pub fn version_found(&self) -> u64 {
        self.version_found
    }

    /// Returns the length of the text that the invocation wrote to `last_words`.
    #[must_use]
    pub fn last_words_bytes(&self) -> usize {
        self.last_words_bytes
    }

    /// Counts a panic and returns the number of earlier ones.
    pub fn begin_panic(&mut self) -> u32 {
        self.panics += 1;
        self.panics - 1
    }

    /// Keeps the beginning of a panic's text.
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
        assert!(!self.environment.is_null(), "a host call outside a poll");
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
