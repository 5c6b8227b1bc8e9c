//! A worker: one thread with one core, one port and one log head, and its loop.
//!
//! ```text
//!   round:  changes from the control plane        one relaxed load when there are none
//!           receive a batch                       without any other work: take frames of a loaded sibling
//!           check the fence                       after its time nothing is executed
//!           dispatch it                           native requests run to completion
//!           run invocations                       one poll each; siblings may take those that are left
//!           send the outgoing frames              answers of invocations may wait for more
//!           run a step of the store's background work
//!           without work: spin, yield, then sleep in the port
//! ```
//! A worker with work publishes its load and wakes a sibling if it needs help. A worker without work looks at a loaded
//! sibling, at most as often as its outlook allows; its own frames, changes or a sibling that needs help wake it.
//!
//! [`dispatch`] decodes batches, [`prefetch`] requests memory early, [`native`] executes native requests,
//! [`invocation`] starts invocations, [`outgoing`] collects replies in frames. Workers see each other's load in [`siblings`], share
//! invocations there, and take frames from each other's [`ports`].
//!
//! A worker blocks only in that sleep and takes no lock that another thread could hold meanwhile. It receives
//! everything that it needs at its start, and ends with [`Change::Stop`] or when its port breaks.

pub mod batch_admission;
pub mod dispatch;
pub mod invocation;
mod listing;
pub mod native;
pub mod outgoing;
mod peer_reads;
pub mod pending_requests;
pub mod places;
pub mod ports;
pub mod prefetch;
pub mod replies;
pub mod response_limiter;
mod restoring;
pub mod siblings;
mod stale_read;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use net::{Batch, IdleAction, IdleStrategy, SharedPort};
use store::{Core, Pinned};

use self::batch_admission::BatchAdmission;
use self::dispatch::Dispatch;
use self::outgoing::Outgoing;
use self::pending_requests::{PendingRequests, Resume};
use self::ports::Ports;
use self::response_limiter::{ResponseLimiter, ResponseRate};
use self::siblings::{Outlook, Sharing, SiblingWorkers};
use crate::clock::{Clock, WallTime};
use crate::durability::log_thread::LogWaker;
use crate::extension::invocation::Invocations;
use crate::limits::{
    BACKGROUND_EACH_US, BACKGROUND_STEPS_IDLE, CHANGES_PER_ROUND, CPU_LOST_US, CPU_SHARED_US,
    EVERYWHERE_EACH_US, HELD_STOP_MS, INVOCATIONS_PER_TURN, REFUSALS_BURST, REFUSALS_PER_SECOND,
    SLEEP_BESIDE_LOADED_US, SLEEP_MS_MAX, STEAL_MESSAGES,
};
use crate::metrics::{Counter, WorkerMetrics};
use crate::ops::WorkerEnvironment;
use crate::ops::remote::RemoteReads;
use crate::session::Origin;
use crate::view::catalog::WorkerCatalog;
use crate::view::change::{ArchivedObjects, Change, Changes, PeerReads, StreamRequest};
use crate::view::{Fence, RoundView, Views};

/// The state of one worker.
pub struct Worker<P: SharedPort> {
    core: Core,
    ports: Ports<P>,
    siblings: Arc<SiblingWorkers>,
    outlook: Outlook,
    changes: Changes,
    metrics: Arc<WorkerMetrics>,
    clock: Clock,
    idle: IdleStrategy,
    views: Arc<Views>,
    fence: Arc<Fence>,
    view: RoundView,
    catalog: WorkerCatalog,
    outgoing: Outgoing,
    refusals: ResponseLimiter,
    admission: BatchAdmission,
    invocations: Invocations<Origin>,
    requests: Vec<Arc<StreamRequest>>,
    reads: Vec<Arc<PeerReads>>,
    restores: Vec<Arc<ArchivedObjects>>,
    pending: PendingRequests,
    log: Option<LogWaker>,
    /// What the siblings know of it: see [`SiblingWorkers::set_holding`].
    is_holding: bool,
    wall: WallTime,
    /// Time at which the port last looked wherever frames may be, in microseconds.
    everywhere_us: u64,
    /// Time at which the worker last looked for background work and found none, in microseconds.
    background_us: u64,
    /// Time until which this worker assumes that other threads want its CPU; it does not spin until then.
    crowded_until_us: u64,
    stopping: bool,
}

