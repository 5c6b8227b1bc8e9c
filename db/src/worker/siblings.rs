//! Shared view of all workers: each one's load and offers, and its waker.
//!
//! ```text
//!   worker:    work, rest ──▶ its load ◀── loaded ─── an idle worker
//!   worker:    invocations that it cannot poll soon ──▶ its offers ◀── take ─── an idle worker
//!   worker that stays loaded, or offers ─── wake ──▶ a sleeping worker
//!   watchdog:  for a worker that stays away ── wake ──▶ a sleeping worker
//! ```
//! A turn of invocations ends after a slice of time, so an invocation that has not begun by then has waited that long.
//! [`Sharing`] offers it while another worker is idle, and takes it back when the worker can run it. Elsewhere it runs
//! like that worker's own: with the same limits, the same record in the session's ring, and an answer from the port at
//! which the request arrived.
//!
//! No worker waits for another. A worker looks at others only if it has nothing to do, and not in every round, so that
//! an idle worker costs a busy one next to nothing. See "Where work goes" in docs/notes.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use net::Waker;

use super::invocation;
use super::outgoing::Outgoing;
use super::ports::Exits;
use crate::extension::invocation::{Invocations, Offer};
use crate::limits::{
    LOADED_ROUNDS_TO_WAKE, OFFER_KEEP, OFFERS_PER_WORKER, STEAL_AFTER_US, STEAL_INVOCATIONS, STEAL_LOOK_US,
    WAKE_SIBLING_US,
};
use crate::metrics::Counter;
use crate::ops::WorkerEnvironment;
use crate::sched::{Load, Offers};
use crate::session::Origin;

struct SiblingWorker {
    load: Load,
    waker: Waker,
    offers: Offers<Offer<Origin>>,
    /// Whether it holds answers until they are stable on the disk.
    holds: AtomicBool,
}

/// All workers of a server, by index.
pub struct SiblingWorkers {
    all: Box<[SiblingWorker]>,
    /// Busy background threads that yield to workers.
    company: AtomicUsize,
}

impl SiblingWorkers {
    /// Creates the table of workers with these wakers; none has work.
    #[must_use]
    pub fn new(wakers: impl IntoIterator<Item = Waker>) -> Self {
        let sibling = |waker| SiblingWorker {
            load: Load::default(),
            waker,
            offers: Offers::new(OFFERS_PER_WORKER),
            holds: AtomicBool::new(false),
        };
        Self { all: wakers.into_iter().map(sibling).collect(), company: AtomicUsize::new(0) }
    }

    /// Returns the published load of a worker.
    #[must_use]
    pub fn load(&self, index: usize) -> &Load {
        &self.all[index].load
    }

    /// Returns the invocations that a worker offers to others.
    #[must_use]
    pub fn offers(&self, index: usize) -> &Offers<Offer<Origin>> {
        &self.all[index].offers
    }

    /// Returns true if another worker is idle.
    #[must_use]
    pub fn has_idle(&self, own: usize) -> bool {
        self.after(own).any(|index| self.all[index].load.is_idle())
    }

    /// Returns the nearest worker after `own` that offers invocations.
    #[must_use]
    pub fn offering(&self, own: usize) -> Option<usize> {
        self.after(own).find(|&index| !self.all[index].offers.is_empty())
    }

    /// Returns the nearest worker after `own` that is loaded.
    #[must_use]
    pub fn loaded(&self, own: usize, now_us: u64) -> Option<usize> {
        self.after(own).find(|&index| self.all[index].load.is_loaded(now_us))
    }

    /// Registers a busy background thread that yields to workers, until the guard is dropped.
    #[must_use]
    pub fn add_background_load(self: &Arc<Self>) -> BackgroundLoad {
        self.company.fetch_add(1, Ordering::Relaxed);
        BackgroundLoad(Arc::clone(self))
    }

    /// Returns true if a busy background thread is registered.
    #[inline]
    #[must_use]
    pub fn has_background_load(&self) -> bool {
        self.company.load(Ordering::Relaxed) > 0
    }

    /// Returns true if any worker is loaded.
    #[must_use]
    pub fn is_any_loaded(&self, now_us: u64) -> bool {
        self.all.iter().any(|sibling| sibling.load.is_loaded(now_us))
    }

    /// Publishes whether a worker holds answers until they are stable on the disk.
    pub fn set_holding(&self, index: usize, holds: bool) {
        self.all[index].holds.store(holds, Ordering::SeqCst);
    }

    /// Wakes the workers that hold answers, after the disk has got what they wait for.
    pub fn wake_holding(&self) {
        let holding = self.all.iter().filter(|sibling| sibling.holds.load(Ordering::SeqCst));
        holding.for_each(|sibling| sibling.waker.wake());
    }

    /// Wakes the nearest sleeping worker after `own`.
    pub fn wake_one(&self, own: usize) {
        if let Some(index) = self.after(own).find(|&index| self.all[index].load.is_asleep()) {
            self.all[index].waker.wake();
        }
    }

