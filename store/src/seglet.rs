//! Seglets: the units in which the log's memory is taken and given back, and the map of the free ones.
//!
//! ```text
//!   window (the bytes of a full segment)   [ ▒▒▒▒▒▒▒▒▒▒▒▒▒▒ │ ░░░░ │ ▒▒▒▒▒▒ │ ░░░░░░ ]    32 seglets, a bit each
//!                                            segment          free   segment   free
//! ```
//!
//! The region is a row of windows; a segment is a run of seglets within one window, as long as the window or shorter.
//! So a compacted segment takes only what it needs, objects are contiguous (they are lent as slices, so they cannot
//! be cut as RAMCloud cuts them, TOCS'15 §4.4), and a window whose segments are all emptied is a full run again,
//! whatever its neighbours are. Runs are taken from windows in use before another window is opened.
//!
//! There are no locks, since a thread that takes or frees may lose its core. A thread first subtracts seglets from
//! the count, which keeps the required rest, and then takes a run by a compare-and-swap of the window's bits. Counts
//! are signed: for a moment they may be too low.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::sync::{AtomicU32, AtomicU64};

/// Maximum windows searched for a run of a good length before the longest one so far is taken.
const WINDOWS_SEEN_MAX: usize = 1024;

/// The map of free seglets.
pub(crate) struct FreeSeglets {
    /// The free seglets of each window, as bits.
    windows: Box<[AtomicU32]>,
    /// All bits of a window.
    whole: u32,
    window_seglets: u32,
    count: Count,
    /// The number of entirely free windows.
    whole_count: Count,
    /// The window at which the next search for a run in windows in use begins.
    cursor: AtomicUsize,
    /// The window at which the next search for an entirely free window begins.
    whole_from: AtomicUsize,
}

/// The number of free items that no thread has reserved.
struct Count(AtomicU64);

impl Count {
    fn new(count: u64) -> Count {
        Count(AtomicU64::new(count))
    }

    #[inline]
    fn get(&self) -> u64 {
        at_least_0(self.0.load(Relaxed))
    }

    /// Adds items; returns the count after that.
    fn add(&self, more: u64) -> u64 {
        at_least_0(self.0.fetch_add(more, Relaxed).wrapping_add(more))
    }

    fn subtract(&self, less: u64) {
        self.0.fetch_sub(less, Relaxed);
    }

    /// Reserves up to `most` items so that `kept` remain. `None` if that would be fewer than `least`.
    fn reserve(&self, least: u64, most: u64, kept: u64) -> Option<u64> {
        let above = |count| at_least_0(count).saturating_sub(kept).min(most);
        let less = |count: u64| (above(count) >= least).then(|| count - above(count));
        self.0.fetch_update(Relaxed, Relaxed, less).ok().map(above)
    }
}

/// Returns the count, or 0 if it is negative.
#[inline]
fn at_least_0(count: u64) -> u64 {
    if count > i64::MAX as u64 { 0 } else { count }
}

impl FreeSeglets {
    /// Creates `windows` free windows of up to 32 seglets each.
    pub(crate) fn new(windows: u32, window_seglets: u32) -> FreeSeglets {
        assert!((1..=u32::BITS).contains(&window_seglets));
        let whole = u32::MAX >> (u32::BITS - window_seglets);
        FreeSeglets {
            windows: (0..windows).map(|_| AtomicU32::new(whole)).collect(),
            whole,
            window_seglets,
            count: Count::new(u64::from(windows * window_seglets)),
            whole_count: Count::new(u64::from(windows)),
            cursor: AtomicUsize::new(0),
            whole_from: AtomicUsize::new(0),
        }
    }

    /// Returns the number of free seglets.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Counts seglets as free. Each was subtracted before, so there are never more than all.
    fn count_free(&self, seglets: u64) {
        let free = self.count.add(seglets);
        let all = self.windows.len() as u64 * u64::from(self.window_seglets);
        debug_assert!(free <= all, "{free} of {all} seglets are free");
    }

    /// Counts a window as entirely free.
    fn count_whole(&self) {
        let whole = self.whole_count.add(1);
        debug_assert!(whole <= self.windows.len() as u64, "{whole} windows are free");
    }

    fn bits(&self, window: usize) -> u32 {
        self.windows[window].load(Relaxed)
    }

    /// Returns whether a window is partly free.
    fn is_in_use(&self, bits: u32) -> bool {
        bits != 0 && bits != self.whole
    }

