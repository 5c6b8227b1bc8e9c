//! The migrations in which this server has a part: those that run, each with its thread, and the latest ones that are over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::inbox::{InboxSender, Notice};
use super::progress::{Progress, Totals};
use super::slots::MigrationSlots;
use crate::cluster::metadata::{MigrationRow, Side};
use crate::cluster::migration::Phase;
use crate::cluster::peer::ClusterSecret;
use crate::limits::MIGRATIONS_REMEMBERED;
use crate::server::joining::Joining;
use crate::server::siblings::SiblingWorkers;
use crate::sync::lock;

/// How an end came out of what it was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitReason {
    /// It is over in this way: the records are to know.
    Over(Phase),
    /// There is no such migration any more.
    Gone,
    /// The server stops.
    Stopped,
}

/// A migration in which this server has a part.
pub(super) struct RunningMigration {
    pub(super) row: MigrationRow,
    pub(super) side: Side,
    pub(super) post: InboxSender,
    pub(super) over: Arc<AtomicBool>,
    pub(super) progress: Arc<Progress>,
    pub(super) thread: JoinHandle<ExitReason>,
}

impl RunningMigration {
    fn shown(&self, is_over: bool) -> Shown {
        Shown { row: self.row.clone(), side: self.side, progress: Arc::clone(&self.progress), is_over }
    }
}

/// A migration as it is shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// As the records had it last.
    pub row: MigrationRow,
    /// What this server is in it.
    pub side: Side,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// Whether it is over and cleared away.
    pub is_over: bool,
}

/// The migrations of this server: those that run, and the latest ones that are over.
pub struct Migrations {
    own: u32,
    secret: ClusterSecret,
    pub(super) neighbours: Arc<SiblingWorkers>,
    pub(super) running: Mutex<BTreeMap<u32, RunningMigration>>,
    /// Those that are over, the latest ones last.
    lately: Mutex<VecDeque<Shown>>,
    pub(super) slots: Arc<MigrationSlots>,
    /// As a source, and as a target.
    pub(super) totals: [Arc<Totals>; 2],
    is_stopping: AtomicBool,
}

impl Migrations {
    /// None yet, of the server of this number, with so many cores of the store behind those of its workers.
    #[must_use]
    pub fn new(own: u32, secret: ClusterSecret, neighbours: Arc<SiblingWorkers>, workers: usize) -> Self {
        Self {
            own,
            secret,
            neighbours,
            running: Mutex::default(),
            lately: Mutex::default(),
            slots: Arc::new(MigrationSlots::behind(workers)),
            totals: Default::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// This server's number.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.own
    }

    /// What the servers of the cluster prove to each other that they know.
    #[must_use]
    pub fn secret(&self) -> &ClusterSecret {
        &self.secret
    }

    /// Whether the server stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Whether a worker has more to do than it gets to.
    #[must_use]
    pub fn is_loaded(&self, now_us: u64) -> bool {
        self.neighbours.is_any_loaded(now_us)
    }

    /// The migrations in which this server has a part, by number.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        lock(&self.running).values().map(|running| running.shown(false)).collect()
    }

    /// The latest ones that are over, as far as they are remembered, in the order in which they ended.
    #[must_use]
    pub fn lately(&self) -> Vec<Shown> {
        lock(&self.lately).iter().cloned().collect()
    }

    /// Whether a migration of this number has begun here, and the records may not know yet that it is over.
    #[must_use]
    pub fn has_begun(&self, migration: u32) -> bool {
        lock(&self.running).contains_key(&migration)
    }

    /// What all of them came to on that side.
    #[must_use]
    pub fn totals(&self, side: Side) -> &Totals {
        &self.totals[side as usize]
    }

    pub(super) fn remember(&self, one: RunningMigration) {
        let mut shown = one.shown(true);
        // The records may have forgotten it before this server read in them how it ended.
        if let Ok(ExitReason::Over(standing)) = one.thread.join() {
            shown.row.standing = standing;
        }
        let mut lately = lock(&self.lately);
        if lately.len() >= MIGRATIONS_REMEMBERED {
            lately.pop_front();
        }
        lately.push_back(shown);
    }

    /// The inbox of the migration of this number in which this server is the source and the server `opener` the target; `None`
    /// where there is none such, maybe not yet.
    #[must_use]
    pub fn source_of(&self, number: u64, opener: u32) -> Option<InboxSender> {
        let running = lock(&self.running);
        let one = u32::try_from(number).ok().and_then(|number| running.get(&number));
        one.filter(|one| one.side == Side::Source && one.row.target.server == opener)
            .map(|one| one.post.clone())
    }

    /// Tells all threads to end. What they were at goes on when servers have agreed that this one is gone.
    pub fn stop(&self) {
        let running = lock(&self.running);
        // Under the lock, so that none is begun behind it.
        self.is_stopping.store(true, Ordering::Relaxed);
        for one in running.values() {
            one.over.store(true, Ordering::Relaxed);
            one.post.send(Notice::Stop);
        }
    }

    /// Waits for threads that were told to end.
    pub fn join(&self, joining: Joining) {
        let running = std::mem::take(&mut *lock(&self.running));
        for one in running.into_values() {
            joining.join(one.thread);
        }
    }

    /// How many migrations get a slot before this one, of those that this server is the same in; `None` when it waits for
    /// none.
    #[must_use]
    pub fn ahead_of(&self, side: Side, migration: u32) -> Option<usize> {
        self.slots.ahead_of(side, migration)
    }
}

impl std::fmt::Debug for Migrations {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Migrations").field("own", &self.own).finish_non_exhaustive()
    }
}
