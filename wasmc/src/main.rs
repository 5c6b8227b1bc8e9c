//! `splinter-wasmc`: compiles a WebAssembly module to machine code that a server can load.
//!
//! ```text
//! splinter-wasmc < module.wasm > module.cwasm     or with the module's path as the argument
//! splinter-wasmc --version                        this program, Wasmtime, a hash of all that the output depends on
//! ```
//!
//! The builder runs it in its sandbox, after its own check of the module, with limits of processor time and memory:
//! there are modules on which Cranelift takes minutes. The settings are the server's, included as text. The processor's
//! features are those of this machine, since the artefact is used where it is made.

#[allow(dead_code, reason = "only the stack's size is used here")]
#[path = "../../guest/src/limits.rs"]
mod limits;
#[path = "../../guest/src/wasm/settings.rs"]
mod settings;

use std::hash::Hash;
use std::hash::Hasher;
use std::io::Read;
use std::io::Write;
use std::process::ExitCode;

use sha2::Digest;
use sha2::Sha256;
use wasmtime::Engine;
use wasmtime::OptLevel;

/// The texts that the output depends on, besides the processor: settings, this program, versions.
const TEXTS: [&str; 3] = [settings::TEXT, include_str!("main.rs"), LOCK];
/// The versions of Wasmtime, Cranelift and all others.
const LOCK: &str = include_str!("../Cargo.lock");

/// Feeds a [`Hash`] into SHA-256.
struct Fed(Sha256);

impl Hasher for Fed {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("the digest is taken instead")
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        [] => read(std::io::stdin()).and_then(|module| compile(&module)),
        ["--version"] => version(),
        [path] if !path.starts_with('-') => std::fs::File::open(path)
            .map_err(|error| error.to_string())
            .and_then(read)
            .and_then(|module| compile(&module)),
        _ => Err("one argument at most: a module's path, or --version".into()),
    };
    match done.and_then(|output| std::io::stdout().write_all(&output).map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn read(mut source: impl Read) -> Result<Vec<u8>, String> {
    let mut module = Vec::new();
    source.read_to_end(&mut module).map_err(|error| error.to_string())?;
    Ok(module)
}

/// Returns the compiler with the server's settings and the compiler's own.
fn engine() -> Result<Engine, String> {
    let mut config = settings::config();
    config.cranelift_opt_level(OptLevel::Speed).cranelift_nan_canonicalization(true);
    Engine::new(&config).map_err(|error| format!("{error:#}"))
}

fn compile(module: &[u8]) -> Result<Vec<u8>, String> {
    engine()?.precompile_module(module).map_err(|error| format!("{error:#}"))
}

/// Returns the three lines of `--version`.
fn version() -> Result<Vec<u8>, String> {
    let mut hasher = Fed(Sha256::new());
    TEXTS.hash(&mut hasher);
    engine()?.precompile_compatibility_hash().hash(&mut hasher);
    let hash: String = hasher.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let (name, wasmtime) = (env!("CARGO_PKG_VERSION"), locked("wasmtime").unwrap_or("unknown"));
    Ok(format!("splinter-wasmc {name}\nwasmtime {wasmtime}\nsettings {hash}\n").into_bytes())
}

/// Returns the version of a crate that this program was built with.
fn locked(name: &str) -> Option<&'static str> {
    let (_, after) = LOCK.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    after.split_once('"').map(|(version, _)| version)
}
