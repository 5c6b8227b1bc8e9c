//! Finds what modules are made with besides the compiler: its crates and its linker for WebAssembly, and
//! `splinter-wasmc`.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use super::compiler;
use crate::sandbox::find_program;

/// The target of modules.
const TARGET: &str = "wasm32-unknown-unknown";
/// The program that compiles a module to machine code.
const COMPILER: &str = "splinter-wasmc";
/// The variable that names another.
const VARIABLE: &str = "SPLINTER_WASMC";

/// The tools for modules.
#[derive(Clone, Debug)]
pub(crate) struct ModuleTools {
    /// The visible files of a run of rustc.
    pub(super) files: Vec<(PathBuf, String)>,
    /// The module compiler.
    pub(crate) compiler: PathBuf,
    /// Its version, with a hash of its settings and of this machine's processor.
    pub(super) version: String,
}

impl ModuleTools {
    /// Finds the tools: rustc's in the folder of its toolchain, and [the module compiler](find_compiler). The error is the
    /// reason why there are none.
    pub(super) fn find(root: &Path, program: &Path) -> Result<ModuleTools, String> {
        let unavailable = |why: String| format!("wasm unavailable: {why}");
        let files = compiler::tools_for(root, TARGET, "/tc/bin/wasm-ld").map_err(|_| {
            unavailable(format!("no target {TARGET} (rustup target add {TARGET}) in {}", root.display()))
        })?;
        let (compiler, version) = find_compiler(program).map_err(unavailable)?;
        Ok(ModuleTools { files, compiler, version })
    }
}

/// Finds the module compiler: by `SPLINTER_WASMC`, otherwise beside `program`, otherwise on the PATH. Returns its path and its
/// version; the error is the reason why there is none.
pub(crate) fn find_compiler(program: &Path) -> Result<(PathBuf, String), String> {
    let beside = || Some(program.with_file_name(COMPILER)).filter(|path| path.exists());
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let compiler = named.or_else(beside).or_else(|| find_program(COMPILER));
    let found = compiler.ok_or_else(|| "not found".to_owned());
    let found = found.and_then(|compiler| version(&compiler).map(|version| (compiler, version)));
    found.map_err(|why| {
        format!("no {COMPILER} ({why}): install it with scripts/setup, or set {VARIABLE} to its path")
    })
}

fn version(compiler: &Path) -> Result<String, String> {
    let output = Command::new(compiler)
        .arg("--version")
        .env_clear()
        .output()
        .map_err(|error| format!("{}: {error}", compiler.display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{} ended with {}", compiler.display(), output.status)),
    }
}
