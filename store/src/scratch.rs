//! Memory that a core's commits and snapshots use again and again, so that they allocate nothing once the core
//! has seen one as large.
//!
//! Only `commit.rs` and `read.rs` know what is in it; a core merely keeps it for them.

use crate::index::Stamp;
use crate::lock_set::LockMemory;
use crate::log::Staged;

/// See the file's head.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) stamps: Vec<Option<Stamp>>,
    pub(crate) locks: LockMemory,
    pub(crate) staged: Vec<Option<Staged>>,
    /// Writes by hash, to find those of one key.
    pub(crate) order: Vec<u32>,
    pub(crate) superseded: Vec<bool>,
    /// Inserts into each locked bucket.
    pub(crate) inserts: Vec<usize>,
    /// For each quota with a limit: the first write under it, bytes that all of them write, bytes that they free.
    pub(crate) growths: Vec<(usize, u64, u64)>,
}
