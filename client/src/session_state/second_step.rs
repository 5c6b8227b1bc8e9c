//! The second step after an intermediate reply: to the stream, a new session, or another server.
//!
//! A session is lost if the server no longer has it: it restarted, or the session was revoked. Requests that only read
//! are repeated in a new session. A request that may write is repeated only if it cannot have been executed: the server
//! refused its only transmission, so no earlier one had reached it. All others complete as closed: their outcome
//! is unknown.

use std::thread;
use std::time::{Duration, Instant};

use wire::{Completion, CompletionError, Opened, Requester, Status, opcode};

use super::{SessionState, SessionStatistics};
use crate::Error;
use crate::admin_call::AdminCall;
use crate::connection::Connection;
use crate::owned_request::OwnedRequest;
use crate::stream_worker::{Done, Job};
use crate::transport::SessionTransport;

/// Pause between attempts to reopen a lost session.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

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
            let accepted = self.requester.accepted(sequence);
            let was_repeated = accepted.was_repeated;
            let request = OwnedRequest::of(&accepted);
            match status {
                Status::UseStream => {
                    self.send_over_stream(sequence, request, statistics);
                    continue;
                }
                Status::NotOwned | Status::SeveralTablets => {
                    self.moved.push(Moved { request, status, end });
                    continue;
                }
                _ => {}
            }
            self.connectivity = Connectivity::Lost;
            // Sent once and refused, so it was not executed.
            if opcode::is_read(request.code) || !was_repeated {
                self.again.push_back(request);
            } else {
                complete(failed(request.tag, sequence, CompletionError::Closed));
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
        let Done { job: Job { token, request, sequence, .. }, answer } = done;
        let tag = request.tag;
        self.on_stream -= 1;
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
            _ if lost && opcode::is_read(request.code) => self.again.push_back(request),
            _ if lost => complete(failed(tag, sequence, CompletionError::Closed)),
            Ok((status @ (Status::NotOwned | Status::SeveralTablets), answer)) => {
                let end = answer[..].try_into().ok().map(u64::from_le_bytes);
                self.moved.push(Moved { request, status, end });
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

    /// Reopens the session and sorts the outstanding requests.
    pub(super) fn reopen(
        &mut self,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        self.close(complete);
        let (connection, opened) = match self.open_patiently() {
            Ok(opened) => opened,
            Err(error) => {
                self.connectivity = Connectivity::Closed;
                for again in self.again.drain(..) {
                    complete(failed(again.tag, 0, CompletionError::TimedOut));
                }
                return Err(error);
            }
        };
        self.requester =
            Requester::new(opened.token, opened.next_sequence, opened.credits, self.requester_config);
        *self.stream_worker.stream() = super::stream_of(connection, &opened, &self.settings);
        self.view = opened.view;
        self.home = super::core_address(&self.settings, &opened, opened.home_core);
        self.home_core = opened.home_core;
        self.transport = SessionTransport::of(&opened, &self.settings.config);
        self.homes += 1;
        self.opened = opened;
        self.connectivity = Connectivity::Open;
        statistics.reopened += 1;
        Ok(())
    }

    /// Ends the session: queues reads for repetition, completes all others as closed.
    fn close(&mut self, complete: &mut impl FnMut(Completion<'_>)) {
        let mut ended = Vec::new();
        self.requester.close(&mut |completion| ended.push(completion.sequence));
        for sequence in ended {
            let ended = self.requester.accepted(sequence);
            if opcode::is_read(ended.code) {
                self.again.push_back(OwnedRequest::of(&ended));
            } else {
                complete(failed(ended.tag, sequence, CompletionError::Closed));
            }
        }
        self.orphans = self.on_stream;
    }

    /// Returns whether the session is over. A patient session detects and repairs that automatically.
    pub(crate) fn is_lost(&self) -> bool {
        self.connectivity != Connectivity::Open
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

    /// Opens a session. Keeps trying for as long as a call may take.
    fn open_patiently(&self) -> Result<(Connection, Opened), Error> {
        let deadline = Instant::now() + self.settings.config.call_timeout;
        loop {
            match super::open(&self.settings) {
                Err(Error::Unreachable { .. }) if Instant::now() + REOPEN_PAUSE < deadline => {
                    thread::sleep(REOPEN_PAUSE);
                }
                opened => return opened,
            }
        }
    }

    /// Makes an administrative request over the session's stream. If the session turns out to be lost, reopens it and
    /// repeats the request, which was refused unseen.
    pub(crate) fn administer(
        &mut self,
        call: &AdminCall,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(Status, Vec<u8>), Error> {
        // The lock ends with this statement; reopening locks the stream too.
        let answer = self.stream_worker.stream().administer(call);
        if !matches!(answer, Err(Error::SessionLost) | Ok((Status::BadToken, _))) {
            return answer;
        }
        self.reopen(statistics, complete)?;
        self.stream_worker.stream().administer(call)
    }
}

/// Returns a completion without a reply.
fn failed(tag: u64, sequence: u64, error: CompletionError) -> Completion<'static> {
    Completion { tag, sequence, status: Err(error), body: &[] }
}
