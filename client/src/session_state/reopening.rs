//! A lost session: resumed under its client id, or replaced by another one.
//!
//! ```text
//!   lost ── Resume ──► the server, or the same server after its restart, knows the client: requests keep their sequences
//!             │        and are sent again; what was executed gets its answer, all else is executed once
//!             └ refused ──► a new session: reads are repeated; so is what cannot have been executed, since the server
//!                           refused its only transmission; all else completes as closed, its outcome is unknown
//! ```
//! Not resumed is a session whose requests all may be repeated.
//!
//! With several servers a lost session is suspended: its reads go to whoever owns their keys by then, what may have been
//! executed waits for its server, and the client goes on with the others. If these have recovered the server's log they have its
//! replies: what is not among them has done nothing that lasts, and goes to the new owner.

use std::thread;
use std::time::{Duration, Instant};

use wire::limits::PROOF_BYTES;
use wire::{
    Accepted, Body, Completion, CompletionError, Journey, LoggedReply, OpenRequest, Opened, Requester,
    Status, opcode,
};

use super::second_step::{Connectivity, failed};
use super::{Moved, SessionState, SessionStatistics, core_address, open, stream_of};
use crate::Error;
use crate::config::{SessionSettings, resolve};
use crate::connection::{Connection, opened_of};
use crate::limits::RESEND_AGE_US_MAX;
use crate::owned_request::OwnedRequest;
use crate::stream_worker::Job;
use crate::transport::SessionTransport;

/// Pause between attempts to reopen a lost session.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

/// What a server needs to resume a session.
#[derive(Clone, Copy)]
pub(crate) struct Resumption {
    client_id: u64,
    first_unacknowledged: u64,
    proof: [u8; PROOF_BYTES],
}

/// Resumes a session if there is one, or opens another if the server says that it has ended. Another refusal may be over a
/// moment later.
pub(crate) fn reopen(
    settings: &SessionSettings,
    resumption: Option<Resumption>,
) -> Result<(Connection, Opened), Error> {
    match resumption.map(|resumption| resume(settings, resumption)) {
        None | Some(Err(Error::Refused { status: Status::BadToken | Status::BadSecret, .. })) => {
            open(settings)
        }
        Some(resumed) => resumed,
    }
}

/// Asks a server for the replies of another one, with which the session was.
pub(crate) fn replies_at(
    address: &str,
    settings: &SessionSettings,
    resumption: Resumption,
) -> Result<Vec<LoggedReply>, Error> {
    let SessionSettings { identity, config, .. } = settings;
    let Resumption { client_id, first_unacknowledged, proof } = resumption;
    let (tenant, secret) = (&*identity.tenant, &*identity.secret);
    let request = OpenRequest::Replies { tenant, secret, client_id, first_unacknowledged, proof };
    let (_, answer) = Connection::open(resolve(address)?, config, request)?;
    Vec::decode(&answer).map_err(|_| Error::Unintelligible { expected: "replies of another server" })
}

fn resume(settings: &SessionSettings, resumption: Resumption) -> Result<(Connection, Opened), Error> {
    let SessionSettings { identity, config, .. } = settings;
    let Resumption { client_id, first_unacknowledged, proof } = resumption;
    let (tenant, secret) = (&*identity.tenant, &*identity.secret);
    let request = OpenRequest::Resume { tenant, secret, client_id, first_unacknowledged, proof };
    let (connection, answer) = Connection::open(identity.server, config, request)?;
    Ok((connection, opened_of(&answer)?))
}

impl SessionState {
    /// Resumes the session or opens another one, and sorts the outstanding requests.
    pub(crate) fn reopen(
        &mut self,
        now_us: u64,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        let since = Instant::now();
        let (connection, opened) = match self.open_patiently() {
            Ok(opened) => opened,
            Err(error) => {
                self.close(complete);
                self.connectivity = Connectivity::Closed;
                for again in self.again.drain(..) {
                    complete(failed(again.tag, 0, CompletionError::TimedOut));
                }
                return Err(error);
            }
        };
        let now_us = now_us + since.elapsed().as_micros() as u64;
        let settings = self.settings.clone();
        self.take_over(now_us, ((connection, opened), settings), statistics, complete);
        Ok(())
    }

