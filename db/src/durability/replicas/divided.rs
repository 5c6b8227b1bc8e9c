//! A log that several servers recover: its segments are divided among them, each once.
//!
//! ```text
//!   stream of each server ── what it recovers ──► readers
//!                         ── a segment? ────────► ready?  its part
//!                                                 else    read, divide among all readers ──► its part; others' parts: ready
//! ```
//! So a backup reads and checks a segment once, however many servers recover the log, and each of these gets, parses and checks its
//! part alone. Parts that nobody has fetched are dropped when they are too much, the oldest first: then the segment is divided
//! again.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use cluster::replication::fetch::WantedHashes;
use store::{NewestRequests, NumberHash, SegmentEntry, divide_segment};

use crate::limits::DIVIDED_BYTES_MAX;
use crate::sync::lock;

/// Room for more than an even share of a segment: a part of the share.
const SHARE_SLACK_DIVISOR: usize = 8;

/// The first bytes of a segment in a replica: the replica's number, and how many.
pub type ReplicaBytes = (u64, u32);

/// The parts of a segment, by reader; `None` of a damaged one.
type DividedParts = BTreeMap<u64, Option<Vec<u8>>>;

/// See the file's head.
#[derive(Default)]
pub struct DividedLog {
    state: Mutex<DividedState>,
    /// A segment was divided, or could not be.
    ended: Condvar,
    /// Of all segments that were divided. One is divided at a time.
    newest: Mutex<NewestRequests>,
}

#[derive(Default)]
struct DividedState {
    /// The number of the next reader.
    next: u64,
    wanted: BTreeMap<u64, Vec<WantedHashes>>,
    readers: Arc<Readers>,
    /// What readers have not fetched, the oldest first.
    ready: VecDeque<(ReplicaBytes, DividedParts)>,
    /// What readers have fetched: it is divided for others alone.
    fetched: BTreeSet<(u64, ReplicaBytes)>,
    under_way: BTreeSet<ReplicaBytes>,
}

/// A server that recovers the log, until it is dropped.
pub struct DividedReader {
    log: Arc<DividedLog>,
    number: u64,
}

impl DividedReader {
    /// Begins to read a log of which these hashes are wanted.
    #[must_use]
    pub fn new(log: Arc<DividedLog>, wanted: Vec<WantedHashes>) -> Self {
        let number = {
            let mut state = lock(&log.state);
            let number = state.next;
            state.next += 1;
            state.wanted.insert(number, wanted);
            state.readers = Arc::new(Readers::of(&state.wanted));
            number
        };
        Self { log, number }
    }

    /// Returns the reader's part of the segment with this number, of which it asks for these bytes of a replica; `None` if they are
    /// damaged. `read` returns them, if they are there.
    ///
    /// # Errors
    /// That of `read`.
    pub fn fetch<E>(
        &self,
        sequence: u32,
        of: ReplicaBytes,
        read: impl FnOnce() -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let mut state = lock(&self.log.state);
        let readers = loop {
            if let Some(part) = state.take(of, self.number) {
                return Ok(part);
            }
            if state.under_way.insert(of) {
                break Arc::clone(&state.readers);
            }
            state = self.log.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        let _under_way = Dividing { log: &self.log, of };
        let (mut parts, count) = (Vec::new(), readers.numbers.len());
        let is_sound = read()?.is_some_and(|bytes| {
            // Mostly all have about as much.
            let share = bytes.len() / count;
            parts.extend((0..count).map(|_| Vec::with_capacity(share + share / SHARE_SLACK_DIVISOR)));
            let mut newest = lock(&self.log.newest);
            let places = |entry: &SegmentEntry<'_>| readers.of_entry(entry);
            divide_segment((sequence, &bytes), &mut newest, &mut parts, places).is_ok()
        });
        parts.resize_with(count, Vec::new);
        parts.iter_mut().for_each(Vec::shrink_to_fit);
        let parts = parts.into_iter().map(|part| is_sound.then_some(part));
        let mut parts: DividedParts = readers.numbers.iter().copied().zip(parts).collect();
        let own = parts.remove(&self.number).flatten();
        let mut state = lock(&self.log.state);
        state.fetched.insert((self.number, of));
        state.add(of, parts);
        Ok(own)
    }
}

impl Drop for DividedReader {
    fn drop(&mut self) {
        let mut state = lock(&self.log.state);
        state.wanted.remove(&self.number);
        state.readers = Arc::new(Readers::of(&state.wanted));
        state.ready.iter_mut().for_each(|(_, parts)| drop(parts.remove(&self.number)));
        state.ready.retain(|(_, parts)| !parts.is_empty());
        state.fetched.retain(|(reader, _)| *reader != self.number);
    }
}

/// Somebody divides a segment, until it is dropped.
struct Dividing<'l> {
    log: &'l DividedLog,
    of: ReplicaBytes,
}

