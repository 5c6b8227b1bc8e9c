//! Claims of seglets: what writers take, what they leave, and what one waits for that finds none.

use std::sync::atomic::Ordering::Relaxed;

use crate::limits::{HEAD_SHARE_DIVISOR, RESERVE_DIVISOR, RESERVE_WINDOWS, RUN_OBJECTS};
use crate::log::Log;
use crate::segment::Claim;

impl Log {
    /// Returns the claim of a writer that needs `bytes` and must leave `keep` seglets.
    pub(crate) fn claim_of_writer(&self, bytes: usize, keep: u64) -> Claim {
        let least = self.seglets_for(bytes);
        let share = self.segments.free_count().saturating_sub(keep) / HEAD_SHARE_DIVISOR;
        let window = u64::from(self.segments.window_seglets());
        let most = share.max(u64::from(least) * u64::from(RUN_OBJECTS)).min(window) as u32;
        Claim { least, most, keep, windows_kept: RESERVE_WINDOWS }
    }

    /// Returns the seglets in one piece that a writer waits for, 0 without one.
    pub(crate) fn wanted(&self) -> u32 {
        self.wanted.load(Relaxed)
    }

    /// Notes that a writer could not get this many seglets in one piece; 0 clears the note.
    pub(crate) fn set_wanted(&self, seglets: u32) {
        self.wanted.store(seglets, Relaxed);
    }

    /// Notes that the cleaner could not provide this many seglets in one piece; 0 if it could.
    pub(crate) fn set_refused(&self, seglets: u32) {
        self.refused.store(seglets, Relaxed);
    }

    /// Returns whether the cleaner could not provide this many seglets, and clears that, so that it is asked again.
    pub(crate) fn take_refused(&self, seglets: u32) -> bool {
        let refused = self.refused.load(Relaxed);
        refused != 0 && refused <= seglets && self.refused.swap(0, Relaxed) != 0
    }

    /// Returns the seglets that an ordinary writer must leave, given the bytes of the indexes.
    pub(crate) fn keep_for_writers(&self, index_bytes: u64) -> u64 {
        let window = u64::from(self.segments.window_seglets());
        let reserve = u64::from(RESERVE_WINDOWS) * window + window / RESERVE_DIVISOR;
        reserve + index_bytes.div_ceil(self.seglet_bytes() as u64)
    }
}