    /// Returns whether there is a run of `least` seglets, with `windows_kept` whole windows left. Cost: a look at
    /// each window.
    pub(crate) fn has(&self, least: u32, windows_kept: u32) -> bool {
        let has_run = |bits| self.is_in_use(bits) && longest_run(bits).1 >= least;
        self.whole_count.get() > u64::from(windows_kept)
            || (0..self.windows.len()).any(|window| has_run(self.bits(window)))
    }

    /// Takes a run of `least` to `most` seglets, so that `keep` are left.
    ///
    /// It comes from a window in use if one has a run of a good length, otherwise from the lowest entirely free
    /// window if there are more than `windows_kept`.
    pub(crate) fn take(&self, least: u32, most: u32, keep: u64, windows_kept: u32) -> Option<Range<u32>> {
        assert!(least >= 1 && least <= most);
        let reserved = self.count.reserve(least.into(), most.into(), keep)?;
        let run = self.take_run(least, reserved as u32, windows_kept);
        self.count_free(reserved - run.as_ref().map_or(0, |run| u64::from(run.end - run.start)));
        debug_assert!(
            run.as_ref().is_none_or(|run| (least..=most).contains(&(run.end - run.start))),
            "a run is as long as was asked"
        );
        run
    }

    fn take_run(&self, least: u32, most: u32, windows_kept: u32) -> Option<Range<u32>> {
        let good = most.min(least.max(self.window_seglets / 4));
        // A turn repeats only if another thread was faster to change the window.
        loop {
            let longest = self.longest_in_use(least, good);
            let is_good = longest.is_some_and(|(_, (_, length))| length >= good);
            if !is_good
                && self.whole_count.reserve(1, 1, windows_kept.into()).is_some()
                && let Some(run) = self.take_of_whole(most)
            {
                return Some(run);
            }
            let (window, (start, length)) = longest?;
            let taken = start..start + length.min(most);
            let before = self.bits(window);
            if before != self.whole && self.exchange(window, before, &taken) {
                self.cursor.store(window, Relaxed);
                return Some(self.run_of(window, &taken));
            }
        }
    }

    /// Returns the window in use with the longest run seen, of at least `least` seglets, with the run's beginning and
    /// length. Stops at the first run of a good length.
    fn longest_in_use(&self, least: u32, good: u32) -> Option<(usize, (u32, u32))> {
        let cursor = self.cursor.load(Relaxed);
        let mut longest: Option<(usize, (u32, u32))> = None;
        for seen in 0..self.windows.len().min(WINDOWS_SEEN_MAX) {
            let window = (cursor + seen) % self.windows.len();
            let bits = self.bits(window);
            if !self.is_in_use(bits) {
                continue;
            }
            let run = longest_run(bits);
            if run.1 >= longest.map_or(least, |(_, (_, length))| length + 1) {
                longest = Some((window, run));
            }
            if run.1 >= good {
                break;
            }
        }
        longest
    }

    /// Takes a run of an entirely free window; the caller has reserved one.
    fn take_of_whole(&self, most: u32) -> Option<Range<u32>> {
        let taken = 0..most.min(self.window_seglets);
        let from = self.whole_from.load(Relaxed).min(self.windows.len());
        for window in (from..self.windows.len()).chain(0..from) {
            if self.exchange(window, self.whole, &taken) {
                self.whole_from.store(window, Relaxed);
                self.cursor.store(window, Relaxed);
                return Some(self.run_of(window, &taken));
            }
        }
        // The window was withdrawn.
        self.count_whole();
        None
    }

    /// Takes seglets of a window if its bits are still `bits`.
    fn exchange(&self, window: usize, bits: u32, taken: &Range<u32>) -> bool {
        debug_assert!(!taken.is_empty() && taken.end <= self.window_seglets, "a run lies in its window");
        let taken = bits_of(taken);
        bits & taken == taken
            && self.windows[window].compare_exchange(bits, bits & !taken, AcqRel, Relaxed).is_ok()
    }

    fn run_of(&self, window: usize, within: &Range<u32>) -> Range<u32> {
        let first = window as u32 * self.window_seglets;
        first + within.start..first + within.end
    }

    /// Frees a run.
    pub(crate) fn free(&self, run: &Range<u32>) {
        let window = run.start / self.window_seglets;
        assert!(!run.is_empty() && (run.end - 1) / self.window_seglets == window, "a run lies in one window");
        let first = window * self.window_seglets;
        self.restore(window, bits_of(&(run.start - first..run.end - first)));
    }

