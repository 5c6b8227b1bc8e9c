//! Calls that run at the server or here, whichever is cheaper.
//!
//! A [`PlacedFunction`] has the numbers by which a server invokes a function, and its module. A call goes to the server; one that is
//! busy pushes it back ([`Status::PushedBack`]) with what the function has read so far, and it begins anew here with that as the first
//! answers. Nothing was written there, and the server runs no other copy of the request, so what the call writes is written once.
//!
//! A server may run another version of the function than the module here: a newer one, or a canary. Such a call goes to the server
//! again, to be run there, and [`PlacedFunction::is_stale`] says so. So does a call whose commits have met two conflicts, since at the
//! server it goes before others then, and one that needs an object of another server.

use std::borrow::BorrowMut;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wire::limits::{ARGUMENTS_BYTES_MAX, KEY_BYTES_MAX};
use wire::reply::PushedBack;
use wire::{Completion, Status};

use super::module_run::{self, ModuleThread};
use super::modules::Module;
use super::task::{Task, TaskLimits};
use super::{CALLING, Finished, Local, LocalFailure, Run, tag_of};
use crate::answers::unintelligible;
use crate::function::Function;
use crate::{Error, Session};

/// Runs here of a call that was pushed back: if the commit of the last one meets a conflict too, the server runs it.
const RUNS_HERE_MAX: u32 = 2;

/// Where a call runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunAt {
    /// At the server.
    Server,
    /// In this process.
    Client,
    /// At the server, or here if it is busy.
    #[default]
    Adaptive,
}

/// A function and its module. Clones share what is known of it.
#[derive(Clone, Debug)]
pub struct PlacedFunction {
    function: Function,
    name: Arc<str>,
    module: Module,
    run_at: RunAt,
    /// The latest version that a server has pushed back, if it is another than the module's, else 0.
    other_version: Arc<AtomicU32>,
}

impl PlacedFunction {
    /// Combines the numbers of a function with the module that has it.
    ///
    /// # Errors
    /// `UnknownFunction` if the numbers are of another function than this name, or of another extension than the module.
    pub fn new(
        function: Function,
        name: &str,
        module: Module,
        run_at: RunAt,
    ) -> Result<PlacedFunction, Error> {
        let is_its = module.function(name).is_some() && module.extension() == function.extension;
        if !is_its || wire::function_hash(name) != function.function {
            return Err(Error::Refused { status: Status::UnknownFunction, text: name.to_owned() });
        }
        Ok(PlacedFunction { function, name: name.into(), module, run_at, other_version: Arc::default() })
    }

    /// Returns whether a server runs another version than the module here: the current one, or a canary, which
    /// [`Client::load_function`](crate::Client::load_function) does not read. Each call that it pushes back in that version takes a
    /// second request.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.other_version() != 0
    }

    /// Returns the latest version that a server has pushed back, if it is another than the module's, else 0.
    pub(crate) fn other_version(&self) -> u32 {
        self.other_version.load(Ordering::Relaxed)
    }

    /// Notes the version of a call that was pushed back, which is another than the module's.
    pub(crate) fn note_other_version(&self, version: u32) {
        self.other_version.store(version, Ordering::Relaxed);
    }

    /// Returns the version of the module.
    pub(crate) fn version(&self) -> u32 {
        self.module.version()
    }

    /// Returns whether neither the server's function nor the module's writes.
    pub(crate) fn only_reads(&self) -> bool {
        let here = self.module.function(&self.name);
        self.function.only_reads() && here.is_none_or(|function| !function.may_write)
    }

    /// Returns whether a server has pushed back the version that is here.
    pub(crate) fn is_of(&self, pushed_back: &PushedBack<'_>) -> bool {
        pushed_back.version == self.module.version()
    }

    /// Returns where it runs.
    pub(crate) fn run_at(&self) -> RunAt {
        self.run_at
    }

    /// Returns the numbers by which a server invokes it.
    pub(crate) fn function(&self) -> Function {
        self.function
    }
}

/// The call of an invocation that may be at the server.
pub(super) struct PlacedCall {
    of: PlacedFunction,
    may_push_back: bool,
    /// Whether it was pushed back and runs here.
    is_here: bool,
}

