//! Where archives lie: a directory, or a bucket of an S3 server.
//!
//! ```text
//!   TENANT/20260131T120000.123Z.json     a manifest; there is an archive once it is there
//!   TENANT/files/9f86d0...               files that manifests name by their SHA-256
//! ```

use crate::failure::{Failure, FailureKind};
use client::name_is_valid;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, PutPayload};
use std::fs;
use std::path::PathBuf;
use tokio::runtime::{Builder, Runtime};

/// How the name of a manifest ends.
const MANIFEST: &str = ".json";

/// A place with archives.
pub struct Place {
    store: Box<dyn ObjectStore>,
    /// What is before all names.
    prefix: Path,
    /// Its directory, if it is one.
    directory: Option<PathBuf>,
    runtime: Runtime,
    name: String,
}

impl Place {
    /// Opens a place, and makes the directory if there is none.
    pub fn create(name: &str) -> Result<Place, Failure> {
        if !name.contains("://") {
            fs::create_dir_all(name).map_err(|error| local(format!("cannot create {name}: {error}")))?;
        }
        Place::open(name)
    }

    /// Opens a place.
    pub fn open(name: &str) -> Result<Place, Failure> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| local(format!("cannot begin to store files: {error}")))?;
        let failed = |error: object_store::Error| local(format!("cannot open {name}: {error}"));
        let (store, prefix, directory): (Box<dyn ObjectStore>, _, _) = match name.split_once("://") {
            None => {
                let store = LocalFileSystem::new_with_prefix(name).map_err(failed)?;
                (Box::new(store), Path::default(), Some(PathBuf::from(name)))
            }
            Some(("s3", rest)) => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let store = AmazonS3Builder::from_env().with_bucket_name(bucket).build().map_err(failed)?;
                let prefix = Path::parse(prefix.trim_end_matches('/'));
                let prefix = prefix.map_err(|error| local(format!("{name} is no place: {error}")))?;
                (Box::new(store), prefix, None)
            }
            Some(_) => {
                let what = format!("archives cannot be stored in {name}");
                return Err(
                    Failure::new(FailureKind::Usage, what).next("name a directory, or s3://BUCKET/PREFIX")
                );
            }
        };
        Ok(Place { store, prefix, directory, runtime, name: name.to_owned() })
    }

    /// Returns the names of all archives, by tenant and moment.
    pub fn archives(&self) -> Result<Vec<String>, Failure> {
        let list = |path: &Path| self.runtime.block_on(self.store.list_with_delimiter(Some(path)));
        let mut names = Vec::new();
        let tenants = list(&self.prefix).map_err(|error| self.failed("list", &error))?;
        for folder in tenants.common_prefixes {
            let found = list(&folder).map_err(|error| self.failed("list", &error))?;
            let tenant = folder.filename().unwrap_or("");
            for object in found.objects {
                let moment = object.location.filename().and_then(|name| name.strip_suffix(MANIFEST));
                names.extend(moment.map(|moment| format!("{tenant}/{moment}")));
            }
        }
        names.retain(|name| is_name(name));
        names.sort_unstable();
        Ok(names)
    }

    /// Returns where the manifest of an archive lies.
    pub fn manifest(name: &str) -> Result<String, Failure> {
        if is_name(name) {
            return Ok(format!("{name}{MANIFEST}"));
        }
        Err(Failure::new(FailureKind::Usage, format!("`{name}` is no name of an archive"))
            .next("name it as `splinter archive list` does: TENANT/MOMENT"))
    }

    /// Reads a file of at most `bytes_max` bytes.
    pub fn get(&self, path: &str, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        let read = async {
            let found = self.store.get(&self.at(path)).await?;
            if found.meta.size > bytes_max {
                return Ok(None);
            }
            found.bytes().await.map(Some)
        };
        match self.runtime.block_on(read) {
            Ok(Some(bytes)) => Ok(bytes.into()),
            Ok(None) => Err(super::damaged(format!("{path} has more than {bytes_max} bytes"))),
            Err(object_store::Error::NotFound { .. }) => {
                let what = format!("there is no {path} in {}", self.name);
                Err(Failure::new(FailureKind::Missing, what))
            }
            Err(error) => Err(self.failed("read", &error)),
        }
    }

    /// Writes a file unless it is there; returns whether it was not. A directory's file is compared; a bucket's has a length,
    /// and the bucket keeps what it has.
    pub fn put_once(&self, path: &str, bytes: Vec<u8>) -> Result<bool, Failure> {
        let found = match self.runtime.block_on(self.store.head(&self.at(path))) {
            Ok(found) => found.size == bytes.len() as u64,
            Err(object_store::Error::NotFound { .. }) => false,
            Err(error) => return Err(self.failed("look at", &error)),
        };
        if found && (self.directory.is_none() || self.get(path, bytes.len() as u64)? == bytes) {
            return self.sync(path).map(|()| false);
        }
        self.put(path, bytes).map(|()| true)
    }

    /// Writes a file, whole or not at all; in a directory it is on the disk then.
    pub fn put(&self, path: &str, bytes: Vec<u8>) -> Result<(), Failure> {
        let (at, payload) = (self.at(path), PutPayload::from(bytes));
        self.runtime.block_on(self.store.put(&at, payload)).map_err(|error| self.failed("write", &error))?;
        self.sync(path)
    }

    /// Waits until a directory's file is on the disk, with its name and those of all folders above it.
    fn sync(&self, path: &str) -> Result<(), Failure> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let (file, last) = (directory.join(path), directory.parent().unwrap_or(directory));
        let last = if last.as_os_str().is_empty() { std::path::Path::new(".") } else { last };
        let folders = file.ancestors().take_while(|folder| folder.starts_with(directory));
        for synced in folders.chain([last]) {
            fs::File::open(synced)
                .and_then(|file| file.sync_all())
                .map_err(|error| local(format!("cannot write {}: {error}", synced.display())))?;
        }
        Ok(())
    }

    fn at(&self, path: &str) -> Path {
        path.split('/').fold(self.prefix.clone(), |path, part| path.child(part))
    }

    fn failed(&self, what: &str, error: &object_store::Error) -> Failure {
        local(format!("cannot {what} files in {}: {error}", self.name))
    }
}

