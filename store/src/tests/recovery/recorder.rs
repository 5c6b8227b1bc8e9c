//! A log thread that writes to a record in place of a disk.

use std::collections::{BTreeMap, BTreeSet};

use crate::durable::SIDE_WRITERS;
use crate::log::SEGMENT_HEADER_BYTES;
use crate::object::Entry;
use crate::{LogOnDisk, LogPosition, Opened, Released, Store};

/// What a replay would find.
#[derive(Clone, Default)]
pub(super) struct Record {
    /// The bytes of each segment, and its writer.
    pub(super) segments: BTreeMap<u32, (usize, Vec<u8>)>,
    /// Up to where the segments of survivors count.
    pub(super) survivors: [LogPosition; SIDE_WRITERS],
    /// Segments whose objects are moving.
    pub(super) emptied: BTreeSet<u32>,
    pub(super) left_out: Vec<(u32, Vec<u32>)>,
    pub(super) last: u32,
}

/// A log thread that writes to a [`Record`].
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) record: Record,
    /// Segments that are not written completely.
    pub(super) open: Vec<(Opened, usize)>,
    pub(super) released: Vec<Released>,
}

impl Recorder {
    /// Makes a cut and records everything below it.
    pub(super) fn sync(&mut self, store: &Store) {
        let mut positions = Vec::new();
        let (number, released) = store.cut(&mut positions);
        self.released.extend(released);
        self.open.extend(store.take_opened().map(|opened| (opened, 0)));
        self.record.emptied.extend(store.take_emptied());
        for (opened, written) in &mut self.open {
            let position = positions[opened.writer];
            let to = match position.sequence.cmp(&opened.sequence) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Equal => position.bytes as usize,
                std::cmp::Ordering::Greater => store.closed_bytes(*opened).expect("its writer went on"),
            };
            let bytes = store.sealed_bytes(*opened, *written..to);
            let segment = self.record.segments.entry(opened.sequence).or_default();
            segment.0 = opened.writer;
            segment.1.extend_from_slice(bytes);
            self.record.last = self.record.last.max(opened.sequence);
            *written = to;
        }
        store.note_stable(number, &positions);
        self.open.retain(|(opened, written)| {
            let is_synced = store.closed_bytes(*opened) == Some(*written);
            if is_synced {
                store.note_synced(*opened);
            }
            !is_synced
        });
        let first_side = positions.len() - SIDE_WRITERS;
        let is_stable = |released: &Released| {
            released
                .survivors
                .iter()
                .zip(&positions[first_side..])
                .all(|(wanted, position)| wanted <= position)
        };
        while self.released.first().is_some_and(is_stable) {
            let Released { sequences, survivors } = self.released.remove(0);
            self.record.survivors = survivors;
            for sequence in sequences {
                self.record.segments.remove(&sequence).expect("it was there");
                self.record.emptied.remove(&sequence);
                store.note_gone(sequence);
            }
        }
    }
}

impl Record {
    /// Prints the entries of a key.
    pub(super) fn print(&self, table: u32, key: &[u8]) {
        println!(
            "left out: {:?}, emptied: {:?}, survivors: {:?}",
            self.left_out, self.emptied, self.survivors
        );
        for (sequence, (writer, bytes)) in &self.segments {
            let mut offset = SEGMENT_HEADER_BYTES;
            while let Some((entry, length)) = bytes.get(offset..).and_then(Entry::split) {
                if entry.table() == table && entry.key() == key {
                    let (kind, version, predecessor) = (entry.kind(), entry.version(), entry.predecessor());
                    println!("{sequence} of {writer} at {offset}: {kind:?} {version}, ends {predecessor}");
                }
                offset += length;
            }
        }
    }

    /// Leaves out what heads of survivors wrote since segments were last exchanged for theirs.
    pub(super) fn crash(&mut self, cores: usize) -> LogOnDisk {
        let emptied: Vec<u32> = self.emptied.iter().copied().collect();
        let mut left_out = Vec::new();
        let survivors = self.survivors;
        self.segments.retain(|&sequence, (writer, bytes)| {
            let Some(class) = writer.checked_sub(cores) else { return true };
            let counts = match survivors[class].sequence.cmp(&sequence) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => survivors[class].bytes as usize,
                std::cmp::Ordering::Greater => bytes.len(),
            };
            if counts < bytes.len() {
                left_out.push((sequence, emptied.clone()));
                bytes.truncate(counts);
            }
            // From now on it is a segment as any other.
            *writer = 0;
            counts > 0
        });
        self.left_out.extend(left_out);
        self.emptied.clear();
        self.survivors = Default::default();
        let sequences = self.segments.keys().copied().collect();
        let bytes = self.segments.values().map(|(_, bytes)| bytes.len() as u64).sum();
        let (last, left_out) = (self.last, self.left_out.clone());
        LogOnDisk { sequences, last, left_out, bytes, is_in_use: false }
    }
}
