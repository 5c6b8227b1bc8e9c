//! Seglets: the units in which the log's memory is taken and given back, and which of them are free.
//!
//! ```text
//!   window (the bytes of a full segment)   [ ▒▒▒▒▒▒▒▒▒▒▒▒▒▒ │ ░░░░ │ ▒▒▒▒▒▒ │ ░░░░░░ ]    32 seglets, a bit each
//!                                            segment          free   segment   free
//! ```
//!
//! The region is a row of windows; a segment is a run of seglets within one window, as long as the window or shorter. So
//! a segment that was compacted takes what it needs and no more, objects lie in one piece (they are lent as slices, so
//! they cannot be cut as RAMCloud cuts them, TOCS'15 §4.4), and a window all of whose segments are emptied is a full run
//! again, whatever its neighbours are. Runs are taken from windows that are in use before another window is opened.
//!
//! Plain memory for one thread at a time; `segment.rs` has it behind a lock that is held for a few instructions.

use std::ops::Range;

/// Windows that are looked at for a run long enough before the longest seen so far is taken.
const WINDOWS_SEEN_MAX: usize = 1024;

/// Which seglets are free.
pub(crate) struct FreeSeglets {
    /// A bit for each seglet of a window.
    windows: Box<[u32]>,
    /// All bits of a window.
    whole: u32,
    window_seglets: u32,
    count: u32,
    /// Windows that are free as a whole.
    whole_count: u32,
    /// Where the next look for a run in windows that are in use begins.
    cursor: usize,
    /// No window below this one is free as a whole.
    whole_from: usize,
}

impl FreeSeglets {
    /// All seglets of so many windows of up to 32.
    pub(crate) fn new(windows: u32, window_seglets: u32) -> FreeSeglets {
        assert!((1..=u32::BITS).contains(&window_seglets));
        let whole = u32::MAX >> (u32::BITS - window_seglets);
        FreeSeglets {
            windows: (0..windows).map(|_| whole).collect(),
            whole,
            window_seglets,
            count: windows * window_seglets,
            whole_count: windows,
            cursor: 0,
            whole_from: 0,
        }
    }

    /// How many are free.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Whether there is a run of `least` seglets, with `windows_kept` whole windows left. Cost: a look at each window.
    pub(crate) fn has(&self, least: u32, windows_kept: u32) -> bool {
        let in_use = |&&bits: &&u32| bits != 0 && bits != self.whole;
        self.whole_count > windows_kept
            || self.windows.iter().filter(in_use).any(|&bits| longest_run(bits).1 >= least)
    }

    /// Takes a run of at least `least` and at most `most` seglets: from a window in use where there is one of a good
    /// length, else from the lowest window that is free as a whole if more than `windows_kept` are.
    pub(crate) fn take(&mut self, least: u32, most: u32, windows_kept: u32) -> Option<Range<u32>> {
        assert!(least >= 1 && least <= most);
        let good = most.min(least.max(self.window_seglets / 4));
        let (mut longest, mut place) = (least - 1, None);
        for seen in 0..self.windows.len().min(WINDOWS_SEEN_MAX) {
            let window = (self.cursor + seen) % self.windows.len();
            let bits = self.windows[window];
            if bits == 0 || bits == self.whole {
                continue;
            }
            let (start, length) = longest_run(bits);
            if length > longest {
                (longest, place) = (length, Some((window, start)));
            }
            if length >= good {
                break;
            }
        }
        if longest < good && self.whole_count > windows_kept {
            let from = &self.windows[self.whole_from..];
            let found = from.iter().position(|&bits| bits == self.whole).expect("one was counted");
            self.whole_from += found;
            (longest, place) = (self.window_seglets, Some((self.whole_from, 0)));
        }
        let (window, start) = place?;
        self.cursor = window;
        let first = window as u32 * self.window_seglets + start;
        let run = first..first + longest.min(most);
        let (window, bits) = self.bits_of(&run);
        self.mark_taken(window, bits);
        Some(run)
    }

    fn bits_of(&self, run: &Range<u32>) -> (u32, u32) {
        let window = run.start / self.window_seglets;
        let length = run.end - run.start;
        assert!(length >= 1 && (run.end - 1) / self.window_seglets == window, "a run lies in one window");
        (window, u32::MAX >> (u32::BITS - length) << (run.start % self.window_seglets))
    }

    fn mark_taken(&mut self, window: u32, bits: u32) {
        let free = &mut self.windows[window as usize];
        assert_eq!(*free & bits, bits, "what is taken was free");
        self.whole_count -= u32::from(*free == self.whole && bits != 0);
        *free &= !bits;
        self.count -= bits.count_ones();
    }

    /// Makes a run free.
    pub(crate) fn free(&mut self, run: &Range<u32>) {
        let (window, bits) = self.bits_of(run);
        self.restore(window, bits);
    }

    /// Takes all that is free of a window; returned as bits.
    pub(crate) fn withdraw(&mut self, window: u32) -> u32 {
        let bits = self.windows[window as usize];
        self.mark_taken(window, bits);
        bits
    }

    /// Makes seglets of a window free, given as bits.
    pub(crate) fn restore(&mut self, window: u32, bits: u32) {
        let free = &mut self.windows[window as usize];
        assert_eq!(*free & bits, 0, "what is freed was taken");
        *free |= bits;
        self.count += bits.count_ones();
        if *free == self.whole && bits != 0 {
            self.whole_count += 1;
            self.whole_from = self.whole_from.min(window as usize);
        }
    }
}

/// The longest run of ones: where it begins and its length.
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
        let mut free = FreeSeglets::new(3, 32);
        assert_eq!(free.take(1, 20, 1), Some(0..20));
        assert_eq!(free.take(1, 32, 1), Some(20..32));
        assert_eq!(free.take(1, 32, 1), Some(32..64));
        assert_eq!(free.take(1, 32, 1), None, "the last whole window is kept");
        assert_eq!(free.take(1, 32, 0), Some(64..96));
        assert_eq!(free.count(), 0);
    }

    #[test]
    fn an_emptied_window_is_whole_again() {
        let mut free = FreeSeglets::new(2, 16);
        let runs: Vec<_> = std::iter::from_fn(|| free.take(1, 5, 0)).collect();
        assert_eq!(runs, [0..5, 5..10, 10..15, 16..21, 21..26, 26..31, 31..32, 15..16]);
        for run in &runs[..3] {
            free.free(run);
        }
        assert_eq!((free.count(), free.whole_count), (15, 0));
        assert_eq!(free.take(16, 16, 0), None);
        free.free(&runs[7]);
        assert_eq!(free.whole_count, 1);
        assert_eq!(free.take(16, 16, 0), Some(0..16));
    }

    #[test]
    fn runs_taken_and_freed_at_random_never_overlap() {
        let mut random = fastrand::Rng::with_seed(crate::tests::seed("runs_taken_and_freed_at_random"));
        let mut free = FreeSeglets::new(8, 32);
        let mut taken = Vec::new();
        let mut owned = [false; 256];
        for _ in 0..crate::tests::budget(20_000) {
            let least = random.u32(1..8);
            if random.bool()
                && let Some(run) = free.take(least, random.u32(least..=32), random.u32(0..2))
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
            assert_eq!(free.whole_count as usize, whole);
        }
    }
}