    /// Goes on with what [`reopen`] returned.
    pub(crate) fn take_over(
        &mut self,
        now_us: u64,
        ((connection, opened), settings): ((Connection, Opened), SessionSettings),
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        self.settings = settings;
        // No two clients have the same id.
        let is_resumed = opened.client_id == self.opened.client_id;
        if is_resumed {
            self.end_old(now_us, complete);
            // The same token is of the same start: what that refused it has not executed.
            if opened.token != self.opened.token {
                self.resumed_below = self.requester.next_sequence();
            }
            self.requester.resume(opened.token);
            self.refused.clear();
        } else {
            self.close(complete);
            self.requester =
                Requester::new(opened.token, opened.next_sequence, opened.credits, self.requester_config);
            self.resumed_below = 0;
        }
        self.stream_worker.replace(stream_of(connection, &opened, &self.settings));
        self.view = opened.view;
        self.home = core_address(&self.settings, &opened, opened.home_core);
        self.home_core = opened.home_core;
        self.transport = SessionTransport::of(&opened, &self.settings.config);
        self.homes += 1;
        self.opened = opened;
        self.connectivity = Connectivity::Open;
        statistics.reopened += 1;
        statistics.resumed += u64::from(is_resumed);
        self.send_stranded(now_us, complete);
    }

