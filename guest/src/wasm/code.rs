//! A loaded module: its machine code, its functions, and the image of its data.
//!
//! Loading trusts the bytes, which are machine code. They come from our compiler, out of a module that the builder
//! checked, and the server verifies their hash. Wasmtime compares only the main settings and its major version; a check
//! of the rest here guards against mistakes, and not against forged bytes.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use wasmtime::{
    Caller, Engine, ExternType, InstancePre, Linker, MemoryType, Module, ResourceLimiter, Store, TypedFunc,
    ValRaw, ValType,
};

use super::engine::{self, Unavailable};
use super::import::{Import, Type, Value};
use super::memory::{DATA_START, Memory, MemoryMapping, supply};
use crate::limits::{MODULE_MEMORY_BYTES, MODULE_TABLE_ELEMENTS};
use crate::running::{self, ModuleBounds};
use crate::stack::Cause;

/// The export that says where the memory behind the module's data begins.
const HEAP_BASE: &str = "__heap_base";

/// The export of the linear memory.
const MEMORY: &str = "memory";

/// A function of a module: polls once and returns its code.
pub(super) type Function = TypedFunc<u32, u64>;

/// A module's store. Wasmtime gives it back to each import.
pub(super) type ModuleStore = Store<Owner>;

/// What an import must know of the instance that calls, and the limits of that instance.
pub(super) struct Owner {
    memory: Memory,
}

// SAFETY: the view is an address, used only while a module of its own store runs, on that module's thread.
unsafe impl Send for Owner {}

impl ResourceLimiter for Owner {
    fn memory_growing(&mut self, from: usize, to: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(from == 0 && to == MODULE_MEMORY_BYTES)
    }

    fn table_growing(&mut self, from: usize, to: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(from == 0 && to <= MODULE_TABLE_ELEMENTS)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }
}

/// The end of a run that an import asked for, on its way through Wasmtime.
#[derive(Debug)]
pub(super) struct Ended(pub(super) Cause);

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a host call ended the run: {:?}", self.0)
    }
}

impl std::error::Error for Ended {}

/// Why a module was not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// No module can run here.
    Unavailable(Unavailable),
    /// The bytes are not a module of our compiler for this machine, or it asks for what it may not have.
    Refused(String),
    /// There was no memory for it.
    Memory(io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(reason) => reason.fmt(formatter),
            Self::Refused(reason) => write!(formatter, "the module is refused: {reason}"),
            Self::Memory(error) => write!(formatter, "no memory for the module: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// Why an instance was not made.
#[derive(Debug)]
pub enum InstanceError {
    /// The kernel had no memory or no addresses.
    Memory(io::Error),
    /// Wasmtime's reason.
    Refused(String),
}

impl fmt::Display for InstanceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(error) => write!(formatter, "no memory for an instance: {error}"),
            Self::Refused(reason) => write!(formatter, "no instance: {reason}"),
        }
    }
}

impl std::error::Error for InstanceError {}

/// A loaded module. Workers share it; whoever drops it last unmaps the code, which control threads do.
pub struct Code {
    instances: InstancePre<Owner>,
    /// The names of its functions, sorted.
    functions: Box<[Box<str>]>,
    text: (usize, usize),
    heap_base: u32,
    /// The memory from [`DATA_START`] to the heap, as a fresh instance has it.
    image: Box<[u8]>,
}

impl Code {
    /// Loads what the compiler made, and makes one instance to copy its data. Some 100 us for a small module; takes
    /// locks that workers may wait for, so a control thread loads one module at a time.
    ///
    /// # Errors
    /// If [`start`](super::start) has not succeeded, the bytes or their imports or exports are not as they must be, or
    /// memory is short.
    ///
    /// # Safety
    /// The bytes are what our compiler made, on this machine, of a module that the builder's check admitted: they are
    /// machine code, and decide what their instances can do.
    pub unsafe fn load(bytes: &[u8], imports: &'static [Import]) -> Result<Self, LoadError> {
        let engine = engine::tested().map_err(LoadError::Unavailable)?;
        // SAFETY: the caller promises the same.
        unsafe { Self::load_into(engine, bytes, imports) }
    }

