//! Replicas at a start: those of other servers that this one keeps, and the backups of its own log.

use std::fs;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cluster::metadata::{Metadata, MetadataError, ServerRun, TabletsRow};
use cluster::replication::{Item, ReplicasRecord, Replication};
use cluster::secret::random_bytes;
use disk::{FileDisk, Identity, Options};

use crate::backups::LogBackups;
use crate::boot::BootError;
use crate::config::Config;
use crate::durability::LogLayout;
use crate::durability::log_writer::LogWriter;
use crate::durability::replicas::backup_thread::BackupThread;
use crate::durability::replicas::file::ReplicaFile;
use crate::durability::replicas::sender::ReplicaSender;
use crate::limits::{BACKUPS_LOOK_MS, LEFT_PATIENCE_MS, RECOVERY_PATIENCE_MS};

/// Name of the file of replicas in the data directory.
const REPLICAS_FILE: &str = "replicas";

/// How the identity of such a file begins; its random number follows.
const IDENTITY: [u8; 8] = *b"replicas";

/// Opens the file of replicas, if this server keeps any, and starts its thread.
///
/// # Errors
/// If the file cannot be read, or the kernel gives no thread.
pub(super) fn start_backup(config: &Config) -> Result<Option<BackupThread>, BootError> {
    let Some(bytes_max) = config.backup_bytes() else { return Ok(None) };
    let path = config.data_directory.join(REPLICAS_FILE);
    let failed =
        |error: &dyn std::fmt::Display| BootError::new("cannot open the replicas of other servers", error);
    let drawn: [u8; 8] = random_bytes().map_err(|error| failed(&error))?;
    let mut identity = Identity::default();
    identity[..8].copy_from_slice(&IDENTITY);
    identity[8..].copy_from_slice(&drawn);
    let frame_bytes = LogLayout::frame_bytes_of(config.segment_bytes);
    let options = Options { frame_bytes, bytes_max, identity, reserved_frames: 0, way: config.disk_way };
    let disk = FileDisk::open(&path, &options).map_err(|error| failed(&error))?;
    let number = number_of(&disk.identity(), &path).map_err(|text| failed(&text))?;
    let frames_max = disk.frames_max();
    let file = ReplicaFile::open(Box::new(disk), frames_max).map_err(|error| failed(&error))?;
    let thread = BackupThread::start(file, number, config.pin.clone());
    thread.map(Some).map_err(|error| failed(&error))
}

/// Waits until others have recovered what this server owns on the disk, if its log is gone and they have replicas of it: nobody
/// is served from it before.
///
/// # Errors
/// If the metadata fails, or they do not recover it for a long time.
pub(super) fn await_recovery(metadata: &Metadata, run: ServerRun) -> Result<(), BootError> {
    let failed = |error: &dyn std::fmt::Display| BootError::new("the log of durable tables is gone", error);
    let (begun, mut is_told) = (Instant::now(), false);
    loop {
        if !is_awaited(metadata, run).map_err(|error| failed(&error))? {
            return Ok(());
        }
        if begun.elapsed() >= Duration::from_millis(RECOVERY_PATIENCE_MS) {
            return Err(failed(
                &"other servers have replicas of it, and have not recovered it; see their logs",
            ));
        }
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(
                server = run.server,
                "the log is gone: waiting until others have recovered it from its replicas"
            );
        }
        thread::sleep(Duration::from_millis(BACKUPS_LOOK_MS));
    }
}

/// Returns whether others are to recover what a server owns on the disk.
fn is_awaited(metadata: &Metadata, run: ServerRun) -> Result<bool, MetadataError> {
    let has_replicas = metadata.replicas()?.iter().any(|row| row.server == run.server && row.replicas > 0);
    Ok(has_replicas && owns_durable(metadata, run)?)
}

