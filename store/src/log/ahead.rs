//! Requests of bytes of the log before they are read.

use crate::index::Location;
use crate::log::Log;
use crate::memory::{CACHE_LINE_BYTES, prefetch};
use crate::object::OBJECT_HEADER_BYTES;

impl Log {
    /// Prefetches three lines at `location`: the rest of the first, and 128 bytes after it.
    #[inline]
    pub(crate) fn prefetch(&self, location: Location) {
        let at = self.pointer(location.offset());
        prefetch(at);
        prefetch(at.wrapping_add(64));
        prefetch(at.wrapping_add(128));
    }

    /// Prefetches `bytes` bytes at `location`.
    #[inline]
    pub(crate) fn prefetch_bytes(&self, location: Location, bytes: usize) {
        let at = self.pointer(location.offset());
        let before = at.addr() % CACHE_LINE_BYTES;
        (0..before + bytes).step_by(CACHE_LINE_BYTES).for_each(|line| prefetch(at.wrapping_add(line)));
    }

    /// Prefetches header and key of the object at `location`, and the counter of its burial.
    #[inline]
    pub(crate) fn prefetch_replaced(&self, core: usize, location: Location, key_bytes: usize) {
        self.prefetch_key(location, key_bytes);
        self.segments.prefetch_bury(core, self.seglet_of(location));
    }

    /// Prefetches the header of the object at `location`.
    #[inline]
    pub(crate) fn prefetch_head(&self, location: Location) {
        prefetch(self.pointer(location.offset()));
    }

    /// Prefetches header and key of the object at `location`, with the beginning of its value.
    #[inline]
    pub(crate) fn prefetch_key(&self, location: Location, key_bytes: usize) {
        let at = self.pointer(location.offset());
        prefetch(at);
        prefetch(at.wrapping_add(OBJECT_HEADER_BYTES + key_bytes));
    }
}
