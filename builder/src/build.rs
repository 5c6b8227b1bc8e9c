//! The steps from package to artefact.

use std::fs;
use std::thread;
use std::time::Instant;

use sha2::Digest;
use sha2::Sha256;

use crate::Artefact;
use crate::BuildError;
use crate::Package;
use crate::artefact;
use crate::artefact::Lints;
use crate::artefact::Made;
use crate::artefact::MadeCode;
use crate::artefact::MissingModule;
use crate::artefact::ModuleCode;
use crate::artefact::hex;
use crate::checked::Checked;
use crate::glue;
use crate::imports;
use crate::limits;
use crate::mir;
use crate::module_compiler::machine_code;
use crate::target::Target;
use crate::toolchain::BuildFolders;
use crate::toolchain::Toolchain;
use crate::toolchain::diagnostics;
use crate::toolchain::write;

impl Toolchain {
    /// Builds a package, or returns the artefact of an earlier build of the same source.
    ///
    /// Check, compiler and linker run in the sandbox. Takes 0.2 to 1 s; runs on the caller's thread and one more, and
    /// several builds may run at once. Of source comes a shared object, and a module if it can be made: if not,
    /// [`Code::module`](crate::Code::module) tells why. Where another attempt may make it, the next builds of the
    /// same source make both again. A finished module is checked and compiled to machine code.
    ///
    /// # Errors
    /// See [`BuildError`]; nothing is left behind then.
    pub fn build(&self, package: &Package) -> Result<Artefact, BuildError> {
        self.build_under(Lints::Refuse, package)
    }

    /// Like [`Toolchain::build`] for a package that was installed before, here or at another server. Reasons for which
    /// installations are refused since then become warnings, so that callers do not lose the function.
    ///
    /// # Errors
    /// As for [`Toolchain::build`].
    pub fn rebuild(&self, package: &Package) -> Result<Artefact, BuildError> {
        self.build_under(Lints::Warn, package)
    }

    fn build_under(&self, lints: Lints, package: &Package) -> Result<Artefact, BuildError> {
        let begun = Instant::now();
        let key = self.key(package);
        let found = artefact::find(&self.artefacts(), &key);
        let attempts = found.as_ref().map_or(0, |(_, _, attempts)| *attempts);
        if let Some((artefact, under, _)) = found
            && (under == Lints::Refuse || under == lints)
            && (attempts == 0 || attempts >= limits::MODULE_ATTEMPTS_MAX)
        {
            return Ok(artefact);
        }
        let checked = self.check(package)?;
        let (code, warnings) = match package.finished() {
            None => self.make_both(&checked, lints)?,
            Some(finished) => {
                let code = self.make_module_code(&finished.module, &names_of(&checked))?;
                (MadeCode::Finished(code), String::new())
            }
        };
        let compile_ms = begun.elapsed().as_millis() as u64;
        let made = Made { code, functions: checked.functions, warnings, lints, attempts };
        artefact::store(&self.artefacts(), &key, made, compile_ms)
    }

    /// Makes both forms of a checked source, side by side; returns them, and the compiler's warnings.
    fn make_both(&self, checked: &Checked, lints: Lints) -> Result<(MadeCode, String), BuildError> {
        let (object, module) = thread::scope(|scope| {
            let module = scope.spawn(|| self.make_module(checked));
            let object = self.make_object(checked, lints);
            (object, module.join())
        });
        let (object, warnings) = object?;
        let module = module.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((MadeCode::Source { object, module }, warnings))
    }

