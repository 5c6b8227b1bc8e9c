//! The cleaner's state and its counters, which a store keeps for `cleaner.rs`: the segments in hand, the heads for the
//! survivors, the segments that it may choose next.
//!
//! One core at a time has the state, by a lock that is only tried. The counters are atomics, so that any thread reads
//! the figures derived from them.

use std::collections::VecDeque;

use crate::durable::OnDisk;
use crate::limits::{CLEAN_CANDIDATES_MAX, CLEAN_SOURCES_MAX, SURVIVOR_CLASSES};
use crate::log::{Head, Role};
use crate::segment::SegmentId;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

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
    pub(crate) unsettled: VecDeque<(u64, Chosen)>,
    /// Numbers of empty segments that the disk may forget once no other is half moved to heads of survivors.
    pub(crate) released: Vec<u32>,
    pub(crate) source: Option<Source>,
    /// Heads for survivors of combined cleaning, the hottest first.
    pub(crate) survivors: [Head; SURVIVOR_CLASSES],
    /// The same for those of durable segments.
    pub(crate) durable_survivors: [Head; SURVIVOR_CLASSES],
    /// The segments that a replay would find.
    pub(crate) on_disk: OnDisk,
    /// Whether a recovery is going on. Then objects of durable segments keep their segments' numbers, by which entries yet
    /// to come may name them as what they end.
    pub(crate) recovering: bool,
    /// Whether what is being emptied, which cannot be given up, may take the memory kept for evacuations: it found no other.
    pub(crate) takes_reserve: bool,
    /// Head for survivors of a compaction.
    pub(crate) compacted: Head,
    /// Head for survivors of an evacuation.
    pub(crate) evacuated: Head,
    /// The evacuated window, with its seglets that were free, as bits.
    pub(crate) window: Option<(u32, u32)>,
    /// Whether a segment on the disk cannot be emptied, because its bytes in memory are damaged, though some of its objects
    /// have moved: until the next start the disk forgets nothing, so that it has each object once.
    pub(crate) forgets_nothing: bool,
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
    /// Whether objects of a durable segment have moved to heads of survivors, so that all must go there.
    pub(crate) combined: bool,
}

/// A segment that is being cleaned, with its progress.
pub(crate) struct Source {
    pub(crate) segment: SegmentId,
    /// Its number on the disk; 0 if it stays in memory.
    pub(crate) sequence: u32,
    pub(crate) disk_bytes: u32,
    pub(crate) level: Level,
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

impl Cleaner {
    /// Creates the state for a log of `seglets`, with `window_seglets` per window, for so many cores.
    pub(crate) fn new(seglets: u32, window_seglets: u32, cores: usize) -> Cleaner {
        Cleaner {
            level: Level::Combined,
            candidates: Candidates::new(),
            looked_to: 0,
            fruitless: 0,
            barren: false,
            // The maximum that can ever wait, so that the queues never allocate later.
            chosen: VecDeque::with_capacity(window_seglets as usize + CLEAN_SOURCES_MAX),
            unsettled: VecDeque::with_capacity(window_seglets as usize + CLEAN_SOURCES_MAX),
            source: None,
            survivors: Default::default(),
            durable_survivors: std::array::from_fn(|class| Head::new(Role::Writer(cores + class))),
            on_disk: OnDisk::default(),
            recovering: false,
            takes_reserve: false,
            released: Vec::new(),
            compacted: Head::default(),
            evacuated: Head::default(),
            window: None,
            forgets_nothing: false,
            pending_reclamation: VecDeque::with_capacity(seglets as usize),
            pending_seglets: 0,
            price: 16,
        }
    }

    /// Returns true if something begun is left for a later step.
    pub(crate) fn has_in_hand(&self) -> bool {
        let has_sources = self.source.is_some() || !self.chosen.is_empty() || !self.unsettled.is_empty();
        has_sources || !self.pending_reclamation.is_empty() || self.window.is_some()
    }

