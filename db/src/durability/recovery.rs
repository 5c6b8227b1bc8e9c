//! A start from the log: finds it, rebuilds the durable tables from its segments, and goes on writing it.
//!
//! ```text
//!   find ──► one thread reads segments, the newest first ──► each core replays some ──► writer
//! ```
//! The newest first, because what replaces comes before what it replaced, and old entries then cost no copy.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use disk::{Disk, DiskError};
use store::{Core, FoundCompletion, LogOnDisk, Recovered, Recovery, RecoveryError, Store, Table};

use super::LogLayout;
use super::log_reader::{self, LogError, SegmentBytes};
use super::log_writer::{LogWriter, Segment};
use crate::limits::{DAMAGED_NAMED_MAX, RECOVERY_PROGRESS_MS};
use crate::sync::lock;

/// What a start found on the disk.
#[derive(Debug, Default)]
pub struct Report {
    /// What the segments contained.
    pub recovered: Recovered,
    /// Segments that count, and their bytes.
    pub segments: usize,
    /// Bytes of these segments.
    pub bytes: u64,
    /// Blocks that are not as they were written.
    pub blocks_damaged: u64,
    /// The latest time of the store's clock before the start, in milliseconds.
    pub clock_ms: u64,
    /// Whether the disk held no log.
    pub is_new: bool,
    /// How long it took.
    pub took: Duration,
}

/// How far a replay is.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    replayed: AtomicU64,
    all: AtomicU64,
}

impl ReplayProgress {
    /// Returns the bytes that were replayed, and all.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.replayed.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed))
    }
}

/// A read segment on its way to a core; empty ones go back.
type Filled = (u32, SegmentBytes);

/// Finds a table by its number.
pub type FindTable<'t> = dyn Fn(u32) -> Option<Arc<Table>> + Sync + 't;

/// Rebuilds the durable tables of an empty store from the log on a disk, on these of the store's cores, and returns the
/// log to go on with. `table` finds a table by its number; entries of others are dropped. `completed` gets the completion
/// records that clients may ask for.
///
/// # Errors
/// [`LogError`]: then the disk is as it was.
pub fn recover(
    store: &Arc<Store>,
    mut disk: Box<dyn Disk>,
    frames_max: u32,
    (cores, replaying): (usize, usize),
    table: &FindTable<'_>,
    completed: &dyn Fn(FoundCompletion),
    progress: &ReplayProgress,
) -> Result<(LogWriter, Report), LogError> {
    let began = Instant::now();
    let layout = LogLayout::of(disk.frame_bytes(), frames_max);
    let found = log_reader::find(&mut *disk, layout)?;
    store.advance_clock(found.clock_ms);
    store.cut_above(found.cut);
    let segments = &found.state.segments;
    let bytes = segments.values().map(|segment| u64::from(segment.bytes)).sum();
    progress.all.store(bytes, Ordering::Relaxed);
    let log = LogOnDisk {
        sequences: segments.keys().copied().collect(),
        last: found.state.last,
        left_out: found.state.left_out.clone(),
        bytes,
        is_in_use: false,
    };
    let (segments_count, clock_ms, is_new) = (segments.len(), found.clock_ms, found.state.digest_number == 0);
    let replaying: Vec<Core> = (0..replaying).map(|index| store.core(index)).collect();
    let (recovered, blocks_damaged) =
        replay(replaying, &log, segments, (&*disk, layout, bytes), (table, completed, progress))?;
    let writer = LogWriter::new(Arc::clone(store), disk, (layout, frames_max), cores, found.state)?;
    let took = began.elapsed();
    let report =
        Report { recovered, segments: segments_count, bytes, blocks_damaged, clock_ms, is_new, took };
    Ok((writer, report))
}

