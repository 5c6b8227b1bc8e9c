//! Applying the writes of a successful function, one after another.
//!
//! Each write is made on the condition that its object is as the function read it, if it did. A conflict at the first
//! write has changed nothing yet: the function runs again, on the current objects. Several writes must belong to one
//! server, as far as the session knows, as in a function that runs at a server.

use wire::{Completion, Request, Status};

use super::task::Task;
use super::write_set::PendingWrite;
use super::{APPLYING, Finished, GENERATION_BITS, Local, LocalFailure, tag_of};
use crate::{Error, Session};

/// Maximum number of runs of an invocation whose first write keeps meeting conflicts.
const RUNS_MAX: u32 = 8;
impl Local {
    /// Submits the next write of a successful invocation.
    pub(super) fn apply(&mut self, index: usize, finished: &mut impl FnMut(Finished<'_>)) {
        let Local { session, places, .. } = self;
        let place = &places[index];
        if place.applying == 0 && place.task.write_count() > 1 && !is_local(&place.task, session) {
            let refused = Error::Refused { status: Status::NotLocal, text: String::new() };
            return self.finish(index, Err(LocalFailure::Server(refused)), finished);
        }
        let tag = tag_of(index, place.generation, APPLYING);
        let submitted = place.task.with_write(place.applying, |write| {
            let PendingWrite { table, key, value, ttl_ms, condition } = write;
            let (table, condition) = (*table, *condition);
            let request = match (value, *ttl_ms) {
                (Some(value), None) => Request::Put { table, key, value, condition },
                (Some(value), Some(ttl_ms)) => Request::PutFor { table, key, value, condition, ttl_ms },
                (None, _) => Request::Delete { table, key, condition },
            };
            session.submit(&request, tag)
        });
        match submitted {
            None => self.finish(index, Ok(()), finished),
            Some(Ok(())) => {}
            // Repeated at the next poll.
            Some(Err(Error::Full)) => self.blocked.push_back(index),
            Some(Err(error)) => self.finish(index, Err(LocalFailure::Server(error)), finished),
        }
    }

    pub(super) fn go_on_applying(
        &mut self,
        index: usize,
        outcome: Result<(), Option<Error>>,
        finished: &mut impl FnMut(Finished<'_>),
    ) {
        let place = &mut self.places[index];
        let of = place.task.write_count();
        match outcome {
            Ok(()) => {
                place.applying += 1;
                if place.applying == of {
                    return self.finish(index, Ok(()), finished);
                }
                self.apply(index, finished);
            }
            Err(None) if place.applying == 0 && place.runs < RUNS_MAX => self.run_again(index),
            Err(None) if place.applying == 0 => {
                self.finish(index, Err(LocalFailure::Function(sandstorm::Error::Conflict)), finished);
            }
            Err(None) => {
                let applied = place.applying;
                self.finish(index, Err(LocalFailure::PartlyApplied { applied, of }), finished);
            }
            Err(Some(error)) => self.finish(index, Err(LocalFailure::Server(error)), finished),
        }
    }

    fn run_again(&mut self, index: usize) {
        let place = &mut self.places[index];
        place.runs += 1;
        place.generation = (place.generation + 1) & ((1 << GENERATION_BITS) - 1);
        place.task.begin_again();
        place.run = place.start.as_ref().map(|start| start(&place.task));
        self.runnable.push_back(index);
    }
}

/// Decodes the reply to a write: applied, `None` for a conflict, or the failure.
pub(super) fn applied(completion: &Completion<'_>) -> Result<(), Option<Error>> {
    match completion.status {
        // Deleting an absent object succeeds.
        Ok(Status::Ok | Status::NotFound) => Ok(()),
        Ok(Status::ConditionFailed) => Err(None),
        _ => Err(Error::check(completion).err()),
    }
}

/// Returns whether all writes belong to one server.
fn is_local(task: &Task, session: &mut Session) -> bool {
    let mut servers = (0..task.write_count())
        .filter_map(|write| task.with_write(write, |write| session.server_of(write.table, &write.key)));
    let first = servers.next();
    servers.all(|server| Some(server) == first)
}
