//! Reads ahead what somebody waits for while the log is replayed: objects that requests need, and the replies of a client
//! that resumes its session.
//!
//! ```text
//!   workers ── wanted hashes ──► puller ── directories of the segments that have not come ──► blocks ──► entries ──► memory
//!      ▲                            │ all that they have of the hash is there
//!      └──────── woken ─────────────┘
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use disk::{BLOCK_BYTES, Buffer, Directory, Disk, DiskError, FrameId, PAYLOAD_BYTES, Read, blocks_of};
use store::{Core, FoundCompletion, RecoveryHandle, RequestId, Table};

use super::log_reader::LogError;
use super::log_writer::Segment;
use super::{LogLayout, NumberedTables};
use crate::limits::{PULLED_ENTRIES_OF_HASH_MAX, PULLED_HASHES_AT_ONCE, READ_AHEAD_ENTRIES, SESSION_CREDITS};
use crate::sync::lock;

/// Blocks that are read of an entry of unknown length.
const BLOCKS_OF_ENTRY: usize = 2;

/// Segments that have not come, with their directories.
pub(super) struct Unread(RwLock<BTreeMap<u32, (Segment, Directory)>>);

impl Unread {
    pub(super) fn of(segments: BTreeMap<u32, (Segment, Directory)>) -> Self {
        Self(RwLock::new(segments))
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<u32, (Segment, Directory)>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a segment that has come.
    pub(super) fn forget(&self, sequence: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&sequence);
    }

    /// Adds where entries lie that may be of a hash, with the hash's number. The newest first: what they replace costs no
    /// memory then. Returns false, and adds none, if there are more than `most`.
    fn find(
        &self,
        (number, hash): (usize, u64),
        most: usize,
        layout: LogLayout,
        places: &mut Vec<(usize, EntryPlace)>,
    ) -> bool {
        let known = places.len();
        for (&sequence, (segment, directory)) in self.read().iter().rev() {
            let offsets = directory.find(hash).filter(|&offset| offset < segment.bytes as usize);
            let place = |offset| EntryPlace::of((sequence, segment), (offset, BLOCKS_OF_ENTRY), layout);
            places.extend(offsets.map(|offset| (number, place(offset))).take(most.saturating_add(1)));
            if places.len() - known > most {
                places.truncate(known);
                return false;
            }
        }
        true
    }

    /// Returns so many blocks from the one in which an entry begins, or all that there are; `None` if the segment has come.
    fn place(&self, sequence: u32, blocks: (usize, usize), layout: LogLayout) -> Option<EntryPlace> {
        self.read().get(&sequence).map(|(segment, _)| EntryPlace::of((sequence, segment), blocks, layout))
    }
}

/// Where an entry lies that may be of a wanted hash.
struct EntryPlace {
    sequence: u32,
    segment_bytes: usize,
    /// Of the entry in its segment.
    offset: usize,
    blocks: Vec<(FrameId, usize)>,
}

impl EntryPlace {
    fn of((sequence, segment): (u32, &Segment), (offset, blocks): (usize, usize), layout: LogLayout) -> Self {
        let first = (offset / PAYLOAD_BYTES) as u32;
        let end = blocks_of(segment.bytes).min(first + blocks as u32);
        let block = |block: u32| {
            let frame = segment.frames[(block / layout.blocks()) as usize];
            (frame, (block % layout.blocks()) as usize * BLOCK_BYTES)
        };
        let segment_bytes = segment.bytes as usize;
        Self { sequence, segment_bytes, offset, blocks: (first..end).map(block).collect() }
    }

    /// Returns the bytes from the entry on, as far as its blocks have them and they count.
    fn bytes(&self, blocks: &[u8]) -> Vec<u8> {
        let at = self.offset % PAYLOAD_BYTES;
        let payload = blocks.chunks(BLOCK_BYTES).flat_map(|block| &block[..PAYLOAD_BYTES]);
        payload.skip(at).take(self.segment_bytes - self.offset).copied().collect()
    }
}

/// Reads entries of segments that have not come.
pub(super) struct Reader {
    disk: Box<dyn Disk>,
    layout: LogLayout,
    unread: Arc<Unread>,
    buffer: Buffer,
}

impl Reader {
    pub(super) fn new(disk: Box<dyn Disk>, layout: LogLayout, unread: Arc<Unread>) -> Self {
        let buffer = Buffer::new(READ_AHEAD_ENTRIES * BLOCKS_OF_ENTRY * BLOCK_BYTES);
        Self { disk, layout, unread, buffer }
    }

    /// Calls `each` with what may be an entry of one of these hashes: the hash's number, the segment and its bytes, and the
    /// bytes that begin with the entry. The newest of a hash come first. Returns the numbers of hashes that have more than
    /// `most` entries, of which none is read.
    fn read(
        &mut self,
        (hashes, most): (impl Iterator<Item = u64>, usize),
        mut each: impl FnMut(usize, (u32, usize), &[u8]),
    ) -> Result<Vec<usize>, LogError> {
        let (mut places, mut left) = (Vec::new(), Vec::new());
        for (number, hash) in hashes.enumerate() {
            if !self.unread.find((number, hash), most, self.layout, &mut places) {
                left.push(number);
            }
        }
        for places in places.chunks(READ_AHEAD_ENTRIES) {
            self.read_blocks(places.iter().flat_map(|(_, place)| &place.blocks))?;
            let mut from = 0;
            let pieces = places.iter().map(|(_, place)| {
                let blocks = from..from + place.blocks.len() * BLOCK_BYTES;
                from = blocks.end;
                place.bytes(&self.buffer[blocks])
            });
            let pieces: Vec<_> = pieces.collect();
            for ((number, place), piece) in places.iter().zip(pieces) {
                if let Some(piece) = self.whole(place, piece)? {
                    each(*number, (place.sequence, place.segment_bytes), &piece);
                }
            }
        }
        Ok(left)
    }

