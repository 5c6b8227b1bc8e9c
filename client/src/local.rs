//! Runs an extension's function in the client: the same code, with its reads as plain gets over the session.
//!
//! [`Local::spawn`] starts an invocation, [`Local::poll`] advances all of them. A function runs until it waits for
//! records, its gets share frames with those of the others, and it continues when the replies are there. Its writes
//! stay in its write set, where it reads them back. If the function ends without an error, they are committed as one, if
//! everything that it read of their server is unchanged: as at the server, strictly serializable. All writes must belong to
//! one server, as far as the session knows; what was read of others is not validated, as there. If a function
//! that may write ends with an error, what it read is validated too: a round trip lies between two reads, so it may have seen a state
//! that never existed.
//!
//! ```text
//! spawn -> running -> waiting for records -> running .. -> committing -> finished
//!             ^                                                |
//!             +------------ what it read has changed ----------+
//! ```
//! As at the server, only functions that read may enumerate a table.

mod border;
mod host;
#[cfg(feature = "modules")]
mod module_run;
#[cfg(feature = "modules")]
mod modules;
mod task;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sandstorm::{Args, Db, Level, Reply};
#[cfg(feature = "modules")]
use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX};
use wire::{Completion, Status};

#[cfg(feature = "modules")]
use self::module_run::ModuleThread;
#[cfg(feature = "modules")]
pub use self::modules::{Module, ModuleError, ModuleRuntime};
use self::task::{Task, TaskLimits};
use crate::{Error, Session};

/// First tag of local invocations, below those of blocking calls.
const LOCAL_TAGS: u64 = 1 << 62;
const OPERATION_BITS: u32 = 20;
const GENERATION_BITS: u32 = 20;
/// Operation number of a commit.
const COMMITTING: usize = (1 << OPERATION_BITS) - 1;
/// Maximum number of runs of an invocation whose commits meet conflicts.
const RUNS_MAX: u32 = 8;

const _: () = assert!(task::OPERATIONS_MAX < COMMITTING);

type Run = Pin<Box<dyn Future<Output = Result<(), sandstorm::Error>>>>;
type Start = Box<dyn Fn(&Rc<Task>) -> Run>;

/// The slot of one invocation, reused by the next one.
struct LocalInvocation {
    task: Rc<Task>,
    /// Distinguishes late replies to an earlier invocation of this slot.
    generation: u64,
    id: u64,
    run: Option<Run>,
    /// Restarts the function.
    start: Option<Start>,
    /// How the function ended, if what it has read is still as it was.
    failure: Option<LocalFailure>,
    runs: u32,
    round_trips: u32,
}

/// An executor of invocations in the client, over one session.
pub struct Local {
    session: Session,
    places: Vec<LocalInvocation>,
    free: Vec<usize>,
    runnable: VecDeque<usize>,
    /// Slots whose requests found the session's window full.
    starved: VecDeque<usize>,
    /// Slots whose commit found the session's window full.
    blocked: VecDeque<usize>,
    /// Commits completed in the current batch.
    ended: Vec<(usize, Result<(), Option<Error>>)>,
    tables: HashMap<String, u32>,
    log: Vec<(Level, String)>,
    next_id: u64,
    /// Whether invocations end without their commits.
    is_dry: bool,
    /// What this thread has for modules, once there was one.
    #[cfg(feature = "modules")]
    modules: Option<Rc<ModuleThread>>,
}

/// The result of an invocation.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The id that [`Local::spawn`] gave.
    pub id: u64,
    /// The reply, or the reason for its absence.
    pub result: Result<&'a [u8], LocalFailure>,
    /// Number of times that it waited for records.
    pub round_trips: u32,
    /// Number of requests for objects, pages and tables that it made, over all runs.
    pub reads: u32,
    /// What its last run used.
    pub usage: Usage,
}

/// What a run of a function used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Bytes of the keys and values that it was lent.
    pub read_bytes: usize,
    /// Objects that it wrote; none once it has failed.
    pub writes: usize,
    /// Bytes of their keys and values.
    pub write_bytes: usize,
    /// Time in the code of a module, without its host calls; zero for a function of the program.
    pub compute: Duration,
    /// Bytes that a module's function has allocated, at most at any time.
    pub arena_bytes: usize,
}

