//! Modules of sources that nobody checked: what a hole in the check of sources would let through.
//!
//! Compiled with `unsafe` allowed, for the tests that attack what contains modules. Only with the feature `unchecked`,
//! which no program of the project has: `scripts/test` compares. There is no such way to a shared object.

use crate::BuildError;
use crate::Checked;
use crate::Function;
use crate::Mode;
use crate::Source;
use crate::Toolchain;
use crate::artefact::Lints;
use crate::target::Target;

impl Toolchain {
    /// Compiles an extension of one source file to a module's machine code without checking the source; `functions` are
    /// the names of its functions.
    ///
    /// # Errors
    /// As for [`Toolchain::compile_module`], and the compiler's.
    pub fn compile_unchecked(&self, source: &str, functions: &[&str]) -> Result<Vec<u8>, BuildError> {
        let source = Source {
            crate_name: "unchecked".into(),
            dependencies: Vec::new(),
            folder: String::new(),
            files: vec![("src/lib.rs".into(), source.into())],
            guards: Vec::new(),
        };
        let named = |name: &&str| Function { name: (*name).into(), mode: Mode::Write, doc: String::new() };
        let checked = Checked { sources: vec![source], functions: functions.iter().map(named).collect() };
        let (module, _) = self.compile(Target::Module, &checked, Lints::Allow)?;
        self.compile_module(&module, functions)
    }
}
