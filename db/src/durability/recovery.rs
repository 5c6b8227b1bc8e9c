//! A start from the log: finds it, rebuilds the durable tables from its segments, and goes on writing it.
//!
//! ```text
//!   find ──► begin: segments without a directory ──► the log is written, tables are served
//!                ──► rest: one thread reads segments, the newest first ──► each core replays some ──► end
//!                    puller: what somebody waits for, ahead of its segment
//! ```
//! The newest first, because what replaces comes before what it replaced, and old entries then cost no copy. What the rest
//! has of a hash is found by the directories of its segments; where these are too large there is no rest.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use disk::{Disk, DiskError};
use store::{Core, FoundCompletion, LogOnDisk, Recovered, Recovery, RecoveryError, RecoveryHandle, Store};

use super::ahead::{EarlyReplies, Puller, Reader, Unread};
use super::log_reader::{self, FoundEnd, FoundLog, LogError, SegmentBytes};
use super::log_writer::{LogWriter, Segment};
use super::{LogLayout, NumberedTables};
use crate::limits::{
    CUTS_PASSED_OVER, DAMAGED_NAMED_MAX, DIGESTS_PASSED_OVER, DIRECTORIES_DUE_MAX, OLD_REPLIES_MS,
    RECOVERY_PROGRESS_MS,
};
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

/// What a recovery has not done yet, while its tables are in use or not.
pub struct Rest {
    handle: RecoveryHandle,
    layout: LogLayout,
    disk: Box<dyn Disk>,
    tables: Arc<NumberedTables>,
    /// Segments, the newest first.
    segments: Vec<(u32, Segment)>,
    unread: Arc<Unread>,
    /// Segments without a directory, and the words of some of those that have come.
    lacking: HashSet<u32>,
    words: Mutex<Vec<(u32, Vec<u64>)>>,
    parts: Vec<Recovered>,
    report: Report,
    began: Instant,
}

/// How a log goes on at a start.
pub struct LogStart {
    /// Where things lie on its disk.
    pub layout: LogLayout,
    /// The most frames of the disk.
    pub frames_max: u32,
    /// The number of the start.
    pub number: u64,
    /// Numbers of segments that are not used: with backups, more than an earlier start can have sent them that is not on this
    /// disk.
    pub passed_over: u32,
    /// What the disk has of it; `None` of a new one.
    pub found: Option<FoundEnd>,
    /// The latest cut that counts; `None` if all that is whole does.
    pub up_to: Option<u64>,
}

/// Takes the log that was found on a disk and begins to rebuild the durable tables of an empty store from it, on these of the store's cores;
/// returns the log to go on with, on which so many cores write. If the directories of segments have `directory_bytes_max`
/// bytes at most, segments with one are left for the rest, and the tables expect it.
///
/// # Errors
/// [`LogError`]: then the disk is as it was.
pub fn begin(
    store: &Arc<Store>,
    mut disk: Box<dyn Disk>,
    LogStart { layout, frames_max, number, passed_over, found, up_to }: LogStart,
    (writing, replaying): (usize, Vec<Core>),
    (tables, directory_bytes_max): (Arc<NumberedTables>, u64),
    progress: &ReplayProgress,
) -> Result<(LogWriter, Rest), LogError> {
    let began = Instant::now();
    let mut found = match found {
        Some(end) => end.log(&mut *disk, layout, (directory_bytes_max, up_to))?,
        None => FoundLog::default(),
    };
    store.advance_clock(found.clock_ms);
    // Blocks of a cut that a crash ended may be on the disk, though nobody has found them.
    store.cut_above(found.cut + CUTS_PASSED_OVER);
    found.state.start = number;
    if passed_over > 0 {
        found.state.last = found.state.last.saturating_add(passed_over);
        found.state.digest_number = found.state.digest_number.wrapping_add(DIGESTS_PASSED_OVER);
    }
    let segments = &found.state.segments;
    let (bytes, serve) = (found.bytes, found.has_words);
    progress.all.store(bytes, Ordering::Relaxed);
    let mut directories = std::mem::take(&mut found.directories);
    let lacking: HashSet<u32> =
        segments.keys().filter(|sequence| !directories.contains_key(sequence)).copied().collect();
    let newest_first = segments.iter().rev().map(|(&sequence, segment)| (sequence, segment.clone()));
    let (rest, first): (Vec<_>, Vec<_>) =
        newest_first.partition(|(sequence, _)| serve && !lacking.contains(sequence));
    let log = LogOnDisk {
        sequences: segments.keys().copied().collect(),
        last: found.state.last,
        left_out: found.state.left_out.clone(),
        bytes,
        is_in_use: !rest.is_empty(),
    };
    if log.is_in_use {
        tables.values().for_each(|table| table.expect_replay());
    }
    let recovery = replaying[0].recover(&log);
    let (handle, own) = (recovery.handle(), recovery.end_part());
    let unread = rest.iter().map(|(sequence, segment)| {
        let directory = directories.remove(sequence).expect("it has one");
        (*sequence, (segment.clone(), directory))
    });
    let mut rest = Rest {
        handle,
        layout,
        disk: disk.another()?,
        tables,
        unread: Arc::new(Unread::of(unread.collect())),
        segments: rest,
        lacking,
        words: Mutex::default(),
        parts: vec![own],
        report: Report { segments: segments.len(), bytes, clock_ms: found.clock_ms, ..Report::default() },
        began,
    };
    rest.replay(replaying, first, (progress, &AtomicBool::new(false)))?;
    let mut writer = LogWriter::new(Arc::clone(store), disk, (layout, frames_max), writing, found.state)?;
    lock(&rest.words).drain(..).for_each(|(sequence, words)| writer.add_directory(sequence, words));
    Ok((writer, rest))
}