    /// Returns the name of a package's artefact.
    fn key(&self, package: &Package) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.sdk_hash());
        hasher.update(package.digest());
        hex(&hasher.finalize())
    }

    /// Compiles and links a shared object; returns its bytes, and the compiler's warnings.
    pub(crate) fn make_object(
        &self,
        checked: &Checked,
        lints: Lints,
    ) -> Result<(Vec<u8>, String), BuildError> {
        let (object, warnings) = self.compile(Target::Native, checked, lints)?;
        imports::check(&object)?;
        Ok((object, warnings))
    }

    /// Compiles a module to machine code; returns it, or the reason why it cannot be: the other form works without.
    fn make_module(&self, checked: &Checked) -> Result<Result<ModuleCode, MissingModule>, BuildError> {
        if let Some(why) = self.module_unavailable() {
            return Ok(Err(MissingModule { why: why.into(), is_final: true }));
        }
        let linked = self.compile(Target::Module, checked, Lints::Warn);
        match linked.and_then(|(module, _)| self.make_module_code(&module, &names_of(checked))) {
            Ok(code) => Ok(Ok(code)),
            // The machine's fault, so another attempt may succeed.
            Err(
                error @ (BuildError::DiskFull | BuildError::Io { .. } | BuildError::SandboxMissing { .. }),
            ) => Err(error),
            Err(error) => {
                let is_final = !matches!(error, BuildError::TimedOut { .. } | BuildError::Killed { .. });
                let why = diagnostics(&format!("wasm unavailable: {error}"));
                Ok(Err(MissingModule { why, is_final }))
            }
        }
    }

    /// Builds the module of a package as the module compiler gets it, in WebAssembly's own form. Stores nothing.
    ///
    /// # Errors
    /// As for [`Toolchain::build`] and [`Toolchain::compile_module`].
    pub fn build_module(&self, package: &Package) -> Result<Vec<u8>, BuildError> {
        let checked = self.check(package)?;
        let names = names_of(&checked);
        match package.finished() {
            Some(finished) => self.finish_module(&finished.module, &names),
            None => self.finish_module(&self.compile(Target::Module, &checked, Lints::Refuse)?.0, &names),
        }
    }

    /// Checks a module and compiles it to machine code for this machine: `functions` are the names of its functions.
    ///
    /// # Errors
    /// [`BuildError::ImportRefused`] with the reason when it is none that a server runs; [`BuildError::TimedOut`] when
    /// the compiler exceeds its limit; [`BuildError::Killed`] when a signal ends it; [`BuildError::ModuleUnavailable`] when this machine has not the tools.
    pub fn compile_module(&self, module: &[u8], functions: &[&str]) -> Result<Vec<u8>, BuildError> {
        Ok(self.make_module_code(module, functions)?.machine)
    }

    fn make_module_code(&self, module: &[u8], functions: &[&str]) -> Result<ModuleCode, BuildError> {
        let compiler = match &self.module_tools {
            Ok(tools) => &tools.compiler,
            Err(why) => return Err(BuildError::ModuleUnavailable { why: why.clone() }),
        };
        let portable = self.finish_module(module, functions)?;
        let machine = machine_code(&self.sandbox, compiler, portable.clone())?;
        Ok(ModuleCode { portable, machine })
    }

    /// Compiles and links checked sources; returns what the linker wrote, and the compiler's warnings.
    pub(crate) fn compile(
        &self,
        target: Target,
        checked: &Checked,
        lints: Lints,
    ) -> Result<(Vec<u8>, String), BuildError> {
        let work = self.work_folder()?;
        let failed = |error| BuildError::io("lay out a build", &error);
        let folder = |name: &str| {
            let path = work.0.join(name);
            fs::create_dir_all(&path).map(|()| path).map_err(failed)
        };
        let folders = BuildFolders {
            sources: folder("src")?,
            libraries: folder("in")?,
            glue: folder("glue")?,
            output: folder("out")?,
        };
        for source in &checked.sources {
            for (path, text) in &source.files {
                write(&folders.sources.join(path), text)?;
            }
        }
        let mut warnings = String::new();
        for source in &checked.sources {
            let root = format!("{}src/lib.rs", source.folder);
            let name = &source.crate_name;
            warnings += &self.compile_crate(target, (name, lints), &root, &source.dependencies, &folders)?;
            if target == Target::Native && lints.checks_mir() {
                let mir = fs::read_to_string(folders.output.join("crate.mir")).map_err(failed)?;
                mir::check(&mir, &source.guards).map_err(BuildError::Refused)?;
            }
            let library = format!("lib{name}.rlib");
            fs::rename(folders.output.join(&library), folders.libraries.join(&library)).map_err(failed)?;
        }
        let crate_name = checked.sources.last().map_or("", |source| &source.crate_name);
        let text = match target {
            Target::Native => glue::source(&self.sdk_hash(), crate_name, &checked.functions),
            Target::Module => glue::module_source(crate_name, &checked.functions),
        };
        write(&folders.glue.join("glue.rs"), &text)?;
        self.link(target, crate_name, &folders)?;
        let linked = fs::read(folders.output.join(target.output())).map_err(failed)?;
        Ok((linked, diagnostics(&warnings)))
    }
}

/// Returns the names of a package's functions.
fn names_of(checked: &Checked) -> Vec<&str> {
    checked.functions.iter().map(|function| &*function.name).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::BuildError;
    use crate::Checked;
    use crate::Function;
    use crate::Mode;
    use crate::Toolchain;
    use crate::artefact::Lints;
    use crate::checked::Source;
    use crate::target::Target;

    /// Sources that no check has seen meet a compiler that refuses them too, under whichever lints.
    #[test]
    fn the_compiler_refuses_by_itself_what_it_can() {
        let cache = tempfile::tempdir().unwrap();
        let toolchain = Toolchain::prepare_with_checker(cache.path(), Path::new("/bin/false")).unwrap();
        let compile = |text: &str| {
            let files = vec![("src/lib.rs".to_string(), format!("#![no_std]\n{text}"))];
            let source = Source {
                crate_name: "hole".into(),
                dependencies: vec![],
                folder: String::new(),
                files,
                guards: vec![],
            };
            let function = Function { name: "run".into(), mode: Mode::Read, doc: String::new() };
            toolchain.compile(
                Target::Native,
                &Checked { sources: vec![source], functions: vec![function] },
                Lints::Warn,
            )
        };
        for (text, expected) in [
            ("pub fn f(x: &u8) -> u8 { unsafe { *core::ptr::from_ref(x) } }", "usage of an `unsafe` block"),
            ("#![allow(unsafe_code)]\npub unsafe fn f() {}", "incompatible with previous forbid"),
            ("#[unsafe(no_mangle)]\npub fn memcpy() {}", "`no_mangle`"),
            ("extern crate std;", "can't find crate for `std`"),
            ("extern crate proc_macro;", "can't find crate for `proc_macro`"),
            ("pub const S: &str = include_str!(\"/etc/passwd\");", "couldn't read"),
            ("pub const S: &str = env!(\"HOME\");", "not defined"),
            ("#![feature(asm_experimental_arch)]", "is not in the list of allowed features"),
        ] {
            match compile(text) {
                Err(BuildError::CompileFailed { text: said }) => {
                    assert!(said.contains(expected), "{text}: {said}")
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_full_disk_has_an_error_of_its_own() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        assert_eq!(BuildError::io("write", &full), BuildError::DiskFull);
    }
}
