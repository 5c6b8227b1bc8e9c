//! The part of a thread's record that concerns modules: which one runs, and Wasmtime's activations on its stack.
//!
//! Wasmtime keeps the head of the list of its activations in a word of the thread. They lie on the stack in use, so the
//! word changes with the stack: it is null on a fresh one, and goes with a stack that is parked. So does the address of a
//! trap. The handlers of signals read the bounds, which are atomic for the compiler's sake, like the rest of the record.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicUsize, compiler_fence};

use crate::stack::StackEntry;

/// Where a module's code lies and which memory is its own, each as start and end. The handlers of signals decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleBounds {
    /// The machine code, with the trampolines into it and out of it.
    pub code: (usize, usize),
    /// The reserved addresses of the linear memory, with the guards.
    pub memory: (usize, usize),
}

impl ModuleBounds {
    /// No module: native code runs.
    pub(super) const NONE: Self = Self { code: (0, 0), memory: (0, 0) };
}

/// The call of a module's function, to be passed to [`run_module`].
#[derive(Clone, Copy, Debug)]
pub struct ModuleEntry {
    /// The function that enters Wasmtime.
    pub entry: StackEntry,
    /// Its data.
    pub data: *mut c_void,
    /// The module that it enters.
    pub bounds: ModuleBounds,
}

/// The module of a stack that is parked or begins; none for native code.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParkedModule {
    bounds: ModuleBounds,
    activation: *mut u8,
    trap_address: usize,
}

impl ParkedModule {
    /// Native code, or nothing.
    const NONE: Self = Self::fresh(ModuleBounds::NONE);

    /// A module that is about to be entered.
    pub(super) const fn fresh(bounds: ModuleBounds) -> Self {
        Self { bounds, activation: ptr::null_mut(), trap_address: 0 }
    }

    /// Returns whether the stack holds an activation. Bit 0 is Wasmtime's mark of a thread that it knows.
    pub(super) fn has_activation(&self) -> bool {
        self.activation as usize & !1 != 0
    }
}

/// The module that runs on this thread.
#[derive(Debug)]
pub(super) struct ModuleState {
    code_start: AtomicUsize,
    /// 0 if no module runs.
    code_end: AtomicUsize,
    memory_start: AtomicUsize,
    memory_end: AtomicUsize,
    /// The head of Wasmtime's list of activations on the stack in use; null for an empty list.
    activation: Cell<*mut u8>,
    /// The address that the trap of this run hit; 0 if it was no access. Wasmtime's handler goes on in the module's code,
    /// where the stack may be parked before the address is read.
    trap_address: Cell<usize>,
    /// The module of the stack parked last.
    parked: Cell<ParkedModule>,
}

impl ModuleState {
    pub(super) const fn new() -> Self {
        Self {
            code_start: AtomicUsize::new(0),
            code_end: AtomicUsize::new(0),
            memory_start: AtomicUsize::new(0),
            memory_end: AtomicUsize::new(0),
            activation: Cell::new(ptr::null_mut()),
            trap_address: Cell::new(0),
            parked: Cell::new(ParkedModule::NONE),
        }
    }

    /// Returns the bounds of the module that runs; `None` for native code.
    #[inline]
    pub(super) fn bounds(&self) -> Option<ModuleBounds> {
        let code_end = self.code_end.load(Relaxed);
        (code_end != 0).then(|| ModuleBounds {
            code: (self.code_start.load(Relaxed), code_end),
            memory: (self.memory_start.load(Relaxed), self.memory_end.load(Relaxed)),
        })
    }

    /// Names the module that the thread enters or continues, and gives Wasmtime the activations of its stack.
    #[inline(always)]
    pub(super) fn begin(&self, module: ParkedModule) {
        debug_assert!(self.bounds().is_none(), "a module does not call another one");
        self.activation.set(module.activation);
        self.trap_address.set(module.trap_address);
        self.memory_start.store(module.bounds.memory.0, Relaxed);
        self.memory_end.store(module.bounds.memory.1, Relaxed);
        self.code_start.store(module.bounds.code.0, Relaxed);
        self.code_end.store(module.bounds.code.1, Relaxed);
        compiler_fence(SeqCst);
    }

    /// Takes both back. The activations of a stack that was parked are noted; those of a stack that was left are never
    /// used again.
    #[inline(always)]
    pub(super) fn end(&self) {
        compiler_fence(SeqCst);
        self.code_end.store(0, Relaxed);
        self.activation.set(ptr::null_mut());
    }

    /// Notes the module of the stack in use, which is about to be parked.
    pub(super) fn note_parked(&self) {
        let bounds = self.bounds().unwrap_or(ModuleBounds::NONE);
        let (activation, trap_address) = (self.activation.get(), self.trap_address.get());
        self.parked.set(ParkedModule { bounds, activation, trap_address });
    }

    /// Returns what was noted last.
    pub(super) fn parked(&self) -> ParkedModule {
        self.parked.get()
    }

    /// Returns whether the stack in use holds an activation.
    #[inline]
    pub(super) fn has_activation(&self) -> bool {
        self.activation.get() as usize & !1 != 0
    }

    pub(super) fn activation(&self) -> *mut u8 {
        self.activation.get()
    }

    pub(super) fn set_activation(&self, activation: *mut u8) {
        self.activation.set(activation);
    }

    pub(super) fn set_trap_address(&self, address: usize) {
        self.trap_address.set(address);
    }

    pub(super) fn trap_address(&self) -> usize {
        self.trap_address.get()
    }
}
