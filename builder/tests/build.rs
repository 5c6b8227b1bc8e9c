//! Whole builds in the sandbox: what the compiler refuses, what comes out, and what it does when it runs.

mod build {
    pub mod artefacts;
    pub mod border;
    pub mod finished;
    pub mod host;
    pub mod modules;
    pub mod refusals;
    pub mod run;
    pub mod warnings;
}

use std::path::Path;
use std::sync::OnceLock;

use builder::Package;
use builder::Toolchain;

/// The toolchain of all tests, with a cache of this test run.
fn toolchain() -> &'static Toolchain {
    static TOOLCHAIN: OnceLock<(Toolchain, tempfile::TempDir)> = OnceLock::new();
    let (toolchain, _) = TOOLCHAIN.get_or_init(|| {
        let cache = tempfile::tempdir().unwrap();
        let checker = Path::new(env!("CARGO_BIN_EXE_splinter-build"));
        (Toolchain::prepare_with_checker(cache.path(), checker).expect("bwrap and rustc"), cache)
    });
    toolchain
}

/// An extension of one file.
fn extension(text: &str) -> Package {
    let manifest = "[package]\nname = \"hole\"\n[dependencies]\nsandstorm = { path = \"sandstorm\" }\n";
    let files = vec![("Cargo.toml".into(), manifest.into()), ("src/lib.rs".into(), text.into())];
    Package::new("hole", files).unwrap()
}
