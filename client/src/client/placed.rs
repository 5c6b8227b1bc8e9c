//! Functions that a client may run itself.

use std::collections::HashMap;

use sandstorm::Level;
use wire::Status;
use wire::reply::PushedBack;

use super::{Client, split_function_name};
use crate::Error;
use crate::local::{Finished, Local, ModuleError, ModuleRuntime, PlacedFunction, RunAt};

/// Log lines that are kept until they are taken; later ones are dropped.
const LOG_LINES_KEPT: usize = 1_000;

/// Where the functions of a client run, and those that were looked up.
pub(super) struct FunctionRuns {
    runtime: ModuleRuntime,
    run_at: RunAt,
    functions: HashMap<String, Known>,
    log: Vec<(Level, String)>,
}

/// A function that was looked up.
struct Known {
    /// `None` if it cannot run here.
    function: Option<PlacedFunction>,
    /// A version that servers run but do not give as the current one: a canary.
    canary: u32,
}

impl Client {
    /// Lets functions that are invoked by name run in this process, or where `run_at` says. A function's module is read and compiled at
    /// its first call, and when a server has a newer version, which takes 20 to 100 ms longer. A function whose module the server does
    /// not give, as of an extension that was granted, runs at the server; with [`RunAt::Client`] its calls fail.
    pub fn run_functions(&mut self, runtime: &ModuleRuntime, run_at: RunAt) {
        let (runtime, functions, log) = (runtime.clone(), HashMap::new(), Vec::new());
        self.function_runs = Some(FunctionRuns { runtime, run_at, functions, log });
    }

    /// Returns and removes what functions that ran in this process have logged, the first thousand lines.
    pub fn take_log(&mut self) -> Vec<(Level, String)> {
        self.function_runs.as_mut().map_or_else(Vec::new, |runs| std::mem::take(&mut runs.log))
    }

    /// Looks up a function, reads its module and compiles it, for [`Local::invoke`](crate::Local::invoke): 20 to 100 ms, and the time to
    /// read it. The name is as for [`Client::invoke`].
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub fn load_function(
        &mut self,
        name: &str,
        runtime: &ModuleRuntime,
        run_at: RunAt,
    ) -> Result<PlacedFunction, ModuleError> {
        let resolved = self.resolve(name).map_err(ModuleError::Unreadable)?;
        let invalid = || ModuleError::Unreadable(Error::FunctionNameInvalid { name: name.to_owned() });
        let (extension, version, function) = split_function_name(name).ok_or_else(invalid)?;
        let module = self.extension_module(extension, version).map_err(ModuleError::Unreadable)?;
        let module = runtime.load(&module)?;
        PlacedFunction::new(resolved, function, module, run_at).map_err(ModuleError::Unreadable)
    }

    /// Looks up a function that may run here; `None` for one that runs at the server.
    pub(super) fn function_to_run(&mut self, name: &str) -> Result<Option<PlacedFunction>, Error> {
        let Some(runs) = &self.function_runs else { return Ok(None) };
        let mut canary = 0;
        if let Some(known) = runs.functions.get(name) {
            let other = known.function.as_ref().map_or(0, PlacedFunction::other_version);
            if other == 0 || other == known.canary {
                return Ok(known.function.clone());
            }
            canary = other;
        }
        let (runtime, run_at) = (runs.runtime.clone(), runs.run_at);
        if run_at == RunAt::Server {
            return Ok(None);
        }
        // The other version may have another mode.
        self.functions.remove(name);
        let found = match self.load_function(name, &runtime, run_at) {
            Ok(function) => Some(function),
            Err(ModuleError::Unreadable(error)) if run_at == RunAt::Client || !has_no_module(&error) => {
                return Err(error);
            }
            Err(error) if run_at == RunAt::Client => {
                return Err(Error::Refused { status: Status::Unavailable, text: error.to_string() });
            }
            Err(_) => None,
        };
        if found.as_ref().is_some_and(|function| function.version() == canary) {
            canary = 0;
        }
        if let Some(runs) = &mut self.function_runs {
            runs.functions.insert(name.to_owned(), Known { function: found.clone(), canary });
        }
        Ok(found)
    }

    /// Forgets functions that were looked up.
    pub(super) fn forget_placed(&mut self, is_its: impl Fn(&str) -> bool) {
        if let Some(runs) = &mut self.function_runs {
            runs.functions.retain(|function, _| !is_its(function));
        }
    }

    /// Calls a function, and waits for its end.
    pub(super) fn invoke_placed(
        &mut self,
        function: &PlacedFunction,
        table: u32,
        key: &[u8],
        arguments: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let input = (table, key, arguments);
        match self.invoke_once(function, input) {
            // A function that only reads may be called again in the new session.
            Err(Error::SessionLost) if function.only_reads() => self.invoke_once(function, input),
            answer => answer,
        }
    }

    fn invoke_once(
        &mut self,
        function: &PlacedFunction,
        (table, key, arguments): (u32, &[u8], &[u8]),
    ) -> Result<Vec<u8>, Error> {
        let request = function.function().request(table, key, arguments);
        let mut local = if function.run_at() == RunAt::Client {
            let mut local = Local::new(&mut self.session);
            local.invoke(function, table, key, arguments)?;
            local
        } else {
            let may_push_back = function.run_at() == RunAt::Adaptive;
            let status = {
                let Client { session, body, .. } = self;
                session.with_push_back(may_push_back, |session| session.call(&request, body))
            };
            if !matches!(status, Ok(Status::PushedBack)) || !may_push_back {
                return Error::checked(status, &self.body).map(<[u8]>::to_vec);
            }
            let malformed = |status| Error::Refused { status, text: String::new() };
            let pushed_back = PushedBack::decode(&self.body).map_err(malformed)?;
            if !function.is_of(&pushed_back) {
                function.note_other_version(pushed_back.version);
                return self.call(&request).map(<[u8]>::to_vec);
            }
            let mut local = Local::new(&mut self.session);
            local.spawn_pushed_back(function, &pushed_back, (table, key, arguments))?;
            local
        };
        let mut ended = None;
        let mut take = |finished: Finished<'_>| ended = Some(finished.result.map(<[u8]>::to_vec));
        let polled = local.poll_waiting(&mut take);
        if let Some(runs) = &mut self.function_runs {
            let room = LOG_LINES_KEPT.saturating_sub(runs.log.len());
            runs.log.extend(local.take_log().into_iter().take(room));
        }
        // An end counts more than an error of the same poll.
        match (ended, polled) {
            (Some(ended), _) => ended.map_err(Error::from),
            // Its commit may have been under way.
            (None, Err(_)) if !function.only_reads() => Err(Error::SessionLost),
            (None, Err(error)) => Err(error),
            (None, Ok(_)) => Err(Error::NotSent),
        }
    }
}

/// Returns whether a server has refused a module for good.
fn has_no_module(error: &Error) -> bool {
    matches!(error, Error::Refused { status: Status::NotPermitted | Status::Unavailable, .. })
}
