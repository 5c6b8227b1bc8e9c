//! Linear memories: 16 MiB of a mapping that covers every address which a module can form.
//!
//! ```text
//!   guard below │ 0 .. 16 MiB: the memory │ .. 4 GiB: faults │ .. 4 GiB + 32 MiB: faults
//! ```
//! A module's address has 32 bits, and a constant below the guard's size is added to it without a check. So no access
//! leaves the mapping, and one outside of the memory faults. The memory never grows and never moves.
//!
//! Wasmtime asks for a memory while it instantiates a module. It gets the one that [`supply`] put there for it: so the
//! instance owns the mapping and keeps it when it drops its store.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::slice;
use std::sync::Arc;

use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use super::settings::MEMORY_RESERVATION_BYTES;
use crate::limits::{MODULE_GUARD_BELOW_BYTES, MODULE_GUARD_BYTES, MODULE_MEMORY_BYTES};
use crate::region::{PAGE_BYTES, Region, ReservedRegion};

/// Where the module's own stack begins; it grows down to 0. The call block of the host follows it.
pub const STACK_TOP: usize = 65_408;

/// Where the module's data begins.
pub const DATA_START: usize = 65_536;

/// Bytes of 32-bit addresses.
pub(super) const ADDRESSABLE_BYTES: usize = MEMORY_RESERVATION_BYTES as usize;

const BEYOND_BYTES: usize = ADDRESSABLE_BYTES - MODULE_MEMORY_BYTES + MODULE_GUARD_BYTES;

/// A view of an instance's linear memory. The module changes it whenever it runs, so it is read and written through the
/// pointer, and never borrowed while the module may run.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    base: *mut u8,
}

impl Memory {
    /// Returns the address of the module's address 0. Valid as long as the instance lives.
    #[inline]
    #[must_use]
    pub fn base(self) -> *mut u8 {
        self.base
    }

    /// Returns the bytes of every linear memory.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        MODULE_MEMORY_BYTES
    }

    /// Returns the module's address of one of the process, if a 32-bit address and a small constant can make it.
    pub(super) fn offset_of(self, address: usize) -> Option<usize> {
        address
            .checked_sub(self.base as usize)
            .filter(|offset| *offset < ADDRESSABLE_BYTES + MODULE_GUARD_BYTES)
    }
}

/// The mapping of a linear memory.
#[derive(Debug)]
pub(super) struct MemoryMapping {
    reserved: ReservedRegion,
}

impl MemoryMapping {
    /// Maps a memory of zeros: three system calls.
    pub(super) fn new() -> io::Result<Self> {
        ReservedRegion::new(MODULE_MEMORY_BYTES, MODULE_GUARD_BELOW_BYTES, BEYOND_BYTES)
            .map(|reserved| Self { reserved })
    }

    fn region(&self) -> &Region {
        self.reserved.region()
    }

    pub(super) fn memory(&self) -> Memory {
        Memory { base: self.region().start().as_ptr() }
    }

    /// Returns the addresses that the module can form: start and end.
    pub(super) fn reach(&self) -> (usize, usize) {
        (self.region().start().as_ptr() as usize, self.reserved.end())
    }

