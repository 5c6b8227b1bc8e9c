//! Work that waits to be done in the background; `background.rs` and `cleaner.rs` do it.
//!
//! No thread waits for a list: work is added without a lock, and a thread that removes work only tries the list's
//! lock.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cache::Cache;
use crate::limits::SURVIVOR_CLASSES;
use crate::log::Head;
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
    /// Ids of tables with room reserved for a large write, each once.
    pub(crate) evicting: Worklist<u32>,
    /// Tables that are being taken apart; locked by the thread that takes one apart.
    pub(crate) retiring: Exclusive<VecDeque<Arc<Table>>>,
    /// Keys that still have to leave the trees of ordered tables.
    pub(crate) leaving: Worklist<Leaving>,
    /// Tables with objects that expire; `expiry.rs` does the work.
    pub(crate) expiring: Worklist<ExpiryWalk>,
}

/// The progress of the removal of a table's expired objects.
pub(crate) struct ExpiryWalk {
    pub(crate) table: u32,
    /// Buckets of lower hashes are done.
    pub(crate) next_hash: u64,
    /// The earliest time to continue the walk.
    pub(crate) due_ms: u64,
    /// The time of its beginning.
    pub(crate) began_ms: u64,
    /// The earliest expiry among the remaining objects.
    pub(crate) earliest_ms: u64,
}

/// The cleaner's method for the chosen segments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Level {
    /// One segment to a run of exactly the length that it needs.
    Compaction,
    /// Several segments to fewer, survivors of similar age together.
    Combined,
    /// All segments of a window to another one, so that the window is one free run again.
    Evacuation,
}

/// The state of the cleaner.
pub(crate) struct Cleaner {
    pub(crate) level: Level,
    /// Segments that may be chosen.
    pub(crate) candidates: Candidates,
    /// The seglet at which the next search begins.
    pub(crate) looked_to: u32,
    /// Seglets searched since the last find.
    pub(crate) fruitless: u32,
    /// Whether the last search of the whole log found nothing.
    pub(crate) barren: bool,
    /// Chosen segments not yet begun, ordered by age.
    pub(crate) chosen: VecDeque<Chosen>,
    /// Segments that were walked through but are not all dead, with the tags of that moment.
    pub(crate) unsettled: VecDeque<(u64, SegmentId)>,
    pub(crate) source: Option<Source>,
    /// Heads for survivors of combined cleaning, the hottest first.
    pub(crate) survivors: [Head; SURVIVOR_CLASSES],
    /// Head for survivors of a compaction.
    pub(crate) compacted: Head,
    /// Head for survivors of an evacuation.
    pub(crate) evacuated: Head,
    /// The evacuated window, with its seglets that were free, as bits.
    pub(crate) window: Option<(u32, u32)>,
    /// Dead segments ordered by the tags under which they wait.
    pub(crate) pending_reclamation: VecDeque<(u64, SegmentId)>,
    /// Number of their seglets.
    pub(crate) pending_seglets: u64,
    /// Sixteenths of a byte to examine to free one byte, by the latest choice.
    pub(crate) price: u64,
}

/// A segment chosen for cleaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen {
    pub(crate) segment: SegmentId,
    /// Whether it was walked through before, and all pins of that time have ended.
    pub(crate) again: bool,
}

/// A segment that is being cleaned, with its progress.
pub(crate) struct Source {
    pub(crate) segment: SegmentId,
    pub(crate) again: bool,
    pub(crate) next: usize,
    pub(crate) end: usize,
    pub(crate) generation: u32,
    /// Live bytes at the beginning.
    pub(crate) live_bytes: usize,
    /// Class of the survivors' head.
    pub(crate) class: usize,
    /// Whether damaged bytes were found.
    pub(crate) damaged: bool,
    /// Whether another thread held a bucket for too long, so that a movable object may remain.
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
    /// Creates the state for a log of `seglets`, with `window_seglets` per window.
    pub(crate) fn new(seglets: u32, window_seglets: u32) -> Cleaner {
        Cleaner {
            level: Level::Combined,
            candidates: Candidates::new(),
            looked_to: 0,
            fruitless: 0,
            barren: false,
            // The maximum that can ever wait, so that the queues never allocate later.
            chosen: VecDeque::with_capacity(window_seglets as usize + crate::limits::CLEAN_SOURCES_MAX),
            unsettled: VecDeque::with_capacity(window_seglets as usize + crate::limits::CLEAN_SOURCES_MAX),
            source: None,
            survivors: Default::default(),
            compacted: Head::default(),
            evacuated: Head::default(),
            window: None,
            pending_reclamation: VecDeque::with_capacity(seglets as usize),
            pending_seglets: 0,
            price: 16,
        }
    }

    /// Returns the head for survivors of the source.
    pub(crate) fn head(&mut self, class: usize) -> &mut Head {
        match self.level {
            Level::Compaction => &mut self.compacted,
            Level::Combined => &mut self.survivors[class],
            Level::Evacuation => &mut self.evacuated,
        }
    }
}

impl Store {
    /// Notes that a table's index grows, so that it grows even without inserts.
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
