//! The compiler, its private sysroot and the compiled SDK.
//!
//! Every compiler run takes place in the sandbox, with a sysroot that consists only of the toolchain's `core`, `alloc`
//! and `compiler_builtins`: it has no `std` and no `proc_macro`.
//!
//! ```text
//! /tc/bin/rustc, /tc/bin/ld.lld, /tc/lib     the compiler and the linker
//! /sr                                        the sysroot
//! /src, /in, /out                            sources; compiled crates; what the run writes
//! ```

mod compiler;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;

use sha2::Digest;
use sha2::Sha256;

use crate::BuildError;
use crate::Package;
use crate::artefact::Lints;
use crate::artefact::hex;
use crate::artefact::publish;
use crate::artefact::unique;
use crate::check::RULES;
use crate::glue;
use crate::limits;
use crate::sandbox::Job;
use crate::sandbox::Outcome;
use crate::sandbox::Sandbox;
use crate::sdk;

/// The flags for everything in an artefact.
///
/// MIR is not optimized: its passes cause most miscompilations of safe code (#158206, and see `tests/soundness.tsv`),
/// and LLVM does the same optimizations. The two `-Z` flags require [`UNSTABLE`]; they permit no feature.
///
/// The other flags keep off LLVM passes that let safe code read or write beyond an array, or fault, by mistake:
/// `tests/good/miscompiled.rs` has a source for each of them. LLVM accepts unknown names of passes silently.
/// IndVarSimplify and LoopDeletion take facts from loops that have ended for true (rustc #153222, LLVM #197240); IPSCCP
/// forgets arguments of recursive calls (LLVM #219503); MemCpyOpt lowers an alignment that is relied on (LLVM #208092);
/// ConstraintElimination takes facts for contradictory (LLVM #218569); CorrelatedValuePropagation keeps the range of a
/// minimum that it has replaced (LLVM #221274); a vectorized loop may lack the check that an index does not wrap (LLVM
/// #191382), so no loop is vectorized that needs one. JumpThreading and LoopIdiomRecognize are kept off because of bugs
/// that are known and that no safe code is known to meet (LLVM #203868, and stale facts about loops as above).
const FLAGS: [&str; 15] = [
    "--sysroot=/sr",
    "--edition=2024",
    "-Copt-level=3",
    "-Ccodegen-units=1",
    "-Cpanic=abort",
    "-Cdebuginfo=0",
    "-Cembed-bitcode=no",
    "--color=never",
    "-Ldependency=/sdk",
    "-Zallow-features=",
    "-Zmir-opt-level=0",
    "-Cllvm-args=-opt-disable=ipsccp,memcpyopt,indvars,loop-deletion,jump-threading,loop-idiom,correlated-propagation",
    "-Cllvm-args=-vectorize-scev-check-threshold=0",
    "-Cllvm-args=-loop-load-elimination-scev-check-threshold=0",
    "-Cllvm-args=-enable-constraint-elimination=false",
];
/// The environment variable by which a stable compiler accepts `-Z` flags.
pub(crate) const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");
/// Additional flags for the SDK, whose warnings a tenant cannot fix.
const SDK_FLAGS: [&str; 3] = ["--crate-type=rlib", "--crate-name=sandstorm", "-Awarnings"];
/// Additional flags for the tenant's crates.
const TENANT_FLAGS: [&str; 6] = [
    "--crate-type=rlib",
    "--emit=link,mir=/out/crate.mir",
    "-Zmir-include-spans=on",
    "-Funsafe_code",
    "-Flong_running_const_eval",
    "-Ldependency=/in",
];
/// The lint that refuses an installation and only warns afterwards: a future or a `Result` that is dropped unused
/// silently loses a write. It is forbidden, not denied, so that no `#![allow(unused)]` disables it.
const INSTALL_FLAG: &str = "-Funused_must_use";
/// Additional flags for linking the artefact.
const GLUE_FLAGS: [&str; 7] = [
    "--crate-type=cdylib",
    "-Awarnings",
    "--crate-name=splinter_artefact",
    "-Cstrip=symbols",
    "-Clinker-flavor=ld",
    "-Clinker=/tc/bin/ld.lld",
    "-Ldependency=/in",
];

/// The compiler's output in a crash: a panic of its own, or a signal.
const CRASHES: [&str; 3] =
    ["internal compiler error", "the compiler unexpectedly panicked", "rustc interrupted by SIG"];

/// A compiler that is ready to build extensions.
#[derive(Clone, Debug)]
pub struct Toolchain {
    pub(crate) sandbox: Sandbox,
    pub(crate) sdk_hash: [u8; 32],
    pub(crate) checker: PathBuf,
    cache: PathBuf,
    tools: Vec<(PathBuf, String)>,
}

/// A folder that is removed on drop.
pub(crate) struct WorkFolder(pub(crate) PathBuf);

