//! The extension `get` in other languages, each built by its own script: `ext/get_c` and `ext/get_as`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The files of a finished module.
pub type Files = Vec<(String, Vec<u8>)>;

/// Returns the module of C, or `None` where there is no clang, with a message.
pub fn in_c() -> Option<Files> {
    if Command::new("clang").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: there is no clang (scripts/setup installs it), so nothing of ext/get_c is tested"
        );
        return None;
    }
    Some(built(&folder("get_c")))
}

/// Returns the module of AssemblyScript, or `None` where its compiler is not named, with a message.
pub fn in_assemblyscript() -> Option<Files> {
    has_assemblyscript().then(|| built(&folder("get_as")))
}

/// Returns the module of another source in place of `get.ts`, as [`in_assemblyscript`] does.
pub fn of_assemblyscript(source: &str, functions: &str) -> Option<Files> {
    if !has_assemblyscript() {
        return None;
    }
    let copy = tempfile::tempdir().expect("a folder");
    for file in ["build.sh", "runtime.ts", "splinter.ts"] {
        fs::copy(folder("get_as").join(file), copy.path().join(file)).expect("a copy");
    }
    fs::write(copy.path().join("get.ts"), source).expect("a source");
    fs::write(copy.path().join("functions.toml"), functions).expect("a list");
    Some(built(copy.path()))
}

fn has_assemblyscript() -> bool {
    let named = std::env::var_os("SPLINTER_ASC").is_some();
    if !named {
        eprintln!(
            "SKIPPED: SPLINTER_ASC names no compiler (scripts/test --full does), so nothing of ext/get_as is tested"
        );
    }
    named
}

fn folder(extension: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext").join(extension)
}

fn built(folder: &Path) -> Files {
    let out = tempfile::tempdir().expect("a folder");
    let built = Command::new("sh").arg(folder.join("build.sh")).arg(out.path()).output().expect("a shell");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let file = |name: &str| (name.to_owned(), fs::read(out.path().join(name)).expect("the script wrote it"));
    vec![file("module.wasm"), file("functions.toml")]
}
