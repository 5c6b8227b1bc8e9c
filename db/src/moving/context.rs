//! State that both sides of a migration share: a core of the store once admitted, the inbox, the stream, and
//! background tasks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::metadata::{MigrationRow, Side};
use cluster::migration::{MigrationPhase, Tenure};
use cluster::moment::Moment;
use store::Core;
use wire::TabletMap;

use super::background::BackgroundTasks;
use crate::control_plane::migrations::inbox::{Inbox, Link};
use crate::control_plane::migrations::slots::SlotClaim;
use crate::control_plane::migrations::{Figure, Progress};
use crate::control_plane::ownership::Alteration;
use crate::control_plane::{Control, Refusal};
use crate::limits::{MIGRATION_LOOK_MS, MIGRATION_NICER, MIGRATION_QUEUED_LOOK_MS, PEER_AWAY_MS};
use crate::process;
use crate::tablet::PartsChange;
use crate::view::Guard;
use crate::worker::siblings::BackgroundLoad;

/// The shared state of one side of a migration.
pub(super) struct MigrationContext {
    pub(super) control: Arc<Control>,
    pub(super) row: MigrationRow,
    pub(super) side: Side,
    /// Present from the admission on.
    core: Option<Core>,
    /// Dropped after the core.
    claim: SlotClaim,
    pub(super) inbox: Inbox,
    pub(super) tasks: BackgroundTasks,
    pub(super) link: Link,
    pub(super) progress: Arc<Progress>,
    /// The tablet map as last read from the metadata: clients get it with the change itself, before this server has
    /// followed the metadata.
    pub(super) map: Option<TabletMap>,
    /// True while a background task checks the other server, and the time at which the last one began.
    looked_after: (bool, Instant),
    tenure: Tenure,
    /// Held while workers serve hashes that others may come to own.
    guard: Option<Guard>,
    has_low_priority: bool,
    /// Registers this thread with the workers once it yields to them.
    company: Option<BackgroundLoad>,
}

impl MigrationContext {
    pub(super) fn new(
        (side, claim): (Side, SlotClaim),
        inbox: Inbox,
        tasks: BackgroundTasks,
        progress: Arc<Progress>,
    ) -> Self {
        let (control, row) = (Arc::clone(&tasks.control), tasks.row.clone());
        let (link, looked_after) = (Link::none(), (false, Instant::now()));
        let tenure = Tenure::begin(control.lease_cache.lease(Moment::now()));
        Self {
            control,
            row,
            side,
            core: None,
            claim,
            inbox,
            tasks,
            link,
            progress,
            map: None,
            looked_after,
            tenure,
            guard: None,
            has_low_priority: false,
            company: None,
        }
    }

    /// Requests a slot.
    pub(super) fn take_slot(&self) {
        self.claim.take(&self.tasks.notices);
    }

    /// Admits the side to a slot with this core of the store.
    pub(super) fn admit(&mut self, core: usize) {
        let (migration, target) = (self.row.id, self.row.target.server);
        tracing::info!(migration, source = self.row.source.server, target, "a migration begins");
        self.core = Some(self.control.store.core(core));
        if self.side == Side::Source {
            self.guard();
        }
    }

    /// Returns whether the side was admitted to a slot.
    pub(super) fn is_admitted(&self) -> bool {
        self.core.is_some()
    }

    /// Returns the core of the store.
    ///
    /// # Panics
    /// If the side is not admitted: until then no state machine requests an action that needs a core.
    pub(super) fn core(&self) -> &Core {
        self.core.as_ref().expect("a side that works on the store was admitted")
    }

    pub(super) fn now_us(&self) -> u64 {
        self.control.clock.now_us()
    }

