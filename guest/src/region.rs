//! A range of virtual memory from the kernel: page-aligned, zeroed, backed by pages on first touch.
//!
//! Stacks and the memory of invocations are regions. A region never moves and never grows, so addresses in it stay
//! valid while it is mapped. An optional guard lies below the first byte and faults on access; the fault handler
//! detects a stack overflow by that. A [`ReservedRegion`] also has addresses above its last byte that fault.

use std::io;
use std::ptr::{self, NonNull};

/// Bytes of a kernel page. Huge pages do not matter here, because regions are small.
pub const PAGE_BYTES: usize = 4096;

/// Mapped memory, unmapped on drop.
#[derive(Debug)]
pub struct Region {
    mapping: NonNull<u8>,
    guard_bytes: usize,
    bytes: usize,
}

// SAFETY: a region owns its memory, and any thread may unmap it.
unsafe impl Send for Region {}
// SAFETY: a shared region tells addresses and sizes; what may be done with the memory is its users' matter.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `bytes` of memory above a guard of `guard_bytes`, both multiples of [`PAGE_BYTES`]. Two or three system
    /// calls; no page is touched.
    ///
    /// # Errors
    /// The kernel's error: out of address space, or too many mappings.
    pub fn new(bytes: usize, guard_bytes: usize) -> io::Result<Self> {
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES) && guard_bytes.is_multiple_of(PAGE_BYTES));
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh anonymous mapping at an address chosen by the kernel touches no existing memory.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes + guard_bytes, access, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping just made. If huge pages are enabled system-wide, the first byte of a region would
        // cost 2 MiB; a kernel without huge pages refuses, which is harmless.
        unsafe { libc::madvise(address, bytes + guard_bytes, libc::MADV_NOHUGEPAGE) };
        let mapping = NonNull::new(address.cast::<u8>()).expect("the kernel maps nothing at 0 unasked");
        let region = Self { mapping, guard_bytes, bytes };
        if guard_bytes > 0 {
            // SAFETY: the range is the lower part of the mapping just made, which is not used yet.
            let failed = unsafe { libc::mprotect(address, guard_bytes, libc::PROT_NONE) } != 0;
            if failed {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(region)
    }

    /// Returns the first usable byte; the guard lies below it.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: the mapping is `guard_bytes + bytes` long.
        unsafe { self.mapping.add(self.guard_bytes) }
    }

    /// Returns one past the last usable byte.
    #[must_use]
    pub fn end(&self) -> *mut u8 {
        // SAFETY: one past the end of the mapping.
        unsafe { self.start().as_ptr().add(self.bytes) }
    }

    /// Returns the usable bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the pages of `bytes` from `offset` to the kernel, rounded inwards. They read as zero afterwards. One
    /// system call, or none if the range contains no whole page.
    ///
    /// # Safety
    /// Nothing may be borrowed from that part of the region.
    pub unsafe fn discard(&self, offset: usize, bytes: usize) {
        let from = offset.next_multiple_of(PAGE_BYTES);
        let until = (offset + bytes).min(self.bytes) / PAGE_BYTES * PAGE_BYTES;
        if from >= until {
            return;
        }
        // SAFETY: `from..until` lies within the region.
        let address = unsafe { self.start().as_ptr().add(from) };
        // SAFETY: private anonymous memory of this region, of which nothing is borrowed, as the caller
        // promises. A refusal leaves the pages as they are, which costs memory and is otherwise harmless.
        unsafe { libc::madvise(address.cast(), until - from, libc::MADV_DONTNEED) };
    }

    /// Returns the bytes backed by pages now, as reported by the kernel in a system call.
    ///
    /// # Panics
    /// If the kernel does not know the mapping.
    #[must_use]
    pub fn resident_bytes(&self) -> usize {
        let mut pages = vec![0_u8; self.bytes / PAGE_BYTES];
        let address = self.start().as_ptr().cast();
        // SAFETY: the region is mapped, and there is a byte for each of its pages.
        let failed = unsafe { libc::mincore(address, self.bytes, pages.as_mut_ptr()) };
        assert_eq!(failed, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 != 0).count() * PAGE_BYTES
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping and ends here. Unmapping an existing mapping cannot fail.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.guard_bytes + self.bytes) };
    }
}

/// A region below addresses that fault on access and belong to nothing else: the linear memory of a module.
#[derive(Debug)]
pub struct ReservedRegion {
    region: Region,
    beyond_bytes: usize,
}

impl ReservedRegion {
    /// Maps `bytes` of memory above a guard of `guard_bytes` and below `beyond_bytes` of addresses, all multiples of
    /// [`PAGE_BYTES`]. Three system calls; no page is touched.
    ///
    /// # Errors
    /// The kernel's error: out of address space, or too many mappings.
    pub fn new(bytes: usize, guard_bytes: usize, beyond_bytes: usize) -> io::Result<Self> {
        assert!(
            bytes > 0
                && [bytes, guard_bytes, beyond_bytes].iter().all(|part| part.is_multiple_of(PAGE_BYTES))
        );
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let all = guard_bytes + bytes + beyond_bytes;
        // SAFETY: a fresh anonymous mapping at an address chosen by the kernel touches no existing memory.
        let address = unsafe { libc::mmap(ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(address.cast::<u8>()).expect("the kernel maps nothing at 0 unasked");
        let reserved = Self { region: Region { mapping, guard_bytes, bytes }, beyond_bytes };
        let start = reserved.region.start().as_ptr().cast();
        // SAFETY: the middle of the mapping just made, which is not used yet.
        if unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above; for the reason given for regions.
        unsafe { libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE) };
        Ok(reserved)
    }

    /// Returns the usable memory.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns one past the last address that belongs to this region and faults.
    #[must_use]
    pub fn end(&self) -> usize {
        self.region.end() as usize + self.beyond_bytes
    }
}

impl Drop for ReservedRegion {
    fn drop(&mut self) {
        // SAFETY: the upper part of the mapping that `new` made, which this value owns; the region unmaps the rest.
        unsafe { libc::munmap(self.region.end().cast(), self.beyond_bytes) };
    }
}
