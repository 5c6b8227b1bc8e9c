//! The places of replies: in a frame, or at a stream's thread. Both hold a reply until what it shows is stable.

use wire::Status;

use super::outgoing::{Addressee, Outgoing};
use super::ports::Exits;
use super::replies::ReplyPlace;
use crate::ops::WorkerEnvironment;
use crate::session::{Route, Session, StreamAnswer};
use crate::sync::oneshot::Sender;
use crate::tenant::ledger::Page;

/// The place of a reply in the outgoing frame of a peer. Each request gets a new one, which holds only borrows and the
/// address.
pub struct FramePlace<'s, P: Exits> {
    /// Frames under construction.
    outgoing: &'s mut Outgoing,
    /// The port that sends frames.
    port: &'s mut P,
    /// The worker's store and counters.
    environment: WorkerEnvironment<'s>,
    /// The tenant's counters.
    pub page: &'s Page,
    /// The addressee.
    to: Addressee,
    /// Low half of the request's sequence.
    sequence_low: u32,
}

impl<'s, P: Exits> FramePlace<'s, P> {
    /// Creates the place of the reply to a request of a session.
    #[inline]
    pub fn new(
        (outgoing, port): (&'s mut Outgoing, &'s mut P),
        environment: &WorkerEnvironment<'s>,
        (session, sequence): (&'s Session, u64),
        to: Addressee,
    ) -> Self {
        let page = session.account.ledger.page(environment.core.index());
        Self { outgoing, port, environment: *environment, page, to, sequence_low: sequence as u32 }
    }
}

impl<P: Exits> ReplyPlace for FramePlace<'_, P> {
    #[inline]
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        self.page.answered(status, body_bytes);
        let head = (self.sequence_low, status);
        self.outgoing.hurry();
        self.outgoing.reply_when_stable(self.port, &self.environment, &self.to, head, body_bytes, fill);
    }

    fn shows_anything(&self) {
        self.environment.pin.note_seen_all();
    }

    fn route(&self) -> Route {
        let Addressee { port, peer, flags, .. } = self.to;
        Route::Frame { port, peer, flags }
    }
}

/// The place of a reply to a stream thread.
pub struct StreamPlace<'s> {
    /// Answers that wait for the disk.
    pub outgoing: &'s mut Outgoing,
    /// The worker's store.
    pub environment: WorkerEnvironment<'s>,
    /// Receives the reply.
    pub answer: &'s Sender<StreamAnswer>,
    /// The request's flags.
    pub flags: u8,
    /// The tenant's counters.
    pub page: &'s Page,
}

impl ReplyPlace for StreamPlace<'_> {
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        self.page.answered(status, body_bytes);
        let mut body = vec![0; body_bytes];
        fill(&mut body);
        let to = (self.answer, self.flags);
        self.outgoing.answer_when_stable(&self.environment, to, StreamAnswer { status, body });
    }

    fn shows_anything(&self) {
        self.environment.pin.note_seen_all();
    }

    fn route(&self) -> Route {
        Route::Stream(self.answer.clone(), self.flags)
    }
}
