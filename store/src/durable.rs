//! What a store keeps for its durable tables: which segments a disk is to hold, up to where it holds them, and which it may
//! forget. No I/O: a thread outside takes the segments' bytes and tells what is stable.
//!
//! ```text
//!   head opens a segment ──► opened ──► the log thread writes bytes below a cut ──► stable ──► the cleaner may take it
//!   cleaner empties a segment ──► released, with the positions of the survivors ──► the disk forgets it ──► gone
//! ```
//! A segment's sequence number names its bytes on the disk for ever. Compaction in memory keeps it, since the disk does
//! not change: so several runs of memory can have the number of one. When the last of them is empty, the disk may forget
//! it, once the copies of its survivors are stable, and whatever ended its other entries: else a crash could undo the end of
//! an entry that is gone.
//!
//! *Predecessors*: a replay finds each entry that is still on the disk, so what ended an entry must stay as long as that
//! entry's segment. An object that replaces another names the segment of the other. When it dies in turn, and that
//! segment is still on the disk, the cleaner leaves a tombstone in its place, which names the segment too. A delete
//! leaves a tombstone at once. A name is worth nothing once its segment is gone. RAMCloud writes a tombstone for each
//! overwrite (TOCS'15 §4.3); this takes four bytes.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::completion::Needs;
use crate::cut::{Cuts, LogPosition, Wait};
use crate::error::WriteError;
use crate::limits::{REMOVED_PLACES, SURVIVOR_CLASSES};
use crate::number_hash::NumberHash;
use crate::segment::SegmentId;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Inbox, Ordering, fence};

/// Heads of survivors, behind those of the cores: they are writers too.
pub const SIDE_WRITERS: usize = SURVIVOR_CLASSES;

/// A segment that a durable head has opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Opened {
    /// The head: a core, or a number from [`crate::Config::cores`] on, for survivors of cleaning.
    pub writer: usize,
    /// Its number, which grows from segment to segment of a head.
    pub sequence: u32,
    /// Its place in memory.
    pub place: SegmentPlace,
    /// The most frames of the disk that it takes.
    pub frames: u32,
}

/// A durable segment's place in memory, until the segment is reported stable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentPlace(pub(crate) u32);

/// Segments that the disk may forget, in exchange for those of their survivors.
///
/// Both take effect at once: a replay finds either these segments, or what the heads of survivors have below these
/// positions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Released {
    /// Their numbers.
    pub sequences: Vec<u32>,
    /// The positions of the heads of survivors.
    pub survivors: [LogPosition; SIDE_WRITERS],
}

/// The state between a store and its log thread.
pub(crate) struct Durable {
    pub(crate) cuts: Cuts,
    /// For the log thread.
    pub(crate) opened: Inbox<Opened>,
    pub(crate) released: Inbox<Released>,
    /// Segments whose objects begin to move to heads of survivors.
    pub(crate) emptied: Inbox<u32>,
    /// For the cleaner: segments in memory with their numbers, and the numbers that the disk has forgotten.
    pub(crate) begun: Inbox<(u32, SegmentId)>,
    pub(crate) gone: Inbox<u32>,
    /// The number of the latest stable cut, and the position of each writer in it.
    pub(crate) stable_cut: AtomicU64,
    pub(crate) stable: Box<[AtomicU64]>,
    /// The same of the latest received cut, if any are awaited: as far as other servers have the log in memory.
    pub(crate) received_cut: AtomicU64,
    pub(crate) received: Box<[AtomicU64]>,
    pub(crate) awaits_receipts: AtomicBool,
    pub(crate) gone_count: AtomicU32,
    /// The store's clock as of what the disk has.
    pub(crate) clock_ms: AtomicU64,
    /// The first cut with the clock of which all that was seen as expired stays so.
    pub(crate) expired_cut: AtomicU64,
    /// For hashes of keys that were removed lately, the first cut that includes the removal. Hashes may share a place:
    /// then an absence waits for a later cut than it must.
    removed: Box<[AtomicU64]>,
    admission: AtomicU8,
    /// See [`crate::Store::keep_completions`].
    pub(crate) needs: OnceLock<Needs>,
    /// Whether the disk is short of frames: then cleaning frees them first.
    pub(crate) is_short: AtomicBool,
    /// Segments that may be empty, or about to be, before the disk has forgotten them.
    pub(crate) room: AtomicU32,
    /// The most frames that all segments opened by cores take, and up to where they may go before the disk has more.
    frames_opened: AtomicU64,
    frames_limit: AtomicU64,
    /// Free seglets that a recovery may still need.
    pub(crate) awaited: AtomicU64,
}

/// Which writes to durable tables are admitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Admission {
    /// All.
    All = 0,
    /// Removals: the disk is full but for what they need, and cleaning after them frees some of it.
    Removals = 1,
    /// None, until cleaning has freed some of a full disk.
    Nothing = 2,
    /// None for good: the disk has failed, and what is not on it may never be.
    Failed = 3,
}

