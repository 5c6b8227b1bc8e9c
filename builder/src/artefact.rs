//! Artefacts on disk: content-addressed, written once, verified at every use.
//!
//! ```text
//! CACHE/artefacts/KEY.so     the shared object, or no file; KEY = SHA-256 over SDK hash and package
//! CACHE/artefacts/KEY.wasm   the module as a compiler gets it, for those who run it elsewhere, or no file
//! CACHE/artefacts/KEY.cwasm  the machine code of the module, or no file
//! CACHE/artefacts/KEY.json   the SHA-256 of each, or why there is no module; functions, warnings, lints of the build
//! ```
//!
//! All appear by rename, the description last, so a crash leaves a complete artefact or none. A file that is not the one
//! that was described makes the artefact as good as none, and it is built again. One whose module is missing for a
//! reason that may pass is built again too, [`MODULE_ATTEMPTS_MAX`](crate::limits::MODULE_ATTEMPTS_MAX) times in all.

use std::fs;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::path::Path;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde::Serialize;
use sha2::Digest;
use sha2::Sha256;

use crate::BuildError;
use crate::checked::Function;
use crate::weakened;

/// A built extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artefact {
    /// The code.
    pub code: Code,
    /// The module in WebAssembly's own form, wherever there is its machine code.
    pub portable: Option<ModuleFile>,
    /// SHA-256 over SDK hash and package, in hex: the artefact's name.
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

/// The code of an artefact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// That of a checked source.
    Source {
        /// The path of the shared object.
        object: PathBuf,
        /// The module's machine code, or the reason why there is none.
        module: Result<ModuleFile, String>,
    },
    /// The machine code of a finished module, whose source nobody checked.
    Finished(ModuleFile),
}

/// A module in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleFile {
    /// The path of the file.
    pub path: PathBuf,
    sha256: String,
}

impl ModuleFile {
    /// Returns the SHA-256 of the contents, in hex, as the builder wrote it.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Returns a part of the file, empty behind its end, which is not compared with anything, and the bytes of the whole file. Whoever puts the parts
    /// together compares them with the [hash](ModuleFile::sha256).
    ///
    /// # Errors
    /// The reason, when the file cannot be read.
    pub fn part(&self, from: u64, bytes_max: usize) -> Result<(Vec<u8>, u64), String> {
        let part = || {
            let mut file = fs::File::open(&self.path)?;
            let all_bytes = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(from))?;
            let mut part = Vec::new();
            file.take(bytes_max as u64).read_to_end(&mut part)?;
            Ok((part, all_bytes))
        };
        part().map_err(|error: std::io::Error| format!("{}: {error}", self.path.display()))
    }

    /// Returns the contents of the file, read once and compared with the hash that the builder wrote for it.
    ///
    /// # Errors
    /// The reason, when the file cannot be read or is another one.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        let bytes = fs::read(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        if sha256_of(&bytes) == self.sha256 || weakened::by("hash") {
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
    /// Builds whatever the compiler takes, with `unsafe`.
    #[cfg(feature = "unchecked")]
    Allow,
    /// Builds whatever the compiler takes for safe, with no check of its MIR.
    #[cfg(feature = "unchecked")]
    Safe,
}

impl Lints {
    /// Whether the compiler's MIR is checked.
    pub(crate) fn checks_mir(self) -> bool {
        matches!(self, Lints::Refuse | Lints::Warn)
    }
}

/// The bytes of a [`Code`].
pub(crate) enum MadeCode {
    Source { object: Vec<u8>, module: Result<ModuleCode, MissingModule> },
    Finished(ModuleCode),
}

/// A module in both forms.
pub(crate) struct ModuleCode {
    /// WebAssembly, checked.
    pub(crate) portable: Vec<u8>,
    /// Machine code for this machine.
    pub(crate) machine: Vec<u8>,
}

/// The reason why a source has no module.
#[derive(Clone, Debug)]
pub(crate) struct MissingModule {
    pub(crate) why: String,
    /// Whether another attempt ends the same.
    pub(crate) is_final: bool,
}

/// The result of a build.
pub(crate) struct Made {
    pub(crate) code: MadeCode,
    pub(crate) functions: Vec<Function>,
    pub(crate) warnings: String,
    pub(crate) lints: Lints,
    /// The builds before this one whose module was missing for a reason that may pass.
    pub(crate) attempts: u32,
}

/// The hashes of a [`Code`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Hashes {
    Source { object: String, module: Result<String, String> },
    Finished(String),
}