impl Drop for Dividing<'_> {
    fn drop(&mut self) {
        lock(&self.log.state).under_way.remove(&self.of);
        self.log.ended.notify_all();
    }
}

impl DividedState {
    fn take(&mut self, of: ReplicaBytes, reader: u64) -> Option<Option<Vec<u8>>> {
        let at = self.ready.iter().position(|(place, parts)| *place == of && parts.contains_key(&reader))?;
        self.fetched.insert((reader, of));
        let parts = &mut self.ready[at].1;
        let part = parts.remove(&reader);
        if parts.is_empty() {
            self.ready.remove(at);
        }
        part
    }

    /// Keeps parts for the readers that are still there, and do not have them.
    fn add(&mut self, of: ReplicaBytes, mut parts: DividedParts) {
        let is_due =
            |reader: &u64| self.wanted.contains_key(reader) && !self.fetched.contains(&(*reader, of));
        parts.retain(|reader, _| is_due(reader));
        if !parts.is_empty() {
            self.ready.push_back((of, parts));
        }
        let bytes_of = |parts: &DividedParts| -> usize { parts.values().flatten().map(Vec::len).sum() };
        let mut bytes: usize = self.ready.iter().map(|(_, parts)| bytes_of(parts)).sum();
        while bytes > DIVIDED_BYTES_MAX
            && let Some((_, parts)) = self.ready.pop_front()
        {
            bytes -= bytes_of(&parts);
        }
    }
}

/// Which readers want an entry.
#[derive(Default)]
struct Readers {
    numbers: Vec<u64>,
    parts: HashMap<u32, PartReaders, NumberHash>,
}

/// The readers of a part of the log, by hashes.
#[derive(Default)]
struct PartReaders {
    is_tagged: bool,
    /// Where the readers change, in rising order, and who reads from there on.
    edges: Vec<u64>,
    readers: Vec<Vec<usize>>,
}

impl Readers {
    fn of(wanted: &BTreeMap<u64, Vec<WantedHashes>>) -> Self {
        let mut ranges: BTreeMap<u32, Vec<(usize, WantedHashes)>> = BTreeMap::new();
        for (index, wanted) in wanted.values().enumerate() {
            wanted.iter().for_each(|hashes| ranges.entry(hashes.part).or_default().push((index, *hashes)));
        }
        let parts = ranges.into_iter().map(|(part, ranges)| (part, PartReaders::of(&ranges)));
        Self { numbers: wanted.keys().copied().collect(), parts: parts.collect() }
    }

    /// Returns the places of those who want an entry.
    fn of_entry(&self, entry: &SegmentEntry<'_>) -> &[usize] {
        let Some(part) = self.parts.get(&entry.table) else { return &[] };
        let position = wire::position(entry.key, store::hash(entry.key), part.is_tagged, store::hash);
        let behind = part.edges.partition_point(|edge| *edge <= position);
        behind.checked_sub(1).map_or(&[], |at| part.readers[at].as_slice())
    }
}

impl PartReaders {
    fn of(ranges: &[(usize, WantedHashes)]) -> Self {
        // Who begins and who ends at each edge.
        let mut turns: BTreeMap<u64, Vec<(usize, bool)>> = BTreeMap::new();
        for &(index, WantedHashes { first, last, .. }) in ranges.iter().filter(|(_, it)| it.first <= it.last)
        {
            turns.entry(first).or_default().push((index, true));
            if let Some(end) = last.checked_add(1) {
                turns.entry(end).or_default().push((index, false));
            }
        }
        let mut own =
            Self { is_tagged: ranges.iter().any(|(_, hashes)| hashes.is_tagged), ..Self::default() };
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for (edge, turns) in turns {
            for (index, begins) in turns {
                let count = counts.entry(index).or_default();
                *count = if begins { *count + 1 } else { *count - 1 };
            }
            counts.retain(|_, count| *count != 0);
            own.edges.push(edge);
            own.readers.push(counts.keys().copied().collect());
        }
        own
    }
}
