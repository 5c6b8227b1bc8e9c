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
//!
//! invoke -> at the server -> finished
//!             |         ^
//!             |         +---- after two conflicts ---- committing
//!             +--> pushed back -> running -> as above
//! ```
//! As at the server, only functions that read may enumerate a table.

mod border;
mod finished;
mod host;
#[cfg(feature = "modules")]
mod module_run;
#[cfg(feature = "modules")]
mod modules;
#[cfg(feature = "modules")]
mod placed;
mod task;

use std::borrow::BorrowMut;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use sandstorm::{Args, Db, Level, Reply};
use wire::{Completion, RequestDurability, Status};

pub use self::finished::{Finished, LocalFailure, Usage};
#[cfg(feature = "modules")]
use self::module_run::ModuleThread;
#[cfg(feature = "modules")]
pub use self::modules::{Module, ModuleError, ModuleRuntime};
#[cfg(feature = "modules")]
use self::placed::{CallAnswer, PlacedCall};
#[cfg(feature = "modules")]
pub use self::placed::{PlacedFunction, RunAt};
use self::task::{Task, TaskLimits};
use crate::{Error, Session};

/// First tag of local invocations, below those of blocking calls.
const LOCAL_TAGS: u64 = 1 << 62;
const OPERATION_BITS: u32 = 20;
const GENERATION_BITS: u32 = 24;
/// Operation number of a commit.
const COMMITTING: usize = (1 << OPERATION_BITS) - 1;
/// Operation number of a call that is at the server.
#[cfg(feature = "modules")]
const CALLING: usize = COMMITTING - 1;
/// Maximum number of runs of an invocation whose commits meet conflicts.
const RUNS_MAX: u32 = 8;

/// Functions that run between two readings of the clock, and the time after which the session is polled again: a server that waits for
/// requests is idle meanwhile.
const RUNS_PER_READING: usize = 4;
const RUNNING_MAX: Duration = Duration::from_micros(30);

const _: () = assert!(task::OPERATIONS_MAX < COMMITTING - 1);

type Run = Pin<Box<dyn Future<Output = Result<(), sandstorm::Error>>>>;
type Start = Box<dyn Fn(&Rc<Task>) -> Run>;

/// The slot of one invocation, reused by the next one.
struct LocalInvocation {
    task: Rc<Task>,
    /// Distinguishes late replies to an earlier invocation of this session's executors.
    generation: u64,
    /// What the session's replies waited for when the invocation began.
    durability: RequestDurability,
    id: u64,
    run: Option<Run>,
    /// Restarts the function.
    start: Option<Start>,
    /// How the function ended, if what it has read is still as it was.
    failure: Option<LocalFailure>,
    runs: u32,
    round_trips: u32,
    /// What [`Local::invoke`] called, at the server or pushed back; `None` if it was spawned.
    #[cfg(feature = "modules")]
    call: Option<PlacedCall>,
    /// The body of the server's answer to it.
    #[cfg(feature = "modules")]
    answer: Vec<u8>,
}

/// What the server answered to an invocation.
enum Answered {
    /// Its commit; the error is the failure, or `None` for a conflict.
    Commit(Result<(), Option<Error>>),
    /// Its call.
    #[cfg(feature = "modules")]
    Call(CallAnswer),
}

/// An executor of invocations in the client, over one session that it has or borrows.
pub struct Local<S = Session> {
    session: S,
    places: Vec<LocalInvocation>,
    free: Vec<usize>,
    runnable: VecDeque<usize>,
    /// Slots whose requests found the session's window full.
    starved: VecDeque<usize>,
    /// Slots whose commit found the session's window full.
    blocked: VecDeque<usize>,
    /// Slots whose call is new, or found the session's window full.
    #[cfg(feature = "modules")]
    unsent_calls: VecDeque<usize>,
    /// Commits and calls answered in the current batch.
    answered: Vec<(usize, Answered)>,
    tables: HashMap<String, u32>,
    log: Vec<(Level, String)>,
    next_id: u64,
    /// Whether invocations end without their commits.
    is_dry: bool,
    /// What this thread has for modules, once there was one.
    #[cfg(feature = "modules")]
    modules: Option<Rc<ModuleThread>>,
}

impl<S: BorrowMut<Session>> Local<S> {
    /// Returns an executor over a session.
    #[must_use]
    pub fn new(session: S) -> Local<S> {
        Local {
            session,
            places: Vec::new(),
            free: Vec::new(),
            runnable: VecDeque::new(),
            starved: VecDeque::new(),
            blocked: VecDeque::new(),
            #[cfg(feature = "modules")]
            unsent_calls: VecDeque::new(),
            answered: Vec::new(),
            tables: HashMap::new(),
            log: Vec::new(),
            next_id: 0,
            is_dry: false,
            #[cfg(feature = "modules")]
            modules: None,
        }
    }

    /// Makes invocations end without their commits, as if all that they have read were unchanged: for measurements. All run here then.
    pub fn set_dry(&mut self, is_dry: bool) {
        self.is_dry = is_dry;
    }