/// The description beside the code.
#[derive(Serialize, Deserialize)]
struct Description {
    sha256: Hashes,
    /// That of the module in WebAssembly's own form. Earlier releases did not keep it: theirs are built again.
    #[serde(default)]
    portable: Option<String>,
    functions: Vec<Function>,
    warnings: String,
    lints: Lints,
    /// The builds whose module was missing for a reason that may pass; 0 if another one makes the same.
    #[serde(default)]
    attempts: u32,
}

/// Returns the artefact of a key, the lints of its build, and the number of builds after which another one may still
/// make a module, 0 if none does; nothing if it does not exist undamaged.
pub(crate) fn find(folder: &Path, key: &str) -> Option<(Artefact, Lints, u32)> {
    let description = fs::read(folder.join(format!("{key}.json"))).ok()?;
    let Description { sha256, portable, functions, warnings, lints, attempts } =
        serde_json::from_slice(&description).ok()?;
    let code = sha256.code(folder, key);
    let object_sha256 = code.object().map(fs::read).transpose().ok()?.map(|bytes| sha256_of(&bytes));
    if object_sha256.as_ref() != sha256.object() {
        return None;
    }
    let portable = portable.map(|sha256| ModuleFile { path: portable_path(folder, key), sha256 });
    if let Ok(module) = code.module() {
        module.read().ok()?;
        portable.as_ref()?.read().ok()?;
    }
    let (content_hash, compile_ms, cached) = (key.into(), 0, true);
    Some((
        Artefact { code, portable, content_hash, functions, warnings, compile_ms, cached },
        lints,
        attempts,
    ))
}

/// Stores an artefact under its key.
pub(crate) fn store(folder: &Path, key: &str, made: Made, compile_ms: u64) -> Result<Artefact, BuildError> {
    let Made { code: made, functions, warnings, lints, attempts } = made;
    let attempts = if made.is_final() { 0 } else { attempts + 1 };
    let (sha256, portable) = (made.hashes(), made.module().map(|module| sha256_of(&module.portable)));
    let code = sha256.code(folder, key);
    let file = portable.clone().map(|sha256| ModuleFile { path: portable_path(folder, key), sha256 });
    let description = Description { sha256, portable, functions, warnings, lints, attempts };
    let text = serde_json::to_vec_pretty(&description)
        .map_err(|error| BuildError::Io { what: format!("describe an artefact: {error}") })?;
    let (object, module) = match made {
        MadeCode::Source { object, module } => (Some(object), module.ok()),
        MadeCode::Finished(module) => (None, Some(module)),
    };
    if let Some(object) = object {
        publish(&object_path(folder, key), &object)?;
    }
    if let Some(ModuleCode { portable, machine }) = module {
        publish(&portable_path(folder, key), &portable)?;
        publish(&module_path(folder, key), &machine)?;
    }
    publish(&folder.join(format!("{key}.json")), &text)?;
    let Description { functions, warnings, .. } = description;
    Ok(Artefact {
        code,
        portable: file,
        content_hash: key.into(),
        functions,
        warnings,
        compile_ms,
        cached: false,
    })
}

impl Artefact {
    /// Returns the bytes of its code on disk, of all kinds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let files = [self.code.module().ok(), self.portable.as_ref()];
        let paths = [self.code.object()].into_iter().chain(files.map(|file| file.map(|file| &*file.path)));
        paths.flatten().map(|path| fs::metadata(path).map_or(0, |file| file.len())).sum()
    }
}

impl Code {
    /// Returns the path of the shared object, if there is one.
    #[must_use]
    pub fn object(&self) -> Option<&Path> {
        match self {
            Code::Source { object, .. } => Some(object),
            Code::Finished(_) => None,
        }
    }

    /// Returns the module's machine code.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn module(&self) -> Result<&ModuleFile, &str> {
        match self {
            Code::Source { module, .. } => module.as_ref().map_err(String::as_str),
            Code::Finished(module) => Ok(module),
        }
    }
}

impl MadeCode {
    fn hashes(&self) -> Hashes {
        match self {
            MadeCode::Source { object, module } => Hashes::Source {
                object: sha256_of(object),
                module: module
                    .as_ref()
                    .map(|module| sha256_of(&module.machine))
                    .map_err(|missing| missing.why.clone()),
            },
            MadeCode::Finished(module) => Hashes::Finished(sha256_of(&module.machine)),
        }
    }

    fn module(&self) -> Option<&ModuleCode> {
        match self {
            MadeCode::Source { module, .. } => module.as_ref().ok(),
            MadeCode::Finished(module) => Some(module),
        }
    }

