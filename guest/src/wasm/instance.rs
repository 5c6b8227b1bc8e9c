//! An instance of a module: its linear memory and its state, on one worker.
//!
//! Making one costs tens of microseconds, so it serves many invocations. Between two of them the memory is reset:
//! - [`Instance::reset_used`] zeroes what an invocation is known to have used, for code whose source was checked: safe
//!   Rust reaches nothing else. [`Instance::restore_data`] also undoes changes of statics.
//! - [`Instance::reset_all`] makes everything as in a new instance: memory, globals and the table of functions. It keeps
//!   the mapping alone. A module of unknown origin may keep words in globals, which only a new store forgets.
//!
//! A run that did not return leaves the module's state as it was in the middle (its stack pointer is a global): the
//! instance is *spent* and must be reset as a whole before it is entered again.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use super::code::{Code, InstanceError};
use super::entry::{Live, enter};
use super::memory::{DATA_START, Memory, MemoryMapping, STACK_TOP};
use crate::limits::MODULE_MEMORY_BYTES;
use crate::region::PAGE_BYTES;
use crate::running::ModuleEntry;
use crate::stack::{Cause, StackOutcome};

/// Bytes of the module's stack that each reset zeroes: what most functions use. Below 2 KiB the C library zeroes without
/// a string instruction, whose start costs more than the bytes.
const STACK_RESET_BYTES: usize = 1024;

/// An instance. Stays on its thread; may be made and dropped on a worker, which costs some 20 to 30 us.
pub struct Instance {
    code: Arc<Code>,
    mapping: Arc<MemoryMapping>,
    /// The store, behind a pointer because the frames of a parked run use it too; `None` after [`Instance::abandon`].
    live: Option<NonNull<Live>>,
    is_spent: bool,
    _stays_on_its_thread: PhantomData<*mut ()>,
}

impl Instance {
    /// Makes an instance with a memory of its own: 4 GiB of addresses, of which pages are backed when touched.
    ///
    /// # Errors
    /// If the kernel or the allocator has no memory.
    pub fn new(code: &Arc<Code>) -> Result<Self, InstanceError> {
        let mapping = Arc::new(MemoryMapping::new().map_err(InstanceError::Memory)?);
        let live = Some(make(code, &mapping)?);
        let code = Arc::clone(code);
        Ok(Self { code, mapping, live, is_spent: false, _stays_on_its_thread: PhantomData })
    }

    /// Returns the module.
    #[must_use]
    pub fn code(&self) -> &Arc<Code> {
        &self.code
    }