/// The segments that a replay would find, as the cleaner knows them.
#[derive(Default)]
pub(crate) struct OnDisk {
    /// For each sequence number, the segments in memory that have it.
    held: HashMap<u32, Vec<SegmentId>, NumberHash>,
    /// Segments of survivors that a recovery left out: what names one may have to do with any of these.
    left_out: HashMap<u32, Vec<u32>, NumberHash>,
    /// Numbers whose segments in memory are empty, and which the disk has not forgotten.
    empty: u32,
}

impl Durable {
    pub(crate) fn new(cores: usize) -> Durable {
        let writers = cores + SIDE_WRITERS;
        let (opened, released, emptied, begun, gone) = Default::default();
        Durable {
            cuts: Cuts::new(writers),
            opened,
            released,
            emptied,
            begun,
            gone,
            stable_cut: AtomicU64::new(0),
            stable: (0..writers).map(|_| AtomicU64::new(0)).collect(),
            received_cut: AtomicU64::new(0),
            received: (0..writers).map(|_| AtomicU64::new(0)).collect(),
            awaits_receipts: AtomicBool::new(false),
            gone_count: AtomicU32::new(0),
            clock_ms: AtomicU64::new(0),
            expired_cut: AtomicU64::new(0),
            removed: (0..REMOVED_PLACES).map(|_| AtomicU64::new(0)).collect(),
            admission: AtomicU8::new(Admission::All as u8),
            needs: OnceLock::new(),
            is_short: AtomicBool::new(false),
            room: AtomicU32::new(u32::MAX),
            frames_opened: AtomicU64::new(0),
            frames_limit: AtomicU64::new(u64::MAX),
            awaited: AtomicU64::new(0),
        }
    }

    /// Notes that a key with this hash was removed.
    #[inline]
    pub(crate) fn note_removed(&self, hash: u64, cut: u64) {
        self.removed[hash as usize % REMOVED_PLACES].fetch_max(cut, Ordering::Release);
    }

    /// Returns the number of a cut that includes the last removal of any key with this hash.
    #[inline]
    pub(crate) fn removed(&self, hash: u64) -> u64 {
        self.removed[hash as usize % REMOVED_PLACES].load(Ordering::Acquire)
    }

    /// Notes that somebody may learn of an expiry at this time. Returns the number of the cut after which a start does not
    /// undo it, whatever the machine's clock says then; `None` if that is so already.
    #[cold]
    pub(crate) fn note_expiry(&self, expires_ms: u64) -> Option<u64> {
        if expires_ms <= self.clock_ms.load(Ordering::Acquire) {
            return None;
        }
        loop {
            let cut = self.cuts.next();
            self.expired_cut.fetch_max(cut, Ordering::SeqCst);
            // A cut that began meanwhile may not have looked.
            fence(Ordering::SeqCst);
            if self.cuts.next() == cut {
                return Some(cut);
            }
        }
    }

    /// Notes that a key with this hash goes because its object has expired. `object_cut` is the first cut that includes the
    /// object; 0 if the disk has it.
    pub(crate) fn note_expired(&self, hash: u64, expires_ms: u64, object_cut: u64) {
        let clock_cut = self.note_expiry(expires_ms).unwrap_or(0);
        self.note_removed(hash, object_cut.max(clock_cut));
    }

    pub(crate) fn admission(&self) -> Admission {
        match self.admission.load(Ordering::Relaxed) {
            0 => Admission::All,
            1 => Admission::Removals,
            2 => Admission::Nothing,
            _ => Admission::Failed,
        }
    }

    /// Sets which writes are admitted from now on.
    pub(crate) fn admit(&self, admission: Admission) {
        self.admission.store(admission as u8, Ordering::Release);
    }

    /// Returns the error for a write or a removal that is not admitted.
    #[inline]
    pub(crate) fn refusal(&self, removes: bool) -> Option<WriteError> {
        match self.admission() {
            Admission::All => None,
            Admission::Removals if removes => None,
            Admission::Removals | Admission::Nothing => Some(WriteError::StorageFull),
            Admission::Failed => Some(WriteError::StorageFailed),
        }
    }

    /// Returns whether cores must wait for frames of the disk before they open another segment. Those in the middle of
    /// opening one may pass: a segment for each core.
    pub(crate) fn lacks_frames(&self) -> bool {
        self.frames_opened.load(Ordering::Relaxed) >= self.frames_limit.load(Ordering::Relaxed)
    }

    /// Sets the frames that the segments of cores may take, all that were ever opened included.
    pub(crate) fn limit_frames(&self, frames: u64) {
        self.frames_limit.store(frames, Ordering::Relaxed);
    }

    /// Returns the number of cores.
    pub(crate) fn cores(&self) -> usize {
        self.stable.len() - SIDE_WRITERS
    }

    /// Returns the stable position of a writer.
    pub(crate) fn stable(&self, writer: usize) -> LogPosition {
        LogPosition::from_word(self.stable[writer].load(Ordering::Acquire))
    }

    /// Notes that a segment in memory has this number.
    pub(crate) fn begin(&self, sequence: u32, segment: SegmentId) {
        self.begun.push((sequence, segment)).expect("the inbox is never closed");
    }