    /// Returns whether another build would make the same.
    fn is_final(&self) -> bool {
        !matches!(self, MadeCode::Source { module: Err(MissingModule { is_final: false, .. }), .. })
    }
}

impl Hashes {
    /// Returns that of the shared object, if there is one.
    fn object(&self) -> Option<&String> {
        match self {
            Hashes::Source { object, .. } => Some(object),
            Hashes::Finished(_) => None,
        }
    }

    /// Returns the files that have them.
    fn code(&self, folder: &Path, key: &str) -> Code {
        let file = |sha256: &String| ModuleFile { path: module_path(folder, key), sha256: sha256.clone() };
        match self {
            Hashes::Source { module, .. } => Code::Source {
                object: object_path(folder, key),
                module: module.as_ref().map(file).map_err(Clone::clone),
            },
            Hashes::Finished(sha256) => Code::Finished(file(sha256)),
        }
    }
}

fn object_path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.so"))
}

fn portable_path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.wasm"))
}

fn module_path(folder: &Path, key: &str) -> PathBuf {
    folder.join(format!("{key}.cwasm"))
}

/// Returns the SHA-256 of bytes, in hex.
#[must_use]
pub fn sha256_of(bytes: &[u8]) -> String {
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

    use super::Code;
    use super::Lints;
    use super::Made;
    use super::MadeCode;
    use super::MissingModule;
    use super::ModuleCode;
    use super::find;
    use super::store;

    fn module() -> ModuleCode {
        ModuleCode { portable: b"wasm".to_vec(), machine: b"code".to_vec() }
    }

    #[test]
    fn a_damaged_artefact_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find(folder.path(), "key"), None);
        let made = |module| Made {
            code: MadeCode::Source { object: b"object".to_vec(), module },
            functions: vec![],
            warnings: "a word".into(),
            lints: Lints::Warn,
            attempts: 4,
        };
        let artefact = store(folder.path(), "key", made(Ok(module())), 5).unwrap();
        assert_eq!(artefact.bytes(), 14);
        let (found, lints, attempts) = find(folder.path(), "key").unwrap();
        assert!(found.cached && found.code == artefact.code && lints == Lints::Warn && attempts == 0);
        assert_eq!((found.warnings, artefact.warnings.as_str()), ("a word".into(), "a word"));
        let (object, code) = (artefact.code.object().unwrap(), &artefact.code.module().unwrap().path);
        let portable = &artefact.portable.as_ref().unwrap().path;
        assert_eq!(found.portable, artefact.portable);
        for (path, right, wrong) in
            [(object, "object", "objecT"), (code, "code", "c0de"), (portable, "wasm", "wa5m")]
        {
            fs::write(path, wrong).unwrap();
            assert_eq!(find(folder.path(), "key"), None);
            fs::write(path, right).unwrap();
            assert!(find(folder.path(), "key").is_some());
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "no drafts are left");
        fs::remove_file(code).unwrap();
        assert_eq!(find(folder.path(), "key"), None);
        let missing = |why: &str, is_final| made(Err(MissingModule { why: why.into(), is_final }));
        store(folder.path(), "key", missing("too slow", false), 5).unwrap();
        let (found, _, attempts) = find(folder.path(), "key").unwrap();
        assert_eq!((found.code.module(), attempts), (Err("too slow"), 5));
        let artefact = store(folder.path(), "key", missing("no tools", true), 5).unwrap();
        assert_eq!((artefact.bytes(), artefact.code.module()), (6, Err("no tools")));
        let (found, _, attempts) = find(folder.path(), "key").unwrap();
        assert_eq!((found.code.module(), attempts), (Err("no tools"), 0));
    }

    #[test]
    fn a_finished_module_has_no_shared_object() {
        let folder = tempfile::tempdir().unwrap();
        let code = MadeCode::Finished(module());
        let made =
            Made { code, functions: vec![], warnings: String::new(), lints: Lints::Refuse, attempts: 0 };
        let artefact = store(folder.path(), "key", made, 5).unwrap();
        assert_eq!((artefact.bytes(), artefact.code.object()), (8, None));
        let found = find(folder.path(), "key").unwrap().0;
        assert_eq!(found.code, artefact.code);
        assert!(matches!(&found.code, Code::Finished(module) if module.read().unwrap() == b"code"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        fs::write(&artefact.code.module().unwrap().path, "c0de").unwrap();
        assert_eq!(find(folder.path(), "key"), None);
    }
}
