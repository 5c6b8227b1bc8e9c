//! What writers may take of the log's memory, what they have to leave, and what they wait for.
//!
//! A writer that finds no room notes how many seglets it needs in one piece; the cleaner takes that off when it is there,
//! or says that it cannot be had (`cleaner/choice.rs`). Both are hints between threads, read and written relaxed: a lost
//! one costs a try more.

use std::sync::atomic::Ordering::Relaxed;

use crate::limits::{HEAD_SHARE_DIVISOR, RESERVE_DIVISOR, RESERVE_WINDOWS, RUN_OBJECTS};
use crate::log::Log;
use crate::segment::Claim;

impl Log {
    /// What a writer may take that needs `bytes` and has to leave `keep` seglets.
    pub(crate) fn claim_of_writer(&self, bytes: usize, keep: u64) -> Claim {
        let least = self.seglets_for(bytes);
        let share = self.segments.free_count().saturating_sub(keep) / HEAD_SHARE_DIVISOR;
        let window = u64::from(self.segments.window_seglets());
        let most = share.max(u64::from(least) * u64::from(RUN_OBJECTS)).min(window) as u32;
        Claim { least, most, keep, windows_kept: RESERVE_WINDOWS }
    }

    /// Seglets in one piece that a writer waits for, 0 without one.
    pub(crate) fn wanted(&self) -> u32 {
        self.wanted.load(Relaxed)
    }

    /// Notes that a writer could not have so many seglets in one piece, or that nobody waits any more.
    pub(crate) fn set_wanted(&self, seglets: u32) {
        self.wanted.store(seglets, Relaxed);
    }

    /// Notes that the cleaner could not bring so many seglets in one piece, or that it could.
    pub(crate) fn set_refused(&self, seglets: u32) {
        self.refused.store(seglets, Relaxed);
    }

    /// Whether the cleaner could not bring so many; it is asked anew the next time.
    pub(crate) fn take_refused(&self, seglets: u32) -> bool {
        let refused = self.refused.load(Relaxed);
        refused != 0 && refused <= seglets && self.refused.swap(0, Relaxed) != 0
    }

    /// Seglets that an ordinary writer must leave, given how many bytes the indexes take.
    pub(crate) fn keep_for_writers(&self, index_bytes: u64) -> u64 {
        let window = u64::from(self.segments.window_seglets());
        let reserve = u64::from(RESERVE_WINDOWS) * window + window / RESERVE_DIVISOR;
        reserve + index_bytes.div_ceil(self.seglet_bytes() as u64)
    }
}
