//! Finds the log on a disk after a start: its segments, and up to where each counts.
//!
//! The digest names segments; those with higher numbers were opened after it. The first block of each frame says to
//! which segment it belongs. How far an open-ended segment reaches is said by the last of its blocks. If that belongs to
//! the latest cut of all, and the cut is not complete, the segment reaches as far as before: the cut before was stable
//! when this one began, so one step back is enough.
//!
//! ```text
//!   digest ──► frames by segment ──► last block of each ──► latest cut complete? ──► bytes of each segment
//! ```
//! Nothing is written here. Damage that a crash cannot have caused is an error, with what to do, or is found again and
//! reported when the segment is read.

mod directories;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::thread;

use cluster::metadata::OwnLogEnd;
use disk::{
    BLOCK_BYTES, Buffer, Digest, DigestError, Directory, DirectoryBlock, Disk, DiskError, FrameId,
    LOG_FORMAT, OPEN_ENDED, PAYLOAD_BYTES, Read, Trailer, blocks_of,
};

use super::log_writer::{Directories, LogState, Segment};
use super::{LogLayout, each_first_block};
use crate::weakened;

/// Frames that are read at once: a block that somebody waits for waits for them, too.
const FRAMES_AT_ONCE: usize = 2;

/// Blocks that are checked until another thread gets the CPU, if it waits: the kernel itself looks every few milliseconds.
const BLOCKS_PER_TURN: u32 = 64;

/// The reason why a log cannot be read.
#[derive(Debug)]
pub enum LogError {
    /// The disk does not read.
    Disk(DiskError),
    /// What it holds is no log that this release can use; the text says what to do.
    Unsuitable(String),
}

impl fmt::Display for LogError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(error) => error.fmt(formatter),
            Self::Unsuitable(text) => formatter.write_str(text),
        }
    }
}

impl std::error::Error for LogError {}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

/// A log as it was found.
#[derive(Debug, Default)]
pub(super) struct FoundLog {
    pub(super) state: LogState,
    /// The number of the latest cut that counts, or of a later one.
    pub(super) cut: u64,
    /// The latest time of the store's clock.
    pub(super) clock_ms: u64,
    /// Bytes of all segments.
    pub(super) bytes: u64,
    /// Directories of segments; others have none.
    pub(super) directories: BTreeMap<u32, Directory>,
    /// Whether they have their words.
    pub(super) has_words: bool,
}

/// An open-ended segment: its last frame's blocks as far as they are intact.
struct Tail {
    sequence: u32,
    trailer: Trailer,
    /// Whether it has all blocks that its trailer's cut wrote.
    is_whole: bool,
}

/// What a disk has of a log, before it is known how much of that counts.
pub struct FoundEnd {
    digest: Digest,
    frames: Frames,
    tails: Vec<Tail>,
    /// The latest cut of the open-ended segments.
    latest: u64,
    /// Whether all of it is there.
    is_whole: bool,
}

/// Reads where a log ends on a disk; `None` on a new disk.
///
/// # Errors
/// [`LogError`].
pub fn find_end(disk: &mut dyn Disk, layout: LogLayout) -> Result<Option<FoundEnd>, LogError> {
    let Some(digest) = read_digest(disk, layout)? else { return Ok(None) };
    let mut frames = frames_by_segment(disk, layout, &digest)?;
    let mut tails = Vec::new();
    for (&sequence, segment) in frames.segments.iter_mut().filter(|(_, segment)| segment.bytes == OPEN_ENDED)
    {
        tails.extend(read_tail(disk, layout, sequence, segment)?);
    }
    let latest = tails.iter().map(|tail| tail.trailer.cut).max().unwrap_or(0);
    let (parts, whole): (Vec<_>, Vec<_>) = tails.iter().filter(|tail| tail.trailer.cut == latest).fold(
        Default::default(),
        |(mut parts, mut whole): (Vec<u32>, Vec<bool>), tail| {
            parts.push(tail.trailer.writes);
            whole.push(tail.is_whole);
            (parts, whole)
        },
    );
    // Parts of it may lie in segments whose bytes a later digest has fixed.
    let is_fixed = latest <= digest.cut;
    let is_whole = weakened::by("cut")
        || is_fixed
        || whole.iter().all(|whole| *whole) && parts.iter().all(|&writes| writes as usize == parts.len());
    Ok(Some(FoundEnd { digest, frames, tails, latest, is_whole }))
}