    /// Loads into an engine that may not be tested yet.
    ///
    /// # Safety
    /// As for [`Code::load`].
    pub(super) unsafe fn load_into(
        engine: &Engine,
        bytes: &[u8],
        imports: &'static [Import],
    ) -> Result<Self, LoadError> {
        // SAFETY: the caller promises that our compiler made them.
        let module = unsafe { Module::deserialize(engine, bytes) }.map_err(refused)?;
        let functions = functions_of(&module)?;
        let text = module.text().as_ptr_range();
        let instances = link(engine, &module, imports).map_err(refused)?;
        let mut code = Self {
            instances,
            functions,
            text: (text.start as usize, text.end as usize),
            heap_base: 0,
            image: Box::default(),
        };
        code.copy_data()?;
        Ok(code)
    }

    /// Returns the index of an exported function by the export's name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<usize> {
        self.functions.binary_search_by(|function| (**function).cmp(name)).ok()
    }

    /// Returns the address behind the module's data, from which on the memory is the host's.
    #[must_use]
    pub fn heap_base(&self) -> u32 {
        self.heap_base
    }

    /// Returns the bytes that the loaded module keeps in memory.
    #[must_use]
    pub fn code_bytes(&self) -> usize {
        let range = self.instances.module().image_range();
        range.end as usize - range.start as usize + self.image.len()
    }

    /// Returns the memory from [`DATA_START`] on as a fresh instance has it.
    pub(super) fn image(&self) -> &[u8] {
        &self.image
    }

    /// Returns what the handlers of signals must know while an instance with this memory runs.
    pub(super) fn bounds(&self, mapping: &MemoryMapping) -> ModuleBounds {
        ModuleBounds { code: self.text, memory: mapping.reach() }
    }

    /// Makes a store and an instance over `mapping`, which holds zeros and is used by nobody. Code of the module runs
    /// on this thread's stack meanwhile: it writes the data and the table, and nothing of the module's author.
    pub(super) fn instantiate(
        &self,
        mapping: &Arc<MemoryMapping>,
    ) -> Result<(ModuleStore, wasmtime::Instance), InstanceError> {
        let mut store = Store::new(self.instances.module().engine(), Owner { memory: mapping.memory() });
        store.limiter(|owner| owner);
        let bounds = self.bounds(mapping);
        let made =
            supply(mapping, || running::with_module(bounds, || self.instances.instantiate(&mut store)));
        let instance = made.map_err(|error| InstanceError::Refused(format!("{error:#}")))?;
        Ok((store, instance))
    }

    /// Returns the functions of an instance in the order of [`Code::function`].
    pub(super) fn functions_in(
        &self,
        store: &mut ModuleStore,
        instance: wasmtime::Instance,
    ) -> Result<Box<[Function]>, InstanceError> {
        let functions = self.functions.iter().map(|name| instance.get_typed_func(&mut *store, name));
        functions.collect::<Result<_, _>>().map_err(|error| InstanceError::Refused(format!("{error:#}")))
    }

    /// Reads the heap base and the data of a first instance.
    fn copy_data(&mut self) -> Result<(), LoadError> {
        let mapping = Arc::new(MemoryMapping::new().map_err(LoadError::Memory)?);
        let (mut store, instance) = self.instantiate(&mapping).map_err(|error| match error {
            InstanceError::Memory(error) => LoadError::Memory(error),
            InstanceError::Refused(reason) => LoadError::Refused(reason),
        })?;
        let heap_base = instance.get_global(&mut store, HEAP_BASE).map(|global| global.get(&mut store));
        let heap_base = heap_base.and_then(|value| value.i32()).map_or(0, i32::cast_unsigned);
        if !(DATA_START..=MODULE_MEMORY_BYTES).contains(&(heap_base as usize)) {
            return Err(LoadError::Refused(format!("its heap begins at {heap_base}")));
        }
        self.heap_base = heap_base;
        // SAFETY: the instance does not run, and its memory is this function's.
        self.image = unsafe { mapping.copy(DATA_START, heap_base as usize) };
        Ok(())
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = (&self.functions, self.heap_base);
        formatter.debug_struct("Code").field("functions", &names.0).field("heap_base", &names.1).finish()
    }
}

fn refused(error: wasmtime::Error) -> LoadError {
    LoadError::Refused(format!("{error:#}"))
}

