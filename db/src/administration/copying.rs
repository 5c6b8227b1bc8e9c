//! The copy of a cluster's metadata that each server keeps in its data directory, to restore the metadata from if etcd is lost.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::metadata::MetadataError;
use cluster::metadata::restoration::{self, is_copied};
use cluster::records::{
    CopiedRecords, Event, Query, Records, RecordsCopy, RecordsError, Revision, Watch, WatchEnd,
};

use crate::config::EtcdAddress;
use crate::control_plane::Control;
use crate::etcd::Etcd;
use crate::limits::{
    FOLLOWING_LOOK_MS, METADATA_COPY_REST_MS, METADATA_COPY_RETRY_MS, METADATA_COPY_WARN_MS,
};

/// Name of the file in the data directory.
pub const FILE: &str = "metadata.copy";
/// What is added to the name of a copy that is kept because the metadata is not a later state of it.
const KEPT: &str = "before";

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
        let (mut copying, mut lack) = (None, CopyLack::default());
        while !stopping.load(Ordering::Relaxed) {
            let rest_ms = match step(&control, &path, &mut copying) {
                Ok(true) => METADATA_COPY_REST_MS,
                Ok(false) => continue,
                Err(error) => {
                    copying = None;
                    if lack.is_news(&error, Instant::now()) {
                        tracing::warn!(%error, "cannot copy the metadata to the data directory");
                    }
                    METADATA_COPY_RETRY_MS
                }
            };
            if copying.is_some() {
                lack = CopyLack::default();
            }
            thread::park_timeout(Duration::from_millis(rest_ms));
        }
    })
}

/// The time since which there is no complete copy that follows the metadata.
#[derive(Default)]
struct CopyLack {
    since: Option<Instant>,
    is_told: bool,
}