impl PlacedCall {
    /// Returns whether it is at the server.
    pub(super) fn is_at_server(&self) -> bool {
        !self.is_here
    }
}

/// What a server said to a call.
pub(super) enum CallAnswer {
    /// It ran; the reply is in [`LocalInvocation::answer`].
    Replied,
    /// It is to run here.
    PushedBack,
    /// It did not run, or failed.
    Failed(Error),
}

impl CallAnswer {
    /// Reads an answer, and keeps its body in `body`.
    pub(super) fn of(completion: &Completion<'_>, body: &mut Vec<u8>) -> CallAnswer {
        body.clear();
        body.extend_from_slice(completion.body);
        match completion.status {
            Ok(Status::Ok) => CallAnswer::Replied,
            Ok(Status::PushedBack) => CallAnswer::PushedBack,
            _ => CallAnswer::Failed(
                Error::check(completion).err().unwrap_or_else(|| unintelligible("an answer")),
            ),
        }
    }
}

impl<S: BorrowMut<Session>> Local<S> {
    /// Calls a function, at the server or here; returns the id of the invocation. One that only reads and was lost with its session is
    /// not repeated. It is as durable as the session's requests are when it is called.
    ///
    /// # Errors
    /// As [`Local::spawn_module`].
    pub fn invoke(
        &mut self,
        function: &PlacedFunction,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<u64, Error> {
        if function.run_at == RunAt::Client || self.is_dry {
            return self.spawn_module(&function.module, &function.name, table, key, arguments);
        }
        check_input(key, arguments)?;
        let index = self.occupy(table, key, arguments);
        let may_push_back = function.run_at == RunAt::Adaptive;
        self.places[index].call = Some(PlacedCall { of: function.clone(), may_push_back, is_here: false });
        self.unsent_calls.push_back(index);
        Ok(self.next_id)
    }

    /// Starts a function that a server has pushed back, with what it has read there.
    pub(crate) fn spawn_pushed_back(
        &mut self,
        function: &PlacedFunction,
        pushed_back: &PushedBack<'_>,
        (table, key, arguments): (u32, &[u8], &[u8]),
    ) -> Result<u64, Error> {
        check_input(key, arguments)?;
        let index = self.occupy(table, key, arguments);
        self.places[index].call =
            Some(PlacedCall { of: function.clone(), may_push_back: false, is_here: false });
        self.begin_here(index, pushed_back)?;
        Ok(self.next_id)
    }

    /// Begins to run here what a server has pushed back.
    fn begin_here(&mut self, index: usize, pushed_back: &PushedBack<'_>) -> Result<(), Error> {
        let place = &mut self.places[index];
        let Some(call) = &mut place.call else { return Ok(()) };
        let input_bytes = place.task.with_input(|_, key, arguments| key.len() + arguments.len());
        let (of, start) = prepare(&mut self.modules, &call.of.module, &call.of.name, input_bytes)?;
        call.is_here = true;
        place.task.begin(of);
        place.task.keep_server_reads(pushed_back);
        place.run = Some(start(&place.task));
        place.start = Some(Box::new(start));
        self.runnable.push_back(index);
        Ok(())
    }

    /// Starts a function of a module; its limits are those of the tenant at the server. The first one on a thread sets up what
    /// modules need there.
    ///
    /// # Errors
    /// `UnknownFunction`, `KeyTooLarge`, `ArgumentsTooLarge`; `Unavailable` if the kernel has no memory or no timer for this thread.
    pub fn spawn_module(
        &mut self,
        module: &Module,
        function: &str,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<u64, Error> {
        check_input(key, arguments)?;
        let (of, start) = prepare(&mut self.modules, module, function, key.len() + arguments.len())?;
        Ok(self.begin(of, start, table, key, arguments))
    }

    /// Submits the call of an invocation.
    pub(super) fn call(&mut self, index: usize, finished: &mut impl FnMut(Finished<'_>)) {
        let Local { session, places, unsent_calls, .. } = self;
        let place = &places[index];
        let Some(call) = &place.call else { return };
        let tag = tag_of(index, place.generation, CALLING);
        let submitted = place.task.with_input(|table, key, arguments| {
            let request = call.of.function.request(table, key, arguments);
            let submit = |session: &mut Session| {
                session.with_push_back(call.may_push_back, |session| session.submit(&request, tag))
            };
            session.borrow_mut().with_durability(place.durability, submit)
        });
        match submitted {
            Ok(()) => {}
            Err(Error::Full) => unsent_calls.push_back(index),
            Err(error) => self.finish(index, Err(LocalFailure::Server(error)), finished),
        }
    }

    /// Prepares an invocation that was pushed back for another call, which the server is to run, if its commits have met conflicts or it
    /// needs an object of another server; returns whether it did. Nothing was written.
    pub(super) fn returns_to_server(&mut self, index: usize, failure: Option<&Error>) -> bool {
        let place = &mut self.places[index];
        let Some(call) = place.call.as_mut().filter(|call| call.is_here) else { return false };
        let is_its = match failure {
            None => place.runs >= RUNS_HERE_MAX,
            Some(error) => error.status() == Some(Status::NotLocal),
        };
        if is_its {
            (call.is_here, call.may_push_back) = (false, false);
            place.failure = None;
        }
        is_its
    }

    /// Processes what the server said to a call.
    pub(super) fn called(
        &mut self,
        index: usize,
        answer: CallAnswer,
        finished: &mut impl FnMut(Finished<'_>),
    ) {
        let place = &mut self.places[index];
        let Some(call) = &mut place.call else { return };
        let pushed_back = match answer {
            CallAnswer::Replied => return self.finish(index, Ok(()), finished),
            CallAnswer::Failed(error) => {
                return self.finish(index, Err(LocalFailure::Server(error)), finished);
            }
            CallAnswer::PushedBack => PushedBack::decode(&place.answer),
        };
        match pushed_back {
            Ok(pushed_back) if call.may_push_back && call.of.is_of(&pushed_back) => {
                let answer = std::mem::take(&mut place.answer);
                let begun =
                    PushedBack::decode(&answer).map(|pushed_back| self.begin_here(index, &pushed_back));
                self.places[index].answer = answer;
                if let Ok(Err(error)) = begun {
                    self.finish(index, Err(LocalFailure::Server(error)), finished);
                }
            }
            Ok(pushed_back) if call.may_push_back => {
                call.of.note_other_version(pushed_back.version);
                call.may_push_back = false;
                self.call(index, finished);
            }
            _ => {
                let text = "the server pushed back a call that it is to run".to_owned();
                let error = Error::Refused { status: Status::PushedBack, text };
                self.finish(index, Err(LocalFailure::Server(error)), finished);
            }
        }
    }
}

/// Whether a function may write, and its limits.
type Allowed = (bool, TaskLimits);

/// Checks a call of a module's function; returns whether it may write, its limits, and what starts it.
fn prepare(
    modules: &mut Option<Rc<ModuleThread>>,
    module: &Module,
    function: &str,
    input_bytes: usize,
) -> Result<(Allowed, impl Fn(&Rc<Task>) -> Run + use<>), Error> {
    let refused = |status, text: String| Error::Refused { status, text };
    let export = module.function(function);
    let export = export.ok_or_else(|| refused(Status::UnknownFunction, function.to_owned()))?;
    let thread = match modules {
        Some(thread) => Rc::clone(thread),
        None => {
            let made = ModuleThread::of_this_thread();
            let made = made.map_err(|error| refused(Status::Unavailable, error.to_string()))?;
            Rc::clone(modules.insert(made))
        }
    };
    let runnable = module.runnable().clone();
    let limits = runnable.limits.of_task(input_bytes);
    let (export, may_write) = (export.export, export.may_write);
    let start = move |task: &Rc<Task>| module_run::start(Rc::clone(task), &thread, (&runnable, export));
    Ok(((may_write, limits), start))
}

/// Returns whether a server would take this input.
fn check_input(key: &[u8], arguments: &[u8]) -> Result<(), Error> {
    let status = match (key.len() > KEY_BYTES_MAX, arguments.len() > ARGUMENTS_BYTES_MAX) {
        (true, _) => Status::KeyTooLarge,
        (_, true) => Status::ArgumentsTooLarge,
        _ => return Ok(()),
    };
    Err(Error::Refused { status, text: String::new() })
}
