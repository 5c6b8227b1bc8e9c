//! A compiled extension as a loaded library: opened after its hash was checked, closed at the end.
//!
//! Only artefacts that this server built for itself are opened: the hash that the builder wrote beside the artefact
//! covers compiler, flags and SDK. Opening runs no code of the tenant: an artefact has no initialisers (the builder's
//! import check), and its `open` is our glue.
//!
//! The registry calls this on control threads; dropping the last reference unmaps the code.

use std::fmt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;

use guest::border::{self, HEAP_BASE_MAX};
use guest::wasm::{Code as ModuleCode, Import, LoadError as ModuleError};
use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};
use sandstorm::abi::wasm32::ENTRY_PREFIX;
use sandstorm::abi::{ABI_VERSION, Artefact, Call, Code};

use super::access::Access;
use super::host::SERVICES;
use super::{CallMode, Function, Provenance};
use crate::limits::ARGUMENTS_LINE_BYTES_MAX;

/// A function's entry point: polls an invocation once.
pub type Run = unsafe extern "C" fn(call: *mut Call) -> Code;

/// The beginning of every reason why there is no module; the client and its users know it.
const UNAVAILABLE: &str = "wasm unavailable: ";

/// What the module of an extension may import.
pub(super) static IMPORTS: [Import; 12] = border::imports::<Access>();

/// The maximum number of functions in one artefact.
const FUNCTIONS_MAX: u32 = 4096;

/// The reason why an artefact was not loaded. Each but the last means that this server did not build the file in this
/// form.
#[derive(Debug)]
pub enum LoadError {
    /// The system's loader refuses the file.
    Refused(libloading::Error),
    /// The artefact was built for another ABI or another SDK.
    Stale,
    /// Its table of functions is invalid.
    Malformed,
    /// The module cannot be loaded.
    Module(ModuleError),
    /// There is only a module, and this process runs none, for this reason.
    Unavailable(String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(out, "the artefact cannot be opened: {error}"),
            Self::Stale => out.write_str("the artefact was built for another server"),
            Self::Module(error) => write!(out, "the module cannot be loaded: {error}"),
            Self::Unavailable(why) => write!(out, "modules do not run here: {why}"),
            Self::Malformed => out.write_str("the artefact's function table is malformed"),
        }
    }
}

impl std::error::Error for LoadError {}

/// A loaded artefact, shared by every extension of the same source. A clone shares the shared object.
#[derive(Clone, Debug)]
pub struct Library {
    functions: Arc<[Function]>,
    /// The text for callers with wrong arguments, by function; kept apart from the fields that every invocation reads.
    arguments: Vec<Box<str>>,
    path: PathBuf,
    /// The same functions as a module, or the reason why there is none.
    module: Result<Arc<ModuleCode>, String>,
    provenance: Provenance,
    /// The handle, closed after every field above is dropped.
    _handle: Option<Arc<Handle>>,
}

