//! Finds the compiler, and the files of its toolchain that are visible in the sandbox.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::BuildError;
use crate::sandbox::find_program;

/// The only supported platform.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The minimum release of the compiler; an older one lacks library functions.
const RELEASE_MIN: (u32, u32) = (1, 95);
/// The crates of the private sysroot.
const SYSROOT_CRATES: [&str; 3] = ["libcore-", "liballoc-", "libcompiler_builtins-"];

/// Returns the folder of the toolchain, as reported by its compiler.
pub(super) fn find() -> Result<PathBuf, BuildError> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo/bin/rustc"));
    let named = std::env::var_os("SPLINTER_RUSTC").map(PathBuf::from);
    let rustc = named.or_else(|| find_program("rustc")).or_else(|| home.filter(|path| path.is_file()));
    let missing = |why: String| BuildError::ToolchainMissing { why };
    let rustc = rustc.ok_or_else(|| missing("rustc is not on the PATH".into()))?;
    let output = Command::new(&rustc)
        .args(["--print", "sysroot"])
        .output()
        .map_err(|error| missing(format!("{}: {error}", rustc.display())))?;
    if !output.status.success() {
        return Err(missing(String::from_utf8_lossy(&output.stderr).trim().into()));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Returns the compiler's version text; refuses one that is too old or for another platform.
pub(super) fn version(root: &Path) -> Result<String, BuildError> {
    let missing = |why: String| BuildError::ToolchainMissing { why };
    let output = Command::new(root.join("bin/rustc"))
        .arg("-vV")
        .output()
        .map_err(|error| missing(format!("{}: {error}", root.display())))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let mut release = field("release: ").split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let release = (release.next().unwrap_or(0), release.next().unwrap_or(0));
    if field("host: ") != TARGET || release < RELEASE_MIN {
        return Err(missing(format!(
            "{} is {} for {}; wanted is 1.95 or later for {TARGET}",
            root.display(),
            field("release: "),
            field("host: ")
        )));
    }
    Ok(text)
}

/// Returns the toolchain's visible files: compiler, linker, their libraries, the private sysroot.
pub(super) fn tools(root: &Path) -> Result<Vec<(PathBuf, String)>, BuildError> {
    tools_for(root, TARGET, "/tc/bin/ld.lld")
}

/// Returns the same for another target: one linker is all linkers, by the name that it is started under.
pub(super) fn tools_for(
    root: &Path,
    target: &str,
    linker: &str,
) -> Result<Vec<(PathBuf, String)>, BuildError> {
    let libraries = root.join("lib/rustlib");
    let mut tools = vec![
        (root.join("bin/rustc"), "/tc/bin/rustc".to_string()),
        (libraries.join(TARGET).join("bin/rust-lld"), linker.to_string()),
    ];
    let list = |folder: &Path| -> Result<Vec<(PathBuf, String)>, BuildError> {
        let entries = fs::read_dir(folder).map_err(|error| BuildError::ToolchainMissing {
            why: format!("{}: {error}", folder.display()),
        })?;
        let named = |entry: fs::DirEntry| (entry.path(), entry.file_name().to_string_lossy().into_owned());
        Ok(entries.flatten().map(named).collect())
    };
    for (path, name) in list(&root.join("lib"))? {
        if name.contains(".so") {
            tools.push((path, format!("/tc/lib/{name}")));
        }
    }
    for (path, name) in list(&libraries.join(target).join("lib"))? {
        let known = SYSROOT_CRATES.iter().any(|prefix| name.starts_with(prefix));
        if known && (name.ends_with(".rlib") || name.ends_with(".rmeta")) {
            tools.push((path, format!("/sr/lib/rustlib/{target}/lib/{name}")));
        }
    }
    match tools.iter().find(|tool| !tool.0.is_file()) {
        Some(lost) => Err(BuildError::ToolchainMissing { why: format!("{} is not there", lost.0.display()) }),
        None => Ok(tools),
    }
}