/// The parts from which a worker is made.
pub struct WorkerParts<P: SharedPort> {
    /// The worker's handle of the store.
    pub core: Core,
    /// The worker's port, with handles of the other workers' ports.
    pub ports: Ports<P>,
    /// All workers of the server.
    pub siblings: Arc<SiblingWorkers>,
    /// The worker's queue of changes.
    pub changes: Changes,
    /// The worker's counters.
    pub metrics: Arc<WorkerMetrics>,
    /// The server's clock.
    pub clock: Clock,
    /// How an idle worker waits.
    pub idle: IdleStrategy,
    /// The server's views.
    pub views: Arc<Views>,
    /// The time until which the server may serve tablets that others may come to own.
    pub fence: Arc<Fence>,
    /// The thread that writes the log of durable tables, if there is a disk.
    pub log: Option<LogWaker>,
    /// Queue of reads at other servers; `None` outside a cluster.
    pub remote: Option<Arc<RemoteReads>>,
    /// Preempts invocations, schedules them by share and accounts for them.
    pub isolation: bool,
    /// Yields after which invocations are pushed back whatever the load, in tests.
    pub push_back_after: Option<u32>,
}

/// Work found at another worker.
#[derive(Clone, Copy)]
struct FoundWork {
    /// Index of the worker at whose port the batch arrived.
    arrived_at: u16,
    /// A worker that offers invocations.
    offering: Option<usize>,
}

impl<P: SharedPort> Worker<P> {
    /// Creates a worker without sessions and tables, on the thread that will run it.
    ///
    /// # Errors
    /// If the kernel has no memory for the stacks of extensions.
    pub fn new(mut parts: WorkerParts<P>) -> io::Result<Self> {
        let index = usize::from(parts.ports.own_index());
        let view = RoundView::settled(parts.views.settled());
        let outgoing = Outgoing::new(parts.ports.own().frame_bytes_max(), view.settled);
        Ok(Self {
            core: parts.core,
            ports: parts.ports,
            siblings: parts.siblings,
            outlook: Outlook::default(),
            changes: parts.changes,
            metrics: parts.metrics,
            clock: parts.clock,
            idle: parts.idle,
            views: parts.views,
            fence: parts.fence,
            view,
            catalog: WorkerCatalog::under(view.own).reading(parts.remote),
            outgoing,
            admission: BatchAdmission::new(index),
            refusals: ResponseLimiter::new(ResponseRate {
                burst: REFUSALS_BURST,
                per_second: REFUSALS_PER_SECOND,
            }),
            invocations: Invocations::of_a_worker(parts.isolation, parts.push_back_after)?,
            requests: Vec::new(),
            reads: Vec::new(),
            restores: Vec::new(),
            pending: PendingRequests::default(),
            log: parts.log,
            is_holding: false,
            wall: WallTime::default(),
            everywhere_us: 0,
            background_us: 0,
            crowded_until_us: 0,
            stopping: false,
        })
    }

