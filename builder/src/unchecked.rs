//! Code of sources that nobody checked: what a hole in the check of sources would let through.
//!
//! Modules are compiled with `unsafe` allowed, for the tests that attack what contains modules. Shared objects are
//! compiled with `unsafe` forbidden, for the test that compares both forms of what the check refuses, which runs them in a
//! process of their own. Only with the feature `unchecked`, which no program of the project has: `scripts/test` compares.

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
        let (module, _) = self.compile(Target::Module, &unchecked(source, functions), Lints::Allow)?;
        self.compile_module(&module, functions)
    }

    /// Compiles an extension of one source file without checking it, with `unsafe` forbidden; returns the bytes of the
    /// shared object and the module's machine code.
    ///
    /// # Errors
    /// As for [`Toolchain::compile_unchecked`].
    pub fn compile_safe_unchecked(
        &self,
        source: &str,
        functions: &[&str],
    ) -> Result<(Vec<u8>, Vec<u8>), BuildError> {
        let checked = unchecked(source, functions);
        let (object, _) = self.make_object(&checked, Lints::Safe)?;
        let (module, _) = self.compile(Target::Module, &checked, Lints::Safe)?;
        Ok((object, self.compile_module(&module, functions)?))
    }
}

/// Passes a source off as a checked one.
fn unchecked(source: &str, functions: &[&str]) -> Checked {
    let source = Source {
        crate_name: "unchecked".into(),
        dependencies: Vec::new(),
        folder: String::new(),
        files: vec![("src/lib.rs".into(), source.into())],
        guards: Vec::new(),
    };
    let named = |name: &&str| Function { name: (*name).into(), mode: Mode::Write, doc: String::new() };
    Checked { sources: vec![source], functions: functions.iter().map(named).collect() }
}
