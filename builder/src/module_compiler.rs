//! The compiler of modules without a compiler of sources: for programs that run modules which a server has built, as
//! clients do.

use std::path::Path;
use std::path::PathBuf;
use std::thread;

use crate::BuildError;
use crate::limits;
use crate::module;
use crate::sandbox::Job;
use crate::sandbox::Sandbox;
use crate::toolchain::find_module_compiler;

/// Checks modules and compiles them to machine code for this machine, which never leaves it.
#[derive(Clone, Debug)]
pub struct ModuleCompiler {
    sandbox: Sandbox,
    program: PathBuf,
}

impl ModuleCompiler {
    /// Finds the sandbox, and `splinter-wasmc`: by `SPLINTER_WASMC`, otherwise beside the running program, otherwise on the PATH.
    ///
    /// # Errors
    /// [`BuildError::SandboxMissing`], [`BuildError::ModuleUnavailable`].
    pub fn find() -> Result<ModuleCompiler, BuildError> {
        let own = std::env::current_exe().map_err(|error| BuildError::io("find this program", &error))?;
        let (program, _) = find_module_compiler(&own).map_err(|why| BuildError::ModuleUnavailable { why })?;
        Ok(ModuleCompiler { sandbox: Sandbox::open()?, program })
    }

    /// Checks a module as a server does, and compiles it: `functions` are the names of its functions. The check runs on a thread
    /// of its own, the compiler in the sandbox. Takes 20 to 100 ms.
    ///
    /// # Errors
    /// As for [`Toolchain::compile_module`](crate::Toolchain::compile_module).
    pub fn compile(&self, module: &[u8], functions: &[&str]) -> Result<Vec<u8>, BuildError> {
        let names: Vec<String> = functions.iter().map(|name| (*name).to_owned()).collect();
        let checked = thread::scope(|scope| scope.spawn(|| module::finish(module, &names)).join());
        match checked {
            Ok(Ok(finished)) => machine_code(&self.sandbox, &self.program, finished),
            Ok(Err(what)) => Err(BuildError::ImportRefused { what }),
            Err(_) => Err(BuildError::ImportRefused { what: "the check could not read the module".into() }),
        }
    }
}

/// Compiles a checked module in the sandbox.
pub(crate) fn machine_code(
    sandbox: &Sandbox,
    compiler: &Path,
    finished: Vec<u8>,
) -> Result<Vec<u8>, BuildError> {
    let step = "compiling the module";
    let outcome = sandbox.run(Job {
        step: step.into(),
        program: "/box/wasmc".into(),
        arguments: Vec::new(),
        shown: vec![(compiler.into(), "/box/wasmc".into())],
        environment: Vec::new(),
        folder: "/".into(),
        output: None,
        input: finished,
        cpu_seconds: limits::MODULE_CPU_SECONDS_MAX,
        memory_bytes: limits::MODULE_COMPILER_BYTES_MAX,
    })?;
    match outcome.status.code() {
        Some(0) if outcome.printed.len() < limits::ARTEFACT_BYTES_MAX => Ok(outcome.printed),
        Some(0) => Err(BuildError::ImportRefused {
            what: format!(
                "the module's machine code has more than {} bytes: write less",
                limits::ARTEFACT_BYTES_MAX
            ),
        }),
        _ if outcome.was_killed() => Err(outcome.killed(step)),
        // The compiler's own refusal.
        _ => Err(BuildError::CompilerCrashed { what: format!("{step} ended ({})", outcome.said()) }),
    }
}
