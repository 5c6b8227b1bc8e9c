//! Modules: the installed functions of a tenant, to be run by its client.
//!
//! A server gives a tenant the module of each of its extensions, in WebAssembly's own form ([`Client::extension_module`]).
//! [`ModuleRuntime`] checks it as the server does, compiles it in a sandbox and loads it; [`Local`](crate::Local) runs it. Its code
//! stays within its own memory whoever wrote it, and within the tenant's limits of processor time, memory and stack, as at the
//! server. A program that does not start a runtime never runs any.
//!
//! Needs Linux on x86-64, `bwrap`, and the program `splinter-wasmc`: `SPLINTER_WASMC`, beside the running program or on the PATH. The
//! runtime handles SIGSEGV, SIGBUS, SIGILL and SIGFPE, of which it passes on what is not a module's, and SIGURG.
//!
//! [`Client::extension_module`]: crate::Client::extension_module

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use builder::ModuleCompiler;
use builder::limits::FUNCTIONS_MAX;
use control::{ExtensionModule, FunctionMode, Statistic};
use guest::border::HEAP_BASE_MAX;
use guest::wasm;
use sandstorm::abi::wasm32::{BORDER_VERSION, ENTRY_PREFIX};
use wire::limits::REPLY_BYTES_MAX;

use crate::Error;

use super::module_run::{IMPORTS, ModuleLimits, Runnable};

/// Upper bounds on the limits that a server sends, above its own maxima: processor time, yields, bytes written.
const CPU_US_MAX: u64 = 10_000_000;
const YIELDS_MAX: u64 = 10_000_000;
const WRITE_BYTES_MAX: usize = 64 << 20;

/// Held while a module is loaded: one at a time.
static LOADING: Mutex<()> = Mutex::new(());

/// Why a module cannot be run here.
#[derive(Debug)]
pub enum ModuleError {
    /// This process runs no modules.
    Unavailable {
        /// The reason.
        why: String,
    },
    /// The server's modules use another version of the interface to their host than this client.
    Border {
        /// The server's version of it.
        server: u32,
    },
    /// The bytes are not those that the server has.
    Changed,
    /// The server does not give it.
    Unreadable(Error),
    /// The module is not one that may run.
    Refused {
        /// The reason.
        why: String,
    },
}

impl fmt::Display for ModuleError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModuleError::Unavailable { why } => write!(to, "This process cannot run modules: {why}."),
            ModuleError::Border { server } => write!(
                to,
                "The server's modules use version {server} of the module interface, this client supports {BORDER_VERSION}: use a client of \
                 the server's release."
            ),
            ModuleError::Changed => {
                write!(to, "The module does not have the hash that the server sent: read it again.")
            }
            ModuleError::Unreadable(error) => error.fmt(to),
            ModuleError::Refused { why } => write!(to, "The module may not run: {why}."),
        }
    }
}

impl std::error::Error for ModuleError {}

/// What a process needs to run modules. Made once; clones share it.
#[derive(Clone, Debug)]
pub struct ModuleRuntime {
    compiler: Arc<ModuleCompiler>,
}

impl ModuleRuntime {
    /// Finds the compiler of modules, and tests that modules run on this machine as they must. Takes some 50 ms.
    ///
    /// # Errors
    /// [`ModuleError::Unavailable`] if they do not.
    pub fn start() -> Result<ModuleRuntime, ModuleError> {
        let unavailable = |why: String| ModuleError::Unavailable { why };
        let compiler = ModuleCompiler::find().map_err(|error| unavailable(error.to_string()))?;
        let compiled = compiler.compile(wasm::SELF_TEST_MODULE, &wasm::SELF_TEST_FUNCTIONS);
        let compiled = compiled.map_err(|error| unavailable(error.to_string()))?;
        // SAFETY: checked and compiled by our compiler just now.
        unsafe { wasm::start(&compiled) }.map_err(|error| unavailable(error.to_string()))?;
        Ok(ModuleRuntime { compiler: Arc::new(compiler) })
    }

