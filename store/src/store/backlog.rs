//! What waits to be done in the background; `background.rs` and `cleaner.rs` do it.
//!
//! Nobody waits for a list: work is added without a lock, and who takes some off only tries to get hold of the list.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cache::Cache;
use crate::limits::SURVIVOR_CLASSES;
use crate::log::head::Head;
use crate::object::NEVER_MS;
use crate::ordered::Leaving;
use crate::segment::SegmentId;
use crate::store::Store;
use crate::store::candidates::Candidates;
use crate::sync::{Exclusive, Worklist};
use crate::table::Table;

/// Indexes and tables that wait for work.
pub(crate) struct Backlog {
    /// Ids of tables whose index grows.
    pub(crate) growing: Worklist<u32>,
    /// Ids of tables in which room is reserved for a large write, each once.
    pub(crate) evicting: Worklist<u32>,
    /// Tables that are being taken apart; held by whoever takes one apart.
    pub(crate) retiring: Exclusive<VecDeque<Arc<Table>>>,
    /// Keys that are still to leave the trees of ordered tables.
    pub(crate) leaving: Worklist<Leaving>,
    /// Tables with objects that expire; `expiry.rs` does the work.
    pub(crate) expiring: Worklist<ExpiryWalk>,
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

/// How the cleaner proceeds with what it has chosen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Level {
    /// One segment to a run of just the length that it needs.
    Compaction,
    /// Several segments to fewer, survivors of like age together.
    Combined,
    /// All segments of a window to another one, so that the window is one free run again.
    Evacuation,
}

/// What the cleaner has in hand.
pub(crate) struct Cleaner {
    pub(crate) level: Level,
    /// What may be chosen.
    pub(crate) candidates: Candidates,
    /// The seglet at which the next look for more begins.
    pub(crate) looked_to: u32,
    /// Seglets that were looked at since something was found.
    pub(crate) fruitless: u32,
    /// Nothing was found in all of the log when it was last looked at.
    pub(crate) barren: bool,
    /// What is chosen and not begun, in the order of its age.
    pub(crate) chosen: VecDeque<Chosen>,
    /// What was walked through and is not all dead, under the tags of that moment.
    pub(crate) unsettled: VecDeque<(u64, SegmentId)>,
    pub(crate) source: Option<Source>,
    /// Where survivors of combined cleaning go, the hottest first.
    pub(crate) survivors: [Head; SURVIVOR_CLASSES],
    /// Where those of a compaction go.
    pub(crate) compacted: Head,
    /// Where those of an evacuation go.
    pub(crate) evacuated: Head,
    /// The window that is evacuated, with those of its seglets that were free, as bits.
    pub(crate) window: Option<(u32, u32)>,
    /// Dead segments in order of the tags under which they wait.
    pub(crate) limbo: VecDeque<(u64, SegmentId)>,
    /// Seglets of those.
    pub(crate) limbo_seglets: u64,
    /// Sixteenths of a byte that have to be examined to free one, by what was chosen last.
    pub(crate) price: u64,
}

/// A segment that is to be cleaned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) segment: SegmentId,
    /// It was walked through before, and whoever was at work in it then has ended.
    pub(crate) again: bool,
}

/// A segment that is being cleaned, and how far.
pub(crate) struct Source {
    pub(crate) segment: SegmentId,
    pub(crate) again: bool,
    pub(crate) next: usize,
    pub(crate) end: usize,
    pub(crate) generation: u32,
    /// Bytes that lived when it was begun.
    pub(crate) live_bytes: usize,
    /// Which of the survivors' heads it goes to.
    pub(crate) class: usize,
    /// Bytes that were not what was written have been met.
    pub(crate) damaged: bool,
    /// A bucket was another thread's for too long, so that something may be left that could be taken away.
    pub(crate) busy: bool,
}

impl Backlog {
    pub(crate) fn new() -> Backlog {
        Backlog {
            growing: Worklist::new(),
            evicting: Worklist::new(),
            retiring: Exclusive::new(VecDeque::new()),
            leaving: Worklist::new(),
            expiring: Worklist::new(),
        }
    }
}

impl Cleaner {
    /// For a log of so many seglets, of which so many are a window.
    pub(crate) fn new(seglets: u32, window_seglets: u32) -> Cleaner {
        Cleaner {
            level: Level::Combined,
            candidates: Candidates::new(),
            looked_to: 0,
            fruitless: 0,
            barren: false,
            // As many as can ever wait, so that the queues allocate nothing later.
            chosen: VecDeque::with_capacity(window_seglets as usize + crate::limits::CLEAN_SOURCES_MAX),
            unsettled: VecDeque::with_capacity(window_seglets as usize + crate::limits::CLEAN_SOURCES_MAX),
            source: None,
            survivors: Default::default(),
            compacted: Head::default(),
            evacuated: Head::default(),
            window: None,
            limbo: VecDeque::with_capacity(seglets as usize),
            limbo_seglets: 0,
            price: 16,
        }
    }

    /// Where survivors of the source go.
    pub(crate) fn head(&mut self, class: usize) -> &mut Head {
        match self.level {
            Level::Compaction => &mut self.compacted,
            Level::Combined => &mut self.survivors[class],
            Level::Evacuation => &mut self.evacuated,
        }
    }
}

impl Store {
    /// Notes that the index of a table grows, so that it does even if nobody inserts.
    pub(crate) fn note_growing(&self, table: &Table) {
        self.backlog.growing.add(table.id());
    }

    /// Notes that a table makes room for a large write.
    pub(crate) fn note_evicting(&self, table: &Table, cache: &Cache) {
        if cache.note_evicting() {
            self.backlog.evicting.add(table.id());
        }
    }

    /// Notes that a table has objects that expire.
    #[cold]
    pub(crate) fn note_expiring(&self, table: &Table) {
        let (table, due_ms) = (table.id(), self.now_ms());
        let walk = ExpiryWalk { table, next_hash: 0, due_ms, began_ms: due_ms, earliest_ms: NEVER_MS };
        self.backlog.expiring.add(walk);
    }
}
