//! Memory that a core's commits, snapshots and walks use again and again, so that they allocate nothing once the core
//! has seen one as large.
//!
//! Only `commit.rs`, `read.rs` and those who walk through an index know what is in it; a core merely keeps it for them.

use crate::cursor::Placed;
use crate::index::{Location, Stamp};
use crate::lock_set::LockMemory;
use crate::log::Staged;
use crate::ordered::Entered;

/// See the file's head.
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
    /// Which writes of a commit have let their key enter the tree of its table.
    pub(crate) entered: Vec<Option<Entered>>,
    /// Inserts into each locked bucket.
    pub(crate) inserts: Vec<usize>,
    /// What a bucket leads to: tags and locations.
    pub(crate) entries: Vec<(u16, Location)>,
    /// The same in the order of an enumeration.
    pub(crate) placed: Vec<Placed>,
    /// What is known of objects that arrive: hash and checksum of the content, of sound ones.
    pub(crate) arriving: Vec<Option<(u64, u32)>>,
    /// For each quota with a limit: the first write under it, bytes that all of them write, bytes that they free.
    pub(crate) growths: Vec<(usize, u64, u64)>,
}
