//! The compiler, its private sysroot and the compiled SDK.
//!
//! Every compiler run takes place in the sandbox, with a sysroot that consists only of the toolchain's `core`, `alloc`
//! and `compiler_builtins`: it has no `std` and no `proc_macro`. A machine without the tools for modules builds shared
//! objects alone, and says why.
//!
//! ```text
//! /tc/bin/rustc, /tc/bin/ld.lld, /tc/lib     the compiler and the linker (of modules: /tc/bin/wasm-ld)
//! /sr                                        the sysroot
//! /src, /in, /out                            sources; compiled crates; what the run writes
//! ```

mod compiler;
mod module_tools;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;

use sha2::Digest;
use sha2::Sha256;

use crate::BuildError;
use crate::Function;
use crate::Package;
use crate::artefact::Lints;
use crate::artefact::hex;
use crate::artefact::publish;
use crate::artefact::unique;
use crate::check::RULES;
use crate::glue;
use crate::limits;
use crate::module;
use crate::sandbox::Job;
use crate::sandbox::Outcome;
use crate::sandbox::Sandbox;
use crate::sdk;
use crate::target;
use crate::target::Target;
use module_tools::ModuleTools;
pub(crate) use module_tools::find_compiler as find_module_compiler;

/// The environment variable by which a stable compiler accepts `-Z` flags.
pub(crate) const UNSTABLE: (&str, &str) = ("RUSTC_BOOTSTRAP", "1");
/// The compiler's output in a crash: a panic of its own, or a signal.
const CRASHES: [&str; 3] =
    ["internal compiler error", "the compiler unexpectedly panicked", "rustc interrupted by SIG"];

/// A compiler that is ready to build extensions.
#[derive(Clone, Debug)]
pub struct Toolchain {
    pub(crate) sandbox: Sandbox,
    pub(crate) sdk_hash: [u8; 32],
    pub(crate) checker: PathBuf,
    /// The tools for modules, or the reason why there are none.
    pub(crate) module_tools: Result<ModuleTools, String>,
    cache: PathBuf,
    tools: Vec<(PathBuf, String)>,
}