    /// Checks, compiles and loads a module. Takes 20 to 100 ms.
    ///
    /// # Errors
    /// See [`ModuleError`].
    pub fn load(&self, module: &ExtensionModule) -> Result<Module, ModuleError> {
        if module.border != BORDER_VERSION {
            return Err(ModuleError::Border { server: module.border });
        }
        if module.functions.len() > FUNCTIONS_MAX {
            return Err(ModuleError::Refused { why: "it has too many functions".to_owned() });
        }
        if builder::sha256_of(&module.bytes.0) != module.sha256 {
            return Err(ModuleError::Changed);
        }
        let refused = |why: String| ModuleError::Refused { why };
        let names: Vec<&str> = module.functions.iter().map(|function| function.name.as_str()).collect();
        let compiled = self.compiler.compile(&module.bytes.0, &names);
        let compiled = compiled.map_err(|error| refused(error.to_string()))?;
        let _loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: checked and compiled by our compiler just now.
        let code = unsafe { wasm::Code::load(&compiled, &IMPORTS) };
        let code = code.map_err(|error| refused(error.to_string()))?;
        if code.heap_base() as usize > HEAP_BASE_MAX {
            return Err(refused("it has too much data".to_owned()));
        }
        let function = |entry: &control::FunctionEntry| {
            let export = code.function(&format!("{ENTRY_PREFIX}{}", entry.name));
            let export = export.ok_or_else(|| refused(format!("it has no function {}", entry.name)))?;
            let may_write = entry.mode == FunctionMode::Write;
            Ok(ModuleFunction { name: entry.name.as_str().into(), may_write, export })
        };
        let functions = module.functions.iter().map(function).collect::<Result<_, _>>()?;
        let limits = limits_of(&module.limits);
        let runnable = Runnable { code: Arc::new(code), limits, source_checked: module.source_checked };
        let (extension, version) = (module.extension, module.version);
        Ok(Module { loaded: Arc::new(Loaded { functions, extension, version, runnable }) })
    }
}

/// A function of a module.
#[derive(Debug)]
pub(super) struct ModuleFunction {
    name: Box<str>,
    pub(super) may_write: bool,
    /// Its number in the code.
    pub(super) export: usize,
}

#[derive(Debug)]
struct Loaded {
    functions: Box<[ModuleFunction]>,
    extension: u32,
    version: u32,
    runnable: Runnable,
}

/// The module of a version of an extension, loaded. Clones share it; its code is unmapped with the last one.
#[derive(Clone, Debug)]
pub struct Module {
    loaded: Arc<Loaded>,
}

impl Module {
    /// Returns the version of the extension.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.loaded.version
    }

    pub(super) fn extension(&self) -> u32 {
        self.loaded.extension
    }

    /// Returns the names of its functions.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.loaded.functions.iter().map(|function| &*function.name)
    }

    pub(super) fn function(&self, name: &str) -> Option<&ModuleFunction> {
        self.loaded.functions.iter().find(|function| *function.name == *name)
    }

    pub(super) fn runnable(&self) -> &Runnable {
        &self.loaded.runnable
    }
}

/// Returns the tenant's limits as the server sent them, capped by the bounds above. A limit that the server did not send is 0.
fn limits_of(statistics: &[Statistic]) -> ModuleLimits {
    let limit =
        |name: &str| statistics.iter().find(|limit| limit.name == name).map_or(0, |limit| limit.value);
    let size = |name| usize::try_from(limit(name)).unwrap_or(usize::MAX);
    ModuleLimits {
        cpu_us: limit("invocation_cpu_us").min(CPU_US_MAX),
        yields: limit("invocation_yields").min(YIELDS_MAX),
        arena_bytes: size("invocation_arena_bytes"),
        reads: size("invocation_reads"),
        read_bytes: size("invocation_read_bytes"),
        writes: size("invocation_writes"),
        write_bytes: size("invocation_write_bytes").min(WRITE_BYTES_MAX),
        reply_bytes: size("invocation_reply_bytes").min(REPLY_BYTES_MAX),
    }
}
