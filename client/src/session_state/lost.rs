//! When the server does not know the session any more: it was restarted, or the session was revoked.
//!
//! What only reads is made again in a new session. What may write is made again only when it cannot have
//! been executed: the server refused its only transmission, so none had reached the server before. All else
//! completes as closed: its outcome is unknown.

use std::thread;
use std::time::{Duration, Instant};

use wire::{Accepted, Completion, CompletionError, Journey, Opened, Request, Requester, Status, opcode};

use super::SessionState;
use crate::connection::Connection;
use crate::reconnecting_stream::{ReconnectingStream, StreamEntrance};
use crate::transport::SessionTransport;
use crate::{Error, SessionStatistics};

/// Pause between attempts to open a lost session.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);

/// How a session stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Connectivity {
    /// Open, as far as known.
    Open,
    /// The server does not know it any more.
    Lost,
    /// It could not be opened anew; the next request tries again.
    Closed,
}

/// A request to make again.
pub(super) struct Again {
    pub(super) tag: u64,
    pub(super) journey: Journey,
    pub(super) code: u8,
    pub(super) body: Vec<u8>,
}

/// A request that is to be made anew, there or elsewhere: this server has not executed it, and will not; or it only
/// reads.
pub(crate) struct Moved {
    pub(crate) tag: u64,
    pub(crate) journey: Journey,
    pub(crate) code: u8,
    pub(crate) body: Vec<u8>,
    /// What the server answered; `BadToken` where the session ended.
    pub(crate) status: Status,
    /// Of a table in several pieces, the last hash of the first one.
    pub(crate) end: Option<u64>,
}

impl Again {
    pub(super) fn of(accepted: &Accepted<'_>) -> Again {
        let Accepted { tag, journey, code, body, .. } = *accepted;
        Again { tag, journey, code, body: body.to_vec() }
    }
}

impl SessionState {
    /// Opens the session anew and sorts what was outstanding.
    pub(super) fn reopen(
        &mut self,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(), Error> {
        self.close(complete);
        let (connection, opened) = match self.open_patiently() {
            Ok(opened) => opened,
            Err(error) => {
                self.standing = Connectivity::Closed;
                for again in self.again.drain(..) {
                    complete(failed(again.tag, 0, CompletionError::TimedOut));
                }
                return Err(error);
            }
        };
        self.requester = Requester::new(opened.token, opened.next_sequence, opened.credits, self.settings);
        let door = StreamEntrance::Session { token: opened.token };
        self.courier.replace(ReconnectingStream::new(
            connection,
            self.identity.server,
            door,
            self.config.clone(),
        ));
        self.view = opened.view;
        self.home = super::core_address(&self.identity, &self.config, &opened, opened.home_core);
        self.home_core = opened.home_core;
        self.way = SessionTransport::of(&opened, &self.config);
        self.homes += 1;
        self.opened = opened;
        self.standing = Connectivity::Open;
        statistics.reopened += 1;
        Ok(())
    }

    /// Ends the session: what only reads is to be made again, all else completes as closed.
    fn close(&mut self, complete: &mut impl FnMut(Completion<'_>)) {
        let mut ended = Vec::new();
        self.requester.close(&mut |completion| ended.push(completion.sequence));
        for sequence in ended {
            let ended = self.requester.accepted(sequence);
            if opcode::is_read(ended.code) {
                self.again.push_back(Again::of(&ended));
            } else {
                complete(closed(ended.tag, sequence));
            }
        }
        self.orphans = self.on_stream;
    }

    /// Whether the session is over; as long as it is patient it finds out and mends that by itself.
    pub(crate) fn is_lost(&self) -> bool {
        self.standing != Connectivity::Open
    }

    /// From now on a lost session is not opened anew by who polls, who has others to look after.
    pub(crate) fn lose_patience(&mut self) {
        self.is_patient = false;
    }

    /// Ends the session for good and gives away what is to be made again. What is on the stream comes yet: see
    /// [`SessionState::is_leaving`].
    pub(crate) fn leave(&mut self, complete: &mut impl FnMut(Completion<'_>)) {
        self.is_patient = false;
        self.standing = Connectivity::Lost;
        self.close(complete);
        self.opened.token = 0;
    }

    /// Whether a session that was left has something on the stream.
    pub(crate) fn is_leaving(&self) -> bool {
        self.on_stream > 0
    }

    /// Whether there are requests that are to be made anew.
    #[inline]
    pub(crate) fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// Takes the requests that are to be made anew.
    pub(crate) fn take_moved(&mut self) -> Vec<Moved> {
        let mut moved = std::mem::take(&mut self.moved);
        if self.is_lost() && !self.is_patient {
            let again = self.again.drain(..).map(|Again { tag, journey, code, body }| {
                let (status, end) = (Status::BadToken, None);
                Moved { tag, journey, code, body, status, end }
            });
            moved.extend(again);
        }
        moved
    }

    /// Submits what is to be made again, as far as the window allows.
    pub(super) fn submit_again(&mut self, statistics: &mut SessionStatistics) {
        while let Some(Again { tag, journey, code, body }) = self.again.front_mut() {
            let (tag, journey, code, body) = (*tag, *journey, *code, std::mem::take(body));
            let accepted = match Request::decode(code, &body) {
                Ok(request) => self.submit(journey, tag, &request, statistics).is_ok(),
                // What was encoded here is decoded here.
                Err(_) => true,
            };
            if !accepted {
                if let Some(first) = self.again.front_mut() {
                    first.body = body;
                }
                return;
            }
            self.again.pop_front();
        }
    }

    /// Opens a session, waiting for the server for as long as a call may take.
    fn open_patiently(&self) -> Result<(Connection, Opened), Error> {
        let deadline = Instant::now() + self.config.call_timeout;
        loop {
            match super::open(&self.identity, &self.config) {
                Err(Error::Unreachable { .. }) if Instant::now() + REOPEN_PAUSE < deadline => {
                    thread::sleep(REOPEN_PAUSE);
                }
                opened => return opened,
            }
        }
    }

    /// Makes an administrative request over the session's stream. When the session turns out to be lost, it
    /// is opened anew and the request, which was refused unseen, made again.
    pub(crate) fn administer(
        &mut self,
        code: u8,
        body: &[u8],
        repeatable: bool,
        statistics: &mut SessionStatistics,
        complete: &mut impl FnMut(Completion<'_>),
    ) -> Result<(Status, Vec<u8>), Error> {
        let timeout = match code {
            opcode::EXTENSION_INSTALL => self.config.install_timeout,
            _ => self.config.admin_timeout,
        };
        match self.courier.administer(code, body, repeatable, timeout) {
            Err(Error::SessionLost) | Ok((Status::BadToken, _)) => {
                self.reopen(statistics, complete)?;
                self.courier.administer(code, body, repeatable, timeout)
            }
            answer => answer,
        }
    }
}

/// The completion of a request whose session is over.
pub(super) fn closed(tag: u64, sequence: u64) -> Completion<'static> {
    failed(tag, sequence, CompletionError::Closed)
}

/// A completion without an answer.
pub(super) fn failed(tag: u64, sequence: u64, error: CompletionError) -> Completion<'static> {
    Completion { tag, sequence, status: Err(error), body: &[] }
}
