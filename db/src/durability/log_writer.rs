//! Writes the segments of a store's durable heads to a disk, cut by cut.
//!
//! ```text
//!   step:  cut ── frames for what lies below it ── digest, if segments begin to be emptied ── blocks ── stable
//!          ── released segments whose survivors are stable: digest without them, their frames are free
//! ```
//! A segment's bytes are copied once, into blocks with trailers; that is also when they get their checksums. One step
//! is one cut; it writes in batches, and whatever it wrote counts only when all of it is there. With backups it goes to them
//! before, and is stable when they have it, too: until then, steps wait for that (`under_way.rs`). Cuts in between go to backups
//! alone, which are to have them in memory (`receipts.rs`).
//!
//! A step that finds no free frame leaves its cut unwritten, and a later one includes it. Then nothing becomes stable, so
//! nothing is freed: `share.rs` keeps that from happening.

mod batch;
mod digests;
mod directories;
mod finish;
mod receipts;
mod share;
mod snapshot;
mod under_way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use disk::{
    BLOCK_BYTES, Buffer, Disk, DiskError, FAR_AFTER, FrameId, NO_ENTRY, OPEN_ENDED, PAYLOAD_BYTES, Trailer,
    blocks_of,
};
use store::{LogPosition, Opened, Released, SEGMENT_HEADER_BYTES, SIDE_WRITERS, Store};

pub(super) use self::directories::{Directories, add_words};
pub use self::receipts::Sent;
pub use self::share::frames_reserved;
pub use self::snapshot::{Snapshot, SnapshotError};

use self::batch::Batch;
use self::snapshot::Pins;
use self::under_way::{Leaving, UnderWay};
use super::LogLayout;
use super::figures::LogFigures;
use super::growth::Growth;
use super::replicas::sender::ReplicaSender;
use crate::limits::{DIRECTORIES_AT_ONCE, LOG_BATCH_BLOCKS};
use crate::weakened;

const _: () = assert!(disk::SURVIVOR_CLASSES == SIDE_WRITERS, "a class for each head of survivors");

/// A segment as the disk has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segment {
    /// Its frames, in order.
    pub(super) frames: Vec<FrameId>,
    /// The bytes that count, or [`OPEN_ENDED`] while they grow.
    pub(super) bytes: u32,
    /// See [`Trailer::class`].
    pub(super) class: u8,
}

/// What the log on a disk consists of, after a start.
#[derive(Debug, Default)]
pub(super) struct LogState {
    pub(super) segments: BTreeMap<u32, Segment>,
    pub(super) free: Vec<FrameId>,
    pub(super) digest_number: u32,
    /// The highest sequence number known.
    pub(super) last: u32,
    /// The number of this start.
    pub(super) start: u64,
    pub(super) left_out: Vec<(u32, Vec<u32>)>,
    pub(super) directories: Directories,
}

impl LogState {
    /// Returns the highest number that a segment has or had.
    fn last_number(&self) -> u32 {
        self.segments.keys().next_back().copied().unwrap_or(0).max(self.last)
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was nothing to write.
    Idle,
    /// A cut became stable.
    Written,
    /// There is no frame for what should be written.
    Full,
    /// A cut is written, and too few backups have it yet.
    Waiting,
}

/// A segment that its head has not filled, or that is not on the disk completely.
struct OpenSegment {
    opened: Opened,
    /// Bytes below the last stable cut.
    written: usize,
    /// Bytes that were sent to backups.
    sent: usize,
    /// Where the first entry begins that begins in the last written block or behind it.
    entry: usize,
    /// Words of the directory, of the entries before that.
    words: Vec<u64>,
}

impl OpenSegment {
    /// Returns the bytes below a cut.
    fn end_at(&self, positions: &[LogPosition], store: &Store) -> usize {
        let position = positions[self.opened.writer];
        match position.sequence.cmp(&self.opened.sequence) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => position.bytes as usize,
            std::cmp::Ordering::Greater => store.closed_bytes(self.opened).expect("its head went on"),
        }
    }

    /// Returns the words of all entries that are on the disk.
    fn all_words(&mut self, store: &Store) -> Vec<u64> {
        let mut words = std::mem::take(&mut self.words);
        let rest = store.sealed_bytes(self.opened, self.entry..self.written);
        add_words(&mut words, rest, 0..rest.len(), self.entry).expect("a sealed log consists of entries");
        words
    }
}

