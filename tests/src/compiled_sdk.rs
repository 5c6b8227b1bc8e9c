//! The compiled SDK, which a new server is given: compiling it takes two seconds of a processor at each first start in a directory,
//! and most tests install nothing.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use builder::Toolchain;

/// Where a server keeps it in its data directory.
const FOLDER: [&str; 2] = ["extensions", "sdk"];

/// Copies it to a data directory that has none; the program `server` checks sources. Where it cannot be compiled, servers say why.
///
/// # Errors
/// When it cannot be copied.
pub fn give(data: &Path, server: &Path) -> io::Result<()> {
    static COMPILED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let compile = || {
        let folder = server.with_file_name("compiled-sdk");
        Toolchain::prepare_with_checker(&folder, server).ok()?;
        Some(folder.join("sdk"))
    };
    let to = FOLDER.iter().fold(data.to_owned(), |path, part| path.join(part));
    match COMPILED.get_or_init(compile) {
        Some(from) if !to.exists() => copy(from, &to),
        _ => Ok(()),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
