//! The migrations in which this server takes part: those that run, each with its thread, and those that ended last.

pub(crate) mod inbox;
mod progress;
pub(crate) mod slots;

pub use inbox::InboxSender;
pub use progress::{Figure, Progress, Totals};

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use cluster::metadata::{MigrationRow, Side};
use cluster::migration::{MigrationMode, MigrationPhase};
use cluster::peer::ClusterSecret;

use self::inbox::Notice;
use self::slots::MigrationSlots;
use crate::limits::MIGRATIONS_REMEMBERED;
use crate::process::Joining;
use crate::sync::lock;
use crate::worker::siblings::SiblingWorkers;

/// The way in which one side ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// It ended in this phase, which the metadata is to record.
    Over(MigrationPhase),
    /// The migration does not exist any more.
    Gone,
    /// The server stops.
    Stopped,
}

/// A running migration in which this server takes part.
pub(crate) struct RunningMigration {
    pub(crate) row: MigrationRow,
    pub(crate) side: Side,
    pub(crate) notices: InboxSender,
    pub(crate) over: Arc<AtomicBool>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) thread: JoinHandle<ExitReason>,
}

impl RunningMigration {
    fn shown(&self, is_over: bool) -> Shown {
        Shown { row: self.row.clone(), side: self.side, progress: Arc::clone(&self.progress), is_over }
    }
}

/// A migration that recovers hashes, which the thread of another one does.
pub(crate) struct RecoveryShare {
    pub(crate) row: MigrationRow,
    pub(crate) progress: Arc<Progress>,
    /// Gets the phase in which it ended; dropped if it failed.
    pub(crate) ended: Sender<MigrationPhase>,
}

/// A migration as reported to the administrator.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The record as last read.
    pub row: MigrationRow,
    /// The side of this server.
    pub side: Side,
    /// Its progress.
    pub progress: Arc<Progress>,
    /// True if it has ended and was cleared away.
    pub is_over: bool,
}

/// The migrations of this server: those that run, and those that ended last.
pub struct Migrations {
    own: u32,
    secret: ClusterSecret,
    pub(crate) siblings: Arc<SiblingWorkers>,
    pub(crate) running: Mutex<BTreeMap<u32, RunningMigration>>,
    /// Migrations that have ended, the latest ones last.
    lately: Mutex<VecDeque<Shown>>,
    pub(crate) slots: Arc<MigrationSlots>,
    /// By the number of a server that is gone: what is to be recovered of it with what somebody is about to begin.
    pub(crate) shares: Mutex<BTreeMap<u32, Vec<RecoveryShare>>>,
    /// Totals as a source, and as a target.
    pub(crate) totals: [Arc<Totals>; 2],
    is_stopping: AtomicBool,
}

impl Migrations {
    /// Creates the state without migrations for the server of number `own`; their cores of the store follow those of
    /// `workers` workers.
    #[must_use]
    pub fn new(own: u32, secret: ClusterSecret, siblings: Arc<SiblingWorkers>, workers: usize) -> Self {
        Self {
            own,
            secret,
            siblings,
            running: Mutex::default(),
            lately: Mutex::default(),
            slots: Arc::new(MigrationSlots::behind(workers)),
            shares: Mutex::default(),
            totals: Default::default(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// Admits migrations to their slots: the server has all of its objects.
    pub fn admit(&self) {
        self.slots.open();
    }

    /// Returns this server's number.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Returns the secret by which the servers of the cluster authenticate each other.
    #[must_use]
    pub fn secret(&self) -> &ClusterSecret {
        &self.secret
    }

    /// Returns true if the server stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns true if a worker is loaded.
    #[must_use]
    pub fn is_loaded(&self, now_us: u64) -> bool {
        self.siblings.is_any_loaded(now_us)
    }

    /// Returns the running migrations in which this server takes part, by number.
    #[must_use]
    pub fn shown(&self) -> Vec<Shown> {
        lock(&self.running).values().map(|running| running.shown(false)).collect()
    }

    /// Returns the remembered migrations that have ended, in the order in which they ended.
    #[must_use]
    pub fn lately(&self) -> Vec<Shown> {
        lock(&self.lately).iter().cloned().collect()
    }

    /// Returns true if a migration of this number has begun here; the metadata may not record yet that it is over.
    #[must_use]
    pub fn has_begun(&self, migration: u32) -> bool {
        lock(&self.running).contains_key(&migration)
    }

    /// Returns those that recover hashes of a table here and have not ended, though the metadata may have no record of them any
    /// more.
    #[must_use]
    pub fn recovering(&self, table: u32) -> Vec<MigrationRow> {
        let running = lock(&self.running);
        let is_meant = |one: &&RunningMigration| {
            let is_target = one.side == Side::Target && one.row.mode == MigrationMode::Recovery;
            is_target && one.row.table == table && !one.thread.is_finished()
        };
        running.values().filter(is_meant).map(|one| one.row.clone()).collect()
    }

    /// Returns the totals of one side.
    #[must_use]
    pub fn totals(&self, side: Side) -> &Totals {
        &self.totals[side as usize]
    }

    pub(crate) fn remember(&self, one: RunningMigration) {
        let mut shown = one.shown(true);
        // The metadata may have dropped the record before this server read its end.
        if let Ok(ExitReason::Over(phase)) = one.thread.join() {
            shown.row.phase = phase;
        }
        let mut lately = lock(&self.lately);
        if lately.len() >= MIGRATIONS_REMEMBERED {
            lately.pop_front();
        }
        lately.push_back(shown);
    }

    /// Returns the inbox of the migration of this number in which this server is the source and the server `opener`
    /// the target; `None` if there is none, perhaps not yet.
    #[must_use]
    pub fn source_of(&self, number: u64, opener: u32) -> Option<InboxSender> {
        let running = lock(&self.running);
        let one = u32::try_from(number).ok().and_then(|number| running.get(&number));
        one.filter(|one| one.side == Side::Source && one.row.target.server == opener)
            .map(|one| one.notices.clone())
    }

    /// Stops all threads. Their work continues when servers have agreed that this one is gone.
    pub fn stop(&self) {
        let running = lock(&self.running);
        // Under the lock, so that no migration begins afterwards.
        self.is_stopping.store(true, Ordering::Relaxed);
        for one in running.values() {
            one.over.store(true, Ordering::Relaxed);
            one.notices.send(Notice::Stop);
        }
    }

    /// Waits for stopped threads.
    pub fn join(&self, joining: Joining) {
        let running = std::mem::take(&mut *lock(&self.running));
        for one in running.into_values() {
            joining.join(one.thread);
        }
    }

    /// Returns the number of migrations of the same side that get a slot before this one; `None` if it waits for none.
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