impl Rest {
    /// Returns what is known of the log before the end.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the tables.
    #[must_use]
    pub fn tables(&self) -> &Arc<NumberedTables> {
        &self.tables
    }

    /// Returns whether anything is left: then the tables are in use meanwhile.
    #[must_use]
    pub fn is_left(&self) -> bool {
        !self.segments.is_empty()
    }

    /// Returns what brings ahead what somebody waits for, on a core of its own.
    ///
    /// # Errors
    /// If the disk gives no second access.
    pub fn puller(&self, core: Core) -> Result<Puller, LogError> {
        Ok(Puller::new(core, self.handle.clone(), Arc::clone(&self.tables), self.reader()?))
    }

    /// Returns what finds the replies of a client ahead.
    ///
    /// # Errors
    /// If the disk gives no second access.
    pub fn early_replies(&self) -> Result<EarlyReplies, LogError> {
        Ok(EarlyReplies::new(self.handle.clone(), self.reader()?))
    }

    fn reader(&self) -> Result<Reader, LogError> {
        Ok(Reader::new(self.disk.another()?, self.layout, Arc::clone(&self.unread)))
    }

    /// Replays the rest on these cores and ends the recovery: `completed` gets the completion records that clients may ask
    /// for, and then the tables expect nothing more. Returns `None` if it was to stop before the end.
    ///
    /// # Errors
    /// [`LogError`]: the tables lack objects.
    pub fn end(
        mut self,
        cores: Vec<Core>,
        completed: &dyn Fn(FoundCompletion),
        (progress, stopping): (&ReplayProgress, &AtomicBool),
    ) -> Result<Option<Report>, LogError> {
        let segments = std::mem::take(&mut self.segments);
        let was_in_use = !segments.is_empty();
        let cores = self.replay(cores, segments, (progress, stopping))?;
        if stopping.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut last = self.handle.on(&cores[0]);
        self.parts.into_iter().for_each(|part| last.join(part));
        last.completions().into_iter().for_each(completed);
        self.report.recovered = last.finish();
        if was_in_use {
            self.tables.values().for_each(|table| table.end_replay());
        }
        self.report.took = self.began.elapsed();
        Ok(Some(self.report))
    }