    /// Wakes a worker for each one that does not return to its port. Called periodically by a thread that is not a
    /// worker.
    pub fn help_the_absent(&self, now_us: u64) {
        for (own, sibling) in self.all.iter().enumerate() {
            if sibling.load.is_absent(now_us) {
                self.wake_one(own);
            }
        }
    }

    fn after(&self, own: usize) -> impl Iterator<Item = usize> {
        let count = self.all.len();
        (own + 1..own + count).map(move |index| index % count)
    }
}

/// A registered background thread: see [`SiblingWorkers::add_background_load`].
pub struct BackgroundLoad(Arc<SiblingWorkers>);

impl Drop for BackgroundLoad {
    fn drop(&mut self) {
        self.0.company.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One worker's schedule of looking at siblings and waking them.
#[derive(Debug, Default)]
pub struct Outlook {
    /// Time of its next look for a loaded one.
    look_us: u64,
    /// Time at which its latest round began.
    round_us: u64,
    /// Consecutive rounds that found waiting frames.
    loaded_rounds: u32,
    /// Time at which it last woke one.
    woke_us: u64,
}

impl Outlook {
    /// Returns true if the worker should look for a loaded sibling now.
    #[inline]
    pub fn is_due(&mut self, now_us: u64) -> bool {
        let due = now_us >= self.look_us;
        if due {
            self.look_us = now_us + STEAL_LOOK_US;
        }
        due
    }

    /// Begins a round; `frames` says whether it received any. Returns true if the worker has been loaded for a while
    /// and should wake a helper.
    #[inline]
    pub fn needs_help(&mut self, now_us: u64, frames: bool, cut: bool) -> bool {
        let waited = now_us.saturating_sub(self.round_us) >= STEAL_AFTER_US;
        self.round_us = now_us;
        if !(frames && (waited || cut)) {
            self.loaded_rounds = 0;
            return false;
        }
        self.loaded_rounds = self.loaded_rounds.saturating_add(1);
        self.loaded_rounds >= LOADED_ROUNDS_TO_WAKE && self.may_wake(now_us)
    }

    /// Returns true if the worker may wake another one now.
    #[inline]
    pub fn may_wake(&mut self, now_us: u64) -> bool {
        let may = now_us >= self.woke_us + WAKE_SIBLING_US;
        if may {
            self.woke_us = now_us;
        }
        may
    }
}

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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use net::{Faults, LoopbackClock, LoopbackNetwork, Port};

    use super::{Outlook, SiblingWorkers};
    use crate::limits::{ABSENT_AFTER_US, LOADED_ROUNDS_TO_WAKE, WAKE_SIBLING_US};

    #[test]
    fn a_loaded_neighbour_is_found_and_oneself_never() {
        let network = LoopbackNetwork::new(1, Faults::default(), LoopbackClock::Real);
        let ports: Vec<_> = (0..4).map(|_| network.port().expect("a port")).collect();
        let siblings = SiblingWorkers::new(ports.iter().map(Port::waker));
        assert_eq!(siblings.loaded(2, 10), None);
        siblings.load(2).work(10, true);
        assert_eq!(siblings.loaded(2, 10), None);
        assert_eq!(siblings.loaded(3, 10), Some(2));
        siblings.load(0).work(10, true);
        assert_eq!(siblings.loaded(3, 10), Some(0), "the nearest one");
        siblings.load(0).rest();
        assert_eq!(siblings.loaded(3, 10), Some(2));
    }

    #[test]
    fn who_sleeps_is_woken_for_one_who_stays_away() {
        let network = LoopbackNetwork::new(1, Faults::default(), LoopbackClock::Real);
        let mut ports: Vec<_> = (0..2).map(|_| network.port().expect("a port")).collect();
        let siblings = SiblingWorkers::new(ports.iter().map(Port::waker));
        siblings.load(0).work(0, false);
        siblings.load(1).set_asleep(true);
        siblings.help_the_absent(ABSENT_AFTER_US);
        // Would last for an hour without the wake.
        ports[1].wait(Duration::from_secs(3600)).expect("a working port");
    }

    #[test]
    fn help_is_asked_for_by_who_stays_loaded_and_not_too_often() {
        let mut outlook = Outlook::default();
        let mut now_us = WAKE_SIBLING_US;
        assert!(!outlook.needs_help(now_us, false, false));
        for _ in 1..LOADED_ROUNDS_TO_WAKE {
            now_us += 1;
            assert!(!outlook.needs_help(now_us, true, true));
        }
        assert!(outlook.needs_help(now_us + 1, true, true));
        assert!(!outlook.needs_help(now_us + 2, true, true), "it has just been asked for");
        assert!(outlook.needs_help(now_us + 1 + WAKE_SIBLING_US, true, true));
        assert!(!outlook.needs_help(now_us + 2 + 2 * WAKE_SIBLING_US, false, false), "no frame waits");
        assert!(!outlook.needs_help(now_us + 3 + 2 * WAKE_SIBLING_US, true, true), "a single loaded round");
    }
}
