//! The second step after an intermediate reply: to the stream, to a session in place of a lost one, or to another server.
//!
//! A session is lost if the server no longer has it: it restarted, or the session was revoked. See `reopening.rs`.

use wire::{Completion, CompletionError, Status, opcode};

use super::{SessionState, SessionStatistics};
use crate::Error;
use crate::admin_call::AdminCall;
use crate::owned_request::OwnedRequest;
use crate::stream_worker::{Done, Job};

/// The state of a session's connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Connectivity {
    /// Open, as far as known.
    Open,
    /// The server no longer has the session.
    Lost,
    /// Reopening failed; the next request tries again.
    Closed,
}

/// A request to repeat, here or at another server. This server has not executed it and will not, or it only reads.
pub(crate) struct Moved {
    pub(crate) request: OwnedRequest,
    /// The server's reply; `BadToken` if the session ended.
    pub(crate) status: Status,
    /// Last hash of the first piece, for a table in several pieces.
    pub(crate) end: Option<u64>,
}

/// A reply that needs a second step.
pub(super) struct Trouble {
    sequence: u64,
    status: Status,
    /// Last hash of the first piece, for a table in several pieces.
    end: Option<u64>,
}

/// Passes a completion on, or keeps it for a second step.
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
    /// Completes requests past their deadline and takes due second steps. To be called after each batch, if due. Does
    /// not block, unless the session is lost: then it tries to reopen it for as long as a call may take.
    #[cold]
    pub(crate) fn finalize(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        self.requester.on_timer(now_us, complete);
        for Trouble { sequence, status, end } in std::mem::take(&mut self.troubles) {
            let request = || OwnedRequest::of(&self.requester.accepted(sequence));
            match status {
                Status::UseStream => self.send_over_stream(sequence, request(), statistics),
                Status::NotOwned | Status::SeveralTablets => {
                    let moved = Moved { request: request(), status, end };
                    self.move_on(sequence, moved, complete);
                }
                _ => {
                    self.connectivity = Connectivity::Lost;
                    self.refused.push(sequence);
                }
            }
        }
        if self.on_stream > 0 {
            for done in self.stream_worker.take_done() {
                self.settle_done(done, statistics, complete);
            }
        }
        if self.connectivity == Connectivity::Lost {
            // The router suspends or leaves it, or somebody reopens it.
            if !self.is_patient || self.defers {
                self.end_late(now_us, complete);
                return Ok(());
            }
            self.reopen(now_us, statistics, complete)?;
        }
        // Of the session before it was resumed.
        self.send_stranded(now_us, complete);
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
        self.has_heard |= answer.is_ok();
        let is_own = self.opened.token != 0 && job.client_id == self.opened.client_id;
        let lost = matches!(answer, Err(Error::SessionLost) | Ok((Status::BadToken, _)));
        self.on_stream -= 1;
        if is_own && lost {
            if job.token == self.opened.token {
                self.connectivity = Connectivity::Lost;
            }
            return self.stranded.push(job);
        }
        let Job { request, sequence, .. } = job;
        let tag = request.tag;
        if is_own {
            self.requester.release(sequence);
        } else {
            self.orphans -= 1;
        }
        match answer {
            _ if lost && opcode::is_read(request.code) => self.again.push_back(request),
            _ if lost => complete(failed(tag, sequence, CompletionError::Closed)),
            Ok((status @ (Status::NotOwned | Status::SeveralTablets), answer)) => {
                let end = answer[..].try_into().ok().map(u64::from_le_bytes);
                self.move_on(sequence, Moved { request, status, end }, complete);
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

    /// Keeps a request for another server. One that this server may have executed before its restart is not executed again
    /// elsewhere: its effects may have gone there.
    fn move_on(&mut self, sequence: u64, moved: Moved, complete: &mut impl FnMut(Completion<'_>)) {
        if sequence < self.resumed_below && !opcode::is_read(moved.request.code) {
            return complete(failed(moved.request.tag, sequence, CompletionError::Closed));
        }
        self.moved.push(moved);
    }

    /// Returns whether the session is over. A patient session detects and repairs that automatically.
    pub(crate) fn is_lost(&self) -> bool {
        self.connectivity != Connectivity::Open
    }

    /// Leaves the reopening of a lost session to [`SessionState::reopen`]: its poll may not wait.
    #[cfg(feature = "tokio")]
    pub(crate) fn defer_reopening(&mut self) {
        self.defers = true;
    }

    /// Returns whether the session is over, and only [`SessionState::reopen`] repairs that.
    #[cfg(feature = "tokio")]
    pub(crate) fn awaits_reopening(&self) -> bool {
        self.defers && self.is_patient && self.is_lost()
    }

    /// Stops synchronous reopening: a poll has other sessions to serve.
    pub(crate) fn lose_patience(&mut self) {
        self.is_patient = false;
    }

    /// Ends the session permanently; its reads become available to [`SessionState::take_moved`]. Requests on the stream
    /// are still to come: see [`SessionState::is_leaving`].
    pub(crate) fn leave(&mut self, complete: &mut impl FnMut(Completion<'_>)) {
        self.is_patient = false;
        self.connectivity = Connectivity::Lost;
        self.close(complete);
        self.opened.token = 0;
    }

    /// Returns whether a left session still has requests on the stream.
    pub(crate) fn is_leaving(&self) -> bool {
        self.on_stream > 0
    }

    /// Returns whether there are requests to repeat.
    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Returns the requests to repeat.
    pub(crate) fn take_moved(&mut self) -> Vec<Moved> {
        let mut moved = std::mem::take(&mut self.moved);
        if self.is_lost() && !self.is_patient {
            let again = self.again.drain(..);
            moved.extend(again.map(|request| Moved { request, status: Status::BadToken, end: None }));
        }
        moved
    }

    /// Submits the requests to repeat, as far as the window allows.
    fn submit_again(&mut self, statistics: &mut SessionStatistics) {
        while let Some(request) = self.again.pop_front() {
            // Cannot fail: this client encoded the request.
            let Ok(decoded) = request.decode() else { continue };
            if self.submit(request.journey, request.tag, &decoded, statistics).is_err() {
                return self.again.push_front(request);
            }
        }
    }

    /// Makes an administrative request over the session's stream. If the session turns out to be lost, reopens it and
    /// repeats the request, which was refused unseen.
    pub(crate) fn administer(
        &mut self,
        now_us: u64,
        call: &AdminCall,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(Status, Vec<u8>), Error> {
        // The lock ends with this statement; reopening locks the stream too.
        let answer = self.stream_worker.stream().administer(call);
        if !matches!(answer, Err(Error::SessionLost) | Ok((Status::BadToken, _))) {
            return answer;
        }
        self.reopen(now_us, statistics, complete)?;
        self.stream_worker.stream().administer(call)
    }
}

/// Returns a completion without a reply.
pub(super) fn failed(tag: u64, sequence: u64, error: CompletionError) -> Completion<'static> {
    Completion { tag, sequence, status: Err(error), body: &[] }
}
