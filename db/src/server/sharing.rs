//! Invocations that have not begun, from a worker that cannot get to them to one that has nothing to do.
//!
//! ```text
//!   after a turn: what waits and has not begun ── give ──▶ the worker's offers ── take ──▶ an idle worker
//!                                                             │
//!                                    taken back when the worker gets to them itself
//! ```
//! A turn of invocations ends after a slice of time, so what has not begun by then has waited that long. It is
//! offered only while another worker is idle, and runs there like that worker's own: the same limits, the same
//! record in the session's ring, an answer from the port to which the request came.

use super::invocation;
use super::outgoing::Outgoing;
use super::ports::Exits;
use super::siblings::SiblingWorkers;
use crate::extension::invocation::Invocations;
use crate::limits::{OFFER_KEEP, STEAL_INVOCATIONS};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::session::Origin;

/// What a worker shares with.
pub struct Sharing<'w, P: Exits> {
    /// Store, tables, counters and time of this round.
    pub environment: WorkerEnvironment<'w>,
    /// All workers of the server.
    pub neighbours: &'w SiblingWorkers,
    /// Invocations of this worker.
    pub invocations: &'w mut Invocations<Origin>,
    /// Where frames leave.
    pub port: &'w mut P,
    /// Frames under construction.
    pub outgoing: &'w mut Outgoing,
}

impl<P: Exits> Sharing<'_, P> {
    /// Takes back what nobody has taken, as much as the worker gets to now; all of it if `all`.
    pub fn take_back(&mut self, all: bool) {
        let own = self.environment.core.index();
        while all || self.invocations.ready() <= OFFER_KEEP {
            if self.take_one(own).is_none() {
                break;
            }
        }
    }

    /// Takes a few of what another worker offers.
    pub fn take_from(&mut self, other: usize) {
        let taken = (0..STEAL_INVOCATIONS).map_while(|_| self.take_one(other)).count();
        self.environment.metrics.add(Counter::InvocationsStolen, taken as u64);
    }

    /// Offers what this worker cannot get to, if another one is idle. True when it offered something.
    pub fn give(&mut self) -> bool {
        let own = self.environment.core.index();
        if self.invocations.ready() <= OFFER_KEEP || !self.neighbours.has_idle(own) {
            return false;
        }
        let offers = self.neighbours.offers(own);
        let mut gave = false;
        while self.invocations.ready() > OFFER_KEEP && !offers.is_full() {
            let Some(offer) = self.invocations.give(&self.environment) else { break };
            if let Err(offer) = offers.put(offer) {
                // Nobody else puts in, but somebody may be slow to take out.
                invocation::take(&self.environment, self.invocations, offer, self.port, self.outgoing);
                break;
            }
            gave = true;
        }
        gave
    }

    fn take_one(&mut self, index: usize) -> Option<()> {
        let offer = self.neighbours.offers(index).take()?;
        invocation::take(&self.environment, self.invocations, offer, self.port, self.outgoing);
        Some(())
    }
}