    /// Hands a segment to the log thread.
    pub(crate) fn open(&self, opened: Opened) {
        if opened.writer < self.cores() {
            self.frames_opened.fetch_add(opened.frames.into(), Ordering::Relaxed);
        }
        self.opened.push(opened).expect("the inbox is never closed");
    }

    /// Tells that objects of a segment begin to move to heads of survivors.
    pub(crate) fn empty(&self, sequence: u32) {
        self.emptied.push(sequence).expect("the inbox is never closed");
    }

    /// Lets the disk forget segments.
    pub(crate) fn release(&self, released: Released) {
        self.released.push(released).expect("the inbox is never closed");
    }

    /// Returns the number of segments that the disk has forgotten.
    pub(crate) fn gone_count(&self) -> u32 {
        self.gone_count.load(Ordering::Relaxed)
    }

    /// Returns whether answers about written tables wait until others have received what they show.
    #[inline]
    pub(crate) fn awaits_receipts(&self) -> bool {
        self.awaits_receipts.load(Ordering::Relaxed)
    }

    /// Returns a writer's position in the latest cut of this kind.
    pub(crate) fn position_of(&self, wait: Wait, writer: usize) -> LogPosition {
        let positions = if wait == Wait::Received { &self.received } else { &self.stable };
        LogPosition::from_word(positions[writer].load(Ordering::Acquire))
    }

    /// Returns the number of the latest cut of this kind.
    #[inline]
    pub(crate) fn reached(&self, wait: Wait) -> u64 {
        let cut = if wait == Wait::Received { &self.received_cut } else { &self.stable_cut };
        cut.load(Ordering::Acquire)
    }

    /// Returns what to wait for in place of receipts while others may not have the clock by which an object has expired: they
    /// get it with what is stable.
    #[inline]
    pub(crate) fn wait_with_clock(&self, wait: Wait) -> Wait {
        let lacks_clock = || self.expired_cut.load(Ordering::SeqCst) > self.reached(Wait::Stable);
        if wait == Wait::Received && lacks_clock() { Wait::Stable } else { wait }
    }

    /// Returns the number of the first cut that includes all that can be read now; 0 if the latest one of this kind does.
    pub(crate) fn next_beyond(&self, wait: Wait) -> u64 {
        let is_reached = |writer| self.position_of(wait, writer) >= self.cuts.position(writer);
        let expired = self.expired_cut.load(Ordering::SeqCst);
        let is_clock_stable = expired <= self.reached(Wait::Stable);
        let all = (0..self.cuts.writers()).all(is_reached) && is_clock_stable;
        if all { 0 } else { self.cuts.next().max(expired) }
    }

    /// Returns whether the disk holds everything below a writer's position.
    pub(crate) fn is_stable(&self, writer: usize, position: LogPosition) -> bool {
        self.stable(writer) >= position
    }
}

/// In place of a segment that is about to come to memory.
pub(crate) const RECOVERED: SegmentId = SegmentId(u32::MAX);

impl OnDisk {
    /// Takes in what was opened, and what the disk has forgotten.
    pub(crate) fn update(&mut self, durable: &Durable) {
        for (sequence, segment) in durable.begun.take_all() {
            self.held.entry(sequence).or_default().push(segment);
        }
        for sequence in durable.gone.take_all() {
            let held = self.held.remove(&sequence);
            self.empty -= 1;
            debug_assert_eq!(held, Some(Vec::new()), "the disk forgets what no segment in memory has");
        }
    }

    /// Returns whether a replay would find the segment of this number.
    #[inline]
    pub(crate) fn has(&self, sequence: u32) -> bool {
        let has_one = |sources: &Vec<u32>| sources.iter().any(|source| self.held.contains_key(source));
        sequence != 0
            && (self.held.contains_key(&sequence) || self.left_out.get(&sequence).is_some_and(has_one))
    }

    /// Takes in what a recovery finds, each segment as if it were in memory as [`RECOVERED`].
    pub(crate) fn recover(&mut self, sequences: &[u32], left_out: &[(u32, Vec<u32>)]) {
        self.held.extend(sequences.iter().map(|&sequence| (sequence, vec![RECOVERED])));
        self.left_out.extend(left_out.iter().cloned());
    }

    /// Notes that a segment in memory is empty. Returns whether it was the last one of its number.
    pub(crate) fn leave(&mut self, sequence: u32, segment: SegmentId) -> bool {
        let held = self.held.get_mut(&sequence).expect("the segment was begun");
        held.retain(|&other| other != segment);
        let is_empty = held.is_empty();
        self.empty += u32::from(is_empty);
        is_empty
    }

    /// Returns the segments in memory with a number.
    pub(crate) fn segments(&self, sequence: u32) -> &[SegmentId] {
        self.held.get(&sequence).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of segments that are empty in memory.
    pub(crate) fn empty_count(&self) -> u32 {
        self.empty
    }

    /// Returns the number of segments.
    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }
}
