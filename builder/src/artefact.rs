//! Artefacts on disk: content-addressed, written once, verified at every use.
//!
//! ```text
//! CACHE/artefacts/KEY.so     the shared object; KEY = SHA-256 over SDK hash and source
//! CACHE/artefacts/KEY.json   its own SHA-256, its functions, the warnings, the lints of the build
//! ```
//!
//! Both appear by rename, the description last, so a crash leaves a complete artefact or none.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde::Serialize;
use sha2::Digest;
use sha2::Sha256;

use crate::BuildError;
use crate::checked::Function;

/// A built extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// The path of the shared object.
    pub path: PathBuf,
    /// SHA-256 over SDK hash and source, in hex: the artefact's name.
    pub content_hash: String,
    /// The functions that can be invoked.
    pub functions: Vec<Function>,
    /// The compiler's warnings of the build, at most [`DIAGNOSTICS_BYTES_MAX`] bytes and a mark.
    ///
    /// [`DIAGNOSTICS_BYTES_MAX`]: crate::limits::DIAGNOSTICS_BYTES_MAX
    pub warnings: String,
    /// The duration of the build, including check and link; 0 if the artefact existed.
    pub compile_ms: u64,
    /// Whether the artefact existed.
    pub cached: bool,
}

/// The treatment of sources with warnings for which installations are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Lints {
    /// Refuses the source.
    Refuse,
    /// Builds the source with a warning.
    Warn,
}

/// The result of a build.
pub(crate) struct Made {
    pub(crate) object: Vec<u8>,
    pub(crate) functions: Vec<Function>,
    pub(crate) warnings: String,
    pub(crate) lints: Lints,
}

/// The description beside the shared object.
#[derive(Serialize, Deserialize)]
struct Description {
    sha256: String,
    functions: Vec<Function>,
    warnings: String,
    lints: Lints,
}

/// Returns the artefact of a key and the lints of its build, if it exists undamaged.
pub(crate) fn find(folder: &Path, key: &str) -> Option<(Artefact, Lints)> {
    let path = folder.join(format!("{key}.so"));
    let description = fs::read(folder.join(format!("{key}.json"))).ok()?;
    let description: Description = serde_json::from_slice(&description).ok()?;
    let object = fs::read(&path).ok()?;
    let Description { sha256, functions, warnings, lints } = description;
    let (content_hash, compile_ms, cached) = (key.into(), 0, true);
    let intact = hex(&Sha256::digest(&object)) == sha256;
    intact.then_some((Artefact { path, content_hash, functions, warnings, compile_ms, cached }, lints))
}

/// Stores an artefact under its key.
pub(crate) fn store(folder: &Path, key: &str, made: Made, compile_ms: u64) -> Result<Artefact, BuildError> {
    let path = folder.join(format!("{key}.so"));
    let Made { object, functions, warnings, lints } = made;
    let sha256 = hex(&Sha256::digest(&object));
    let description = Description { sha256, functions, warnings, lints };
    let text = serde_json::to_vec_pretty(&description)
        .map_err(|error| BuildError::Io { what: format!("describe an artefact: {error}") })?;
    publish(&path, &object)?;
    publish(&folder.join(format!("{key}.json")), &text)?;
    let Description { functions, warnings, .. } = description;
    Ok(Artefact { path, content_hash: key.into(), functions, warnings, compile_ms, cached: false })
}

/// Writes a file under a temporary name, makes it durable and renames it.
pub(crate) fn publish(path: &Path, bytes: &[u8]) -> Result<(), BuildError> {
    let draft = path.with_extension(format!("draft-{}-{}", std::process::id(), unique()));
    let written = fs::write(&draft, bytes)
        .and_then(|()| fs::File::open(&draft)?.sync_all())
        .and_then(|()| fs::rename(&draft, path));
    written.map_err(|error| {
        // The draft is useless now; if it cannot be removed either, the first error tells why.
        let _ = fs::remove_file(&draft);
        BuildError::io(format!("write {}", path.display()), &error)
    })
}

/// Returns a number that is unique in this process.
pub(crate) fn unique() -> u64 {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Encodes bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Lints;
    use super::Made;
    use super::find;
    use super::store;

    #[test]
    fn a_damaged_artefact_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find(folder.path(), "key"), None);
        let made = Made {
            object: b"object".to_vec(),
            functions: vec![],
            warnings: "a word".into(),
            lints: Lints::Warn,
        };
        let artefact = store(folder.path(), "key", made, 5).unwrap();
        let (found, lints) = find(folder.path(), "key").unwrap();
        assert!(found.cached && found.path == artefact.path && lints == Lints::Warn);
        assert_eq!((found.warnings, artefact.warnings.as_str()), ("a word".into(), "a word"));
        fs::write(&artefact.path, b"objecT").unwrap();
        assert_eq!(find(folder.path(), "key"), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no drafts are left");
    }
}
