//! The log of durable tables at a start: opened, replayed before the workers start, and handed to its thread.

mod ahead;
mod backups;
pub mod parts;
mod rest;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cluster::metadata::{Catalog, Metadata, OwnLogEnd, OwnLogExtent, ServerRun, TableRow};
use cluster::peer::ClusterSecret;
use disk::{Disk, DiskError, FileDisk, Identity, Options, Way};
use store::{HashRange, Store};

pub(super) use self::rest::RestOfLog;

use self::parts::NamedPart;
use super::BootError;
use crate::backups::LogBackups;
use crate::clock::Clock;
use crate::config::Config;
use crate::durability::log_reader::FoundEnd;
use crate::durability::log_thread::{LogHandle, LogThread};
use crate::durability::log_writer::frames_reserved;
use crate::durability::recovery::LogStart;
use crate::durability::replicas::backup_thread::BackupThread;
use crate::durability::{LogLayout, NumberedTables, log_reader, recovery};
use crate::front::gate::{Gate, KeptReplicas};
use crate::limits::{
    COMPLETION_LEASE_MS, DIGEST_ROOM, DIGEST_SHARE_DIVISOR, DIRECTORIES_MEMORY_DIVISOR, FRAMES_PER_SEGMENT,
    REMOVAL_FRAMES,
};
use crate::session::completions::Completions;
use crate::tablet::{DurableParts, PartsMade};
use crate::tenant::account::Accounts;
use crate::worker::siblings::SiblingWorkers;

/// Name of the log in the data directory.
const LOG_FILE: &str = "log";

/// The identity of each log that an older release began.
const OLDER_IDENTITY: Identity = *b"splinter log\0\0\0\0";

/// What a start has opened; nothing without a disk.
#[derive(Default)]
pub(super) struct OpenedLog {
    pub(super) thread: Option<LogThread>,
    pub(super) handle: Option<LogHandle>,
    /// What is to be replayed while the server serves.
    pub(super) rest: Option<RestOfLog>,
    /// The other end of what its thread knows of backups.
    pub(super) backups: Option<LogBackups>,
    /// Keeps replicas of others' logs.
    pub(super) backup: Option<BackupThread>,
}

/// What the log is replayed into: the store, the tenants' accounts, what is known of clients, the parts that are made.
type ReplayInto<'p> = (&'p Arc<Store>, &'p Accounts, &'p Arc<Completions>, &'p mut PartsMade);

/// Opens the replicas of other servers' logs, which these may have from then on, and the own log as [`open_log`].
///
/// # Errors
/// As [`open_log`], or if the replicas cannot be read.
pub(super) fn open(
    config: &Config,
    into: ReplayInto<'_>,
    (metadata, run): (&Metadata, Option<ServerRun>),
    (clock, siblings, gate): (&mut Clock, &Arc<SiblingWorkers>, &Gate),
) -> Result<OpenedLog, BootError> {
    let backup = backups::start_backup(config)?;
    if let Some((run, backup)) = run.zip(backup.as_ref()) {
        let secret = ClusterSecret(metadata.cluster_secret().map_err(|error| cannot_open(&error))?);
        gate.give(KeptReplicas { own: run.server, secret, backup: backup.handle() });
    }
    match open_log(config, into, (metadata, run), (clock, siblings, gate)) {
        Ok(opened) => Ok(OpenedLog { backup, ..opened }),
        Err(error) => {
            backup.into_iter().for_each(|backup| _ = backup.stop().join());
            Err(error)
        }
    }
}

