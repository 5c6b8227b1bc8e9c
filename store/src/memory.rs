//! Memory from the operating system: zeroed, aligned, given back in part or whole.
//!
//! Large mappings come from `mmap` without reserve, aligned to 2 MiB if transparent huge pages are wanted; small ones
//! come from the allocator, so that a thousand small tables do not cost a page each. A mapping exposes only its base
//! pointer; `log.rs` and `index/generation.rs` decide which thread may touch which byte.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

/// Bytes of a huge page, the unit in which memory is given back.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Smaller requests than this go to the allocator.
const MAPPED_BYTES_MIN: usize = 64 << 10;
const ALIGNMENT: usize = 64;

/// A run of zeroed bytes, 64-byte aligned.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    mapped: bool,
}

// SAFETY: a mapping is an address range; it has no thread affinity. Accesses are governed by its owners.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Mapping` itself never reads or writes the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Allocates `bytes` zeroed bytes; huge pages are requested for the first `huge_bytes`. Large mappings are not
    /// yet backed by pages.
    pub(crate) fn new(bytes: usize, huge_bytes: usize) -> io::Result<Mapping> {
        assert!(bytes > 0 && huge_bytes <= bytes);
        if bytes >= MAPPED_BYTES_MIN && !cfg!(any(miri, loom_model)) {
            return Self::map(bytes, huge_bytes);
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(io::Error::other)?;
        // SAFETY: the layout has a size above zero.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        let base = base.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Mapping { base, bytes, mapped: false })
    }

    fn map(bytes: usize, huge_bytes: usize) -> io::Result<Mapping> {
        let bytes = bytes.next_multiple_of(HUGE_PAGE_BYTES);
        let reserved = bytes + HUGE_PAGE_BYTES;
        // SAFETY: a fresh anonymous mapping at an address chosen by the kernel touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                reserved,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        let head = start.align_offset(HUGE_PAGE_BYTES);
        let tail = HUGE_PAGE_BYTES - head;
        // SAFETY: `head` and `tail` lie inside the mapping just made and outside the aligned part that is kept.
        let base = unsafe {
            if head > 0 {
                libc::munmap(start.cast(), head);
            }
            let base = start.add(head);
            libc::munmap(base.add(bytes).cast(), tail);
            base
        };
        if huge_bytes > 0 {
            // SAFETY: the range lies in the new mapping; the advice changes no content. A refusal costs only speed.
            unsafe { libc::madvise(base.cast(), huge_bytes, libc::MADV_HUGEPAGE) };
        }
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Mapping { base, bytes, mapped: true })
    }

    /// Returns the first byte.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Backs the pages of `range` with memory now, without changing their content, so that the first write to them
    /// does not wait for the kernel to clear them. A kernel older than 5.14 refuses; small mappings are backed
    /// already.
    pub(crate) fn populate(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= self.bytes);
        if !self.mapped || range.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies in this mapping; populating changes no content, so other threads may use it meanwhile.
        let result = unsafe {
            let start = self.base.as_ptr().add(range.start).cast();
            libc::madvise(start, range.len(), libc::MADV_POPULATE_WRITE)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives the pages that lie wholly in `range` back to the system; they read as zero afterwards. Small mappings
    /// keep theirs. The content must no longer be in use.
    pub(crate) fn give_back(&self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= self.bytes);
        let start = range.start.next_multiple_of(4096);
        let end = range.end & !4095;
        if self.mapped && start < end {
            // SAFETY: the range lies in this mapping; the caller no longer needs its content.
            unsafe { libc::madvise(self.base.as_ptr().add(start).cast(), end - start, libc::MADV_DONTNEED) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: the range was mapped by `map`, and nothing refers to it after its owner's drop.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
        } else if let Ok(layout) = Layout::from_size_align(self.bytes, ALIGNMENT) {
            // SAFETY: allocated in `new` with the same layout.
            unsafe { dealloc(self.base.as_ptr(), layout) };
        }
    }
}

/// Bytes of a cache line.
pub(crate) const CACHE_LINE_BYTES: usize = 64;

/// Prefetches the cache lines of a value.
#[inline(always)]
pub fn prefetch_value<T>(value: &T) {
    let at = std::ptr::from_ref(value).cast::<u8>();
    (0..size_of::<T>()).step_by(CACHE_LINE_BYTES).for_each(|offset| prefetch(at.wrapping_add(offset)));
    prefetch(at.wrapping_add(size_of::<T>().saturating_sub(1)));
}

/// Prefetches `lines` cache lines from `address` on; any address is allowed.
#[inline(always)]
pub fn prefetch_lines(address: *const u8, lines: usize) {
    (0..lines).for_each(|line| prefetch(address.wrapping_add(line * CACHE_LINE_BYTES)));
}

/// Prefetches the cache line at `address`; any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and reads nothing the program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

/// Prefetches the cache line at `address` for writing, taking it from the core that wrote it last. Any address is
/// allowed.
#[inline(always)]
pub(crate) fn prefetch_for_write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults and changes nothing the program can see; processors without it do nothing.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
