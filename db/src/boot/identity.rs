//! Identity of a data directory: its cluster, and its server's number, which survives restarts.
//!
//! The file `server.id` holds the cluster's identifier and the number. One process uses a directory at a time: it
//! locks `server.lock` while it runs.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use cluster::metadata::{Metadata, ServerRun};
use cluster::records::Records;

use super::BootError;
use crate::config::Config;

/// Name of the file with cluster and number.
const ID_FILE: &str = "server.id";
/// Name of the file that is locked.
const LOCK_FILE: &str = "server.lock";

/// The identity of a server in its cluster.
#[derive(Debug)]
pub(super) struct Identity {
    /// The number of the server.
    pub(super) id: u32,
    /// Locked until this is dropped.
    _lock: File,
}

impl Identity {
    /// Opens a directory's identity and begins a run of its server if the metadata is shared; otherwise there is none.
    ///
    /// # Errors
    /// Same as [`Identity::open`].
    pub(super) fn begin_run(
        config: &Config,
        metadata: &Metadata,
        reached: SocketAddr,
    ) -> Result<Option<(Self, ServerRun)>, BootError> {
        if !metadata.records().is_shared() {
            return Ok(None);
        }
        let own = Self::open(&config.data_directory, metadata)?;
        let run = own.begin(metadata, reached, config.disk_bytes().is_some())?;
        Ok(Some((own, run)))
    }

    /// Opens a directory's identity; assigns a new number if it has none.
    ///
    /// # Errors
    /// If another process uses the directory, it belongs to another cluster, or files or metadata fail.
    fn open(directory: &Path, metadata: &Metadata) -> Result<Self, BootError> {
        let failed = |error: &dyn fmt::Display| BootError::new("cannot identify this server", error);
        let lock = File::create(directory.join(LOCK_FILE)).map_err(|error| failed(&error))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => failed(&"another server has this data directory open"),
            fs::TryLockError::Error(error) => failed(&error),
        })?;
        let cluster = metadata.cluster_id().map_err(|error| failed(&error))?;
        let path = directory.join(ID_FILE);
        let id = match fs::read_to_string(&path) {
            Ok(text) => number_in(&text, &cluster).map_err(|text| {
                failed(&format!("{}: {text}; start with another data directory", path.display()))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = metadata.server_number().map_err(|error| failed(&error))?;
                write(directory, &path, &format!("{cluster} {id}\n")).map_err(|error| failed(&error))?;
                id
            }
            Err(error) => return Err(failed(&error)),
        };
        Ok(Self { id, _lock: lock })
    }

    /// Records in the metadata that the server started, its address for other servers, and whether it has a disk; and ends
    /// migrations of its earlier start.
    ///
    /// # Errors
    /// If other servers cannot reach the address, or the metadata fails.
    pub(super) fn begin(
        &self,
        metadata: &Metadata,
        reached: SocketAddr,
        has_disk: bool,
    ) -> Result<ServerRun, BootError> {
        let failed = |error: &dyn fmt::Display| BootError::new("cannot join the cluster", error);
        if reached.ip().is_unspecified() {
            let text = format!("other servers cannot reach {reached}: name an address with --advertise");
            return Err(failed(&text));
        }
        let run = metadata.member_start(self.id, reached, has_disk).map_err(|error| failed(&error))?;
        // So that their hashes are served at once, and not when the other servers have noticed.
        let ended = metadata.migrations_restarted(run).map_err(|error| failed(&error))?;
        if ended > 0 {
            tracing::info!(
                migrations = ended,
                "the moves that were under way when this server ended have not happened"
            );
        }
        Ok(run)
    }
}

/// Refuses records that no cluster has, if the data directory is of a server of one. Nothing may be written to them: they may be those
/// of a new etcd, to which the cluster's are to be restored.
///
/// # Errors
/// As said, or if the records cannot be read.
pub(super) fn check_cluster(
    directory: &Path,
    records: &dyn Records,
    place: &dyn fmt::Display,
) -> Result<(), BootError> {
    let path = directory.join(ID_FILE);
    let failed = |error: &dyn fmt::Display| BootError::new("cannot identify this server", error);
    if !path.exists() || Metadata::is_of_cluster(records).map_err(|error| failed(&error))? {
        return Ok(());
    }
    Err(failed(&format!(
        "{} is of a cluster that has no metadata at {place}: if its etcd was lost, restore the metadata there with \
         --restore-metadata; otherwise start with the cluster's --metadata, or with another data directory",
        path.display()
    )))
}

/// Returns the address at which other servers reach this one: the advertised one, or the listener's. Port 0 in an
/// advertised address means the listener's port.
pub(super) fn reached_at(advertised: Option<SocketAddr>, listener: SocketAddr) -> SocketAddr {
    match advertised {
        Some(address) if address.port() == 0 => SocketAddr::new(address.ip(), listener.port()),
        Some(address) => address,
        None => listener,
    }
}

fn number_in(text: &str, cluster: &str) -> Result<u32, &'static str> {
    let (of, number) = text.trim().split_once(' ').ok_or("the file is damaged")?;
    if of != cluster {
        return Err("it belongs to another cluster, or the etcd of its cluster was recreated");
    }
    number.parse().map_err(|_| "the file is damaged")
}

/// Writes a file atomically.
fn write(directory: &Path, path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use cluster::metadata::Metadata;

    use super::{Identity, check_cluster};

    #[test]
    fn a_server_of_a_cluster_writes_nothing_to_metadata_that_no_cluster_has() {
        let [directory, files] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let metadata = |name: &str| Metadata::open(&files.path().join(name)).expect("a fresh file");
        let (cluster, empty) = (metadata("one.redb"), metadata("empty.redb"));
        let check =
            |metadata: &Metadata| check_cluster(directory.path(), metadata.records(), &"etcd://there/test");
        check(&empty).expect("a fresh directory may found a cluster");
        Identity::open(directory.path(), &cluster).expect("a fresh directory");
        check(&cluster).expect("its own");
        let refused = check(&empty).expect_err("they may be of a new etcd").to_string();
        assert!(refused.contains("etcd://there/test") && refused.contains("--restore-metadata"), "{refused}");
        assert_eq!(Metadata::is_of_cluster(empty.records()), Ok(false));
    }

    #[test]
    fn a_directory_is_one_server_of_one_cluster() {
        let [directory, files] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let metadata = |name: &str| Metadata::open(&files.path().join(name)).expect("a fresh file");
        let (cluster, other) = (metadata("one.redb"), metadata("other.redb"));
        let first = Identity::open(directory.path(), &cluster).expect("a fresh directory");
        let twice = Identity::open(directory.path(), &cluster).expect_err("it is held");
        assert!(twice.to_string().contains("another server"), "{twice}");
        let id = first.id;
        drop(first);
        let elsewhere = tempfile::tempdir().expect("a directory");
        assert_ne!(Identity::open(elsewhere.path(), &cluster).expect("a fresh directory").id, id);
        assert_eq!(Identity::open(directory.path(), &cluster).expect("its own").id, id);
        let refused = Identity::open(directory.path(), &other).expect_err("it is of another cluster");
        assert!(refused.to_string().contains("another cluster"), "{refused}");
    }
}
