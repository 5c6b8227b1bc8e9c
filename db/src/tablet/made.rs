//! The numbers and first versions of the table parts that a server creates.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The counters for new parts, shared by the threads that create them.
#[derive(Debug)]
pub struct PartsMade {
    next: AtomicU32,
    versions_above: AtomicU64,
}

impl PartsMade {
    /// Creates counters; writes to later parts get versions above `version`.
    #[must_use]
    pub fn above(version: u64) -> Self {
        Self { next: AtomicU32::new(0), versions_above: AtomicU64::new(version) }
    }

    /// Returns the number of the next part, which is valid only in this process.
    pub fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the version that parts begin above.
    #[must_use]
    pub fn versions_above(&self) -> u64 {
        self.versions_above.load(Ordering::Relaxed)
    }

    /// Makes later parts begin above this version too.
    pub fn begin_above(&self, version: u64) {
        self.versions_above.fetch_max(version, Ordering::Relaxed);
    }
}
