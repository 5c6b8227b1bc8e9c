//! What both ends of a migration have: a core of the store once they are admitted, mail, a stream, and somebody to send on errands.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use store::Core;
use wire::TabletMap;

use super::background::BackgroundTasks;
use super::inbox::Inbox;
use super::peer_link::Link;
use super::progress::{Figure, Progress};
use super::slots::SlotClaim;
use crate::clock::Moment;
use crate::cluster::metadata::{MigrationRow, Side};
use crate::cluster::migration::{Phase, Tenure};
use crate::limits::{MIGRATION_LOOK_MS, MIGRATION_NICER, MIGRATION_QUEUED_LOOK_MS, PEER_AWAY_MS};
use crate::server::control::{Control, Refusal};
use crate::server::fence::Guard;
use crate::server::ownership::Alteration;
use crate::server::process;
use crate::server::siblings::BackgroundLoad;
use crate::tablet::PartsChange;

/// See the file's head.
pub(super) struct MigrationContext {
    pub(super) control: Arc<Control>,
    pub(super) row: MigrationRow,
    pub(super) side: Side,
    /// From its admission on.
    core: Option<Core>,
    /// Outlives the core.
    claim: SlotClaim,
    pub(super) mailbox: Inbox,
    pub(super) errands: BackgroundTasks,
    pub(super) link: Link,
    pub(super) progress: Arc<Progress>,
    /// Where the tablets are, as of the last time that the records were asked: clients hear it with the change itself, not
    /// when this server has followed the records.
    pub(super) map: Option<TabletMap>,
    /// Whether somebody is looking after the other server, and when that was asked last.
    looked_after: (bool, Instant),
    tenure: Tenure,
    /// While workers serve hashes that others may come to own.
    guard: Option<Guard>,
    is_humble: bool,
    /// By which workers know of this thread once it gives way to them.
    company: Option<BackgroundLoad>,
}

impl MigrationContext {
    pub(super) fn new(
        (side, claim): (Side, SlotClaim),
        mailbox: Inbox,
        errands: BackgroundTasks,
        progress: Arc<Progress>,
    ) -> Self {
        let (control, row) = (Arc::clone(&errands.control), errands.row.clone());
        let (link, looked_after) = (Link::none(), (false, Instant::now()));
        let tenure = Tenure::begin(control.interim.lease(Moment::now()));
        Self {
            control,
            row,
            side,
            core: None,
            claim,
            mailbox,
            errands,
            link,
            progress,
            map: None,
            looked_after,
            tenure,
            guard: None,
            is_humble: false,
            company: None,
        }
    }

    /// Asks for a slot.
    pub(super) fn take_slot(&self) {
        self.claim.take(&self.errands.post);
    }

    /// There is a slot, with this core of the store.
    pub(super) fn admit(&mut self, core: usize) {
        let (migration, target) = (self.row.id, self.row.target.server);
        tracing::info!(migration, source = self.row.source.server, target, "a tablet begins to move");
        self.core = Some(self.control.store.core(core));
        if self.side == Side::Source {
            self.guard();
        }
    }

    /// The core of the store.
    ///
    /// # Panics
    /// Before the side is admitted: until then no machine asks for anything that needs one.
    pub(super) fn core(&self) -> &Core {
        self.core.as_ref().expect("a side that works on the store was admitted")
    }

    pub(super) fn now_us(&self) -> u64 {
        self.control.clock.now_us()
    }