    /// Serves until [`Change::Stop`] arrives.
    ///
    /// # Errors
    /// If the port breaks.
    pub fn run(mut self) -> io::Result<()> {
        let mut batch = Batch::new();
        let mut worked_us = self.clock.now_us();
        let (mut served, mut spun, mut now_us) = (false, false, worked_us);
        while !self.stopping {
            if !self.changes.is_empty() {
                self.take_changes();
            }
            // Read before any decision of this round: decisions made under an old view hold for later views too.
            self.view = RoundView { own: self.catalog.view(), settled: self.views.settled() };
            self.outgoing.set_view(self.view.settled);
            self.ports.own().receive(&mut batch)?;
            let before_us = std::mem::replace(&mut now_us, self.clock.now_us());
            self.core.store().advance_clock(self.clock.steady_ms(now_us));
            if self.fence.is_passed(now_us) {
                self.view = self.view.fenced();
            }
            let round_us = now_us.saturating_sub(before_us);
            if served {
                self.metrics.add(Counter::BusyUs, round_us);
            }
            self.invocations.note_round(now_us, round_us, served);
            if spun && round_us >= CPU_LOST_US && self.siblings.has_background_load() {
                self.crowded_until_us = now_us + CPU_SHARED_US;
            }
            if now_us >= self.everywhere_us + EVERYWHERE_EACH_US {
                self.everywhere_us = now_us;
                self.ports.own().look_everywhere();
            }
            let found = self.look_around(&mut batch, now_us)?;
            served = self.release_held() | self.round(&batch, found, now_us);
            self.note_held();
            self.wake_log(now_us, true);
            let more_follows = self.invocations.ready() > 0 && !self.stopping;
            self.outgoing.send_or_gather(&mut self.ports, &self.metrics, now_us, more_follows)?;
            self.metrics.set(Counter::FramesDropped, self.ports.own().drops());
            let worked = self.background(served, now_us);
            spun = false;
            if served || worked {
                worked_us = now_us;
            } else {
                spun = self.rest(now_us, now_us.saturating_sub(worked_us))?;
            }
        }
        self.release_last()
    }

    /// Sends the answers that wait for the disk, within a bounded time.
    fn release_last(&mut self) -> io::Result<()> {
        let until_us = self.clock.now_us() + HELD_STOP_MS * 1_000;
        while self.is_holding && self.clock.now_us() < until_us {
            if let Some(log) = &self.log {
                log.wake();
            }
            let released = self.release_held();
            self.note_held();
            if released {
                self.outgoing.send(&mut self.ports, &self.metrics)?;
            } else {
                thread::sleep(Duration::from_micros(SLEEP_BESIDE_LOADED_US));
            }
        }
        Ok(())
    }

    /// Publishes this worker's load; without work, takes some from a loaded sibling.
    fn look_around(&mut self, batch: &mut Batch, now_us: u64) -> io::Result<FoundWork> {
        let own = self.core.index();
        let (frames, cut) = (!batch.is_empty(), batch.is_cut());
        let mut found = FoundWork { arrived_at: self.ports.own_index(), offering: None };
        if frames || self.has_work(now_us) {
            self.siblings.load(own).work(now_us, cut);
            if self.outlook.needs_help(now_us, frames, cut) {
                self.siblings.wake_one(own);
            }
            return Ok(found);
        }
        if self.outlook.is_due(now_us) {
            if let Some(loaded) = self.siblings.loaded(own, now_us) {
                let taken = self.ports.take_from(loaded, batch, STEAL_MESSAGES)?;
                self.metrics.add(Counter::FramesStolen, taken as u64);
                found.arrived_at = loaded as u16;
            }
            if batch.is_empty() {
                found.offering = self.siblings.offering(own);
            }
        }
        if batch.is_empty() && found.offering.is_none() {
            self.siblings.load(own).rest();
        } else {
            self.siblings.load(own).work(now_us, false);
        }
        Ok(found)
    }

    /// Writes answers whose cut has become stable, some in each round. Returns whether there were any.
    #[inline]
    fn release_held(&mut self) -> bool {
        let Some(log) = self.log.as_ref().filter(|_| self.is_holding) else { return false };
        let (reached, has_failed) = (self.core.store().reached_cuts(), log.has_failed());
        if !has_failed && !self.outgoing.has_due(reached) {
            return false;
        }
        self.outgoing.release_held(&mut self.ports, &self.metrics, reached, has_failed);
        true
    }

    /// Tells the log's thread whether to wake this worker.
    #[inline]
    fn note_held(&mut self) {
        let holds = !self.outgoing.holds_nothing();
        if holds != self.is_holding {
            self.is_holding = holds;
            self.siblings.set_holding(self.core.index(), holds);
        }
    }

