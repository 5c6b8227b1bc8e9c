//! The log of durable tables at a start: opened, replayed before the workers start, and handed to its thread.

mod parts;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::metadata::{Catalog, Metadata, ServerRun, TableRow};
use disk::{DiskError, FileDisk, Options, Way};
use store::{CompletionReply, FoundCompletion, HashRange, RequestId, Store};
use wire::Status;

use super::BootError;
use crate::clock::Clock;
use crate::config::Config;
use crate::durability::log_thread::{LogHandle, LogThread};
use crate::durability::log_writer::frames_reserved;
use crate::durability::recovery::ReplayProgress;
use crate::durability::{LogLayout, recovery};
use crate::limits::{COMPLETION_LEASE_MS, REMOVAL_FRAMES};
use crate::process;
use crate::session::completions::{Completions, FoundReply};
use crate::tablet::{DurableParts, PartsMade};
use crate::tenant::account::Accounts;
use crate::worker::siblings::SiblingWorkers;

/// Name of the log in the data directory.
const LOG_FILE: &str = "log";

/// Opens the log in the data directory, if the server has a disk, and rebuilds the durable tables of the metadata in
/// the empty store; starts the thread that goes on with the log. The clock begins no earlier than the log ends. In a
/// cluster, records which tablets of this server have no objects.
///
/// # Errors
/// If the log cannot be read, or the server has none but the directory has; or the metadata fails.
pub(super) fn open(
    config: &Config,
    (store, accounts, completions, parts_made): (&Arc<Store>, &Accounts, &Arc<Completions>, &mut PartsMade),
    (metadata, run): (&Metadata, Option<ServerRun>),
    (clock, siblings, progress): (&mut Clock, &Arc<SiblingWorkers>, &ReplayProgress),
) -> Result<Option<(LogThread, LogHandle)>, BootError> {
    let path = config.data_directory.join(LOG_FILE);
    let Some(bytes_max) = config.disk_bytes() else {
        if path.exists() {
            return Err(refuse_without_disk(&path));
        }
        run.map_or(Ok(()), |run| note_emptied(metadata, run, None, clock))?;
        return Ok(None);
    };
    let failed =
        |error: &dyn std::fmt::Display| BootError::new("cannot open the log of durable tables", error);
    parts_made.durable = parts::open(config, &path, run).map_err(|text| failed(&text))?;
    let frame_bytes = LogLayout::frame_bytes_of(config.segment_bytes);
    let options =
        Options { frame_bytes, bytes_max, identity: *b"splinter log\0\0\0\0", way: config.disk_way };
    let disk = FileDisk::open(&path, &options).map_err(|error| failed(&error))?;
    tell_way(&disk);
    warn_of_room(&path, bytes_max);
    let cores = store.cores();
    let frames_max = disk.frames_max();
    check_room(frames_max, frame_bytes, cores).map_err(|text| failed(&text))?;
    let catalog = metadata.catalog(None).map_err(|error| failed(&error))?;
    let named =
        parts::named(&catalog, parts_made.durable.as_ref().zip(run)).map_err(|error| failed(&error))?;
    let table = |number: u32| named.get(&number).map(|part| part.make(store, accounts, number));
    let known = Arc::clone(completions);
    store.keep_completions(move |request| known.is_needed(request.client, request.sequence));
    let until_us = clock.now_us() + COMPLETION_LEASE_MS * 1_000;
    let completed = |found: FoundCompletion| {
        let (client_id, reply) = reply_of(found);
        completions.recovered(client_id, reply, until_us);
    };
    let (writer, report) = recovery::recover(
        store,
        Box::new(disk),
        frames_max,
        (cores, config.cores),
        &table,
        &completed,
        progress,
    )
    .map_err(|error| failed(&error))?;
    if report.segments > 0 {
        report.tell(store.statistics().objects);
    }
    let tables = catalog.tables.iter().filter(|row| row.durability().is_on_disk()).count();
    if report.is_new && tables > 0 && (run.is_none() || !named.is_empty()) {
        tracing::error!(tables, path = %path.display(), "the log of durable tables is gone or empty: they lost their objects");
    }
    if let (Some(durable), Some(run)) = (&parts_made.durable, run) {
        parts::take(durable, &named, &table, store);
        note_emptied(metadata, run, (!report.is_new).then_some((durable, &catalog)), clock)?;
    }
    clock.begin_at(report.clock_ms);
    let siblings = Arc::clone(siblings);
    let interval = Duration::from_millis(config.flush_interval_ms);
    let thread = LogThread::start(writer, (interval, config.pin.clone()), move || siblings.wake_holding());
    let thread = thread.map_err(|error| BootError::new("cannot start the log's thread", error))?;
    let handle = thread.handle(report.is_new);
    Ok(Some((thread, handle)))
}

