//! Memory that begins at a block's border, as transfers need it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use crate::BLOCK_BYTES;

/// Whole blocks of memory, zeros at first.
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory as a box does.
unsafe impl Send for Buffer {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes` zeros, rounded up to whole blocks.
    ///
    /// # Panics
    /// If `bytes` is 0.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        assert!(bytes > 0, "a buffer has blocks");
        let layout = Layout::from_size_align(bytes.next_multiple_of(BLOCK_BYTES), BLOCK_BYTES)
            .expect("a buffer is shorter than the address space");
        // SAFETY: the layout has bytes.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, layout }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated with this size, initialized with zeros, and borrowed as `self` is.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and not used after this.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Buffer").field("bytes", &self.layout.size()).finish()
    }
}
