//! Artefacts on disk: content-addressed, written once, verified at every use.
//!
//! ```text
//! CACHE/artefacts/KEY.so     the shared object; KEY = SHA-256 over SDK hash and source
//! CACHE/artefacts/KEY.json   its own SHA-256, its functions, how long it took to build
//! ```
//!
//! Both appear by rename, the description last, so a crash leaves an artefact whole or not at all.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use sha2::Digest;
use sha2::Sha256;

use crate::BuildError;
use crate::checked::Function;

/// A built extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// The shared object.
    pub path: PathBuf,
    /// SHA-256 over SDK hash and source, in hex: the artefact's name.
    pub content_hash: String,
    /// What may be invoked.
    pub functions: Vec<Function>,
    /// How long the build took, check and link included; 0 when the artefact was there.
    pub compile_ms: u64,
    /// Whether the artefact was there.
    pub cached: bool,
}

/// What is written beside the shared object.
#[derive(Serialize, Deserialize)]
struct Description {
    sha256: String,
    functions: Vec<Function>,
    compile_ms: u64,
}

/// The artefact of a key, when it is there and undamaged.
pub(crate) fn find(folder: &Path, key: &str) -> Option<Artefact> {
    let path = folder.join(format!("{key}.so"));
    let description = fs::read(folder.join(format!("{key}.json"))).ok()?;
    let description: Description = serde_json::from_slice(&description).ok()?;
    let object = fs::read(&path).ok()?;
    let (functions, cached) = (description.functions, true);
    let intact = hex(&Sha256::digest(&object)) == description.sha256;
    intact.then(|| Artefact { path, content_hash: key.into(), functions, compile_ms: 0, cached })
}

/// Stores an artefact under its key.
pub(crate) fn store(
    folder: &Path,
    key: &str,
    object: &[u8],
    functions: Vec<Function>,
    compile_ms: u64,
) -> Result<Artefact, BuildError> {
    let path = folder.join(format!("{key}.so"));
    let sha256 = hex(&Sha256::digest(object));
    let description = Description { sha256, functions, compile_ms };
    let text = serde_json::to_vec_pretty(&description)
        .map_err(|error| BuildError::Io { what: format!("describe an artefact: {error}") })?;
    publish(&path, object)?;
    publish(&folder.join(format!("{key}.json")), &text)?;
    let functions = description.functions;
    Ok(Artefact { path, content_hash: key.into(), functions, compile_ms, cached: false })
}

/// Writes a file under another name, makes it durable and renames it.
pub(crate) fn publish(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let draft = path.with_extension(format!("draft-{}-{}", std::process::id(), unique()));
    let written = fs::write(&draft, bytes)
        .and_then(|()| fs::File::open(&draft)?.sync_all())
        .and_then(|()| fs::rename(&draft, path));
    written.map_err(|error| {
        // The draft is of no use any more; when it cannot be removed either, the first error says why.
        let _ = fs::remove_file(&draft);
        BuildError::io(format!("write {}", path.display()), &error)
    })
}

/// A number that no other call in this process gets.
pub(crate) fn unique() -> u64 {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::find;
    use super::store;

    #[test]
    fn a_damaged_artefact_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find(folder.path(), "key"), None);
        let artefact = store(folder.path(), "key", b"object", vec![], 5).unwrap();
        let found = find(folder.path(), "key").unwrap();
        assert!(found.cached && found.path == artefact.path);
        fs::write(&artefact.path, b"objecT").unwrap();
        assert_eq!(find(folder.path(), "key"), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no drafts are left");
    }
}
