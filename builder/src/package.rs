//! The source of an extension: a name and a few text files.
//!
//! ```text
//! Cargo.toml                  src/lib.rs                  src/**.rs           the extension
//! deps/NAME/Cargo.toml        deps/NAME/src/lib.rs        deps/NAME/src/**.rs  its path dependencies
//! ```
//!
//! A package's outer shape is valid by construction: names, paths, sizes, UTF-8. [`crate::check()`] verifies the
//! contents of the files. [`Package::from_directory`] collects a package from disk, [`Package::new`] from bytes
//! received over the network.

mod directory;
mod path;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::Serialize;
use sha2::Digest;
use sha2::Sha256;

use crate::Refusal;
use crate::limits;
use crate::name;
use crate::name::name_is_valid;

pub use directory::DirectoryError;

/// The source of an extension.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    name: String,
    files: BTreeMap<String, String>,
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
        let mut refusals = Vec::new();
        let mut package = Package { name: name.into(), files: BTreeMap::new() };
        for (path, bytes) in files {
            if let Err(refusal) = package.add(path, bytes) {
                refusals.push(refusal);
                if refusals.len() == limits::REFUSALS_MAX {
                    break;
                }
            }
        }
        for wanted in ["Cargo.toml", "src/lib.rs"] {
            if refusals.is_empty() && !package.files.contains_key(wanted) {
                refusals.push(Refusal::of(wanted, "the package lacks this file", "add it"));
            }
        }
        if refusals.is_empty() { Ok(package) } else { Err(refusals) }
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

    /// Returns paths and texts, in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// Returns the text of one file.
    pub fn file(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns SHA-256 over paths and texts. The name is not included: identical source is built once.
    pub fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for (path, text) in &self.files {
            for part in [path, text] {
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        hasher.finalize().into()
    }

    /// Adds a file if its path, size and text are valid.
    fn add(&mut self, path: String, bytes: Vec<u8>) -> Result<(), Refusal> {
        path::check(&path)?;
        if bytes.len() > limits::FILE_BYTES_MAX {
            let what = format!("the file has {} bytes", bytes.len());
            let instead = format!("split it: {} bytes are the limit", limits::FILE_BYTES_MAX);
            return Err(Refusal::of(&path, what, &instead));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = good.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            Refusal::at(&path, line, column, "the file is not UTF-8 text", "save it as UTF-8")
        })?;
        if self.files.contains_key(&path) {
            return Err(Refusal::of(&path, "the file is there twice", "send it once"));
        }
        self.files.insert(path, text);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