/// The reason why an invocation failed.
#[derive(Debug)]
pub enum LocalFailure {
    /// The function ended with an error; nothing was written.
    Function(sandstorm::Error),
    /// The server refused, or did not reply. For a function of a module, also the error that a server would answer.
    Server(Error),
}

impl Local {
    /// Returns an executor over a session.
    #[must_use]
    pub fn new(session: Session) -> Local {
        Local {
            session,
            places: Vec::new(),
            free: Vec::new(),
            runnable: VecDeque::new(),
            starved: VecDeque::new(),
            blocked: VecDeque::new(),
            ended: Vec::new(),
            tables: HashMap::new(),
            log: Vec::new(),
            next_id: 0,
            is_dry: false,
            #[cfg(feature = "modules")]
            modules: None,
        }
    }

    /// Makes invocations end without their commits, as if all that they have read were unchanged: for measurements.
    pub fn set_dry(&mut self, is_dry: bool) {
        self.is_dry = is_dry;
    }

    /// Returns the session, for other requests; [`Session::poll`] delivers their completions.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Returns the session by value; drops unfinished invocations without their writes.
    #[must_use]
    pub fn into_session(self) -> Session {
        self.session
    }

    /// Starts a function that may write; returns the id of the invocation. It runs at the next [`Local::poll`].
    pub fn spawn<F>(&mut self, function: F, table: u32, key: &[u8], arguments: &[u8]) -> u64
    where
        F: AsyncFn(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), sandstorm::Error> + Clone + 'static,
    {
        self.spawn_as(true, function, table, key, arguments)
    }

    /// Starts a function that only reads: a write fails with [`sandstorm::Error::ReadOnly`].
    pub fn spawn_read<F>(&mut self, function: F, table: u32, key: &[u8], arguments: &[u8]) -> u64
    where
        F: AsyncFn(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), sandstorm::Error> + Clone + 'static,
    {
        self.spawn_as(false, function, table, key, arguments)
    }