/// The part of a segment that a cut writes.
struct Part {
    opened: Opened,
    previous: usize,
    end: usize,
    /// See [`OpenSegment::entry`].
    entry: usize,
    /// Words of the entries that were passed.
    words: Vec<u64>,
}

impl Part {
    /// Returns where the first entry begins that begins in a block, from its beginning, and passes the entries that do,
    /// unless the block is written again. `bytes` are those of the segment from the block at `from` on, up to the end
    /// of the part.
    fn pass_entries(&mut self, bytes: &[u8], from: usize, is_last: bool) -> u16 {
        let block_bytes = bytes.len().min(PAYLOAD_BYTES);
        let at = self.entry - from;
        if at >= block_bytes {
            return NO_ENTRY;
        }
        let first = at as u16;
        if !is_last || block_bytes == PAYLOAD_BYTES {
            let end = add_words(&mut self.words, bytes, at..block_bytes, from);
            self.entry = from + end.expect("a sealed log consists of entries");
        }
        first
    }
}

/// The log of a store on a disk.
pub struct LogWriter {
    store: Arc<Store>,
    disk: Box<dyn Disk>,
    layout: LogLayout,
    frames_max: u32,
    /// Cores of the store that write.
    cores: usize,
    state: LogState,
    open: Vec<OpenSegment>,
    emptied: BTreeSet<u32>,
    survivors: [LogPosition; SIDE_WRITERS],
    /// Segments that are empty, each with the first cut that includes whatever ended its entries.
    released: VecDeque<(u64, Released)>,
    positions: Vec<LogPosition>,
    /// Blocks of a batch.
    buffer: Buffer,
    figures: Arc<LogFigures>,
    digest_is_due: bool,
    /// The cut of the latest digest, and its clock.
    digest_cut: u64,
    digest_clock_ms: u64,
    /// The most frames that all segments opened by cores take.
    frames_opened: u64,
    /// Whether cores may soon have to wait for frames.
    is_short: bool,
    /// Adds frames; without it the writer does.
    growth: Option<Growth>,
    pins: Pins,
    directories: Directories,
    replicas: Option<ReplicaSender>,
    /// Cuts whose receipt is awaited, with their positions.
    unreceived: VecDeque<(u64, Vec<LogPosition>, Instant)>,
    /// The number that the disk has of the latest stable cut: that of the last one that was sent until then.
    written: u64,
    /// Whether the last step found no room.
    is_full: bool,
    /// Whether all was at enough backups at any time since the start.
    has_settled: bool,
    under_way: Option<UnderWay>,
    leaving: Vec<Leaving>,
}

impl LogWriter {
    /// Begins to write on a disk that holds this; so many cores of the store write. Writes a digest first.
    ///
    /// # Errors
    /// If the digest cannot be written.
    pub(super) fn new(
        store: Arc<Store>,
        mut disk: Box<dyn Disk>,
        (layout, frames_max): (LogLayout, u32),
        cores: usize,
        mut state: LogState,
    ) -> Result<Self, DiskError> {
        while disk.frames() < 2 * layout.digest_frames {
            disk.grow()?;
        }
        let directories = std::mem::take(&mut state.directories);
        let mut writer = Self {
            store,
            disk,
            layout,
            frames_max,
            cores,
            state,
            open: Vec::new(),
            emptied: BTreeSet::new(),
            survivors: Default::default(),
            released: VecDeque::new(),
            positions: Vec::new(),
            buffer: Buffer::new(LOG_BATCH_BLOCKS * BLOCK_BYTES),
            figures: Arc::default(),
            digest_is_due: false,
            digest_cut: 0,
            digest_clock_ms: 0,
            frames_opened: 0,
            is_short: false,
            growth: None,
            pins: Pins::default(),
            directories,
            replicas: None,
            unreceived: VecDeque::new(),
            written: 0,
            is_full: false,
            has_settled: false,
            under_way: None,
            leaving: Vec::new(),
        };
        let frames_of_segments = u64::from(frames_max - 2 * layout.digest_frames);
        writer.figures.frames_max.store(frames_of_segments, Ordering::Relaxed);
        writer.figures.frame_bytes.store(layout.frame_bytes as u64, Ordering::Relaxed);
        let clock_ms = writer.store.now_ms();
        writer.write_digest(clock_ms)?;
        writer.admit();
        Ok(writer)
    }

    /// Adds frames on a thread of its own from now on.
    ///
    /// # Errors
    /// If the kernel has no resources for it.
    pub(super) fn grow_ahead(&mut self) -> Result<(), DiskError> {
        self.growth = Some(Growth::start(&*self.disk)?);
        self.admit();
        Ok(())
    }

