//! What a step has written, until backups have it: then it is stable, and what it replaced is free.
//!
//! ```text
//!   cut written ──► settled ──► stable ──► digest without released segments written ──► settled ──► their frames are free
//! ```
//! Without backups everything is settled when it is written. Cuts that are only to be received (`receipts.rs`) may come in between.

use std::sync::atomic::Ordering;
use std::time::Instant;

use cluster::replication::Item;
use cluster::replication::message::HeldItem;
use disk::{BLOCK_BYTES, Buffer, DiskError, FrameId, OPEN_ENDED, PAYLOAD_BYTES, Read, Trailer, blocks_of};
use net::Duplex;
use store::LogPosition;

use super::{LogWriter, Part, Step};
use crate::durability::replicas::sender::{ReplicaSender, SentLog};

/// A cut that is written, and stable once enough backups have it.
pub(super) struct UnderWay {
    pub(super) cut: u64,
    /// The number that the disk has of it.
    pub(super) number: u64,
    pub(super) clock_ms: u64,
    pub(super) positions: Vec<LogPosition>,
    pub(super) parts: Vec<Part>,
    pub(super) began: Instant,
}

/// Segments that the last digest does not name, and their frames.
pub(super) struct Leaving {
    sequences: Vec<u32>,
    frames: Vec<FrameId>,
}

impl LogWriter {
    /// Sends the log to backups from now on, whole; so many of them are to have it. Nothing of it may be shown to anybody before
    /// a cut is stable: until then backups may have less than this disk, or a cut more.
    pub fn send_to(&mut self, replicas: ReplicaSender, wanted: usize) {
        self.figures.replicas_wanted.store(wanted as u64, Ordering::Relaxed);
        self.replicas = Some(replicas);
        self.written = self.store.stable_cut();
        self.digest_is_due = true;
    }

    /// Returns the numbers of the segments that the log has.
    pub fn sequences(&self) -> impl Iterator<Item = u32> {
        self.state.segments.keys().copied()
    }

    /// Returns the sockets over which backups answer.
    pub fn sockets(&self) -> impl Iterator<Item = &Duplex> {
        self.replicas.iter().flat_map(ReplicaSender::sockets)
    }

    /// Returns whether what the log had at the start is at enough backups.
    #[must_use]
    pub fn has_settled(&self) -> bool {
        self.has_settled
    }

    /// Returns whether a cut waits for backups: then a step makes no other one.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns whether all that was written is settled; then what left with it is free.
    pub(super) fn leave_if_settled(&mut self) -> bool {
        self.look_at_backups();
        if self.replicas.as_mut().is_some_and(|replicas| !replicas.is_settled()) {
            return false;
        }
        self.has_settled = true;
        self.store.note_clock(self.digest_clock_ms);
        for Leaving { sequences, frames } in std::mem::take(&mut self.leaving) {
            if let Some(replicas) = &mut self.replicas {
                replicas.free(&sequences);
            }
            // Only now, since before a start would have found them.
            self.pins.withhold(frames);
            sequences.into_iter().for_each(|sequence| self.store.note_gone(sequence));
        }
        true
    }

    /// Notes that a cut is stable.
    pub(super) fn complete(&mut self, under_way: UnderWay) -> Step {
        let UnderWay { cut, number, clock_ms, positions, mut parts, began } = under_way;
        if let Some(replicas) = &mut self.replicas {
            replicas.note_settled();
        }
        if !parts.is_empty() {
            self.store.note_clock(clock_ms);
            self.written = number;
        }
        self.store.note_stable(cut, &positions);
        for part in parts.iter_mut() {
            let open =
                self.open.iter_mut().find(|open| open.opened == part.opened).expect("it is a part of it");
            (open.written, open.entry) = (part.end, part.entry);
            open.words.append(&mut part.words);
        }
        let (store, segments, digest_is_due) =
            (&self.store, &mut self.state.segments, &mut self.digest_is_due);
        let directories = &mut self.directories;
        self.open.retain_mut(|open| {
            let is_whole = store.closed_bytes(open.opened) == Some(open.written);
            if is_whole {
                directories.add(open.opened.sequence, open.all_words(store));
                store.note_synced(open.opened);
                if let Some(segment) = segments.get_mut(&open.opened.sequence) {
                    segment.bytes = open.written as u32;
                    // The next one fixes its bytes, so that its end cannot rot unnoticed.
                    *digest_is_due = true;
                }
            }
            !is_whole
        });
        self.positions = positions;
        if parts.is_empty() {
            return Step::Idle;
        }
        self.figures.cuts.fetch_add(1, Ordering::Relaxed);
        self.figures.cut_us.store(began.elapsed().as_micros() as u64, Ordering::Relaxed);
        Step::Written
    }