/// The folders of one form's build.
pub(crate) struct BuildFolders {
    /// The package's files.
    pub(crate) sources: PathBuf,
    /// The compiled crates.
    pub(crate) libraries: PathBuf,
    /// The glue's text.
    pub(crate) glue: PathBuf,
    /// What a run of the compiler writes.
    pub(crate) output: PathBuf,
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
        let module_tools = ModuleTools::find(&root, checker);
        let sdk_hash = sdk_hash(&version, module_tools.as_ref().map_or("", |tools| &tools.version));
        let toolchain = Toolchain { sandbox, sdk_hash, checker: checker.into(), module_tools, cache, tools };
        toolchain.remove_old_work();
        toolchain.compile_sdk(Target::Native)?;
        if toolchain.module_tools.is_ok() {
            toolchain.compile_sdk(Target::Module)?;
        }
        Ok(toolchain)
    }

    /// Returns the compiler's warnings when a server of this release installs the package. Takes a second, and stores
    /// nothing.
    ///
    /// # Errors
    /// As for [`Toolchain::prepare`] and [`Toolchain::build`].
    pub fn try_out(package: &Package) -> Result<String, BuildError> {
        let folder = WorkFolder::temporary()?;
        Ok(Toolchain::prepare(&folder.0)?.build(package)?.warnings)
    }

    /// Returns the module that a server of this release makes of the package, in WebAssembly's own form, and its functions. Takes
    /// some seconds, and stores nothing.
    ///
    /// # Errors
    /// As for [`Toolchain::try_out`], and [`BuildError::ModuleUnavailable`] if it has no module.
    pub fn module_of(package: &Package) -> Result<(Vec<u8>, Vec<Function>), BuildError> {
        let folder = WorkFolder::temporary()?;
        let artefact = Toolchain::prepare(&folder.0)?.build(package)?;
        let why = artefact.code.module().err().unwrap_or_default();
        let unavailable = |why: String| BuildError::ModuleUnavailable { why };
        let file = artefact.portable.ok_or_else(|| unavailable(why.to_owned()))?;
        Ok((file.read().map_err(unavailable)?, artefact.functions))
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

    /// Returns SHA-256 over compilers, flags, SDK, glue and the rules of the checks, which [`sandstorm`'s
    /// `Artefact::sdk_hash`] must equal.
    ///
    /// [`sandstorm`'s `Artefact::sdk_hash`]: ../sandstorm/abi/struct.Artefact.html
    pub fn sdk_hash(&self) -> [u8; 32] {
        self.sdk_hash
    }

    /// Returns the reason why this machine builds no modules, if it does not.
    #[must_use]
    pub fn module_unavailable(&self) -> Option<&str> {
        self.module_tools.as_ref().err().map(String::as_str)
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
        target: Target,
        (crate_name, lints): (&str, Lints),
        root: &str,
        uses: &[String],
        folders: &BuildFolders,
    ) -> Result<String, BuildError> {
        let flags = target.tenant_flags(lints == Lints::Refuse).into_iter();
        #[cfg(feature = "unchecked")]
        let flags = flags.filter(|flag| lints != Lints::Allow || *flag != "-Funsafe_code");
        let mut arguments = flags.map(OsString::from).collect();
        let add = |arguments: &mut Vec<OsString>, argument: String| arguments.push(argument.into());
        add(&mut arguments, format!("--crate-name={crate_name}"));
        add(&mut arguments, "--extern=sandstorm=/sdk/libsandstorm.rlib".into());
        for used in uses {
            add(&mut arguments, format!("--extern={used}=/in/lib{used}.rlib"));
        }
        add(&mut arguments, format!("-o/out/lib{crate_name}.rlib"));
        add(&mut arguments, root.into());
        let shown = vec![(folders.sources.clone(), "/src".into()), (folders.libraries.clone(), "/in".into())];
        self.run_rustc(target, &format!("compiling {crate_name}"), arguments, shown, &folders.output)
    }

    /// Compiles the glue and links it: writes [`Target::output`].
    pub(crate) fn link(
        &self,
        target: Target,
        crate_name: &str,
        folders: &BuildFolders,
    ) -> Result<(), BuildError> {
        let mut arguments: Vec<OsString> = target.link_flags().into_iter().map(OsString::from).collect();
        arguments.push("--extern=sandstorm=/sdk/libsandstorm.rlib".into());
        arguments.push(format!("--extern={crate_name}=/in/lib{crate_name}.rlib").into());
        arguments.push(format!("-o/out/{}", target.output()).into());
        arguments.push("glue.rs".into());
        let shown = vec![(folders.glue.clone(), "/src".into()), (folders.libraries.clone(), "/in".into())];
        self.run_rustc(target, "linking the artefact", arguments, shown, &folders.output).map(drop)
    }

    /// Returns the folder of the compiled SDK.
    fn sdk_folder(&self, target: Target) -> PathBuf {
        self.cache.join("sdk").join(hex(&self.sdk_hash)).join(target.folder())
    }

    fn compile_sdk(&self, target: Target) -> Result<(), BuildError> {
        let folder = self.sdk_folder(target);
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
        let mut arguments: Vec<OsString> = target.sdk_flags().into_iter().map(OsString::from).collect();
        arguments.extend(["-o/out/libsandstorm.rlib".into(), "lib.rs".into()]);
        let shown = vec![(sources, "/src".into())];
        self.run_rustc(target, "compiling the SDK", arguments, shown, &output)?;
        fs::create_dir_all(&folder).map_err(failed)?;
        publish(&library, &fs::read(output.join("libsandstorm.rlib")).map_err(failed)?)
    }

    /// Runs the compiler in the sandbox, in `/src`; returns its other output.
    fn run_rustc(
        &self,
        target: Target,
        step: &str,
        arguments: Vec<OsString>,
        shown: Vec<(PathBuf, String)>,
        output: &Path,
    ) -> Result<String, BuildError> {
        let mut all = shown;
        match (target, &self.module_tools) {
            (Target::Native, _) => all.extend(self.tools.iter().cloned()),
            (Target::Module, Ok(tools)) => all.extend(tools.files.iter().cloned()),
            (Target::Module, Err(why)) => return Err(BuildError::ModuleUnavailable { why: why.clone() }),
        }
        let sdk = self.sdk_folder(target);
        if sdk.is_dir() {
            all.push((sdk, "/sdk".into()));
        }
        let outcome = self.sandbox.run(Job {
            step: step.into(),
            program: "/tc/bin/rustc".into(),
            arguments: target.flags().into_iter().map(OsString::from).chain(arguments).collect(),
            shown: all,
            environment: vec![UNSTABLE],
            folder: "/src".into(),
            output: Some(output.into()),
            input: Vec::new(),
            cpu_seconds: limits::CPU_SECONDS_MAX,
            memory_bytes: limits::ADDRESS_SPACE_BYTES_MAX,
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
    if outcome.was_killed() {
        return outcome.killed(step);
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
/// `version` is the compiler's, `module_version` the module compiler's, empty when there is none.
fn sdk_hash(version: &str, module_version: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut add = |part: &str| {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(version);
    add(module_version);
    target::all_flags().for_each(&mut add);
    sdk::FILES.iter().for_each(|file| [file.0, file.1].iter().for_each(|part| add(part)));
    glue::TEMPLATES.iter().for_each(|template| add(template));
    RULES.iter().for_each(|rules| add(rules.1));
    [include_str!("mir.rs"), include_str!("imports.rs")].iter().for_each(|rules| add(rules));
    module::RULES.iter().for_each(|rules| add(rules));
    hasher.finalize().into()
}