    /// Returns the first and the last hash that move, or position if the table is tagged.
    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.row.hashes.first(), self.row.hashes.last())
    }

    /// Returns whether the disk has everything that was written until the first call with this cut, which it sets. True for
    /// a table in memory.
    pub(super) fn is_on_disk(&self, cut: &mut Option<u64>) -> bool {
        let Some(log) = self.control.log.as_ref().filter(|_| self.row.is_durable) else { return true };
        let store = &self.control.store;
        let cut = *cut.get_or_insert_with(|| store.unstable_cut());
        let is_stable = store.stable_cut() >= cut;
        if !is_stable {
            log.waker.wake();
        }
        is_stable
    }

    /// Returns true if the server's disk has failed: it gets nothing any more.
    pub(super) fn has_failed_disk(&self) -> bool {
        self.control.log.as_ref().is_some_and(|log| log.waker.has_failed())
    }

    /// Returns true if a worker is loaded.
    pub(super) fn is_loaded(&self, now_us: u64) -> bool {
        self.control.migrations.as_ref().is_some_and(|own| own.is_loaded(now_us))
    }

    /// Changes the ownership on this server; returns `None` if the table is gone. Retries until all workers have
    /// reached the view: either they return, or the server is useless.
    pub(super) fn alter(&mut self, change: &PartsChange) -> Option<()> {
        self.alter_table(self.row.table, change, &self.map.clone())
    }

    /// As [`MigrationContext::alter`], of this table, whose map this is.
    pub(super) fn alter_table(
        &mut self,
        table: u32,
        change: &PartsChange,
        map: &Option<TabletMap>,
    ) -> Option<()> {
        if !change.take.is_empty() {
            self.guard();
        }
        loop {
            let alteration = Alteration { table, change: change.clone(), map: map.clone() };
            match self.control.alter(&[alteration]) {
                Ok(_) => {
                    if !change.leave.is_empty() {
                        self.guard = None;
                    }
                    return Some(());
                }
                Err(Refusal { status: wire::Status::Unavailable, .. })
                    if !self.tasks.over.load(Ordering::Relaxed) =>
                {
                    tracing::warn!(migration = self.row.id, "workers have not applied an ownership change");
                }
                Err(refusal) => {
                    tracing::warn!(migration = self.row.id, %refusal, "cannot change the ownership");
                    return None;
                }
            }
        }
    }

    /// Begins the bulk of the work: ownership has changed, or objects are copied before it changes.
    pub(super) fn begin(&mut self) {
        if self.company.is_none() {
            self.company = self.control.migrations.as_ref().map(|own| own.siblings.add_background_load());
        }
        if self.progress.get(Figure::BeganUs) == 0 {
            self.progress.set(Figure::BeganUs, self.now_us());
        }
    }

    /// Lowers the thread's priority: from here on it yields to all others.
    pub(super) fn lower_priority(&mut self) {
        if std::mem::replace(&mut self.has_low_priority, true) {
            return;
        }
        self.begin();
        if let Err(error) = process::take_short_turns(MIGRATION_NICER) {
            tracing::warn!(%error, "cannot lower the priority of a migration's thread");
        }
    }

    /// Restores the thread's priority if the kernel permits, because nobody serves the hashes until this step ends.
    pub(super) fn restore_priority(&mut self) {
        if self.has_low_priority && process::take_short_turns(-MIGRATION_NICER).is_ok() {
            self.has_low_priority = false;
            self.company = None;
        }
    }

    /// Sends a sign of life to the other server, and starts a background check if it was silent for a while.
    pub(super) fn look_after_peer(&mut self) {
        self.link.keep_up();
        let pause = Duration::from_millis(PEER_AWAY_MS);
        let (is_out, asked) = self.looked_after;
        if !is_out && self.link.silent_for() >= pause && asked.elapsed() >= pause {
            self.looked_after = (true, Instant::now());
            self.tasks.look_after_peer(self.side);
        }
    }

    /// Notes that the background check ended.
    pub(super) fn looked_after_peer(&mut self) {
        self.looked_after.0 = false;
    }

    /// Guards hashes that workers serve from here on and others may come to own.
    fn guard(&mut self) {
        self.guard = self.tenure.lease().map(|lease| self.control.fence.guard(lease));
    }

    /// Drops the guard once the migration is over and nobody else can come to own what workers serve.
    pub(super) fn release_guard(&mut self, phase: MigrationPhase) {
        if matches!(phase, MigrationPhase::Finished | MigrationPhase::Ended) {
            self.guard = None;
        }
    }

    /// Returns true if this server has become registered, false if it has lost its registration, `None` if nothing
    /// changed.
    pub(super) fn turned(&mut self) -> Option<bool> {
        self.tenure.turn(self.control.lease_cache.lease(Moment::now()))
    }

    /// Changes the metadata; if the reason is that the other server is gone, the change commits only while it is.
    pub(super) fn commit(&self, from: MigrationPhase, to: MigrationPhase, is_peer_gone: bool) {
        let gone = is_peer_gone.then_some(self.side.opposite());
        self.tasks.commit((from, to), gone);
    }

    /// Sleeps until something happens, at most briefly; longer while it waits for a slot.
    pub(super) fn rest(&self, at_most: Duration) {
        let timeout = match self.core {
            Some(_) => at_most.min(Duration::from_millis(MIGRATION_LOOK_MS)),
            None => Duration::from_millis(MIGRATION_QUEUED_LOOK_MS),
        };
        self.link.sleep(&self.inbox.sleeper, timeout);
    }

    /// Runs at most `steps` of the store's background work that writing has caused.
    pub(super) fn tidy(&self, steps: usize) {
        self.core().store().advance_clock(self.control.clock.steady_ms(self.now_us()));
        for _ in 0..steps {
            if !self.core().step() {
                break;
            }
        }
    }
}

/// Actions in the order in which the state machine requested them.
pub(super) type Todo<A> = VecDeque<A>;
