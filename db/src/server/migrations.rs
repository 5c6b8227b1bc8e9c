//! Tablets that this server moves, to it or away from it: which there are, by the number of the migration, with a thread
//! for each.
//!
//! ```text
//!   records ── follow ──► a thread for each migration in which this server has a part  ([`source`], [`target`])
//!   streams of targets ── attach ──► the thread of the source
//!   the thread: mail, messages of the other end, actions on the store by a core of its own; errands for what may take long
//! ```
//! A thread works at full priority until the hashes have changed hands, since nobody serves them meanwhile, and at the
//! lower one from there on. There are [`crate::limits::MIGRATIONS_AT_ONCE`] cores of the store for sources and as many for
//! targets ([`slots`]). A thread that waits for one reads its mail, and hears its stream: it can end.

mod copying;
mod errand;
mod link;
mod mail;
mod pace;
mod pieces;
mod progress;
mod side;
mod slots;
mod source;
mod target;

pub use progress::{Figure, Progress, Totals};

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use net::{Duplex, Stream};
use wire::Status;

use self::errand::Errands;
use self::link::Opened;
use self::mail::{Mail, Mailbox, Post};
use self::side::{Ground, Way};
use self::slots::{Claim, Slots};
use self::source::SourceSide;
use self::target::TargetSide;
use super::control::{Control, lock};
use super::joining::Joining;
use super::neighbours::Neighbours;
use super::peers;
use crate::cluster::metadata::{MigrationRow, ServerRun, Side, TabletsRow};
use crate::cluster::peer::ClusterSecret;
use crate::limits::{
    MIGRATION_MESSAGE_BYTES_MAX, MIGRATIONS_REMEMBERED, PEER_UNTAKEN_BYTES_MAX, RECORD_TIMEOUT_MS,
};

/// A migration in which this server has a part.
struct Running {
    row: MigrationRow,
    side: Side,
    post: Post,
    over: Arc<AtomicBool>,
    progress: Arc<Progress>,
    thread: JoinHandle<Way>,
}

