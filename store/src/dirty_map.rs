//! Marks of the hashes of a table that were changed, for a thread that copies the table in use.
//!
//! ```text
//!   hashes of the table:   [ chunk │ chunk │ chunk │ ... ]      some objects each, all of one width
//!   marks:                     0       1       0
//!   writer, with the bucket: changes it, marks          copier: takes the mark, then reads the buckets
//! ```
//! A writer changes the bucket and then sets the mark, both before it unlocks. The copier takes the mark and then reads
//! the bucket without waiting for the lock, so any change that a copier misses is marked afterwards. A mark before the
//! change would be lost: a copier could take it and read the bucket while the writer has lost its core in between.
//! `index::locked::Changed` keeps that order: only a change returns it, and marking takes it.
//!
//! Marks are set only while a thread watches; a writer learns of that when its worker has passed a change that was made
//! after `Table::watch`, and not before. While no thread watches, a write costs one load.

use crate::hash_range::HashRange;
use crate::limits::{TOUCHED_CHUNKS_MAX, TOUCHED_CHUNKS_MIN, TOUCHED_OBJECTS_PER_CHUNK};
use crate::sync::{AtomicU64, Ordering};

/// The marks of one table, one per chunk of hashes.
pub(crate) struct DirtyMap {
    first: u64,
    /// A chunk has 2^`shift` hashes.
    shift: u32,
    marks: Box<[AtomicU64]>,
    watchers: AtomicU64,
}

impl DirtyMap {
    pub(crate) fn new(hashes: HashRange, objects: u64) -> DirtyMap {
        let chunks = (objects / TOUCHED_OBJECTS_PER_CHUNK).clamp(TOUCHED_CHUNKS_MIN, TOUCHED_CHUNKS_MAX);
        let width = hashes.last() - hashes.first();
        let shift = (0..63).find(|shift| width >> shift < chunks).unwrap_or(63);
        let words = (width >> shift) / 64 + 1;
        let marks = (0..words).map(|_| AtomicU64::new(0)).collect();
        DirtyMap { first: hashes.first(), shift, marks, watchers: AtomicU64::new(0) }
    }

    /// Adds a watcher.
    pub(crate) fn watch(&self) {
        self.watchers.fetch_add(1, Ordering::AcqRel);
    }

    /// Removes a watcher; returns how many there were.
    pub(crate) fn unwatch(&self) -> u64 {
        let before = self.watchers.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a watcher ends once");
        before
    }

    /// Takes the first mark at or after `from`, among the hashes `first` to `last`.
    pub(crate) fn take_next(&self, from: u64, (first, last): (u64, u64)) -> Option<(u64, u64)> {
        let chunk = self.marked(self.chunks(from.max(first), last)).next()?;
        self.take(chunk, (first, last));
        let (low, high) = self.bounds(chunk);
        debug_assert!(low <= last && first.max(from) <= high, "a chunk has some of the hashes");
        Some((low.max(first), high.min(last)))
    }

    /// Returns the number of marked chunks that lie within these hashes.
    pub(crate) fn count(&self, (first, last): (u64, u64)) -> u64 {
        let inside = |chunk: &u64| {
            let (low, high) = self.bounds(*chunk);
            low >= first && high <= last
        };
        self.marked(self.chunks(first, last)).filter(inside).count() as u64
    }

    /// Returns the number of chunks for these hashes.
    pub(crate) fn chunks_of(&self, hashes: HashRange) -> u64 {
        ((hashes.last() - hashes.first()) >> self.shift) + 1
    }

    /// Marks `hash`, if a thread watches.
    #[cold]
    pub(crate) fn mark(&self, hash: u64) {
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return;
        }
        // A damaged key may have a hash of another range.
        let chunk = hash.wrapping_sub(self.first) >> self.shift;
        let Some(word) = self.marks.get((chunk / 64) as usize) else { return };
        let bit = 1 << (chunk % 64);
        // Also if the bit is set: the exchange makes this writer's change visible to the thread that takes the mark.
        word.fetch_or(bit, Ordering::AcqRel);
    }

    /// Returns the chunks that have hashes from `first` to `last`.
    fn chunks(&self, first: u64, last: u64) -> std::ops::RangeInclusive<u64> {
        (first - self.first) >> self.shift..=(last - self.first) >> self.shift
    }

    /// Returns the first and last hash of a chunk.
    fn bounds(&self, chunk: u64) -> (u64, u64) {
        let first = self.first + (chunk << self.shift);
        (first, first.saturating_add((1 << self.shift) - 1))
    }

    /// Returns the marked ones among these chunks.
    fn marked(&self, chunks: std::ops::RangeInclusive<u64>) -> impl Iterator<Item = u64> {
        let (begin, end) = chunks.into_inner();
        (begin / 64..=end / 64).flat_map(move |word| {
            let rest = |marks: u64| (marks != 0).then_some(marks);
            let marks = self.marks[word as usize].load(Ordering::Relaxed);
            std::iter::successors(rest(marks), move |marks| rest(marks & (marks - 1)))
                .map(move |marks| word * 64 + u64::from(marks.trailing_zeros()))
                .filter(move |chunk| (begin..=end).contains(chunk))
        })
    }

    /// Takes the mark of a chunk if it lies within these hashes.
    fn take(&self, chunk: u64, (first, last): (u64, u64)) {
        let (low, high) = self.bounds(chunk);
        if low >= first && high <= last {
            self.marks[(chunk / 64) as usize].fetch_and(!(1 << (chunk % 64)), Ordering::AcqRel);
        }
    }
}