    /// Starts a function of a module; its limits are those of the tenant at the server. The first one on a thread sets up what
    /// modules need there.
    ///
    /// # Errors
    /// `UnknownFunction`, `KeyTooLarge`, `ArgumentsTooLarge`; `Unavailable` if the kernel has no memory or no timer for this thread.
    #[cfg(feature = "modules")]
    pub fn spawn_module(
        &mut self,
        module: &Module,
        function: &str,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<u64, Error> {
        let refused = |status, text: String| Error::Refused { status, text };
        let export = module.function(function);
        let export = export.ok_or_else(|| refused(Status::UnknownFunction, function.to_owned()))?;
        if key.len() > KEY_BYTES_MAX {
            return Err(refused(Status::KeyTooLarge, String::new()));
        }
        if arguments.len() > ARGUMENTS_BYTES_MAX {
            return Err(refused(Status::ArgumentsTooLarge, String::new()));
        }
        let thread = match &self.modules {
            Some(thread) => Rc::clone(thread),
            None => {
                let made = ModuleThread::of_this_thread();
                let made = made.map_err(|error| refused(Status::Unavailable, error.to_string()))?;
                Rc::clone(self.modules.insert(made))
            }
        };
        let runnable = module.runnable().clone();
        let limits = runnable.limits.of_task(key.len() + arguments.len());
        let (export, may_write) = (export.export, export.may_write);
        let start = move |task: &Rc<Task>| module_run::start(Rc::clone(task), &thread, (&runnable, export));
        Ok(self.begin((may_write, limits), start, table, key, arguments))
    }

    fn spawn_as<F>(&mut self, may_write: bool, function: F, table: u32, key: &[u8], arguments: &[u8]) -> u64
    where
        F: AsyncFn(&Db<'_>, Args<'_>, &mut Reply<'_>) -> Result<(), sandstorm::Error> + Clone + 'static,
    {
        let start = move |task: &Rc<Task>| host::start(Rc::clone(task), function.clone());
        self.begin((may_write, TaskLimits::OWN), start, table, key, arguments)
    }

    /// Begins an invocation whose runs `start` makes.
    fn begin(
        &mut self,
        (may_write, limits): (bool, TaskLimits),
        start: impl Fn(&Rc<Task>) -> Run + 'static,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| self.add_place());
        self.next_id += 1;
        let place = &mut self.places[index];
        place.task.begin((may_write, limits), table, key, arguments);
        place.id = self.next_id;
        (place.runs, place.round_trips) = (1, 0);
        place.run = Some(start(&place.task));
        place.start = may_write.then(|| Box::new(start) as Start);
        self.runnable.push_back(index);
        self.next_id
    }

    fn add_place(&mut self) -> usize {
        let reply_bytes_max = self.session.limits().reply_bytes_max as usize;
        self.places.push(LocalInvocation {
            task: Rc::new(Task::new(reply_bytes_max)),
            generation: 0,
            id: 0,
            run: None,
            start: None,
            failure: None,
            runs: 0,
            round_trips: 0,
        });
        self.places.len() - 1
    }

    /// Returns the number of unfinished invocations.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Runs the ready functions, sends their requests and receives replies. Passes each ended invocation to `finished`
    /// and returns their number. Does not block, except when a function looks up a table by a new name.
    ///
    /// # Errors
    /// As [`Session::poll`].
    pub fn poll(&mut self, finished: &mut impl FnMut(Finished<'_>)) -> Result<usize, Error> {
        let before = self.outstanding();
        self.run_all(finished);
        let Local { session, places, runnable, starved, ended, .. } = self;
        let polled = session.poll_some(LOCAL_TAGS, &mut |completion| {
            let (index, generation, operation) = split_tag(completion.tag);
            let Some(place) = places.get(index) else { return };
            // The invocation that asked may have ended.
            if place.generation != generation {
                return;
            }
            if operation == COMMITTING {
                ended.push((index, outcome_of(&completion)));
                return;
            }
            place.task.answer(operation, &completion);
            if place.task.waiting() == 0 {
                runnable.push_back(index);
            } else if place.task.asks() && !starved.contains(&index) {
                starved.push_back(index);
            }
        });
        for (index, outcome) in std::mem::take(&mut self.ended) {
            self.committed(index, outcome, finished);
        }
        self.run_all(finished);
        polled?;
        Ok(before - self.outstanding())
    }

    /// Polls until an invocation has finished; returns 0 if none is outstanding.
    ///
    /// # Errors
    /// As [`Session::poll`].
    pub fn poll_waiting(&mut self, finished: &mut impl FnMut(Finished<'_>)) -> Result<usize, Error> {
        let since = Instant::now();
        loop {
            let count = self.poll(finished)?;
            if count > 0 || self.outstanding() == 0 {
                return Ok(count);
            }
            if self.runnable.is_empty() {
                self.session.idle(since)?;
            }
        }
    }

    /// Returns and removes the log lines of the functions.
    pub fn take_log(&mut self) -> Vec<(Level, String)> {
        std::mem::take(&mut self.log)
    }

    /// Runs every invocation that is ready, once.
    fn run_all(&mut self, finished: &mut impl FnMut(Finished<'_>)) {
        for _ in 0..self.starved.len() {
            let Some(index) = self.starved.pop_front() else { break };
            self.send_asks(index);
        }
        for _ in 0..self.blocked.len() {
            let Some(index) = self.blocked.pop_front() else { break };
            self.commit(index, finished);
        }
        for _ in 0..self.runnable.len() {
            let Some(index) = self.runnable.pop_front() else { break };
            self.run_one(index, finished);
        }
    }

    fn run_one(&mut self, index: usize, finished: &mut impl FnMut(Finished<'_>)) {
        let place = &mut self.places[index];
        let Some(run) = place.run.as_mut() else { return };
        let polled = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        place.task.take_log(&mut self.log);
        match polled {
            Poll::Ready(Ok(())) => {
                place.run = None;
                self.commit(index, finished);
            }
            Poll::Ready(Err(error)) => {
                place.run = None;
                let failure = place.task.failure_of(error);
                if place.task.give_up_writes(&failure) {
                    // What it has read one by one may never have been so at one moment: then it has not ended so.
                    place.failure = Some(failure);
                    self.commit(index, finished);
                } else {
                    self.finish(index, Err(failure), finished);
                }
            }
            Poll::Pending if place.task.waiting() == 0 => self.runnable.push_back(index),
            Poll::Pending => {
                place.round_trips += 1;
                self.send_asks(index);
            }
        }
    }

    /// Submits the requests of an invocation.
    fn send_asks(&mut self, index: usize) {
        let Local { session, places, tables, runnable, starved, .. } = self;
        let LocalInvocation { task, generation, .. } = &places[index];
        if !task.send_asks(session, tables, |operation| tag_of(index, *generation, operation)) {
            starved.push_back(index);
        } else if task.waiting() == 0 {
            runnable.push_back(index);
        }
    }

    /// Submits the commit of a successful invocation.
    fn commit(&mut self, index: usize, finished: &mut impl FnMut(Finished<'_>)) {
        if self.is_dry {
            return self.finish_as_ended(index, finished);
        }
        let Local { session, places, .. } = self;
        let place = &places[index];
        let tag = tag_of(index, place.generation, COMMITTING);
        match place.task.commit(session, tag) {
            None => self.finish_as_ended(index, finished),
            Some(Ok(())) => {}
            // Repeated at the next poll.
            Some(Err(Error::Full)) => self.blocked.push_back(index),
            // What it has read cannot be checked: it has failed anyway.
            Some(Err(_)) if self.places[index].failure.is_some() => self.finish_as_ended(index, finished),
            Some(Err(error)) => self.finish(index, Err(LocalFailure::Server(error)), finished),
        }
    }

    fn committed(
        &mut self,
        index: usize,
        outcome: Result<(), Option<Error>>,
        finished: &mut impl FnMut(Finished<'_>),
    ) {
        match outcome {
            Ok(()) => self.finish_as_ended(index, finished),
            Err(None) if self.places[index].runs < RUNS_MAX => self.run_again(index),
            Err(None) => {
                let failure = self.places[index].task.conflict();
                self.finish(index, Err(failure), finished);
            }
            Err(Some(_)) if self.places[index].failure.is_some() => self.finish_as_ended(index, finished),
            Err(Some(error)) => self.finish(index, Err(LocalFailure::Server(error)), finished),
        }
    }

    fn run_again(&mut self, index: usize) {
        let place = &mut self.places[index];
        place.failure = None;
        place.runs += 1;
        place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
        place.task.begin_again();
        place.run = place.start.as_ref().map(|start| start(&place.task));
        self.runnable.push_back(index);
    }

    /// Finishes an invocation whose reads are valid.
    fn finish_as_ended(&mut self, index: usize, finished: &mut impl FnMut(Finished<'_>)) {
        let failure = self.places[index].failure.take();
        self.finish(index, failure.map_or(Ok(()), Err), finished);
    }

    fn finish(
        &mut self,
        index: usize,
        result: Result<(), LocalFailure>,
        finished: &mut impl FnMut(Finished<'_>),
    ) {
        let place = &mut self.places[index];
        // The future may refer to memory of the task, so it is dropped first.
        place.run = None;
        place.start = None;
        place.failure = None;
        place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
        let (id, round_trips, reads) = (place.id, place.round_trips, place.task.reads());
        let usage = place.task.usage();
        let result = result.map(|()| place.task.border.reply());
        finished(Finished { id, result, round_trips, reads, usage });
        self.free.push(index);
    }
}

/// Returns the tag of an operation.
fn tag_of(index: usize, generation: u64, operation: usize) -> u64 {
    LOCAL_TAGS
        | (index as u64) << (GENERATION_BITS + OPERATION_BITS)
        | generation << OPERATION_BITS
        | operation as u64
}

/// Splits a tag into slot, generation and operation.
fn split_tag(tag: u64) -> (usize, u64, usize) {
    let tag = tag & (LOCAL_TAGS - 1);
    let index = tag >> (GENERATION_BITS + OPERATION_BITS);
    let generation = (tag >> OPERATION_BITS) & ((1 << GENERATION_BITS) - 1);
    (index as usize, generation, (tag & ((1 << OPERATION_BITS) - 1)) as usize)
}

/// Decodes the reply to a commit. The error is the failure, or `None` for a conflict.
fn outcome_of(completion: &Completion<'_>) -> Result<(), Option<Error>> {
    match completion.status {
        Ok(Status::Ok) => Ok(()),
        Ok(Status::Conflict) => Err(None),
        _ => Err(Error::check(completion).err()),
    }
}

impl fmt::Display for LocalFailure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocalFailure::Function(error) => write!(to, "The function ended with an error: {error}."),
            LocalFailure::Server(error) => error.fmt(to),
        }
    }
}

impl std::error::Error for LocalFailure {}
