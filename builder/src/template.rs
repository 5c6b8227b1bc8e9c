//! The output of `splinter ext new`: a small extension with a unit test, and the SDK beside it.
//!
//! The SDK's source is vendored into `sandstorm/`, so that `cargo test` works anywhere and offline. The server does not
//! read that copy: it compiles its own.

use std::fs;
use std::io;
use std::path::Path;

use crate::name::name_is_valid;
use crate::sdk;

/// The source of a new extension.
const SOURCE: &str = include_str!("../template.rs");

/// Writes a new extension into `directory`, which must not exist yet or be empty.
///
/// # Errors
/// When the name is not valid for an extension ([`name_is_valid`]), or the directory is not empty or cannot be written.
pub fn write(directory: &Path, name: &str) -> io::Result<()> {
    if !name_is_valid(name) {
        let what = "an extension is named with a to z, 0 to 9, - and _, a letter first, at most 64 of them";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    fs::create_dir_all(directory)?;
    if fs::read_dir(directory)?.next().is_some() {
        let what = format!("{} is not empty", directory.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
    }
    let manifest = format!(
        "[package]\n\
         name = \"{name}\"\n\
         version = \"0.1.0\"\n\
         edition = \"2024\"\n\
         publish = false\n\
         \n\
         [dependencies]\n\
         sandstorm = {{ path = \"sandstorm\" }}\n\
         \n\
         # For unit tests: an in-memory Db.\n\
         [dev-dependencies]\n\
         sandstorm = {{ path = \"sandstorm\", features = [\"testing\"] }}\n\
         \n\
         [workspace]\n"
    );
    let mut files = vec![("Cargo.toml".to_string(), manifest.as_str()), ("src/lib.rs".to_string(), SOURCE)];
    files.push((".gitignore".to_string(), "/target\n"));
    files.push(("sandstorm/Cargo.toml".to_string(), sdk::MANIFEST));
    for (path, text) in sdk::FILES {
        files.push((format!("sandstorm/src/{path}"), text));
    }
    for (path, text) in files {
        let path = directory.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, text)?;
    }
    Ok(())
}