/// Returns the sorted names of a module's functions, and refuses it if it exports anything but these, its memory and
/// its heap base.
fn functions_of(module: &Module) -> Result<Box<[Box<str>]>, LoadError> {
    let mut functions = Vec::new();
    let (mut has_memory, mut has_heap_base) = (false, false);
    for export in module.exports() {
        match (export.name(), export.ty()) {
            (MEMORY, ExternType::Memory(memory)) => has_memory = is_fixed(&memory),
            (HEAP_BASE, ExternType::Global(global)) => {
                has_heap_base =
                    global.content().is_i32() && global.mutability() == wasmtime::Mutability::Const;
            }
            (name, ExternType::Func(function)) => {
                let mut parameters = function.params();
                let mut results = function.results();
                let is_call = matches!(parameters.next(), Some(ValType::I32))
                    && matches!(results.next(), Some(ValType::I64))
                    && parameters.next().is_none()
                    && results.next().is_none();
                if !is_call {
                    return Err(LoadError::Refused(format!("{name} has another type than (i32) -> i64")));
                }
                functions.push(name.into());
            }
            (name, _) => return Err(LoadError::Refused(format!("it exports {name}"))),
        }
    }
    if !has_memory || !has_heap_base {
        let parts =
            format!("it does not export {MEMORY}, fixed to {MODULE_MEMORY_BYTES} bytes, and {HEAP_BASE}");
        return Err(LoadError::Refused(parts));
    }
    functions.sort_unstable();
    Ok(functions.into())
}

/// Returns whether a memory has the one size that memories have.
fn is_fixed(memory: &MemoryType) -> bool {
    let pages = MODULE_MEMORY_BYTES as u64 / memory.page_size();
    memory.minimum() == pages && memory.maximum() == Some(pages) && !memory.is_64() && !memory.is_shared()
}

/// Connects the module's imports, of which each must be one of `imports` with its type.
fn link(
    engine: &Engine,
    module: &Module,
    imports: &'static [Import],
) -> wasmtime::Result<InstancePre<Owner>> {
    let mut linker = Linker::new(engine);
    for import in imports {
        assert!(import.parameters.len() <= Import::PARAMETERS_MAX, "{} has too many parameters", import.name);
        let function = move |caller: Caller<'_, Owner>, values: &mut [MaybeUninit<ValRaw>]| {
            // SAFETY: Wasmtime calls this for a call of this import, with its arguments.
            unsafe { call(import, &caller.data().memory, values) }
        };
        let function_type = import.function_type(engine);
        // SAFETY: the function reads and writes values by the types of the import, which are those given here.
        unsafe { linker.func_new_unchecked(Import::MODULE, import.name, function_type, function)? };
    }
    linker.instantiate_pre(module)
}

/// Runs an import as a host call. This frame and its caller's own nothing while the stack may be parked.
///
/// # Safety
/// A module calls `import` on its stack: the values hold the arguments, and the memory is that module's.
#[inline]
unsafe fn call(import: &Import, memory: &Memory, values: &mut [MaybeUninit<ValRaw>]) -> wasmtime::Result<()> {
    // The first value becomes the result. The module wrote as many bytes of it as its type has; the others are whatever
    // was on the stack, and the module must not read it in the place of a result that the import did not write.
    if let Some(first) = values.first_mut() {
        let written = match import.parameters.first() {
            // SAFETY: the module wrote an argument of 32 bits.
            Some(Type::I32) => Some(ValRaw::u32(unsafe { first.assume_init_ref() }.get_u32())),
            Some(Type::I64 | Type::F64) => None,
            None => Some(ValRaw::u64(0)),
        };
        if let Some(written) = written {
            first.write(written);
        }
    }
    let values = ptr::from_mut(values) as *mut [Value];
    // SAFETY: a `Value` is a `ValRaw`, and all are written: there are as many as parameters, which the module wrote, or
    // one for the result, written above.
    let values = unsafe { &mut *values };
    // SAFETY: on the module's stack, below frames of Wasmtime that expect an error; imports neither panic nor leave, and
    // this one gets the values and the memory of its call.
    let ended = unsafe { running::host_call_of_module(|| (import.call)(memory, values)) };
    ended.map_err(|cause| wasmtime::Error::new(Ended(cause)))
}