    /// Returns the bytes of an entry, of which these are the first; `None` if its segment has come.
    fn whole(&mut self, place: &EntryPlace, piece: Vec<u8>) -> Result<Option<Vec<u8>>, DiskError> {
        let length = store::entry_bytes(&piece).unwrap_or(0).min(place.segment_bytes - place.offset);
        if length <= piece.len() {
            return Ok(Some(piece));
        }
        let blocks = (place.offset % PAYLOAD_BYTES + length).div_ceil(PAYLOAD_BYTES);
        let Some(whole) = self.unread.place(place.sequence, (place.offset, blocks), self.layout) else {
            return Ok(None);
        };
        self.read_blocks(whole.blocks.iter())?;
        Ok(Some(whole.bytes(&self.buffer[..blocks * BLOCK_BYTES])))
    }

    /// Reads blocks to the beginning of the buffer.
    fn read_blocks<'p>(
        &mut self,
        blocks: impl Iterator<Item = &'p (FrameId, usize)> + Clone,
    ) -> Result<(), DiskError> {
        let bytes = blocks.clone().count() * BLOCK_BYTES;
        if self.buffer.len() < bytes {
            self.buffer = Buffer::new(bytes);
        }
        let memory = self.buffer.chunks_mut(BLOCK_BYTES);
        let mut reads: Vec<_> =
            blocks.zip(memory).map(|(&(frame, offset), block)| Read::of(frame, offset, block)).collect();
        self.disk.read(&mut reads)
    }
}

/// Brings what requests wait for.
pub struct Puller {
    core: Core,
    handle: RecoveryHandle,
    tables: Arc<NumberedTables>,
    reader: Reader,
}

impl Puller {
    pub(super) fn new(
        core: Core,
        handle: RecoveryHandle,
        tables: Arc<NumberedTables>,
        reader: Reader,
    ) -> Self {
        Self { core, handle, tables, reader }
    }

    /// Brings some of what is waited for, and calls `wake` for it. Returns whether there was any.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn step(&mut self, wake: &dyn Fn(&Table, &[u64])) -> Result<bool, LogError> {
        let (tables, mut hashes, mut any) = (Arc::clone(&self.tables), Vec::new(), false);
        for table in tables.values().filter(|table| table.is_replaying()) {
            hashes.clear();
            table.take_wanted(PULLED_HASHES_AT_ONCE, &mut hashes);
            if hashes.is_empty() {
                continue;
            }
            any = true;
            // Whoever waits for others waits until everything is there, or asks again.
            let (there, others) = self.pull(&hashes)?;
            table.pulled(&there);
            table.not_pulled(&others);
            wake(table, &there);
        }
        Ok(any)
    }

    /// Brings all that the segments have of these hashes; returns those for which that went, and the others: without
    /// memory, or with very many entries.
    fn pull(&mut self, hashes: &[u64]) -> Result<(Vec<u64>, Vec<u64>), LogError> {
        let Self { core, handle, tables, reader } = self;
        let mut is_there = vec![true; hashes.len()];
        let asked = (hashes.iter().copied(), PULLED_ENTRIES_OF_HASH_MAX);
        let left = reader.read(asked, |number, segment, entry| {
            let table = |number: u32| tables.get(&number).map(Arc::clone);
            is_there[number] &= handle.on(core).ahead(segment, entry, table).is_ok();
        })?;
        left.into_iter().for_each(|number| is_there[number] = false);
        let mut is_there = is_there.into_iter();
        Ok(hashes.iter().partition(|_| is_there.next() == Some(true)))
    }
}

/// Finds the replies of clients that resume their sessions.
pub struct EarlyReplies {
    handle: RecoveryHandle,
    reader: Mutex<Reader>,
}

impl EarlyReplies {
    pub(super) fn new(handle: RecoveryHandle, reader: Reader) -> Self {
        Self { handle, reader: Mutex::new(reader) }
    }

    /// Returns the completion records that the log has of a client's requests from this one on, perhaps some repeatedly.
    /// Cost: a search for each request that a client may wait for in the directory of each segment that has not come, some
    /// ten milliseconds for 4 GB.
    ///
    /// # Errors
    /// If the disk does not read.
    pub fn of(&self, client: u64, first_unacknowledged: u64) -> Result<Vec<FoundCompletion>, LogError> {
        let requests = first_unacknowledged..first_unacknowledged.saturating_add(u64::from(SESSION_CREDITS));
        let is_asked = |found: &FoundCompletion| {
            found.request.client == client && requests.contains(&found.request.sequence)
        };
        let mut found = Vec::new();
        let hashes = requests.clone().map(|sequence| RequestId { client, sequence }.hash());
        // A record lies in the log once, or twice while it is cleaned.
        lock(&self.reader).read((hashes, usize::MAX), |_, _, entry| {
            found.extend(FoundCompletion::read(entry).filter(is_asked));
        })?;
        // Afterwards, since a segment that has come meanwhile was not read.
        found.extend(self.handle.completions_of(client).into_iter().filter(is_asked));
        Ok(found)
    }
}