    /// Takes all free seglets of a window; returns them as bits.
    pub(crate) fn withdraw(&self, window: u32) -> u32 {
        let bits = self.windows[window as usize].swap(0, AcqRel);
        self.whole_count.subtract(u64::from(bits == self.whole));
        self.count.subtract(u64::from(bits.count_ones()));
        bits
    }

    /// Frees seglets of a window, given as bits.
    pub(crate) fn restore(&self, window: u32, bits: u32) {
        debug_assert_eq!(bits & !self.whole, 0, "the bits are seglets of the window");
        let before = self.windows[window as usize].fetch_or(bits, AcqRel);
        assert_eq!(before & bits, 0, "what is freed was taken");
        if before | bits == self.whole && bits != 0 {
            self.count_whole();
            self.whole_from.fetch_min(window as usize, Relaxed);
        }
        self.count_free(u64::from(bits.count_ones()));
    }
}

/// Returns the bits of a run of seglets.
fn bits_of(run: &Range<u32>) -> u32 {
    u32::MAX >> (u32::BITS - (run.end - run.start)) << run.start
}

/// Returns the beginning and length of the longest run of ones.
fn longest_run(bits: u32) -> (u32, u32) {
    let (mut starts, mut length) = (bits, 0);
    let mut start = 0;
    while starts != 0 {
        start = starts.trailing_zeros();
        starts &= starts >> 1;
        length += 1;
    }
    (start, length)
}

#[cfg(all(test, not(loom_model)))]
mod tests {
    use super::{FreeSeglets, longest_run};

    #[test]
    fn the_longest_run_of_bits_is_found() {
        assert_eq!(longest_run(0), (0, 0));
        assert_eq!(longest_run(u32::MAX), (0, 32));
        assert_eq!(longest_run(0b1110_0110_1111_0001), (4, 4));
        assert_eq!(longest_run(1 << 31), (31, 1));
    }

    #[test]
    fn windows_in_use_are_filled_before_another_is_opened() {
        let free = FreeSeglets::new(3, 32);
        assert_eq!(free.take(1, 20, 0, 1), Some(0..20));
        assert_eq!(free.take(1, 32, 0, 1), Some(20..32));
        assert_eq!(free.take(1, 32, 0, 1), Some(32..64));
        assert_eq!(free.take(1, 32, 0, 1), None, "the last whole window is kept");
        assert_eq!(free.take(1, 32, 0, 0), Some(64..96));
        assert_eq!(free.count(), 0);
    }

    #[test]
    fn an_emptied_window_is_whole_again() {
        let free = FreeSeglets::new(2, 16);
        let runs: Vec<_> = std::iter::from_fn(|| free.take(1, 5, 0, 0)).collect();
        assert_eq!(runs, [0..5, 5..10, 10..15, 16..21, 21..26, 26..31, 31..32, 15..16]);
        for run in &runs[..3] {
            free.free(run);
        }
        assert_eq!((free.count(), free.whole_count.get()), (15, 0));
        assert_eq!(free.take(16, 16, 0, 0), None);
        free.free(&runs[7]);
        assert_eq!(free.whole_count.get(), 1);
        assert_eq!(free.take(16, 16, 0, 0), Some(0..16));
    }

    #[test]
    fn runs_taken_and_freed_at_random_never_overlap() {
        let mut random = fastrand::Rng::with_seed(crate::tests::seed("runs_taken_and_freed_at_random"));
        let free = FreeSeglets::new(8, 32);
        let mut taken = Vec::new();
        let mut owned = [false; 256];
        for _ in 0..crate::tests::budget(20_000) {
            let least = random.u32(1..8);
            if random.bool()
                && let Some(run) = free.take(least, random.u32(least..=32), 0, random.u32(0..2))
            {
                let range = run.start as usize..run.end as usize;
                assert!(range.len() >= least as usize && owned[range.clone()].iter().all(|owned| !owned));
                owned[range].fill(true);
                taken.push(run);
            } else if !taken.is_empty() {
                let run = taken.swap_remove(random.usize(0..taken.len()));
                owned[run.start as usize..run.end as usize].fill(false);
                free.free(&run);
            }
            assert_eq!(free.count() as usize, owned.iter().filter(|owned| !**owned).count());
            let whole = owned.chunks(32).filter(|window| window.iter().all(|owned| !owned)).count();
            assert_eq!(free.whole_count.get() as usize, whole);
        }
    }
}