impl FoundEnd {
    /// Returns the last start that wrote a digest, the latest cut, and whether all of that is there.
    #[must_use]
    pub fn end(&self) -> OwnLogEnd {
        let (start, latest) = (self.digest.start, self.latest);
        let after = self.tails.iter().find(|tail| tail.trailer.cut == latest).map(|tail| tail.trailer.after);
        let before = match after.unwrap_or(0) {
            0 => None,
            disk::FAR_AFTER => Some(0),
            after => Some(latest - u64::from(after)),
        };
        OwnLogEnd { start, cut: latest.max(self.digest.cut), latest, before, is_whole: self.is_whole }
    }

    /// Returns the log up to this cut, or all of it that is whole. Directories have their words if the frames that hold them have
    /// no more bytes than `directory_bytes_max`.
    ///
    /// # Errors
    /// [`LogError`].
    pub(super) fn log(
        self,
        disk: &mut dyn Disk,
        layout: LogLayout,
        (directory_bytes_max, up_to): (u64, Option<u64>),
    ) -> Result<FoundLog, LogError> {
        let FoundEnd { digest, frames, tails, latest, is_whole } = self;
        let Frames { mut segments, mut free, of_directories, last } = frames;
        let counts_latest = is_whole && up_to.is_none_or(|cut| latest <= cut);
        for tail in &tails {
            let segment = segments.get_mut(&tail.sequence).expect("it has a tail");
            let counts = tail.trailer.cut < latest || counts_latest;
            let bytes = if counts { tail.trailer.end } else { tail.trailer.previous };
            segment.bytes = within_frames(tail.sequence, bytes, segment.frames.len(), layout);
        }
        let mut left_out = digest.left_out.clone();
        for (&sequence, segment) in &mut segments {
            if segment.bytes == OPEN_ENDED {
                segment.bytes = 0;
            }
            leave_out_survivors(sequence, segment, &digest, &mut left_out);
            let frames = (segment.bytes as usize).div_ceil(layout.payload_bytes());
            free.extend(segment.frames.drain(frames.min(segment.frames.len())..));
        }
        segments.retain(|_, segment| segment.bytes > 0);
        left_out.retain(|(_, sources)| sources.iter().any(|source| segments.contains_key(source)));
        let clock_ms = tails.iter().map(|tail| tail.trailer.clock_ms).max().unwrap_or(0).max(digest.clock_ms);
        let bytes = segments.values().map(|segment| u64::from(segment.bytes)).sum();
        let has_words = (of_directories.len() * layout.frame_bytes) as u64 <= directory_bytes_max;
        let (directories, frames) = directories::read(disk, layout, &of_directories, (&segments, has_words))?;
        free.extend(of_directories.into_iter().filter(|frame| !frames.contains_key(frame)));
        let (digest_number, directories_written) = (digest.number, Directories::found(frames));
        let (directories_of, start) = (directories_written, digest.start);
        let state =
            LogState { segments, free, digest_number, last, start, left_out, directories: directories_of };
        Ok(FoundLog { state, cut: latest.max(digest.cut), clock_ms, bytes, directories, has_words })
    }
}

/// Returns the bytes of an open-ended segment that its frames hold: all, unless none of the blocks of its last frame is
/// intact.
fn within_frames(sequence: u32, bytes: u32, frames: usize, layout: LogLayout) -> u32 {
    let held = frames * layout.payload_bytes();
    if bytes as usize <= held {
        return bytes;
    }
    let lost = bytes as usize - held;
    tracing::error!(
        sequence,
        bytes = lost,
        "damaged blocks at the end of a segment of the log: their objects are lost"
    );
    held as u32
}

/// Truncates a segment of survivors to what counts of it: the rest is still found where it came from.
pub(super) fn leave_out_survivors(
    sequence: u32,
    segment: &mut Segment,
    digest: &Digest,
    left_out: &mut Vec<(u32, Vec<u32>)>,
) {
    let counts = counting_bytes(sequence, segment.class, segment.bytes, |class| digest.survivors[class]);
    // Entries elsewhere may name one of which nothing has come.
    if counts < segment.bytes || segment.class > 0 && counts == 0 {
        left_out.push((sequence, digest.emptied.clone()));
        segment.bytes = counts;
    }
    // From now on it is a segment as any other.
    segment.class = 0;
}