    /// Returns whether objects of a durable segment have begun to move to heads of survivors, and not all have.
    pub(crate) fn is_combining(&self) -> bool {
        let source = self.source.as_ref().is_some_and(Source::is_combined);
        let chosen = self.chosen.iter().chain(self.unsettled.iter().map(|(_, chosen)| chosen));
        source || chosen.into_iter().any(|chosen| chosen.combined)
    }

    /// Returns the head for survivors of the source.
    pub(crate) fn head(&mut self, source: &Source) -> &mut Head {
        match (source.level, source.sequence) {
            (Level::Combined, 0) => &mut self.survivors[source.class],
            (Level::Combined, _) => &mut self.durable_survivors[source.class],
            (Level::Evacuation, 0) => &mut self.evacuated,
            (Level::Compaction, 0) => with_role(&mut self.compacted, Role::Memory),
            (Level::Compaction | Level::Evacuation, sequence) => {
                let head = with_role(&mut self.compacted, Role::Compaction(sequence));
                head.disk_bytes = source.disk_bytes;
                head
            }
        }
    }
}

impl Source {
    /// Returns whether its objects move to the heads of survivors that go to the disk.
    pub(crate) fn is_combined(&self) -> bool {
        self.level == Level::Combined && self.sequence != 0
    }
}

/// Returns the head of compactions, which is closed after each source.
fn with_role(head: &mut Head, role: Role) -> &mut Head {
    debug_assert!(!head.is_open() || head.role == role, "a head of compactions serves one source");
    head.role = role;
    head
}

/// Segments that the cleaner may choose, the best first: a bounded list with their scores.
///
/// Looking at all segments takes milliseconds in a large memory, so a choice looks at a part of them
/// (`cleaner/choice.rs`). The segments that are not chosen are kept for the next choice, which weighs them again:
/// their dead bytes grow and they get older. Sampling with such a memory comes near to the best of all (Mitzenmacher,
/// Prabhakar and Shah, "Load balancing with memory", 2002).
pub(crate) struct Candidates {
    weighed: [(f64, SegmentId); CLEAN_CANDIDATES_MAX],
    count: usize,
}

impl Candidates {
    pub(crate) fn new() -> Candidates {
        Candidates { weighed: [(0.0, SegmentId(0)); CLEAN_CANDIDATES_MAX], count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Inserts a segment by its score, if it is already listed or good enough.
    pub(crate) fn offer(&mut self, score: f64, segment: SegmentId) {
        debug_assert!(score.is_finite(), "scores have an order");
        let held = &mut self.weighed[..self.count];
        if held.len() == CLEAN_CANDIDATES_MAX && held.last().is_some_and(|&(worst, _)| score <= worst) {
            return;
        }
        if let Some(again) = held.iter().position(|&(_, other)| other == segment) {
            held[again..].rotate_left(1);
            self.count -= 1;
        }
        let place = self.weighed[..self.count].partition_point(|&(better, _)| better >= score);
        if place < CLEAN_CANDIDATES_MAX {
            self.count = (self.count + 1).min(CLEAN_CANDIDATES_MAX);
            self.weighed[place..self.count].rotate_right(1);
            self.weighed[place] = (score, segment);
        }
        debug_assert!(
            self.weighed[..self.count].is_sorted_by(|(better, _), (worse, _)| better >= worse),
            "the best is the first"
        );
    }

    /// Removes and returns the best.
    pub(crate) fn take_best(&mut self) -> Option<SegmentId> {
        let &(_, best) = self.weighed[..self.count].first()?;
        self.weighed[..self.count].rotate_left(1);
        self.count -= 1;
        Some(best)
    }

    /// Removes all, to be weighed again.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = SegmentId> + use<> {
        let count = std::mem::take(&mut self.count);
        self.weighed.into_iter().take(count).map(|(_, segment)| segment)
    }
}

/// The cleaner's counters, and whether it has something in hand.
#[derive(Default)]
pub(crate) struct Cleaning {
    /// Whether the last step left something begun: [`Cleaner::has_in_hand`].
    pub(crate) in_hand: AtomicBool,
    /// Segments that become free as soon as no reader can see them.
    pub(crate) retired: AtomicU64,
    /// Bytes that must have been buried in all or be free, besides those that writers ask for and leave, before cleaning can
    /// bring memory: as of the last look at all segments.
    pub(crate) lost_bytes: AtomicU64,
    pub(crate) examined_bytes: AtomicU64,
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) emptied_bytes: AtomicU64,
    pub(crate) segments_cleaned: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) combinations: AtomicU64,
    pub(crate) evacuations: AtomicU64,
    pub(crate) refusals: AtomicU64,
    pub(crate) damaged_objects: AtomicU64,
    pub(crate) damaged_entries: AtomicU64,
    pub(crate) damaged_segments: AtomicU64,
}