/// Records that this server has no objects of its tablets, except of those that parts in the log keep.
fn note_emptied(
    metadata: &Metadata,
    run: ServerRun,
    recovered: Option<(&DurableParts, &Catalog)>,
    clock: &Clock,
) -> Result<(), BootError> {
    let has = |table: u32, hashes: HashRange| {
        let Some((durable, catalog)) = recovered else { return false };
        let is_on_disk = |row: &TableRow| row.id == table && row.durability().is_on_disk();
        catalog.tables.iter().any(is_on_disk) && durable.keep_all(table, (hashes.first(), hashes.last()))
    };
    let emptied = metadata.tablets_emptied(run.server, clock.wall_ms(), has);
    let tablets = emptied.map_err(|error| BootError::new("cannot join the cluster", error))?;
    if tablets > 0 {
        tracing::warn!(server = run.server, tablets, "the objects of this server's tablets are lost");
    }
    Ok(())
}

/// Returns the client of a completion record, and its reply as the ring stores it.
fn reply_of(found: FoundCompletion) -> (u64, FoundReply) {
    let RequestId { client, sequence } = found.request;
    let (status, body) = match found.reply {
        CompletionReply::Version(version) => (Status::Ok, version.to_le_bytes().into()),
        CompletionReply::Number(version, number) => {
            (Status::Ok, [version.to_le_bytes(), number].concat().into_boxed_slice())
        }
        CompletionReply::Bytes(bytes) => match bytes.split_first() {
            Some((status, body)) => (Status::from_u8(*status).unwrap_or(Status::Internal), body.into()),
            None => (Status::ReplyForgotten, Box::default()),
        },
    };
    (client, FoundReply { sequence, status, body })
}

fn refuse_without_disk(path: &Path) -> BootError {
    let text = format!(
        "{} holds objects of durable tables: start without `--disk off`, or move the file away to start without them",
        path.display()
    );
    BootError::new("the log of durable tables", text)
}

/// Warns of a file system that has less room than the log may take.
fn warn_of_room(path: &Path, bytes_max: u64) {
    let has = path.metadata().map_or(0, |file| file.len());
    let Ok(room) = process::file_system_room(path) else { return };
    if has.saturating_add(room) < bytes_max {
        let mib = |bytes: u64| bytes >> 20;
        tracing::warn!(
            room_mib = mib(room),
            disk_mib = mib(bytes_max),
            "the file system has less room than --disk: durable writes end with StorageFull when it is full"
        );
    }
}

/// Says which way blocks move, and why.
fn tell_way(disk: &FileDisk) {
    match (disk.way(), disk.without_ring()) {
        (Way::IoUring, _) => tracing::info!("the log is written by io_uring and system calls"),
        (Way::SystemCalls, reason) => {
            tracing::info!(reason = reason.unwrap_or("chosen"), "the log is written by system calls alone");
        }
    }
    if let Some(reason) = disk.without_direct() {
        tracing::warn!(reason, "the log passes through the page cache: its file system knows no O_DIRECT");
    }
}

/// Refuses a disk that is too small to clean.
fn check_room(frames_max: u32, frame_bytes: usize, cores: usize) -> Result<(), DiskRoom> {
    let layout = LogLayout::of(frame_bytes, frames_max);
    let frames = (frames_max as usize).saturating_sub(2 * layout.digest_frames as usize);
    let (reserve, _) = frames_reserved(cores, frames);
    let least = 2 * reserve + REMOVAL_FRAMES + 2 * layout.digest_frames as usize;
    if (frames_max as usize) < least {
        return Err(DiskRoom { mib: (least * frame_bytes).div_ceil(1 << 20) + 1 });
    }
    Ok(())
}

/// The least space that would do.
struct DiskRoom {
    mib: usize,
}

impl std::fmt::Display for DiskRoom {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "--disk is too small: at least {} MiB are needed with segments of this size",
            self.mib
        )
    }
}

impl From<DiskError> for BootError {
    fn from(error: DiskError) -> Self {
        BootError::new("the disk", error)
    }
}
