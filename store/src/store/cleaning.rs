//! Counters of the cleaner's work, and figures derived from them.

use crate::sync::{AtomicU64, Ordering};

/// The cleaner's counters.
#[derive(Default)]
pub(crate) struct Cleaning {
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