/// Figures of the log's memory and of the cost of cleaning it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanerStatistics {
    /// Bytes of a seglet, the smallest unit of the log's memory.
    pub seglet_bytes: u64,
    /// Free bytes of the log's memory.
    pub free_bytes: u64,
    /// Bytes that writers must leave: the cleaner's reserve and the bytes of the indexes.
    pub kept_bytes: u64,
    /// Bytes that wait for readers before they become free.
    pub pending_reclamation_bytes: u64,
    /// Bytes of unreachable objects in full segments.
    pub dead_bytes: u64,
    /// Bytes of objects that writers have written, up to their last steps of background work.
    pub written_bytes: u64,
    /// Bytes that the cleaner has examined.
    pub examined_bytes: u64,
    /// Bytes that the cleaner has copied.
    pub copied_bytes: u64,
    /// Bytes of the emptied segments, including those without live objects.
    pub emptied_bytes: u64,
    /// Segments moved to a run of their own length.
    pub compactions: u64,
    /// Batches of segments that were cleaned together.
    pub combinations: u64,
    /// Windows emptied to obtain a contiguous run.
    pub evacuations: u64,
    /// Writes refused with a retry or for lack of memory.
    pub refusals: u64,
    /// Objects removed from the index because their bytes were damaged.
    pub damaged_objects: u64,
    /// Segments set aside because damaged bytes prevented their emptying.
    pub damaged_segments: u64,
}

impl CleanerStatistics {
    /// Returns the bytes written to memory per byte of writers, in hundredths: 100 without cleaning.
    pub fn write_amplification_percent(&self) -> u64 {
        100 + percent(self.copied_bytes, self.written_bytes)
    }

    /// Returns the bytes copied per byte freed by cleaning, in hundredths.
    pub fn copied_per_freed_percent(&self) -> u64 {
        percent(self.copied_bytes, self.emptied_bytes.saturating_sub(self.copied_bytes))
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(whole.max(1))) as u64
}

impl Cleaning {
    /// Returns the counters as statistics.
    pub(crate) fn counted(&self) -> CleanerStatistics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CleanerStatistics {
            examined_bytes: read(&self.examined_bytes),
            copied_bytes: read(&self.copied_bytes),
            emptied_bytes: read(&self.emptied_bytes),
            compactions: read(&self.compactions),
            combinations: read(&self.combinations),
            evacuations: read(&self.evacuations),
            refusals: read(&self.refusals),
            damaged_objects: read(&self.damaged_objects) + read(&self.damaged_entries),
            damaged_segments: read(&self.damaged_segments),
            ..CleanerStatistics::default()
        }
    }
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::Candidates;
    use crate::limits::CLEAN_CANDIDATES_MAX;
    use crate::segment::SegmentId;

    #[test]
    fn the_best_are_kept_and_each_once() {
        let mut candidates = Candidates::new();
        for round in 0..2 {
            for number in 0..100 {
                candidates.offer(f64::from(number * 37 % 100 + round), SegmentId(number));
            }
        }
        let mut taken: Vec<_> =
            std::iter::from_fn(|| candidates.take_best()).map(|id| id.0 * 37 % 100).collect();
        assert_eq!(taken.len(), CLEAN_CANDIDATES_MAX);
        assert!(taken.is_sorted_by(|a, b| a > b) && taken[0] == 99, "{taken:?}");
        taken.dedup();
        assert_eq!(taken.len(), CLEAN_CANDIDATES_MAX, "each once");
        assert!(candidates.is_empty());
    }
}