    /// Makes the pages of `from..to` zeros, and gives them back to the kernel; `from` begins a page, and what lies outside
    /// of the memory is ignored. One system call.
    ///
    /// # Safety
    /// The module does not run, and nothing of those pages is borrowed.
    pub(super) unsafe fn discard(&self, from: usize, to: usize) -> io::Result<()> {
        let to = to.next_multiple_of(PAGE_BYTES).min(MODULE_MEMORY_BYTES);
        if from >= to {
            return Ok(());
        }
        // SAFETY: within the usable part of this mapping.
        let start = unsafe { self.region().start().as_ptr().add(from) }.cast();
        // SAFETY: as above; nothing of it is borrowed, as the caller promises.
        if unsafe { libc::madvise(start, to - from, libc::MADV_DONTNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sets `from..to` to zero; what lies outside of the memory is ignored.
    ///
    /// # Safety
    /// The module does not run, and nothing of that range is borrowed.
    pub(super) unsafe fn zero(&self, from: usize, to: usize) {
        let to = to.min(MODULE_MEMORY_BYTES);
        if from < to {
            // SAFETY: within the memory; the caller promises that nobody else uses it.
            unsafe { ptr::write_bytes(self.region().start().as_ptr().add(from), 0, to - from) };
        }
    }

    /// Copies `image` to `at`.
    ///
    /// # Safety
    /// As for [`MemoryMapping::zero`].
    pub(super) unsafe fn write(&self, at: usize, image: &[u8]) {
        assert!(at <= MODULE_MEMORY_BYTES && image.len() <= MODULE_MEMORY_BYTES - at, "within the memory");
        // SAFETY: within the memory, as just checked; the image is memory of the host.
        unsafe {
            ptr::copy_nonoverlapping(image.as_ptr(), self.region().start().as_ptr().add(at), image.len())
        };
    }

    /// Returns a copy of `from..to`, which lies within the memory.
    ///
    /// # Safety
    /// The module does not run.
    pub(super) unsafe fn copy(&self, from: usize, to: usize) -> Box<[u8]> {
        assert!(from <= to && to <= MODULE_MEMORY_BYTES, "within the memory");
        // SAFETY: within the memory, as just checked; nobody writes it meanwhile, as the caller promises.
        unsafe { slice::from_raw_parts(self.region().start().as_ptr().add(from), to - from) }.into()
    }

    /// Returns the bytes backed by pages now.
    pub(super) fn resident_bytes(&self) -> usize {
        self.region().resident_bytes()
    }
}

thread_local! {
    /// The memory for the instance that this thread makes.
    static SUPPLIED: Cell<Option<Arc<MemoryMapping>>> = const { Cell::new(None) };
}

/// Makes `mapping`, which holds zeros, the memory of the module that `work` instantiates on this thread.
pub(super) fn supply<R>(mapping: &Arc<MemoryMapping>, work: impl FnOnce() -> R) -> R {
    SUPPLIED.set(Some(Arc::clone(mapping)));
    let result = work();
    SUPPLIED.set(None);
    result
}

/// A memory in the hands of a store.
struct StoreMemory {
    mapping: Arc<MemoryMapping>,
}

// SAFETY: the mapping is page-aligned, accessible for `byte_size` bytes, faults on each other address of its reach, and
// lives as long as this value.
unsafe impl LinearMemory for StoreMemory {
    fn byte_size(&self) -> usize {
        MODULE_MEMORY_BYTES
    }

    fn byte_capacity(&self) -> usize {
        MODULE_MEMORY_BYTES
    }

    fn grow_to(&mut self, _: usize) -> wasmtime::Result<()> {
        wasmtime::bail!("a module's memory does not grow")
    }

    fn as_ptr(&self) -> *mut u8 {
        self.mapping.memory().base()
    }
}

/// Gives Wasmtime the memories that [`supply`] provides.
pub(super) struct SuppliedMemories;

// SAFETY: the memory returned has the size, the reservation and the guard that were asked for, and holds zeros, as
// `supply` asks of its callers. It is used by nobody else: `supply` is called once for each instance.
unsafe impl MemoryCreator for SuppliedMemories {
    fn new_memory(
        &self,
        _: MemoryType,
        minimum: usize,
        maximum: Option<usize>,
        reserved_bytes: Option<usize>,
        guard_bytes: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        if minimum != MODULE_MEMORY_BYTES || maximum != Some(MODULE_MEMORY_BYTES) {
            return Err(format!("the memory is not of {MODULE_MEMORY_BYTES} bytes, fixed"));
        }
        if reserved_bytes != Some(ADDRESSABLE_BYTES) || guard_bytes > MODULE_GUARD_BYTES {
            return Err("the module was compiled for another memory".to_owned());
        }
        let mapping = SUPPLIED.take().ok_or("the module has a second memory")?;
        Ok(Box::new(StoreMemory { mapping }))
    }
}
