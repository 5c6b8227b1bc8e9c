//! The second step after an intermediate reply: to the stream, a new session, or another server.

use wire::{Completion, CompletionError, Status, opcode};

use super::SessionState;
use super::lost::{Again, Connectivity, Moved, closed, failed};
use crate::stream_worker::{Done, Job};
use crate::{Error, SessionStatistics};

/// A reply that needs a second step.
pub(super) struct Trouble {
    sequence: u64,
    status: Status,
    /// For a table in several pieces, the last hash of the first one.
    end: Option<u64>,
}

/// Passes a completion to the caller, or keeps it for a second step.
#[inline]
pub(super) fn sift(
    troubles: &mut Vec<Trouble>,
    completion: Completion<'_>,
    complete: &mut impl FnMut(Completion<'_>),
) {
    match completion.status {
        Ok(Status::UseStream | Status::BadToken | Status::NotOwned | Status::SeveralTablets) => {
            keep(troubles, &completion);
        }
        _ => complete(completion),
    }
}

#[cold]
fn keep(troubles: &mut Vec<Trouble>, completion: &Completion<'_>) {
    if let Ok(status) = completion.status {
        let end = completion.body.try_into().ok().map(u64::from_le_bytes);
        troubles.push(Trouble { sequence: completion.sequence, status, end });
    }
}

impl SessionState {
    #[cold]
    pub(super) fn take_second_steps(
        &mut self,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        for Trouble { sequence, status, end } in std::mem::take(&mut self.troubles) {
            let accepted = self.requester.accepted(sequence);
            let was_repeated = accepted.was_repeated;
            let again = Again::of(&accepted);
            let Again { tag, journey, code, .. } = again;
            match status {
                Status::UseStream => {
                    self.send_over_stream(sequence, (tag, journey), code, again.body, statistics);
                    continue;
                }
                Status::NotOwned | Status::SeveralTablets => {
                    self.moved.push(Moved { tag, journey, code, body: again.body, status, end });
                    continue;
                }
                _ => {}
            }
            self.connectivity = Connectivity::Lost;
            // Sent once and refused, so it was not executed.
            if opcode::is_read(code) || !was_repeated {
                self.again.push_back(again);
            } else {
                complete(closed(tag, sequence));
            }
        }
        if self.on_stream > 0 {
            for done in self.stream_worker.take_done() {
                self.settle_done(done, statistics, complete);
            }
        }
        if self.connectivity == Connectivity::Lost {
            if !self.is_patient {
                return Ok(());
            }
            self.reopen(statistics, complete)?;
        }
        self.submit_again(statistics);
        Ok(())
    }

    /// Processes the stream's outcome of a request.
    fn settle_done(
        &mut self,
        done: Done,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let Done { job, answer } = done;
        self.on_stream -= 1;
        let Job { token, tag, journey, sequence, code, body, .. } = job;
        if token == self.opened.token {
            self.requester.release(sequence);
        } else {
            self.orphans -= 1;
        }
        let lost = matches!(answer, Err(Error::SessionLost) | Ok((Status::BadToken, _)));
        if lost && token == self.opened.token {
            self.connectivity = Connectivity::Lost;
        }
        match answer {
            _ if lost && opcode::is_read(code) => self.again.push_back(Again { tag, journey, code, body }),
            _ if lost => complete(closed(tag, sequence)),
            Ok((status @ (Status::NotOwned | Status::SeveralTablets), answer)) => {
                let end = answer[..].try_into().ok().map(u64::from_le_bytes);
                self.moved.push(Moved { tag, journey, code, body, status, end });
            }
            Ok((status, body)) => {
                statistics.stream_bytes += body.len() as u64;
                complete(Completion { tag, sequence, status: Ok(status), body: &body });
            }
            Err(Error::Overloaded) => complete(failed(tag, sequence, CompletionError::Overloaded)),
            Err(Error::Throttled { .. }) => complete(failed(tag, sequence, CompletionError::Throttled)),
            Err(_) => complete(failed(tag, sequence, CompletionError::TimedOut)),
        }
    }
}