/// Returns the bytes of a segment that count, of those that are there: all but for one of survivors, `survivors` of whose
/// class says up to where.
pub(super) fn counting_bytes(
    sequence: u32,
    class: u8,
    bytes: u32,
    survivors: impl Fn(usize) -> (u32, u32),
) -> u32 {
    let Some(class) = usize::from(class).checked_sub(1) else { return bytes };
    let (last, counting) = survivors(class);
    match last.cmp(&sequence) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => counting.min(bytes),
        std::cmp::Ordering::Greater => bytes,
    }
}

/// Returns the newer of both copies of the digest; `None` on a disk without any.
fn read_digest(disk: &mut dyn Disk, layout: LogLayout) -> Result<Option<Digest>, LogError> {
    let mut newest: Option<Digest> = None;
    for copy in 0..2 {
        if disk.frames() < (copy + 1) * layout.digest_frames {
            continue;
        }
        let mut bytes = Buffer::new(layout.digest_frames as usize * layout.frame_bytes);
        let mut pieces = layout.digest(copy).zip(bytes.chunks_mut(layout.frame_bytes));
        let (frame, first) = pieces.next().expect("a copy has a frame");
        disk.read(&mut [Read::of(frame, 0, first)])?;
        // A log begins with room for more than its digest needs.
        let behind = Digest::stated_bytes(first).unwrap_or(0).div_ceil(layout.frame_bytes).saturating_sub(1);
        let mut reads: Vec<_> = pieces.take(behind).map(|(frame, piece)| Read::of(frame, 0, piece)).collect();
        if !reads.is_empty() {
            disk.read(&mut reads)?;
        }
        match Digest::decode(&bytes) {
            Ok(digest) if newest.as_ref().is_none_or(|newest| follows(digest.number, newest.number)) => {
                newest = Some(digest);
            }
            Ok(_) | Err(DigestError::Damaged) => {}
            Err(DigestError::Format(format)) => {
                return Err(LogError::Unsuitable(format!(
                    "the log has format {format}, and this release knows {LOG_FORMAT}; start the release that wrote it"
                )));
            }
        }
    }
    // A server that ended while it wrote the first digest has written nothing else.
    let is_new = disk.frames() <= 2 * layout.digest_frames;
    if newest.is_none() && !is_new {
        let text = "both copies of the log's digest are damaged, or --disk is not as before: start with the --disk of \
                    before, restore the data directory from a copy of it, or move the file `log` away to start \
                    without objects";
        return Err(LogError::Unsuitable(text.to_owned()));
    }
    Ok(newest)
}

/// Returns whether a digest was written behind another one. Their numbers begin anew behind the last one.
pub(super) fn follows(number: u32, other: u32) -> bool {
    number.wrapping_sub(other).cast_signed() > 0
}

/// The frames of segments as they were found.
struct Frames {
    segments: BTreeMap<u32, Segment>,
    /// Those that nothing needs.
    free: Vec<FrameId>,
    /// Those that begin with a block of a directory.
    of_directories: Vec<FrameId>,
    /// The highest number ever used.
    last: u32,
}

