//! From package to artefact, step by step.

use std::fs;
use std::time::Instant;

use sha2::Digest;
use sha2::Sha256;

use crate::Artefact;
use crate::BuildError;
use crate::Package;
use crate::artefact;
use crate::artefact::hex;
use crate::checked::Checked;
use crate::glue;
use crate::imports;
use crate::toolchain::Toolchain;
use crate::toolchain::write;

impl Toolchain {
    /// Builds a package, or finds the artefact of an earlier build of the same source.
    ///
    /// Check, compiler and linker run in the sandbox. Takes 0.2 to 1 s; runs on the caller's thread, and
    /// several builds may run at once.
    ///
    /// # Errors
    /// See [`BuildError`]; nothing is left behind then.
    pub fn build(&self, package: &Package) -> Result<Artefact, BuildError> {
        let begun = Instant::now();
        let key = self.key(package);
        if let Some(artefact) = artefact::find(&self.artefacts(), &key) {
            return Ok(artefact);
        }
        let checked = self.check(package)?;
        let object = self.compile(&checked)?;
        imports::check(&object)?;
        let compile_ms = begun.elapsed().as_millis() as u64;
        artefact::store(&self.artefacts(), &key, &object, checked.functions, compile_ms)
    }

    /// The name of a package's artefact.
    fn key(&self, package: &Package) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.sdk_hash());
        hasher.update(package.digest());
        hex(&hasher.finalize())
    }

    /// Compiles and links checked sources; answers the bytes of the shared object.
    fn compile(&self, checked: &Checked) -> Result<Vec<u8>, BuildError> {
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
        for source in &checked.sources {
            let root = format!("{}src/lib.rs", source.folder);
            let name = &source.crate_name;
            self.compile_crate(name, &root, &source.dependencies, &sources, &libraries, &output)?;
            let library = format!("lib{name}.rlib");
            fs::rename(output.join(&library), libraries.join(&library)).map_err(failed)?;
        }
        let crate_name = checked.sources.last().map_or("", |source| &source.crate_name);
        let glue_folder = folder("glue")?;
        let text = glue::source(&self.sdk_hash(), crate_name, &checked.functions);
        write(&glue_folder.join("glue.rs"), &text)?;
        self.link(crate_name, &glue_folder, &libraries, &output)?;
        fs::read(output.join("artefact.so")).map_err(failed)
    }
}