/// Returns whether a text names an archive, and nothing outside its place.
fn is_name(name: &str) -> bool {
    let is_moment = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_digit())
            && text.bytes().all(|byte| byte.is_ascii_digit() || b"TZ.".contains(&byte))
    };
    name.split_once('/').is_some_and(|(tenant, moment)| name_is_valid(tenant) && is_moment(moment))
}

fn local(what: String) -> Failure {
    Failure::new(FailureKind::Local, what)
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_name_stays_within_its_place() {
        assert!(Place::manifest("acme/20260131T120000.123Z").is_ok());
        for name in ["acme", "acme/", "acme/..", "../x", "acme/x/y", "/etc/1", "acme/1/2", "acme/../1"] {
            assert!(Place::manifest(name).is_err(), "{name}");
        }
    }

    #[test]
    fn what_was_put_is_there_and_what_is_too_large_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::create(&directory.path().join("new").display().to_string()).unwrap();
        assert!(place.put_once("acme/files/ab", b"abd".to_vec()).unwrap());
        assert!(place.put_once("acme/files/ab", b"abc".to_vec()).unwrap(), "it was another one");
        assert!(!place.put_once("acme/files/ab", b"abc".to_vec()).unwrap());
        assert_eq!(place.get("acme/files/ab", 3).unwrap(), b"abc");
        assert!(place.get("acme/files/ab", 2).is_err() && place.get("acme/files/cd", 9).is_err());
        place.put("acme/20260131T120000.123Z.json", b"{}".to_vec()).unwrap();
        assert_eq!(place.archives().unwrap(), ["acme/20260131T120000.123Z"]);
    }
}
