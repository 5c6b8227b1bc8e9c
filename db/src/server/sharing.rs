//! Shares invocations that have not begun: from a loaded worker to an idle one.
//!
//! ```text
//!   after a turn: invocations not begun ── give ──▶ the worker's offers ── take ──▶ an idle worker
//!                                                          │
//!                                 taken back when the worker can run them itself
//! ```
//! A turn of invocations ends after a slice of time, so an invocation that has not begun by then has waited that long.
//! It is offered only while another worker is idle, and runs there like that worker's own: with the same limits, the
//! same record in the session's ring, and an answer from the port at which the request arrived.

use super::invocation;
use super::outgoing::Outgoing;
use super::ports::Exits;
use super::siblings::SiblingWorkers;
use crate::extension::invocation::Invocations;
use crate::limits::{OFFER_KEEP, STEAL_INVOCATIONS};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::session::Origin;

/// The context in which a worker shares invocations.
pub struct Sharing<'w, P: Exits> {
    /// Store, tables, counters and time of this round.
    pub environment: WorkerEnvironment<'w>,
    /// All workers of the server.
    pub siblings: &'w SiblingWorkers,
    /// Invocations of this worker.
    pub invocations: &'w mut Invocations<Origin>,
    /// The port that sends frames.
    pub port: &'w mut P,
    /// Frames under construction.
    pub outgoing: &'w mut Outgoing,
}

impl<P: Exits> Sharing<'_, P> {
    /// Takes back offers that nobody has taken, as many as the worker can run now; all of them if `all`.
    pub fn take_back(&mut self, all: bool) {
        let own = self.environment.core.index();
        while all || self.invocations.ready() <= OFFER_KEEP {
            if self.take_one(own).is_none() {
                break;
            }
        }
    }

    /// Takes a few of another worker's offers.
    pub fn take_from(&mut self, other: usize) {
        let taken = (0..STEAL_INVOCATIONS).map_while(|_| self.take_one(other)).count();
        self.environment.metrics.add(Counter::InvocationsStolen, taken as u64);
    }

    /// Offers invocations that this worker cannot run soon, if another one is idle. Returns true if it offered any.
    pub fn give(&mut self) -> bool {
        let own = self.environment.core.index();
        if self.invocations.ready() <= OFFER_KEEP || !self.siblings.has_idle(own) {
            return false;
        }
        let offers = self.siblings.offers(own);
        let mut gave = false;
        while self.invocations.ready() > OFFER_KEEP && !offers.is_full() {
            let Some(offer) = self.invocations.give(&self.environment) else { break };
            if let Err(offer) = offers.put(offer) {
                // No other worker adds offers, but one may be slow to take one out.
                invocation::take(&self.environment, self.invocations, offer, self.port, self.outgoing);
                break;
            }
            gave = true;
        }
        gave
    }

    fn take_one(&mut self, index: usize) -> Option<()> {
        let offer = self.siblings.offers(index).take()?;
        invocation::take(&self.environment, self.invocations, offer, self.port, self.outgoing);
        Some(())
    }
}
