//! The parts of tables that a server makes: their numbers in the store, and above what version they begin.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// See the file's head. Shared by the threads that make parts.
#[derive(Debug)]
pub struct PartsMade {
    next: AtomicU32,
    versions_above: AtomicU64,
}

impl PartsMade {
    /// None yet; whatever is written to those to come gets a version above this one.
    #[must_use]
    pub fn above(version: u64) -> Self {
        Self { next: AtomicU32::new(0), versions_above: AtomicU64::new(version) }
    }

    /// The number of the next part, which means something to this process alone.
    pub fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The version that parts begin above.
    #[must_use]
    pub fn versions_above(&self) -> u64 {
        self.versions_above.load(Ordering::Relaxed)
    }

    /// Parts to come begin above this version too.
    pub fn begin_above(&self, version: u64) {
        self.versions_above.fetch_max(version, Ordering::Relaxed);
    }
}