    /// Returns the session, for other requests; [`Session::poll`] delivers their completions.
    pub fn session(&mut self) -> &mut Session {
        self.session.borrow_mut()
    }

    /// Returns the session by value; drops unfinished invocations without their writes.
    #[must_use]
    pub fn into_session(self) -> S {
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
        let index = self.occupy(table, key, arguments);
        let place = &mut self.places[index];
        place.task.begin((may_write, limits));
        place.run = Some(start(&place.task));
        place.start = may_write.then(|| Box::new(start) as Start);
        self.runnable.push_back(index);
        self.next_id
    }

    /// Prepares a slot for a new invocation.
    fn occupy(&mut self, table: u32, key: &[u8], arguments: &[u8]) -> usize {
        let index = self.free.pop().unwrap_or_else(|| self.add_place());
        self.next_id += 1;
        let session = self.session.borrow_mut();
        let place = &mut self.places[index];
        place.generation = session.next_generation(GENERATION_BITS);
        place.durability = session.durability();
        place.task.set_input(table, key, arguments);
        place.id = self.next_id;
        (place.runs, place.round_trips) = (1, 0);
        index
    }

    fn add_place(&mut self) -> usize {
        debug_assert!(self.places.len() >> (62 - GENERATION_BITS - OPERATION_BITS) == 0, "a tag has room");
        let reply_bytes_max = self.session.borrow().limits().reply_bytes_max as usize;
        self.places.push(LocalInvocation {
            task: Rc::new(Task::new(reply_bytes_max)),
            generation: 0,
            durability: RequestDurability::OfTable,
            id: 0,
            run: None,
            start: None,
            failure: None,
            runs: 0,
            round_trips: 0,
            #[cfg(feature = "modules")]
            call: None,
            #[cfg(feature = "modules")]
            answer: Vec::new(),
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
        let Local { session, places, runnable, starved, answered, .. } = self;
        let polled = session.borrow_mut().poll_some(LOCAL_TAGS, &mut |completion| {
            let (index, generation, operation) = split_tag(completion.tag);
            let Some(place) = places.get_mut(index) else { return };
            // The invocation that asked may have ended.
            if place.generation != generation {
                return;
            }
            if operation == COMMITTING {
                answered.push((index, Answered::Commit(outcome_of(&completion))));
                return;
            }
            #[cfg(feature = "modules")]
            if operation == CALLING {
                answered.push((index, Answered::Call(CallAnswer::of(&completion, &mut place.answer))));
                return;
            }
            place.task.answer(operation, &completion);
            if place.task.waiting() == 0 {
                runnable.push_back(index);
            } else if place.task.asks() && !starved.contains(&index) {
                starved.push_back(index);
            }
        });
        let mut answered = std::mem::take(&mut self.answered);
        for (index, answer) in answered.drain(..) {
            match answer {
                Answered::Commit(outcome) => self.committed(index, outcome, finished),
                #[cfg(feature = "modules")]
                Answered::Call(answer) => self.called(index, answer, finished),
            }
        }
        self.answered = answered;
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
                self.session.borrow_mut().idle(since)?;
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
        #[cfg(feature = "modules")]
        for _ in 0..self.unsent_calls.len() {
            let Some(index) = self.unsent_calls.pop_front() else { break };
            self.call(index, finished);
        }
        let since = Instant::now();
        for ran in 1..=self.runnable.len() {
            let Some(index) = self.runnable.pop_front() else { break };
            self.run_one(index, finished);
            if ran % RUNS_PER_READING == 0 && since.elapsed() > RUNNING_MAX {
                break;
            }
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
        let LocalInvocation { task, generation, durability, .. } = &places[index];
        let tag = |operation| tag_of(index, *generation, operation);
        let send = |session: &mut Session| task.send_asks(session, tables, tag);
        if !session.borrow_mut().with_durability(*durability, send) {
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
        let commit = |session: &mut Session| place.task.commit(session, tag);
        match session.borrow_mut().with_durability(place.durability, commit) {
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
            #[cfg(feature = "modules")]
            Err(failure) if self.returns_to_server(index, failure.as_ref()) => self.call(index, finished),
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
        place.generation = self.session.borrow_mut().next_generation(GENERATION_BITS);
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
        // Late replies find nobody.
        place.generation = self.session.borrow_mut().next_generation(GENERATION_BITS);
        #[cfg(feature = "modules")]
        let answer = place.call.take().filter(PlacedCall::is_at_server).map(|_| &place.answer[..]);
        #[cfg(not(feature = "modules"))]
        let answer: Option<&[u8]> = None;
        let (id, round_trips, ran_here) = (place.id, place.round_trips, answer.is_none());
        let (reads, usage) =
            if ran_here { (place.task.reads(), place.task.usage()) } else { (0, Usage::default()) };
        let result = result.map(|()| answer.unwrap_or_else(|| place.task.border.reply()));
        finished(Finished { id, result, ran_here, round_trips, reads, usage });
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
