//! What waits to be done in the background; `background.rs` and `cleaner.rs` do it.
//!
//! Lists are behind locks that are only tried, so that no worker waits for another one's piece of work.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::log::Head;
use crate::object::NEVER_MS;
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
    /// Tables with objects that expire; `expiry.rs` does the work.
    pub(crate) expiring: Exclusive<VecDeque<ExpiryWalk>>,
}

/// How far the removal of a table's expired objects has come.
pub(crate) struct ExpiryWalk {
    pub(crate) table: u32,
    /// Buckets of hashes below are done.
    pub(crate) next_hash: u64,
    /// When the walk goes on; not before.
    pub(crate) due_ms: u64,
    /// When it began.
    pub(crate) began_ms: u64,
    /// The earliest expiry of what it has left.
    pub(crate) earliest_ms: u64,
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
        Backlog {
            growing: Exclusive::new(VecDeque::new()),
            retiring: Exclusive::new(VecDeque::new()),
            expiring: Exclusive::new(VecDeque::new()),
        }
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

    /// Notes that a table has objects that expire.
    #[cold]
    pub(crate) fn note_expiring(&self, table: &Table) {
        let (table, due_ms) = (table.id(), self.now_ms());
        let walk = ExpiryWalk { table, next_hash: 0, due_ms, began_ms: due_ms, earliest_ms: NEVER_MS };
        self.backlog.expiring.lock().push_back(walk);
    }
}