    /// Wakes the log's thread for held answers: when enough are gathered, or at once unless it is to `gather`.
    #[inline]
    fn wake_log(&mut self, now_us: u64, gather: bool) {
        let Some(log) = &self.log else { return };
        let waits_us = if gather { [log.receipt_wait_us(), log.group_wait_us()] } else { [0; 2] };
        let [receipts, disk] = self.outgoing.take_groups_of_held(now_us, waits_us);
        if disk {
            log.wake();
        }
        if receipts {
            log.wake_for_receipts();
        }
    }

    /// Returns true if there is work besides frames.
    fn has_work(&self, now_us: u64) -> bool {
        let offers = self.siblings.offers(self.core.index());
        let is_handed = !self.requests.is_empty() || !self.reads.is_empty() || !self.restores.is_empty();
        let is_live = is_handed || self.invocations.can_run(now_us) || !offers.is_empty();
        is_live || self.pending.is_due(now_us) || (self.stopping && self.pending.requests() > 0)
    }

    /// Serves a batch, requests of streams and work found at other workers, and polls each runnable invocation once.
    /// Returns false if there was no work.
    fn round(&mut self, batch: &Batch, found: FoundWork, now_us: u64) -> bool {
        if batch.is_empty() && found.offering.is_none() && !self.has_work(now_us) {
            return false;
        }
        let pin = self.core.pin();
        let now = (now_us, self.wall.at(&self.clock, now_us));
        let environment = lend((&self.core, &pin), &self.catalog, &self.metrics, now);
        if self.pending.requests() > 0 {
            let (outgoing, pending, view) = (&mut self.outgoing, &mut self.pending, self.view);
            let (catalog, port) = (&self.catalog, &mut self.ports);
            let mut resume = Resume { environment, catalog, view, port, outgoing, pending };
            if self.stopping { resume.give_up_all() } else { resume.run() }
        }
        if !batch.is_empty() {
            let run_at = self.invocations.live() + INVOCATIONS_PER_TURN;
            let mut dispatch = Dispatch {
                environment,
                catalog: &self.catalog,
                port: &mut self.ports,
                arrived_at: found.arrived_at,
                outgoing: &mut self.outgoing,
                refusals: &mut self.refusals,
                admission: &mut self.admission,
                invocations: &mut self.invocations,
                pending: &mut self.pending,
                view: self.view,
                run_at,
            };
            dispatch.batch(batch);
        }
        for request in self.requests.drain(..) {
            let known = (&self.catalog, self.view);
            let waiting = (&mut self.invocations, &mut self.pending, &mut self.outgoing);
            dispatch::stream_request(&environment, known, waiting, &request);
        }
        if self.view.is_fenced() && !self.stopping {
            return true;
        }
        self.reads.drain(..).for_each(|reads| peer_reads::answer(&environment, &reads));
        self.restores.drain(..).for_each(|objects| restoring::store(&environment, &objects));
        if self.invocations.expects_long_polls() {
            self.outgoing.send_hurried(&mut self.ports, &self.metrics);
        }
        let (siblings, own) = (&*self.siblings, self.core.index());
        let mut sharing = Sharing {
            environment,
            siblings,
            invocations: &mut self.invocations,
            port: &mut self.ports,
            outgoing: &mut self.outgoing,
        };
        if !siblings.offers(own).is_empty() {
            sharing.take_back(self.stopping);
        }
        if let Some(other) = found.offering {
            sharing.take_from(other);
        }
        invocation::run(&environment, sharing.invocations, sharing.port, sharing.outgoing);
        if self.stopping {
            invocation::end_all(&environment, sharing.invocations, sharing.port, sharing.outgoing);
        } else if sharing.give() && self.outlook.may_wake(now_us) {
            siblings.wake_one(own);
        }
        true
    }