fn frames_by_segment(disk: &mut dyn Disk, layout: LogLayout, digest: &Digest) -> Result<Frames, LogError> {
    let mut segments: BTreeMap<u32, Segment> = digest
        .segments
        .iter()
        .map(|known| (known.sequence, Segment { frames: Vec::new(), bytes: known.bytes, class: known.class }))
        .collect();
    let (mut free, mut of_directories, mut last) = (Vec::new(), Vec::new(), digest.last);
    let mut found = FramesByPlace::new();
    let all: Vec<FrameId> = layout.frames(disk).collect();
    each_first_block(disk, &all, |disk, frame, block| -> Result<(), LogError> {
        if DirectoryBlock::read(block, &mut Vec::new()).is_some() {
            of_directories.push(frame);
            return Ok(());
        }
        let trailer = match Trailer::read(block) {
            None if block.iter().any(|byte| *byte != 0) => trailer_within(disk, layout, frame)?,
            trailer => trailer,
        };
        let Some(trailer) = trailer else {
            free.push(frame);
            return Ok(());
        };
        last = last.max(trailer.sequence);
        // A segment that the digest does not know was opened behind it: what is from before is of a cut that a crash ended,
        // in a segment whose number a later start used again.
        let is_new = trailer.sequence > digest.last && trailer.cut > digest.cut;
        if !is_new && !segments.contains_key(&trailer.sequence) {
            free.push(frame);
            return Ok(());
        }
        let first = trailer.block / layout.blocks() * layout.blocks();
        let segment = segments.entry(trailer.sequence);
        segment.or_insert(Segment { frames: Vec::new(), bytes: OPEN_ENDED, class: trailer.class });
        match found.entry((trailer.sequence, first)) {
            Entry::Vacant(place) => _ = place.insert((trailer.cut, frame)),
            Entry::Occupied(mut place) if place.get().0 < trailer.cut => {
                free.push(place.insert((trailer.cut, frame)).1);
            }
            Entry::Occupied(_) => free.push(frame),
        }
        Ok(())
    })?;
    put_in_order(&mut segments, found, &mut free, layout);
    for (sequence, segment) in &segments {
        let needed = (segment.bytes as usize).div_ceil(layout.payload_bytes());
        if segment.bytes != OPEN_ENDED && segment.frames.len() < needed {
            let found = segment.frames.len();
            return Err(LogError::Unsuitable(format!(
                "segment {sequence} of the log has {needed} frames and {found} of them are on the disk, or --disk is not \
                 as before: start with the --disk of before, restore the data directory from a copy of it, or move the \
                 file `log` away to start without objects"
            )));
        }
    }
    Ok(Frames { segments, free, of_directories, last })
}

/// The latest cut that wrote to each place of a segment, by its number and its first block, and the frame.
type FramesByPlace = BTreeMap<(u32, u32), (u64, FrameId)>;

/// Gives segments their frames in order; other ones are free.
fn put_in_order(
    segments: &mut BTreeMap<u32, Segment>,
    found: FramesByPlace,
    free: &mut Vec<FrameId>,
    layout: LogLayout,
) {
    let mut before = (0, 0);
    for ((sequence, block), (cut, frame)) in found {
        let segment = segments.get_mut(&sequence).expect("it was entered");
        // Behind a gap lies what an incomplete cut wrote. Cuts write a segment's blocks in order: one of an earlier cut than a
        // block before it is of an earlier segment of this number.
        let follows = block / layout.blocks() == segment.frames.len() as u32;
        if follows && (before.0 != sequence || before.1 <= cut) {
            segment.frames.push(frame);
            before = (sequence, cut);
        } else {
            free.push(frame);
        }
    }
}

/// Returns the first intact trailer of a frame whose first block is damaged.
fn trailer_within(
    disk: &mut dyn Disk,
    layout: LogLayout,
    frame: FrameId,
) -> Result<Option<Trailer>, LogError> {
    let mut content = Buffer::new(layout.frame_bytes);
    disk.read(&mut [Read::of(frame, 0, &mut content)])?;
    Ok(content.chunks(BLOCK_BYTES).find_map(Trailer::read))
}