impl Library {
    /// Opens the artefact at `path`, which the builder built under `sdk_hash`.
    ///
    /// # Errors
    /// See [`LoadError`].
    ///
    /// # Safety
    /// The builder of this process checked that the file is its own artefact for this `sdk_hash`.
    pub unsafe fn open(path: &Path, sdk_hash: &[u8; 32]) -> Result<Self, LoadError> {
        // SAFETY: an artefact of our builder runs nothing when it is opened.
        let handle =
            unsafe { Handle::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(LoadError::Refused)?;
        // SAFETY: the one symbol that the glue exports, with this type.
        let symbol =
            unsafe { handle.get::<*const Artefact>(b"SPLINTER_ARTEFACT\0") }.map_err(LoadError::Refused)?;
        // SAFETY: the symbol's address is the constant, which lives as long as the handle.
        let artefact = unsafe { &**symbol };
        if artefact.abi_version != ABI_VERSION || artefact.sdk_hash != *sdk_hash {
            return Err(LoadError::Stale);
        }
        // SAFETY: the artefact is of our version of the border.
        let functions = unsafe { functions_of(artefact) }?;
        // SAFETY: called once, before any function.
        unsafe { (artefact.open)(SERVICES) };
        Ok(Self {
            functions: functions.into(),
            arguments: Vec::new(),
            path: path.to_owned(),
            module: Err(format!("{UNAVAILABLE}it was built without")),
            provenance: Provenance::CheckedSource,
            _handle: Some(Arc::new(handle)),
        })
    }

    /// Loads a module that has no shared object beside it.
    ///
    /// # Errors
    /// See [`LoadError`].
    ///
    /// # Safety
    /// As for [`Library::with_module`].
    pub unsafe fn of_module(
        functions: &[builder::Function],
        bytes: &[u8],
        provenance: Provenance,
    ) -> Result<Self, LoadError> {
        let function = |described: &builder::Function| {
            let mode = match described.mode {
                builder::Mode::Read => CallMode::Read,
                builder::Mode::Write => CallMode::Write,
            };
            Function { name: (&*described.name).into(), hash: described.hash(), mode, run: None, export: 0 }
        };
        let mut library = Self {
            functions: functions.iter().map(function).collect(),
            arguments: Vec::new(),
            path: PathBuf::new(),
            module: Err(String::new()),
            provenance,
            _handle: None,
        }
        .documented(functions);
        // SAFETY: as the caller promises.
        unsafe { library.load_module(bytes) }?;
        Ok(library)
    }

    /// Adds the author's descriptions of the functions' arguments.
    #[must_use]
    pub fn documented(mut self, by: &[builder::Function]) -> Self {
        let line = |function: &Function| {
            let described = by.iter().find(|described| *described.name == *function.name);
            let shape = described.and_then(|described| builder::arguments_of(&described.doc));
            shape.map(arguments_line).unwrap_or_default()
        };
        self.arguments = self.functions.iter().map(line).collect();
        self
    }

    /// Returns the functions in the order of the source. Valid as long as the library.
    #[must_use]
    pub fn functions(&self) -> Arc<[Function]> {
        Arc::clone(&self.functions)
    }

    /// Adds the module of the same functions. One that cannot be loaded is left out: the shared object works without.
    ///
    /// # Safety
    /// The bytes are what the builder of this process compiled from a module that it had checked, for this server.
    #[must_use]
    pub unsafe fn with_module(mut self, bytes: &[u8]) -> Self {
        // SAFETY: as the caller promises.
        match unsafe { self.load_module(bytes) } {
            Ok(()) => self,
            Err(error) => self.without_module(&error.to_string()),
        }
    }

    /// # Safety
    /// As for [`Library::with_module`].
    unsafe fn load_module(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        // SAFETY: as the caller promises.
        let code = unsafe { ModuleCode::load(bytes, &IMPORTS) }.map_err(LoadError::Module)?;
        if code.heap_base() as usize > HEAP_BASE_MAX {
            return Err(LoadError::Malformed);
        }
        let mut functions = self.functions.to_vec();
        for function in &mut functions {
            let export = format!("{ENTRY_PREFIX}{}", function.name);
            function.export = code.function(&export).ok_or(LoadError::Malformed)?;
        }
        self.functions = functions.into();
        self.module = Ok(Arc::new(code));
        Ok(())
    }

    /// Notes why there is no module.
    #[must_use]
    pub fn without_module(mut self, why: &str) -> Self {
        self.module = Err(format!("{UNAVAILABLE}{}", why.strip_prefix(UNAVAILABLE).unwrap_or(why)));
        self
    }

    /// Returns the module.
    ///
    /// # Errors
    /// The reason why there is none.
    #[inline]
    pub fn module(&self) -> Result<&Arc<ModuleCode>, &str> {
        self.module.as_ref().map_err(String::as_str)
    }

    /// Returns what the builder knows of the module.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        self.provenance
    }

    /// Returns the text for callers of a function with wrong arguments.
    pub fn arguments(&self, function: usize) -> &str {
        self.arguments.get(function).map_or("", |line| line)
    }

    /// Returns the path of the opened file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a library of functions of this program, for tests.
    #[cfg(test)]
    pub fn of(functions: Vec<Function>) -> Self {
        Self {
            functions: functions.into(),
            arguments: Vec::new(),
            path: PathBuf::new(),
            module: Err(format!("{UNAVAILABLE}it was built without")),
            provenance: Provenance::CheckedSource,
            _handle: None,
        }
    }
}

/// Returns the text for callers with wrong arguments.
fn arguments_line(shape: &str) -> Box<str> {
    let line = format!("Arguments: {shape}");
    if line.len() <= ARGUMENTS_LINE_BYTES_MAX {
        return line.into();
    }
    format!("{}...", &line[..line.floor_char_boundary(ARGUMENTS_LINE_BYTES_MAX - 3)]).into()
}

/// Copies the table of functions out of an artefact.
///
/// # Safety
/// The artefact is loaded and of our version of the ABI.
unsafe fn functions_of(artefact: &Artefact) -> Result<Vec<Function>, LoadError> {
    if artefact.function_count == 0 || artefact.function_count > FUNCTIONS_MAX || artefact.functions.is_null()
    {
        return Err(LoadError::Malformed);
    }
    // SAFETY: the artefact says how many there are.
    let raw = unsafe { slice::from_raw_parts(artefact.functions, artefact.function_count as usize) };
    raw.iter()
        .map(|function| {
            // SAFETY: the name is constant data of the artefact.
            let name = unsafe { function.name.as_slice() };
            let name = str::from_utf8(name).map_err(|_| LoadError::Malformed)?;
            let mode = match function.mode {
                0 => CallMode::Read,
                1 => CallMode::Write,
                _ => return Err(LoadError::Malformed),
            };
            let hash = wire::function_hash(name);
            Ok(Function { name: name.into(), hash, mode, run: Some(function.run), export: 0 })
        })
        .collect()
}