    /// Returns the figures of the log.
    #[must_use]
    pub fn figures(&self) -> Arc<LogFigures> {
        Arc::clone(&self.figures)
    }

    /// Returns the frames of segments that the digest on the disk names with their bytes.
    #[cfg(test)]
    pub(super) fn frames_of_fixed(&mut self) -> Vec<FrameId> {
        self.write_digest(0).expect("a disk that works");
        let fixed = self.state.segments.values().filter(|segment| segment.bytes != OPEN_ENDED);
        fixed.flat_map(|segment| segment.frames.clone()).collect()
    }

    /// Returns whether cores may soon have to wait for frames, which a step brings.
    #[must_use]
    pub(super) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Makes a cut and writes what lies below it; then the store knows that it is stable. Takes one write of the disk,
    /// if all lies in one piece and no segment is freed. While a cut waits for backups, looks whether they have it.
    ///
    /// # Errors
    /// If the disk fails: nothing becomes stable any more.
    pub fn step(&mut self) -> Result<Step, DiskError> {
        if let Some(error) = self.growth.as_ref().and_then(Growth::failure) {
            return Err(error);
        }
        let under_way = match self.under_way.take() {
            Some(under_way) => under_way,
            None => {
                self.write_directories(DIRECTORIES_AT_ONCE)?;
                let begun = self.begin_cut()?;
                self.is_full = begun.is_none();
                match begun {
                    Some(under_way) => under_way,
                    None => {
                        self.leave_if_settled();
                        self.admit();
                        return Ok(Step::Full);
                    }
                }
            }
        };
        if !self.leave_if_settled() {
            self.under_way = Some(under_way);
            self.copy_to_backups();
            self.admit();
            return Ok(Step::Waiting);
        }
        let (stable, clock_ms) = (under_way.cut, under_way.clock_ms);
        let step = self.complete(under_way);
        self.exchange((stable, clock_ms))?;
        self.copy_to_backups();
        self.admit();
        Ok(step)
    }

    /// Makes a cut, sends it to backups and writes it; returns `None` if there is no room for it.
    fn begin_cut(&mut self) -> Result<Option<UnderWay>, DiskError> {
        let began = Instant::now();
        let mut positions = std::mem::take(&mut self.positions);
        let (cut, released) = self.store.cut(&mut positions);
        // Behind the cut, so that it is not behind what anybody has seen to expire before.
        let clock_ms = self.store.now_ms();
        self.released.extend(released.map(|released| (cut, released)));
        self.take_news();
        if weakened::by("freed") {
            self.positions.clone_from(&positions);
            self.exchange((cut, clock_ms))?;
        }
        let written = self.write_cut((cut, clock_ms), &positions);
        let (parts, number) = match written {
            Ok(Some(written)) => written,
            other => {
                self.positions = positions;
                return other.map(|_| None);
            }
        };
        Ok(Some(UnderWay { cut, number, clock_ms, positions, parts, began }))
    }

    /// Takes in what heads have opened and the cleaner has begun to empty.
    fn take_news(&mut self) {
        for opened in self.store.take_opened() {
            // The digest would not count it.
            self.digest_is_due |= opened.sequence <= self.state.last;
            let class = opened.writer.checked_sub(self.store.cores()).map_or(0, |class| class as u8 + 1);
            // Entries of this cut may name one of survivors that no cut includes yet.
            self.digest_is_due |= class > 0;
            self.frames_opened += if class == 0 { opened.frames.into() } else { 0 };
            let segment = Segment { frames: Vec::new(), bytes: OPEN_ENDED, class };
            self.state.segments.insert(opened.sequence, segment);
            let (written, sent, entry, words) = (0, 0, SEGMENT_HEADER_BYTES, Vec::new());
            self.open.push(OpenSegment { opened, written, sent, entry, words });
        }
        let known = self.emptied.len();
        self.emptied.extend(self.store.take_emptied());
        self.digest_is_due |= self.emptied.len() > known;
    }