    /// Replays segments on these cores, which are returned.
    fn replay(
        &mut self,
        cores: Vec<Core>,
        segments: Vec<(u32, Segment)>,
        (progress, stopping): (&ReplayProgress, &AtomicBool),
    ) -> Result<Vec<Core>, LogError> {
        if segments.is_empty() {
            return Ok(cores);
        }
        let mut reading = self.disk.another()?;
        let (filled, to_replay) = sync_channel::<Filled>(cores.len());
        let buffers = 2 * cores.len() + 1;
        let (emptied, to_fill) = sync_channel::<SegmentBytes>(buffers);
        (0..buffers).for_each(|_| emptied.send(SegmentBytes::default()).expect("it has room"));
        let to_replay = Arc::new(Mutex::new(to_replay));
        let (layout, bytes, clock_ms) = (self.layout, self.report.bytes, self.report.clock_ms);
        let (handle, tables, lacking) = (&self.handle, &*self.tables, &self.lacking);
        let (words, unread, has_failed) = (&self.words, &*self.unread, &AtomicBool::new(false));
        let done = move |sequence: u32, content: &SegmentBytes| {
            unread.forget(sequence);
            // More get theirs at the next starts.
            if lacking.contains(&sequence)
                && lock(words).len() < DIRECTORIES_DUE_MAX
                && let Some(of_segment) = content.words()
            {
                lock(words).push((sequence, of_segment));
            }
            progress.replayed.fetch_add(content.bytes.len() as u64, Ordering::Relaxed);
        };
        let (replayed, blocks_damaged) = thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let channels = (filled, to_fill);
                let ends = || stopping.load(Ordering::Relaxed) || has_failed.load(Ordering::Relaxed);
                read_all(&mut *reading, layout, segments.into(), (bytes, progress, &ends), channels)
            });
            let replaying: Vec<_> = cores
                .into_iter()
                .map(|core| {
                    let (to_replay, emptied) = (Arc::clone(&to_replay), emptied.clone());
                    scope.spawn(move || {
                        let mut recovery = handle.on(&core);
                        let channels = (&*to_replay, &emptied);
                        let replayed = replay_some(&mut recovery, channels, (tables, clock_ms), &done);
                        replayed.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
                        let part = recovery.end_part();
                        Ok::<_, LogError>((core, part))
                    })
                })
                .collect();
            drop((emptied, to_replay));
            let replayed: Vec<_> =
                replaying.into_iter().map(|other| other.join().expect("it does not panic")).collect();
            let read = reader.join().expect("it does not panic");
            let replayed = replayed.into_iter().collect::<Result<Vec<_>, _>>()?;
            Ok::<_, LogError>((replayed, read?))
        })?;
        self.report.blocks_damaged += blocks_damaged;
        let (cores, parts): (Vec<_>, Vec<_>) = replayed.into_iter().unzip();
        self.parts.extend(parts);
        Ok(cores)
    }
}

fn replay_some(
    recovery: &mut Recovery<'_>,
    (to_replay, emptied): (&Mutex<Receiver<Filled>>, &SyncSender<SegmentBytes>),
    (tables, clock_ms): (&NumberedTables, u64),
    done: &dyn Fn(u32, &SegmentBytes),
) -> Result<(), LogError> {
    loop {
        let next = lock(to_replay).recv();
        let Ok((sequence, content)) = next else { return Ok(()) };
        let table = |number: u32| tables.get(&number).map(Arc::clone);
        recovery.expect_old_replies(clock_ms.saturating_sub(content.clock_ms) > OLD_REPLIES_MS);
        let replayed = recovery.segment(sequence, &content.bytes, &content.starts, table);
        replayed.map_err(|error| LogError::Unsuitable(refusal(sequence, error)))?;
        done(sequence, &content);
        // The reader may have ended.
        let _ = emptied.send(content);
    }
}

/// Reads segments and hands them over; returns the number of damaged blocks.
fn read_all(
    disk: &mut dyn Disk,
    layout: LogLayout,
    order: VecDeque<(u32, Segment)>,
    (bytes, progress, ends): (u64, &ReplayProgress, &dyn Fn() -> bool),
    (filled, to_fill): (SyncSender<Filled>, Receiver<SegmentBytes>),
) -> Result<u64, DiskError> {
    let (mut blocks_damaged, mut blocks) = (0, None);
    let mut told = Instant::now();
    for (sequence, segment) in order {
        let Ok(mut into) = to_fill.recv() else { break };
        if ends() {
            break;
        }
        log_reader::read_segment(disk, layout, sequence, &segment, (&mut blocks, &mut into))?;
        if into.blocks_damaged > 0 {
            tracing::error!(sequence, blocks = into.blocks_damaged, "damaged blocks in a segment of the log");
        }
        blocks_damaged += u64::from(into.blocks_damaged);
        if told.elapsed() >= Duration::from_millis(RECOVERY_PROGRESS_MS) {
            told = Instant::now();
            let (done, _) = progress.bytes();
            tracing::info!(percent = done * 100 / bytes.max(1), bytes = done, "replaying the log");
        }
        if filled.send((sequence, into)).is_err() {
            break;
        }
    }
    Ok(blocks_damaged)
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