impl WorkFolder {
    /// Creates a temporary folder for this user only.
    fn temporary() -> Result<WorkFolder, BuildError> {
        loop {
            let path = std::env::temp_dir().join(format!("splinter-{}-{}", std::process::id(), unique()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(WorkFolder(path)),
                // The existing folder has another owner, for example a process that had this number before.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(BuildError::io("make a temporary folder to build in", &error)),
            }
        }
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // The next `prepare` removes any remains.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Toolchain {
    /// Finds sandbox and compiler, and compiles the SDK into the cache if it is not there.
    ///
    /// The compiler is the one that `SPLINTER_RUSTC` names, otherwise the `rustc` of the PATH or of rustup's default
    /// folder. The check runs in the calling program, started again in the sandbox: its `main` must begin with
    /// [`crate::child_main`].
    ///
    /// # Errors
    /// When there is no working sandbox or compiler, or the cache cannot be written.
    pub fn prepare(cache: &Path) -> Result<Toolchain, BuildError> {
        let checker = std::env::current_exe().map_err(|error| BuildError::io("find this program", &error))?;
        Toolchain::prepare_with_checker(cache, &checker)
    }

    /// Like [`Toolchain::prepare`], with another program whose `main` begins with [`crate::child_main`].
    ///
    /// # Errors
    /// As for [`Toolchain::prepare`].
    pub fn prepare_with_checker(cache: &Path, checker: &Path) -> Result<Toolchain, BuildError> {
        let sandbox = Sandbox::open()?;
        let failed = |error| BuildError::io(format!("prepare {}", cache.display()), &error);
        for folder in ["artefacts", "sdk", "work"] {
            fs::create_dir_all(cache.join(folder)).map_err(failed)?;
        }
        let cache = fs::canonicalize(cache).map_err(failed)?;
        let root = compiler::find()?;
        let tools = compiler::tools(&root)?;
        let version = compiler::version(&root)?;
        let toolchain =
            Toolchain { sandbox, sdk_hash: sdk_hash(&version), checker: checker.into(), cache, tools };
        toolchain.remove_old_work();
        toolchain.compile_sdk()?;
        Ok(toolchain)
    }

    /// Returns the compiler's warnings when a server of this release installs the package. Takes half a second, and
    /// stores nothing.
    ///
    /// # Errors
    /// As for [`Toolchain::prepare`] and [`Toolchain::build`].
    pub fn try_out(package: &Package) -> Result<String, BuildError> {
        let folder = WorkFolder::temporary()?;
        Ok(Toolchain::prepare(&folder.0)?.build(package)?.warnings)
    }

    /// Returns the same toolchain with a separate count of the processor time of builds.
    #[must_use]
    pub fn counting(&self) -> Toolchain {
        Toolchain { sandbox: self.sandbox.counting(), ..self.clone() }
    }

    /// Returns the processor time of checks and compilers, in milliseconds: of this toolchain and its clones, without
    /// those of [`Toolchain::counting`].
    #[must_use]
    pub fn spent_ms(&self) -> u64 {
        self.sandbox.spent_ms()
    }

    /// Returns SHA-256 over compiler, flags, SDK, glue and the rules of the check, which [`sandstorm`'s
    /// `Artefact::sdk_hash`] must equal.
    ///
    /// [`sandstorm`'s `Artefact::sdk_hash`]: ../sandstorm/abi/struct.Artefact.html
    pub fn sdk_hash(&self) -> [u8; 32] {
        self.sdk_hash
    }

    /// Returns the folder of the artefacts.
    pub(crate) fn artefacts(&self) -> PathBuf {
        self.cache.join("artefacts")
    }

    /// Creates a new folder to work in.
    pub(crate) fn work_folder(&self) -> Result<WorkFolder, BuildError> {
        let path = self.cache.join("work").join(format!("{}-{}", std::process::id(), unique()));
        fs::create_dir(&path).map_err(|error| BuildError::io("make a folder to build in", &error))?;
        Ok(WorkFolder(path))
    }

    /// Compiles one of the tenant's crates, and returns the compiler's warnings: `sources` is the package's folder,
    /// `libraries` holds the crates that it uses and receives it.
    pub(crate) fn compile_crate(
        &self,
        (crate_name, lints): (&str, Lints),
        root: &str,
        uses: &[String],
        sources: &Path,
        libraries: &Path,
        output: &Path,
    ) -> Result<String, BuildError> {
        let mut arguments: Vec<OsString> = TENANT_FLAGS.map(OsString::from).to_vec();
        if lints == Lints::Refuse {
            arguments.push(INSTALL_FLAG.into());
        }
        arguments.push(format!("--crate-name={crate_name}").into());
        arguments.push("--extern=sandstorm=/sdk/libsandstorm.rlib".into());
        for used in uses {
            arguments.push(format!("--extern={used}=/in/lib{used}.rlib").into());
        }
        arguments.push(format!("-o/out/lib{crate_name}.rlib").into());
        arguments.push(root.into());
        let shown = vec![(sources.into(), "/src".into()), (libraries.into(), "/in".into())];
        self.run_rustc(&format!("compiling {crate_name}"), arguments, shown, output)
    }

    /// Compiles the glue and links the artefact `/out/artefact.so`.
    pub(crate) fn link(
        &self,
        crate_name: &str,
        sources: &Path,
        libraries: &Path,
        output: &Path,
    ) -> Result<(), BuildError> {
        let mut arguments: Vec<OsString> = GLUE_FLAGS.map(OsString::from).to_vec();
        arguments.push("--extern=sandstorm=/sdk/libsandstorm.rlib".into());
        arguments.push(format!("--extern={crate_name}=/in/lib{crate_name}.rlib").into());
        arguments.extend(["-o/out/artefact.so".into(), "glue.rs".into()]);
        let shown = vec![(sources.into(), "/src".into()), (libraries.into(), "/in".into())];
        self.run_rustc("linking the artefact", arguments, shown, output).map(drop)
    }

    /// Returns the folder of the compiled SDK.
    fn sdk_folder(&self) -> PathBuf {
        self.cache.join("sdk").join(hex(&self.sdk_hash))
    }

    fn compile_sdk(&self) -> Result<(), BuildError> {
        let folder = self.sdk_folder();
        let library = folder.join("libsandstorm.rlib");
        if library.is_file() {
            return Ok(());
        }
        let failed = |error| BuildError::io("compile the SDK", &error);
        let work = self.work_folder()?;
        let (sources, output) = (work.0.join("src"), work.0.join("out"));
        fs::create_dir_all(&output).map_err(failed)?;
        for (path, text) in sdk::FILES {
            write(&sources.join(path), text)?;
        }
        let arguments = SDK_FLAGS.into_iter().chain(["-o/out/libsandstorm.rlib", "lib.rs"]);
        let shown = vec![(sources, "/src".into())];
        self.run_rustc("compiling the SDK", arguments.map(OsString::from).collect(), shown, &output)?;
        fs::create_dir_all(&folder).map_err(failed)?;
        publish(&library, &fs::read(output.join("libsandstorm.rlib")).map_err(failed)?)
    }

    /// Runs the compiler in the sandbox, in `/src`; returns its other output.
    fn run_rustc(
        &self,
        step: &str,
        arguments: Vec<OsString>,
        shown: Vec<(PathBuf, String)>,
        output: &Path,
    ) -> Result<String, BuildError> {
        let mut all = shown;
        all.extend(self.tools.iter().cloned());
        let sdk = self.sdk_folder();
        if sdk.is_dir() {
            all.push((sdk, "/sdk".into()));
        }
        let outcome = self.sandbox.run(Job {
            step: step.into(),
            program: "/tc/bin/rustc".into(),
            arguments: FLAGS.map(OsString::from).into_iter().chain(arguments).collect(),
            shown: all,
            environment: vec![UNSTABLE],
            folder: "/src".into(),
            output: Some(output.into()),
            input: Vec::new(),
            cpu_seconds: limits::CPU_SECONDS_MAX,
        })?;
        if !outcome.status.success() {
            return Err(compile_error(step, &outcome));
        }
        Ok(String::from_utf8_lossy(&outcome.errors).into_owned())
    }

    /// Removes remains of builds that were killed.
    fn remove_old_work(&self) {
        let own = format!("{}-", std::process::id());
        let entries = fs::read_dir(self.cache.join("work")).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with(&own)) {
            let owner = entry.file_name().to_string_lossy().split('-').next().unwrap_or_default().to_string();
            if !Path::new("/proc").join(owner).exists() {
                // A folder that stays costs disk space, nothing else.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Writes a file and creates the folders above it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.map_err(|error| BuildError::io(format!("write {}", path.display()), &error))
}

/// Returns the error of a failed compiler run.
fn compile_error(step: &str, outcome: &Outcome) -> BuildError {
    let text = String::from_utf8_lossy(&outcome.errors);
    if text.contains("No space left on device") {
        return BuildError::DiskFull;
    }
    if let Some(line) = text.lines().find(|line| CRASHES.iter().any(|crash| line.contains(crash))) {
        let line: String = line.chars().take(limits::CRASH_CHARACTERS_MAX).collect();
        return BuildError::CompilerCrashed { what: format!("{step} crashed ({})", line.trim()) };
    }
    let mut text = diagnostics(&text);
    if text.is_empty() {
        text = format!("the compiler ended with {}", outcome.status);
    }
    BuildError::CompileFailed { text }
}

/// Returns the part of the compiler's text that a tenant sees.
pub(crate) fn diagnostics(text: &str) -> String {
    let text = text.trim();
    if text.len() <= limits::DIAGNOSTICS_BYTES_MAX {
        return text.to_string();
    }
    let kept = &text[..text.floor_char_boundary(limits::DIAGNOSTICS_BYTES_MAX)];
    format!("{kept}\n...")
}

/// Returns the hash of this way of checking and building. Packages built in another way are checked and built again.
fn sdk_hash(version: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut add = |part: &str| {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(version);
    FLAGS.iter().chain(&SDK_FLAGS).chain(&TENANT_FLAGS).chain(&GLUE_FLAGS).for_each(|flag| add(flag));
    sdk::FILES.iter().for_each(|file| [file.0, file.1].iter().for_each(|part| add(part)));
    add(glue::TEMPLATE);
    RULES.iter().for_each(|rules| add(rules.1));
    [include_str!("mir.rs"), include_str!("imports.rs")].iter().for_each(|rules| add(rules));
    hasher.finalize().into()
}