    /// Sends and writes what a cut writes, and returns it, with the number that the disk has of the cut; `None` if there is no room
    /// for it.
    fn write_cut(
        &mut self,
        (cut, clock_ms): (u64, u64),
        positions: &[LogPosition],
    ) -> Result<Option<(Vec<Part>, u64)>, DiskError> {
        let mut parts: Vec<Part> =
            self.open.iter().filter_map(|open| self.part_of(open, positions)).collect();
        for part in &parts {
            if !self.provide_frames(part.opened.sequence, part.end)? {
                return Ok(None);
            }
        }
        let clock_alone = parts.is_empty() && (self.store.must_write_clock() || self.is_digest_old(cut));
        if std::mem::take(&mut self.digest_is_due) || clock_alone {
            self.write_digest(clock_ms)?;
        }
        // Nothing came since the last one that was sent: both mean the same by its number.
        let number = if self.send_cut((cut, clock_ms), positions) { cut } else { self.last_sent() };
        self.write_parts(&mut parts, (number, clock_ms))?;
        Ok(Some((parts, number)))
    }

    /// Returns what a cut has to write of a segment, if anything.
    fn part_of(&self, open: &OpenSegment, positions: &[LogPosition]) -> Option<Part> {
        let end = open.end_at(positions, &self.store);
        (end > open.written).then_some(Part {
            opened: open.opened,
            previous: open.written,
            end,
            entry: open.entry,
            words: Vec::new(),
        })
    }

    /// Gives a segment frames for its first `bytes`. Returns false if the disk has none.
    fn provide_frames(&mut self, sequence: u32, bytes: usize) -> Result<bool, DiskError> {
        let needed = bytes.div_ceil(self.layout.payload_bytes());
        let segment = &self.state.segments[&sequence];
        let missing = needed.saturating_sub(segment.frames.len());
        for _ in 0..missing {
            let Some(frame) = self.take_frame(true)? else { return Ok(false) };
            let segment = self.state.segments.get_mut(&sequence).expect("it was opened");
            segment.frames.push(frame);
        }
        Ok(true)
    }

    /// Takes a frame that nothing needs, or another one of the file; if the caller `waits` for it, or nobody else does, the
    /// file grows now.
    fn take_frame(&mut self, waits: bool) -> Result<Option<FrameId>, DiskError> {
        let added = || self.growth.as_ref().and_then(Growth::take);
        match self.state.free.pop().or_else(added) {
            None if (waits || self.growth.is_none()) && self.disk.frames() < self.frames_max => {
                match self.disk.grow() {
                    Err(DiskError::Full) => {
                        self.growth.iter().for_each(Growth::note_full);
                        Ok(None)
                    }
                    grown => grown.map(Some),
                }
            }
            frame => Ok(frame),
        }
    }

    fn write_parts(&mut self, parts: &mut [Part], (cut, clock_ms): (u64, u64)) -> Result<(), DiskError> {
        let mut batch = Batch::default();
        let writes = parts.len() as u32;
        let distance = || u16::try_from(cut - self.written).unwrap_or(FAR_AFTER);
        let after = if self.replicas.is_some() { distance() } else { 0 };
        for part in parts {
            let Part { opened, previous, end, .. } = *part;
            let segment = &self.state.segments[&opened.sequence];
            let trailer = Trailer {
                cut,
                clock_ms,
                sequence: opened.sequence,
                block: 0,
                previous: previous as u32,
                end: end as u32,
                writes,
                class: segment.class,
                first: NO_ENTRY,
                after,
            };
            let begin = trailer.written().start as usize * PAYLOAD_BYTES;
            let sealed = self.store.sealed_bytes(opened, begin..end);
            for block in trailer.written() {
                if batch.blocks() == LOG_BATCH_BLOCKS {
                    batch.write(&mut *self.disk, &self.buffer)?;
                }
                let filled = batch.blocks();
                let target = &mut self.buffer[filled * BLOCK_BYTES..(filled + 1) * BLOCK_BYTES];
                let from = block as usize * PAYLOAD_BYTES;
                // The copy of what goes to the disk.
                let behind = &sealed[from - begin..];
                let bytes = &behind[..behind.len().min(PAYLOAD_BYTES)];
                target[..bytes.len()].copy_from_slice(bytes);
                target[bytes.len()..PAYLOAD_BYTES].fill(0);
                let first = part.pass_entries(behind, from, block + 1 == trailer.written().end);
                Trailer { block, first, ..trailer }.seal(target);
                let frame = segment.frames[(block / self.layout.blocks()) as usize];
                let offset = (block % self.layout.blocks()) as usize * BLOCK_BYTES;
                batch.add(frame, offset);
            }
            let written = u64::from(blocks_of(end as u32) - trailer.written().start) * BLOCK_BYTES as u64;
            self.figures.bytes.fetch_add((end - previous) as u64, Ordering::Relaxed);
            self.figures.disk_bytes.fetch_add(written, Ordering::Relaxed);
        }
        batch.write(&mut *self.disk, &self.buffer)
    }
}
