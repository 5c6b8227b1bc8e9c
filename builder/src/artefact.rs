//! Artefacts on disk: content-addressed, written once, verified at every use.
//!
//! ```text
//! CACHE/artefacts/KEY.so     the shared object; KEY = SHA-256 over SDK hash and source
//! CACHE/artefacts/KEY.cwasm  the machine code of the module, or no file
//! CACHE/artefacts/KEY.json   the SHA-256 of each, or why there is no module; functions, warnings, lints of the build
//! ```
//!
//! All appear by rename, the description last, so a crash leaves a complete artefact or none. A file that is not the one
//! that was described makes the artefact as good as none, and it is built again.

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
    /// The module's machine code, or the reason why there is none.
    pub module: Result<ModuleFile, String>,
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

/// The machine code of a module, in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    /// The path of the file.
    pub path: PathBuf,
    sha256: String,
}

impl ModuleFile {
    /// Returns the contents of the file, read once and compared with the hash that the builder wrote for it.
    ///
    /// # Errors
    /// The reason, when the file cannot be read or is another one.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let bytes = fs::read(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        if sha256_of(&bytes) == self.sha256 {
            Ok(bytes)
        } else {
            Err(format!("{} is not the file that was built", self.path.display()))
        }
    }
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
    /// The machine code of the module, or the reason why there is none.
    pub(crate) module: Result<Vec<u8>, String>,
    pub(crate) functions: Vec<Function>,
    pub(crate) warnings: String,
    pub(crate) lints: Lints,
}

/// The description beside the shared object.
#[derive(Serialize, Deserialize)]
struct Description {
    sha256: String,
    /// That of the module's machine code, or the reason why there is none.
    module: Result<String, String>,
    functions: Vec<Function>,
    warnings: String,
    lints: Lints,
}

/// Returns the artefact of a key and the lints of its build, if it exists undamaged.
pub(crate) fn find(folder: &Path, key: &str) -> Option<(Artefact, Lints)> {
    let path = folder.join(format!("{key}.so"));
    let description = fs::read(folder.join(format!("{key}.json"))).ok()?;
    let Description { sha256, module, functions, warnings, lints } =
        serde_json::from_slice(&description).ok()?;
    if sha256_of(&fs::read(&path).ok()?) != sha256 {
        return None;
    }
    let module = match module {
        Ok(sha256) => {
            let file = ModuleFile { path: module_path(folder, key), sha256 };
            file.read().ok()?;
            Ok(file)
        }
        Err(why) => Err(why),
    };
    let (content_hash, compile_ms, cached) = (key.into(), 0, true);
    Some((Artefact { path, module, content_hash, functions, warnings, compile_ms, cached }, lints))
}

/// Stores an artefact under its key.
pub(crate) fn store(folder: &Path, key: &str, made: Made, compile_ms: u64) -> Result<Artefact, BuildError> {
    let path = folder.join(format!("{key}.so"));
    let Made { object, module, functions, warnings, lints } = made;
    let code_sha256 = module.as_ref().map(|code| sha256_of(code)).map_err(Clone::clone);
    let sha256 = sha256_of(&object);
    let description = Description { sha256, module: code_sha256.clone(), functions, warnings, lints };
    let text = serde_json::to_vec_pretty(&description)
        .map_err(|error| BuildError::Io { what: format!("describe an artefact: {error}") })?;
    publish(&path, &object)?;
    let module = match module {
        Ok(code) => {
            let path = module_path(folder, key);
            publish(&path, &code)?;
            code_sha256.map(|sha256| ModuleFile { path, sha256 })
        }
        Err(why) => Err(why),
    };
    publish(&folder.join(format!("{key}.json")), &text)?;
    let Description { functions, warnings, .. } = description;
    Ok(Artefact { path, module, content_hash: key.into(), functions, warnings, compile_ms, cached: false })
}

impl Artefact {
    /// Returns the bytes of its code on disk, of both kinds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let paths = [Some(&self.path), self.module.as_ref().ok().map(|module| &module.path)];
        paths.into_iter().flatten().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum()
    }
}

fn module_path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.cwasm"))
}

fn sha256_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
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
        let made = |module| Made {
            object: b"object".to_vec(),
            module,
            functions: vec![],
            warnings: "a word".into(),
            lints: Lints::Warn,
        };
        let artefact = store(folder.path(), "key", made(Ok(b"code".to_vec())), 5).unwrap();
        assert_eq!(artefact.bytes(), 10);
        let (found, lints) = find(folder.path(), "key").unwrap();
        assert!(found.cached && found.path == artefact.path && lints == Lints::Warn);
        assert_eq!((found.warnings, artefact.warnings.as_str()), ("a word".into(), "a word"));
        let code = artefact.module.unwrap().path;
        for (path, right, wrong) in [(&artefact.path, "object", "objecT"), (&code, "code", "c0de")] {
            fs::write(path, wrong).unwrap();
            assert_eq!(find(folder.path(), "key"), None);
            fs::write(path, right).unwrap();
            assert!(find(folder.path(), "key").is_some());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no drafts are left");
        fs::remove_file(&code).unwrap();
        assert_eq!(find(folder.path(), "key"), None);
        let artefact = store(folder.path(), "key", made(Err("no tools".into())), 5).unwrap();
        assert_eq!((artefact.bytes(), artefact.module), (6, Err("no tools".into())));
        assert_eq!(find(folder.path(), "key").unwrap().0.module, Err("no tools".into()));
    }
}