    /// Writes a digest without released segments whose survivors are stable, in exchange for these; when it is settled they
    /// are free.
    pub(super) fn exchange(&mut self, (stable, clock_ms): (u64, u64)) -> Result<(), DiskError> {
        let mut sequences = Vec::new();
        while let Some((_, released)) = self.released.pop_front_if(|(cut, released)| {
            let positions = &self.positions[self.store.cores()..];
            let are_there = |(wanted, position): (&LogPosition, &LogPosition)| wanted <= position;
            *cut <= stable && released.survivors.iter().zip(positions).all(are_there)
        }) {
            self.survivors = released.survivors;
            sequences.extend(released.sequences);
        }
        if sequences.is_empty() {
            return Ok(());
        }
        let mut frames = Vec::new();
        for sequence in &sequences {
            let segment = self.state.segments.remove(sequence);
            frames.extend(segment.into_iter().flat_map(|segment| segment.frames));
            self.state.free.extend(self.directories.forget(*sequence));
            self.emptied.remove(sequence);
        }
        let segments = &self.state.segments;
        self.state.left_out.retain(|(_, sources)| sources.iter().any(|source| segments.contains_key(source)));
        self.write_digest(clock_ms)?;
        if let Some(replicas) = &mut self.replicas {
            replicas.settle(None);
        }
        self.leaving.push(Leaving { sequences, frames });
        self.leave_if_settled();
        Ok(())
    }

    /// Takes in what has happened to backups, and sends a piece of what one lacks.
    pub fn tend_backups(&mut self) {
        self.look_at_backups();
        self.copy_to_backups();
    }

    /// Sends what is kept for backups.
    pub fn flush_backups(&mut self) {
        self.replicas.iter_mut().for_each(ReplicaSender::flush_links);
    }

    /// Sends a piece of what a backup lacks.
    pub(super) fn copy_to_backups(&mut self) {
        let Some(mut replicas) = self.replicas.take() else { return };
        if let Err(error) = replicas.copy(self) {
            tracing::error!(%error, "a segment of the log cannot be copied to another server");
        }
        self.replicas = Some(replicas);
    }
}

impl SentLog for LogWriter {
    fn is_whole(&self, held: &HeldItem) -> bool {
        let Item::Segment(sequence) = held.item else { return false };
        self.state
            .segments
            .get(&sequence)
            .is_some_and(|segment| segment.bytes != OPEN_ENDED && segment.bytes <= held.bytes)
    }

    fn segment(&self, sequence: u32) -> Option<(u8, u32)> {
        let segment = self.state.segments.get(&sequence)?;
        let open = || self.open.iter().find(|open| open.opened.sequence == sequence);
        let bytes = match segment.bytes {
            OPEN_ENDED => open().map_or(0, |open| open.written as u32),
            bytes => bytes,
        };
        Some((segment.class, bytes))
    }

    fn read(&mut self, sequence: u32, at: u32, bytes: u32) -> Result<Vec<u8>, DiskError> {
        let (_, end) = self.segment(sequence).expect("it is there");
        let segment = &self.state.segments[&sequence];
        let blocks = at / PAYLOAD_BYTES as u32..blocks_of(at + bytes);
        let mut buffer = Buffer::new(blocks.len() * BLOCK_BYTES);
        let reads = blocks.clone().zip(buffer.chunks_mut(BLOCK_BYTES)).map(|(block, target)| {
            let frame = segment.frames[(block / self.layout.blocks()) as usize];
            Read::of(frame, (block % self.layout.blocks()) as usize * BLOCK_BYTES, target)
        });
        let mut reads: Vec<_> = reads.collect();
        self.disk.read(&mut reads)?;
        for (block, bytes) in blocks.zip(buffer.chunks(BLOCK_BYTES)) {
            let trailer = Trailer::read(bytes)
                .filter(|trailer| (trailer.sequence, trailer.block) == (sequence, block))
                .filter(|trailer| trailer.verify(bytes));
            // The last one may be of a cut that a crash ended; its entries have their own checksums.
            if trailer.is_none() && block + 1 < blocks_of(end) {
                tracing::error!(sequence, block, "a damaged block in a segment of the log");
                return Err(DiskError::Stopped);
            }
        }
        let content = buffer.chunks(BLOCK_BYTES).flat_map(|block| &block[..PAYLOAD_BYTES]);
        let before = at as usize % PAYLOAD_BYTES;
        Ok(content.skip(before).take(bytes as usize).copied().collect())
    }
}
