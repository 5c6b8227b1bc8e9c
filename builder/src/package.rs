//! An extension as its author gives it away: a name and a few files, either its source or a finished module.
//!
//! ```text
//! Cargo.toml                  src/lib.rs                  src/**.rs           the extension
//! deps/NAME/Cargo.toml        deps/NAME/src/lib.rs        deps/NAME/src/**.rs  its path dependencies
//!
//! module.wasm                 functions.toml              a WebAssembly module, and the list of its functions
//! ```
//!
//! A package's outer shape is valid by construction: names, paths, sizes, UTF-8 of texts. [`crate::check()`] verifies
//! the contents of the files. [`Package::from_directory`] and [`Package::from_path`] collect a package from disk,
//! [`Package::new`] from bytes received over the network.

mod directory;
mod path;

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::Serializer;
use serde::de::Error;
use sha2::Digest;
use sha2::Sha256;

use crate::Refusal;
use crate::limits;
use crate::name;
use crate::name::name_is_valid;

pub use directory::DirectoryError;

/// The file of a finished module.
pub(crate) const MODULE: &str = "module.wasm";
/// The list of its functions.
pub(crate) const FUNCTIONS: &str = "functions.toml";

/// The source of an extension, or its finished module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    name: String,
    contents: Contents,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Contents {
    /// Paths and texts.
    Source(BTreeMap<String, String>),
    Finished(FinishedModule),
}

/// A WebAssembly module whose source the server does not get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FinishedModule {
    /// The contents of `module.wasm`.
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    pub(crate) module: Vec<u8>,
    /// The text of `functions.toml`.
    pub(crate) functions: String,
}

impl Package {
    /// Creates a package of received files.
    ///
    /// # Errors
    /// Every fault of its outer shape.
    pub fn new(name: &str, files: Vec<(String, Vec<u8>)>) -> Result<Package, Vec<Refusal>> {
        if !name_is_valid(name) {
            let shown: String = name.chars().take(40).collect();
            let what = format!("{shown:?} is no name for an extension");
            return Err(vec![Refusal::of("", what, name::SHAPE)]);
        }
        let sizes = files.iter().map(|(path, bytes)| path.len() + bytes.len());
        let bytes = sizes.fold(0usize, usize::saturating_add);
        if files.len() > limits::FILES_MAX || bytes > limits::PACKAGE_BYTES_MAX {
            let what = format!("the package has {} files and {bytes} bytes", files.len());
            let instead = format!(
                "stay below {} files and {} bytes in all",
                limits::FILES_MAX,
                limits::PACKAGE_BYTES_MAX
            );
            return Err(vec![Refusal::of("", what, &instead)]);
        }
        let is_finished = files.iter().any(|(path, _)| path == MODULE);
        let contents = if is_finished {
            Contents::Finished(finished(files).map_err(|refusal| vec![refusal])?)
        } else {
            Contents::Source(source(files)?)
        };
        Ok(Package { name: name.into(), contents })
    }

    /// Returns the same source under another name.
    ///
    /// # Errors
    /// When the name is not of the shape that [`name_is_valid`] requires.
    pub fn renamed(self, name: &str) -> Result<Package, Vec<Refusal>> {
        if name_is_valid(name) {
            return Ok(Package { name: name.into(), ..self });
        }
        Err(vec![Refusal::of("", "this is no name for an extension", name::SHAPE)])
    }

