//! The copy of a cluster's metadata that each server keeps in its data directory, to restore the metadata from if etcd is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cluster::metadata::MetadataError;
use cluster::metadata::restoration::{self, is_copied};
use cluster::records::{CopiedRecords, Event, RecordsCopy, RecordsError, Revision, Watch, WatchEnd};

use crate::config::EtcdAddress;
use crate::control_plane::Control;
use crate::etcd::Etcd;
use crate::limits::{FOLLOWING_LOOK_MS, METADATA_COPY_REST_MS, METADATA_COPY_RETRY_MS};

/// Name of the file in the data directory.
pub const FILE: &str = "metadata.copy";

/// Keeps a copy of the metadata in this directory until the server stops. While it cannot be written, it is as it was.
///
/// # Errors
/// If the thread cannot be started.
pub fn copy(
    control: &Arc<Control>,
    directory: &Path,
    stopping: &Arc<AtomicBool>,
) -> io::Result<JoinHandle<()>> {
    let (control, stopping, path) = (Arc::clone(control), Arc::clone(stopping), directory.join(FILE));
    thread::Builder::new().name("metadata-copy".to_owned()).spawn(move || {
        let (mut copying, mut has_failed) = (None, false);
        while !stopping.load(Ordering::Relaxed) {
            let rest_ms = match step(&control, &path, &mut copying) {
                Ok(true) => METADATA_COPY_REST_MS,
                Ok(false) => continue,
                Err(error) => {
                    // While the metadata does not answer others say so.
                    let is_own = !matches!(error, RecordsError::Unavailable(_) | RecordsError::Overtaken);
                    if is_own && !std::mem::replace(&mut has_failed, true) {
                        tracing::warn!(%error, "cannot copy the metadata to the data directory");
                    }
                    copying = None;
                    METADATA_COPY_RETRY_MS
                }
            };
            has_failed &= copying.is_none();
            thread::park_timeout(Duration::from_millis(rest_ms));
        }
    })
}

/// A copy that is complete, and what follows.
struct MetadataCopying {
    copy: RecordsCopy,
    watch: Watch,
}

/// Waits briefly for changes, and copies them; or begins with everything. Returns whether anything was written.
fn step(control: &Control, path: &Path, copying: &mut Option<MetadataCopying>) -> Result<bool, RecordsError> {
    let records = control.metadata.records();
    let written = |revision: Revision| control.metadata_copied.store(revision.0, Ordering::Relaxed);
    let Some(MetadataCopying { copy, watch }) = copying else {
        let copy = RecordsCopy::open(path)?;
        let (all, revision) = restoration::all(records, is_copied)?;
        copy.replace(&all, revision, control.clock.wall_ms())?;
        written(revision);
        *copying = Some(MetadataCopying { copy, watch: records.watch("", revision)? });
        return Ok(true);
    };
    let commits: Vec<Event> = match watch.next(Duration::from_millis(FOLLOWING_LOOK_MS)) {
        Ok(first) => {
            [first].into_iter().chain(std::iter::from_fn(|| watch.next(Duration::ZERO).ok())).collect()
        }
        Err(WatchEnd::Quiet) => return Ok(false),
        Err(WatchEnd::Lost | WatchEnd::Closed) => {
            *copying = None;
            return Ok(true);
        }
    };
    let commits: Vec<Event> = commits.into_iter().filter_map(without_leased).collect();
    let Some(last) = commits.last() else { return Ok(false) };
    copy.apply(&commits, control.clock.wall_ms())?;
    written(last.revision);
    Ok(true)
}

/// Leaves out what a copy does not have; `None` if that is all.
fn without_leased(mut commit: Event) -> Option<Event> {
    commit.changes.retain(|(key, _)| is_copied(key));
    (!commit.changes.is_empty()).then_some(commit)
}

/// Writes the newest of these copies to an etcd that has no metadata of this cluster. Returns how many records, and from which of the
/// files; `tell` gets a line about each.
///
/// # Errors
/// Names the file or the etcd, and the reason.
pub fn restore(
    address: &EtcdAddress,
    copies: &[PathBuf],
    mut tell: impl FnMut(&Path, &CopiedRecords),
) -> Result<(usize, PathBuf), String> {
    let mut newest: Option<(_, &PathBuf, CopiedRecords)> = None;
    for path in copies {
        let failed = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let copied = CopiedRecords::read(path).map_err(|error| failed(&error))?;
        let age = restoration::age_of(&copied).map_err(|error| failed(&error))?;
        tell(path, &copied);
        if newest.as_ref().is_none_or(|(other, ..)| *other < age) {
            newest = Some((age, path, copied));
        }
    }
    let (_, path, copied) = newest.ok_or("no copy is named")?;
    let etcd = Etcd::open(address).map_err(|error| error.to_string())?;
    match restoration::restore(&etcd, &copied) {
        Ok(count) => Ok((count, path.clone())),
        Err(MetadataError::AlreadyExists) => {
            Err(format!("{address} has the metadata of a cluster already: it was not changed"))
        }
        Err(error) => Err(format!("cannot restore the metadata to {address}: {error}")),
    }
}
