//! Migrations with this server as source or target, by number, each with its own thread; [`coordination`] executes
//! plans on one server of a cluster.
//!
//! ```text
//!   records ── follow ──► a thread for each migration in which this server takes part  ([`source`], [`target`])
//!   streams of targets ── attach ──► the thread of the source
//!   the thread: inbox, messages of the other side, actions on its own core of the store, slow tasks in background
//! ```
//! A thread runs at full priority until the ownership of the hashes has changed, since no server serves them before,
//! and at lower priority from then on. The store has [`crate::limits::MIGRATIONS_AT_ONCE`] cores for sources and as
//! many for targets ([`crate::control_plane::migrations::slots`]). A thread that waits for a slot reads its inbox and
//! its stream, so it can end.

mod awaited_copy;
mod background;
mod context;
pub mod coordination;
mod pieces;
pub mod recovering;
mod source;
mod target;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use cluster::limits::MIGRATION_MESSAGE_BYTES_MAX;
use cluster::metadata::{MigrationRow, ServerRun, Side, TabletsRow};
use cluster::migration::MigrationMode;
use net::{Duplex, Stream};

use self::background::BackgroundTasks;
use self::context::MigrationContext;
use self::recovering::Recovering;
use self::source::SourceSide;
use self::target::TargetSide;
use crate::control_plane::Control;
use crate::control_plane::migrations::inbox::{AttachedStream, Inbox, InboxSender, Notice};
use crate::control_plane::migrations::slots::SlotClaim;
use crate::control_plane::migrations::{ExitReason, Figure, Migrations, Progress, RunningMigration};
use crate::limits::{PEER_UNTAKEN_BYTES_MAX, RECORD_TIMEOUT_MS};
use crate::sync::lock;

/// Starts new migrations of these records in which `own` takes part, and informs the running ones of their records. If
/// a migration that `is_meant` selects is missing from the records, its table was dropped, or others ended it while
/// this server was gone.
pub fn follow(
    control: &Arc<Control>,
    migrations: &Migrations,
    (rows, tablets): (&[MigrationRow], &[TabletsRow]),
    own: ServerRun,
    is_meant: impl Fn(&MigrationRow) -> bool,
) {
    let mut running = lock(&migrations.running);
    if migrations.is_stopping() {
        return;
    }
    // An ended migration stays until the metadata records the end: otherwise it would begin again.
    let is_over = |id: &u32, one: &mut RunningMigration| {
        let is_known = || rows.iter().any(|row| row.id == *id && !is_done(row, one.side));
        one.thread.is_finished() && is_meant(&one.row) && !is_known()
    };
    for (_, one) in running.extract_if(.., is_over) {
        migrations.remember(one);
    }
    for one in running.values_mut().filter(|one| is_meant(&one.row)) {
        match rows.iter().find(|row| row.id == one.row.id) {
            Some(row) => {
                if row.phase != one.row.phase {
                    one.notices.send(Notice::Phase(row.phase));
                }
                if row.is_aborted && !one.row.is_aborted {
                    one.notices.send(Notice::Abort);
                }
                if row.is_source_done {
                    one.notices.send(Notice::SourceDone);
                }
                one.row = row.clone();
            }
            None => {
                let tablets = tablets.iter().find(|row| row.table == one.row.table);
                let end = tablets.and_then(|row| one.side.end_by(row, one.row.hashes, own.server));
                one.notices.send(end.map_or(Notice::Gone, Notice::Forgotten));
            }
        }
    }
    let is_new = |row: &&MigrationRow| !running.contains_key(&row.id);
    let mut fresh: Vec<&MigrationRow> = rows.iter().filter(is_new).collect();
    // So that targets request slots in the order in which these are assigned.
    fresh.sort_unstable_by_key(|row| row.id);
    for row in fresh {
        let Some(side) = row.side_of(own).filter(|side| !is_done(row, *side)) else { continue };
        // Who is recovered takes no part in it.
        if side == Side::Source && row.mode == MigrationMode::Recovery {
            continue;
        }
        let claim = SlotClaim::new(Arc::clone(&migrations.slots), side, row.id);
        match begin(control, row, (side, claim), Progress::new(&migrations.totals[side as usize])) {
            Ok(begun) => drop(running.insert(row.id, begun)),
            Err(error) => tracing::error!(%error, migration = row.id, "cannot begin a migration"),
        }
    }
}

/// Hands a target's stream to the source's migration, and blocks until the stream is dropped.
pub fn attach(notices: InboxSender, stream: Stream) {
    let patience = Duration::from_millis(RECORD_TIMEOUT_MS);
    let Ok(stream) = Duplex::over(stream, patience, MIGRATION_MESSAGE_BYTES_MAX) else { return };
    let (place, left) = channel();
    let stream = stream.held_back_above(PEER_UNTAKEN_BYTES_MAX);
    notices.send(Notice::Stream(AttachedStream { stream, _place: Some(place) }));
    drop(notices);
    // Nothing is ever sent: the receive fails when the stream is dropped.
    let _ = left.recv();
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
    (side, claim): (Side, SlotClaim),
    progress: Progress,
) -> std::io::Result<RunningMigration> {
    let (inbox, notices) = Inbox::new()?;
    let (over, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(progress));
    let tasks = BackgroundTasks {
        control: Arc::clone(control),
        row: row.clone(),
        notices: notices.clone(),
        over: Arc::clone(&over),
    };
    // One thread recovers all that this server is to have of another one, and takes a slot for that.
    if side == Side::Target && row.mode != MigrationMode::Recovery {
        claim.take(&notices);
    }
    let of_thread = Arc::clone(&progress);
    let thread = thread::Builder::new()
        .name(format!("migration-{}", row.id))
        .spawn(move || move_tablet((side, claim), inbox, &tasks, of_thread))?;
    Ok(RunningMigration { row: row.clone(), side, notices, over, progress, thread })
}

/// Runs a migration on its thread.
fn move_tablet(
    (side, claim): (Side, SlotClaim),
    inbox: Inbox,
    tasks: &BackgroundTasks,
    progress: Arc<Progress>,
) -> ExitReason {
    let context = MigrationContext::new((side, claim), inbox, tasks.clone(), Arc::clone(&progress));
    let reason = match side {
        Side::Source => SourceSide::new(context).run(),
        Side::Target if tasks.row.mode == MigrationMode::Recovery => Recovering::new(context).run(),
        Side::Target => TargetSide::new(context).run(),
    };
    tasks.over.store(true, Ordering::Relaxed);
    let (objects, bytes) = (progress.get(Figure::Objects), progress.get(Figure::Bytes));
    let bytes_per_second = progress.bytes_per_second(tasks.control.clock.now_us());
    tracing::info!(
        migration = tasks.row.id,
        ?reason,
        objects,
        bytes,
        bytes_per_second,
        "a migration has ended"
    );
    if matches!(reason, ExitReason::Over(_)) {
        tasks.leave(side);
    }
    reason
}
