//! What waits to be done in the background; `background.rs` and `cleaner.rs` do it.
//!
//! Lists are behind locks that are only tried, so that no worker waits for another one's piece of work.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::log::Head;
use crate::segment::SegmentId;
use crate::store::Store;
use crate::sync::Exclusive;
use crate::table::Table;

/// Indexes and tables that wait for work.
pub(crate) struct Backlog {
    /// Ids of tables whose index grows.
    pub(crate) growing: Exclusive<VecDeque<u32>>,
    /// Tables that are being taken apart; held by whoever takes one apart.
    pub(crate) retiring: Exclusive<VecDeque<Arc<Table>>>,
}

/// What the cleaner has in hand.
pub(crate) struct Cleaner {
    pub(crate) survivors: Head,
    pub(crate) source: Option<Source>,
    /// Dead segments in order of the tags under which they wait.
    pub(crate) limbo: VecDeque<(u64, SegmentId)>,
}

/// A segment that is being cleaned, and how far.
pub(crate) struct Source {
    pub(crate) segment: SegmentId,
    pub(crate) next: usize,
    pub(crate) end: usize,
}

impl Backlog {
    pub(crate) fn new() -> Backlog {
        Backlog { growing: Exclusive::new(VecDeque::new()), retiring: Exclusive::new(VecDeque::new()) }
    }
}

impl Cleaner {
    pub(crate) fn new(segments: u32) -> Cleaner {
        // As many as can ever wait, so that the queue allocates nothing later.
        let limbo = VecDeque::with_capacity(segments as usize);
        Cleaner { survivors: Head::default(), source: None, limbo }
    }
}

impl Store {
    /// Notes that the index of a table grows, so that it does even if nobody inserts.
    pub(crate) fn note_growing(&self, table: &Table) {
        self.backlog.growing.lock().push_back(table.id());
    }
}
