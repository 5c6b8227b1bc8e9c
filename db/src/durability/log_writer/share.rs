//! The frames that are left, and who may take them: which writes are admitted, how many frames cores may take before the next
//! step, how many segments the cleaner may begin.
//!
//! If a cut found no frames nothing would become stable any more, and frames become free only after a cut. Between two steps
//! a core writes as much as its memory holds: while a device takes long, many times what is left of a disk. So cores get a
//! share in advance, and wait when it is used up.

use std::sync::atomic::Ordering;

use store::{Admission, SIDE_WRITERS};

use super::{LogWriter, OpenSegment};
use crate::limits::{
    FRAMES_AHEAD, FRAMES_AHEAD_DIVISOR, FRAMES_DIRECTORIES_DIVISOR, FRAMES_PER_SEGMENT, FRAMES_SHORT_DIVISOR,
    REMOVAL_FRAMES, SEGMENT_NUMBERS_MAX,
};

impl LogWriter {
    /// Admits as many writes as there are frames for what is open and about to be opened.
    pub(super) fn admit(&mut self) {
        // Growth adds frames meanwhile.
        let frames = self.disk.frames();
        let to_add = self.frames_max.saturating_sub(frames);
        let (ready, room) =
            self.growth.as_ref().map_or((0, u32::MAX), |growth| (growth.ready(), growth.room()));
        let more = to_add.min(room);
        let of_segments = |frames: u32| frames.saturating_sub(2 * self.layout.digest_frames) as usize;
        // As many as there can be at present.
        let frames_of_segments = of_segments(frames + more);
        let (reserve, short) = frames_reserved(self.cores, frames_of_segments);
        let is_short = self.state.free.len() + ((more + ready) as usize) < short;
        self.pins.release(&mut self.state.free, is_short);
        let available = self.state.free.len() + (more + ready) as usize;
        let has_numbers = self.state.last_number() < SEGMENT_NUMBERS_MAX;
        // The cleaner leaves half of the reserve: removals, for which it works, go on meanwhile.
        let admission = match available {
            _ if !has_numbers => Admission::Nothing,
            few if few < reserve / 2 => Admission::Nothing,
            few if few < reserve + REMOVAL_FRAMES => Admission::Removals,
            _ => Admission::All,
        };
        if self.store.admission() != admission && self.store.admission() != Admission::Failed {
            self.store.admit_durable(admission);
            if !has_numbers {
                tracing::error!(
                    "the log has used up the numbers of its segments, and admits no writes: archive the tenants, and restore \
                     the archives at a server with an empty data directory"
                );
            }
        }
        self.is_short = available < short;
        self.directories.have_room =
            available >= reserve + REMOVAL_FRAMES + frames_of_segments / FRAMES_DIRECTORIES_DIVISOR;
        self.store.set_disk_short(self.is_short);
        self.share_frames((available, reserve), admission);
        let free = self.state.free.len();
        let used = of_segments(self.frames_max).saturating_sub(free + (to_add + ready) as usize) as u64;
        self.figures.frames_used.store(used, Ordering::Relaxed);
        if let Some(growth) = &self.growth
            && !self.state.segments.is_empty()
        {
            let ahead = (used as usize / FRAMES_AHEAD_DIVISOR).clamp(FRAMES_PER_SEGMENT, FRAMES_AHEAD);
            let wanted = (reserve + ahead).saturating_sub(free) as u32;
            growth.want(wanted.min(ready + to_add));
        }
        self.figures.segments.store(self.state.segments.len() as u64, Ordering::Relaxed);
    }

    /// Says how many frames cores and the cleaner may take before the next step.
    fn share_frames(&self, (available, reserve): (usize, usize), admission: Admission) {
        let wanted = |open: &OpenSegment| {
            let has =
                self.state.segments.get(&open.opened.sequence).map_or(0, |segment| segment.frames.len());
            (open.opened.frames as usize).saturating_sub(has)
        };
        // Half of the reserve is for one open segment of each head.
        let open: usize = self.open.iter().map(wanted).sum();
        let left = available.saturating_sub(open.saturating_sub(reserve / 2));
        let for_cores = match admission {
            Admission::All => left.saturating_sub(reserve) / 2,
            Admission::Removals => left.saturating_sub(reserve / 2) / 2,
            Admission::Nothing | Admission::Failed => 0,
        };
        let for_cleaner = left.saturating_sub(reserve - reserve / 4) / 2;
        self.store.limit_frames(self.frames_opened + for_cores as u64);
        self.store.set_disk_room((for_cleaner / FRAMES_PER_SEGMENT) as u32);
    }
}

/// Returns the frames that are kept for what heads and the cleaner have open and about to be opened, and the free frames
/// below which cleaning frees some.
#[must_use]
pub fn frames_reserved(cores: usize, frames: usize) -> (usize, usize) {
    // What each head has open; and the segment that each core may open beyond its share, and what the cleaner writes until
    // it has freed anything.
    let reserve = 2 * (cores + SIDE_WRITERS) * FRAMES_PER_SEGMENT;
    (reserve, reserve + REMOVAL_FRAMES + frames / FRAMES_SHORT_DIVISOR)
}