    /// Ends what may have been executed, by the replies that the log of the session's server has; all else goes to another server.
    pub(crate) fn end_recovered(
        &mut self,
        now_us: u64,
        replies: &[LoggedReply],
        complete: &mut impl FnMut(Completion<'_>),
    ) {
        let call_timeout_us = self.requester_config.call_timeout_us;
        let mut ended = Vec::new();
        let is_write = |call: &Accepted<'_>| !opcode::is_read(call.code);
        self.requester.close_where(is_write, &mut |completion| ended.push(completion.sequence));
        self.refused.clear();
        let stranded = self.stranded.drain(..).inspect(|job| _ = self.requester.release(job.sequence));
        let mut requests: Vec<(u64, OwnedRequest)> =
            stranded.map(|job| (job.sequence, job.request)).collect();
        let request = |sequence| (sequence, OwnedRequest::of(&self.requester.accepted(sequence)));
        requests.extend(ended.into_iter().map(request));
        for (sequence, request) in requests {
            match replies.iter().find(|reply| reply.sequence == sequence) {
                Some(LoggedReply { status, body, .. }) => {
                    complete(Completion { tag: request.tag, sequence, status: Ok(*status), body });
                }
                // Its record may have been forgotten before.
                None if is_old(now_us, call_timeout_us, request.journey) => {
                    complete(failed(request.tag, sequence, CompletionError::Closed));
                }
                None => self.moved.push(Moved { request, status: Status::BadToken, end: None }),
            }
        }
    }

    /// Returns what resumes the session, if that matters.
    pub(crate) fn resumption(&self) -> Option<Resumption> {
        let proof = self.opened.proof.filter(|_| self.may_have_written())?;
        let first_unacknowledged = self.requester.first_unacknowledged();
        Some(Resumption { client_id: self.opened.client_id, first_unacknowledged, proof })
    }

    /// Returns whether another stream can take the place of the session's at once.
    pub(crate) fn has_free_stream(&self) -> bool {
        self.stream_worker.is_free()
    }

    /// Returns whether this is a session under the same client id.
    pub(crate) fn is_resumed_by(&self, opened: &Opened) -> bool {
        opened.client_id == self.opened.client_id
    }

    /// Keeps what may have been executed until the server is back, and leaves everything else to
    /// [`SessionState::take_moved`]. Returns false if there is nothing to wait for.
    pub(crate) fn suspend(&mut self) -> bool {
        (self.is_patient, self.connectivity) = (false, Connectivity::Lost);
        self.stream_worker.interrupt(self.opened.token);
        let mut ended = Vec::new();
        let is_read = |call: &Accepted<'_>| opcode::is_read(call.code);
        self.requester
            .close_where(is_read, &mut |completion: Completion<'_>| ended.push(completion.sequence));
        for sequence in ended {
            self.again.push_back(OwnedRequest::of(&self.requester.accepted(sequence)));
        }
        for sequence in std::mem::take(&mut self.refused) {
            let accepted = self.requester.accepted(sequence);
            if opcode::is_read(accepted.code) {
                continue;
            }
            // Sent once and refused, so it was not executed.
            if accepted.was_repeated {
                self.refused.push(sequence);
            } else {
                self.again.push_back(OwnedRequest::of(&accepted));
                self.requester.release(sequence);
            }
        }
        for job in self.stranded.extract_if(.., |job| opcode::is_read(job.request.code)) {
            self.requester.release(job.sequence);
            self.again.push_back(job.request);
        }
        self.resumption().is_some()
    }

    /// Resumes the session if that matters, else opens one. Keeps trying for as long as a call may take.
    fn open_patiently(&self) -> Result<(Connection, Opened), Error> {
        let deadline = Instant::now() + self.settings.config.call_timeout;
        let resumption = self.resumption();
        loop {
            let opened = reopen(&self.settings, resumption);
            let is_late = Instant::now() + REOPEN_PAUSE >= deadline;
            match opened {
                // For a moment, or another stream of this client resumes it.
                Err(Error::Refused { .. }) if resumption.is_some() && !is_late => {}
                Err(Error::Refused { .. }) if resumption.is_some() => return open(&self.settings),
                Err(Error::Unreachable { .. }) if !is_late => {}
                opened => return opened,
            }
            thread::sleep(REOPEN_PAUSE);
        }
    }

    /// Returns whether a request without an answer may have been executed and may not be repeated.
    pub(crate) fn may_have_written(&self) -> bool {
        self.on_stream > self.orphans
            || !self.stranded.is_empty()
            || self.requester.calls().any(|(_, call)| !opcode::is_read(call.code))
    }

    /// Ends requests of the resumed session that the server may have executed and forgotten.
    fn end_old(&mut self, now_us: u64, complete: &mut impl FnMut(Completion<'_>)) {
        let call_timeout_us = self.requester_config.call_timeout_us;
        let is_old = |code, journey| !opcode::is_read(code) && is_old(now_us, call_timeout_us, journey);
        self.requester.close_where(|call| is_old(call.code, call.journey), complete);
        for job in self.stranded.extract_if(.., |job| is_old(job.request.code, job.request.journey)) {
            self.requester.release(job.sequence);
            complete(failed(job.request.tag, job.sequence, CompletionError::Closed));
        }
    }

    /// Ends what is kept for a resumed session and whose time is up; leaves reads to [`SessionState::take_moved`].
    pub(super) fn end_late(&mut self, now_us: u64, complete: &mut impl FnMut(Completion<'_>)) {
        for sequence in std::mem::take(&mut self.refused) {
            let accepted = self.requester.accepted(sequence);
            if now_us < accepted.journey.deadline_us {
                self.refused.push(sequence);
                continue;
            }
            let tag = accepted.tag;
            self.requester.release(sequence);
            complete(failed(tag, sequence, CompletionError::TimedOut));
        }
        let is_read = |job: &Job| opcode::is_read(job.request.code);
        let is_late = |job: &Job| now_us >= job.request.journey.deadline_us;
        for Job { request, sequence, .. } in self.stranded.extract_if(.., |job| is_read(job) || is_late(job))
        {
            self.requester.release(sequence);
            if now_us < request.journey.deadline_us {
                self.again.push_back(request);
            } else {
                complete(failed(request.tag, sequence, CompletionError::TimedOut));
            }
        }
    }

    /// Sends again what the stream of the session did not carry before it was resumed.
    pub(super) fn send_stranded(&mut self, now_us: u64, complete: &mut impl FnMut(Completion<'_>)) {
        let call_timeout_us = self.requester_config.call_timeout_us;
        for Job { request, sequence, .. } in std::mem::take(&mut self.stranded) {
            let may_repeat =
                opcode::is_read(request.code) || !is_old(now_us, call_timeout_us, request.journey);
            if now_us < request.journey.deadline_us && may_repeat {
                self.send_job(sequence, request);
            } else {
                self.requester.release(sequence);
                let error = if may_repeat { CompletionError::TimedOut } else { CompletionError::Closed };
                complete(failed(request.tag, sequence, error));
            }
        }
    }

    /// Ends the session: queues reads for repetition, completes all others as closed.
    pub(super) fn close(&mut self, complete: &mut impl FnMut(Completion<'_>)) {
        self.end_refused(complete);
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

    /// Ends the requests that a session which is not resumed has refused or did not carry.
    pub(super) fn end_refused(&mut self, complete: &mut impl FnMut(Completion<'_>)) {
        for sequence in std::mem::take(&mut self.refused) {
            let accepted = self.requester.accepted(sequence);
            let was_repeated = accepted.was_repeated;
            let request = OwnedRequest::of(&accepted);
            self.requester.release(sequence);
            // Sent once and refused, so it was not executed.
            if opcode::is_read(request.code) || !was_repeated {
                self.again.push_back(request);
            } else {
                complete(failed(request.tag, sequence, CompletionError::Closed));
            }
        }
        for Job { request, sequence, .. } in std::mem::take(&mut self.stranded) {
            self.requester.release(sequence);
            if opcode::is_read(request.code) {
                self.again.push_back(request);
            } else {
                complete(failed(request.tag, sequence, CompletionError::Closed));
            }
        }
    }
}

/// Returns whether a call was made so long ago that the server may have forgotten its execution.
fn is_old(now_us: u64, call_timeout_us: u64, journey: Journey) -> bool {
    let made_us = journey.deadline_us.saturating_sub(call_timeout_us);
    now_us.saturating_sub(made_us) > RESEND_AGE_US_MAX
}

#[cfg(test)]
mod tests {
    use wire::Journey;

    use super::is_old;
    use crate::limits::RESEND_AGE_US_MAX;

    #[test]
    fn a_call_is_old_by_the_time_since_it_was_made() {
        let journey = Journey::begin(1_000, 300_000_000);
        assert!(!is_old(1_000 + RESEND_AGE_US_MAX, 300_000_000, journey));
        assert!(is_old(1_001 + RESEND_AGE_US_MAX, 300_000_000, journey));
    }
}
