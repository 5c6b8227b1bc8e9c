//! The steps from package to artefact.

use std::fs;
use std::time::Instant;

use sha2::Digest;
use sha2::Sha256;

use crate::Artefact;
use crate::BuildError;
use crate::Package;
use crate::artefact;
use crate::artefact::Lints;
use crate::artefact::Made;
use crate::artefact::hex;
use crate::checked::Checked;
use crate::glue;
use crate::imports;
use crate::mir;
use crate::toolchain::Toolchain;
use crate::toolchain::diagnostics;
use crate::toolchain::write;

impl Toolchain {
    /// Builds a package, or returns the artefact of an earlier build of the same source.
    ///
    /// Check, compiler and linker run in the sandbox. Takes 0.2 to 1 s; runs on the caller's thread, and several builds
    /// may run at once.
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
        if let Some((artefact, under)) = found
            && (under == Lints::Refuse || under == lints)
        {
            return Ok(artefact);
        }
        let checked = self.check(package)?;
        let (object, warnings) = self.compile(&checked, lints)?;
        imports::check(&object)?;
        let compile_ms = begun.elapsed().as_millis() as u64;
        let made = Made { object, functions: checked.functions, warnings, lints };
        artefact::store(&self.artefacts(), &key, made, compile_ms)
    }

    /// Returns the name of a package's artefact.
    fn key(&self, package: &Package) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.sdk_hash());
        hasher.update(package.digest());
        hex(&hasher.finalize())
    }

    /// Compiles and links checked sources; returns the bytes of the shared object, and the compiler's warnings.
    fn compile(&self, checked: &Checked, lints: Lints) -> Result<(Vec<u8>, String), BuildError> {
        let work = self.work_folder()?;
        let failed = |error| BuildError::io("lay out a build", &error);
        let folder = |name: &str| {
            let path = work.0.join(name);
            fs::create_dir_all(&path).map(|()| path).map_err(failed)
        };
        let (sources, libraries, output) = (folder("src")?, folder("in")?, folder("out")?);
        for source in &checked.sources {
            for (path, text) in &source.files {
                write(&sources.join(path), text)?;
            }
        }
        let mut warnings = String::new();
        for source in &checked.sources {
            let root = format!("{}src/lib.rs", source.folder);
            let name = &source.crate_name;
            let uses = &source.dependencies;
            warnings += &self.compile_crate((name, lints), &root, uses, &sources, &libraries, &output)?;
            mir::check(&fs::read_to_string(output.join("crate.mir")).map_err(failed)?, &source.guards)
                .map_err(BuildError::Refused)?;
            let library = format!("lib{name}.rlib");
            fs::rename(output.join(&library), libraries.join(&library)).map_err(failed)?;
        }
        let crate_name = checked.sources.last().map_or("", |source| &source.crate_name);
        let glue_folder = folder("glue")?;
        let text = glue::source(&self.sdk_hash(), crate_name, &checked.functions);
        write(&glue_folder.join("glue.rs"), &text)?;
        self.link(crate_name, &glue_folder, &libraries, &output)?;
        let object = fs::read(output.join("artefact.so")).map_err(failed)?;
        Ok((object, diagnostics(&warnings)))
    }
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
            toolchain.compile(&Checked { sources: vec![source], functions: vec![function] }, Lints::Warn)
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