impl CopyLack {
    /// Notes a failure, and returns whether the operator is to know, which is once: at once if it is this server's own, otherwise
    /// when it lasts.
    fn is_news(&mut self, error: &RecordsError, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_own = !matches!(error, RecordsError::Unavailable(_) | RecordsError::Overtaken);
        let is_long = now.duration_since(since) >= Duration::from_millis(METADATA_COPY_WARN_MS);
        (is_own || is_long) && !std::mem::replace(&mut self.is_told, true)
    }
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
        let copy = open(records, path)?;
        let read = |take: &mut dyn FnMut(_) -> _| restoration::read_all(records, take);
        let revision = copy.replace(control.clock.wall_ms(), read)?;
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

/// Opens the copy, which is to be replaced. One that the metadata is no later state of is kept under another name: somebody may need it
/// to restore what there was.
///
/// # Errors
/// When it cannot be opened, the metadata does not answer, or another one has been kept before.
fn open(records: &dyn Records, path: &Path) -> Result<RecordsCopy, RecordsError> {
    let copy = RecordsCopy::open(path)?;
    let spans = restoration::marks();
    let reading = records.read(&spans.clone().map(Query::all), None)?;
    let now: Vec<_> = reading.found.into_iter().flatten().map(|record| (record.key, record.value)).collect();
    let why = restoration::why_not_later(&copy.find(&spans)?, &now);
    let Some(why) = why.map_err(|error| RecordsError::Storage(error.to_string()))? else { return Ok(copy) };
    let mut kept = path.as_os_str().to_owned();
    kept.push(".");
    kept.push(KEPT);
    let (kept, text) = (PathBuf::from(kept), "the metadata is no later state of what its copy has");
    if kept.exists() {
        let advice =
            format!("{text}: {why}; move {} away, so that the copy can be kept there", kept.display());
        return Err(RecordsError::Storage(advice));
    }
    drop(copy);
    fs::rename(path, &kept).map_err(|error| RecordsError::Storage(error.to_string()))?;
    tracing::warn!(why, kept = %kept.display(), "{text}: the copy is kept under another name");
    RecordsCopy::open(path)
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
    let mut others = None;
    for path in copies {
        let failed = |error: &dyn std::fmt::Display| format!("cannot read {}: {error}", path.display());
        let copied = CopiedRecords::read(path).map_err(|error| failed(&error))?;
        let newness = restoration::newness_of(&copied).map_err(|error| failed(&error))?;
        tell(path, &copied);
        match &newest {
            Some((_, other, of)) if !restoration::is_same_cluster(of, &copied) => {
                others = Some((*other, path))
            }
            Some((other, ..)) if *other >= newness => {}
            _ => newest = Some((newness, path, copied)),
        }
    }
    if let Some((one, other)) = others {
        let (one, other) = (one.display(), other.display());
        return Err(format!("{one} and {other} are of different clusters: name the copies of one"));
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use cluster::metadata::{Metadata, restoration};
    use cluster::records::{CopiedRecords, RecordsCopy, RecordsError};

    use super::{CopyLack, open, restore};
    use crate::config::{MetadataPlace, parse_metadata_place};
    use crate::limits::METADATA_COPY_WARN_MS;

    /// Makes a copy, as the thread does.
    fn copy(metadata: &Metadata, path: &Path) -> Result<(), RecordsError> {
        let copy: RecordsCopy = open(metadata.records(), path)?;
        let read = |take: &mut dyn FnMut(_) -> _| restoration::read_all(metadata.records(), take);
        copy.replace(1, read).map(|_| ())
    }

    /// Metadata of a fresh cluster.
    fn metadata(path: &Path) -> Metadata {
        let metadata = Metadata::open(path).expect("a fresh file");
        metadata.cluster_id().expect("it is drawn");
        metadata
    }

    #[test]
    fn a_copy_is_kept_when_the_metadata_is_an_older_state_or_of_another_cluster() {
        let directory = tempfile::tempdir().expect("a directory");
        let [current, older, path, kept] = ["current", "older", "metadata.copy", "metadata.copy.before"]
            .map(|name| directory.path().join(name));
        drop(metadata(&current));
        fs::copy(&current, &older).expect("there is room");
        let now = Metadata::open(&current).expect("the file");
        assert_eq!(copy(&now, &path), Ok(()));
        now.reserve_versions().expect("room");
        assert_eq!(copy(&now, &path), Ok(()), "a later state");
        assert!(!kept.exists());

        let older = Metadata::open(&older).expect("the file");
        assert_eq!(copy(&older, &path), Ok(()));
        let records = |path: &Path| CopiedRecords::read(path).expect("it is complete").records;
        assert!(records(&kept).iter().any(|(key, _)| key == "counters/version"));
        assert!(!records(&path).iter().any(|(key, _)| key == "counters/version"));

        let other = metadata(&directory.path().join("other"));
        let before = [&kept, &path].map(|path| records(path));
        let refused = copy(&other, &path).expect_err("what is kept stays");
        assert!(refused.to_string().contains("another cluster"), "{refused}");
        assert_eq!([&kept, &path].map(|path| records(path)), before);
        fs::remove_file(&kept).expect("it is there");
        assert_eq!(copy(&other, &path), Ok(()));
        assert_eq!(records(&kept), before[1]);
    }

    #[test]
    fn copies_of_different_clusters_are_not_compared() {
        let directory = tempfile::tempdir().expect("a directory");
        let copies = ["one", "other"].map(|name| {
            let path = directory.path().join(format!("{name}.copy"));
            copy(&metadata(&directory.path().join(name)), &path).expect("there is room");
            path
        });
        let Ok(MetadataPlace::Etcd(address)) = parse_metadata_place("etcd://127.0.0.1:1/test") else {
            panic!("it is an address")
        };
        let refused = restore(&address, &copies, |_, _| {}).expect_err("nobody knows which is meant");
        assert!(refused.contains("different clusters"), "{refused}");
    }

    #[test]
    fn a_copy_that_lacks_for_long_is_told_once_and_an_error_of_the_file_at_once() {
        let (now, long) = (Instant::now(), Duration::from_millis(METADATA_COPY_WARN_MS));
        let (away, own) = (RecordsError::Overtaken, RecordsError::StorageFull);
        let mut lack = CopyLack::default();
        assert!(!lack.is_news(&away, now) && !lack.is_news(&away, now + long / 2));
        assert!(lack.is_news(&away, now + long) && !lack.is_news(&own, now + long));
        assert!(CopyLack::default().is_news(&own, now));
    }
}