fn replay(
    mut cores: Vec<Core>,
    log: &LogOnDisk,
    segments: &std::collections::BTreeMap<u32, Segment>,
    (disk, layout, bytes): (&dyn Disk, LogLayout, u64),
    (table, completed, progress): (&FindTable<'_>, &dyn Fn(FoundCompletion), &ReplayProgress),
) -> Result<(Recovered, u64), LogError> {
    let own = cores.pop().expect("a core replays");
    let mut first = own.recover(log);
    if segments.is_empty() {
        return Ok((first.finish(), 0));
    }
    let mut reading = disk.another()?;
    let (filled, to_replay) = sync_channel::<Filled>(cores.len() + 1);
    let buffers = 2 * cores.len() + 3;
    let (emptied, to_fill) = sync_channel::<SegmentBytes>(buffers);
    (0..buffers).for_each(|_| emptied.send(SegmentBytes::default()).expect("it has room"));
    let to_replay = Arc::new(Mutex::new(to_replay));
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let order: VecDeque<_> = segments.iter().rev().collect();
            read_all(&mut *reading, layout, order, bytes, (filled, to_fill))
        });
        let others: Vec<_> = cores
            .into_iter()
            .map(|core| {
                let (handle, to_replay, emptied) = (first.handle(), Arc::clone(&to_replay), emptied.clone());
                scope.spawn(move || {
                    let mut recovery = handle.on(&core);
                    replay_some(&mut recovery, &to_replay, &emptied, (table, progress))
                        .map(|()| recovery.end_part())
                })
            })
            .collect();
        let own = replay_some(&mut first, &to_replay, &emptied, (table, progress));
        drop((emptied, to_replay));
        let others: Vec<_> =
            others.into_iter().map(|other| other.join().expect("it does not panic")).collect();
        let read = reader.join().expect("it does not panic");
        own?;
        for other in others {
            first.join(other?);
        }
        first.take_completions().for_each(completed);
        Ok((first.finish(), read?))
    })
}

/// Reads segments and hands them over; returns the number of damaged blocks.
fn read_all(
    disk: &mut dyn Disk,
    layout: LogLayout,
    order: VecDeque<(&u32, &Segment)>,
    bytes: u64,
    (filled, to_fill): (SyncSender<Filled>, Receiver<SegmentBytes>),
) -> Result<u64, DiskError> {
    let (mut blocks_damaged, mut done, mut blocks) = (0, 0, None);
    let mut told = Instant::now();
    for (&sequence, segment) in order {
        let Ok(mut into) = to_fill.recv() else { break };
        log_reader::read_segment(disk, layout, sequence, segment, (&mut blocks, &mut into))?;
        if into.blocks_damaged > 0 {
            tracing::error!(sequence, blocks = into.blocks_damaged, "damaged blocks in a segment of the log");
        }
        blocks_damaged += u64::from(into.blocks_damaged);
        done += u64::from(segment.bytes);
        if told.elapsed() >= Duration::from_millis(RECOVERY_PROGRESS_MS) {
            told = Instant::now();
            tracing::info!(percent = done * 100 / bytes.max(1), bytes = done, "reading the log");
        }
        if filled.send((sequence, into)).is_err() {
            break;
        }
    }
    Ok(blocks_damaged)
}

fn replay_some(
    recovery: &mut Recovery<'_>,
    to_replay: &Mutex<Receiver<Filled>>,
    emptied: &SyncSender<SegmentBytes>,
    (table, progress): (&FindTable<'_>, &ReplayProgress),
) -> Result<(), LogError> {
    loop {
        let next = lock(to_replay).recv();
        let Ok((sequence, content)) = next else { return Ok(()) };
        let replayed = recovery.segment(sequence, &content.bytes, &content.starts, table);
        replayed.map_err(|error| LogError::Unsuitable(refusal(sequence, error)))?;
        progress.replayed.fetch_add(content.bytes.len() as u64, Ordering::Relaxed);
        // The reader may have ended.
        let _ = emptied.send(content);
    }
}

fn refusal(sequence: u32, error: RecoveryError) -> String {
    match error {
        RecoveryError::NotTheSegment => format!(
            "segment {sequence} of the log is damaged from its beginning: restore the data directory from a copy of it, or \
             move the file `log` away to start without objects"
        ),
        RecoveryError::OutOfMemory => {
            "the objects on the disk need more memory: start with a larger --memory".to_owned()
        }
    }
}

impl Report {
    /// Writes what was found to the server's log; so many objects are left of it.
    pub fn tell(&self, objects: u64) {
        let Recovered { dead, dropped, damaged, .. } = &self.recovered;
        tracing::info!(
            objects,
            dead,
            dropped,
            segments = self.segments,
            bytes = self.bytes,
            ms = self.took.as_millis() as u64,
            "recovered the objects of durable tables"
        );
        for (sequence, offset, length) in damaged.iter().take(DAMAGED_NAMED_MAX) {
            tracing::error!(
                sequence,
                offset,
                length,
                "damaged entries in the log: their objects may be lost"
            );
        }
        if damaged.len() > DAMAGED_NAMED_MAX {
            tracing::error!(more = damaged.len() - DAMAGED_NAMED_MAX, "more damaged entries in the log");
        }
    }
}
