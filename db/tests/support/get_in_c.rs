//! The extension `get` in C, built by its own script: `ext/get_c`.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the files of the finished module, or `None` where there is no clang, with a message.
pub fn get_in_c() -> Option<Vec<(String, Vec<u8>)>> {
    if Command::new("clang").arg("--version").output().is_err() {
        eprintln!(
            "SKIPPED: there is no clang (scripts/setup installs it), so nothing of ext/get_c is tested"
        );
        return None;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ext/get_c");
    let out = tempfile::tempdir().expect("a folder");
    let built = Command::new("sh").arg(folder.join("build.sh")).arg(out.path()).output().expect("a shell");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let file = |name: &str| (name.to_owned(), fs::read(out.path().join(name)).expect("the script wrote it"));
    Some(vec![file("module.wasm"), file("functions.toml")])
}