    /// The first and the last hash that move.
    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.row.hashes.first(), self.row.hashes.last())
    }

    /// Whether workers have much to do.
    pub(super) fn is_loaded(&self, now_us: u64) -> bool {
        self.control.migrations.as_ref().is_some_and(|own| own.is_loaded(now_us))
    }

    /// Changes what is owned here; `None` where the table is gone. Tries again until all workers have passed: they come
    /// back, or the server is of no more use.
    pub(super) fn alter(&mut self, change: &PartsChange) -> Option<()> {
        if !change.take.is_empty() {
            self.guard();
        }
        loop {
            let alteration =
                Alteration { table: self.row.table, change: change.clone(), map: self.map.clone() };
            match self.control.alter(&[alteration]) {
                Ok(_) => {
                    if !change.leave.is_empty() {
                        self.guard = None;
                    }
                    return Some(());
                }
                Err(Refusal { status: wire::Status::Unavailable, .. })
                    if !self.errands.over.load(Ordering::Relaxed) =>
                {
                    tracing::warn!(migration = self.row.id, "workers do not come to pass a cut");
                }
                Err(refusal) => {
                    tracing::warn!(migration = self.row.id, %refusal, "what is owned stays as it was");
                    return None;
                }
            }
        }
    }

    /// The hashes have changed hands, or what moves ahead of that does: the thread has much to do from here on.
    pub(super) fn begin(&mut self) {
        if self.company.is_none() {
            self.company = self.control.migrations.as_ref().map(|own| own.neighbours.keep_company());
        }
        if self.progress.get(Figure::BeganUs) == 0 {
            self.progress.set(Figure::BeganUs, self.now_us());
        }
    }

    /// Nothing is in a hurry: from here on the thread gives way to all others.
    pub(super) fn be_humble(&mut self) {
        if std::mem::replace(&mut self.is_humble, true) {
            return;
        }
        self.begin();
        if let Err(error) = process::take_short_turns(MIGRATION_NICER) {
            tracing::warn!(%error, "a migration runs at the priority of requests");
        }
    }

    /// Nobody is served until this is through: the thread gives way to nobody any more, where the kernel lets it.
    pub(super) fn hurry(&mut self) {
        if self.is_humble && process::take_short_turns(-MIGRATION_NICER).is_ok() {
            self.is_humble = false;
            self.company = None;
        }
    }

    /// Shows the other server that this one is there, and sends somebody to look after it when it was silent for a while.
    pub(super) fn look_after_peer(&mut self) {
        self.link.keep_up();
        let pause = Duration::from_millis(PEER_AWAY_MS);
        let (is_out, asked) = self.looked_after;
        if !is_out && self.link.silent_for() >= pause && asked.elapsed() >= pause {
            self.looked_after = (true, Instant::now());
            self.errands.look_after_peer(self.side);
        }
    }

    /// Somebody came back from it.
    pub(super) fn looked_after_peer(&mut self) {
        self.looked_after.0 = false;
    }

    /// From here on workers serve what others may come to own.
    fn guard(&mut self) {
        self.guard = self.tenure.lease().map(|lease| self.control.fence.guard(lease));
    }

    /// Nobody else comes to own what workers serve once the migration is over.
    pub(super) fn settle(&mut self, standing: Phase) {
        if matches!(standing, Phase::Finished | Phase::Ended) {
            self.guard = None;
        }
    }

    /// Whether this server is registered from now on, or is not any more; nothing where that is as it was.
    pub(super) fn turned(&mut self) -> Option<bool> {
        self.tenure.turn(self.control.interim.lease(Moment::now()))
    }

    /// Changes the records, only while the other server is gone if that is why.
    pub(super) fn commit(&self, from: Phase, to: Phase, is_peer_gone: bool) {
        let gone = is_peer_gone.then_some(self.side.opposite());
        self.errands.commit((from, to), gone);
    }

    /// Sleeps until something happens, or for a little; longer where it waits for its turn.
    pub(super) fn rest(&self, at_most: Duration) {
        let timeout = match self.core {
            Some(_) => at_most.min(Duration::from_millis(MIGRATION_LOOK_MS)),
            None => Duration::from_millis(MIGRATION_QUEUED_LOOK_MS),
        };
        self.link.sleep(&self.mailbox.sleeper, timeout);
    }

    /// Does of the store's background work what has come due by writing.
    pub(super) fn tidy(&self, steps: usize) {
        self.core().store().advance_clock(self.control.clock.steady_ms(self.now_us()));
        for _ in 0..steps {
            if !self.core().step() {
                break;
            }
        }
    }
}

/// Actions in the order in which they came out of the machine.
pub(super) type Todo<A> = VecDeque<A>;
