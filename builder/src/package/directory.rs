//! Collects a package from a folder: its manifest, its sources, and those of its path dependencies; or its finished
//! module and the list of its functions.
//!
//! Of a source only `Cargo.toml` and `src/**.rs` are read. Symbolic links are followed only in the path of a dependency,
//! which the author's own manifest names.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use super::FUNCTIONS;
use super::MODULE;
use super::Package;
use crate::Refusal;
use crate::limits;
use crate::manifest::Manifest;
use crate::refusal::listing;

/// The reason why a folder is not a package.
#[derive(Debug)]
pub enum DirectoryError {
    /// A file or folder cannot be read.
    Io {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// It can be read, but is not a valid package.
    Refused(Vec<Refusal>),
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DirectoryError::Io { path, error } => write!(out, "cannot read {}: {error}", path.display()),
            DirectoryError::Refused(refusals) => out.write_str(&listing(refusals)),
        }
    }
}

impl std::error::Error for DirectoryError {}

impl Package {
    /// Packs a folder, or a finished module whose name ends with `.wasm`, with the `functions.toml` beside it. Without a
    /// `name` the package has that of the file, or of the folder if the file is called `module.wasm`.
    ///
    /// # Errors
    /// As for [`Package::from_directory`].
    pub fn from_path(path: &Path, name: Option<&str>) -> Result<Package, DirectoryError> {
        if path.extension().is_none_or(|extension| extension != "wasm") {
            return from_folder(path, name);
        }
        let path =
            fs::canonicalize(path).map_err(|error| DirectoryError::Io { path: path.to_path_buf(), error })?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        let is_default = path.file_name().is_some_and(|name| name == MODULE);
        let own = if is_default { folder.file_name() } else { path.file_stem() };
        let own = own.unwrap_or_default().to_string_lossy();
        pack_finished(name.unwrap_or(&own), &path, folder)
    }

    /// Packs a folder and the packages that it depends on by path, or the finished module that it holds. The name is the
    /// folder's.
    ///
    /// # Errors
    /// Unreadable files, or the refusals of an invalid package.
    pub fn from_directory(directory: &Path) -> Result<Package, DirectoryError> {
        from_folder(directory, None)
    }
}

/// Packs a folder under this name, or its own.
fn from_folder(directory: &Path, name: Option<&str>) -> Result<Package, DirectoryError> {
    let directory = fs::canonicalize(directory)
        .map_err(|error| DirectoryError::Io { path: directory.to_path_buf(), error })?;
    let own = directory.file_name().and_then(|name| name.to_str());
    let name = name.or(own).unwrap_or_default().to_string();
    let module = directory.join(MODULE);
    if module.is_file() && !directory.join("Cargo.toml").exists() {
        return pack_finished(&name, &module, &directory);
    }
    let mut files = Vec::new();
    let mut packed = BTreeMap::new();
    let mut waiting = vec![(String::new(), directory)];
    while let Some((prefix, directory)) = waiting.pop() {
        for (dependency, path) in pack(&prefix, &directory, &mut files)? {
            let target = directory.join(&path);
            let target =
                fs::canonicalize(&target).map_err(|error| DirectoryError::Io { path: target, error })?;
            match packed.get(&dependency) {
                Some(known) if *known == target => {}
                Some(_) => return Err(twice(&prefix, &dependency)),
                None if packed.len() == limits::DEPENDENCIES_MAX => return Err(too_many(&prefix)),
                None => {
                    packed.insert(dependency.clone(), target.clone());
                    waiting.push((format!("deps/{dependency}/"), target));
                }
            }
        }
    }
    Package::new(&name, files).map_err(DirectoryError::Refused)
}

/// Packs a finished module with the list of its functions in `folder`.
fn pack_finished(name: &str, module: &Path, folder: &Path) -> Result<Package, DirectoryError> {
    let files = vec![
        (MODULE.into(), read_at_most(module, limits::MODULE_BYTES_MAX)?),
        (FUNCTIONS.into(), read_at_most(&folder.join(FUNCTIONS), limits::FUNCTION_LIST_BYTES_MAX)?),
    ];
    Package::new(name, files).map_err(DirectoryError::Refused)
}

/// Adds the files of one package under `prefix`; returns its path dependencies, by name and path.
fn pack(
    prefix: &str,
    directory: &Path,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<Vec<(String, String)>, DirectoryError> {
    let manifest_path = directory.join("Cargo.toml");
    let text = read(&manifest_path)?;
    let name = format!("{prefix}Cargo.toml");
    let manifest =
        Manifest::parse(&name, &String::from_utf8_lossy(&text)).map_err(DirectoryError::Refused)?;
    files.push((name, text));
    pack_sources(&format!("{prefix}src/"), &directory.join("src"), files)?;
    Ok(manifest.dependencies.into_iter().map(|dependency| (dependency.name, dependency.path)).collect())
}

/// Adds the `.rs` files of a folder and the folders below.
fn pack_sources(
    prefix: &str,
    directory: &Path,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), DirectoryError> {
    let failed = |error| DirectoryError::Io { path: directory.to_path_buf(), error };
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            pack_sources(&format!("{prefix}{name}/"), &entry.path(), files)?;
        } else if kind.is_file() && name.ends_with(".rs") {
            if files.len() > limits::FILES_MAX {
                return Ok(());
            }
            files.push((format!("{prefix}{name}"), read(&entry.path())?));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, DirectoryError> {
    read_at_most(path, limits::FILE_BYTES_MAX)
}

/// Reads a file, but not much beyond the limit, above which the package is refused anyway.
fn read_at_most(path: &Path, most: usize) -> Result<Vec<u8>, DirectoryError> {
    let failed = |error| DirectoryError::Io { path: path.to_path_buf(), error };
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    let mut limited = io::Read::take(file, most as u64 + 1);
    io::Read::read_to_end(&mut limited, &mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn twice(prefix: &str, dependency: &str) -> DirectoryError {
    let what = format!("two different packages are called {dependency}");
    DirectoryError::Refused(vec![Refusal::of(&format!("{prefix}Cargo.toml"), what, "rename one of them")])
}

fn too_many(prefix: &str) -> DirectoryError {
    let what = format!("the extension depends on more than {} packages", limits::DEPENDENCIES_MAX);
    DirectoryError::Refused(vec![Refusal::of(&format!("{prefix}Cargo.toml"), what, "merge some of them")])
}