    /// Applies queued changes. Once a change ends a session, nothing of that session runs on this worker.
    fn take_changes(&mut self) {
        for _ in 0..CHANGES_PER_ROUND {
            let taken = self.changes.take(|change| match change {
                Change::Request(request) => self.requests.push(request),
                Change::Reads(reads) => self.reads.push(reads),
                Change::Restore(objects) => self.restores.push(objects),
                Change::Record(replies) => replies.record(&self.core.pin()),
                Change::Answers(answers) => self.invocations.answer(&answers),
                Change::Wake(wake) => {
                    self.pending.wake(&wake);
                    let waits = (self.metrics.waits(), self.clock.now_us());
                    self.invocations.wake(wake.part, wake.hashes.as_deref(), waits);
                }
                Change::Stop => self.stopping = true,
                change => {
                    self.metrics.count(Counter::Changes);
                    let (ends_sessions, moves) = (change.ends_sessions(), change.moves_tables());
                    self.catalog.apply(change);
                    if ends_sessions || moves {
                        let is_over = |token| self.catalog.session(token).is_none();
                        self.pending.wake_where(|parked| moves || is_over(parked.session.token));
                        self.invocations.go_on_all();
                    }
                    if ends_sessions && self.invocations.live() > 0 {
                        let pin = self.core.pin();
                        let now_us = self.clock.now_us();
                        let now = (now_us, self.wall.at(&self.clock, now_us));
                        let environment = lend((&self.core, &pin), &self.catalog, &self.metrics, now);
                        let (port, outgoing) = (&mut self.ports, &mut self.outgoing);
                        invocation::end_of_closed(&environment, &mut self.invocations, port, outgoing);
                    }
                }
            });
            if !taken {
                break;
            }
        }
    }

    /// Runs one step of the store's background work, more if the worker is idle. Skips it for a short time after a
    /// step found nothing: rounds are shorter than that, and a request that arrives meanwhile would wait.
    fn background(&mut self, served: bool, now_us: u64) -> bool {
        if now_us < self.background_us + BACKGROUND_EACH_US {
            return false;
        }
        let steps = if served { 1 } else { BACKGROUND_STEPS_IDLE };
        let worked = (0..steps).take_while(|_| self.core.step()).count() > 0;
        self.background_us = if worked { 0 } else { now_us };
        worked
    }

    /// Waits for work; returns true if the worker spun and so kept its CPU. If a thread that yields to workers wants
    /// the CPU, the worker sleeps at once: a sleeping worker returns as soon as there is work, a spinning one waits
    /// until the other's time slice ends.
    fn rest(&mut self, now_us: u64, idle_us: u64) -> io::Result<bool> {
        let is_crowded = now_us < self.crowded_until_us && self.siblings.has_background_load();
        let action = if is_crowded { IdleAction::Sleep } else { self.idle.next(idle_us) };
        if action == IdleAction::Sleep {
            // Longer than answers are gathered.
            self.wake_log(now_us, false);
        }
        match action {
            IdleAction::Spin => std::hint::spin_loop(),
            IdleAction::Yield => thread::yield_now(),
            IdleAction::Sleep => {
                // A sleep is long, and this round may have skipped background work because it followed the previous
                // one closely.
                if self.background_us != now_us && self.core.step() {
                    return Ok(false);
                }
                self.metrics.count(Counter::Sleeps);
                let own = self.core.index();
                let timeout = match self.siblings.loaded(own, self.clock.now_us()) {
                    Some(_) => Duration::from_micros(SLEEP_BESIDE_LOADED_US),
                    None => Duration::from_millis(SLEEP_MS_MAX),
                };
                let load = self.siblings.load(own);
                load.set_asleep(true);
                let slept = self.ports.wait(timeout);
                load.set_asleep(false);
                slept?;
            }
        }
        Ok(action == IdleAction::Spin)
    }
}

/// Builds the environment that a round lends to its work.
fn lend<'w>(
    (core, pin): (&'w Core, &'w Pinned<'w>),
    catalog: &'w WorkerCatalog,
    metrics: &'w WorkerMetrics,
    (now_us, wall_ms): (u64, u64),
) -> WorkerEnvironment<'w> {
    let tables = &catalog.tables;
    WorkerEnvironment { core, pin, tables, metrics, remote: catalog.remote(), now_us, wall_ms }
}
