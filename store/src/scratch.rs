//! Memory that a core's commits, snapshots and walks reuse, so that they allocate nothing once the core has executed
//! one of the same size.
//!
//! Only `commit.rs`, `read.rs` and the files that walk through an index use its content; a core merely keeps it for
//! them.

use crate::cursor::Placed;
use crate::index::{Location, Stamp};
use crate::lock_set::LockMemory;
use crate::log::Staged;
use crate::ordered::Entered;

/// Reusable memory of one core.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) stamps: Vec<Option<Stamp>>,
    pub(crate) locks: LockMemory,
    pub(crate) staged: Vec<Option<Staged>>,
    /// Writes by hash, to find those of one key.
    pub(crate) order: Vec<u32>,
    pub(crate) superseded: Vec<bool>,
    /// Writes of keys that are new.
    pub(crate) entering: Vec<u32>,
    /// Proofs that writes of a commit have entered their keys into the trees of their tables.
    pub(crate) entered: Vec<Option<Entered>>,
    /// Inserts into each locked bucket.
    pub(crate) inserts: Vec<usize>,
    /// Tags and locations of a bucket.
    pub(crate) entries: Vec<(u16, Location)>,
    /// The same in the order of an enumeration.
    pub(crate) placed: Vec<Placed>,
    /// Arriving objects: hash and checksum of the content, of sound ones.
    pub(crate) arriving: Vec<Option<(u64, u32)>>,
    /// For each quota with a limit: the first write under it, bytes that all of them write, bytes that they free.
    pub(crate) growths: Vec<(usize, u64, u64)>,
}