    /// Returns the name under which the extension is installed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns paths and bytes, in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let all: Vec<(&str, &[u8])> = match &self.contents {
            Contents::Source(files) => {
                files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())).collect()
            }
            Contents::Finished(FinishedModule { module, functions }) => {
                vec![(FUNCTIONS, functions.as_bytes()), (MODULE, module)]
            }
        };
        all.into_iter()
    }

    /// Returns the text of one file of the source.
    pub fn file(&self, path: &str) -> Option<&str> {
        match &self.contents {
            Contents::Source(files) => files.get(path).map(String::as_str),
            Contents::Finished(_) => None,
        }
    }

    /// Returns whether it is a finished module, without source.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished().is_some()
    }

    /// Returns the finished module, if it is one.
    pub(crate) fn finished(&self) -> Option<&FinishedModule> {
        match &self.contents {
            Contents::Source(_) => None,
            Contents::Finished(finished) => Some(finished),
        }
    }

    /// Returns SHA-256 over paths and contents. The name is not included: identical source is built once.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for (path, bytes) in self.files() {
            for part in [path.as_bytes(), bytes] {
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        hasher.finalize().into()
    }
}

/// Returns the files of a source, if paths, sizes and texts are valid.
fn source(files: Vec<(String, Vec<u8>)>) -> Result<BTreeMap<String, String>, Vec<Refusal>> {
    let (mut source, mut refusals) = (BTreeMap::new(), Vec::new());
    for (path, bytes) in files {
        match text(&path, bytes) {
            Ok(_) if source.contains_key(&path) => refusals.push(twice(&path)),
            Ok(text) => {
                source.insert(path, text);
            }
            Err(refusal) => refusals.push(refusal),
        }
        if refusals.len() == limits::REFUSALS_MAX {
            break;
        }
    }
    for wanted in ["Cargo.toml", "src/lib.rs"] {
        if refusals.is_empty() && !source.contains_key(wanted) {
            refusals.push(Refusal::of(wanted, "the package lacks this file", "add it"));
        }
    }
    if refusals.is_empty() { Ok(source) } else { Err(refusals) }
}

/// Returns the text of a file of a source.
fn text(path: &str, bytes: Vec<u8>) -> Result<String, Refusal> {
    path::check(path)?;
    if bytes.len() > limits::FILE_BYTES_MAX {
        let what = format!("the file has {} bytes", bytes.len());
        let instead = format!("split it: {} bytes are the limit", limits::FILE_BYTES_MAX);
        return Err(Refusal::of(path, what, &instead));
    }
    utf8(path, bytes)
}

fn utf8(path: &str, bytes: Vec<u8>) -> Result<String, Refusal> {
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = good.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        Refusal::at(path, line, column, "the file is not UTF-8 text", "save it as UTF-8")
    })
}

/// Returns the finished module of these files, which are exactly two.
fn finished(files: Vec<(String, Vec<u8>)>) -> Result<FinishedModule, Refusal> {
    let (mut module, mut functions) = (None, None);
    for (path, bytes) in files {
        let (place, most) = match &*path {
            MODULE => (&mut module, limits::MODULE_BYTES_MAX),
            FUNCTIONS => (&mut functions, limits::FUNCTION_LIST_BYTES_MAX),
            _ => {
                let shown: String = path.chars().take(80).collect();
                let what = format!("{shown:?} does not belong to a finished module");
                return Err(Refusal::of("", what, "send module.wasm and functions.toml alone"));
            }
        };
        if bytes.len() > most {
            let what = format!("the file has {} bytes", bytes.len());
            return Err(Refusal::of(&path, what, &format!("stay below {most} bytes")));
        }
        if place.replace(bytes).is_some() {
            return Err(twice(&path));
        }
    }
    let lacking = |path: &str| Refusal::of(path, "the package lacks this file", "add it");
    let functions = utf8(FUNCTIONS, functions.ok_or_else(|| lacking(FUNCTIONS))?)?;
    Ok(FinishedModule { module: module.ok_or_else(|| lacking(MODULE))?, functions })
}

fn twice(path: &str) -> Refusal {
    Refusal::of(path, "the file is there twice", "send it once")
}

/// Serializes bytes as hex, for the child in the sandbox.
fn to_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&HEXLOWER.encode(bytes))
}

fn from_hex<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    HEXLOWER.decode(text.as_bytes()).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests;
