//! What the cleaner has done, counted, and what that comes to.

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

/// Figures of the log's memory and of what cleaning it costs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanerStatistics {
    /// Bytes of the smallest unit in which the log's memory is taken.
    pub seglet_bytes: u64,
    /// Bytes of the log's memory that are free.
    pub free_bytes: u64,
    /// Bytes that writers must leave: the cleaner's reserve and what the indexes take.
    pub kept_bytes: u64,
    /// Bytes that wait for readers to become free.
    pub limbo_bytes: u64,
    /// Bytes of objects in full segments that nothing leads to any more.
    pub dead_bytes: u64,
    /// Bytes of objects that writers have written, up to their last steps of background work.
    pub written_bytes: u64,
    /// Bytes that the cleaner has looked at.
    pub examined_bytes: u64,
    /// Bytes that it has copied.
    pub copied_bytes: u64,
    /// Bytes of the segments that it has emptied, those that held nothing alive included.
    pub emptied_bytes: u64,
    /// Segments given a run of their own length.
    pub compactions: u64,
    /// Batches of segments that were cleaned together.
    pub combinations: u64,
    /// Windows emptied for the sake of a run in one piece.
    pub evacuations: u64,
    /// Writes that were told to come again, or that there is no memory.
    pub refusals: u64,
    /// Objects taken out of the index since their bytes were not what had been written.
    pub damaged_objects: u64,
    /// Segments left as they are, since they could not be emptied for such bytes.
    pub damaged_segments: u64,
}

impl CleanerStatistics {
    /// Bytes written to memory for each byte that a writer wrote, in hundredths: 100 without cleaning.
    pub fn write_amplification_percent(&self) -> u64 {
        100 + percent(self.copied_bytes, self.written_bytes)
    }

    /// Bytes copied for each byte that cleaning has made free, in hundredths.
    pub fn copied_per_freed_percent(&self) -> u64 {
        percent(self.copied_bytes, self.emptied_bytes.saturating_sub(self.copied_bytes))
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 100 / u128::from(whole.max(1))) as u64
}

impl Cleaning {
    /// The counters, as part of the figures.
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