/// Returns whether a server owns anything on the disk.
fn owns_durable(metadata: &Metadata, run: ServerRun) -> Result<bool, MetadataError> {
    let snapshot = metadata.snapshot()?;
    let owns =
        |row: &TabletsRow| snapshot.durable.contains(&row.table) && !row.owned_by(run.server).is_empty();
    Ok(snapshot.tablets.iter().any(owns))
}

/// Waits until others have recovered what they have received of the own log and the disk does not have; returns false if they do
/// not, and this disk is all that there is.
///
/// # Errors
/// If the metadata fails, or they do not end for a long time.
pub(super) fn await_those_ahead(metadata: &Metadata, run: ServerRun) -> Result<bool, BootError> {
    let failed = |error| BootError::new("cannot find out who recovers the log", error);
    tracing::warn!("others have received more of the log than this disk has: they are to recover it");
    let begun = Instant::now();
    while is_awaited(metadata, run).map_err(failed)? {
        if metadata.recovery(run.server).map_err(failed)?.is_some() {
            await_recovery(metadata, run)?;
        } else if begun.elapsed() > Duration::from_millis(LEFT_PATIENCE_MS) {
            tracing::error!(
                "nobody recovers the log: it is taken as this disk has it, without the last acknowledged writes of `written` tables"
            );
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(BACKUPS_LOOK_MS));
    }
    Ok(!owns_durable(metadata, run).map_err(failed)?)
}

/// Discards the own log, since others recover more of it, once they have done so.
///
/// # Errors
/// As [`await_recovery`], or if the file cannot be removed.
pub(super) fn leave_to_others(
    metadata: &Metadata,
    run: Option<ServerRun>,
    log: &Path,
) -> Result<(), BootError> {
    tracing::warn!(
        path = %log.display(),
        "this log ends before what others recover of it: it will be discarded when they have everything"
    );
    run.map_or(Ok(()), |run| await_recovery(metadata, run))?;
    fs::remove_file(log)
        .map_err(|error| BootError::new("cannot discard a log that others have recovered", error))
}

/// Returns the random number of a file.
fn number_of(identity: &Identity, path: &Path) -> Result<u64, String> {
    let (kind, number) = identity.split_at(8);
    if kind != IDENTITY {
        return Err(format!("{} is no file of replicas; move it away", path.display()));
    }
    Ok(u64::from_le_bytes(number.try_into().expect("eight bytes")))
}

/// Sends the log to backups from now on, if the server is in a cluster and is to have any.
///
/// # Errors
/// If the metadata fails.
pub(super) fn replicate(
    (writer, config): (&mut LogWriter, &Config),
    (metadata, run): (&Metadata, Option<ServerRun>),
    (start, is_new): (u64, bool),
) -> Result<Option<LogBackups>, BootError> {
    let Some(run) = run else { return Ok(None) };
    let failed = |error: MetadataError| BootError::new("cannot read the record of the log's replicas", error);
    let row = match metadata.replicas_begin(run.server, start, is_new) {
        Err(MetadataError::Conflict) => {
            return Err(BootError::new("other servers recover the log", "start this one again"));
        }
        row => row.map_err(failed)?,
    };
    if config.replicas == 0 {
        // Nobody recovers what earlier starts have sent: it will not be all that is acknowledged.
        let none = ReplicasRecord::default();
        let recorded = metadata.replicas_record(run.server, start, &none).map_err(failed)?;
        recorded.ok_or_else(|| BootError::new("other servers recover the log", "start this one again"))?;
        return Ok(None);
    }
    let seed = random_bytes().map_err(|error| BootError::new("cannot draw a seed", error))?;
    let items = writer.sequences().map(Item::Segment).chain([Item::Digest]);
    let seed = u64::from_le_bytes(seed);
    let machine = Replication::new((config.host(), config.replicas), row.record(), items, seed);
    let ((events, to_log), (from_log, records)) = (channel(), channel());
    let settled = writer.store().stable_cut();
    writer.send_to(ReplicaSender::new(machine, to_log, from_log, settled), config.replicas);
    Ok(Some(LogBackups { row, events, records }))
}