/// Opens the log in the data directory, if the server has a disk, and rebuilds the durable tables of the metadata in
/// the empty store, as far as they need it before they are served; starts the thread that goes on with the log. The
/// clock begins no earlier than the log ends. In a cluster, records which tablets of this server have no objects.
///
/// # Errors
/// If the log cannot be read, or the server has none but the directory has; or the metadata fails.
fn open_log(
    config: &Config,
    (store, accounts, completions, parts_made): ReplayInto<'_>,
    (metadata, run): (&Metadata, Option<ServerRun>),
    (clock, siblings, gate): (&mut Clock, &Arc<SiblingWorkers>, &Gate),
) -> Result<OpenedLog, BootError> {
    let path = config.data_directory.join(LOG_FILE);
    let Some(bytes_max) = config.disk_bytes() else {
        if path.exists() {
            return Err(refuse_without_disk(&path));
        }
        run.map_or(Ok(()), |run| note_emptied(metadata, run, None, clock))?;
        gate.note_replayed();
        return Ok(OpenedLog::default());
    };
    parts_made.durable = parts::open(config, &path, run).map_err(|text| cannot_open(&text))?;
    let LogFile { disk, layout, frames_max, cores, number, found, up_to } =
        find((config, bytes_max), &path, (metadata, run), clock)?;
    let is_new = found.is_none();
    if let Some(run) = run.filter(|_| is_new) {
        backups::await_recovery(metadata, run)?;
        // Before the log begins: a start that ends in between would leave one that is not new.
        note_emptied(metadata, run, None, clock)?;
    }
    let catalog = metadata.catalog(None).map_err(|error| cannot_open(&error))?;
    let named =
        parts::named(&catalog, parts_made.durable.as_ref().zip(run)).map_err(|error| cannot_open(&error))?;
    if let Some((durable, run)) = parts_made.durable.as_ref().zip(run) {
        metadata.log_parts_are(run.server, &durable.rows()).map_err(|error| cannot_open(&error))?;
    }
    let make = |(&number, part): (&u32, &NamedPart)| (number, part.make(store, accounts, number));
    let tables: Arc<NumberedTables> = Arc::new(named.iter().map(make).collect());
    let known = Arc::clone(completions);
    store.keep_completions(move |request| known.is_needed(request.client, request.sequence));
    let until_us = clock.now_us() + COMPLETION_LEASE_MS * 1_000;
    let replaying = (0..config.cores).map(|index| store.core(index)).collect();
    // Directories take memory that is not the store's.
    let known = (Arc::clone(&tables), store.statistics().memory_bytes / DIRECTORIES_MEMORY_DIVISOR);
    let start = LogStart { layout, frames_max, number, passed_over: passed_over(config, run), found, up_to };
    let begun = recovery::begin(store, Box::new(disk), start, (cores, replaying), known, &gate.replay);
    let (mut writer, rest) = begun.map_err(|error| cannot_open(&error))?;
    let clock_ms = rest.report().clock_ms;
    let durable_tables = catalog.tables.iter().filter(|row| row.durability().is_on_disk()).count();
    if is_new && durable_tables > 0 && (run.is_none() || !named.is_empty()) {
        tracing::error!(tables = durable_tables, path = %path.display(), "the log of durable tables is gone or empty: they lost their objects");
    }
    let mut left = Vec::new();
    if let (Some(durable), Some(run)) = (&parts_made.durable, run) {
        left = parts::take(durable, named, &tables);
        if !is_new {
            note_emptied(metadata, run, Some((durable, &catalog)), clock)?;
        }
    }
    let (completions, store) = (Arc::clone(completions), Arc::clone(store));
    let mut rest = Some(RestOfLog { rest, store, completions, until_us, left, first_core: cores });
    if let Some(rest) = rest.take_if(|rest| !rest.is_left()) {
        rest.end(0..1, || (), (gate, &AtomicBool::new(false))).map_err(|error| cannot_open(&error))?;
    }
    clock.begin_at(clock_ms);
    let backups = backups::replicate((&mut writer, config), (metadata, run), (number, is_new))?;
    let siblings = Arc::clone(siblings);
    let interval = Duration::from_millis(config.flush_interval_ms);
    let thread = LogThread::start(writer, (interval, config.pin.clone()), move || siblings.wake_holding());
    let thread = thread.map_err(|error| BootError::new("cannot start the log's thread", error))?;
    let handle = thread.handle(is_new);
    Ok(OpenedLog { thread: Some(thread), handle: Some(handle), rest, backups, backup: None })
}

/// The log's file, as a start finds it.
struct LogFile {
    disk: FileDisk,
    layout: LogLayout,
    frames_max: u32,
    /// Cores that write.
    cores: usize,
    /// The number of the start.
    number: u64,
    found: Option<FoundEnd>,
    /// The latest cut that counts, if others have decided that.
    up_to: Option<u64>,
}

/// Opens the file of the log and counts the start. If others recover more than the file has, waits until they have done so, and
/// begins a new one.
fn find(
    (config, bytes_max): (&Config, u64),
    path: &Path,
    (metadata, run): (&Metadata, Option<ServerRun>),
    clock: &Clock,
) -> Result<LogFile, BootError> {
    let secret = metadata.cluster_secret().map_err(|error| cannot_open(&error))?;
    let identity = ClusterSecret(secret).log_identity(run.map_or(0, |run| run.server));
    loop {
        let (mut disk, (layout, frames_max), cores) = open_disk(config, path, bytes_max, (run, identity))?;
        let found = log_reader::find_end(&mut disk, layout).map_err(|error| cannot_open(&error))?;
        let end = found.as_ref().map(FoundEnd::end);
        let number = count_start(metadata, run, end.map(|end| end.start), path)?;
        let is_left = |(run, end): (ServerRun, OwnLogEnd)| -> Result<bool, BootError> {
            Ok(ahead::is_elsewhere(metadata, run, end)? && backups::await_those_ahead(metadata, run)?)
        };
        if run.zip(end).map(is_left).transpose()? == Some(true) {
            drop(disk);
            backups::leave_to_others(metadata, run, path)?;
            continue;
        }
        let returns = |(run, end): (ServerRun, _)| metadata.owner_returns(run.server, end, clock.wall_ms());
        let up_to = match run.zip(end).map(returns).transpose().map_err(|error| cannot_open(&error))? {
            None | Some(OwnLogExtent::Whole) => None,
            Some(OwnLogExtent::UpTo(cut)) => Some(cut),
            Some(OwnLogExtent::Behind) => {
                drop(disk);
                backups::leave_to_others(metadata, run, path)?;
                continue;
            }
        };
        return Ok(LogFile { disk, layout, frames_max, cores, number, found, up_to });
    }
}