/// Reads the last frame of a segment, and returns the last of its blocks with what it says.
fn read_tail(
    disk: &mut dyn Disk,
    layout: LogLayout,
    sequence: u32,
    segment: &Segment,
) -> Result<Option<Tail>, LogError> {
    let Some(last_frame) = segment.frames.len().checked_sub(1) else { return Ok(None) };
    let mut bytes = Buffer::new(layout.frame_bytes);
    disk.read(&mut [Read::of(segment.frames[last_frame], 0, &mut bytes)])?;
    let first = last_frame as u32 * layout.blocks();
    let trailer_of = |bytes: &[u8], first: u32, block: u32| {
        let at = (block - first) as usize * BLOCK_BYTES;
        let block_bytes = &bytes[at..at + BLOCK_BYTES];
        let trailer = Trailer::read(block_bytes)?;
        let is_it = trailer.sequence == sequence && trailer.block == block;
        is_it.then(|| (trailer, trailer.verify(block_bytes)))
    };
    let in_frame = |block| trailer_of(&bytes, first, block).map(|(trailer, _)| trailer);
    // The last one of the latest cut: behind it may be some of an earlier segment of this number.
    let trailers = (first..first + layout.blocks()).filter_map(in_frame);
    let Some(trailer) = trailers.max_by_key(|trailer| trailer.cut) else { return Ok(None) };
    let mut is_whole = true;
    let mut other = None;
    for block in trailer.written() {
        let frame = block / layout.blocks();
        let Some(&id) = segment.frames.get(frame as usize) else {
            is_whole = false;
            break;
        };
        let known = if frame as usize == last_frame {
            trailer_of(&bytes, first, block)
        } else {
            if other.as_ref().is_none_or(|(number, _)| *number != frame) {
                let mut content = Buffer::new(layout.frame_bytes);
                disk.read(&mut [Read::of(id, 0, &mut content)])?;
                other = Some((frame, content));
            }
            let (_, content) = other.as_ref().expect("it was read");
            trailer_of(content, frame * layout.blocks(), block)
        };
        is_whole &= known.is_some_and(|(found, is_intact)| found.cut == trailer.cut && is_intact);
    }
    Ok(Some(Tail { sequence, trailer, is_whole }))
}

/// The bytes of a segment.
#[derive(Debug, Default)]
pub struct SegmentBytes {
    /// Those that count, as they were found.
    pub bytes: Vec<u8>,
    /// Offsets of entries, in rising order: at most one for each block.
    pub starts: Vec<u32>,
    /// Blocks that are not as they were written.
    pub blocks_damaged: u32,
    /// The latest time of the store's clock when a block was written, in milliseconds.
    pub clock_ms: u64,
}

/// Reads a segment, by way of `blocks`, memory that is used again for the next one.
///
/// # Errors
/// If the disk does not read.
pub(super) fn read_segment(
    disk: &mut dyn Disk,
    layout: LogLayout,
    sequence: u32,
    segment: &Segment,
    (blocks, into): (&mut Option<Buffer>, &mut SegmentBytes),
) -> Result<(), DiskError> {
    let SegmentBytes { bytes, starts, blocks_damaged, clock_ms } = into;
    bytes.clear();
    starts.clear();
    (*blocks_damaged, *clock_ms) = (0, 0);
    let length = segment.bytes as usize;
    let needed = segment.frames.len().max(1) * layout.frame_bytes;
    let buffer = match blocks.take().filter(|buffer| needed <= buffer.len()) {
        Some(buffer) => blocks.insert(buffer),
        None => blocks.insert(Buffer::new(needed)),
    };
    let mut reads: Vec<_> = Vec::new();
    let mut left = blocks_of(segment.bytes) as usize;
    for (frame, memory) in segment.frames.iter().zip(buffer.chunks_mut(layout.frame_bytes)) {
        let blocks = left.min(layout.blocks() as usize);
        left -= blocks;
        reads.push(Read::of(*frame, 0, &mut memory[..blocks * BLOCK_BYTES]));
    }
    for frames in reads.chunks_mut(FRAMES_AT_ONCE) {
        disk.read(frames)?;
    }
    for block in 0..blocks_of(segment.bytes) {
        let at = block as usize * BLOCK_BYTES;
        let content = &buffer[at..at + BLOCK_BYTES];
        let offset = block as usize * PAYLOAD_BYTES;
        let counting = (length - offset).min(PAYLOAD_BYTES);
        let trailer =
            Trailer::read(content).filter(|trailer| trailer.sequence == sequence && trailer.block == block);
        *clock_ms = trailer.map_or(0, |trailer| trailer.clock_ms).max(*clock_ms);
        if let Some(trailer) = trailer
            && usize::from(trailer.first) < counting
        {
            starts.push((offset + usize::from(trailer.first)) as u32);
        }
        // The last block may belong to a cut that does not count; its entries have their own checksums.
        let is_last = offset + counting == length;
        *blocks_damaged += u32::from(!is_last && !trailer.is_some_and(|trailer| trailer.verify(content)));
        bytes.extend_from_slice(&content[..counting]);
        if block % BLOCKS_PER_TURN == 0 {
            thread::yield_now();
        }
    }
    Ok(())
}