impl Running {
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

/// See the file's head.
pub struct Migrations {
    own: u32,
    secret: ClusterSecret,
    neighbours: Arc<Neighbours>,
    running: Mutex<BTreeMap<u32, Running>>,
    /// Those that are over, the latest ones last.
    lately: Mutex<VecDeque<Shown>>,
    slots: Arc<Slots>,
    /// As a source, and as a target.
    totals: [Arc<Totals>; 2],
    is_stopping: AtomicBool,
}

impl Migrations {
    /// None yet, of the server of this number, with so many cores of the store behind those of its workers.
    #[must_use]
    pub fn new(own: u32, secret: ClusterSecret, neighbours: Arc<Neighbours>, workers: usize) -> Self {
        Self {
            own,
            secret,
            neighbours,
            running: Mutex::default(),
            lately: Mutex::default(),
            slots: Arc::new(Slots::behind(workers)),
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

    /// Begins what is new in these records and has `own` as one of its servers, and tells the others what is said of them.
    /// Where one that `is_meant` is not among them its table was dropped, or others have ended it while this server was gone.
    pub fn follow(
        &self,
        control: &Arc<Control>,
        (rows, tablets): (&[MigrationRow], &[TabletsRow]),
        own: ServerRun,
        is_meant: impl Fn(&MigrationRow) -> bool,
    ) {
        let mut running = lock(&self.running);
        if self.is_stopping() {
            return;
        }
        // One that is over stays until the records say so too: else it would begin again.
        let is_over = |id: &u32, one: &mut Running| {
            let is_known = || rows.iter().any(|row| row.id == *id && !is_done(row, one.side));
            one.thread.is_finished() && is_meant(&one.row) && !is_known()
        };
        for (_, one) in running.extract_if(.., is_over) {
            self.remember(one);
        }
        for one in running.values_mut().filter(|one| is_meant(&one.row)) {
            match rows.iter().find(|row| row.id == one.row.id) {
                Some(row) => {
                    if row.standing != one.row.standing {
                        one.post.send(Mail::Standing(row.standing));
                    }
                    if row.is_aborted && !one.row.is_aborted {
                        one.post.send(Mail::Abort);
                    }
                    if row.is_source_done {
                        one.post.send(Mail::SourceDone);
                    }
                    one.row = row.clone();
                }
                None => {
                    let tablets = tablets.iter().find(|row| row.table == one.row.table);
                    let end = tablets.and_then(|row| one.side.end_by(row, one.row.hashes, own.server));
                    one.post.send(end.map_or(Mail::Gone, Mail::Forgotten));
                }
            }
        }
        let is_new = |row: &&MigrationRow| !running.contains_key(&row.id);
        let mut fresh: Vec<&MigrationRow> = rows.iter().filter(is_new).collect();
        // So that targets ask for slots in the order in which these are given.
        fresh.sort_unstable_by_key(|row| row.id);
        for row in fresh {
            let Some(side) = row.side_of(own).filter(|side| !is_done(row, *side)) else { continue };
            let claim = Claim::new(Arc::clone(&self.slots), side, row.id);
            match begin(control, row, (side, claim), Progress::new(&self.totals[side as usize])) {
                Ok(begun) => drop(running.insert(row.id, begun)),
                Err(error) => tracing::error!(%error, migration = row.id, "a migration cannot be begun"),
            }
        }
    }

    fn remember(&self, one: Running) {
        let mut shown = one.shown(true);
        // The records may have forgotten it before this server read in them how it ended.
        if let Ok(Way::Over(standing)) = one.thread.join() {
            shown.row.standing = standing;
        }
        let mut lately = lock(&self.lately);
        if lately.len() >= MIGRATIONS_REMEMBERED {
            lately.pop_front();
        }
        lately.push_back(shown);
    }

    /// Hands a stream of the server `opener` to the migration of this number, and stays until it is over.
    ///
    /// # Errors
    /// The stream with the answer to it: `Unavailable` where this server is the source of no such migration, maybe not yet.
    pub fn attach(&self, number: u64, opener: u32, mut stream: Stream) -> Result<(), (Stream, Status)> {
        let post = {
            let running = lock(&self.running);
            let one = u32::try_from(number).ok().and_then(|number| running.get(&number));
            one.filter(|one| one.side == Side::Source && one.row.target.server == opener)
                .map(|one| one.post.clone())
        };
        let Some(post) = post else { return Err((stream, Status::Unavailable)) };
        peers::answer(&mut stream, Status::Ok);
        let patience = Duration::from_millis(RECORD_TIMEOUT_MS);
        let Ok(stream) = Duplex::over(stream, patience, MIGRATION_MESSAGE_BYTES_MAX) else { return Ok(()) };
        let (place, left) = channel();
        let stream = stream.held_back_above(PEER_UNTAKEN_BYTES_MAX);
        post.send(Mail::Stream(Opened { stream, _place: Some(place) }));
        drop(post);
        // Nothing is ever sent: it ends when the stream does.
        let _ = left.recv();
        Ok(())
    }

    /// Tells all threads to end. What they were at goes on when servers have agreed that this one is gone.
    pub fn stop(&self) {
        let running = lock(&self.running);
        // Under the lock, so that none is begun behind it.
        self.is_stopping.store(true, Ordering::Relaxed);
        for one in running.values() {
            one.over.store(true, Ordering::Relaxed);
            one.post.send(Mail::Stop);
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

fn is_done(row: &MigrationRow, side: Side) -> bool {
    match side {
        Side::Source => row.is_source_done,
        Side::Target => row.is_target_done,
    }
}

/// Starts the thread of a migration.
fn begin(
    control: &Arc<Control>,
    row: &MigrationRow,
    (side, claim): (Side, Claim),
    progress: Progress,
) -> std::io::Result<Running> {
    let (mailbox, post) = Mailbox::new()?;
    let (over, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(progress));
    let errands = Errands {
        control: Arc::clone(control),
        row: row.clone(),
        post: post.clone(),
        over: Arc::clone(&over),
    };
    if side == Side::Target {
        claim.take(&post);
    }
    let of_thread = Arc::clone(&progress);
    let thread = thread::Builder::new()
        .name(format!("migration-{}", row.id))
        .spawn(move || move_tablet((side, claim), mailbox, &errands, of_thread))?;
    Ok(Running { row: row.clone(), side, post, over, progress, thread })
}

/// What a migration's thread does.
fn move_tablet(
    (side, claim): (Side, Claim),
    mailbox: Mailbox,
    errands: &Errands,
    progress: Arc<Progress>,
) -> Way {
    let ground = Ground::new((side, claim), mailbox, errands.clone(), Arc::clone(&progress));
    let way = match side {
        Side::Source => SourceSide::new(ground).run(),
        Side::Target => TargetSide::new(ground).run(),
    };
    errands.over.store(true, Ordering::Relaxed);
    let (objects, bytes) = (progress.get(Figure::Objects), progress.get(Figure::Bytes));
    let bytes_per_second = progress.bytes_per_second(errands.control.clock.now_us());
    tracing::info!(
        migration = errands.row.id,
        ?way,
        objects,
        bytes,
        bytes_per_second,
        "a tablet has moved, or stays"
    );
    if matches!(way, Way::Over(_)) {
        errands.leave(side);
    }
    way
}