    /// Returns a view of the linear memory.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.mapping.memory()
    }

    /// Returns the call of a function by its index, with the argument of the export, to be run by
    /// [`run_module`](crate::running::run_module).
    ///
    /// # Panics
    /// If the instance is spent, or the module has no such function.
    #[inline]
    pub fn enter(&mut self, function: usize, call: u32) -> ModuleEntry {
        assert!(!self.is_spent, "a spent instance is reset before it is entered");
        let live = self.live.expect("an instance that is not spent has a store");
        {
            // SAFETY: this instance owns it, and no run uses it: a parked run is resumed, or its instance abandoned,
            // before the next entry.
            let live = unsafe { &mut *live.as_ptr() };
            assert!(function < live.functions.len(), "the module has this function");
            (live.function, live.argument, live.cause) = (function, call, None);
        }
        ModuleEntry { entry: enter, data: live.as_ptr().cast(), bounds: self.code.bounds(&self.mapping) }
    }

    /// Returns how a run ended: the function's code, or the cause. After a cause the instance is spent.
    ///
    /// # Errors
    /// The cause, if the function did not return.
    ///
    /// # Panics
    /// If the run was parked, and so has not ended.
    #[inline]
    pub fn outcome(&mut self, outcome: StackOutcome) -> Result<u64, Cause> {
        assert!(!outcome.is_parked(), "a parked run has not ended");
        if let Some(cause) = outcome.cause() {
            self.abandon();
            return Err(cause);
        }
        let live = self.live.expect("a run that returned has its store");
        // SAFETY: this instance owns it, and its run has ended.
        match unsafe { (*live.as_ptr()).cause } {
            None => Ok(outcome.value),
            Some(cause) => {
                self.is_spent = true;
                Err(cause)
            }
        }
    }

    /// Returns whether the instance must be [reset as a whole](Instance::reset_all) before it is entered again.
    #[inline]
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Drops the store, whose run was parked and is discarded, or left its stack. The mapping and its contents stay, and
    /// the instance is spent. Costs some microseconds; nothing if it was abandoned before.
    pub fn abandon(&mut self) {
        self.is_spent = true;
        if let Some(live) = self.live.take() {
            // SAFETY: `make` boxed it, and this instance owns it. Frames of a run that is never resumed do not use it.
            drop(unsafe { Box::from_raw(live.as_ptr()) });
        }
    }

    /// Zeroes the ranges of the memory that an invocation used (from, to), and the upper part of the module's stack.
    /// Of each range, whole pages behind the first `bytes_kept` go back to the kernel, up to the end of the range's last
    /// page, so ranges that are longer end a part of the memory. The module must not be running. Costs the time to write
    /// those bytes.
    ///
    /// # Errors
    /// The kernel's; then the instance is spent.
    pub fn reset_used(&mut self, used: &[(u32, u32)], bytes_kept: usize) -> Result<(), InstanceError> {
        // SAFETY: no run of this instance is in progress, and views of the memory are pointers.
        unsafe { self.mapping.zero(STACK_TOP - STACK_RESET_BYTES, STACK_TOP) };
        for (from, to) in used.iter().map(|(from, to)| (*from as usize, *to as usize)) {
            let kept = (from + bytes_kept).next_multiple_of(PAGE_BYTES);
            // SAFETY: as above.
            unsafe { self.mapping.zero(from, to.min(kept)) };
            if to > kept {
                // SAFETY: as above.
                let discarded = unsafe { self.mapping.discard(kept, to) };
                self.is_spent |= discarded.is_err();
                discarded.map_err(InstanceError::Memory)?;
            }
        }
        Ok(())
    }

    /// Makes the module's data as it was at first: the bytes from the data's start to the heap base. The module must not
    /// be running. Costs the time to copy those bytes.
    pub fn restore_data(&mut self) {
        // SAFETY: as in `reset_used`.
        unsafe { self.mapping.write(DATA_START, self.code.image()) };
    }

    /// Makes the instance as a new one, in its mapping.
    ///
    /// # Errors
    /// If there is no memory for a store; the instance is spent then.
    pub fn reset_all(&mut self) -> Result<(), InstanceError> {
        self.abandon();
        // SAFETY: the store is dropped, and views of the memory are pointers.
        unsafe { self.mapping.discard(0, MODULE_MEMORY_BYTES) }.map_err(InstanceError::Memory)?;
        self.live = Some(make(&self.code, &self.mapping)?);
        self.is_spent = false;
        Ok(())
    }

    /// Lets a spent instance whose store is whole be entered again, as the module's author would not like.
    #[cfg(test)]
    pub(crate) fn reuse(&mut self) {
        assert!(self.live.is_some());
        self.is_spent = false;
    }

    /// Returns the bytes of the memory that are backed by pages now: one system call.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        self.mapping.resident_bytes()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = self.memory();
        formatter.debug_struct("Instance").field("memory", &memory).field("is_spent", &self.is_spent).finish()
    }
}

/// Makes a store over a memory of zeros.
fn make(code: &Code, mapping: &Arc<MemoryMapping>) -> Result<NonNull<Live>, InstanceError> {
    let (mut store, instance) = code.instantiate(mapping)?;
    let functions = code.functions_in(&mut store, instance)?;
    let memory = mapping.memory();
    let live = Box::new(Live { store, functions, memory, function: 0, argument: 0, cause: None });
    // SAFETY: a box is never null.
    Ok(unsafe { NonNull::new_unchecked(Box::into_raw(live)) })
}
