//! The place of a reply to a frame's request: the peer's outgoing frame.
//!
//! Each request gets a new place, which holds only borrows and the address.

use std::net::SocketAddr;

use wire::Status;

use super::Outgoing;
use crate::metrics::WorkerMetrics;
use crate::ops::WorkerEnvironment;
use crate::server::ports::Exits;
use crate::server::replies::ReplyPlace;
use crate::session::{Route, Session};
use crate::tenant::ledger::Page;

/// The addressee of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Addressee {
    /// Index of the worker from whose port the reply leaves.
    pub port: u16,
    /// The client's address.
    pub peer: SocketAddr,
    /// The session's token.
    pub token: u64,
    /// The session's home core, named in the group.
    pub home_core: u16,
    /// The client accepts an answer in parts.
    pub takes_parts: bool,
}

impl Addressee {
    /// Returns the addressee for a request of a session, from an address, at a worker's port.
    #[inline]
    pub fn of(session: &Session, (port, peer): (u16, SocketAddr), takes_parts: bool) -> Self {
        Self { port, peer, token: session.token, home_core: session.home_core(), takes_parts }
    }
}

/// The place of a reply in the outgoing frame of a peer.
pub struct FramePlace<'s, P: Exits> {
    /// Frames under construction.
    outgoing: &'s mut Outgoing,
    /// The port that sends frames.
    port: &'s mut P,
    /// The worker's counters.
    metrics: &'s WorkerMetrics,
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
        Self { outgoing, port, metrics: environment.metrics, page, to, sequence_low: sequence as u32 }
    }
}

impl<P: Exits> ReplyPlace for FramePlace<'_, P> {
    #[inline]
    fn reply(&mut self, status: Status, body_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        self.page.answered(status, body_bytes);
        let head = (self.sequence_low, status);
        self.outgoing.hurry();
        self.outgoing.reply(self.port, self.metrics, &self.to, head, body_bytes, fill);
    }

    fn route(&self) -> Route {
        Route::Frame { port: self.to.port, peer: self.to.peer }
    }
}