/// Returns the numbers of segments that a start passes over: more than backups may know and the own disk does not, since an
/// earlier start has them in no cut that became stable.
fn passed_over(config: &Config, run: Option<ServerRun>) -> u32 {
    let segments = config.memory_bytes / config.segment_bytes * FRAMES_PER_SEGMENT;
    if run.is_some() && config.replicas > 0 { u32::try_from(segments).unwrap_or(u32::MAX) } else { 0 }
}

/// Counts this start in the metadata, and returns its number; `known` is the last one that the log has.
fn count_start(
    metadata: &Metadata,
    run: Option<ServerRun>,
    known: Option<u64>,
    path: &Path,
) -> Result<u64, BootError> {
    let counted = metadata.log_start(run.map_or(0, |run| run.server), known.unwrap_or(0));
    counted.map_err(|error| cannot_open(&error))?.ok_or_else(|| {
        cannot_open(&format!(
            "{} is newer than the metadata, which would give numbers of its tables to others: restore both as of one moment, \
             or start with an empty data directory and restore archives",
            path.display()
        ))
    })
}

/// Opens the file of the log, and returns it with its layout, the most frames, and the number of cores that write.
fn open_disk(
    config: &Config,
    path: &Path,
    bytes_max: u64,
    (run, identity): (Option<ServerRun>, Identity),
) -> Result<(FileDisk, (LogLayout, u32), usize), BootError> {
    let frame_bytes = LogLayout::frame_bytes_of(config.segment_bytes);
    let reserved_frames = reserved_frames(frame_bytes, bytes_max);
    let options = Options { frame_bytes, bytes_max, identity, reserved_frames, way: config.disk_way };
    let disk = FileDisk::open(path, &options).map_err(|error| cannot_open(&error))?;
    if ![identity, OLDER_IDENTITY].contains(&disk.identity()) {
        return Err(cannot_open(&format!(
            "{} was written with other metadata, so the numbers of tables in it mean others: put it back to its own data \
             directory, or move it away to start without its objects",
            path.display()
        )));
    }
    tell_way(&disk);
    warn_of_room(&disk, bytes_max);
    let cores = config.store(run.is_some()).cores;
    let layout = match disk.reserved_frames() {
        0 => LogLayout::of(frame_bytes, disk.frames_max()),
        frames => LogLayout { frame_bytes, digest_frames: frames / 2 },
    };
    let frames_max = disk.frames_max().min(layout.frames_max());
    if frames_max < disk.frames_max() {
        tracing::warn!(
            used_mib = (u64::from(frames_max) * frame_bytes as u64) >> 20,
            disk_mib = bytes_max >> 20,
            "the log was begun with a smaller --disk, and cannot use all of the present one: restore archives at a server with \
             an empty data directory"
        );
    }
    check_room(layout, frames_max, cores).map_err(|text| cannot_open(&text))?;
    Ok((disk, (layout, frames_max), cores))
}

/// Returns the frames for digests of a log that begins with this limit: with a multiple of what they need, as far as that is
/// little, so that a later start may have a higher limit.
fn reserved_frames(frame_bytes: usize, bytes_max: u64) -> u32 {
    let frames = u32::try_from(bytes_max / frame_bytes as u64).unwrap_or(u32::MAX);
    let least = 2 * LogLayout::of(frame_bytes, frames).digest_frames;
    let more = least.saturating_mul(DIGEST_ROOM);
    if more <= frames / DIGEST_SHARE_DIVISOR { more } else { least }
}

fn cannot_open(error: &dyn std::fmt::Display) -> BootError {
    BootError::new("cannot open the log of durable tables", error)
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

fn refuse_without_disk(path: &Path) -> BootError {
    let text = format!(
        "{} holds objects of durable tables: start without `--disk off`, or move the file away to start without them",
        path.display()
    );
    BootError::new("the log of durable tables", text)
}

/// Warns of a file system that has less room than the log may take.
fn warn_of_room(disk: &FileDisk, bytes_max: u64) {
    let frame_bytes = disk.frame_bytes() as u64;
    let [has, room] = [disk.frames(), disk.room_frames()].map(|frames| u64::from(frames) * frame_bytes);
    if has.saturating_add(room + frame_bytes) < bytes_max {
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
fn check_room(layout: LogLayout, frames_max: u32, cores: usize) -> Result<(), DiskRoom> {
    let frames = (frames_max as usize).saturating_sub(2 * layout.digest_frames as usize);
    let (reserve, _) = frames_reserved(cores, frames);
    let least = 2 * reserve + REMOVAL_FRAMES + 2 * layout.digest_frames as usize;
    if (frames_max as usize) < least {
        return Err(DiskRoom { mib: (least * layout.frame_bytes).div_ceil(1 << 20) + 1 });
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
