//! Snapshots of the log as of one cut, read while the log goes on.
//!
//! ```text
//!   log thread:  a cut is stable ──► snapshot: its segments, up to where they count ──► reader on a control thread
//!                frames of freed segments are withheld until no snapshot that needs them is left
//! ```
//! What a snapshot counts is what a start would find if the server crashed at this moment, so it is one cut. If withheld
//! frames make the disk short, all snapshots end and their readers are told: the server's writes come first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use disk::{Disk, DiskError, FrameId, OPEN_ENDED};

use super::{LogWriter, Segment};
use crate::durability::LogLayout;
use crate::durability::log_reader::{self, SegmentBytes};

/// The reason why a segment of a snapshot cannot be read.
#[derive(Debug)]
pub enum SnapshotError {
    /// The server needed the frames.
    Ended,
    /// The disk does not read.
    Disk(DiskError),
}

/// The log as of one cut. Frees the frames that it keeps when dropped.
pub struct Snapshot {
    /// The number of the cut.
    pub cut: u64,
    /// The server's clock at the cut, in milliseconds since the Unix epoch.
    pub clock_ms: u64,
    segments: Vec<(u32, Segment)>,
    disk: Box<dyn Disk>,
    layout: LogLayout,
    pin: Arc<AtomicBool>,
}

/// Reads of a segment before it counts as damaged: the last block of one that grows may be read in the middle of a write.
const READS_MAX: u32 = 3;

impl Snapshot {
    /// Returns the number of its segments.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Returns the bytes of a segment that count; 0 behind the last one.
    #[must_use]
    pub fn segment_bytes(&self, index: usize) -> u64 {
        self.segments.get(index).map_or(0, |(_, segment)| u64::from(segment.bytes))
    }

    /// Reads a segment and returns its number, and its bytes as far as they count, perhaps with damaged blocks. Takes some
    /// milliseconds.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn read(&mut self, index: usize) -> Result<(u32, SegmentBytes), SnapshotError> {
        let (sequence, segment) = &self.segments[index];
        let (mut blocks, mut content) = (None, SegmentBytes::default());
        for _ in 0..READS_MAX {
            let into = (&mut blocks, &mut content);
            let read = log_reader::read_segment(&mut *self.disk, self.layout, *sequence, segment, into);
            // A frame is used again only after this was set.
            if self.pin.load(Ordering::SeqCst) {
                return Err(SnapshotError::Ended);
            }
            read.map_err(SnapshotError::Disk)?;
            if content.blocks_damaged == 0 {
                break;
            }
        }
        Ok((*sequence, content))
    }
}

/// The snapshots that are read, and the frames that are kept for them.
#[derive(Default)]
pub(super) struct Pins {
    taken: u64,
    /// Set when a snapshot has ended; with the number of the snapshot, in rising order.
    pins: VecDeque<(u64, Weak<AtomicBool>)>,
    /// Freed frames, with the number of the first snapshot that does not need them.
    withheld: VecDeque<(u64, FrameId)>,
}

impl Pins {
    /// Takes in frames that the log does not need any more.
    pub(super) fn withhold(&mut self, frames: Vec<FrameId>) {
        self.withheld.extend(frames.into_iter().map(|frame| (self.taken, frame)));
    }

    /// Adds to `free` the frames that no snapshot needs; all if the disk would be short without them, which ends the
    /// snapshots.
    pub(super) fn release(&mut self, free: &mut Vec<FrameId>, is_short: bool) {
        self.pins.retain(|(_, pin)| pin.strong_count() > 0);
        if is_short && !self.withheld.is_empty() && !self.pins.is_empty() {
            tracing::warn!("the disk is short: archives under way are ended, and their frames are free");
            let ended = self.pins.drain(..).filter_map(|(_, pin)| pin.upgrade());
            ended.for_each(|pin| pin.store(true, Ordering::SeqCst));
        }
        let oldest = self.pins.front().map_or(u64::MAX, |(number, _)| *number);
        while let Some((_, frame)) = self.withheld.pop_front_if(|(number, _)| *number <= oldest) {
            free.push(frame);
        }
    }
}

impl LogWriter {
    /// Returns the log as of the latest stable cut; called between two steps.
    ///
    /// # Errors
    /// If the disk gives no second access.
    pub fn snapshot(&mut self) -> Result<Snapshot, DiskError> {
        let written = |sequence: u32| {
            let open = self.open.iter().find(|open| open.opened.sequence == sequence);
            open.map_or(0, |open| open.written as u32)
        };
        let counting = |(&sequence, segment): (&u32, &Segment)| {
            let known = if segment.bytes == OPEN_ENDED { written(sequence) } else { segment.bytes };
            let bytes = log_reader::counting_bytes(sequence, segment.class, known, |class| {
                let position = self.survivors[class];
                (position.sequence, position.bytes)
            });
            let frames = (bytes as usize).div_ceil(self.layout.payload_bytes());
            let frames = segment.frames[..frames].to_vec();
            (bytes > 0).then_some((sequence, Segment { frames, bytes, class: segment.class }))
        };
        let segments = self.state.segments.iter().filter_map(counting).collect();
        let (disk, pin) = (self.disk.another()?, Arc::new(AtomicBool::new(false)));
        self.pins.pins.push_back((self.pins.taken, Arc::downgrade(&pin)));
        self.pins.taken += 1;
        let (cut, clock_ms, layout) = (self.store.stable_cut(), self.store.now_ms(), self.layout);
        Ok(Snapshot { cut, clock_ms, segments, disk, layout, pin })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use disk::FrameId;

    use super::Pins;

    fn take(pins: &mut Pins) -> Arc<AtomicBool> {
        let pin = Arc::new(AtomicBool::new(false));
        pins.pins.push_back((pins.taken, Arc::downgrade(&pin)));
        pins.taken += 1;
        pin
    }

    #[test]
    fn frames_are_withheld_while_a_snapshot_from_before_their_end_is_left() {
        let (mut pins, mut free) = (Pins::default(), Vec::new());
        pins.withhold(vec![FrameId(1)]);
        let first = take(&mut pins);
        pins.withhold(vec![FrameId(2)]);
        let second = take(&mut pins);
        pins.withhold(vec![FrameId(3)]);
        pins.release(&mut free, false);
        assert_eq!(free, [FrameId(1)]);
        drop(first);
        pins.release(&mut free, false);
        assert_eq!(free, [FrameId(1), FrameId(2)]);
        assert!(!second.load(Ordering::SeqCst));
        pins.release(&mut free, true);
        assert_eq!(free, [FrameId(1), FrameId(2), FrameId(3)]);
        assert!(second.load(Ordering::SeqCst), "its reader is told");
    }

    #[test]
    fn a_disk_that_is_short_by_itself_ends_no_snapshot() {
        let (mut pins, mut free) = (Pins::default(), Vec::new());
        let pin = take(&mut pins);
        pins.release(&mut free, true);
        assert!(!pin.load(Ordering::SeqCst) && free.is_empty());
    }
}
